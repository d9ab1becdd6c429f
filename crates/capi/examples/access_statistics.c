/* Which pages of a table do peers use, and who tries what they may not do? (docs/guide/access-statistics.md) */
#include <pagewire.h>
#include <inttypes.h>
#include <stdio.h>

int main(void)
{
    pw_node *node;
    if (pw_node_alone(&node))
        pw_die("node");
    size_t bytes = 100 * 4096; /* a hundred pages */
    uint64_t *table = pw_calloc(bytes, 1);
    pw_token token;
    if (!table || pw_export(node, table, bytes, PW_READ | PW_WRITE, &token))
        pw_die("table");
    pw_access_statistics *counting;
    if (pw_access_statistics_start(node, &token, PW_COUNT_PUTS | PW_COUNT_GETS, 0, &counting))
        pw_die("count");

    /* These could be any other processes that have the token. */
    pw_remote *remote;
    if (pw_open(node, &token, &remote))
        pw_die("open");
    for (uint64_t i = 0; i < 1000; i++)
        if (pw_put(remote, 8 * (i * i % 51200), &i, sizeof i))
            pw_die("put");
    static char there[8192];
    if (pw_get(remote, 0, there, sizeof there))
        pw_die("get");

    pw_access_counts total;
    pw_numbered_counts pages[3];
    size_t count;
    if (pw_access_statistics_total(counting, &total) || pw_access_statistics_hottest(counting, pages, 3, &count))
        pw_die("counts");
    printf("%" PRIu64 " puts, %" PRIu64 " gets\n", total.puts, total.gets);
    for (size_t i = 0; i < count; i++)
        printf("page %" PRIu64 ": %" PRIu64 " accesses\n", pages[i].number, pages[i].counts.puts + pages[i].counts.gets);

    /* From here on puts are refused, and it is counted that somebody tried. */
    pw_access_statistics_end(counting);
    if (pw_access_statistics_start(node, &token, PW_COUNT_PUTS | PW_COUNT_GETS, PW_REFUSE_PUTS, &counting))
        pw_die("count");
    uint64_t one = 1;
    if (pw_put(remote, 0, &one, sizeof one) != PW_KEY)
        return 1;
    if (pw_access_statistics_total(counting, &total))
        pw_die("counts");
    printf("%" PRIu64 " refused\n", total.refused_puts);
    pw_access_statistics_end(counting);
    pw_close(remote);
    pw_free(table);
    return pw_node_leave(node);
}

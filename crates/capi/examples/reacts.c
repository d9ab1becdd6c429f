/*
 * Memory that reacts, in C: a counter and a mailbox made of plain puts.
 *
 *     cc reacts.c -o reacts $(pkg-config --cflags --libs pagewire)
 *     ./reacts
 */
#include <pagewire.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Called by a thread of the library, once for each record. The peer does not know. */
static void handle(void *context, const pw_access *access)
{
    uint64_t *letters = context, letter;

    if (access->data_length < sizeof letter) {
        printf("%" PRIu64 " bytes were put\n", access->length);
        return;
    }
    memcpy(&letter, access->data, sizeof letter);
    printf("a letter: %" PRIu64 "\n", letter);
    *letters += 1;
}

int main(void)
{
    pw_node *node;
    if (pw_node_alone(&node))
        pw_die("node");
    uint64_t *table = pw_aligned_alloc(4096, 2 * 4096), letters = 0; /* two pages */
    if (!table)
        pw_die("allocate");
    memset(table, 0, 2 * 4096);
    pw_token token;
    if (pw_export(node, table, 2 * 4096, PW_READ | PW_WRITE, &token))
        pw_die("export");
    pw_log *log;
    if (pw_log_make(node, 1 << 20, 0, PW_ORDERED, &log)) /* bytes for each source */
        pw_die("log");

    /* Puts to the first page go to the log, and not to memory. Those to the second are counted, and reach memory. */
    if (pw_set_attributes(node, &token, 0, 4096, PW_REDIRECT_PUTS, log) ||
        pw_set_attributes(node, &token, 4096, PW_TO_END, PW_LOG_PUTS, log))
        pw_die("attributes");
    pw_serving *serving;
    if (pw_log_serve(log, NULL, handle, &letters, &serving))
        pw_die("serve");

    /* This could be any other process that has the token. */
    pw_remote *remote;
    if (pw_open(node, &token, &remote))
        pw_die("open");
    uint64_t seven = 7, some[] = {1, 2, 3};
    if (pw_put(remote, 0, &seven, sizeof seven) || pw_put(remote, 4096, some, sizeof some))
        pw_die("put");
    if (pw_flush_handled(remote, PW_ALL_DOMAINS)) /* both handlers have returned */
        pw_die("flush");

    printf("in memory: %" PRIu64 " and %" PRIu64 ", letters: %" PRIu64 "\n", table[0], table[512], letters);
    pw_counts counts;
    if (pw_serving_end(serving, &counts))
        pw_die("end");
    printf("handled: %" PRIu64 ", failed: %" PRIu64 "\n", counts.handled, counts.failed);
    pw_close(remote);
    pw_log_free(log);
    pw_free(table);
    return pw_node_leave(node);
}

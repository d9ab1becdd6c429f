/*
 * Your first put, in C. Each process of the job puts its rank to the next one, then adds to a signal there.
 *
 *     cc first_put.c -o first_put $(pkg-config --cflags --libs pagewire)
 *     ./first_put
 *     mpirun -n 4 --oversubscribe ./first_put
 */
#include <pagewire.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    pw_node *node;
    if (pw_node_from_env(&node))
        pw_die("join"); /* says which rule, and what to do */
    size_t rank = pw_rank(node), size = pw_size(node);

    uint64_t *table = pw_calloc(2, sizeof *table); /* one registered heap a process */
    pw_token mine, *all = calloc(size, sizeof *all);
    if (!table || !all || pw_export(node, table, 2 * sizeof *table, PW_WRITE | PW_ATOMIC, &mine))
        pw_die("export");
    if (pw_all_gather(node, &mine, sizeof mine, all))
        pw_die("gather");

    pw_remote *next;
    if (pw_open(node, &all[(rank + 1) % size], &next))
        pw_die("open");
    uint64_t value = 100 + rank;
    pw_signal signal = {.offset = 8, .value = 1, .change = PW_ADD};
    if (pw_put_signal(next, 0, &value, sizeof value, &signal)) /* waits; pw_put_signal_start gives an operation */
        pw_die("put");
    if (pw_signal_wait(node, &table[1], PW_AT_LEAST, 1, PW_FOREVER, NULL))
        pw_die("signal");
    printf("%zu got %llu\n", rank, (unsigned long long)table[0]);

    if (pw_barrier(node))
        pw_die("barrier");
    pw_close(next);
    pw_free(table); /* ends its export first */
    free(all);
    return pw_node_leave(node);
}

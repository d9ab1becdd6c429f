/* A hash table over the processes of a job (docs/guide/hash-table.md). */
#include <pagewire.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    pw_node *node;
    if (pw_node_from_env(&node)) /* mpirun, srun, a rendezvous, or alone */
        pw_die("join the job");
    pw_table_options options = {.cells = 1000};
    pw_table *table;
    if (pw_table_join(node, &options, &table))
        pw_die("join the table");

    if (pw_table_insert(table, 7, "seven", 5))
        pw_die("insert");
    pw_element many[100];
    for (uint64_t i = 0; i < 100; i++)
        many[i] = (pw_element){100 + i, "one of many", 11};
    if (pw_table_insert_batch(table, many, 100))
        pw_die("insert many");
    if (pw_table_flush(table) || pw_barrier(node)) /* what this process has inserted is found by everyone */
        pw_die("flush");

    char value[64];
    uint64_t length;
    if (pw_table_lookup(table, 7, value, sizeof value, &length))
        pw_die("look up");
    if (length != PW_ABSENT)
        printf("7: %.*s\n", (int)length, value);
    if (pw_barrier(node)) /* all have looked */
        pw_die("barrier");
    if (pw_table_delete(table, 7) || pw_table_flush(table))
        pw_die("delete");
    if (pw_table_lookup(table, 7, value, sizeof value, &length))
        pw_die("look up");
    pw_volume volume;
    if (pw_table_volume(table, &volume))
        pw_die("volume");
    printf("7 is %s, %" PRIu64 " elements here\n", length == PW_ABSENT ? "gone" : "there", volume.elements);

    if (pw_barrier(node)) /* a process that leaves takes its part along */
        pw_die("barrier");
    pw_table_free(table);
    return pw_node_leave(node);
}

/* A hash table that outlives its process: start it twice. See docs/guide/durable-tables.md. */
#include <pagewire.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    pw_node *node;
    if (pw_node_from_env(&node)) /* mpirun, srun, a rendezvous, or alone */
        pw_die("join the job");
    pw_table_options options = {.cells = 1000};
    pw_durability durability = {.folder = count > 1 ? arguments[1] : "table"};
    pw_table *table;
    if (pw_table_join_durable(node, &options, &durability, &table))
        pw_die("join the table");
    pw_volume volume;
    if (pw_table_volume(table, &volume))
        pw_die("volume");
    printf("%" PRIu64 " elements were there\n", volume.elements);

    for (uint64_t key = 1; key <= 100; key++)
        if (pw_table_insert(table, key, "it stays", 8))
            pw_die("insert");
    if (pw_table_flush(table))
        pw_die("flush");
    fflush(stdout);
    _exit(0); /* as if it was killed: nothing is closed, and nothing was saved */
}

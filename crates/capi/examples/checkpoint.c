/* A counter that peers put to, and that goes on where it was after its process was killed (docs/guide/checkpoint.md). */
#include <pagewire.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    pw_node *node;
    if (pw_node_alone(&node))
        pw_die("node");
    size_t bytes = 1000 * 4096; /* a thousand pages */
    uint64_t *table = pw_calloc(bytes, 1);
    pw_token token;
    if (!table || pw_export(node, table, bytes, PW_READ | PW_WRITE | PW_ATOMIC, &token))
        pw_die("table");
    pw_memory memory = {table, bytes, &token};
    pw_checkpoint *checkpoint;
    if (pw_checkpoint_open(node, argc > 1 ? argv[1] : "counter.checkpoint", PW_SYNC, &memory, 1, &checkpoint))
        pw_die("open");
    pw_restored restored;
    if (pw_checkpoint_restore(checkpoint, 0, NULL, 0, &restored))
        pw_die("restore");
    if (restored.number)
        printf("checkpoint %" PRIu64 ": the counter is %" PRIu64 "\n", restored.number, table[0]);
    else
        printf("no checkpoint yet\n");

    /* This could be any other process that has the token. */
    pw_remote *remote;
    if (pw_open(node, &token, &remote))
        pw_die("open");
    for (int round = 0; round < 3; round++) {
        uint64_t count;
        if (pw_fetch_add(remote, 0, 1, &count) || pw_put(remote, 4096 * (1 + count % 900), &count, sizeof count))
            pw_die("count");
        pw_saved saved;
        if (pw_checkpoint_save(checkpoint, NULL, 0, &saved))
            pw_die("save");
        printf("round %d: checkpoint %" PRIu64 "\n", round, saved.number);
    }
    pw_checkpoint_close(checkpoint);
    pw_close(remote);
    pw_free(table);
    return pw_node_leave(node);
}

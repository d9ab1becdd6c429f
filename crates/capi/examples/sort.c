/* A sort of the keys of several processes. Any of them may die, and is started again with the same arguments (docs/guide/experimental-sort.md). */
#include <pagewire_experimental.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "sort FOLDER RANK SIZE [KEYS]: an empty folder, the number of this process from 0 on, how many there are, keys of each\n");
        return 2;
    }
    pw_sort_options options = {.folder = argv[1], .rank = strtoul(argv[2], NULL, 10), .size = strtoul(argv[3], NULL, 10)};
    size_t count = argc > 4 ? strtoul(argv[4], NULL, 10) : 100000;
    uint64_t *keys = malloc(count * sizeof *keys);
    if (!keys || !count)
        return 2;
    for (size_t at = 0; at < count; at++) /* the same keys when it is started again */
        keys[at] = (options.rank * count + at + 1) * UINT64_C(0x9E3779B97F4A7C15);

    pw_node *node;
    pw_sorted sorted;
    if (pw_node_alone(&node) || pw_sort(node, &options, keys, count, &sorted))
        pw_die("sort");
    uint64_t sum = sorted.keys[0];
    for (size_t at = 1; at < sorted.count; at++) {
        sum += sorted.keys[at];
        if (sorted.keys[at - 1] > sorted.keys[at])
            return 1;
    }
    printf("process %zu: %zu keys from position %" PRIu64 " on, %016" PRIx64 " to %016" PRIx64 ", their sum %016" PRIx64 "\n", options.rank,
           sorted.count, sorted.position, sorted.keys[0], sorted.keys[sorted.count - 1], sum);
    fprintf(stderr, "%" PRIu64 " gets, %" PRIu64 " keys from logs, %" PRIu64 " times a process was lost\n", sorted.gets, sorted.from_logs,
            sorted.peers_lost);
    pw_free(sorted.keys);
    free(keys);
    return pw_node_leave(node);
}

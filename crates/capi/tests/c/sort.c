/* A sort of one process, and calls that are refused: sort FOLDER. */
#include "expect.h"
#include <pagewire_experimental.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static const uint64_t keys[] = {30, 10, 20, 10};
    pw_node *node;
    pw_sorted sorted;
    char run[256], nowhere[256];

    if (argc < 2 || pw_node_alone(&node))
        pw_die("node");
    snprintf(run, sizeof run, "%s/run-0", argv[1]);
    snprintf(nowhere, sizeof nowhere, "%s/nowhere", argv[1]);
    pw_sort_options options = {.folder = argv[1], .rank = 0, .size = 1};
    EXPECT(PW_ARGUMENT, pw_sort(node, NULL, keys, 4, &sorted));
    REQUIRE(!sorted.keys && !sorted.count);
    EXPECT(PW_ARGUMENT, pw_sort(node, &options, NULL, 4, &sorted));
    EXPECT(PW_ARGUMENT, pw_sort(node, &options, keys, 4, NULL));
    options.folder = NULL;
    EXPECT(PW_ARGUMENT, pw_sort(node, &options, keys, 4, &sorted));
    SAYS("'folder'");
    options.folder = nowhere;
    EXPECT(PW_SYSTEM, pw_sort(node, &options, keys, 4, &sorted));
    SAYS("nowhere");
    options.folder = argv[1];
    options.rank = 1;
    EXPECT(PW_ARGUMENT, pw_sort(node, &options, keys, 4, &sorted));
    SAYS("process 1 of 1");
    options.rank = 0;
    options.size = PW_MOST_SORT_PROCESSES + 1;
    EXPECT(PW_ARGUMENT, pw_sort(node, &options, keys, 4, &sorted));
    options.size = 2;
    options.patience = 50000000;
    EXPECT(PW_TIMEOUT, pw_sort(node, &options, keys, 4, &sorted));
    SAYS("process 1 is not there");

    options.size = 1;
    options.patience = PW_FOREVER;
    EXPECT(PW_OK, pw_sort(node, &options, keys, 4, &sorted));
    REQUIRE(sorted.count == 4 && sorted.position == 0 && sorted.run_was_saved);
    REQUIRE(sorted.keys[0] == 10 && sorted.keys[1] == 10 && sorted.keys[2] == 20 && sorted.keys[3] == 30);
    REQUIRE(pw_is_registered(sorted.keys));
    EXPECT(PW_OK, pw_free(sorted.keys));

    /* Started again: its result is in the folder. */
    EXPECT(PW_OK, pw_sort(node, &options, NULL, 0, &sorted));
    REQUIRE(sorted.count == 4 && sorted.keys[3] == 30 && sorted.gets == 0);
    EXPECT(PW_OK, pw_free(sorted.keys));

    FILE *file = fopen(run, "w");
    REQUIRE(file && fputs("nonsense", file) >= 0 && !fclose(file));
    EXPECT(PW_SYSTEM, pw_sort(node, &options, keys, 4, &sorted));
    SAYS("delete it");
    REQUIRE(!sorted.keys);
    EXPECT(PW_OK, pw_node_leave(node));
    return failures != 0;
}

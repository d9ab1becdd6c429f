/* Names from before the first release: a program that uses them still compiles and runs (pagewire/renamed.h, pagewire/experimental/renamed.h). */
#include "expect.h"
#include <pagewire_experimental.h>

int main(void)
{
    pw_node *node;
    pw_counting *counting;
    pw_access_counts counts;
    pw_statistics heap;
    pw_process_options processes = {.rank = 0, .size = 0};
    pw_process *process;
    pw_store_options cells = {.cells = 1, .value_bytes = 8};
    pw_store_token of_store;
    pw_store *store;
    pw_peer peer;
    pw_opening opening;
    pw_opened *opened;
    pw_operation *held, *released;
    pw_token token;
    uint64_t words[512] = {0}, written = 0;

    EXPECT(PW_OK, pw_node_alone(&node));
    EXPECT(PW_OK, pw_heap_statistics(&heap));
    EXPECT(PW_OK, pw_export(node, words, sizeof words, PW_READ | PW_WRITE, &token));
    EXPECT(PW_ARGUMENT, pw_process_start(node, "", &processes, &process));
    EXPECT(PW_OK, pw_store_make(node, &cells, &store));
    EXPECT(PW_OK, pw_store_export(store, &of_store));
    EXPECT(PW_OK, pw_store_free(store));

    EXPECT(PW_OK, pw_identity(node, &peer));
    EXPECT(PW_OK, pw_open_write(node, &peer, 7, "seven", 6, &held));
    EXPECT(PW_OK, pw_next_opened(node, PW_FOREVER, &opening, &opened));
    REQUIRE(opening.direction == PW_OPENED_WRITE && opening.length == 6);
    EXPECT(PW_OK, pw_opened_release(opened, &token, &written, &released));
    EXPECT(PW_OK, pw_wait(released));
    EXPECT(PW_OK, pw_wait(held));
    REQUIRE(written == 6 && !strcmp((char *)words, "seven"));
    EXPECT(PW_OK, pw_opened_free(opened));
    EXPECT(PW_OK, pw_operation_free(held));
    EXPECT(PW_OK, pw_operation_free(released));
    EXPECT(PW_OK, pw_release(node, NULL, 8, &token, NULL, NULL));
    EXPECT(PW_OK, pw_open_write(node, &peer, 8, "eight", 6, &held));
    EXPECT(PW_OK, pw_wait(held));
    EXPECT(PW_OK, pw_operation_free(held));

    EXPECT(PW_OK, pw_counting_start(node, &token, PW_COUNT_PUTS, 0, &counting));
    EXPECT(PW_OK, pw_counting_total(counting, &counts));
    EXPECT(PW_OK, pw_counting_end(counting));
    EXPECT(PW_OK, pw_node_leave(node));
    return failures != 0;
}

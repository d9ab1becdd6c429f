/* Built-in handlers and batches: what each step does, what reaches memory or a handler, failures, ends, and calls that are refused. */
#include "expect.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, BYTES = 10 * PAGE };

/* The caller has a node of its own, as another process has. */
static pw_node *node, *caller;

/* Memory of the heap, that the caller of this process has mapped, or any other. */
static void steps(uint64_t *memory)
{
    pw_built_ins *served;
    pw_remote_built_ins *remote;
    pw_chain_address address;
    char found[32], wide[32], zeros[32] = {0};
    pw_outcome outcomes[3];

    memset(memory, 0, BYTES);
    memset(wide, 9, sizeof wide);
    EXPECT(PW_OK, pw_built_ins_serve(node, memory, BYTES, &served));
    EXPECT(PW_OK, pw_built_ins_begin_area(served, 64, 1024, 1024 + 16));
    EXPECT(PW_BOUNDS, pw_built_ins_begin_area(served, 64, 1024, BYTES + 8));
    EXPECT(PW_BOUNDS, pw_built_ins_begin_area(served, BYTES - 8, 1024, 2048));
    EXPECT(PW_ALIGNMENT, pw_built_ins_begin_area(served, 65, 1024, 2048));
    REQUIRE(memory[8] == 1024 && memory[9] == 1040);
    EXPECT(PW_OK, pw_built_ins_address(served, &address));
    EXPECT(PW_OK, pw_built_ins_open(caller, &address, &remote));

    for (uint64_t count = 0; count < 20; count++) {
        pw_step step = {PW_STEP_FETCH_ADD, .at = 8, .add = 2};
        EXPECT(PW_OK, pw_built_ins_run(remote, &step, 1, outcomes));
        REQUIRE(outcomes[0].was_run && outcomes[0].word == 2 * count);
    }
    /* Of 32 bytes: the owner's thread runs it. */
    pw_step swap[] = {
        {PW_STEP_COMPARE_SWAP, .at = 256, .compare = zeros, .data = wide, .length = 32, .found = found},
        {PW_STEP_APPEND, .at = 64, .data = "won", .length = 3, .if_swapped = true},
        {PW_STEP_READ, PW_PLACE_FOUND, .at = 1, .by = 1, .length = 2, .found = found, .if_swapped = true},
    };
    EXPECT(PW_OK, pw_built_ins_run(remote, swap, 3, outcomes));
    REQUIRE(outcomes[0].swapped && outcomes[1].word == 1024 && !memcmp(found, "on", 2) && !memcmp(&memory[32], wide, 32));
    EXPECT(PW_OK, pw_built_ins_run(remote, swap, 3, outcomes));
    REQUIRE(!outcomes[0].swapped && outcomes[0].was_run && !outcomes[1].was_run && !outcomes[2].was_run);
    REQUIRE(!memcmp(found, wide, 32));
    /* The low byte is compared, and the high bit of the second one changed. */
    pw_step masked = {PW_STEP_COMPARE_SWAP, .at = 256, .compare = "\x09\x01", .compare_mask = "\xff\x00",
                      .data = "\x00\x80", .data_mask = "\x00\x80", .length = 2};
    EXPECT(PW_OK, pw_built_ins_run(remote, &masked, 1, outcomes));
    REQUIRE(outcomes[0].swapped && ((unsigned char *)memory)[256] == 9 && ((unsigned char *)memory)[257] == 0x89);
    pw_step bytes[] = {
        {PW_STEP_WRITE, .at = 515, .data = "across words", .length = 12},
        {PW_STEP_XOR, .at = 515, .data = "AC", .length = 2, .found = found},
        {PW_STEP_READ, .at = 515, .length = 12, .found = found + 2},
    };
    EXPECT(PW_OK, pw_built_ins_run(remote, bytes, 3, outcomes));
    REQUIRE(!memcmp(found, "ac\x20\x20ross words", 14) && outcomes[2].was_run && !outcomes[2].swapped);
    /* Behind a pointer. */
    memory[70] = 515;
    pw_step behind[] = {{PW_STEP_WRITE, PW_PLACE_BEHIND, .at = 560, .by = 7, .data = "W", .length = 1},
                        {PW_STEP_READ, PW_PLACE_BEHIND, .at = 560, .by = 7, .length = 5, .found = found}};
    EXPECT(PW_OK, pw_built_ins_run(remote, behind, 2, NULL));
    REQUIRE(!memcmp(found, "Words", 5));

    /* What is refused at the owner has the code that it has here. */
    pw_step full = {PW_STEP_APPEND, .at = 64, .data = zeros, .length = 9};
    EXPECT(PW_SYSTEM, pw_built_ins_run(remote, &full, 1, NULL));
    SAYS("the area at 64 is full: 8 bytes are left");
    EXPECT(PW_SYSTEM, pw_built_ins_run(remote, &(pw_step){PW_STEP_APPEND, .at = BYTES - 64, .data = zeros, .length = 8}, 1, NULL));
    SAYS("no area was begun at");
    pw_step out[] = {{PW_STEP_WRITE, .at = BYTES - 1, .data = "xy", .length = 2}, swap[0]};
    for (int wide_too = 0; wide_too < 2; wide_too++) {
        EXPECT(PW_BOUNDS, pw_built_ins_run(remote, out, 1 + wide_too, NULL));
        pw_step crooked[] = {{PW_STEP_FETCH_ADD, .at = 3, .add = 1}, swap[0]};
        EXPECT(PW_ALIGNMENT, pw_built_ins_run(remote, crooked, 1 + wide_too, NULL));
    }
    EXPECT(PW_ARGUMENT, pw_built_ins_run(remote, NULL, 1, NULL));
    EXPECT(PW_OK, pw_built_ins_run(remote, NULL, 0, NULL));
    pw_step wrong = {.action = 7};
    EXPECT(PW_ARGUMENT, pw_built_ins_run(remote, &wrong, 1, NULL));
    SAYS("step 0 has the action 7");
    wrong = (pw_step){PW_STEP_READ, .place = 3};
    EXPECT(PW_ARGUMENT, pw_built_ins_run(remote, &wrong, 1, NULL));
    wrong = (pw_step){PW_STEP_COMPARE_SWAP, .compare = zeros, .data = zeros, .length = 33};
    EXPECT(PW_ARGUMENT, pw_built_ins_run(remote, &wrong, 1, NULL));
    SAYS("33 bytes to compare: they are 1 to 32");
    wrong = (pw_step){PW_STEP_WRITE, .length = 8};
    EXPECT(PW_ARGUMENT, pw_built_ins_run(remote, &wrong, 1, NULL));
    wrong = (pw_step){PW_STEP_READ, .length = PW_MOST_MOVED + 1};
    EXPECT(PW_LIMIT, pw_built_ins_run(remote, &wrong, 1, NULL));
    wrong = (pw_step){PW_STEP_READ, PW_PLACE_FOUND, .at = 0, .length = 8};
    EXPECT(PW_SYSTEM, pw_built_ins_run(remote, &wrong, 1, NULL));
    SAYS("step 0 has found no offset");
    wrong = (pw_step){PW_STEP_READ, .at = UINT64_MAX, .by = 1};
    EXPECT(PW_BOUNDS, pw_built_ins_run(remote, &wrong, 1, NULL));

    EXPECT(PW_IN_USE, pw_node_leave(node));
    EXPECT(PW_OK, pw_built_ins_end(served));
    EXPECT(PW_HANDLE, pw_built_ins_end(served));
    pw_step step = {PW_STEP_FETCH_ADD, .at = 8, .add = 2};
    REQUIRE(pw_built_ins_run(remote, &step, 1, NULL) != PW_OK && memory[1] == 40);
    EXPECT(PW_IN_USE, pw_node_leave(caller));
    EXPECT(PW_OK, pw_built_ins_close(remote));
    EXPECT(PW_HANDLE, pw_built_ins_run(remote, &step, 1, NULL));
}

static void no_built_ins(void)
{
    static uint64_t words[8];
    pw_built_ins *none = (pw_built_ins *)1;
    pw_remote_built_ins *remote = (pw_remote_built_ins *)1;
    pw_chain_address address = {{0}};

    EXPECT(PW_ARGUMENT, pw_built_ins_serve(node, NULL, 64, &none));
    REQUIRE(none == NULL);
    EXPECT(PW_ARGUMENT, pw_built_ins_serve(node, words, 0, &none));
    EXPECT(PW_ARGUMENT, pw_built_ins_serve(node, (char *)words + 4, 8, &none));
    SAYS("multiples of 8");
    EXPECT(PW_ARGUMENT, pw_built_ins_serve(node, words, 63, &none));
    EXPECT(PW_ARGUMENT, pw_built_ins_serve(node, words, 64, NULL));
    EXPECT(PW_SYSTEM, pw_built_ins_serve(node, (void *)8, 64, &none));
    EXPECT(PW_ARGUMENT, pw_built_ins_serve(NULL, words, 64, &none));
    EXPECT(PW_TOKEN, pw_built_ins_open(caller, &address, &remote));
    REQUIRE(remote == NULL);
    EXPECT(PW_ARGUMENT, pw_built_ins_open(caller, NULL, &remote));
    EXPECT(PW_OK, pw_built_ins_end(NULL));
    EXPECT(PW_OK, pw_built_ins_close(NULL));
    EXPECT(PW_ARGUMENT, pw_built_ins_address(NULL, &address));
}

struct seen {
    pw_batches *own;
    atomic_int puts, bytes;
    uint64_t last_offset, sources;
};

/* Odd bytes are refused: by a sentence, or without one. */
static void handle(void *context, const pw_batched_put *put)
{
    struct seen *seen = context;

    seen->puts++;
    seen->bytes += put->length;
    seen->last_offset = put->offset;
    if (seen->own)
        EXPECT(PW_IN_HANDLER, pw_batches_end(seen->own));
    if (put->length == 1)
        EXPECT(PW_OK, pw_handler_failed("one byte is too little"));
    else if (put->length == 3)
        EXPECT(PW_OK, pw_handler_failed(NULL));
    else
        memcpy(put->address, put->data, put->length);
}

static void redirected(uint64_t *memory)
{
    struct seen seen = {0};
    pw_batches *served;
    pw_batch *batch;
    pw_batch_address address;
    pw_batch_counts counts;
    pw_remote *remote;
    pw_token token;
    uint64_t value = 7;

    memset(memory, 0, BYTES);
    EXPECT(PW_OK, pw_export(node, memory, BYTES, PW_READ | PW_WRITE, &token));
    EXPECT(PW_ARGUMENT, pw_batches_redirect(node, &token, NULL, &seen, &served));
    EXPECT(PW_ENGINE, pw_batches_redirect(caller, &token, handle, &seen, &served));
    REQUIRE(served == NULL);
    EXPECT(PW_OK, pw_batches_redirect(node, &token, handle, &seen, &served));
    EXPECT(PW_OK, pw_batches_address(served, &address));
    EXPECT(PW_OK, pw_batch_open(caller, &address, &batch));
    REQUIRE(pw_batch_length(batch) == BYTES && pw_batch_unsent(batch) == 0);
    EXPECT(PW_OK, pw_batch_put(batch, 0, NULL, 0));
    EXPECT(PW_BOUNDS, pw_batch_put(batch, BYTES - 7, &value, 8));
    EXPECT(PW_LIMIT, pw_batch_put(batch, 0, memory, PW_MOST_BATCHED + 1));
    EXPECT(PW_ARGUMENT, pw_batch_put(batch, 0, NULL, 8));
    EXPECT(PW_OK, pw_batch_flush_handled(batch));
    seen.puts = seen.bytes = 0;
    for (value = 0; value < 1000; value++)
        EXPECT(PW_OK, pw_batch_put(batch, 8 * value, &value, 8));
    REQUIRE(pw_batch_unsent(batch) == 1000);
    EXPECT(PW_OK, pw_batch_send(batch));
    REQUIRE(pw_batch_unsent(batch) == 0);
    EXPECT(PW_OK, pw_batch_wait(batch));
    EXPECT(PW_OK, pw_batch_flush_handled(batch));
    REQUIRE(seen.puts == 1000 && seen.bytes == 8000 && seen.last_offset == 7992 && memory[999] == 999);
    /* Failures are counted, and the put behind them is handled. Single puts come to the same handler. */
    EXPECT(PW_OK, pw_batch_put(batch, 0, "x", 1));
    EXPECT(PW_OK, pw_batch_put(batch, 0, "xyz", 3));
    EXPECT(PW_OK, pw_batch_put(batch, 8, &value, 8));
    EXPECT(PW_OK, pw_batch_flush_handled(batch));
    EXPECT(PW_OK, pw_open(caller, &token, &remote));
    EXPECT(PW_OK, pw_put(remote, 16, &value, 8));
    EXPECT(PW_OK, pw_put(remote, 24, "xyz", 3));
    EXPECT(PW_OK, pw_flush_handled(remote, PW_ALL_DOMAINS));
    EXPECT(PW_OK, pw_batches_counts(served, &counts));
    REQUIRE(counts.failed == 3 && counts.malformed == 0 && memory[0] == 0 && memory[1] == 1000 && memory[2] == 1000 && memory[3] == 3);
    seen.own = served;
    EXPECT(PW_OK, pw_batch_put(batch, 8, &value, 8));
    EXPECT(PW_OK, pw_batch_flush_handled(batch));

    EXPECT(PW_IN_USE, pw_node_leave(node));
    EXPECT(PW_OK, pw_batches_end(served));
    EXPECT(PW_HANDLE, pw_batches_counts(served, &counts));
    EXPECT(PW_OK, pw_put(remote, 32, &value, 8)); /* an ordinary page again */
    REQUIRE(memory[4] == 1000);
    EXPECT(PW_OK, pw_batch_put(batch, 8, &value, 8));
    REQUIRE(pw_batch_wait(batch) != PW_OK);
    EXPECT(PW_IN_USE, pw_node_leave(caller));
    EXPECT(PW_OK, pw_batch_close(batch));
    EXPECT(PW_HANDLE, pw_batch_send(batch));
    EXPECT(PW_OK, pw_close(remote));
    EXPECT(PW_OK, pw_unexport(node, &token));
}

static void to_memory(uint64_t *memory)
{
    pw_batches *served;
    pw_batch *batch;
    pw_batch_address address;
    pw_batch_counts counts;

    memset(memory, 0, BYTES);
    EXPECT(PW_ARGUMENT, pw_batches_to_memory(node, NULL, 8, &served));
    EXPECT(PW_SYSTEM, pw_batches_to_memory(node, (void *)8, 8, &served));
    EXPECT(PW_OK, pw_batches_to_memory(node, (char *)memory + 1, BYTES - 1, &served));
    EXPECT(PW_OK, pw_batches_address(served, &address));
    EXPECT(PW_OK, pw_batch_open(caller, &address, &batch));
    for (int round = 0; round < 10; round++)
        for (uint64_t value = 0; value < BYTES / 8 - 1; value++)
            EXPECT(PW_OK, pw_batch_put(batch, 8 * value + 7, &value, 8));
    EXPECT(PW_OK, pw_batch_flush_handled(batch));
    for (uint64_t value = 0; value < BYTES / 8 - 1; value++)
        REQUIRE(memory[1 + value] == value);
    /* What is not sent yet goes with the close. */
    EXPECT(PW_OK, pw_batch_put(batch, 0, "abcdefg", 7));
    EXPECT(PW_OK, pw_batch_close(batch));
    EXPECT(PW_OK, pw_batch_open(caller, &address, &batch));
    EXPECT(PW_OK, pw_batch_flush_handled(batch));
    REQUIRE(!memcmp((char *)memory + 1, "abcdefg", 7));
    EXPECT(PW_OK, pw_batches_counts(served, &counts));
    REQUIRE(counts.puts == 10 * (BYTES / 8 - 1) + 1 && counts.failed == 0);
    EXPECT(PW_OK, pw_batch_close(batch));
    EXPECT(PW_OK, pw_batches_end(served));
}

/* Memory that goes away is an error, and no fault. */
static void lost_memory(void)
{
    pw_batches *served;
    pw_built_ins *built_ins;
    pw_remote_built_ins *remote;
    pw_batch *batch;
    pw_batch_address address;
    pw_chain_address chains;
    pw_batch_counts counts;
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), zeros[32] = {0};

    EXPECT(PW_OK, pw_batches_to_memory(node, memory, BYTES, &served));
    EXPECT(PW_OK, pw_built_ins_serve(node, memory, BYTES, &built_ins));
    EXPECT(PW_OK, pw_batches_address(served, &address));
    EXPECT(PW_OK, pw_built_ins_address(built_ins, &chains));
    EXPECT(PW_OK, pw_batch_open(caller, &address, &batch));
    EXPECT(PW_OK, pw_built_ins_open(caller, &chains, &remote));
    munmap(memory, BYTES);
    EXPECT(PW_OK, pw_batch_put(batch, 0, "x", 1));
    EXPECT(PW_OK, pw_batch_put(batch, PAGE, "x", 1));
    EXPECT(PW_OK, pw_batch_flush_handled(batch));
    EXPECT(PW_OK, pw_batches_counts(served, &counts));
    REQUIRE(counts.failed == 2 && counts.puts == 2);
    pw_step wide = {PW_STEP_COMPARE_SWAP, .compare = zeros, .data = zeros, .length = 32};
    EXPECT(PW_SYSTEM, pw_built_ins_run(remote, &wide, 1, NULL));
    SAYS("cannot be accessed");
    EXPECT(PW_OK, pw_batch_close(batch));
    EXPECT(PW_OK, pw_built_ins_close(remote));
    EXPECT(PW_OK, pw_batches_end(served));
    EXPECT(PW_OK, pw_built_ins_end(built_ins));
}

int main(void)
{
    static uint64_t elsewhere[BYTES / 8];
    uint64_t *in_heap;

    if (pw_node_alone(&node) || pw_node_alone(&caller) || !(in_heap = pw_malloc(BYTES)))
        pw_die("begin");
    no_built_ins();
    for (int of = 0; of < 2; of++) {
        uint64_t *memory = of ? elsewhere : in_heap;

        steps(memory);
        redirected(memory);
        to_memory(memory);
    }
    lost_memory();
    EXPECT(PW_OK, pw_free(in_heap));
    EXPECT(PW_OK, pw_node_leave(caller));
    EXPECT(PW_OK, pw_node_leave(node));
    return failures != 0;
}

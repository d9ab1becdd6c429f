/* Global memory between the processes of a job: plain loads and stores, handlers at the home, dirty pages, and calls that are refused. It prints "none" where the kernel has no such memory. */
#include "expect.h"
#include <pagewire_experimental.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGES = 4, WORDS = PAGES * PW_GLOBAL_PAGE_WORDS, ROUNDS = 200 };

static pw_global *memory;
static atomic_int calls;

/* Fills the pages that were never stored to, but for the first word. Where another process has a copy, what is written is lost. */
static void fill(void *context, const pw_page_access *access)
{
    pw_gas_counts counts;

    REQUIRE(context == &calls && access->first_word % PW_GLOBAL_PAGE_WORDS == 0);
    if (!calls++) {
        EXPECT(PW_IN_HANDLER, pw_global_counts(memory, &counts));
        EXPECT(PW_IN_HANDLER, pw_global_free(memory));
        EXPECT(PW_IN_HANDLER, pw_global_leave(memory));
        REQUIRE(!pw_global_words(memory));
    }
    if (!access->is_alone)
        access->content[1] = 13;
    else if (!access->content[1])
        access->content[1] = 1000 + access->first_word;
}

int main(void)
{
    pw_node *node;
    size_t first, count, rank, size;
    uint64_t dirty[PAGES + 1];
    pw_gas_counts counts;

    if (pw_node_from_env(&node))
        pw_die("join");
    rank = pw_rank(node), size = pw_size(node);
    EXPECT(PW_LIMIT, pw_global_make(node, 0, &memory));
    REQUIRE(!memory);
    EXPECT(PW_LIMIT, pw_global_make(node, (size_t)1 << 40, &memory));
    EXPECT(PW_ARGUMENT, pw_global_make(NULL, PAGES, &memory));
    EXPECT(PW_ARGUMENT, pw_global_make(node, PAGES, NULL));
    if (pw_global_make(node, PAGES, &memory) == PW_SYSTEM) {
        printf("none\n");
        return 0;
    }
    EXPECT(PW_IN_USE, pw_node_leave(node));
    _Atomic uint64_t *words = (_Atomic uint64_t *)pw_global_words(memory);
    EXPECT(PW_OK, pw_global_home(memory, rank, &first, &count));
    REQUIRE(words && first == rank * WORDS && count == WORDS);
    EXPECT(PW_ARGUMENT, pw_global_home(memory, size, &first, &count));
    EXPECT(PW_ARGUMENT, pw_global_on_access(memory, NULL, NULL));
    EXPECT(PW_OK, pw_global_on_access(memory, fill, &calls));
    EXPECT(PW_OK, pw_barrier(node));

    /* The second page of the next process comes filled. */
    size_t next = (rank + 1) % size * WORDS;
    REQUIRE(words[next + PW_GLOBAL_PAGE_WORDS + 1] == 1000 + next + PW_GLOBAL_PAGE_WORDS);
    /* All add to a word of process 0, and see the sum. */
    for (int round = 0; round < ROUNDS; round++)
        atomic_fetch_add(&words[0], 1);
    EXPECT(PW_OK, pw_barrier(node));
    REQUIRE(words[0] == ROUNDS * size);
    /* Message passing: who sees the flag sees what was stored before. */
    for (uint64_t round = 1; round <= ROUNDS; round++)
        if (rank == 0) {
            atomic_store_explicit(&words[2], round, memory_order_relaxed);
            atomic_store_explicit(&words[WORDS * size - 1], round, memory_order_release);
        } else {
            uint64_t flag = atomic_load_explicit(&words[WORDS * size - 1], memory_order_acquire);
            REQUIRE(atomic_load_explicit(&words[2], memory_order_relaxed) >= flag);
        }
    EXPECT(PW_OK, pw_barrier(node));
    REQUIRE(calls > 0);

    /* Page 0 was stored to, by anyone. What finds no space comes with the next call. */
    EXPECT(PW_ARGUMENT, pw_global_take_dirty(memory, NULL, 1, &count));
    words[first + 3 * PW_GLOBAL_PAGE_WORDS] = 1;
    words[first + 2 * PW_GLOBAL_PAGE_WORDS] = 1;
    EXPECT(PW_OK, pw_global_take_dirty(memory, dirty, 1, &count));
    REQUIRE(count >= 2 && dirty[0] >= first && dirty[0] < first + WORDS);
    EXPECT(PW_OK, pw_global_take_dirty(memory, dirty + 1, PAGES, &count));
    REQUIRE(count >= 1 && dirty[count] == first + 3 * PW_GLOBAL_PAGE_WORDS);
    /* One at a time, too, each comes once, though all may still be stored to. */
    size_t left = 0;
    for (size_t taken = 0; taken == 0 || left > 1; taken++) {
        EXPECT(PW_OK, pw_global_take_dirty(memory, dirty, 1, &count));
        REQUIRE(taken == 0 || count == left - 1);
        if (taken > 0 && count != left - 1)
            break;
        left = count;
    }
    EXPECT(PW_OK, pw_global_counts(memory, &counts));
    REQUIRE(counts.faults > 0 && counts.pages_in > 0 && counts.lost_stores == 0 && counts.poisoned == 0);
    EXPECT(PW_OK, pw_global_lost(memory, NULL, 0, &count));
    REQUIRE(count == 0);

    EXPECT(PW_HANDLE, pw_global_counts((pw_global *)node, &counts));
    EXPECT(PW_OK, pw_global_leave(memory));
    EXPECT(PW_HANDLE, pw_global_leave(memory));
    EXPECT(PW_OK, pw_global_leave(NULL));
    EXPECT(PW_OK, pw_global_free(NULL));
    EXPECT(PW_OK, pw_node_leave(node));
    return failures != 0;
}

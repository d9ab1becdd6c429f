/* Every process of a job adds to a counter that lies in the memory of process 0, and loads what the next process has stored (docs/guide/experimental-gas.md). */
#include <pagewire_experimental.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

int main(void)
{
    pw_node *node;
    if (pw_node_from_env(&node))
        pw_die("join");
    pw_global *memory;
    if (pw_global_make(node, 64, &memory)) /* pages of 4,096 bytes, of each process */
        pw_die("global memory");
    _Atomic uint64_t *words = (_Atomic uint64_t *)pw_global_words(memory);
    size_t own, next, count;
    if (pw_global_home(memory, pw_rank(node), &own, &count) ||
        pw_global_home(memory, (pw_rank(node) + 1) % pw_size(node), &next, &count))
        pw_die("home");

    /* Stores to own memory, then loads of what lies in the next process. */
    for (size_t word = 0; word < count; word++)
        atomic_store_explicit(&words[own + word], word, memory_order_relaxed);
    if (pw_barrier(node))
        pw_die("barrier");
    uint64_t sum = 0;
    for (size_t word = 0; word < count; word++)
        sum += atomic_load_explicit(&words[next + word], memory_order_relaxed);
    printf("the words of process %zu make %" PRIu64 "\n", (pw_rank(node) + 1) % pw_size(node), sum);

    /* A counter of all processes: a read-modify-write of one word. */
    if (pw_barrier(node))
        pw_die("barrier");
    for (int time = 0; time < 1000; time++)
        atomic_fetch_add(&words[0], 1);
    if (pw_barrier(node))
        pw_die("barrier");
    if (pw_rank(node) == 0)
        printf("all have counted to %" PRIu64 "\n", words[0]);
    if (pw_global_leave(memory)) /* when all have finished */
        pw_die("leave");
    return pw_node_leave(node);
}

/* A thread that is cancelled ends between calls, never inside one: also where it was cancelled before it calls, so that each cancellation point on
 * the way would end it. */
#include <pagewire.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pw_node *node;
static pw_remote *remote;
static atomic_int wrong;

struct worker {
    int is_inside;
    pw_operation *put;
    int rounds;
};

static void end(void *argument)
{
    struct worker *worker = argument;
    wrong += worker->is_inside;
    pw_operation_free(worker->put);
}

#define CALL(call)                                          \
    do {                                                    \
        worker.is_inside = 1;                               \
        if (call) {                                         \
            fprintf(stderr, "%s: %s\n", #call, pw_error_message()); \
            wrong++;                                        \
        }                                                   \
        worker.is_inside = 0;                               \
    } while (0)

/* Calls until it is cancelled; `rounds` times after that where it is given, and so is cancelled at once. */
static void *work(void *rounds)
{
    struct worker worker = {.rounds = (int)(intptr_t)rounds};
    static uint64_t bytes[1 << 15];
    uint64_t before;
    pthread_cleanup_push(end, &worker);
    if (worker.rounds)
        pthread_cancel(pthread_self());
    for (;;) {
        uint64_t *memory = NULL;
        CALL(!(memory = pw_malloc(100)));
        CALL(pw_put(remote, 0, bytes, sizeof bytes));
        CALL(pw_get(remote, 0, memory, 80));
        CALL(pw_fetch_add(remote, 8, 1, &before));
        CALL(pw_put_start(remote, 16, bytes, 8, &worker.put));
        CALL(pw_wait(worker.put));
        CALL(pw_operation_free(worker.put));
        worker.put = NULL;
        CALL(pw_signal_wait(node, memory, PW_NOT_EQUAL, *memory, 300000, NULL) != PW_TIMEOUT);
        pw_token exported;
        CALL(pw_export(node, memory, 80, PW_READ, &exported));
        CALL(!(memory = pw_realloc(memory, 10000)));
        CALL(pw_free(memory));
        CALL(pw_flush(remote));
        if (--worker.rounds <= 0)
            pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/* Has threads work, and cancels them after a while where they do not cancel themselves. */
static int work_and_cancel(int count, int rounds, unsigned microseconds)
{
    pthread_t threads[8];
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)rounds))
            return 1;
    usleep(microseconds);
    for (int i = 0; i < count && !rounds; i++)
        pthread_cancel(threads[i]);
    for (int i = 0; i < count; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += result != PTHREAD_CANCELED;
    }
    return 0;
}

int main(void)
{
    uint64_t *memory = pw_calloc(1 << 15, 8);
    pw_token token;
    if (!memory || pw_node_alone(&node) || pw_export(node, memory, 8 << 15, PW_READ | PW_WRITE | PW_ATOMIC, &token) ||
        pw_open(node, &token, &remote))
        pw_die("begin");
    if (work_and_cancel(8, 500, 0))
        return 1;
    for (int round = 0; round < 100; round++)
        if (work_and_cancel(2, 0, rand() % 3000))
            return 1;
    pw_close(remote);
    return wrong || pw_node_leave(node);
}

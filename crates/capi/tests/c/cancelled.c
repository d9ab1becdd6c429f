/* A thread that is cancelled ends between calls, never inside one. */
#include <pagewire.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pw_node *node;
static pw_remote *remote;
static atomic_int wrong;

struct worker {
    int is_inside;
    pw_operation *put;
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

static void *work(void *unused)
{
    struct worker worker = {0};
    static uint64_t bytes[1 << 15];
    uint64_t before;
    pthread_cleanup_push(end, &worker);
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
        CALL(pw_free(memory));
        CALL(pw_flush(remote));
        pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return unused;
}

int main(void)
{
    uint64_t *memory = pw_calloc(1 << 15, 8);
    pw_token token;
    if (!memory || pw_node_alone(&node) || pw_export(node, memory, 8 << 15, PW_READ | PW_WRITE | PW_ATOMIC, &token) ||
        pw_open(node, &token, &remote))
        pw_die("begin");
    for (int round = 0; round < 100; round++) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            if (pthread_create(&threads[i], NULL, work, NULL))
                return 1;
        usleep(rand() % 3000);
        for (int i = 0; i < 2; i++)
            pthread_cancel(threads[i]);
        for (int i = 0; i < 2; i++) {
            void *result;
            pthread_join(threads[i], &result);
            wrong += result != PTHREAD_CANCELED;
        }
    }
    pw_close(remote);
    return wrong || pw_node_leave(node);
}

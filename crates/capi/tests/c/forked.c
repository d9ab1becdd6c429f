/*
 * Forked children of a program with threads and operations under way: each call on an object of the parent gives PW_FORKED at once, and each call
 * that takes none works. A test makes forked_calls.h of the headers: it has `calls_on_objects`, with every call that takes an object.
 *
 * forked: a job of any size. Each of its processes forks; barriers and gathers of the parents stay right.
 */
#include <pagewire.h>
#include <pagewire_experimental.h>
#include <pagewire_verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#include "forked_objects.h"

/* What a call of a child may take. A child that hangs ends by SIGALRM, and its parent says in which call. */
enum { SECONDS = 60, CHILDREN = 20, THREADS = 2 };

/* Shared with the children: the call that is being made. */
static char *current;

static void begin_call(const char *name)
{
    snprintf(current, 128, "%s", name);
    /* So that pw_error_message() is not that of a call before. */
    (void)pw_error_name(0);
    (void)pw_owner(NULL, NULL);
}

static void check_code(const char *name, pw_error expected, pw_error found)
{
    if (found == expected)
        return;
    fprintf(stderr, "%s in a forked child is %s, not %s: %s\n", name, pw_error_name(found), pw_error_name(expected), pw_error_message());
    failures++;
}

/* Of a call that gives something else than a code. */
static void check_message(const char *name)
{
    if (strstr(pw_error_message(), "forked"))
        return;
    fprintf(stderr, "%s in a forked child says: %s\n", name, pw_error_message());
    failures++;
}

#include "forked_calls.h"

#define WORKS(call) (begin_call(#call), check_code(#call, PW_OK, call))
#define HOLDS(holds)                                                                                                            \
    (begin_call(#holds), (holds) ? (void)0 : (void)((void)failures++, fprintf(stderr, "not so in a forked child: %s (%s)\n", #holds, pw_error_message())))

/* A node of the child's own puts and gets: its own memory, its heap, and what the parent has exported. */
static void use_own_node(void)
{
    static uint64_t words[512];
    uint64_t value = 7, got = 0, seen, *in_heap;
    pw_node *own, *second;
    pw_token token, of_heap;
    pw_remote *remote, *of_parent;
    pw_operation *operation;
    pw_peer peer;
    pw_heap_usage statistics;

    WORKS(pw_node_alone(&own));
    unsetenv("PAGEWIRE_JOB_FILE");
    unsetenv("PAGEWIRE_SIZE");
    WORKS(pw_node_from_env(&second));
    HOLDS(pw_rank(own) == 0 && pw_size(second) == 1);
    WORKS(pw_barrier(second));
    WORKS(pw_export(own, words, sizeof words, PW_READ | PW_WRITE | PW_ATOMIC, &token));
    WORKS(pw_open(second, &token, &remote));
    WORKS(pw_put_start(remote, 0, &value, 8, &operation));
    WORKS(pw_wait(operation));
    WORKS(pw_operation_free(operation));
    WORKS(pw_fetch_add(remote, 0, 1, &seen));
    WORKS(pw_get(remote, 0, &got, 8));
    HOLDS(got == 8 && seen == 7);
    WORKS(pw_signal_wait(own, &words[0], PW_EQUAL, 8, 1000000000, &seen));
    WORKS(pw_open(own, &shared_token, &of_parent));
    WORKS(pw_put(of_parent, 64, &value, 8));
    WORKS(pw_get(of_parent, 64, &got, 8));
    HOLDS(got == 7);
    WORKS(pw_owner(&shared_token, &peer));
    HOLDS((in_heap = pw_malloc(4096)) != NULL);
    HOLDS(pw_calloc(4, 4) != NULL && pw_aligned_alloc(4096, 4096) != NULL);
    WORKS(pw_export(own, in_heap, 4096, PW_READ | PW_WRITE, &of_heap));
    WORKS(pw_close(remote));
    WORKS(pw_open(second, &of_heap, &remote));
    WORKS(pw_put(remote, 0, &value, 8));
    HOLDS(in_heap[0] == 7 && pw_is_registered(in_heap));
    HOLDS((in_heap = pw_realloc(in_heap, 8192)) != NULL && in_heap[0] == 7);
    WORKS(pw_heap_statistics(&statistics));
    HOLDS(statistics.live >= 8192);
    WORKS(pw_free(in_heap));
    WORKS(pw_heap_retain(1 << 20));
    WORKS(pw_heap_purge());
    WORKS(pw_close(of_parent));
    WORKS(pw_close(remote));
    WORKS(pw_node_leave(own));
    WORKS(pw_node_leave(second));
}

/* Calls that take a list of objects. The operation has not ended: no call may wait for it. */
static void calls_on_lists(void)
{
    pw_operation *list[] = {NULL, object_pw_operation};
    size_t found, indices[2];

    begin_call("pw_wait_any");
    check_code("pw_wait_any", PW_FORKED, pw_wait_any(list, 2, PW_FOREVER, &found));
    begin_call("pw_wait_some");
    check_code("pw_wait_some", PW_FORKED, pw_wait_some(list, 2, PW_FOREVER, indices, &found));
    begin_call("pw_wait_all");
    check_code("pw_wait_all", PW_FORKED, pw_wait_all(list, 2, PW_FOREVER));
}

/* Calls that take no object. */
static void calls_without_objects(void)
{
    pw_page_count count;
    size_t found = 9;
    uint64_t saved;

    HOLDS(pw_version() == PW_VERSION && *pw_version_text());
    HOLDS(!strcmp(pw_error_name(PW_FORKED), "PW_FORKED") && *pw_error_message());
    WORKS(pw_page_counts(words, sizeof words, &count, 1, &found));
    HOLDS(found == 0);
    begin_call("pw_checkpoint_all");
    check_code("pw_checkpoint_all", PW_ENGINE, pw_checkpoint_all(&saved));
    begin_call("pw_handler_failed");
    check_code("pw_handler_failed", PW_ARGUMENT, pw_handler_failed("outside of a handler"));
    /* What the parent has allocated stays there. */
    begin_call("pw_free");
    check_code("pw_free", PW_FORKED, pw_free(allocated));
    HOLDS(!pw_realloc(allocated, 100) && !pw_is_registered(allocated));
    check_message("pw_realloc");
}

static int child(int number)
{
    alarm(SECONDS);
    if (number == 0) {
        begin_call("pw_die");
        freopen("/dev/null", "w", stderr);
        pw_die("a forked child");
    }
    calls_without_objects();
    calls_on_objects();
    calls_on_lists();
    use_own_node();
    calls_on_objects();
    calls_on_lists();
    return failures;
}

/* True: the child has ended as it should. */
static bool run_child(int number, bool exits)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        pw_die("fork");
    if (!pid) {
        int failed = child(number);
        if (exits)
            exit(failed != 0);
        _exit(failed != 0);
    }
    if (waitpid(pid, &status, 0) != pid)
        pw_die("waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == (number == 0))
        return true;
    fprintf(stderr, "a forked child ended with %#x, at %s\n", status, current);
    return false;
}

static atomic_bool ends;

/* Has operations under way, and locks held, while others fork. */
static void *keep_busy(void *remote)
{
    static _Thread_local char bytes[1 << 16];

    while (!ends) {
        pw_operation *operation;
        if (pw_put_start(remote, 4096, bytes, sizeof bytes, &operation))
            pw_die("a put beside forks");
        if (pw_wait(operation) || pw_operation_free(operation))
            pw_die("the end of a put beside forks");
        if (pw_free(pw_malloc(100)))
            pw_die("the heap beside forks");
    }
    return NULL;
}

/* The objects of the parent are as they were. */
static void use_objects(void)
{
    uint64_t value = 0;
    size_t rank = pw_rank(node), size = pw_size(node), all[64];

    if (pw_all_gather(node, &rank, sizeof rank, all))
        pw_die("gather");
    for (size_t at = 0; at < size; at++)
        if (all[at] != at)
            failures++, fprintf(stderr, "process %zu gave %zu\n", at, all[at]);
    if (pw_barrier(node) || pw_get(object_pw_remote, 0, &value, 8))
        pw_die("an object behind forks");
    release_write();
    use_applications();
}

int main(void)
{
    pthread_t threads[THREADS];

    current = mmap(NULL, 128, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (current == MAP_FAILED)
        pw_die("memory");
    make_objects();
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, keep_busy, object_pw_remote);
    if (pw_barrier(node))
        pw_die("barrier");
    for (int number = 0; number < CHILDREN; number++) {
        failures += !run_child(number, number % 2);
        if (number % 5 == 0 && pw_barrier(node))
            pw_die("a barrier between forks");
    }
    ends = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    use_objects();
    free_objects();
    if (!failures)
        printf("children of process %zu: ok\n", own_rank);
    return failures != 0;
}

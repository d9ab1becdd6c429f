/* Verbs and the native interface in one process share one engine, and an event loop learns of the ends of operations. */
#include <pagewire.h>
#include <infiniband/verbs.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s (%s)\n", what, pw_error_message());
        exit(1);
    }
}

static int engine_threads(void)
{
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        found += fgets(name, sizeof name, file) && !strcmp(name, "pagewire-nic\n");
        fclose(file);
    }
    closedir(tasks);
    return found;
}

static void *make_heap(void *unused)
{
    require(pw_free(pw_malloc(100)) == PW_OK, "the heap in a thread");
    return unused;
}

static void *use_heap(void *unused)
{
    void *objects[1000];
    for (int i = 0; i < 1000; i++)
        require((objects[i] = pw_malloc(i * 100)) != NULL, "an object");
    for (int i = 0; i < 1000; i++)
        require(pw_free(objects[i]) == PW_OK, "its free");
    return unused;
}

static void in_thread(void *(*body)(void *))
{
    pthread_t thread;
    require(!pthread_create(&thread, NULL, body, NULL) && !pthread_join(thread, NULL), "a thread");
}

int main(void)
{
    require(engine_threads() == 0 && !pw_is_registered(&main), "nothing before the first call");
    /* The first user of the heap is a thread that ends. */
    in_thread(make_heap);
    for (int i = 0; i < 20; i++)
        in_thread(use_heap);
    use_heap(NULL);
    require(engine_threads() == 1, "an engine for the heap");

    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    struct ibv_context *context = devices ? ibv_open_device(devices[0]) : NULL;
    pw_node *node;
    require(context && pw_node_alone(&node) == PW_OK, "a device and a node");
    require(engine_threads() == 1, "one engine for both");

    static uint64_t words[4];
    uint64_t value = 7, events = 0;
    pw_token token;
    pw_remote *remote;
    pw_operation *put;
    require(!pw_export(node, words, sizeof words, PW_WRITE, &token) && !pw_open(node, &token, &remote), "open");
    int descriptor = eventfd(0, EFD_NONBLOCK);
    for (uint64_t i = 0; i < 100; i++) {
        require(!pw_put_start(remote, 8 * (i % 4), &value, 8, &put) && !pw_notify(put, descriptor), "a put");
        while (read(descriptor, &events, sizeof events) != sizeof events)
            usleep(100);
        require(events == 1 && pw_test(put) == PW_OK && !pw_operation_free(put), "its end");
    }
    require(words[3] == 7, "the bytes");
    char text[200], cut[4];
    require(!pw_explain(node, &token, text, sizeof text) && strlen(text) > 4, "the path");
    require(!pw_explain(node, &token, cut, sizeof cut) && strlen(cut) == 3, "the start of it");

    /* The parent's node stays with it, and a child has its own. */
    void *object = pw_malloc(10);
    pid_t child = fork();
    if (child == 0) {
        require(!pw_is_registered(object) && pw_barrier(NULL) == PW_ARGUMENT, "a child");
        require(pw_put(remote, 0, &value, 8) == PW_FORKED && pw_export(node, words, 8, PW_READ, &token) == PW_FORKED,
                "the parent's node in a child");
        pw_node *own;
        char *memory;
        require(!pw_node_alone(&own) && (memory = pw_malloc(10)) != NULL && !pw_export(own, memory, 10, PW_READ, &token),
                "a node and a heap of the child's own");
        _exit(0);
    }
    int status;
    require(waitpid(child, &status, 0) == child && status == 0, "the child's end");

    require(!pw_close(remote) && !pw_free(object) && !pw_node_leave(node), "the end");
    require(!ibv_close_device(context), "the end of the device");
    ibv_free_device_list(devices);
    return 0;
}

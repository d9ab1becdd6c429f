/*
 * The registered heap: what is allocated in it needs no registration, and stays registered when it is freed.
 *
 *     cc heap.c -o heap $(pkg-config --cflags --libs pagewire)
 */
#include <pagewire.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char *small = pw_malloc(100), *large = pw_aligned_alloc(1 << 20, 64 << 20);
    if (!small || !large)
        pw_die("allocate");
    int on_stack;
    printf("registered: heap %d, stack %d\n", pw_is_registered(small), pw_is_registered(&on_stack));

    pw_heap_usage now;
    if (pw_heap_statistics(&now))
        pw_die("statistics");
    printf("64 MiB more are live, and not resident before they are touched: %d\n",
           now.live >= 64 << 20 && now.resident < 64 << 20);

    /* An object that is exported, and freed: its token is revoked. */
    pw_node *node;
    pw_token token;
    pw_remote *remote;
    strcpy(small, "of the heap");
    if (pw_node_from_env(&node) || pw_export(node, small, 100, PW_READ, &token) || pw_open(node, &token, &remote))
        pw_die("open");
    char copy[100];
    if (pw_get(remote, 0, copy, sizeof copy))
        pw_die("get");
    printf("got: %s\n", copy);
    if (pw_free(small))
        pw_die("free");
    int code = pw_get(remote, 0, copy, sizeof copy);
    printf("after the free: %s\n", pw_error_name(code));

    pw_close(remote);
    if (pw_free(large) || pw_heap_purge() || pw_heap_statistics(&now))
        pw_die("purge");
    printf("purged: %d\n", now.resident < 1 << 20);
    return pw_node_leave(node);
}

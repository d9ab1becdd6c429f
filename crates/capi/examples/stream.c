/* A stream of bytes between two nodes: the one that listens answers in capital letters (docs/guide/experimental-stream.md). Here both are of one process. */
#include <pagewire_experimental.h>
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>

enum { BUFFER = 1 << 16 }; /* how far a sender may be ahead of who receives */

/* Another process would get the token by any means. */
static void *client(void *token)
{
    pw_node *node;
    pw_stream *stream;
    char text[64];
    size_t length;
    if (pw_node_alone(&node) || pw_stream_connect(node, token, BUFFER, PW_FOREVER, &stream))
        pw_die("connect");
    if (pw_stream_send(stream, "every byte is a put\n", 20, PW_FOREVER, NULL) || pw_stream_shutdown(stream, PW_FOREVER))
        pw_die("send");
    do {
        if (pw_stream_receive(stream, text, sizeof text, PW_FOREVER, &length))
            pw_die("receive");
        fwrite(text, 1, length, stdout);
    } while (length); /* 0: the other one has closed its end */
    pw_stream_close(stream);
    pw_node_leave(node);
    return NULL;
}

int main(void)
{
    pw_node *node;
    pw_listener *listener;
    pw_token token;
    if (pw_node_alone(&node) || pw_stream_listen(node, BUFFER, &listener) || pw_listener_token(listener, &token))
        pw_die("listen");
    pthread_t thread;
    if (pthread_create(&thread, NULL, client, &token))
        return 1;

    pw_stream *stream;
    char text[64];
    size_t length;
    if (pw_stream_accept(listener, UINT64_C(10000000000), &stream)) /* within ten seconds */
        pw_die("accept");
    do {
        if (pw_stream_receive(stream, text, sizeof text, PW_FOREVER, &length))
            pw_die("receive");
        for (size_t at = 0; at < length; at++)
            text[at] = (char)toupper(text[at]);
        if (pw_stream_send(stream, text, length, PW_FOREVER, NULL))
            pw_die("send");
    } while (length);
    pw_stream_close(stream);
    pw_listener_close(listener);
    pthread_join(thread, NULL);
    return pw_node_leave(node);
}

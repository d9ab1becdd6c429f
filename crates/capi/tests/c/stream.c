/* Streams between the processes of a job: process 0 listens, and gives back what the others send. Calls that are refused. */
#include "expect.h"
#include <pagewire_experimental.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 1000003, BUFFER = 1 << 16 };

static const uint64_t MOMENT = 30 * 1000 * 1000, PATIENCE = 20ull * 1000 * 1000 * 1000;
static char bytes[LENGTH], found[LENGTH];

/* Receives until the peer has sent its last byte. */
static size_t receive_all(pw_stream *stream)
{
    size_t count = 0, received;

    do {
        if (pw_stream_receive(stream, found + count, count < LENGTH ? LENGTH - count : 1, PATIENCE, &received))
            pw_die("receive");
        count += received;
    } while (received);
    return count;
}

static void serve(pw_node *node, pw_listener *listener)
{
    pw_stream *stream;
    size_t received, sent;

    EXPECT(PW_TIMEOUT, pw_stream_accept(listener, MOMENT, &stream));
    REQUIRE(!stream);
    EXPECT(PW_OK, pw_barrier(node));
    for (size_t peer = 1; peer < pw_size(node); peer++) {
        EXPECT(PW_OK, pw_stream_accept(listener, PATIENCE, &stream));
        EXPECT(PW_OK, pw_stream_send(stream, "first", 5, PATIENCE, &sent));
        REQUIRE(sent == 5);
        size_t count = receive_all(stream);
        REQUIRE(count == LENGTH);
        /* The end stays the end. */
        EXPECT(PW_OK, pw_stream_receive(stream, found, 1, MOMENT, &received));
        REQUIRE(received == 0);
        EXPECT(PW_OK, pw_stream_send(stream, found, count, PATIENCE, NULL));
        EXPECT(PW_OK, pw_stream_flush(stream, PATIENCE));
        EXPECT(PW_IN_USE, pw_node_leave(node));
        EXPECT(PW_OK, pw_stream_close(stream));
        EXPECT(PW_HANDLE, pw_stream_close(stream));
    }
    /* The next one does not read, and closes. */
    EXPECT(PW_OK, pw_stream_accept(listener, PATIENCE, &stream));
    size_t all = 0;
    pw_error code;
    while (!(code = pw_stream_send(stream, bytes, LENGTH, MOMENT, &sent)))
        all += sent;
    REQUIRE(code == PW_TIMEOUT && sent < LENGTH && all + sent > 0);
    EXPECT(PW_TIMEOUT, pw_stream_flush(stream, MOMENT));
    EXPECT(PW_OK, pw_barrier(node));
    EXPECT(PW_OK, pw_stream_receive(stream, found, 10, PATIENCE, &received));
    REQUIRE(received == 0);
    EXPECT(PW_STREAM, pw_stream_flush(stream, PATIENCE));
    EXPECT(PW_STREAM, pw_stream_send(stream, bytes, 1, PATIENCE, &sent));
    REQUIRE(sent == 0);
    EXPECT(PW_OK, pw_stream_close(stream));
    EXPECT(PW_OK, pw_listener_close(listener));
    EXPECT(PW_OK, pw_barrier(node));
}

static void ask(pw_node *node, const pw_token *token)
{
    pw_stream *stream;
    size_t received;

    EXPECT(PW_OK, pw_barrier(node));
    EXPECT(PW_OK, pw_stream_connect(node, token, BUFFER, PATIENCE, &stream));
    EXPECT(PW_OK, pw_stream_receive(stream, found, 5, PATIENCE, &received));
    REQUIRE(received == 5 && !memcmp(found, "first", 5));
    EXPECT(PW_TIMEOUT, pw_stream_receive(stream, found, 5, MOMENT, &received));
    REQUIRE(received == 0);
    EXPECT(PW_OK, pw_stream_send(stream, bytes, 7, PW_FOREVER, NULL));
    EXPECT(PW_OK, pw_stream_send(stream, bytes + 7, LENGTH - 7, PW_FOREVER, NULL));
    EXPECT(PW_OK, pw_stream_shutdown(stream, PATIENCE));
    EXPECT(PW_STREAM, pw_stream_send(stream, bytes, 1, PATIENCE, NULL));
    REQUIRE(receive_all(stream) == LENGTH && !memcmp(found, bytes, LENGTH));
    EXPECT(PW_ARGUMENT, pw_stream_receive(stream, NULL, 5, MOMENT, &received));
    EXPECT(PW_ARGUMENT, pw_stream_receive(stream, found, 0, MOMENT, &received));
    EXPECT(PW_ARGUMENT, pw_stream_receive(stream, found, 5, MOMENT, NULL));
    EXPECT(PW_ARGUMENT, pw_stream_send(stream, NULL, 5, MOMENT, NULL));
    EXPECT(PW_OK, pw_stream_close(stream));
    if (pw_rank(node) == 1)
        EXPECT(PW_OK, pw_stream_connect(node, token, BUFFER, PATIENCE, &stream));
    EXPECT(PW_OK, pw_barrier(node));
    if (pw_rank(node) == 1)
        EXPECT(PW_OK, pw_stream_close(stream));
    EXPECT(PW_OK, pw_barrier(node));
    EXPECT(PW_CONNECT, pw_stream_connect(node, token, BUFFER, PATIENCE, &stream));
    REQUIRE(!stream);
}

int main(void)
{
    pw_node *node;
    pw_listener *listener;
    pw_stream *stream;
    pw_token token;

    if (pw_node_from_env(&node))
        pw_die("join");
    for (size_t at = 0; at < LENGTH; at++)
        bytes[at] = (char)(at * 40503 >> 8);
    EXPECT(PW_ARGUMENT, pw_stream_listen(node, PW_LEAST_STREAM_BUFFER - 1, &listener));
    REQUIRE(!listener);
    EXPECT(PW_OK, pw_stream_listen(node, BUFFER, &listener));
    EXPECT(PW_OK, pw_listener_token(listener, &token));
    EXPECT(PW_IN_USE, pw_node_leave(node));
    EXPECT(PW_ARGUMENT, pw_stream_connect(node, &token, 1, MOMENT, &stream));
    EXPECT(PW_TIMEOUT, pw_stream_connect(node, &token, BUFFER, MOMENT, &stream));
    EXPECT(PW_HANDLE, pw_stream_close((pw_stream *)listener));
    if (pw_export(node, bytes, LENGTH, PW_READ | PW_WRITE, &token))
        pw_die("export");
    EXPECT(PW_TOKEN, pw_stream_connect(node, &token, BUFFER, MOMENT, &stream));
    /* As long as that of a listener. */
    if (pw_export(node, found, 4096, PW_READ | PW_WRITE, &token))
        pw_die("export");
    EXPECT(PW_TOKEN, pw_stream_connect(node, &token, BUFFER, PATIENCE, &stream));
    for (size_t at = 0; at < 4096; at++)
        REQUIRE(!found[at]);
    EXPECT(PW_OK, pw_listener_token(listener, &token));
    EXPECT(PW_OK, pw_broadcast(node, 0, &token, sizeof token));
    if (pw_rank(node) == 0) {
        serve(node, listener);
    } else {
        EXPECT(PW_OK, pw_listener_close(listener));
        ask(node, &token);
    }
    /* Process 0 stays until the others have found its listener closed. */
    EXPECT(PW_OK, pw_barrier(node));
    EXPECT(PW_OK, pw_stream_close(NULL));
    EXPECT(PW_OK, pw_listener_close(NULL));
    EXPECT(PW_OK, pw_node_leave(node));
    return failures != 0;
}

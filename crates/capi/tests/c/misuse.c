/* What callers may do wrong: each has a code and a sentence, and nothing of it ends the process. */
#include <pagewire.h>
#include <pagewire.h> /* which is harmless */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(code, call) expect(__LINE__, #call, code, call)

static int failures;

static void expect(int line, const char *call, int expected, int found)
{
    if (expected != found) {
        fprintf(stderr, "%d: %s is %s, not %s: %s\n", line, call, pw_error_name(found), pw_error_name(expected),
                pw_error_message());
        failures++;
    } else if (expected != PW_OK && !*pw_error_message()) {
        fprintf(stderr, "%d: %s says nothing\n", line, call);
        failures++;
    }
}

#define SAYS(text)                                                                                            \
    (strstr(pw_error_message(), text) ? (void)0                                                               \
                                      : (void)(failures++, fprintf(stderr, "%d: no '%s' in '%s'\n", __LINE__, \
                                                                   text, pw_error_message())))

static void no_objects(pw_node *node, pw_token *token)
{
    pw_node *none;
    pw_remote *remote;
    EXPECT(PW_ARGUMENT, pw_node_from_env(NULL));
    EXPECT(PW_ARGUMENT, pw_node_alone((pw_node **)((char *)&none + 1)));
    EXPECT(PW_ARGUMENT, pw_node_leave(NULL));
    EXPECT(PW_ARGUMENT, pw_barrier(NULL));
    EXPECT(PW_HANDLE, pw_barrier((pw_node *)((char *)node + 1)));
    EXPECT(PW_ARGUMENT, pw_export(NULL, token, 8, PW_READ, token));
    EXPECT(PW_ARGUMENT, pw_export(node, NULL, 8, PW_READ, token));
    EXPECT(PW_ARGUMENT, pw_export(node, token, 0, PW_READ, token));
    EXPECT(PW_ARGUMENT, pw_export(node, token, 8, PW_READ, NULL));
    EXPECT(PW_ARGUMENT, pw_export(node, token, 8, 0, token));
    EXPECT(PW_ARGUMENT, pw_export(node, token, 8, 8, token));
    EXPECT(PW_ARGUMENT, pw_export(node, token, SIZE_MAX, PW_READ, token));
    EXPECT(PW_ARGUMENT, pw_open(node, NULL, &remote));
    EXPECT(PW_ARGUMENT, pw_open(node, token, NULL));
    EXPECT(PW_ARGUMENT, pw_all_gather(node, NULL, 8, token));
    EXPECT(PW_ARGUMENT, pw_all_gather(node, token, 8, NULL));
    EXPECT(PW_OK, pw_all_gather(node, NULL, 0, NULL));
    EXPECT(PW_ARGUMENT, pw_broadcast(node, 1, token, 8));
    SAYS("'root' is 1, and the job has 1 processes");
    EXPECT(PW_ARGUMENT, pw_wait(NULL));
    EXPECT(PW_ARGUMENT, pw_test(NULL));
    EXPECT(PW_OK, pw_operation_free(NULL));
    EXPECT(PW_OK, pw_close(NULL));
    if (pw_size(NULL) != 0 || pw_rank(NULL) != 0 || pw_remote_length(NULL) != 0)
        failures++;
}

static void versions(void)
{
    pw_node *node = (pw_node *)1;
    EXPECT(PW_VERSION_MISMATCH, pw_node_alone_for(PW_VERSION + (1 << 16), &node));
    SAYS("compile it with the header of this library");
    EXPECT(PW_VERSION_MISMATCH, pw_node_alone_for(0, &node));
    if (node != NULL || pw_version() != PW_VERSION)
        failures++;
}

static void wrong_tokens(pw_node *node, const pw_token *good)
{
    pw_remote *remote = (pw_remote *)1;
    pw_token token = {{0}};
    EXPECT(PW_TOKEN, pw_open(node, &token, &remote));
    if (remote)
        failures++;
    token = *good;
    token.bytes[20] ^= 1;
    EXPECT(PW_TOKEN, pw_open(node, &token, &remote));
    SAYS("checksum");
    EXPECT(PW_TOKEN, pw_unexport(node, &token));
}

static void wrong_bytes(pw_node *node)
{
    uint64_t *words = pw_calloc(4, 8), buffer[4] = {1, 2, 3, 4};
    pw_token read, write;
    pw_remote *reads, *writes;
    EXPECT(PW_OK, pw_export(node, words, 32, PW_READ, &read));
    EXPECT(PW_OK, pw_export(node, words, 32, PW_WRITE, &write));
    EXPECT(PW_OK, pw_open(node, &read, &reads));
    EXPECT(PW_OK, pw_open(node, &write, &writes));

    EXPECT(PW_RIGHTS, pw_put(reads, 0, buffer, 8));
    SAYS("put on the region of");
    EXPECT(PW_RIGHTS, pw_get(writes, 0, buffer, 8));
    EXPECT(PW_RIGHTS, pw_fetch_add(writes, 0, 1, NULL));
    EXPECT(PW_BOUNDS, pw_put(writes, 25, buffer, 8));
    SAYS("bytes 25 to 33 are not inside the 32 bytes of the token");
    EXPECT(PW_BOUNDS, pw_put(writes, UINT64_MAX, buffer, 8));
    EXPECT(PW_LENGTH, pw_put(writes, 0, buffer, (size_t)1 << 32));
    EXPECT(PW_ARGUMENT, pw_put(writes, 0, NULL, 8));
    EXPECT(PW_ARGUMENT, pw_put(writes, 0, buffer, SIZE_MAX));
    EXPECT(PW_OK, pw_put(writes, 32, NULL, 0));
    EXPECT(PW_BUFFER, pw_put(writes, 0, (void *)8, 8));
    EXPECT(PW_ARGUMENT, pw_fetch_add(writes, 0, 1, (uint64_t *)((char *)buffer + 1)));

    pw_signal odd = {.offset = 4, .value = 1, .change = PW_SET}, unknown = {.offset = 8, .value = 1, .change = 7};
    EXPECT(PW_ALIGNMENT, pw_put_signal(writes, 0, buffer, 8, &odd));
    EXPECT(PW_ARGUMENT, pw_put_signal(writes, 0, buffer, 8, &unknown));
    EXPECT(PW_ARGUMENT, pw_put_signal(writes, 0, buffer, 8, NULL));
    pw_piece pieces[2] = {{0, 8}, {16, 8}};
    EXPECT(PW_PIECES, pw_put_scattered(writes, pieces, 2, buffer, 24));
    EXPECT(PW_ARGUMENT, pw_put_scattered(writes, NULL, 2, buffer, 16));
    EXPECT(PW_ARGUMENT, pw_put_scattered(writes, pieces, SIZE_MAX, buffer, 16));
    EXPECT(PW_PIECES, pw_put_strided(writes, 0, 8, 0, buffer, 16));
    EXPECT(PW_BOUNDS, pw_get_strided(reads, 8, 16, 8, buffer, 24));

    /* A failure that nobody asked for comes with the next flush, once. */
    EXPECT(PW_OK, pw_put_start(writes, 100, buffer, 8, NULL));
    EXPECT(PW_BOUNDS, pw_flush(writes));
    EXPECT(PW_OK, pw_flush_all(node));

    EXPECT(PW_OK, pw_unexport(node, &read));
    EXPECT(PW_ENGINE, pw_unexport(node, &read));
    EXPECT(PW_KEY, pw_get(reads, 0, buffer, 8));
    SAYS("refused by the owner of the memory");
    EXPECT(PW_OK, pw_close(reads));
    EXPECT(PW_HANDLE, pw_close(reads));
    EXPECT(PW_HANDLE, pw_get(reads, 0, buffer, 8));
    EXPECT(PW_OK, pw_free(words));
    EXPECT(PW_KEY, pw_put(writes, 0, buffer, 8));
    EXPECT(PW_ENGINE, pw_unexport(node, &write));
    EXPECT(PW_OK, pw_close(writes));
}

static void operations(pw_node *node)
{
    uint64_t words[4] = {0}, buffer = 5, before = 9;
    pw_token token;
    pw_remote *remote;
    pw_operation *put, *add;
    EXPECT(PW_OK, pw_export(node, words, sizeof words, PW_READ | PW_WRITE | PW_ATOMIC, &token));
    EXPECT(PW_OK, pw_open(node, &token, &remote));
    EXPECT(PW_OK, pw_put_start(remote, 8, &buffer, 8, &put));
    EXPECT(PW_OK, pw_fetch_add_start(remote, 8, 2, &before, &add));
    EXPECT(PW_OK, pw_wait(add));
    EXPECT(PW_OK, pw_wait(add));
    EXPECT(PW_OK, pw_test(put));
    if (before != 5)
        failures++;
    EXPECT(PW_ARGUMENT, pw_notify(put, -1));
    EXPECT(PW_OK, pw_operation_free(put));
    EXPECT(PW_HANDLE, pw_operation_free(put));
    EXPECT(PW_HANDLE, pw_wait(put));
    EXPECT(PW_OK, pw_operation_free(add));
    EXPECT(PW_BOUNDS, (pw_put_start(remote, 32, &buffer, 8, &put), pw_wait(put)));
    EXPECT(PW_BOUNDS, pw_wait(put));
    EXPECT(PW_OK, pw_operation_free(put));
    EXPECT(PW_OK, pw_compare_swap(remote, 8, 7, 1, &before));
    EXPECT(PW_OK, pw_swap(remote, 8, 3, NULL));
    if (before != 7 || words[1] != 3)
        failures++;
    EXPECT(PW_OK, pw_close(remote));
    EXPECT(PW_OK, pw_unexport(node, &token));
}

static void signals(pw_node *node)
{
    uint64_t word[2] = {3, 0}, seen = 0;
    EXPECT(PW_ARGUMENT, pw_signal_wait(node, NULL, PW_EQUAL, 3, 0, NULL));
    EXPECT(PW_ALIGNMENT, pw_signal_wait(node, (uint64_t *)((char *)word + 4), PW_EQUAL, 3, 0, NULL));
    EXPECT(PW_ARGUMENT, pw_signal_wait(node, word, 9, 3, 0, NULL));
    EXPECT(PW_TIMEOUT, pw_signal_wait(node, word, PW_NOT_EQUAL, 3, 1000000, &seen));
    EXPECT(PW_OK, pw_signal_wait(node, word, PW_AT_MOST, 3, PW_FOREVER, &seen));
    if (seen != 3)
        failures++;
}

static void heap(void)
{
    int on_stack;
    EXPECT(PW_OK, pw_free(NULL));
    EXPECT(PW_ARGUMENT, pw_free(&on_stack));
    SAYS("no object of pw_malloc()");
    EXPECT(PW_ARGUMENT, pw_heap_statistics(NULL));
    if (pw_malloc(SIZE_MAX) || errno != ENOMEM || pw_calloc(SIZE_MAX, 2) || pw_aligned_alloc(24, 8))
        failures++;
    SAYS("alignment");
    if (pw_realloc(&on_stack, 8) || pw_is_registered(NULL) || pw_is_registered(&on_stack))
        failures++;
    char *object = pw_realloc(NULL, 10);
    strcpy(object, "123456789");
    object = pw_realloc(object, 100000);
    if (!object || strcmp(object, "123456789") || pw_realloc(object, SIZE_MAX))
        failures++;
    EXPECT(PW_OK, pw_free(object));
}

int main(void)
{
    pw_node *node;
    if (*pw_error_message())
        failures++;
    versions();
    if (pw_node_alone(&node))
        pw_die("join");
    uint64_t word = 0;
    pw_token token;
    EXPECT(PW_OK, pw_export(node, &word, sizeof word, PW_READ, &token));
    no_objects(node, &token);
    wrong_tokens(node, &token);
    wrong_bytes(node);
    operations(node);
    signals(node);
    heap();

    pw_remote *remote;
    EXPECT(PW_OK, pw_open(node, &token, &remote));
    EXPECT(PW_OK, pw_node_leave(node));
    EXPECT(PW_HANDLE, pw_node_leave(node));
    EXPECT(PW_HANDLE, pw_unexport(node, &token));
    EXPECT(PW_PEER_LOST, pw_get(remote, 0, &word, sizeof word));
    EXPECT(PW_OK, pw_close(remote));
    return failures != 0;
}

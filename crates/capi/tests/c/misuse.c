/* What callers may do wrong: each has a code and a sentence, and nothing of it ends the process. */
#include "expect.h"
#include <pagewire.h> /* twice is harmless */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
    SAYS("'root' is 1, and ranks are 0 to 0");
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

static void tables(pw_node *node)
{
    pw_table_options options = {.cells = 10};
    pw_table *table;
    uint64_t length;
    char value[4] = "";
    EXPECT(PW_ARGUMENT, pw_table_join(node, NULL, &table));
    EXPECT(PW_ARGUMENT, pw_table_join(node, &options, NULL));
    EXPECT(PW_ARGUMENT, pw_table_join(NULL, &options, &table));
    options.cells = 0;
    EXPECT(PW_ARGUMENT, pw_table_join(node, &options, &table));
    SAYS("a volume has 1 or more");
    options = (pw_table_options){.cells = 10, .scheme = 3};
    EXPECT(PW_ARGUMENT, pw_table_join(node, &options, &table));
    options = (pw_table_options){.cells = SIZE_MAX};
    EXPECT(PW_NO_MEMORY, pw_table_join(node, &options, &table));
    if (table)
        failures++;
    options = (pw_table_options){.cells = 10};
    EXPECT(PW_OK, pw_table_join(node, &options, &table));
    EXPECT(PW_ARGUMENT, pw_table_insert(table, 0, "a", 1));
    SAYS("the key is 0");
    EXPECT(PW_ARGUMENT, pw_table_insert(table, 1, NULL, 1));
    EXPECT(PW_OK, pw_table_insert(table, 1, NULL, 0));
    EXPECT(PW_ARGUMENT, pw_table_insert(table, 1, "a", SIZE_MAX));
    EXPECT(PW_ARGUMENT, pw_table_insert_batch(table, NULL, 1));
    EXPECT(PW_OK, pw_table_insert_batch(table, NULL, 0));
    EXPECT(PW_OK, pw_table_insert(table, 2, "a longer value", 14));
    EXPECT(PW_OK, pw_table_flush(table));
    EXPECT(PW_ARGUMENT, pw_table_lookup(table, 2, value, sizeof value, NULL));
    EXPECT(PW_OK, pw_table_lookup(table, 2, value, 3, &length));
    if (length != 14 || strcmp(value, "a l"))
        failures++;
    EXPECT(PW_OK, pw_table_lookup(table, 3, NULL, 0, &length));
    if (length != PW_ABSENT)
        failures++;
    EXPECT(PW_ARGUMENT, pw_table_volume(table, NULL));
    EXPECT(PW_HANDLE, pw_table_flush((pw_table *)node));
    EXPECT(PW_IN_USE, pw_node_leave(node));
    SAYS("free that before");
    EXPECT(PW_OK, pw_table_free(table));
    EXPECT(PW_HANDLE, pw_table_free(table));
    EXPECT(PW_OK, pw_table_free(NULL));
}

static void countings(pw_node *node, const pw_token *token)
{
    pw_access_statistics *counting;
    pw_access_counts counts;
    pw_numbered_counts list[2];
    size_t count;
    EXPECT(PW_ARGUMENT, pw_access_statistics_start(node, NULL, PW_COUNT_PUTS, 0, &counting));
    EXPECT(PW_ARGUMENT, pw_access_statistics_start(node, token, PW_COUNT_PUTS, 0, NULL));
    EXPECT(PW_ARGUMENT, pw_access_statistics_start(node, token, 0, 0, &counting));
    EXPECT(PW_ARGUMENT, pw_access_statistics_start(node, token, PW_COUNT_PUTS, PW_LOG_PUTS, &counting));
    pw_node *other;
    EXPECT(PW_OK, pw_node_alone(&other));
    EXPECT(PW_ENGINE, pw_access_statistics_start(other, token, PW_COUNT_PUTS, 0, &counting));
    EXPECT(PW_OK, pw_node_leave(other));
    EXPECT(PW_OK, pw_access_statistics_start(node, token, PW_COUNT_PUTS | PW_COUNT_GETS, 0, &counting));
    EXPECT(PW_ARGUMENT, pw_access_statistics_total(counting, NULL));
    EXPECT(PW_OK, pw_access_statistics_page(counting, UINT64_MAX, &counts));
    EXPECT(PW_OK, pw_access_statistics_page(counting, UINT64_MAX / 8, &counts));
    EXPECT(PW_ARGUMENT, pw_access_statistics_hottest(counting, NULL, 1, &count));
    EXPECT(PW_ARGUMENT, pw_access_statistics_hottest(counting, list, SIZE_MAX, &count));
    EXPECT(PW_ARGUMENT, pw_access_statistics_sources(counting, list, 2, NULL));
    EXPECT(PW_OK, pw_access_statistics_sources(counting, NULL, 0, &count));
    EXPECT(PW_ARGUMENT, pw_access_statistics_export(counting, NULL));
    EXPECT(PW_IN_USE, pw_node_leave(node));
    SAYS("access statistics");
    EXPECT(PW_OK, pw_access_statistics_end(counting));
    EXPECT(PW_HANDLE, pw_access_statistics_total(counting, &counts));
}

static void checkpoints(pw_node *node, const pw_token *of_word, uint64_t *word)
{
    char path[] = "/tmp/pagewire-misuse-XXXXXX", none[4096];
    if (mkstemp(path) < 0)
        failures++;
    pw_memory memory = {word, sizeof *word, of_word}, other = {word, 4, of_word}, absent = {(void *)8, 4096, NULL};
    pw_checkpoint *checkpoint, *second;
    pw_restored restored;
    EXPECT(PW_ARGUMENT, pw_checkpoint_open(node, NULL, PW_SYNC, &memory, 1, &checkpoint));
    EXPECT(PW_ARGUMENT, pw_checkpoint_open(node, path, PW_SYNC, NULL, 1, &checkpoint));
    EXPECT(PW_ARGUMENT, pw_checkpoint_open(node, path, PW_SYNC, &memory, 0, &checkpoint));
    EXPECT(PW_ARGUMENT, pw_checkpoint_open(node, path, 7, &memory, 1, &checkpoint));
    EXPECT(PW_ARGUMENT, pw_checkpoint_open(node, path, PW_SYNC, &other, 1, &checkpoint));
    SAYS("names other bytes");
    EXPECT(PW_SYSTEM, pw_checkpoint_open(node, "/nowhere/at/all", PW_SYNC, &memory, 1, &checkpoint));
    EXPECT(PW_SYSTEM, pw_checkpoint_open(node, path, PW_NO_SYNC, &absent, 1, &checkpoint));
    absent.length = (size_t)1 << 50;
    EXPECT(PW_LIMIT, pw_checkpoint_open(node, path, PW_NO_SYNC, &absent, 1, &checkpoint));
    absent = (pw_memory){mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, NULL};
    EXPECT(PW_OK, pw_checkpoint_open(node, path, PW_NO_SYNC, &absent, 1, &checkpoint));
    munmap(absent.address, absent.length);
    EXPECT(PW_SYSTEM, pw_checkpoint_save(checkpoint, NULL, 0, NULL));
    EXPECT(PW_OK, pw_checkpoint_close(checkpoint));
    EXPECT(PW_OK, pw_checkpoint_open(node, path, PW_NO_SYNC, &memory, 1, &checkpoint));
    EXPECT(PW_IN_USE, pw_checkpoint_open(node, path, PW_NO_SYNC, &memory, 1, &second));
    EXPECT(PW_OK, pw_checkpoint_restore(checkpoint, 0, NULL, 0, &restored));
    if (restored.number)
        failures++;
    EXPECT(PW_ARGUMENT, pw_checkpoint_restore(checkpoint, 1, NULL, 0, &restored));
    EXPECT(PW_ARGUMENT, pw_checkpoint_save(checkpoint, NULL, 1, NULL));
    EXPECT(PW_OK, pw_checkpoint_save(checkpoint, "a note", 6, NULL));
    EXPECT(PW_ARGUMENT, pw_checkpoint_restore(checkpoint, 0, NULL, 0, NULL));
    *word = 99;
    EXPECT(PW_OK, pw_checkpoint_restore(checkpoint, 0, none, 3, &restored));
    if (restored.number != 1 || restored.note_length != 6 || memcmp(none, "a n", 3) || *word)
        failures++;
    EXPECT(PW_ARGUMENT, pw_checkpoint_save_together(checkpoint, NULL, 1, NULL, 0, NULL));
    EXPECT(PW_OK, pw_checkpoint_numbers(checkpoint, NULL, NULL, NULL));
    EXPECT(PW_IN_USE, pw_node_leave(node));
    EXPECT(PW_OK, pw_checkpoint_close(checkpoint));
    memory.length = 4, memory.token = NULL;
    EXPECT(PW_OK, pw_checkpoint_open(node, path, PW_NO_SYNC, &memory, 1, &checkpoint));
    EXPECT(PW_ARGUMENT, pw_checkpoint_restore(checkpoint, 0, NULL, 0, &restored));
    EXPECT(PW_OK, pw_checkpoint_close(checkpoint));
    FILE *file = fopen(path, "w");
    memset(none, 'x', sizeof none);
    if (!file || fwrite(none, 1, sizeof none, file) != sizeof none || fclose(file))
        failures++;
    EXPECT(PW_FILE, pw_checkpoint_open(node, path, PW_NO_SYNC, &memory, 1, &checkpoint));
    remove(path);
}

static void processes(pw_node *node)
{
    char path[] = "/tmp/pagewire-misuse-XXXXXX", bytes[8] = "";
    if (mkstemp(path) < 0)
        failures++;
    pw_logged_process_options options = {.rank = 1, .size = 1, .bytes = 100};
    pw_logged_process *process;
    pw_ticket ticket = {{0}};
    uint64_t length;
    EXPECT(PW_ARGUMENT, pw_logged_process_start(node, path, NULL, &process));
    EXPECT(PW_ARGUMENT, pw_logged_process_start(node, NULL, &options, &process));
    EXPECT(PW_ARGUMENT, pw_logged_process_start(node, path, &options, &process));
    SAYS("ranks begin at 0");
    options.rank = 0, options.bytes = 0;
    EXPECT(PW_ARGUMENT, pw_logged_process_start(node, path, &options, &process));
    options.size = 2, options.bytes = 100, options.checkpoints = 9;
    EXPECT(PW_ARGUMENT, pw_logged_process_start(node, path, &options, &process));
    options.checkpoints = PW_NO_SYNC;
    EXPECT(PW_OK, pw_logged_process_start(node, path, &options, &process));
    EXPECT(PW_ARGUMENT, pw_logged_process_put(process, 1, 0, bytes, 8));
    SAYS("not connected");
    EXPECT(PW_ARGUMENT, pw_logged_process_get(process, SIZE_MAX, 0, bytes, 8));
    EXPECT(PW_ARGUMENT, pw_logged_process_get(process, 1, 0, NULL, 8));
    EXPECT(PW_ARGUMENT, pw_logged_process_ticket(process, 2, &ticket));
    EXPECT(PW_TOKEN, pw_logged_process_connect(process, &ticket));
    EXPECT(PW_ARGUMENT, pw_logged_process_connect(process, NULL));
    EXPECT(PW_REPLAY, pw_logged_process_replay(process));
    EXPECT(PW_OK, pw_logged_process_note(process, NULL, 0, &length));
    if (length != PW_ABSENT || !pw_logged_process_memory(process) || pw_logged_process_memory(NULL) || pw_logged_process_is_replaying(NULL))
        failures++;
    EXPECT(PW_IN_USE, pw_node_leave(node));
    EXPECT(PW_OK, pw_logged_process_checkpoint(process, "a note", 6, NULL));
    EXPECT(PW_OK, pw_logged_process_end(process));
    options.size = 3;
    EXPECT(PW_REPLAY, pw_logged_process_start(node, path, &options, &process));
    options.size = 2;
    EXPECT(PW_OK, pw_logged_process_start(node, path, &options, &process));
    EXPECT(PW_REPLAY, pw_logged_process_next_epoch(process, NULL));
    EXPECT(PW_OK, pw_logged_process_end(process));
    EXPECT(PW_HANDLE, pw_logged_process_end(process));
    remove(path);
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
    tables(node);
    countings(node, &token);
    checkpoints(node, &token, &word);
    processes(node);

    pw_remote *remote;
    EXPECT(PW_OK, pw_open(node, &token, &remote));
    EXPECT(PW_OK, pw_node_leave(node));
    EXPECT(PW_HANDLE, pw_node_leave(node));
    EXPECT(PW_HANDLE, pw_unexport(node, &token));
    EXPECT(PW_PEER_LOST, pw_get(remote, 0, &word, sizeof word));
    EXPECT(PW_OK, pw_close(remote));
    return failures != 0;
}

/* Transactions: clients of several threads move money between two stores, who loses a conflict is told, a journal brings back what was committed, and calls that are refused. */
#include "expect.h"
#include <pagewire_experimental.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CELLS = 4, CLIENTS = 2, TRANSFERS = 50 };

static pw_transaction_store_token tokens[2];

static pw_node *alone(void)
{
    pw_node *node;

    if (pw_node_alone(&node))
        pw_die("node");
    return node;
}

static pw_error transfer(pw_transaction_client *client, uint32_t from, uint32_t to, int64_t amount)
{
    int64_t taken, given;
    pw_error code;

    (void)((code = pw_transaction_get(client, 0, from, &taken, 8, NULL)) ||
           (code = pw_transaction_get(client, 1, to, &given, 8, NULL)) || (taken -= amount, given += amount, 0) ||
           (code = pw_transaction_put(client, 0, from, &taken, 8)) ||
           (code = pw_transaction_put(client, 1, to, &given, 8)));
    return code ? code : pw_transaction_commit(client);
}

static void *move_money(void *seed)
{
    pw_node *node = alone();
    pw_transaction_client *client;

    if (pw_transaction_client_open(node, tokens, 2, &client))
        pw_die("client");
    for (uint32_t at = 0; at < TRANSFERS; at++) {
        bool again = false;
        pw_error code;
        do {
            if (pw_transaction_start(client, again))
                pw_die("start");
            code = transfer(client, at % CELLS, *(uint32_t *)seed, 1 + at);
            again = true;
        } while (code == PW_CONFLICT);
        if (code)
            pw_die("transfer");
    }
    pw_transaction_client_close(client);
    pw_node_leave(node);
    return NULL;
}

static void conflicts(void)
{
    pw_node *nodes[2] = {alone(), alone()};
    pw_transaction_client *first, *second;
    uint64_t value = 7, version;

    EXPECT(PW_OK, pw_transaction_client_open(nodes[0], tokens, 2, &first));
    EXPECT(PW_OK, pw_transaction_client_open(nodes[1], tokens, 2, &second));
    /* A store would take it for the first one of the node. */
    EXPECT(PW_LIMIT, pw_transaction_client_open(nodes[1], &tokens[1], 1, &(pw_transaction_client *){NULL}));
    EXPECT(PW_IN_USE, pw_node_leave(nodes[0]));
    REQUIRE(pw_transaction_client_value_bytes(first, 1) == 8 && pw_transaction_client_value_bytes(first, 2) == 0);
    EXPECT(PW_ARGUMENT, pw_transaction_get(first, 0, 0, &value, 8, NULL));
    EXPECT(PW_ARGUMENT, pw_transaction_commit(first));
    EXPECT(PW_OK, pw_transaction_abort(first));
    EXPECT(PW_OK, pw_transaction_start(first, false));
    EXPECT(PW_OK, pw_transaction_start(second, false));
    EXPECT(PW_OK, pw_transaction_get(first, 1, 3, &value, 8, &version));
    value++;
    EXPECT(PW_OK, pw_transaction_put(first, 1, 3, &value, 8));
    EXPECT(PW_OK, pw_transaction_get(first, 1, 3, &value, 8, &version));
    REQUIRE(version == PW_ABSENT);
    /* The younger one loses against the older, which is about to commit. */
    pw_error code = pw_transaction_put(second, 1, 3, &value, 8);
    EXPECT(PW_OK, pw_transaction_commit(first));
    EXPECT(PW_CONFLICT, code ? code : pw_transaction_commit(second));
    EXPECT(PW_OK, pw_transaction_start(second, true));
    uint64_t seen = 0;
    EXPECT(PW_OK, pw_transaction_get(second, 1, 3, &seen, 8, NULL));
    REQUIRE(seen == value);
    EXPECT(PW_ARGUMENT, pw_transaction_get(second, 2, 0, &seen, 8, NULL));
    EXPECT(PW_ARGUMENT, pw_transaction_get(second, 0, CELLS, &seen, 8, NULL));
    EXPECT(PW_ARGUMENT, pw_transaction_get(second, 0, 0, &seen, 4, NULL));
    EXPECT(PW_ARGUMENT, pw_transaction_get(second, 0, 0, NULL, 8, NULL));
    EXPECT(PW_ARGUMENT, pw_transaction_put(second, 0, 0, &seen, 4));
    EXPECT(PW_ARGUMENT, pw_transaction_put(second, 0, 0, NULL, 8));
    seen = 99;
    EXPECT(PW_OK, pw_transaction_put(second, 0, 0, &seen, 8));
    EXPECT(PW_OK, pw_transaction_abort(second));
    EXPECT(PW_OK, pw_transaction_client_close(first));
    EXPECT(PW_HANDLE, pw_transaction_client_close(first));
    EXPECT(PW_OK, pw_transaction_client_close(second));
    EXPECT(PW_OK, pw_node_leave(nodes[0]));
    EXPECT(PW_OK, pw_node_leave(nodes[1]));
}

static off_t size_of(const char *path)
{
    struct stat there;

    return stat(path, &there) ? -1 : there.st_size;
}

static void overwrite(const char *path, off_t at, const char *bytes, size_t length)
{
    int file = open(path, O_WRONLY);

    if (file < 0 || pwrite(file, bytes, length, at) != (ssize_t)length || close(file))
        exit(1);
}

static void journals(const char *path)
{
    pw_node *owner = alone(), *node = alone();
    pw_transaction_store_options options = {CELLS, 16, path};
    pw_transaction_store *store, *other;
    pw_transaction_client *client;
    pw_transaction_store_token token, other_token;
    uint64_t value[2] = {1, 2}, version;

    for (int life = 0; life < 2; life++) {
        EXPECT(PW_OK, pw_transaction_store_make(owner, &options, &store));
        EXPECT(PW_OK, pw_transaction_store_export(store, &token));
        EXPECT(PW_OK, pw_transaction_store_serve(store, 0, &token, 1));
        EXPECT(PW_OK, pw_transaction_client_open(node, &token, 1, &client));
        EXPECT(PW_OK, pw_transaction_start(client, false));
        if (life == 0) {
            EXPECT(PW_OK, pw_transaction_put(client, 0, 1, value, 16));
            EXPECT(PW_OK, pw_transaction_commit(client));
        } else {
            memset(value, 0, sizeof value);
            EXPECT(PW_OK, pw_transaction_get(client, 0, 1, value, 16, &version));
            REQUIRE(value[0] == 1 && value[1] == 2 && version == 1);
        }
        EXPECT(PW_OK, pw_transaction_store_check(store, NULL));
        /* The journal is in use. */
        EXPECT(PW_OK, pw_transaction_store_make(owner, &options, &other));
        EXPECT(PW_OK, pw_transaction_store_export(other, &other_token));
        EXPECT(PW_IN_USE, pw_transaction_store_serve(other, 0, &other_token, 1));
        EXPECT(PW_OK, pw_transaction_store_free(other));
        /* Transactions learn that the store is gone. */
        EXPECT(PW_OK, pw_transaction_store_free(store));
        EXPECT(PW_OK, pw_transaction_start(client, false));
        EXPECT(PW_PEER_LOST, pw_transaction_get(client, 0, 1, value, 16, NULL));
        EXPECT(PW_OK, pw_transaction_client_close(client));
    }
    options.cells = 1;
    EXPECT(PW_OK, pw_transaction_store_make(owner, &options, &store));
    EXPECT(PW_OK, pw_transaction_store_export(store, &token));
    EXPECT(PW_FILE, pw_transaction_store_serve(store, 0, &token, 1));
    REQUIRE(size_of(path) > 16);
    EXPECT(PW_ARGUMENT, pw_transaction_store_serve(store, 0, &token, 1));
    EXPECT(PW_OK, pw_transaction_store_free(store));
    /* The journal of the store at another position, one that was changed, and what is no journal. They stay as they are. */
    static const char text[] = "what somebody has written";
    pw_transaction_store_token both[2];
    options.cells = CELLS;
    for (int wrong = 0; wrong < 3; wrong++) {
        if (wrong)
            overwrite(path, wrong == 1 ? 20 : 0, text, sizeof text);
        off_t before = size_of(path);
        EXPECT(PW_OK, pw_transaction_store_make(owner, &options, &store));
        EXPECT(PW_OK, pw_transaction_store_make(owner, &(pw_transaction_store_options){1, 8, NULL}, &other));
        EXPECT(PW_OK, pw_transaction_store_export(other, &both[0]));
        EXPECT(PW_OK, pw_transaction_store_export(store, &both[1]));
        EXPECT(PW_FILE, wrong ? pw_transaction_store_serve(store, 0, &both[1], 1) : pw_transaction_store_serve(store, 1, both, 2));
        REQUIRE(size_of(path) == before);
        EXPECT(PW_OK, pw_transaction_store_free(store));
        EXPECT(PW_OK, pw_transaction_store_free(other));
    }
    EXPECT(PW_OK, pw_node_leave(owner));
    EXPECT(PW_OK, pw_node_leave(node));
}

int main(int argc, char **argv)
{
    pw_node *owners[2] = {alone(), alone()};
    pw_transaction_store *stores[2];
    pw_transaction_store_options options = {CELLS, 8, NULL};
    uint64_t value, version, writes = 0;
    int64_t sum = 0;
    size_t held;

    for (int at = 0; at < 2; at++) {
        EXPECT(PW_OK, pw_transaction_store_make(owners[at], &options, &stores[at]));
        EXPECT(PW_OK, pw_transaction_store_export(stores[at], &tokens[at]));
        EXPECT(PW_ARGUMENT, pw_transaction_store_cell(stores[at], 0, &value, 8, NULL));
        EXPECT(PW_IN_USE, pw_node_leave(owners[at]));
    }
    EXPECT(PW_ARGUMENT, pw_transaction_store_serve(stores[0], 1, tokens, 2));
    EXPECT(PW_ARGUMENT, pw_transaction_store_serve(stores[0], 2, tokens, 2));
    pw_transaction_store_token none = {{0}};
    EXPECT(PW_TOKEN, pw_transaction_store_serve(stores[0], 0, &none, 1));
    for (size_t at = 0; at < 2; at++)
        EXPECT(PW_OK, pw_transaction_store_serve(stores[at], at, tokens, 2));
    EXPECT(PW_ARGUMENT, pw_transaction_store_serve(stores[0], 0, tokens, 2));
    /* In another order, or twice. */
    pw_transaction_store_token swapped[2] = {tokens[1], tokens[0]}, twice[2] = {tokens[0], tokens[0]};
    EXPECT(PW_ARGUMENT, pw_transaction_client_open(owners[0], swapped, 2, &(pw_transaction_client *){NULL}));
    EXPECT(PW_LIMIT, pw_transaction_client_open(owners[0], twice, 2, &(pw_transaction_client *){NULL}));

    pthread_t threads[CLIENTS];
    uint32_t seeds[CLIENTS] = {0, 1};
    for (int at = 0; at < CLIENTS; at++)
        if (pthread_create(&threads[at], NULL, move_money, &seeds[at]))
            return 1;
    for (int at = 0; at < CLIENTS; at++)
        pthread_join(threads[at], NULL);
    for (int at = 0; at < 2; at++)
        for (uint32_t cell = 0; cell < CELLS; cell++) {
            EXPECT(PW_OK, pw_transaction_store_cell(stores[at], cell, &value, 8, &version));
            sum += (int64_t)value, writes += version;
        }
    REQUIRE(sum == 0 && writes == 2 * CLIENTS * TRANSFERS);
    conflicts();
    EXPECT(PW_ARGUMENT, pw_transaction_store_cell(stores[0], CELLS, &value, 8, NULL));
    EXPECT(PW_ARGUMENT, pw_transaction_store_cell(stores[0], 0, &value, 9, NULL));
    EXPECT(PW_OK, pw_transaction_store_check(stores[0], &held));
    EXPECT(PW_TOKEN, pw_transaction_store_replace(stores[0], 1, &none));
    EXPECT(PW_LIMIT, pw_transaction_store_replace(stores[0], 2, &tokens[1]));
    EXPECT(PW_OK, pw_transaction_store_replace(stores[0], 1, &tokens[1]));
    for (int at = 0; at < 2; at++) {
        EXPECT(PW_OK, pw_transaction_store_free(stores[at]));
        EXPECT(PW_HANDLE, pw_transaction_store_free(stores[at]));
    }
    if (argc > 1)
        journals(argv[1]);

    static const pw_transaction_store_options wrong[] = {{0, 8, NULL}, {1, 0, NULL}, {1, 12, NULL}, {1, PW_MOST_CELL_BYTES + 8, NULL}};
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++)
        EXPECT(PW_ARGUMENT, pw_transaction_store_make(owners[0], &wrong[at], &stores[0]));
    EXPECT(PW_LIMIT, pw_transaction_store_make(owners[0], &(pw_transaction_store_options){UINT32_MAX, 8, NULL}, &stores[0]));
    EXPECT(PW_TOKEN, pw_transaction_client_open(owners[0], &none, 1, &(pw_transaction_client *){NULL}));
    none = tokens[0];
    none.bytes[PW_TRANSACTION_STORE_TOKEN_SIZE - 1] = 1;
    EXPECT(PW_TOKEN, pw_transaction_client_open(owners[0], &none, 1, &(pw_transaction_client *){NULL}));
    EXPECT(PW_OK, pw_transaction_store_free(NULL));
    EXPECT(PW_OK, pw_transaction_client_close(NULL));
    for (int at = 0; at < 2; at++)
        EXPECT(PW_OK, pw_node_leave(owners[at]));
    return failures != 0;
}

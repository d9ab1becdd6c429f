/* Objects of the program, and random arguments of calls. */
#ifndef CALLS_ARGUMENTS_H
#define CALLS_ARGUMENTS_H

#include "../../../../verbs/tests/c/random.h"

#include <pagewire.h>
#include <pagewire_experimental.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 3, REMOTES = 8, TOKENS = 12, OPERATIONS = 40, OPENED = 6, OBJECTS = 12, TAGS = 5, PIECES = 6, LOGS = 3, SERVINGS = 6, TABLES = 3, COUNTINGS = 4, CHECKPOINTS = 3, PROCESSES = 3, BUILT_INS = 2, CHAINS = 3, SERVED = 2, BATCHES = 3, PARITIES = 2, MEMBERS = 3, GLOBALS = 1, LISTENERS = 2, STREAMS = 4, STORES = 2, CLIENTS = 2 };
enum { GUARD = 1 << 14, ROOM = 1 << 14, BUFFERS = 1 << 16 };

static pw_node *nodes[NODES];
static pw_remote *remotes[REMOTES];
static pw_token tokens[TOKENS];
/* Places of objects; what was freed stays in them now and then. */
static pw_operation *operations[OPERATIONS];
static pw_conditional_request *opened[OPENED];
static pw_log *logs[LOGS];
static pw_serving *servings[SERVINGS];
/* Of each log one that is not ended before: operations that wait for space in the log end. */
static pw_serving *keepers[LOGS];
/* Its handlers do not use it, so it may be freed before they end. */
static bool is_silent[LOGS];
static pw_table *tables[TABLES];
static pw_access_statistics *countings[COUNTINGS];
static pw_checkpoint *checkpoints[CHECKPOINTS];
/* Of the room, for countings and checkpoints: their attributes take the place of others. */
static pw_token reserved;
static pw_logged_process *processes[PROCESSES];
static pw_built_ins *built_ins[BUILT_INS];
static pw_remote_built_ins *chains[CHAINS];
static pw_batches *served[SERVED];
static pw_batch *batches[BATCHES];
static pw_parity *parities[PARITIES];
static pw_parity_member *members[MEMBERS];
static pw_global *globals[GLOBALS];
static pw_listener *listeners[LISTENERS];
static pw_stream *streams[STREAMS];
/* Flushes of others do not wait for what streams have not received, and what clients and stores have not read. */
static pw_node *separate_nodes[2];
static pw_transaction_store *stores[STORES];
static pw_transaction_client *clients[CLIENTS];
static pw_table *durable;
/* Where checkpoints lie. */
static char folder[] = "/tmp/pagewire-calls-XXXXXX";
/* Of a node of its own, to memory that has no attributes. */
static pw_remote *inner;
/* Objects of the heap. */
static void *objects[OBJECTS];
/* Peers write the room, operations of this process use the buffers, and nobody the guards. */
static unsigned char *arena, *room, *buffers, *nothing;
/* Where words of operations go. */
static uint64_t words[64];
static int event;
static _Atomic uint64_t calls, refused, handled;
static struct random random_numbers;

static uint64_t any(void)
{
    return next_random(&random_numbers);
}

static uint64_t below(uint64_t bound)
{
    return any() % bound;
}

static bool one_in(uint32_t chances)
{
    return below(chances) == 0;
}

/* A number as hostile as its type permits, mostly small. */
static uint64_t number(uint64_t usual)
{
    switch (below(14)) {
    case 0:
        return UINT64_MAX - below(9);
    case 1:
        return INT64_MAX - below(3);
    case 2:
        return UINT32_MAX - below(3);
    case 3:
        return 1ull << below(64);
    case 4:
        return any();
    case 5:
        return 0;
    default:
        return below(usual + 1);
    }
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

#define FAIL(...)                                                                                              \
    do {                                                                                                       \
        fprintf(stderr, "%d: call %llu: ", __LINE__, (unsigned long long)calls);                               \
        fprintf(stderr, __VA_ARGS__);                                                                          \
        fprintf(stderr, "\n");                                                                                 \
        exit(1);                                                                                               \
    } while (0)

/* What a call gives: a code that there is, with a sentence. PW_DEFECT is what a panic becomes. */
static bool outcome(int line, const char *what, int code)
{
    calls++;
    if (code < PW_OK || code > PW_UNDECIDED || code == PW_DEFECT)
        FAIL("%s of line %d gave %d (%s): %s", what, line, code, pw_error_name(code), pw_error_message());
    if (code != PW_OK && !*pw_error_message())
        FAIL("%s of line %d gave %s and says nothing", what, line, pw_error_name(code));
    refused += code != PW_OK;
    return code == PW_OK;
}

#define DO(call) outcome(__LINE__, #call, call)

/* A pointer to an object: mostly one of its kind, else NULL, none that is aligned, or one of another kind. */
static void *handle(void *const *table, size_t count)
{
    void *const *of[] = {(void **)nodes, (void **)remotes,  (void **)operations, (void **)opened,     (void **)logs,
                         (void **)servings, (void **)tables, (void **)countings,  (void **)checkpoints, (void **)processes, (void **)built_ins, (void **)chains, (void **)served, (void **)batches,
                         (void **)parities, (void **)members, (void **)globals, (void **)listeners, (void **)streams, (void **)stores, (void **)clients};
    const size_t counts[] = {NODES, REMOTES, OPERATIONS, OPENED, LOGS, SERVINGS, TABLES, COUNTINGS, CHECKPOINTS, PROCESSES, BUILT_INS, CHAINS, SERVED, BATCHES, PARITIES, MEMBERS, GLOBALS, LISTENERS, STREAMS, STORES, CLIENTS};
    size_t kind = below(sizeof counts / sizeof *counts);

    switch (below(24)) {
    case 0:
        return NULL;
    case 1:
        return (char *)table[below(count)] + 1 + below(7);
    case 2:
        return of[kind][below(counts[kind])];
    default:
        return table[below(count)];
    }
}

#define NODE handle((void **)nodes, NODES)
/* Often the one whose memory has attributes. */
#define REMOTE (one_in(4) ? remotes[0] : handle((void **)remotes, REMOTES))

static pw_token *token(pw_token *place)
{
    if (one_in(32))
        return NULL;
    *place = tokens[below(TOKENS)];
    if (one_in(6))
        place->bytes[below(sizeof place->bytes)] ^= 1 << below(8);
    return place;
}

static pw_peer *peer(pw_peer *place)
{
    pw_token of = tokens[below(TOKENS)];

    if (one_in(24))
        return NULL;
    if (one_in(16) || pw_owner(&of, place) != PW_OK)
        for (size_t i = 0; i < sizeof place->bytes; i++)
            place->bytes[i] = any();
    return place;
}

/* A buffer of an operation: bytes that nobody else needs, or none that can be accessed. length: at most what there is. */
static void *buffer(size_t *length)
{
    *length = below(3) ? below(512) : below(ROOM);
    switch (below(32)) {
    case 0:
        return NULL;
    case 1:
        return (void *)8;
    case 2:
        return nothing + below(4096);
    case 3:
        /* More than there is of addresses. */
        *length = SIZE_MAX - below(1 << 16);
        return buffers;
    default:
        return buffers + below(BUFFERS - *length);
    }
}

static uint64_t *word(void)
{
    switch (below(16)) {
    case 0:
        return NULL;
    case 1:
        return (uint64_t *)((char *)words + 1 + below(7));
    default:
        return &words[below(64)];
    }
}

/* A place for an operation whose former one has ended, or is left to itself. */
static pw_operation **operation(void)
{
    pw_operation **place = &operations[below(OPERATIONS)];

    if (one_in(32))
        return NULL;
    if (one_in(64))
        return (pw_operation **)((char *)operations + 4);
    pw_operation_free(*place);
    return place;
}

#endif /* CALLS_ARGUMENTS_H */

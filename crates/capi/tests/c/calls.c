/*
 * Calls in a random order with random arguments: calls SEED CALLS [SECONDS] (SECONDS: as many as fit into the time).
 *
 * What a caller may get wrong (NULL, freed and wrong pointers to objects, sizes, offsets, tokens, enumerations, memory that cannot be
 * accessed) gets a code and a sentence, and harms nothing. What pagewire.h says that no caller may do is not done: places for results that
 * are no memory, buffers that are changed while an operation has them, waits that nothing ends.
 */
#include <pagewire.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 3, REMOTES = 8, TOKENS = 12, OPERATIONS = 40, OPENED = 6, OBJECTS = 12, TAGS = 5, PIECES = 6, LOGS = 3, SERVINGS = 6, TABLES = 3, COUNTINGS = 4, CHECKPOINTS = 3, PROCESSES = 3, BUILT_INS = 2, CHAINS = 3, SERVED = 2, BATCHES = 3, PARITIES = 2, MEMBERS = 3, GLOBALS = 1, LISTENERS = 2, STREAMS = 4, STORES = 2, CLIENTS = 2 };
enum { GUARD = 1 << 14, ROOM = 1 << 14, BUFFERS = 1 << 16 };

static pw_node *nodes[NODES];
static pw_remote *remotes[REMOTES];
static pw_token tokens[TOKENS];
/* Places of objects; what was freed stays in them now and then. */
static pw_operation *operations[OPERATIONS];
static pw_opened *opened[OPENED];
static pw_log *logs[LOGS];
static pw_serving *servings[SERVINGS];
/* Of each log one that is not ended before: operations that wait for space in the log end. */
static pw_serving *keepers[LOGS];
/* Its handlers do not use it, so it may be freed before they end. */
static bool is_silent[LOGS];
static pw_table *tables[TABLES];
static pw_counting *countings[COUNTINGS];
static pw_checkpoint *checkpoints[CHECKPOINTS];
/* Of the room, for countings and checkpoints: their attributes take the place of others. */
static pw_token reserved;
static pw_process *processes[PROCESSES];
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
static pw_node *apart[2];
static pw_store *stores[STORES];
static pw_client *clients[CLIENTS];
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
static uint64_t state;

static uint64_t any(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
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

static void nodes_come_and_go(void)
{
    pw_node **place = &nodes[1 + below(NODES - 1)];

    if (one_in(4)) {
        DO(pw_node_leave(*place));
        if (one_in(2))
            DO(pw_node_alone(place));
    }
    DO(pw_node_alone_for(number(1000), NULL));
    DO(pw_node_alone((pw_node **)((char *)nodes + 4)));
}

static void job(void)
{
    static unsigned char all[4096];
    pw_peer place;
    char text[300];
    pw_token of;

    DO(pw_barrier(NODE));
    size_t size = one_in(8) ? SIZE_MAX - below(4096) : below(sizeof all);
    DO(pw_all_gather(NODE, one_in(8) ? NULL : arena, size, one_in(8) ? NULL : all));
    DO(pw_broadcast(NODE, number(1), one_in(8) ? NULL : all, size));
    DO(pw_explain(NODE, token(&of), one_in(8) ? NULL : text, below(sizeof text)));
    DO(pw_peer_of_rank(NODE, number(1), one_in(8) ? NULL : &place));
    DO(pw_identity(NODE, one_in(8) ? NULL : &place));
    DO(pw_owner(token(&of), one_in(8) ? NULL : &place));
    (void)(pw_rank(NODE) + pw_size(NODE) + pw_remote_length(REMOTE) + pw_version());
    if (!pw_error_name(number(40)) || !pw_version_text())
        FAIL("there is no name");
}

static void exports(void)
{
    pw_token *place = &tokens[1 + below(TOKENS - 1)], of;
    void *address = room + below(ROOM);
    size_t length = 1 + below(room + ROOM - (unsigned char *)address);
    uint32_t rights = one_in(8) ? number(8) : 1 + below(7);

    if (one_in(16))
        length = one_in(2) ? 0 : SIZE_MAX - below(1 << 16);
    else if (one_in(8))
        address = nothing, length = 4096;
    else if (one_in(4) && (address = objects[below(OBJECTS)]))
        length = 8;
    DO(pw_export(NODE, one_in(32) ? NULL : address, length, rights, one_in(32) ? NULL : place));
    if (one_in(3) && token(&of) && memcmp(&of, &tokens[0], sizeof of))
        DO(pw_unexport(NODE, &of));
}

static void heap(void)
{
    void **place = &objects[below(OBJECTS)];
    pw_statistics now;
    int on_stack;
    /* So much at most that all of it has its place, or so much that there is none. */
    size_t size = one_in(6) ? SIZE_MAX - below(1 << 20) : below(1 << 16);

    switch (below(6)) {
    case 0:
        *place = *place ? *place : pw_malloc(size);
        break;
    case 1:
        *place = *place ? *place : pw_calloc(size, one_in(4) ? number(8) : 1);
        break;
    case 2:
        *place = *place ? *place : pw_aligned_alloc(one_in(3) ? number(64) : 1ull << below(16), size);
        break;
    case 3: {
        void *moved = size ? pw_realloc(*place, size) : NULL;

        *place = moved ? moved : *place;
        break;
    }
    case 4:
        if (DO(pw_free(*place)))
            *place = NULL;
        break;
    default:
        DO(pw_free(one_in(2) ? (void *)&on_stack : arena));
        DO(pw_heap_statistics(one_in(4) ? NULL : &now));
        (void)pw_is_registered(*place ? *place : (void *)any());
        if (one_in(64))
            DO(pw_heap_purge());
    }
    calls++;
}

static void opens(void)
{
    pw_remote **place = &remotes[1 + below(REMOTES - 1)];
    pw_token of;

    if (one_in(2))
        DO(pw_close(*place));
    if (one_in(32))
        DO(pw_open(NODE, token(&of), (pw_remote **)((char *)remotes + 4)));
    else
        DO(pw_open(NODE, token(&of), one_in(32) ? NULL : place));
}

/* Operations that wait for their end. */
static void waiting(void)
{
    size_t length;
    void *bytes = buffer(&length);
    uint64_t offset = number(ROOM);
    pw_signal signal = {number(ROOM), any(), number(1)};
    pw_piece pieces[PIECES];
    size_t count = one_in(16) ? SIZE_MAX / (1 + below(20)) : below(PIECES + 1);

    for (int i = 0; i < PIECES; i++)
        pieces[i] = (pw_piece){number(ROOM), one_in(4) ? number(1 << 12) : count && count <= PIECES ? length / count : 0};
    switch (below(10)) {
    case 0:
        DO(pw_put(REMOTE, offset, bytes, length));
        break;
    case 1:
        DO(pw_get(REMOTE, offset, bytes, length));
        break;
    case 2:
        DO(pw_put_signal(REMOTE, offset, bytes, length, one_in(16) ? NULL : &signal));
        break;
    case 3:
        DO(pw_signal_change(REMOTE, one_in(16) ? NULL : &signal));
        break;
    case 4:
        DO(pw_put_scattered(REMOTE, one_in(16) ? NULL : pieces, count, bytes, length));
        break;
    case 5:
        DO(pw_get_scattered(REMOTE, one_in(16) ? NULL : pieces, count, bytes, length));
        break;
    case 6:
        DO(pw_put_strided(REMOTE, offset, number(64), 1 + number(64), bytes, length));
        break;
    case 7:
        DO(pw_get_strided(REMOTE, offset, number(64), 1 + number(64), bytes, length));
        break;
    case 8:
        DO(pw_fetch_add(REMOTE, offset & (one_in(4) ? -1ull : -8ull), any(), word()));
        break;
    default:
        DO(one_in(2) ? pw_swap(REMOTE, offset & -8ull, any(), word())
                     : pw_compare_swap(REMOTE, offset & -8ull, 0, any(), word()));
    }
}

/* Operations that are waited for later, or never. */
static void starting(void)
{
    size_t length;
    void *bytes = buffer(&length);
    uint64_t offset = number(ROOM);
    pw_signal signal = {number(ROOM), any(), number(1)};
    pw_piece pieces[2] = {{number(ROOM), length / 2}, {number(ROOM), length - length / 2}};

    switch (below(8)) {
    case 0:
        DO(pw_put_start(REMOTE, offset, bytes, length, operation()));
        break;
    case 1:
        DO(pw_get_start(REMOTE, offset, bytes, length, operation()));
        break;
    case 2:
        DO(pw_put_signal_start(REMOTE, offset, bytes, length, one_in(16) ? NULL : &signal, operation()));
        break;
    case 3:
        DO(pw_put_scattered_start(REMOTE, pieces, 2, bytes, length, operation()));
        break;
    case 4:
        DO(pw_get_scattered_start(REMOTE, pieces, 2, bytes, length, operation()));
        break;
    case 5:
        DO(pw_fetch_add_start(REMOTE, offset & -8ull, any(), word(), operation()));
        break;
    case 6:
        DO(pw_swap_start(REMOTE, offset & -8ull, any(), word(), operation()));
        break;
    default:
        DO(pw_compare_swap_start(REMOTE, offset & -8ull, 0, any(), word(), operation()));
    }
}

static void results(void)
{
    pw_operation *of = handle((void **)operations, OPERATIONS);

    switch (below(6)) {
    case 0:
        DO(pw_operation_free(of));
        break;
    case 1:
        DO(pw_notify(of, one_in(8) ? -1 : event));
        break;
    case 2:
        DO(pw_cancel(of));
        break;
    case 3:
        DO(pw_end_after(of, number(1000000)));
        break;
    case 4:
        DO(pw_wait_for(of, below(300000)));
        break;
    default:
        if (DO(pw_test(of)))
            DO(pw_wait(of));
    }
    if (one_in(8))
        DO(one_in(2) ? pw_flush(REMOTE) : pw_flush_all(NODE));
}

static void signals(void)
{
    uint64_t seen, *at = (uint64_t *)(room + (below(ROOM - 8) & (one_in(8) ? -1ull : -8ull)));

    DO(pw_signal_wait(NODE, one_in(16) ? NULL : at, number(3), any(), below(2) * 100000, one_in(8) ? NULL : &seen));
}

static void conditional(void)
{
    size_t length;
    void *bytes = buffer(&length);
    pw_peer of;
    pw_token to;
    pw_opening about;
    pw_opened **place = &opened[below(OPENED)], *one = handle((void **)opened, OPENED);
    uint64_t tag = one_in(8) ? any() : below(TAGS);

    switch (below(8)) {
    case 0:
    case 1: {
        pw_operation **held = operation();

        if (DO(pw_open_write(NODE, peer(&of), tag, bytes, length, held)) && held)
            DO(pw_end_after(*held, below(20000000)));
        break;
    }
    case 2:
        DO(pw_release(NODE, peer(&of), tag, token(&to), word(), operation()));
        break;
    case 3:
        DO(pw_open_read(NODE, peer(&of), tag, token(&to), word(), operation()));
        break;
    case 4:
        pw_opened_free(*place);
        DO(pw_next_opened(NODE, below(2) * 100000, one_in(16) ? NULL : &about, place));
        break;
    case 5:
        DO(pw_opened_release(one, token(&to), word(), operation()));
        break;
    case 6:
        DO(pw_opened_write(one, bytes, length, operation()));
        break;
    default:
        DO(one_in(2) ? pw_opened_decline(one) : pw_opened_free(one));
    }
}

/* A handler, in any thread. context: the place of its log, or NULL. */
static void handles(void *context, const pw_access *access)
{
    static _Thread_local uint64_t bytes[64];
    pw_log **log = context;

    handled++;
    if (access->operation < PW_ACCESS_PUT || access->operation > PW_ACCESS_COMPARE_SWAP || access->domain > 1023)
        FAIL("a record of operation %u and domain %u", access->operation, access->domain);
    for (size_t i = 0; i < access->data_length; i++)
        bytes[i % 64] += ((const unsigned char *)access->data)[i];
    switch (access->stamp % 16) {
    case 0:
        if (log && pw_log_poll(*log, 1, handles, NULL, NULL) != PW_IN_HANDLER)
            FAIL("a handler polls its own log");
        break;
    case 1:
        if (log && pw_log_free(*log) != PW_IN_HANDLER)
            FAIL("a handler frees its own log");
        break;
    case 2:
        DO(pw_put(inner, access->length % 512, bytes, sizeof bytes));
        DO(pw_get(inner, access->length % 512, bytes, sizeof bytes));
        break;
    case 3: {
        pw_operation *flush;

        DO(pw_flush(inner));
        if (DO(pw_flush_handled_start(inner, PW_ALL_DOMAINS, &flush)))
            DO(pw_operation_free(flush));
        break;
    }
    case 4:
        DO(pw_handler_failed(NULL));
        break;
    default:
        break;
    }
}

static void end_servings(void)
{
    for (int i = 0; i < SERVINGS; i++)
        DO(pw_serving_end(servings[i], NULL));
}

static void logs_come_and_go(void)
{
    size_t at = below(LOGS);
    pw_log **place = &logs[at];
    pw_counts counts;

    if (*place && !one_in(8))
        return;
    if (!is_silent[at]) {
        /* Its handlers use it. */
        end_servings();
        DO(pw_serving_end(keepers[at], one_in(2) ? NULL : &counts));
    }
    DO(pw_log_free(*place));
    if (is_silent[at])
        DO(pw_serving_end(keepers[at], &counts));
    keepers[at] = NULL;
    DO(pw_log_make(NODE, number(4096), number(5000), number(2), NULL));
    if (!DO(pw_log_make(nodes[0], 256 + below(1 << 14), one_in(4) ? 0 : 16 + below(200), below(2), place)))
        return;
    is_silent[at] = one_in(2);
    if (!DO(pw_log_serve(*place, NULL, handles, is_silent[at] ? NULL : place, &keepers[at])))
        FAIL("a log that nobody serves");
}

static void servings_come_and_go(void)
{
    pw_serving **place = &servings[below(SERVINGS)], *none;
    pw_events events = {number(20), number(1000000)};
    pw_counts counts;
    size_t of = below(LOGS);
    void *context = is_silent[of] ? NULL : &logs[of];

    switch (below(6)) {
    case 0:
        DO(pw_serving_end(*place, one_in(2) ? NULL : &counts));
        DO(pw_log_serve(logs[of], one_in(3) ? NULL : &events, handles, context, place));
        break;
    case 1:
        DO(pw_serving_end(handle((void **)servings, SERVINGS), &counts));
        break;
    case 2:
        DO(pw_log_serve(logs[of], &events, NULL, context, &none));
        DO(pw_log_serve(logs[of], NULL, handles, context, NULL));
        break;
    default:
        DO(pw_serving_counts(handle((void **)servings, SERVINGS), one_in(8) ? NULL : &counts));
    }
}

static void reacting(void)
{
    pw_token of;
    pw_counts counts;
    size_t at = below(LOGS);
    uint64_t page = one_in(8) ? number(ROOM) : below(5) * 4096, length = one_in(4) ? PW_TO_END : number(4) * 4096;

    switch (below(8)) {
    case 0:
        logs_come_and_go();
        break;
    case 1:
        servings_come_and_go();
        break;
    case 2 ... 4: {
        pw_log *to = one_in(4) ? NULL : handle((void **)logs, LOGS);

        DO(pw_set_attributes(one_in(8) ? NODE : nodes[0], one_in(2) ? &tokens[0] : token(&of), page, length, one_in(4) ? number(127) : 1ull << below(7), to));
        break;
    }
    case 5:
        DO(pw_log_poll(logs[at], one_in(2) ? below(9) : SIZE_MAX, one_in(16) ? NULL : handles, is_silent[at] ? NULL : &logs[at],
                       one_in(2) ? NULL : &counts));
        break;
    case 6:
        DO(pw_take_faults(NODE, one_in(16) ? NULL : handles, NULL, one_in(2) ? NULL : words));
        DO(pw_handler_failed("nobody"));
        (void)pw_log_domain(handle((void **)logs, LOGS));
        break;
    default: {
        uint32_t domain = one_in(3) ? number(1023) : PW_ALL_DOMAINS;

        if (one_in(2))
            DO(pw_flush_handled_start(REMOTE, domain, operation()));
        else
            DO(pw_flush_handled(REMOTE, domain));
    }
    }
}

/* Jobs of one process: a table waits for nobody. */
static void hash_tables(void)
{
    pw_table **place = &tables[below(TABLES)], *of = handle((void **)tables, TABLES);
    pw_table_options options = {number(200), number(200), number(5000), number(2)};
    pw_element elements[4];
    pw_volume volume;
    static unsigned char value[3000];
    size_t length = below(3) ? below(12) : below(sizeof value), count = below(5);
    uint64_t key = number(60), said;

    for (int i = 0; i < 4; i++)
        elements[i] = (pw_element){number(60), one_in(16) ? NULL : value, one_in(32) ? SIZE_MAX - below(9) : below(sizeof value)};
    switch (below(12)) {
    case 0:
        DO(pw_table_free(*place));
        /* So much that there is none for it, or little. */
        options.cells = one_in(8) ? SIZE_MAX - below(1 << 20) : options.cells % 1000;
        options.spare %= 1000, options.value_bytes %= 100000;
        DO(pw_table_join(one_in(4) ? NODE : nodes[0], one_in(16) ? NULL : &options, one_in(32) ? NULL : place));
        break;
    case 1 ... 3:
        DO(pw_table_insert(of, key, one_in(16) ? NULL : value, length));
        break;
    case 4:
        DO(pw_table_insert_batch(of, one_in(16) ? NULL : elements, one_in(32) ? SIZE_MAX / (1 + below(40)) : count));
        break;
    case 5 ... 6:
        DO(pw_table_lookup(of, key, one_in(16) ? NULL : value, one_in(32) ? SIZE_MAX : length, one_in(16) ? NULL : &said));
        break;
    case 7:
        DO(pw_table_delete(of, key));
        break;
    case 8:
        DO(pw_table_flush(of));
        break;
    case 9:
        DO(pw_table_resize(of, one_in(8) ? SIZE_MAX - below(1 << 20) : below(500)));
        break;
    default:
        DO(pw_table_volume(of, one_in(8) ? NULL : &volume));
    }
}

static void countings_come_and_go(void)
{
    pw_counting **place = &countings[below(COUNTINGS)], *of = handle((void **)countings, COUNTINGS);
    pw_numbered_counts list[5];
    pw_access_counts counts, *to = one_in(16) ? NULL : &counts;
    pw_token token_of;
    size_t most = one_in(16) ? SIZE_MAX - below(9) : below(6), count, *said = one_in(16) ? NULL : &count;
    pw_numbered_counts *at = one_in(16) || most > 5 ? NULL : list;

    switch (below(8)) {
    case 0:
        DO(pw_counting_end(*place));
        DO(pw_counting_start(one_in(4) ? NODE : nodes[0], one_in(16) ? token(&token_of) : &reserved, number(3), number(6), one_in(32) ? NULL : place));
        break;
    case 1:
        DO(pw_counting_total(of, to));
        break;
    case 2:
        DO(pw_counting_page(of, number(5), to));
        break;
    case 3:
        DO(pw_counting_reset(of, to));
        break;
    case 4:
        DO(pw_counting_hottest(of, at, most, said));
        break;
    case 5:
        DO(pw_counting_sources(of, at, most, said));
        break;
    case 6:
        DO(pw_counting_export(of, one_in(16) ? NULL : &tokens[1 + below(TOKENS - 1)]));
        break;
    default:
        DO(pw_counting_end(one_in(4) ? of : NULL));
    }
}

static void checkpoints_come_and_go(void)
{
    pw_checkpoint **place = &checkpoints[below(CHECKPOINTS)], *of = handle((void **)checkpoints, CHECKPOINTS);
    /* Nobody else uses the last page of the buffers while this thread is here, and the first one lies in the room. */
    pw_memory memories[] = {{room, ROOM, one_in(2) ? &reserved : NULL},
                            {one_in(8) ? nothing : one_in(8) ? NULL : buffers, 1 + number(BUFFERS - 1), NULL}};
    pw_remote *peers[] = {remotes[0], REMOTE};
    size_t count = one_in(16) ? SIZE_MAX / (1 + below(40)) : below(3), size = one_in(16) ? SIZE_MAX - below(9) : below(64);
    char path[64], note[64] = "a note";
    uint64_t first, last;
    uint32_t how;
    pw_saved saved;
    pw_restored restored;

    snprintf(path, sizeof path, "%s/%d", one_in(32) ? "/nowhere" : folder, (int)below(3));
    switch (below(10)) {
    case 0 ... 1:
        DO(pw_checkpoint_close(*place));
        if (one_in(4))
            unlink(path);
        DO(pw_checkpoint_open(one_in(4) ? NODE : nodes[0], one_in(32) ? NULL : path, one_in(8) ? number(2) : PW_NO_SYNC,
                              one_in(16) ? NULL : memories, count, one_in(32) ? NULL : place));
        break;
    case 2 ... 4:
        DO(pw_checkpoint_save(of, one_in(8) ? NULL : note, size, one_in(4) ? NULL : &saved));
        break;
    case 5:
        DO(pw_checkpoint_save_together(of, one_in(8) ? NULL : peers, below(2), note, size, &saved));
        break;
    case 6:
        DO(pw_checkpoint_restore(of, one_in(2) ? 0 : number(9), one_in(8) ? NULL : note, size, one_in(16) ? NULL : &restored));
        break;
    case 7:
        DO(pw_checkpoint_restore_together(of, note, size, &restored));
        break;
    default:
        DO(pw_checkpoint_numbers(of, one_in(4) ? NULL : &first, one_in(4) ? NULL : &last, one_in(4) ? NULL : &how));
    }
}

/* Processes of rank 0 and 1, which are threads of nobody: the calls of each go one after the other. */
static void logged_processes(void)
{
    size_t at = below(PROCESSES);
    pw_process **place = &processes[at], *of = handle((void **)processes, PROCESSES);
    pw_process_options options = {one_in(8) ? number(3) : at % 2, one_in(8) ? number(3) : 2, one_in(8) ? number(1 << 16) : 4096,
                                  one_in(8) ? number(1 << 16) : 0, one_in(8) ? number(2) : PW_NO_SYNC};
    static pw_ticket ticket;
    static unsigned char bytes[1024];
    size_t length = one_in(32) ? SIZE_MAX - below(9) : below(sizeof bytes), peer = one_in(8) ? number(3) : below(2);
    void *data = one_in(16) || length > sizeof bytes ? NULL : bytes;
    uint64_t offset = number(4096), said;
    char path[64];

    /* So much that there is none for it, or little. */
    if (options.bytes < SIZE_MAX / 2)
        options.bytes %= 1 << 17;
    if (options.log_bytes < SIZE_MAX / 2)
        options.log_bytes %= 1 << 17;
    snprintf(path, sizeof path, "%s/%d", one_in(32) ? "/nowhere" : folder, CHECKPOINTS + (int)at);
    switch (below(16)) {
    case 0:
        DO(pw_process_end(*place));
        if (one_in(3))
            unlink(path);
        DO(pw_process_start(one_in(8) ? NODE : nodes[0], one_in(32) ? NULL : path, one_in(32) ? NULL : &options,
                            one_in(32) ? NULL : place));
        break;
    case 1 ... 3:
        if (DO(pw_process_ticket(of, peer, one_in(32) ? NULL : &ticket)) && one_in(16))
            ticket.bytes[below(sizeof ticket.bytes)] ^= 1 << below(8);
        DO(pw_process_connect(handle((void **)processes, PROCESSES), one_in(32) ? NULL : &ticket));
        break;
    case 4 ... 5:
        DO(pw_process_put(of, peer, offset, data, length));
        break;
    case 6 ... 7:
        DO(pw_process_get(of, peer, offset, data, length));
        break;
    case 8:
        DO(pw_process_next_epoch(of, one_in(2) ? NULL : &said));
        break;
    case 9:
        DO(pw_process_checkpoint(of, data, length % 64, one_in(2) ? NULL : &said));
        break;
    case 10:
        DO(pw_process_note(of, data, length, one_in(16) ? NULL : &said));
        break;
    case 11:
        DO(pw_process_replay(of));
        break;
    default:
        (void)(pw_process_is_replaying(of) + (pw_process_memory(of) != NULL));
    }
}

/* In a job of one: nobody is killed. One table at a time, as one waits for the end of the process that has the folder. */
static void durable_tables(void)
{
    pw_table_options options = {number(50), 0, 0, number(2)};
    char path[64];
    pw_durability durability = {one_in(16) ? NULL : path, one_in(4) ? number(1 << 20) : 0, one_in(8) ? number(2) : PW_NO_SYNC};
    static pw_volume_ticket tickets[2];
    pw_table **place = one_in(32) ? NULL : &durable;
    uint64_t unflushed;

    options.cells %= 1000;
    snprintf(path, sizeof path, "%s/table", one_in(16) ? "/proc/none" : folder);
    switch (below(8)) {
    case 0:
        DO(pw_table_free(durable));
        if (one_in(2))
            DO(pw_table_join_durable(one_in(8) ? NODE : nodes[0], one_in(16) ? NULL : &options, one_in(16) ? NULL : &durability, place));
        else
            DO(pw_table_restart(one_in(8) ? NODE : nodes[0], &options, &durability, one_in(4) ? number(2) : 0, one_in(16) ? NULL : tickets, below(3), place));
        break;
    case 1:
        if (DO(pw_table_ticket(one_in(4) ? handle((void **)tables, TABLES) : durable, one_in(16) ? NULL : &tickets[below(2)])) && one_in(4))
            tickets[below(2)].bytes[below(sizeof tickets->bytes)] ^= 1 << below(8);
        break;
    case 2:
        DO(pw_table_checkpoint(one_in(4) ? handle((void **)tables, TABLES) : durable));
        break;
    case 3:
        DO(pw_table_readmit(one_in(4) ? handle((void **)tables, TABLES) : durable, number(2), one_in(16) ? NULL : &tickets[0], one_in(2) ? NULL : &unflushed));
        break;
    case 4 ... 5:
        DO(pw_table_insert(durable, number(40), arena, below(3000)));
        DO(pw_table_flush(durable));
        break;
    default:
        DO(pw_table_delete(durable, number(40)));
    }
}

static pw_step any_step(void)
{
    static unsigned char given[PW_MOST_MOVED], found[PW_MOST_MOVED];
    pw_step step = {
        .action = one_in(32) ? number(7) : 1 + below(6),
        .place = one_in(6) ? number(3) : PW_PLACE_AT,
        .at = one_in(16) ? number(ROOM) : below(ROOM / 2),
        .by = one_in(4) ? number(64) : 0,
        .add = any(),
        .data = one_in(64) ? NULL : given,
        .data_mask = one_in(2) ? NULL : given + 1,
        .compare = one_in(64) ? NULL : given + below(9),
        .compare_mask = one_in(2) ? NULL : given,
        .length = one_in(32) ? number(40) : below(300),
        .found = one_in(2) ? NULL : found,
        .if_swapped = one_in(4),
    };

    given[below(64)] = any();
    if (!one_in(16))
        step.at &= ~7ull;
    if (step.action == PW_STEP_COMPARE_SWAP && !one_in(16))
        step.length = 1 + below(32);
    /* What moves as much is refused before it is read. */
    if (step.length > sizeof given - 9 && step.length <= PW_MOST_MOVED)
        step.length = below(64);
    return step;
}

static void chains_come_and_go(void)
{
    pw_built_ins **place = &built_ins[below(BUILT_INS)], *of = handle((void **)built_ins, BUILT_INS);
    pw_remote_built_ins **to = &chains[below(CHAINS)];
    static pw_chain_address address;

    switch (below(20)) {
    case 0:
        DO(pw_built_ins_end(*place));
        DO(pw_built_ins_serve(one_in(8) ? NODE : nodes[0], one_in(16) ? nothing : one_in(16) ? NULL : room + one_in(8) * 4, one_in(8) ? number(ROOM - 8) : ROOM - 8,
                              one_in(32) ? NULL : place));
        break;
    case 1:
        if (DO(pw_built_ins_address(of, one_in(32) ? NULL : &address)) && one_in(16))
            address.bytes[below(sizeof address.bytes)] ^= 1 << below(8);
        break;
    case 2:
        DO(pw_built_ins_begin_area(of, number(ROOM), number(ROOM), number(ROOM)));
        break;
    case 3:
        DO(pw_built_ins_close(*to));
        DO(pw_built_ins_open(one_in(4) ? NODE : nodes[1], one_in(32) ? NULL : &address, one_in(32) ? NULL : to));
        break;
    default: {
        pw_step steps[5];
        pw_outcome outcomes[5];
        size_t count = below(6);

        for (size_t i = 0; i < count; i++)
            steps[i] = any_step();
        DO(pw_built_ins_run(handle((void **)chains, CHAINS), one_in(32) ? NULL : steps, one_in(32) ? SIZE_MAX / (1 + below(100)) : count,
                            one_in(4) ? NULL : outcomes));
    }
    }
}

static void handles_put(void *context, const pw_batched_put *put)
{
    handled++;
    if (context != room || put->offset + put->length > ROOM || put->address != room + put->offset)
        FAIL("a put of %zu bytes to %llu", put->length, (unsigned long long)put->offset);
    if (put->length % 16 == 5)
        DO(pw_handler_failed(NULL));
    else
        memcpy(put->address, put->data, put->length);
}

static void batches_come_and_go(void)
{
    pw_batches **place = &served[below(SERVED)], *of = handle((void **)served, SERVED);
    pw_batch **to = &batches[below(BATCHES)], *batch = handle((void **)batches, BATCHES);
    static pw_batch_address address;
    pw_batch_counts counts;

    switch (below(12)) {
    case 0:
        DO(pw_batches_end(*place));
        if (one_in(2))
            DO(pw_batches_redirect(one_in(8) ? NODE : nodes[0], one_in(16) ? NULL : &reserved, one_in(16) ? NULL : handles_put, room, one_in(32) ? NULL : place));
        else
            DO(pw_batches_to_memory(one_in(8) ? NODE : nodes[0], one_in(8) ? nothing : one_in(8) ? NULL : room, number(ROOM), one_in(32) ? NULL : place));
        break;
    case 1:
        if (DO(pw_batches_address(of, one_in(32) ? NULL : &address)) && one_in(16))
            address.bytes[below(sizeof address.bytes)] ^= 1 << below(8);
        break;
    case 2:
        DO(pw_batches_counts(of, one_in(16) ? NULL : &counts));
        break;
    case 3:
        DO(pw_batch_close(*to));
        DO(pw_batch_open(one_in(4) ? NODE : nodes[1], one_in(32) ? NULL : &address, one_in(32) ? NULL : to));
        break;
    case 4:
        DO(pw_batch_send(batch));
        break;
    case 5:
        DO(pw_batch_wait(batch));
        break;
    case 6:
        DO(pw_batch_flush_handled(batch));
        break;
    default: {
        /* What is too long is refused before it is read; of the buffers so many bytes are there. */
        size_t length = one_in(16) ? number(BUFFERS) : below(200);

        DO(pw_batch_put(batch, number(ROOM), one_in(32) ? NULL : buffers, length));
        (void)(pw_batch_unsent(batch) + pw_batch_length(batch));
    }
    }
}

static void parities_come_and_go(void)
{
    pw_parity **place = &parities[below(PARITIES)], *of = handle((void **)parities, PARITIES);
    pw_parity_member **to = &members[below(MEMBERS)], *member = handle((void **)members, MEMBERS);
    static pw_token given[3];
    pw_token of_others;
    /* The first page of the buffers lies before those that operations use. */
    pw_memory memories[] = {{one_in(8) ? nothing : one_in(8) ? NULL : room, 1 + number(4095), NULL}, {one_in(8) ? nothing : room + 4096, 64, one_in(8) ? &tokens[0] : NULL}};
    size_t count = one_in(16) ? SIZE_MAX / (1 + below(40)) : 1 + below(2);
    pw_rebuilt rebuilt;
    uint64_t round;

    switch (below(12)) {
    case 0:
        if (!one_in(4))
            break;
        DO(pw_parity_free(*place));
        DO(pw_parity_make(one_in(4) ? NODE : nodes[0], one_in(4) ? number(3) : 2, one_in(8) ? number(4096) : 8192, one_in(32) ? NULL : place));
        break;
    case 1:
        DO(pw_parity_token(of, one_in(4) ? number(2) : below(2), one_in(16) ? NULL : &given[below(2)]));
        break;
    case 2:
        DO(pw_parity_round(of, one_in(8) ? NULL : &round));
        break;
    case 3:
        DO(pw_parity_member_free(*to));
        DO(pw_parity_join(one_in(4) ? NODE : nodes[1], one_in(8) ? token(&of_others) : &given[below(2)], one_in(8) ? number(2) : below(2), one_in(32) ? NULL : to));
        break;
    case 4:
        DO(pw_parity_member_free(*to));
        DO(pw_parity_rebuild(one_in(4) ? NODE : nodes[1], &given[below(2)], below(2), one_in(16) ? NULL : &given[one_in(4) ? 0 : 2], one_in(8) ? number(3) : 1,
                             one_in(4) ? NULL : &rebuilt, one_in(32) ? NULL : to));
        break;
    case 5:
        DO(pw_parity_member_token(member, one_in(16) ? NULL : &given[2]));
        break;
    case 6:
        DO(pw_parity_restore(member, one_in(16) ? NULL : memories, count, one_in(4) ? NULL : &round));
        break;
    case 7:
        DO(pw_parity_wait(member, below(1000000), one_in(4) ? NULL : &round));
        break;
    default:
        DO(pw_parity_save(member, one_in(16) ? NULL : memories, count, one_in(4) ? NULL : &round));
    }
}

static void sees_page(void *context, const pw_page_access *access)
{
    handled++;
    if (context != room || access->first_word % PW_GLOBAL_PAGE_WORDS || access->by)
        FAIL("an access to the page of the word %llu", (unsigned long long)access->first_word);
    access->content[1] = 7;
}

static void global_memories(void)
{
    pw_global **place = &globals[0], *of = handle((void **)globals, GLOBALS);
    size_t first, count, ranks[2];
    uint64_t dirty[2], *all;
    pw_gas_counts counts;

    switch (below(8)) {
    case 0:
        DO(one_in(2) ? pw_global_free(*place) : pw_global_leave(*place));
        DO(pw_global_make(one_in(4) ? NODE : nodes[0], one_in(2) ? number(4) : 2, one_in(32) ? NULL : place));
        break;
    case 1:
        DO(pw_global_home(of, number(1), one_in(8) ? NULL : &first, one_in(8) ? NULL : &count));
        break;
    case 2:
        DO(pw_global_on_access(of, one_in(8) ? NULL : sees_page, room));
        break;
    case 3:
        DO(pw_global_take_dirty(of, one_in(8) ? NULL : dirty, below(3), one_in(8) ? NULL : &count));
        break;
    case 4:
        DO(pw_global_lost(of, one_in(8) ? NULL : ranks, below(3), one_in(8) ? NULL : &count));
        break;
    case 5:
        DO(pw_global_counts(of, one_in(8) ? NULL : &counts));
        break;
    default:
        all = pw_global_words(of);
        if (all && !pw_global_home(of, 0, &first, &count))
            ((volatile uint64_t *)all)[below(count)] += 1;
    }
}

static void streams_come_and_go(void)
{
    pw_listener **place = &listeners[below(LISTENERS)], *of = handle((void **)listeners, LISTENERS);
    pw_stream **to = &streams[below(STREAMS)], *stream = handle((void **)streams, STREAMS);
    static pw_token given;
    pw_token of_others;
    uint64_t brief = below(2000000);
    size_t count;

    switch (below(12)) {
    case 0:
        DO(pw_listener_close(*place));
        DO(pw_listen(apart[0], one_in(4) ? number(8192) : 8192, one_in(32) ? NULL : place));
        break;
    case 1:
        DO(pw_listener_token(of, one_in(16) ? NULL : &given));
        break;
    case 2 ... 3:
        DO(pw_stream_close(*to));
        DO(pw_accept(of, brief, one_in(32) ? NULL : to));
        break;
    case 4:
        DO(pw_stream_close(*to));
        DO(pw_connect(apart[below(2)], one_in(8) ? token(&of_others) : &given, one_in(4) ? number(8192) : 8192, brief, one_in(32) ? NULL : to));
        break;
    case 5:
        DO(pw_stream_flush(stream, brief));
        break;
    case 6:
        DO(pw_stream_shutdown(stream, brief));
        break;
    case 7 ... 8:
        DO(pw_receive(stream, one_in(16) ? NULL : arena + GUARD / 2, one_in(8) ? 0 : 1, brief, one_in(16) ? NULL : &count));
        memset(arena, 0xee, GUARD);
        break;
    default:
        DO(pw_send(stream, one_in(16) ? NULL : arena, below(100), brief, one_in(4) ? NULL : &count));
    }
}

static void transactions_come_and_go(void)
{
    pw_store **place = &stores[below(STORES)], *of = handle((void **)stores, STORES);
    pw_client **to = &clients[below(CLIENTS)], *client = handle((void **)clients, CLIENTS);
    static pw_store_token given;
    pw_store_options options = {one_in(8) ? number(4) : 4, one_in(8) ? number(64) : 16, NULL};
    unsigned char value[16] = {0};
    uint64_t version;
    size_t held, size = one_in(8) ? below(17) : 16;

    switch (below(16)) {
    case 0:
        DO(pw_store_free(*place));
        if (!DO(pw_store_make(apart[0], one_in(32) ? NULL : &options, one_in(32) ? NULL : place)))
            break;
        DO(pw_store_export(*place, &given));
        /* A commit waits 30 seconds for a store that is not served. */
        if (!DO(pw_store_serve(*place, number(0), &given, one_in(16) ? 0 : 1)))
            DO(pw_store_free(*place));
        break;
    case 1:
        if (DO(pw_store_export(of, one_in(16) ? NULL : &given)) && one_in(16))
            given.bytes[below(sizeof given.bytes)] ^= 1 << below(8);
        break;
    case 2:
        DO(pw_store_serve(of, number(1), one_in(16) ? NULL : &given, 1));
        break;
    case 3:
        DO(pw_store_cell(of, number(4), one_in(16) ? NULL : value, size, one_in(4) ? NULL : &version));
        break;
    case 4:
        DO(pw_store_check(of, one_in(4) ? NULL : &held));
        break;
    case 5:
        DO(pw_store_replace(of, number(2), one_in(8) ? NULL : &given));
        break;
    case 6:
        DO(pw_client_close(*to));
        DO(pw_client_open(apart[1], one_in(16) ? NULL : &given, one_in(16) ? SIZE_MAX / (1 + below(40)) : 1, one_in(32) ? NULL : to));
        break;
    case 7 ... 9:
        DO(pw_transaction_start(client, one_in(2)));
        break;
    case 10:
        DO(pw_transaction_abort(client));
        break;
    case 11:
        DO(pw_transaction_commit(client));
        break;
    case 12 ... 13:
        DO(pw_transaction_get(client, one_in(8) ? number(2) : 0, number(4), one_in(16) ? NULL : value, size, one_in(4) ? NULL : &version));
        break;
    default:
        (void)pw_client_value_bytes(client, number(1));
        DO(pw_transaction_put(client, one_in(8) ? number(2) : 0, number(4), one_in(16) ? NULL : value, size));
    }
}

static void check_guards(void)
{
    for (int i = 0; i < GUARD; i++)
        if (arena[i] != 0xee || room[ROOM + i] != 0xee || buffers[BUFFERS + i] != 0xee)
            FAIL("byte %d of a guard was written", i);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, wanted = argc > 2 ? strtoull(argv[2], NULL, 0) : 20000;
    double end = argc > 3 ? seconds() + strtod(argv[3], NULL) : 0;

    arena = mmap(NULL, 3 * GUARD + ROOM + BUFFERS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    nothing = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (arena == MAP_FAILED || nothing == MAP_FAILED || event < 0 || !mkdtemp(folder))
        FAIL("there is no memory");
    room = arena + GUARD;
    buffers = room + ROOM + GUARD;
    memset(arena, 0xee, 3 * GUARD + ROOM + BUFFERS);
    state = seed;
    for (int i = 0; i < NODES; i++)
        if (pw_node_alone(&nodes[i]))
            pw_die("join");
    if (pw_export(nodes[0], room, ROOM, PW_READ | PW_WRITE | PW_ATOMIC, &tokens[0]) ||
        pw_export(nodes[0], room, ROOM, PW_READ | PW_WRITE | PW_ATOMIC, &reserved) ||
        pw_open(nodes[1], &tokens[0], &remotes[0]) || pw_open(nodes[1], &reserved, &remotes[1]))
        pw_die("open");
    if (pw_node_alone(&apart[0]) || pw_node_alone(&apart[1]))
        pw_die("join");
    static unsigned char plain[1024];
    pw_node *own;
    pw_token of_plain;
    if (pw_node_alone(&own) || pw_export(own, plain, sizeof plain, PW_READ | PW_WRITE, &of_plain) || pw_open(own, &of_plain, &inner))
        pw_die("open");
    while (end ? seconds() < end : calls < wanted) {
        /* A call that does not return is an error, too. */
        alarm(120);
        switch (below(52)) {
        case 0:
            if (one_in(8))
                nodes_come_and_go();
            break;
        case 1:
            job();
            break;
        case 2 ... 3:
            exports();
            break;
        case 4 ... 5:
            heap();
            break;
        case 6 ... 7:
            opens();
            break;
        case 8 ... 13:
            waiting();
            break;
        case 14 ... 20:
            starting();
            break;
        case 21 ... 24:
            results();
            break;
        case 25:
            signals();
            break;
        case 32 ... 35:
            reacting();
            break;
        case 36 ... 39:
            hash_tables();
            break;
        case 40:
            countings_come_and_go();
            break;
        case 42 ... 43:
            logged_processes();
            break;
        case 44:
            if (one_in(2))
                durable_tables();
            break;
        case 45 ... 46:
            chains_come_and_go();
            break;
        case 47:
            batches_come_and_go();
            break;
        case 48:
            parities_come_and_go();
            break;
        case 49:
            if (one_in(2))
                global_memories();
            break;
        case 50:
            if (one_in(2))
                streams_come_and_go();
            break;
        case 51:
            transactions_come_and_go();
            break;
        case 41:
            if (one_in(2))
                checkpoints_come_and_go();
            break;
        default:
            conditional();
        }
        if (one_in(256))
            check_guards();
    }
    alarm(120);
    end_servings();
    for (int i = 0; i < LOGS; i++) {
        DO(pw_serving_end(keepers[i], NULL));
        DO(pw_log_free(logs[i]));
    }
    for (int i = 0; i < TABLES; i++)
        DO(pw_table_free(tables[i]));
    for (int i = 0; i < CHAINS; i++)
        DO(pw_built_ins_close(chains[i]));
    for (int i = 0; i < BUILT_INS; i++)
        DO(pw_built_ins_end(built_ins[i]));
    for (int i = 0; i < BATCHES; i++)
        DO(pw_batch_close(batches[i]));
    for (int i = 0; i < SERVED; i++)
        DO(pw_batches_end(served[i]));
    for (int i = 0; i < MEMBERS; i++)
        DO(pw_parity_member_free(members[i]));
    for (int i = 0; i < PARITIES; i++)
        DO(pw_parity_free(parities[i]));
    for (int i = 0; i < GLOBALS; i++)
        DO(pw_global_free(globals[i]));
    for (int i = 0; i < STREAMS; i++)
        DO(pw_stream_close(streams[i]));
    for (int i = 0; i < LISTENERS; i++)
        DO(pw_listener_close(listeners[i]));
    for (int i = 0; i < CLIENTS; i++)
        DO(pw_client_close(clients[i]));
    for (int i = 0; i < STORES; i++)
        DO(pw_store_free(stores[i]));
    for (int i = 0; i < 2; i++)
        DO(pw_node_leave(apart[i]));
    DO(pw_table_free(durable));
    char remove[96];
    snprintf(remove, sizeof remove, "rm -rf %s/table", folder);
    if (system(remove))
        FAIL("the folder of durable tables stays");
    for (int i = 0; i < COUNTINGS; i++)
        DO(pw_counting_end(countings[i]));
    for (int i = 0; i < CHECKPOINTS + PROCESSES; i++) {
        char path[64];

        if (i < CHECKPOINTS)
            DO(pw_checkpoint_close(checkpoints[i]));
        else
            DO(pw_process_end(processes[i - CHECKPOINTS]));
        snprintf(path, sizeof path, "%s/%d", folder, i);
        unlink(path);
    }
    if (rmdir(folder))
        FAIL("the folder of checkpoints has something else in it");
    for (int i = 0; i < NODES; i++)
        DO(pw_node_leave(nodes[i]));
    check_guards();
    printf("seed %llu: %llu calls, %llu refused, %llu records handled\n", (unsigned long long)seed,
           (unsigned long long)calls, (unsigned long long)refused, (unsigned long long)handled);
    return 0;
}

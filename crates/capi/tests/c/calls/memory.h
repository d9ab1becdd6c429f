/* Calls for nodes, exported memory, the heap, operations, signals and writes that are held. */
#ifndef CALLS_MEMORY_H
#define CALLS_MEMORY_H

#include "arguments.h"

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

    pw_part *part = NULL, *inner = NULL;
    int descriptor;

    DO(pw_barrier(NODE));
    DO(pw_barrier_for(NODE, any()));
    /* From then on all operations of the node are those of a connection. */
    DO(pw_node_descriptor(NODE, one_in(64) ? &descriptor : NULL));
    DO(pw_split(NODE, any(), (int64_t)any(), one_in(8) ? NULL : &part));
    DO(pw_part_split(part, one_in(4) ? PW_NO_PART : any(), 0, &inner));
    DO(pw_part_barrier_for(inner, any()));
    DO(pw_part_all_gather(part, one_in(8) ? NULL : arena, below(sizeof all), all));
    (void)(pw_part_rank(part) + pw_part_size(part));
    DO(pw_part_free(inner));
    DO(pw_part_free(part));
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
    pw_heap_usage now;
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

static void several(void)
{
    pw_operation *list[PIECES];
    pw_signal_wish wishes[PIECES];
    size_t count = number(PIECES), indices[PIECES], found;

    if (count > PIECES)
        count = below(PIECES);
    for (size_t i = 0; i < PIECES; i++) {
        list[i] = one_in(4) ? NULL : handle((void **)operations, OPERATIONS);
        wishes[i].word = one_in(4) ? NULL : (uint64_t *)(room + (below(ROOM - 8) & (one_in(8) ? -1ull : -8ull)));
        wishes[i].value = any();
        wishes[i].wish = number(5);
    }
    DO(pw_wait_any(one_in(8) ? NULL : list, count, below(300000), one_in(8) ? NULL : &found));
    DO(pw_wait_some(one_in(8) ? NULL : list, count, below(300000), one_in(8) ? NULL : indices, one_in(8) ? NULL : &found));
    DO(pw_wait_all(one_in(8) ? NULL : list, count, below(300000)));
    DO(pw_signal_wait_any(NODE, one_in(8) ? NULL : wishes, count, below(100000), one_in(8) ? NULL : &found));
    DO(pw_signal_wait_some(NODE, wishes, count, below(100000), one_in(8) ? NULL : indices, one_in(8) ? NULL : &found));
    DO(pw_signal_wait_all(NODE, one_in(8) ? NULL : wishes, count, below(100000)));
}

static void halves(void)
{
    uint64_t at = one_in(8) ? any() : below(ROOM);
    uint32_t half;
    int32_t signed_half;
    uint64_t word;
    int64_t signed_word;

    DO(pw_fetch_add_32(REMOTE, at, (uint32_t)any(), one_in(8) ? NULL : &half));
    DO(pw_compare_swap_32(REMOTE, at & -4ull, (uint32_t)any(), 1, one_in(8) ? NULL : &half));
    DO(pw_fetch_min_signed_32(REMOTE, at & -4ull, (int32_t)any(), one_in(8) ? NULL : &signed_half));
    DO(pw_fetch_xor(REMOTE, at & -8ull, any(), one_in(8) ? NULL : &word));
    DO(pw_fetch_max_signed(REMOTE, at, (int64_t)any(), one_in(8) ? NULL : &signed_word));
}

static void signals(void)
{
    uint64_t seen, *at = (uint64_t *)(room + (below(ROOM - 8) & (one_in(8) ? -1ull : -8ull)));

    several();
    halves();
    DO(pw_signal_wait(NODE, one_in(16) ? NULL : at, number(3), any(), below(2) * 100000, one_in(8) ? NULL : &seen));
}

static void conditional(void)
{
    size_t length;
    void *bytes = buffer(&length);
    pw_peer of;
    pw_token to;
    pw_conditional_request_info about;
    pw_conditional_request **place = &opened[below(OPENED)], *one = handle((void **)opened, OPENED);
    uint64_t tag = one_in(8) ? any() : below(TAGS);

    switch (below(8)) {
    case 0:
    case 1: {
        pw_operation **held = operation();

        if (DO(pw_conditional_write(NODE, peer(&of), tag, bytes, length, held)) && held)
            DO(pw_end_after(*held, below(20000000)));
        break;
    }
    case 2:
        DO(pw_accept_conditional_write(NODE, peer(&of), tag, token(&to), word(), operation()));
        break;
    case 3:
        DO(pw_conditional_read(NODE, peer(&of), tag, token(&to), word(), operation()));
        break;
    case 4:
        pw_conditional_request_free(*place);
        DO(pw_next_conditional_request(NODE, below(2) * 100000, one_in(16) ? NULL : &about, place));
        break;
    case 5:
        DO(pw_conditional_request_accept(one, token(&to), word(), operation()));
        break;
    case 6:
        DO(pw_conditional_request_supply(one, bytes, length, operation()));
        break;
    default:
        DO(one_in(2) ? pw_conditional_request_decline(one) : pw_conditional_request_free(one));
    }
}

#endif /* CALLS_MEMORY_H */

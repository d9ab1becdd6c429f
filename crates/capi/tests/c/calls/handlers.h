/* Calls for logs, handlers of accesses, built-in handlers and batches. */
#ifndef CALLS_HANDLERS_H
#define CALLS_HANDLERS_H

#include "arguments.h"

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

        DO(pw_flush_handled(REMOTE, domain));
    }
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

#endif /* CALLS_HANDLERS_H */

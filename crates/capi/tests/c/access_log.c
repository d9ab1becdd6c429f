/* Memory that reacts: what each attribute does, polling, servings, failures, handlers that call back, and calls that are refused. */
#include "expect.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, PAGES = 4, SECOND = 1000000000 };

static pw_node *node;
static pw_token token;
/* The second one is of a connection of its own: what a handler starts must not wait behind a flush that waits for it. */
static pw_remote *remote, *second;
static uint64_t *table;

/* What a handler was called with. */
struct seen {
    pw_access last;
    uint64_t words[2];
    int count;
};

static void keep(void *context, const pw_access *access)
{
    struct seen *seen = context;

    seen->last = *access;
    memset(seen->words, 0, sizeof seen->words);
    if (access->data)
        memcpy(seen->words, access->data, access->data_length < 16 ? access->data_length : 16);
    seen->count++;
}

static struct seen poll_once(pw_log *log)
{
    struct seen seen = {0};
    pw_counts counts = {99, 99};

    EXPECT(PW_OK, pw_log_poll(log, SIZE_MAX, keep, &seen, &counts));
    REQUIRE(counts.handled == (uint64_t)seen.count && counts.failed == 0);
    return seen;
}

static void attributes(pw_log *log)
{
    uint64_t five = 5, before = 9, got = 0;

    EXPECT(PW_OK, pw_set_attributes(node, &token, 0, PAGE, PW_REDIRECT_PUTS, log));
    EXPECT(PW_OK, pw_put(remote, 8, &five, 8));
    struct seen seen = poll_once(log);
    REQUIRE(seen.count == 1 && seen.last.operation == PW_ACCESS_PUT && seen.words[0] == 5 && table[1] == 0);
    REQUIRE(seen.last.address == &table[1] && seen.last.length == 8 && seen.last.data_length == 8);
    REQUIRE(seen.last.flags == (PW_FIRST | PW_LAST | PW_REDIRECTED) && seen.last.domain == pw_log_domain(log));
    REQUIRE(seen.last.stamp != 0 && seen.last.key != 0);
    EXPECT(PW_KEY, pw_fetch_add(remote, 8, 1, &before)); /* an atomic cannot be redirected */
    poll_once(log);

    EXPECT(PW_OK, pw_set_attributes(node, &token, 0, PAGE, PW_LOG_PUT_DATA | PW_LOG_GETS, log));
    EXPECT(PW_OK, pw_fetch_add(remote, 8, 3, &before));
    seen = poll_once(log);
    REQUIRE(before == 0 && seen.last.operation == PW_ACCESS_FETCH_ADD && seen.words[0] == 3 && table[1] == 3);
    EXPECT(PW_OK, pw_get(remote, 8, &got, 8));
    seen = poll_once(log);
    REQUIRE(got == 3 && seen.count == 1 && seen.last.operation == PW_ACCESS_GET && !seen.last.data);

    EXPECT(PW_OK, pw_set_attributes(node, &token, 0, PAGE, PW_REFUSE_PUTS | PW_LOG_PUTS | PW_REFUSE_GETS, log));
    EXPECT(PW_KEY, pw_put(remote, 8, &five, 8));
    seen = poll_once(log);
    REQUIRE(seen.count == 1 && (seen.last.flags & PW_REFUSED) && table[1] == 3);
    EXPECT(PW_KEY, pw_get(remote, 8, &got, 8));
    REQUIRE(poll_once(log).count == 0);

    /* Without a log: the fault log. */
    uint64_t dropped = 99;
    EXPECT(PW_OK, pw_set_attributes(node, &token, 0, PAGE, PW_LOG_PUT_DATA, NULL));
    EXPECT(PW_OK, pw_put(remote, 8, &five, 8));
    memset(&seen, 0, sizeof seen);
    EXPECT(PW_OK, pw_take_faults(node, keep, &seen, &dropped));
    REQUIRE(seen.count == 1 && seen.last.operation == PW_ACCESS_PUT && !seen.last.data && dropped == 0 && table[1] == 5);
    EXPECT(PW_OK, pw_set_attributes(node, &token, 0, PW_TO_END, 0, NULL));
    EXPECT(PW_OK, pw_put(remote, 8, &five, 8));
    REQUIRE(poll_once(log).count == 0);
}

/* A token whose bytes begin and end within pages of memory. */
static void parts(pw_log *log)
{
    static char bytes[3 * PAGE];
    pw_token part;
    pw_remote *of;
    char some[PAGE] = {1};

    EXPECT(PW_OK, pw_export(node, bytes + 100, PAGE + 50, PW_WRITE, &part));
    EXPECT(PW_OK, pw_open(node, &part, &of));
    EXPECT(PW_BOUNDS, pw_set_attributes(node, &part, 0, 50, PW_LOG_PUTS, log));
    EXPECT(PW_BOUNDS, pw_set_attributes(node, &part, 1, PAGE - 1, PW_LOG_PUTS, log));
    EXPECT(PW_BOUNDS, pw_set_attributes(node, &part, 0, PAGE + 51, PW_LOG_PUTS, log));
    EXPECT(PW_BOUNDS, pw_set_attributes(node, &part, UINT64_MAX, 1, PW_LOG_PUTS, log));
    EXPECT(PW_BOUNDS, pw_set_attributes(node, &part, 2 * PAGE, PW_TO_END, PW_LOG_PUTS, log));
    EXPECT(PW_OK, pw_set_attributes(node, &part, PAGE, PW_TO_END, PW_LOG_PUTS, log));
    EXPECT(PW_OK, pw_put(of, 0, some, PAGE));
    REQUIRE(poll_once(log).count == 0);
    EXPECT(PW_OK, pw_put(of, 10, some, PAGE));
    struct seen seen = poll_once(log);
    REQUIRE(seen.count == 1 && seen.last.length == 10 && seen.last.address == bytes + 100 + PAGE);
    EXPECT(PW_OK, pw_close(of));
    EXPECT(PW_OK, pw_unexport(node, &part));
    EXPECT(PW_ENGINE, pw_set_attributes(node, &part, 0, PAGE, PW_LOG_PUTS, log));
}

/* A handler that does what it should not, and what it may. */
static pw_log *own;
static pw_serving *own_serving;
static atomic_int ran;

static void calls_back(void *context, const pw_access *access)
{
    uint64_t value = 0, seven = 7;
    pw_counts counts;

    (void)context;
    REQUIRE(access->address == &table[2 * PAGE / 8]);
    EXPECT(PW_IN_HANDLER, pw_log_poll(own, 1, calls_back, NULL, &counts));
    EXPECT(PW_IN_HANDLER, pw_log_free(own));
    EXPECT(PW_OK, pw_put(second, 3 * PAGE, &seven, 8));
    EXPECT(PW_OK, pw_get(second, 3 * PAGE, &value, 8));
    EXPECT(PW_OK, pw_flush(second));
    EXPECT(PW_OK, pw_flush_handled(second, PW_ALL_DOMAINS));
    REQUIRE(value == 7);
    ran++;
    if (own_serving) {
        EXPECT(PW_OK, pw_serving_end(own_serving, &counts));
        REQUIRE(counts.handled == 1 && counts.failed == 0);
        return;
    }
    pw_operation *flush;
    EXPECT(PW_OK, pw_flush_handled_start(remote, PW_ALL_DOMAINS, &flush));
    EXPECT(PW_UNFINISHED, pw_wait_for(flush, 1000000)); /* it waits for this handler */
    EXPECT(PW_OK, pw_operation_free(flush));
}

static void callbacks(void)
{
    uint64_t one = 1;
    pw_counts counts;
    pw_node *other;

    EXPECT(PW_OK, pw_node_alone(&other));
    EXPECT(PW_OK, pw_open(other, &token, &second));
    EXPECT(PW_OK, pw_log_make(node, 1 << 16, 4, PW_UNORDERED, &own));
    EXPECT(PW_OK, pw_set_attributes(node, &token, 2 * PAGE, PAGE, PW_LOG_PUTS, own));
    EXPECT(PW_OK, pw_put(remote, 2 * PAGE, &one, 8));
    EXPECT(PW_OK, pw_log_poll(own, SIZE_MAX, calls_back, NULL, &counts));
    REQUIRE(counts.handled == 1 && ran == 1);
    /* Its thread ends, and the log can be served anew. */
    EXPECT(PW_OK, pw_put(remote, 2 * PAGE, &one, 8));
    pw_serving *before = NULL;
    EXPECT(PW_OK, pw_log_serve(own, &(pw_events){10, UINT64_MAX}, keep, &(struct seen){0}, &before));
    EXPECT(PW_OK, pw_serving_end(before, &counts));
    if (counts.handled == 0) /* the thread may have been quicker than its end */
        EXPECT(PW_OK, pw_log_poll(own, SIZE_MAX, keep, &(struct seen){0}, NULL));
    EXPECT(PW_HANDLE, pw_serving_end(before, &counts));
    EXPECT(PW_HANDLE, pw_serving_counts(before, &counts));
    EXPECT(PW_OK, pw_log_serve(own, NULL, calls_back, NULL, &own_serving));
    EXPECT(PW_OK, pw_put(remote, 2 * PAGE, &one, 8));
    EXPECT(PW_OK, pw_flush_handled(remote, pw_log_domain(own)));
    EXPECT(PW_HANDLE, pw_serving_end(own_serving, &counts));
    REQUIRE(ran == 2);
    own_serving = NULL;
    EXPECT(PW_OK, pw_log_free(own));
    EXPECT(PW_HANDLE, pw_log_free(own));
    EXPECT(PW_HANDLE, pw_log_poll(own, 1, keep, &counts, NULL));
    REQUIRE(pw_log_domain(own) == PW_ALL_DOMAINS);
    /* Nobody reads it: its pages go to the fault log. */
    struct seen seen = {0};
    EXPECT(PW_OK, pw_put(remote, 2 * PAGE, &one, 8));
    EXPECT(PW_OK, pw_take_faults(node, keep, &seen, NULL));
    REQUIRE(seen.count == 1);
    EXPECT(PW_OK, pw_set_attributes(node, &token, 2 * PAGE, PAGE, 0, NULL));
    EXPECT(PW_OK, pw_close(second));
    EXPECT(PW_OK, pw_node_leave(other));
}

static void fails(void *context, const pw_access *access)
{
    uint64_t value;

    memcpy(&value, access->data, 8);
    if (value % 2)
        EXPECT(PW_OK, pw_handler_failed(value == 7 ? "it is seven" : context));
}

static void failing(pw_log *log)
{
    pw_counts counts;
    pw_serving *serving;

    EXPECT(PW_ARGUMENT, pw_handler_failed("nobody"));
    EXPECT(PW_OK, pw_set_attributes(node, &token, 0, PAGE, PW_REDIRECT_PUTS, log));
    for (int polling = 0; polling < 3; polling++) {
        for (uint64_t value = 0; value < 10; value++)
            EXPECT(PW_OK, pw_put(remote, 0, &value, 8));
        if (polling == 0) {
            EXPECT(PW_OK, pw_log_poll(log, 4, fails, NULL, &counts));
            REQUIRE(counts.handled == 4 && counts.failed == 2);
            EXPECT(PW_OK, pw_log_poll(log, SIZE_MAX, fails, NULL, &counts));
            REQUIRE(counts.handled == 6 && counts.failed == 3);
            continue;
        }
        EXPECT(PW_OK, polling == 1 ? pw_log_serve(log, NULL, fails, NULL, &serving)
                                   : pw_log_serve_polling(log, fails, NULL, &serving));
        EXPECT(PW_OK, pw_flush_handled(remote, PW_ALL_DOMAINS));
        EXPECT(PW_OK, pw_serving_counts(serving, &counts));
        REQUIRE(counts.handled == 10);
        EXPECT(PW_OK, pw_serving_end(serving, &counts));
        REQUIRE(counts.handled == 10 && counts.failed == 5);
    }
}

/* It sleeps until there are three records. What comes while it is awake does not count for that. */
static void thresholds(pw_log *log)
{
    pw_counts counts = {0};
    pw_serving *serving;
    uint64_t value = 2;
    int puts = 0;

    EXPECT(PW_OK, pw_log_serve(log, &(pw_events){3, UINT64_MAX}, fails, NULL, &serving));
    while (counts.handled < 3) {
        EXPECT(PW_OK, pw_put(remote, 0, &value, 8));
        puts++;
        sched_yield();
        EXPECT(PW_OK, pw_serving_counts(serving, &counts));
    }
    EXPECT(PW_OK, pw_serving_end(serving, &counts));
    struct seen rest = poll_once(log);
    REQUIRE(counts.handled + rest.count == (uint64_t)puts);
}

static void refused(pw_log *log)
{
    pw_log *none = (pw_log *)1;
    pw_serving *serving = (pw_serving *)1;
    pw_counts counts;
    pw_token forged = token;

    EXPECT(PW_ARGUMENT, pw_log_make(NULL, 4096, 0, 0, &none));
    REQUIRE(none == NULL);
    EXPECT(PW_ARGUMENT, pw_log_make(node, 4096, 0, 2, &none));
    EXPECT(PW_ARGUMENT, pw_log_make(node, 4096, 0, 0, NULL));
    EXPECT(PW_ENGINE, pw_log_make(node, 40, 0, 0, &none));
    EXPECT(PW_ENGINE, pw_log_make(node, 4096, 4097, 0, &none));
    EXPECT(PW_ENGINE, pw_log_make(node, SIZE_MAX, 0, 0, &none));
    EXPECT(PW_OK, pw_log_free(NULL));
    EXPECT(PW_HANDLE, pw_log_free((pw_log *)node));
    EXPECT(PW_ARGUMENT, pw_log_poll(NULL, 1, keep, NULL, NULL));
    EXPECT(PW_ARGUMENT, pw_log_poll(log, 1, NULL, NULL, NULL));
    EXPECT(PW_ARGUMENT, pw_log_poll(log, 1, keep, NULL, (pw_counts *)((char *)&counts + 1)));
    EXPECT(PW_ARGUMENT, pw_log_serve(log, NULL, NULL, NULL, &serving));
    REQUIRE(serving == NULL);
    EXPECT(PW_ARGUMENT, pw_log_serve(log, NULL, keep, NULL, NULL));
    EXPECT(PW_ARGUMENT, pw_log_serve(NULL, NULL, keep, NULL, &serving));
    EXPECT(PW_ARGUMENT, pw_log_serve(log, &(pw_events){0, SECOND}, keep, NULL, &serving));
    EXPECT(PW_ARGUMENT, pw_log_serve(log, &(pw_events){1, 0}, keep, NULL, &serving));
    EXPECT(PW_ARGUMENT, pw_log_serve_polling(log, NULL, NULL, &serving));
    EXPECT(PW_ARGUMENT, pw_serving_end(NULL, &counts));
    EXPECT(PW_HANDLE, pw_serving_end((pw_serving *)log, &counts));
    EXPECT(PW_ARGUMENT, pw_serving_counts(NULL, &counts));
    EXPECT(PW_ARGUMENT, pw_take_faults(node, NULL, NULL, NULL));
    EXPECT(PW_ARGUMENT, pw_take_faults(NULL, keep, NULL, NULL));
    EXPECT(PW_ARGUMENT, pw_flush_handled(NULL, PW_ALL_DOMAINS));
    EXPECT(PW_ARGUMENT, pw_flush_handled(remote, 1024));
    EXPECT(PW_OK, pw_flush_handled(remote, 1023)); /* there is no such log: nothing is waited for */
    EXPECT(PW_ARGUMENT, pw_set_attributes(NULL, &token, 0, PAGE, 0, log));
    EXPECT(PW_ARGUMENT, pw_set_attributes(node, NULL, 0, PAGE, 0, log));
    EXPECT(PW_HANDLE, pw_set_attributes(node, &token, 0, PAGE, 0, (pw_log *)node));
    EXPECT(PW_ARGUMENT, pw_set_attributes(node, &token, 0, PAGE, 128, log));
    EXPECT(PW_ARGUMENT, pw_set_attributes(node, &token, 0, PAGE, PW_REDIRECT_PUTS | PW_REFUSE_PUTS, log));
    EXPECT(PW_ARGUMENT, pw_set_attributes(node, &token, 0, PAGE, PW_REFUSE_PUTS | PW_LOG_PUT_DATA, log));
    EXPECT(PW_ARGUMENT, pw_set_attributes(node, &token, 0, PAGE, PW_REDIRECT_PUTS, NULL));
    forged.bytes[20] ^= 1;
    EXPECT(PW_TOKEN, pw_set_attributes(node, &forged, 0, PAGE, 0, log));
}

int main(void)
{
    pw_log *log;

    if (pw_node_alone(&node) || !(table = pw_aligned_alloc(PAGE, PAGES * PAGE)))
        pw_die("begin");
    memset(table, 0, PAGES * PAGE);
    if (pw_export(node, table, PAGES * PAGE, PW_READ | PW_WRITE | PW_ATOMIC, &token) || pw_open(node, &token, &remote) ||
        pw_log_make(node, 1 << 16, 0, PW_ORDERED, &log))
        pw_die("begin");
    attributes(log);
    parts(log);
    callbacks();
    failing(log);
    thresholds(log);
    refused(log);
    EXPECT(PW_OK, pw_close(remote));
    EXPECT(PW_OK, pw_node_leave(node));
    EXPECT(PW_OK, pw_log_poll(log, 1, keep, NULL, NULL)); /* a log outlives the node */
    EXPECT(PW_OK, pw_log_free(log));
    EXPECT(PW_OK, pw_free(table));
    return failures != 0;
}

/* Waits for any or all of several operations and signals, a descriptor for poll(2), and atomics that RDMA does not have. */
#include "expect.h"
#include <inttypes.h>
#include <poll.h>

enum { SOON = 5000000 };

static pw_node *owner, *caller;
static uint64_t table[16] __attribute__((aligned(64)));
static pw_token token;
static pw_remote *remote;

static void operations(void)
{
    pw_operation *held, *released, *list[4] = {NULL};
    uint64_t value = 5, all[4] = {1, 2, 3, 4};
    size_t index, indices[4], found;
    pw_peer peer, writer;

    EXPECT(PW_OK, pw_identity(owner, &peer));
    EXPECT(PW_OK, pw_identity(caller, &writer));
    EXPECT(PW_OK, pw_wait_any(list, 4, PW_FOREVER, &index));
    REQUIRE(index == 4);
    EXPECT(PW_OK, pw_wait_any(NULL, 0, PW_FOREVER, &index));
    REQUIRE(index == 0);
    EXPECT(PW_OK, pw_wait_all(list, 4, PW_FOREVER));
    /* A write that is held until it is released. */
    EXPECT(PW_OK, pw_conditional_write(caller, &peer, 7, &value, sizeof value, &held));
    list[1] = held;
    EXPECT(PW_UNFINISHED, pw_wait_any(list, 4, 0, &index));
    EXPECT(PW_UNFINISHED, pw_wait_any(list, 4, SOON, &index));
    EXPECT(PW_UNFINISHED, pw_wait_some(list, 4, SOON, indices, &found));
    REQUIRE(found == 0);
    EXPECT(PW_UNFINISHED, pw_wait_all(list, 4, SOON));
    EXPECT(PW_OK, pw_put_start(remote, 8, all, sizeof all, &list[2]));
    EXPECT(PW_OK, pw_put_start(remote, sizeof table, all, sizeof all, &list[3]));
    EXPECT(PW_OK, pw_wait_any(list, 4, PW_FOREVER, &index));
    REQUIRE(index == 2 || index == 3);
    EXPECT(PW_BOUNDS, pw_wait_all(list + 2, 2, PW_FOREVER));
    EXPECT(PW_OK, pw_wait_some(list, 4, PW_FOREVER, indices, &found));
    REQUIRE(found == 2 && indices[0] == 2 && indices[1] == 3);
    EXPECT(PW_BOUNDS, pw_wait(list[3]));
    EXPECT(PW_OK, pw_operation_free(list[2]));
    EXPECT(PW_OK, pw_operation_free(list[3]));
    list[2] = list[3] = NULL;
    EXPECT(PW_OK, pw_accept_conditional_write(owner, &writer, 7, &token, NULL, &released));
    list[0] = released;
    EXPECT(PW_OK, pw_wait_all(list, 4, PW_FOREVER));
    REQUIRE(table[0] == 5 && table[1] == 1);
    EXPECT(PW_OK, pw_operation_free(held));
    EXPECT(PW_OK, pw_operation_free(released));
    EXPECT(PW_HANDLE, pw_wait_any(list, 4, 0, &index));
    EXPECT(PW_ARGUMENT, pw_wait_any(list, 4, 0, NULL));
    EXPECT(PW_ARGUMENT, pw_wait_all(NULL, 4, 0));
    EXPECT(PW_ARGUMENT, pw_wait_some(NULL, 1, 0, indices, &found));
}

static void comparisons(void)
{
    static const struct {
        uint32_t wish;
        bool of[3]; /* of 6, 7 and 8 with 7 */
    } all[] = {{PW_EQUAL, {0, 1, 0}},    {PW_NOT_EQUAL, {1, 0, 1}}, {PW_GREATER, {0, 0, 1}},
               {PW_AT_LEAST, {0, 1, 1}}, {PW_LESS, {1, 0, 0}},      {PW_AT_MOST, {1, 1, 0}}};
    uint64_t seen;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (uint64_t value = 6; value < 9; value++) {
            table[10] = value;
            EXPECT(all[i].of[value - 6] ? PW_OK : PW_TIMEOUT, pw_signal_wait(owner, &table[10], all[i].wish, 7, 0, &seen));
            REQUIRE(seen == value);
        }
    EXPECT(PW_ARGUMENT, pw_signal_wait(owner, &table[10], 6, 7, 0, &seen));
}

static void signals(void)
{
    pw_signal_wish wishes[3] = {{&table[11], 3, 0, PW_GREATER}, {NULL, 0, 0, 99}, {&table[12], 1, 0, PW_EQUAL}};
    pw_signal set = {8 * 12, 1, PW_SET};
    size_t index, indices[3], found;

    table[11] = table[12] = 0;
    EXPECT(PW_TIMEOUT, pw_signal_wait_any(owner, wishes, 3, 0, &index));
    EXPECT(PW_TIMEOUT, pw_signal_wait_any(owner, wishes, 3, SOON, &index));
    EXPECT(PW_TIMEOUT, pw_signal_wait_some(owner, wishes, 3, SOON, indices, &found));
    REQUIRE(found == 0);
    EXPECT(PW_OK, pw_signal_change(remote, &set));
    EXPECT(PW_OK, pw_signal_wait_any(owner, wishes, 3, PW_FOREVER, &index));
    REQUIRE(index == 2 && wishes[2].seen == 1 && wishes[0].seen == 0);
    EXPECT(PW_TIMEOUT, pw_signal_wait_all(owner, wishes, 3, SOON));
    set = (pw_signal){8 * 11, 4, PW_ADD};
    EXPECT(PW_OK, pw_signal_change(remote, &set));
    EXPECT(PW_OK, pw_signal_wait_all(owner, wishes, 3, PW_FOREVER));
    REQUIRE(wishes[0].seen == 4 && wishes[2].seen == 1);
    EXPECT(PW_OK, pw_signal_wait_some(owner, wishes, 3, PW_FOREVER, indices, &found));
    REQUIRE(found == 2 && indices[0] == 0 && indices[1] == 2);
    EXPECT(PW_OK, pw_signal_wait_any(owner, &wishes[1], 1, PW_FOREVER, &index));
    REQUIRE(index == 1);
    wishes[1] = (pw_signal_wish){&table[11], 0, 0, 99};
    EXPECT(PW_ARGUMENT, pw_signal_wait_any(owner, wishes, 3, 0, &index));
    wishes[1] = (pw_signal_wish){(uint64_t *)((char *)table + 4), 0, 0, PW_EQUAL};
    EXPECT(PW_ALIGNMENT, pw_signal_wait_all(owner, wishes, 3, 0));
    EXPECT(PW_ARGUMENT, pw_signal_wait_all(owner, NULL, 3, 0));
}

static int is_readable(int descriptor, int milliseconds)
{
    struct pollfd ready = {.fd = descriptor, .events = POLLIN};

    return poll(&ready, 1, milliseconds);
}

static void descriptor(void)
{
    uint64_t value = 9;
    int found, again;
    pw_operation *put[2];
    size_t index;

    EXPECT(PW_ARGUMENT, pw_node_descriptor(caller, NULL));
    EXPECT(PW_OK, pw_node_descriptor(caller, &found));
    EXPECT(PW_OK, pw_node_descriptor(caller, &again));
    REQUIRE(found == again && is_readable(found, 0) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(PW_OK, pw_put_start(remote, 8 * i, &value, sizeof value, &put[i]));
    for (int left = 2; left; left--) {
        REQUIRE(is_readable(found, 60000) == 1);
        EXPECT(PW_OK, pw_wait_any(put, 2, 0, &index));
        /* It is readable until this takes the result. */
        REQUIRE(is_readable(found, 0) == 1);
        EXPECT(PW_OK, pw_wait(put[index]));
        EXPECT(PW_OK, pw_operation_free(put[index]));
        put[index] = NULL;
    }
    REQUIRE(is_readable(found, 0) == 0);
}

static void atomics(void)
{
    uint64_t was;
    int64_t signed_was;
    uint32_t half;
    int32_t signed_half;
    pw_operation *started;
    pw_token part;
    pw_remote *narrow;

    table[13] = 6;
    EXPECT(PW_OK, pw_fetch_and(remote, 104, 3, &was));
    REQUIRE(was == 6 && table[13] == 2);
    EXPECT(PW_OK, pw_fetch_or(remote, 104, 8, &was));
    REQUIRE(was == 2 && table[13] == 10);
    EXPECT(PW_OK, pw_fetch_xor(remote, 104, 2, NULL));
    REQUIRE(table[13] == 8);
    EXPECT(PW_OK, pw_fetch_min(remote, 104, 5, &was));
    EXPECT(PW_OK, pw_fetch_max(remote, 104, 7, &was));
    REQUIRE(was == 5 && table[13] == 7);
    EXPECT(PW_OK, pw_fetch_min_signed(remote, 104, -2, &signed_was));
    EXPECT(PW_OK, pw_fetch_max_signed_start(remote, 104, -1, &signed_was, &started));
    EXPECT(PW_OK, pw_wait(started));
    EXPECT(PW_OK, pw_operation_free(started));
    REQUIRE(signed_was == -2 && table[13] == UINT64_MAX);
    EXPECT(PW_OK, pw_fetch_add_32(remote, 104, 8, &half));
    REQUIRE(half == UINT32_MAX && table[13] == 0xffffffff00000007);
    EXPECT(PW_OK, pw_compare_swap_32(remote, 108, UINT32_MAX, 3, &half));
    REQUIRE(half == UINT32_MAX && table[13] == 0x300000007);
    EXPECT(PW_OK, pw_swap_32_start(remote, 108, 6, &half, &started));
    EXPECT(PW_OK, pw_wait(started));
    EXPECT(PW_OK, pw_operation_free(started));
    EXPECT(PW_OK, pw_fetch_and_32(remote, 108, 3, &half));
    REQUIRE(half == 6);
    EXPECT(PW_OK, pw_fetch_or_32(remote, 108, 4, &half));
    EXPECT(PW_OK, pw_fetch_xor_32(remote, 108, 1, &half));
    REQUIRE(half == 6 && table[13] == 0x700000007);
    EXPECT(PW_OK, pw_fetch_min_32(remote, 108, 2, &half));
    EXPECT(PW_OK, pw_fetch_max_32(remote, 108, 9, &half));
    REQUIRE(half == 2);
    EXPECT(PW_OK, pw_fetch_min_signed_32(remote, 104, -4, &signed_half));
    EXPECT(PW_OK, pw_fetch_max_signed_32(remote, 104, -9, &signed_half));
    REQUIRE(signed_half == -4 && table[13] == 0x9fffffffc);
    EXPECT(PW_ALIGNMENT, pw_fetch_and(remote, 100, 3, &was));
    EXPECT(PW_ALIGNMENT, pw_fetch_add_32(remote, 102, 3, &half));
    EXPECT(PW_BOUNDS, pw_fetch_add_32(remote, sizeof table, 3, &half));
    EXPECT(PW_OK, pw_export(owner, (char *)table + 4, 8, PW_ATOMIC, &part));
    EXPECT(PW_OK, pw_open(caller, &part, &narrow));
    EXPECT(PW_BOUNDS, pw_swap_32(narrow, 0, 3, &half));
    SAYS("half of a word of 8");
    EXPECT(PW_OK, pw_unexport(owner, &part));
    EXPECT(PW_OK, pw_close(narrow));
}

int main(void)
{
    if (pw_node_alone(&owner) || pw_node_alone(&caller) || pw_export(owner, table, sizeof table, PW_READ | PW_WRITE | PW_ATOMIC, &token) ||
        pw_open(caller, &token, &remote))
        pw_die("begin");
    operations();
    comparisons();
    signals();
    atomics();
    descriptor();
    EXPECT(PW_OK, pw_close(remote));
    EXPECT(PW_OK, pw_node_leave(caller));
    EXPECT(PW_OK, pw_node_leave(owner));
    if (failures == 0)
        puts("waits: all is so");
    return failures != 0;
}

/* One end writes, reads, sends and does atomics over RC, and both look at every byte and every completion; then it does what
 * the other must refuse, and looks at the status. Not so where packets are lost: the last NAK of a connection
 * is not repeated. */
#include "pair.h"

#include <arpa/inet.h>
#include <unistd.h>

static void transfer(int active, uint32_t mtu, uint32_t length, uint32_t seed)
{
    /* Some offsets are not aligned. */
    uint32_t offset = seed % 5;
    if (active) {
        fill_bytes(pair.buffer + offset, length, seed);
        struct ibv_send_wr writing = request(1, IBV_WR_RDMA_WRITE_WITH_IMM, seed);
        writing.wr.rdma.remote_addr += offset;
        barrier();
        post(writing, offset, length);
        wait_for(1, IBV_WC_SUCCESS);
        struct ibv_send_wr reading = request(2, IBV_WR_RDMA_READ, 0);
        reading.wr.rdma.remote_addr += offset;
        memset(pair.buffer, 0, HALF);
        post(reading, 7, length);
        wait_for(2, IBV_WC_SUCCESS);
        REQUIRE(bytes_are(pair.buffer + 7, length, seed));
        barrier();
        fill_bytes(pair.buffer + offset, length, seed + 1);
        barrier();
        post(request(3, IBV_WR_SEND_WITH_IMM, ~seed), offset, length);
        wait_for(3, IBV_WC_SUCCESS);
    } else {
        memset(pair.buffer + HALF, 0, HALF);
        receive(4, 0);
        barrier();
        struct ibv_wc wc = wait_for(4, IBV_WC_SUCCESS);
        REQUIRE(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == length && ntohl(wc.imm_data) == seed);
        REQUIRE(bytes_are(pair.buffer + HALF + offset, length, seed));
        barrier();
        memset(pair.buffer + HALF, 0, HALF);
        barrier();
        /* Meanwhile the peer gets RNR NAKs. */
        usleep(length % mtu == 0 ? 30000 : 0);
        receive(5, length + 1);
        wc = wait_for(5, IBV_WC_SUCCESS);
        REQUIRE(wc.opcode == IBV_WC_RECV && wc.byte_len == length && ntohl(wc.imm_data) == ~seed);
        REQUIRE(bytes_are(pair.buffer + HALF, length, seed + 1));
    }
    barrier();
}

static void atomics(int active)
{
    uint64_t *word = (uint64_t *)(pair.buffer + HALF), *result = (uint64_t *)pair.buffer;
    *word = 1000;
    barrier();
    for (uint64_t i = 0; active && i < 40; i++) {
        int swap = i % 4 == 3;
        struct ibv_send_wr atomic = request(i, swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, 0);
        atomic.wr.atomic.remote_addr = pair.theirs.address;
        atomic.wr.atomic.rkey = pair.theirs.key;
        /* Every other comparison fails. */
        atomic.wr.atomic.compare_add = swap ? (i % 8 == 3 ? 1000 + i : 1) : 1;
        atomic.wr.atomic.swap = 1000 + i + 1;
        static uint64_t expected = 1000;
        if (swap && i % 8 == 3)
            atomic.wr.atomic.compare_add = expected;
        post(atomic, 0, 8);
        wait_for(i, IBV_WC_SUCCESS);
        REQUIRE(*result == expected);
        expected = !swap ? expected + 1 : i % 8 == 3 ? 1000 + i + 1 : expected;
        if (i == 39)
            *result = expected;
    }
    if (active)
        tcp_send(result, 8);
    else {
        uint64_t last;
        tcp_receive(&last, 8);
        REQUIRE(*word == last);
    }
    barrier();
}

enum wrong { KEY_OF_WRITE, KEY_OF_READ, BEYOND_REGION, TOO_LONG, NEVER_READY, WRONGS };

static void refusals(int active, enum wrong wrong)
{
    static const enum ibv_wc_status expected[WRONGS] = { IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR,
                                                         IBV_WC_REM_INV_REQ_ERR, IBV_WC_RNR_RETRY_EXC_ERR };
    join(&(struct link){ .rnr_retry = wrong == NEVER_READY ? 1 : 7 });
    if (!active && wrong == TOO_LONG)
        receive(1, 100);
    barrier();
    if (active) {
        enum ibv_wr_opcode opcode = wrong == KEY_OF_READ                             ? IBV_WR_RDMA_READ
                                    : wrong == KEY_OF_WRITE || wrong == BEYOND_REGION ? IBV_WR_RDMA_WRITE
                                                                                      : IBV_WR_SEND;
        struct ibv_send_wr bad = request(2, opcode, 0);
        if (wrong == BEYOND_REGION)
            bad.wr.rdma.remote_addr += HALF - 4999;
        else
            bad.wr.rdma.rkey ^= 0x5500;
        post(bad, 0, 5000);
        post(request(3, IBV_WR_SEND, 0), 0, 10);
        /* rxe of Linux 6.1 takes a receive that is too short for one that is malformed. */
        wait_for(2, wrong == TOO_LONG && pair.theirs.is_rxe ? IBV_WC_REM_OP_ERR : expected[wrong]);
        wait_for(3, IBV_WC_WR_FLUSH_ERR);
    } else if (wrong == TOO_LONG) {
        wait_for(1, pair.mine.is_rxe ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR);
    }
    barrier();
}

void transfers(int active)
{
    for (enum ibv_mtu code = IBV_MTU_256; code <= IBV_MTU_4096; code++) {
        uint32_t mtu = 128u << code;
        uint32_t lengths[] = { 0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 2, 20000, 300 * mtu + 3 };
        join(&(struct link){ .mtu = code });
        for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            transfer(active, mtu, lengths[i], (uint32_t)pair.seed * 1000 + i);
    }
    join(&(struct link){ 0 });
    atomics(active);
    for (enum wrong wrong = 0; wrong < WRONGS && !pair.lossy; wrong++)
        refusals(active, wrong);
}

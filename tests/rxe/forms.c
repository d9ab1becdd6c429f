/* Forms of requests over RC: several segments at either end, inline data, a fence, a shared receive queue. */
#include "pair.h"

#include <arpa/inet.h>

#define INLINE 128
/* Where in a half the bytes go that a fenced WRITE takes from a READ. */
#define COPY (1u << 20)
#define READ_LENGTH 100000u
#define SHARED_MESSAGES 16
#define SHARED_SLOT 8192u

/* Pieces of one message, in this order, each at a place of its own. */
static const uint32_t pieces[2][4] = { { 1, 4000, 3, 1077 }, { 2500, 0, 2580, 1 } };
#define PIECES_LENGTH 5081u

/* The segments of a half, cut as `pieces[row]`. */
static void cut(struct ibv_sge segments[4], uint32_t half, int row)
{
    for (uint32_t i = 0; i < 4; i++)
        segments[i] = (struct ibv_sge){ (uintptr_t)pair.buffer + half + (3 - i) * 8192 + 5 * i, pieces[row][i], pair.mr->lkey };
}

static void scatter(const struct ibv_sge segments[4], const uint8_t *from)
{
    for (uint32_t i = 0, at = 0; i < 4; at += segments[i++].length)
        memcpy((void *)(uintptr_t)segments[i].addr, from + at, segments[i].length);
}

static void gather(const struct ibv_sge segments[4], uint8_t *to)
{
    for (uint32_t i = 0, at = 0; i < 4; at += segments[i++].length)
        memcpy(to + at, (void *)(uintptr_t)segments[i].addr, segments[i].length);
}

static void post_segments(struct ibv_send_wr request, struct ibv_sge *segments, int count, unsigned flags)
{
    struct ibv_send_wr *bad;
    request.sg_list = segments;
    request.num_sge = count;
    request.send_flags = flags;
    REQUIRE(!ibv_post_send(pair.qp, &request, &bad));
}

/* A SEND from four segments into four others, a WRITE from four, a READ into four. */
static void several_segments(int active, uint32_t seed)
{
    struct ibv_sge segments[4];
    static uint8_t message[PIECES_LENGTH];
    cut(segments, active ? 0 : HALF, active ? 0 : 1);
    if (!active) {
        memset(pair.buffer + HALF, 0, HALF);
        struct ibv_recv_wr receive = { .wr_id = 2, .sg_list = segments, .num_sge = 4 }, *bad;
        REQUIRE(!ibv_post_recv(pair.qp, &receive, &bad));
        barrier();
        REQUIRE(wait_for(2, IBV_WC_SUCCESS).byte_len == PIECES_LENGTH);
        gather(segments, message);
        REQUIRE(bytes_are(message, PIECES_LENGTH, seed));
        barrier();
        REQUIRE(bytes_are(pair.buffer + HALF + COPY, PIECES_LENGTH, seed));
        barrier();
        return;
    }
    fill_bytes(message, PIECES_LENGTH, seed);
    scatter(segments, message);
    barrier();
    post_segments(request(1, IBV_WR_SEND, 0), segments, 4, 0);
    wait_for(1, IBV_WC_SUCCESS);
    struct ibv_send_wr remote = request(1, IBV_WR_RDMA_WRITE, 0);
    remote.wr.rdma.remote_addr += COPY;
    post_segments(remote, segments, 4, 0);
    wait_for(1, IBV_WC_SUCCESS);
    memset(pair.buffer, 0, HALF);
    cut(segments, 0, 1);
    remote.opcode = IBV_WR_RDMA_READ;
    post_segments(remote, segments, 4, 0);
    wait_for(1, IBV_WC_SUCCESS);
    gather(segments, message);
    REQUIRE(bytes_are(message, PIECES_LENGTH, seed));
    barrier();
    barrier();
}

/* The bytes are those at the time of the call, from memory that is in no region. */
static void inline_data(int active, uint32_t seed)
{
    for (uint32_t length = 1; length <= INLINE; length += INLINE - 1) {
        if (!active) {
            memset(pair.buffer + HALF, 0, HALF);
            receive(2, length);
            barrier();
            REQUIRE(wait_for(2, IBV_WC_SUCCESS).byte_len == length);
            REQUIRE(bytes_are(pair.buffer + HALF, length, seed));
            barrier();
            REQUIRE(bytes_are(pair.buffer + HALF + COPY, length, seed + 1));
            barrier();
            continue;
        }
        uint8_t bytes[INLINE];
        struct ibv_sge segments[2] = { { (uintptr_t)bytes, length / 3, 0 }, { (uintptr_t)bytes + length / 3, length - length / 3, 0 } };
        barrier();
        fill_bytes(bytes, length, seed);
        post_segments(request(1, IBV_WR_SEND, 0), segments, 2, IBV_SEND_INLINE);
        fill_bytes(bytes, length, seed + 1);
        struct ibv_send_wr writing = request(3, IBV_WR_RDMA_WRITE, 0);
        writing.wr.rdma.remote_addr += COPY;
        post_segments(writing, segments, 2, IBV_SEND_INLINE);
        memset(bytes, 0, sizeof bytes);
        wait_for(1, IBV_WC_SUCCESS);
        wait_for(3, IBV_WC_SUCCESS);
        barrier();
        barrier();
    }
}

/* A WRITE of what a READ brings: only behind the fence are the bytes there (section 10.8.3.3). */
static void fenced(int active, uint32_t seed)
{
    if (active) {
        memset(pair.buffer, 0, HALF);
    } else {
        memset(pair.buffer + HALF, 0, HALF);
        fill_bytes(pair.buffer + HALF, READ_LENGTH, seed);
    }
    barrier();
    if (active) {
        post(request(1, IBV_WR_RDMA_READ, 0), 0, READ_LENGTH);
        struct ibv_send_wr writing = request(2, IBV_WR_RDMA_WRITE, 0);
        writing.wr.rdma.remote_addr += COPY;
        writing.send_flags = IBV_SEND_FENCE;
        post(writing, 0, READ_LENGTH);
        wait_for(1, IBV_WC_SUCCESS);
        wait_for(2, IBV_WC_SUCCESS);
    }
    barrier();
    REQUIRE(active || bytes_are(pair.buffer + HALF + COPY, READ_LENGTH, seed));
    barrier();
}

static void post_shared(struct ibv_srq *srq, uint32_t slot)
{
    struct ibv_sge sge = { (uintptr_t)pair.buffer + HALF + slot * SHARED_SLOT, SHARED_SLOT, pair.mr->lkey };
    struct ibv_recv_wr request = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
    REQUIRE(!ibv_post_srq_recv(srq, &request, &bad));
}

static void receive_shared(struct ibv_srq *srq, struct ibv_qp *qps[2], uint32_t seed)
{
    int counts[2] = { 0 };
    for (int i = 0; i < SHARED_MESSAGES; i++) {
        struct ibv_wc wc = next_completion(pair.cq);
        uint32_t number = ntohl(wc.imm_data), slot = (uint32_t)wc.wr_id;
        REQUIRE(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && slot < 4);
        /* In order on each queue pair: the even ones on the first. */
        REQUIRE(wc.qp_num == qps[number % 2]->qp_num && (int)(number / 2) == counts[number % 2]++);
        REQUIRE(wc.byte_len == 100 + number * 300);
        REQUIRE(bytes_are(pair.buffer + HALF + slot * SHARED_SLOT, wc.byte_len, seed + number));
        post_shared(srq, slot);
    }
}

/* Two queue pairs, one queue of four receives: the sender has to wait for the receiver. */
static void shared_receives(int active, uint32_t seed)
{
    struct ibv_srq_init_attr attributes = { .attr = { .max_wr = 8, .max_sge = 1 } };
    struct ibv_srq *srq = active ? NULL : ibv_create_srq(pair.pd, &attributes);
    REQUIRE(active || srq);
    for (uint32_t slot = 0; slot < 4 && !active; slot++)
        post_shared(srq, slot);
    struct link link = { .srq = srq };
    struct ibv_qp *own = pair.qp, *qps[2];
    for (int i = 0; i < 2; i++)
        connect_qp(qps[i] = make_qp(&link), &link);
    for (uint32_t i = 0; i < SHARED_MESSAGES && active; i++) {
        uint32_t length = 100 + i * 300;
        fill_bytes(pair.buffer + i * SHARED_SLOT, length, seed + i);
        pair.qp = qps[i % 2];
        post(request(i, IBV_WR_SEND_WITH_IMM, i), i * SHARED_SLOT, length);
    }
    for (uint32_t i = 0; i < SHARED_MESSAGES && active; i++)
        REQUIRE(next_completion(pair.cq).status == IBV_WC_SUCCESS);
    if (!active)
        receive_shared(srq, qps, seed);
    barrier();
    pair.qp = own;
    REQUIRE(!ibv_destroy_qp(qps[0]) && !ibv_destroy_qp(qps[1]) && (active || !ibv_destroy_srq(srq)));
}

void forms(int active)
{
    uint32_t seed = (uint32_t)pair.seed * 100;
    join(&(struct link){ .segments = 4, .inline_bytes = INLINE });
    several_segments(active, seed);
    inline_data(active, seed + 1);
    fenced(active, seed + 3);
    shared_receives(active, seed + 4);
}

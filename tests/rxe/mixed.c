/* Several operations at a time on each of many queue pairs, of all kinds mixed, by both ends at once. Both ends draw the
 * operations of both from one seed, so that each knows what every byte of its region must be after each round. */
#include "pair.h"

#include <arpa/inet.h>

#define OPERATIONS 4
#define SLOT 8192
#define ROUNDS 4
#define MOST_QUEUE_PAIRS 64
#define RECEIVE 0x10000

enum kind { WRITE, WRITE_IMMEDIATE, SEND, SEND_IMMEDIATE, READ, FETCH_ADD, COMPARE_SWAP, KINDS };

/* Each has a slot of its own in the lower half of the region of its end and in the upper half of the peer's. */
struct operation {
    enum kind kind;
    uint32_t seed, at, length;
    int compare_fails;
};

static struct ibv_qp *qps[MOST_QUEUE_PAIRS];
static struct end peers[MOST_QUEUE_PAIRS];
static struct ibv_cq *cq;
/* What must be in both halves here, and in the upper half of the peer. */
static uint8_t lower[HALF], upper[HALF], upper_of_peer[HALF];

static int is_atomic(const struct operation *operation)
{
    return operation->kind == FETCH_ADD || operation->kind == COMPARE_SWAP;
}

static int takes_receive(const struct operation *operation)
{
    return operation->kind == WRITE_IMMEDIATE || operation->kind == SEND || operation->kind == SEND_IMMEDIATE;
}

/* Of the client (side 0) or the server (1). */
static struct operation draw(int side, int round, int slot)
{
    uint32_t state = (uint32_t)(pair.seed * 7919 + side * 1000003 + round * 10007 + slot);
    for (int i = 0; i < 3; i++)
        next(&state);
    struct operation operation = { .kind = (next(&state) >> 16) % KINDS, .seed = next(&state) };
    operation.length = (next(&state) >> 16) % 8 ? (next(&state) >> 12) % (SLOT - 8) : 0;
    operation.at = (uint32_t)slot * SLOT + (next(&state) >> 16) % (SLOT - operation.length);
    operation.compare_fails = (next(&state) >> 16) % 2;
    if (is_atomic(&operation)) {
        operation.length = 8;
        operation.at = (uint32_t)slot * SLOT + (next(&state) >> 16) % (SLOT / 8) * 8;
    }
    return operation;
}

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

/* What the upper half of the target holds afterwards. */
static void apply(const struct operation *operation, uint8_t *target)
{
    uint64_t word = word_at(target + operation->at);
    if (operation->kind == READ)
        return;
    if (!is_atomic(operation)) {
        fill_bytes(target + operation->at, operation->length, operation->seed);
        return;
    }
    if (operation->kind == FETCH_ADD)
        word += operation->seed;
    else if (!operation->compare_fails)
        word = ~word;
    memcpy(target + operation->at, &word, 8);
}

static void expect_receives(int side, int round)
{
    for (int slot = 0; slot < pair.queue_pairs * OPERATIONS; slot++) {
        struct operation operation = draw(side, round, slot);
        struct ibv_sge sge = { (uintptr_t)pair.buffer + HALF + operation.at, operation.length, pair.mr->lkey };
        struct ibv_recv_wr receive = { .wr_id = (uint64_t)(RECEIVE + slot), .sg_list = &sge, .num_sge = 1 }, *bad;
        if (operation.kind == WRITE_IMMEDIATE)
            receive.num_sge = 0;
        if (takes_receive(&operation))
            REQUIRE(!ibv_post_recv(qps[slot / OPERATIONS], &receive, &bad));
        apply(&operation, upper);
    }
}

static struct ibv_send_wr request_of(const struct operation *operation, int slot)
{
    static const enum ibv_wr_opcode opcodes[] = {
        IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
    };
    const struct end *peer = &peers[slot / OPERATIONS];
    struct ibv_send_wr request = { .wr_id = (uint64_t)slot, .opcode = opcodes[operation->kind] };
    request.imm_data = htonl(operation->seed);
    if (!is_atomic(operation)) {
        request.wr.rdma.remote_addr = peer->address + operation->at;
        request.wr.rdma.rkey = peer->key;
        return request;
    }
    uint64_t word = word_at(upper_of_peer + operation->at);
    request.wr.atomic.remote_addr = peer->address + operation->at;
    request.wr.atomic.rkey = peer->key;
    request.wr.atomic.compare_add = operation->kind == FETCH_ADD ? operation->seed : word + (uint64_t)operation->compare_fails;
    request.wr.atomic.swap = ~word;
    return request;
}

/* Interleaved: the first of each queue pair, then the second. */
static void post_all(int side, int round)
{
    for (int i = 0; i < pair.queue_pairs * OPERATIONS; i++) {
        int slot = i % pair.queue_pairs * OPERATIONS + i / pair.queue_pairs;
        struct operation operation = draw(side, round, slot);
        struct ibv_sge sge = { (uintptr_t)pair.buffer + operation.at, operation.length, pair.mr->lkey };
        struct ibv_send_wr request = request_of(&operation, slot), *bad;
        request.sg_list = &sge;
        request.num_sge = operation.length ? 1 : 0;
        if (operation.kind == READ || is_atomic(&operation)) {
            memcpy(lower + operation.at, upper_of_peer + operation.at, operation.length);
        } else {
            fill_bytes(lower + operation.at, operation.length, operation.seed);
            fill_bytes(pair.buffer + operation.at, operation.length, operation.seed);
        }
        REQUIRE(!ibv_post_send(qps[slot / OPERATIONS], &request, &bad));
        apply(&operation, upper_of_peer);
    }
}

static void look_at_receive(const struct ibv_wc *wc, const struct operation *operation)
{
    REQUIRE(takes_receive(operation) && wc->byte_len == operation->length);
    REQUIRE(wc->opcode == (operation->kind == WRITE_IMMEDIATE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV));
    REQUIRE(!(wc->wc_flags & IBV_WC_WITH_IMM) == (operation->kind == SEND));
    REQUIRE(operation->kind == SEND || ntohl(wc->imm_data) == operation->seed);
}

/* A completion that is no success, or of nothing that is awaited, or the second one. */
static void complain(const struct ibv_wc *wc, int slot)
{
    fprintf(stderr, "queue pair %d, %s %d: %s (vendor_err %u)\n", slot / OPERATIONS, wc->wr_id >= RECEIVE ? "receive" : "request",
            slot % OPERATIONS, ibv_wc_status_str(wc->status), wc->vendor_err);
    exit(1);
}

/* Each request completes once, and each receive that the peer's requests take. */
static void complete_all(int side, int round)
{
    static uint8_t seen[2][MOST_QUEUE_PAIRS * OPERATIONS];
    int slots = pair.queue_pairs * OPERATIONS, awaited = slots;
    memset(seen, 0, sizeof seen);
    for (int slot = 0; slot < slots; slot++) {
        struct operation operation = draw(!side, round, slot);
        awaited += takes_receive(&operation);
    }
    while (awaited-- > 0) {
        struct ibv_wc wc = next_completion(cq);
        int receives = wc.wr_id >= RECEIVE, slot = (int)(wc.wr_id % RECEIVE);
        if (wc.status != IBV_WC_SUCCESS || slot >= slots || seen[receives][slot]++)
            complain(&wc, slot);
        REQUIRE(wc.qp_num == qps[slot / OPERATIONS]->qp_num);
        struct operation operation = draw(receives ? !side : side, round, slot);
        if (receives)
            look_at_receive(&wc, &operation);
    }
}

static void compare(const char *name, const uint8_t *found, const uint8_t *expected, int round)
{
    for (uint32_t i = 0; i < HALF; i++) {
        if (found[i] != expected[i]) {
            fprintf(stderr, "round %d: a wrong byte in the %s half at %u\n", round, name, i);
            exit(1);
        }
    }
}

void mixed(int active)
{
    int side = active ? 0 : 1;
    REQUIRE(pair.queue_pairs <= MOST_QUEUE_PAIRS);
    struct link link = { .timeout = 18, .cq = cq = ibv_create_cq(pair.context, 1024, NULL, NULL, 0) };
    REQUIRE(cq);
    for (int i = 0; i < pair.queue_pairs; i++) {
        connect_qp(qps[i] = make_qp(&link), &link);
        peers[i] = pair.theirs;
    }
    for (int round = 0; round < ROUNDS; round++) {
        expect_receives(!side, round);
        barrier();
        post_all(side, round);
        complete_all(side, round);
        barrier();
        compare("lower", pair.buffer, lower, round);
        compare("upper", pair.buffer + HALF, upper, round);
        barrier();
    }
    for (int i = 0; i < pair.queue_pairs; i++)
        REQUIRE(!ibv_destroy_qp(qps[i]));
    REQUIRE(!ibv_destroy_cq(cq));
}

/* Memory windows of the passive end, which the active one uses: of type 2, of type 1, their ends by either side, and what is refused behind
 * them. */
#include "pair.h"

#define LENGTH 8192u
#define ROUNDS 8

static struct ibv_mr *region;

/* The bytes that a window covers: where the passive end's upper half begins. */
static struct ibv_mw_bind_info part(void)
{
    return (struct ibv_mw_bind_info){
        .mr = region, .addr = (uintptr_t)pair.buffer + HALF, .length = LENGTH,
        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
}

static void execute(struct ibv_send_wr request, enum ibv_wc_opcode opcode)
{
    struct ibv_send_wr *bad;
    request.send_flags = IBV_SEND_SIGNALED;
    REQUIRE(!ibv_post_send(pair.qp, &request, &bad));
    REQUIRE(wait_for(request.wr_id, IBV_WC_SUCCESS).opcode == opcode);
}

static void tell(uint32_t key)
{
    tcp_send(&key, sizeof key);
}

static uint32_t told(void)
{
    uint32_t key;
    tcp_receive(&key, sizeof key);
    return key;
}

static struct ibv_send_wr by_key(uint64_t id, enum ibv_wr_opcode opcode, uint32_t key)
{
    struct ibv_send_wr request_by = request(id, opcode, 0);
    request_by.wr.rdma.rkey = key;
    return request_by;
}

/* WRITEs and a READ by a key, as long as the window is. */
static void use(uint32_t key, uint32_t seed)
{
    fill_bytes(pair.buffer, LENGTH, seed);
    post(by_key(1, IBV_WR_RDMA_WRITE, key), 0, LENGTH);
    wait_for(1, IBV_WC_SUCCESS);
    memset(pair.buffer, 0, LENGTH);
    post(by_key(2, IBV_WR_RDMA_READ, key), 0, LENGTH);
    wait_for(2, IBV_WC_SUCCESS);
    REQUIRE(bytes_are(pair.buffer, LENGTH, seed));
}

/* A WRITE by a key that ends nowhere: both ends lose the connection, and make another. */
static void misuse(int active, uint32_t key)
{
    if (active) {
        post(by_key(3, IBV_WR_RDMA_WRITE, key), 0, 64);
        wait_for(3, IBV_WC_REM_ACCESS_ERR);
    }
    barrier();
    join(&(struct link){ 0 });
}

/* Bound by a request, used, and ended: here, or by a SEND of the peer. */
static void type_2(int active, int round)
{
    uint32_t seed = (uint32_t)(pair.seed * 100 + round);
    int remote = round % 2;
    if (active) {
        uint32_t key = told();
        use(key, seed);
        barrier();
        if (remote) {
            struct ibv_send_wr sending = request(4, IBV_WR_SEND_WITH_INV, 0);
            sending.invalidate_rkey = key;
            post(sending, 0, 16);
            wait_for(4, IBV_WC_SUCCESS);
        }
        barrier();
        misuse(1, key);
        return;
    }
    struct ibv_mw *mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
    REQUIRE(mw);
    uint32_t key = ibv_inc_rkey(mw->rkey);
    execute((struct ibv_send_wr){ .wr_id = 1, .opcode = IBV_WR_BIND_MW, .bind_mw = { mw, key, part() } }, IBV_WC_BIND_MW);
    if (remote)
        receive(5, 16);
    tell(key);
    barrier();
    REQUIRE(bytes_are(pair.buffer + HALF, LENGTH, seed));
    if (remote) {
        struct ibv_wc wc = wait_for(5, IBV_WC_SUCCESS);
        /* rxe gives the flag the number that it has in the kernel. */
        REQUIRE(wc.invalidated_rkey == key && (pair.mine.is_rxe || wc.wc_flags & IBV_WC_WITH_INV));
    } else {
        execute((struct ibv_send_wr){ .wr_id = 2, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key }, IBV_WC_LOCAL_INV);
    }
    barrier();
    misuse(0, key);
    REQUIRE(!ibv_dealloc_mw(mw));
}

/* Bound by the verb, twice: the second bind ends the first key. */
static void type_1(int active, uint32_t seed)
{
    if (active) {
        uint32_t first = told();
        use(first, seed);
        barrier();
        use(told(), seed + 1);
        barrier();
        misuse(1, first);
        return;
    }
    struct ibv_mw *mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
    REQUIRE(mw);
    struct ibv_mw_bind bind = { .wr_id = 6, .send_flags = IBV_SEND_SIGNALED, .bind_info = part() };
    for (uint32_t turn = 0; turn < 2; turn++) {
        REQUIRE(!ibv_bind_mw(pair.qp, mw, &bind));
        REQUIRE(wait_for(6, IBV_WC_SUCCESS).opcode == IBV_WC_BIND_MW);
        tell(mw->rkey);
        barrier();
        REQUIRE(bytes_are(pair.buffer + HALF, LENGTH, seed + turn));
    }
    misuse(0, 0);
    REQUIRE(!ibv_dealloc_mw(mw));
}

void windows(int active)
{
    region = ibv_reg_mr(pair.pd, pair.buffer, 2 * HALF,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
    REQUIRE(region);
    join(&(struct link){ 0 });
    for (int round = 0; round < ROUNDS; round++)
        type_2(active, round);
    type_1(active, (uint32_t)pair.seed * 1000);
    REQUIRE(!ibv_dereg_mr(region));
}

/* Atomic WRITEs: words that the passive end polls grow, and are never seen in part; a WRITE before one is there when it is. */
#include "pair.h"

#define ROUNDS 200
#define LENGTH 4096u

/* IB_UVERBS_DEVICE_ATOMIC_WRITE: rxe has them from Linux 6.2 on. */
#define HAS_ATOMIC_WRITES (1ULL << 40)

static uint32_t supported(void)
{
    struct ibv_device_attr_ex attributes = { 0 };
    uint32_t here, there;
    REQUIRE(!ibv_query_device_ex(pair.context, NULL, &attributes));
    here = !!(attributes.device_cap_flags_ex & HAS_ATOMIC_WRITES);
    tcp_send(&here, sizeof here);
    tcp_receive(&there, sizeof there);
    return here && there;
}

/* By the extended interface for posting: rxe's library has them there alone. */
static struct ibv_qp *make(void)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC, .pd = pair.pd, .sq_sig_all = 1,
        .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(pair.context, &init);
    REQUIRE(qp);
    return qp;
}

static void write_words(struct ibv_qp_ex *qp)
{
    uint64_t there = pair.theirs.address;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint64_t value = (uint64_t)round << 32 | round;
        fill_bytes(pair.buffer, LENGTH, (uint32_t)pair.seed * 1000 + round);
        ibv_wr_start(qp);
        qp->wr_id = 2 * round;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(qp, pair.theirs.key, there + LENGTH);
        ibv_wr_set_sge(qp, pair.mr->lkey, (uintptr_t)pair.buffer, LENGTH);
        qp->wr_id = 2 * round + 1;
        ibv_wr_atomic_write(qp, pair.theirs.key, there, &value);
        REQUIRE(!ibv_wr_complete(qp));
        wait_for(2 * round, IBV_WC_SUCCESS);
        REQUIRE(wait_for(2 * round + 1, IBV_WC_SUCCESS).opcode == IBV_WC_ATOMIC_WRITE || pair.mine.is_rxe);
        barrier();
        barrier();
    }
}

static void watch_words(void)
{
    volatile uint64_t *place = (volatile uint64_t *)(pair.buffer + HALF);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint64_t seen;
        do {
            seen = *place;
            REQUIRE((uint32_t)seen == (uint32_t)(seen >> 32));
            REQUIRE((uint32_t)seen == round || (uint32_t)seen == round - 1);
        } while ((uint32_t)seen != round);
        REQUIRE(bytes_are(pair.buffer + HALF + LENGTH, LENGTH, (uint32_t)pair.seed * 1000 + round));
        barrier();
        barrier();
    }
}

void atomic_writes(int active)
{
    struct ibv_qp *qp;
    if (!supported()) {
        fprintf(stderr, "one end has no atomic WRITEs\n");
        return;
    }
    memset(pair.buffer + HALF, 0, LENGTH);
    qp = make();
    connect_qp(qp, &(struct link){ 0 });
    if (active)
        write_words(ibv_qp_to_qp_ex(qp));
    else
        watch_words();
    REQUIRE(!ibv_destroy_qp(qp));
}

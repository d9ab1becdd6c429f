/* FLUSH, global: the passive end sees a WRITE whose FLUSH has completed. Also of a whole region, of no bytes, and of many at once. */
#include "pair.h"

#include <stddef.h>

#define ROUNDS 200
#define LENGTH 4096u
#define TOGETHER 8

/* Of Linux 6.2 and rdma-core 45: IB_UVERBS_DEVICE_FLUSH_GLOBAL, IBV_ACCESS_FLUSH_GLOBAL, IBV_QP_EX_WITH_FLUSH, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR. */
#define HAS_FLUSH (1ULL << 38)
#define FLUSH_ACCESS (1 << 8)
#define WITH_FLUSH (1 << 11)
#define GLOBAL 1
#define RANGE 0
#define WHOLE_REGION 1

/* ibv_wr_flush(): its function is behind those that older headers know. */
static void flush(struct ibv_qp_ex *qp, uint64_t id, uint32_t key, uint64_t address, size_t length, uint8_t level)
{
    void (*function)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);
    size_t place = offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof qp->wr_atomic_write;
    memcpy(&function, (char *)qp + place, sizeof function);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    function(qp, key, address, length, GLOBAL, level);
}

/* By the extended interface for posting, which alone has it. NULL: this end has no FLUSH. */
static struct ibv_qp *make(void)
{
    struct ibv_device_attr_ex attributes = { 0 };
    struct ibv_qp_init_attr_ex init = {
        .send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC, .pd = pair.pd, .sq_sig_all = 1,
        .cap = { .max_send_wr = 2 * TOGETHER, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | WITH_FLUSH,
    };
    REQUIRE(!ibv_query_device_ex(pair.context, NULL, &attributes));
    if (!(attributes.device_cap_flags_ex & HAS_FLUSH))
        return NULL;
    return ibv_create_qp_ex(pair.context, &init);
}

static void write_and_flush(struct ibv_qp_ex *qp, uint32_t key, uint64_t there)
{
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint8_t level = round % 2 ? RANGE : WHOLE_REGION;
        fill_bytes(pair.buffer, LENGTH, (uint32_t)pair.seed * 1000 + round);
        ibv_wr_start(qp);
        qp->wr_id = 2 * round;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(qp, key, there);
        ibv_wr_set_sge(qp, pair.mr->lkey, (uintptr_t)pair.buffer, LENGTH);
        flush(qp, 2 * round + 1, key, there, round % 5 ? LENGTH : 0, level);
        REQUIRE(!ibv_wr_complete(qp));
        wait_for(2 * round, IBV_WC_SUCCESS);
        wait_for(2 * round + 1, IBV_WC_SUCCESS);
        barrier();
        barrier();
    }
    /* More than may be outstanding: soft-RoCE does not count them. */
    ibv_wr_start(qp);
    for (uint32_t i = 0; i < TOGETHER; i++)
        flush(qp, 10000 + i, key, there, LENGTH, RANGE);
    REQUIRE(!ibv_wr_complete(qp));
    for (uint32_t i = 0; i < TOGETHER; i++)
        wait_for(10000 + i, IBV_WC_SUCCESS);
}

static void look(void)
{
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        barrier();
        REQUIRE(bytes_are(pair.buffer + HALF, LENGTH, (uint32_t)pair.seed * 1000 + round));
        barrier();
    }
}

void flushes(int active)
{
    struct ibv_qp *qp = make();
    struct ibv_mr *target = NULL;
    uint32_t here = qp != NULL, there, key;
    REQUIRE(here || runs_on_rxe());
    tcp_send(&here, sizeof here);
    tcp_receive(&there, sizeof there);
    if (!here || !there) {
        fprintf(stderr, "one end has no FLUSH\n");
        REQUIRE(!qp || !ibv_destroy_qp(qp));
        return;
    }
    target = ibv_reg_mr(pair.pd, pair.buffer + HALF, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | FLUSH_ACCESS);
    REQUIRE(target);
    memset(pair.buffer + HALF, 0, LENGTH);
    tcp_send(&target->rkey, sizeof target->rkey);
    tcp_receive(&key, sizeof key);
    connect_qp(qp, &(struct link){ .access = FLUSH_ACCESS });
    if (active)
        write_and_flush(ibv_qp_to_qp_ex(qp), key, pair.theirs.address);
    else
        look();
    barrier();
    REQUIRE(!ibv_destroy_qp(qp) && !ibv_dereg_mr(target));
}

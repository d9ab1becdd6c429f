/* Two connected queue pairs of one process, of which the first one accesses memory of any region. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include <pagewire_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

#define REQUIRE(holds) require(__LINE__, holds, #holds)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp[2];
/* Bytes that are sent and received, and their region. */
static char *buffer;
static struct ibv_mr *local;

static void require(int line, int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%d: not so: %s (%s)\n", line, what, pw_error_message());
    exit(1);
}

static void connect_queue_pairs(void)
{
    union ibv_gid gid;

    REQUIRE(!ibv_query_gid(context, 1, 0, &gid));
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = cq,
            .recv_cq = cq,
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        };
        REQUIRE((qp[i] = ibv_create_qp(pd, &init)) != NULL);
    }
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL};
        REQUIRE(!ibv_modify_qp(qp[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
        attr = (struct ibv_qp_attr){
            .qp_state = IBV_QPS_RTR,
            .path_mtu = IBV_MTU_1024,
            .dest_qp_num = qp[1 - i]->qp_num,
            .max_dest_rd_atomic = 1,
            .min_rnr_timer = 12,
            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
        };
        REQUIRE(!ibv_modify_qp(qp[i], &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
        REQUIRE(!ibv_modify_qp(qp[i], &attr,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                   IBV_QP_MAX_QP_RD_ATOMIC));
    }
}

static void make_queue_pairs(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);

    REQUIRE(devices && *devices && (context = ibv_open_device(*devices)) != NULL);
    REQUIRE((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
    connect_queue_pairs();
}

/* One request, and how it was completed. */
static enum ibv_wc_status try_access(enum ibv_wr_opcode opcode, const struct ibv_mr *mr, uint64_t address, uint32_t length)
{
    struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = length, .lkey = local->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_wc wc;
    time_t end = time(NULL) + 60;
    int found;

    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = address;
        wr.wr.atomic.rkey = mr->rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = address;
        wr.wr.rdma.rkey = mr->rkey;
    }
    REQUIRE(!ibv_post_send(qp[0], &wr, &bad));
    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        REQUIRE(time(NULL) < end);
    REQUIRE(found == 1);
    return wc.status;
}

static void access_memory(enum ibv_wr_opcode opcode, const struct ibv_mr *mr, uint64_t address, uint32_t length)
{
    REQUIRE(try_access(opcode, mr, address, length) == IBV_WC_SUCCESS);
}

#endif

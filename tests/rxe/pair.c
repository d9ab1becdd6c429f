#include "pair.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair pair;

void tcp_send(const void *bytes, size_t length)
{
    REQUIRE(write(pair.tcp, bytes, length) == (ssize_t)length);
}

void tcp_receive(void *bytes, size_t length)
{
    REQUIRE(recv(pair.tcp, bytes, length, MSG_WAITALL) == (ssize_t)length);
}

void barrier(void)
{
    char byte = 'b';
    tcp_send(&byte, 1);
    tcp_receive(&byte, 1);
    REQUIRE(byte == 'b');
}

uint32_t next(uint32_t *state)
{
    return *state = *state * 1664525u + 1013904223u;
}

void fill_bytes(uint8_t *at, uint32_t length, uint32_t seed)
{
    for (uint32_t i = 0; i < length; i++)
        at[i] = next(&seed) >> 24;
}

int bytes_are(const uint8_t *at, uint32_t length, uint32_t seed)
{
    for (uint32_t i = 0; i < length; i++)
        if (at[i] != (uint8_t)(next(&seed) >> 24))
            return 0;
    return 1;
}

struct ibv_qp *make_qp(const struct link *link)
{
    uint32_t depth = link->depth ? link->depth : 16, segments = link->segments ? link->segments : 1;
    struct ibv_cq *cq = link->cq ? link->cq : pair.cq;
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = link->srq, .sq_sig_all = !link->unsignaled };
    init.qp_type = link->type ? link->type : IBV_QPT_RC;
    init.cap.max_send_wr = depth;
    init.cap.max_send_sge = segments;
    init.cap.max_inline_data = link->inline_bytes;
    if (!link->srq) {
        init.cap.max_recv_wr = depth;
        init.cap.max_recv_sge = segments;
    }
    struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);
    REQUIRE(qp);
    return qp;
}

int runs_on_rxe(void)
{
    return !strncmp(ibv_get_device_name(pair.context->device), "rxe", 3);
}

static void exchange_ends(struct ibv_qp *qp)
{
    pair.mine = (struct end){ .number = qp->qp_num, .psn = (uint32_t)(random() & 0xffffff), .key = pair.mr->rkey,
                              .address = (uintptr_t)pair.buffer + HALF };
    pair.mine.is_rxe = runs_on_rxe();
    REQUIRE(!ibv_query_gid(pair.context, 1, pair.gid_index, &pair.mine.gid));
    tcp_send(&pair.mine, sizeof pair.mine);
    tcp_receive(&pair.theirs, sizeof pair.theirs);
}

static void to_rtr(struct ibv_qp *qp, const struct link *link)
{
    int is_rc = qp->qp_type == IBV_QPT_RC;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .dest_qp_num = pair.theirs.number, .rq_psn = pair.theirs.psn,
                                .max_dest_rd_atomic = 4, .min_rnr_timer = 12 };
    attr.path_mtu = link->mtu ? link->mtu : IBV_MTU_1024;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = pair.theirs.gid;
    attr.ah_attr.grh.sgid_index = (uint8_t)pair.gid_index;
    attr.ah_attr.grh.hop_limit = 8;
    int mask = IBV_QP_STATE;
    if (qp->qp_type != IBV_QPT_UD)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (is_rc)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    REQUIRE(!ibv_modify_qp(qp, &attr, mask));
}

void connect_qp(struct ibv_qp *qp, const struct link *link)
{
    exchange_ends(qp);
    int is_ud = qp->qp_type == IBV_QPT_UD;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = link->queue_key };
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | link->access;
    if (qp->qp_type == IBV_QPT_RC)
        attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                          (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
    to_rtr(qp, link);
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = pair.mine.psn, .max_rd_atomic = 4 };
    attr.timeout = link->no_timer ? 0 : link->timeout ? link->timeout : 16;
    attr.retry_cnt = link->retry_cnt ? link->retry_cnt : 6;
    attr.rnr_retry = link->rnr_retry ? link->rnr_retry : 7;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp->qp_type == IBV_QPT_RC)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    REQUIRE(!ibv_modify_qp(qp, &attr, mask));
    barrier();
}

void join(const struct link *link)
{
    if (pair.qp)
        REQUIRE(!ibv_destroy_qp(pair.qp));
    pair.qp = make_qp(link);
    connect_qp(pair.qp, link);
}

struct ibv_wc next_completion(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    time_t end = time(NULL) + PATIENCE;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
        if (time(NULL) >= end) {
            fprintf(stderr, "nothing completes for %d s\n", PATIENCE);
            exit(1);
        }
    }
    REQUIRE(count == 1);
    return wc;
}

struct ibv_wc wait_for(uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = next_completion(pair.cq);
    if (wc.wr_id != id || wc.status != status) {
        fprintf(stderr, "request %d ended with %d, expected: request %d with %d\n", (int)wc.wr_id, wc.status, (int)id, status);
        exit(1);
    }
    return wc;
}

void nothing_for(int milliseconds)
{
    struct ibv_wc wc;
    for (int i = 0; i < milliseconds; i++) {
        REQUIRE(ibv_poll_cq(pair.cq, 1, &wc) == 0);
        usleep(1000);
    }
}

void receive(uint64_t id, uint32_t length)
{
    struct ibv_sge sge = { (uintptr_t)pair.buffer + HALF, length, pair.mr->lkey };
    struct ibv_recv_wr request = { .wr_id = id, .sg_list = &sge, .num_sge = length ? 1 : 0 }, *bad;
    REQUIRE(!ibv_post_recv(pair.qp, &request, &bad));
}

struct ibv_send_wr request(uint64_t id, enum ibv_wr_opcode opcode, uint32_t immediate)
{
    struct ibv_send_wr request = { .wr_id = id, .opcode = opcode };
    request.imm_data = htonl(immediate);
    request.wr.rdma.remote_addr = pair.theirs.address;
    request.wr.rdma.rkey = pair.theirs.key;
    return request;
}

void post(struct ibv_send_wr request, uint32_t offset, uint32_t length)
{
    struct ibv_sge sge = { (uintptr_t)pair.buffer + offset, length, pair.mr->lkey };
    struct ibv_send_wr *bad;
    request.sg_list = &sge;
    request.num_sge = length ? 1 : 0;
    REQUIRE(!ibv_post_send(pair.qp, &request, &bad));
}

void pass_message(int active, uint32_t length, uint32_t seed)
{
    if (active) {
        fill_bytes(pair.buffer, length, seed);
        barrier();
        post(request(1, IBV_WR_RDMA_WRITE_WITH_IMM, seed), 0, length);
        wait_for(1, IBV_WC_SUCCESS);
    } else {
        memset(pair.buffer + HALF, 0, HALF);
        receive(2, 0);
        barrier();
        struct ibv_wc wc = wait_for(2, IBV_WC_SUCCESS);
        REQUIRE(wc.byte_len == length && ntohl(wc.imm_data) == seed);
        REQUIRE(bytes_are(pair.buffer + HALF, length, seed));
    }
    barrier();
}

/* The TCP connection; the client's end tries for as long as a successor takes to listen. */
static void connect_tcp(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(pair.port), .sin_addr.s_addr = INADDR_ANY };
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (pair.server) {
        REQUIRE(inet_pton(AF_INET, pair.server, &address.sin_addr) == 1);
        time_t end = time(NULL) + PATIENCE;
        while (connect(pair.tcp = listener, (struct sockaddr *)&address, sizeof address)) {
            REQUIRE(time(NULL) < end);
            close(listener);
            usleep(100000);
            listener = socket(AF_INET, SOCK_STREAM, 0);
        }
        return;
    }
    REQUIRE(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    REQUIRE(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 1));
    REQUIRE((pair.tcp = accept(listener, NULL, NULL)) >= 0);
    REQUIRE(!close(listener));
}

void open_pair(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    REQUIRE(devices && devices[0] && (pair.context = ibv_open_device(devices[0])));
    REQUIRE((pair.pd = ibv_alloc_pd(pair.context)) && (pair.cq = ibv_create_cq(pair.context, 64, NULL, NULL, 0)));
    REQUIRE((pair.buffer = aligned_alloc(4096, 2 * HALF)));
    memset(pair.buffer, 0, 2 * HALF);
    REQUIRE((pair.mr = ibv_reg_mr(pair.pd, pair.buffer, 2 * HALF, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                                                      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)));
    connect_tcp();
}

void close_pair(void)
{
    if (pair.qp)
        REQUIRE(!ibv_destroy_qp(pair.qp));
    pair.qp = NULL;
    REQUIRE(!ibv_dereg_mr(pair.mr) && !ibv_destroy_cq(pair.cq) && !ibv_dealloc_pd(pair.pd));
    REQUIRE(!ibv_close_device(pair.context) && !close(pair.tcp));
    free(pair.buffer);
}

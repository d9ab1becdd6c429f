/* transfers -p PORT -x GID-INDEX [-s SEED] [-d] [SERVER]: a plain verbs program for scripts/test-rxe. Both ends in
 * turn write, read, send and do atomics over RC, and look at every byte and every completion; then each does what the
 * other must refuse, and looks at the status. Not so with -d, for lossy networks: the last NAK of a connection is not
 * repeated. The ends wait for each other over TCP, so that none leaves early. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HALF (2u << 20)
#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

struct end {
    uint32_t number, psn, key, is_rxe;
    uint64_t address;
    union ibv_gid gid;
};

static int tcp, gid_index;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct end mine, theirs;
static uint8_t *buffer; /* The lower half is this end's, the upper half the peer's to write. */

static void barrier(void)
{
    char byte = 'b';
    REQUIRE(write(tcp, &byte, 1) == 1);
    REQUIRE(read(tcp, &byte, 1) == 1 && byte == 'b');
}

static uint32_t next(uint32_t *state)
{
    return *state = *state * 1664525u + 1013904223u;
}

static void fill(uint8_t *at, uint32_t length, uint32_t seed)
{
    for (uint32_t i = 0; i < length; i++)
        at[i] = next(&seed) >> 24;
}

static int same(const uint8_t *at, uint32_t length, uint32_t seed)
{
    for (uint32_t i = 0; i < length; i++)
        if (at[i] != (uint8_t)(next(&seed) >> 24))
            return 0;
    return 1;
}

/* A new queue pair in RTS, joined with the peer's. */
static void join(enum ibv_mtu mtu, int rnr_retry)
{
    if (qp)
        REQUIRE(!ibv_destroy_qp(qp));
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
                                     .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
    REQUIRE((qp = ibv_create_qp(pd, &init)));
    mine = (struct end){ .number = qp->qp_num, .psn = (uint32_t)(random() & 0xffffff), .key = mr->rkey,
                         .address = (uintptr_t)buffer + HALF };
    mine.is_rxe = !strncmp(ibv_get_device_name(context->device), "rxe", 3);
    REQUIRE(!ibv_query_gid(context, 1, gid_index, &mine.gid));
    REQUIRE(write(tcp, &mine, sizeof mine) == sizeof mine);
    REQUIRE(recv(tcp, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
                                .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
    REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = theirs.number,
                                 .rq_psn = theirs.psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 12 };
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = theirs.gid;
    attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
    attr.ah_attr.grh.hop_limit = 8;
    REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = mine.psn, .timeout = 16, .retry_cnt = 6,
                                 .rnr_retry = (uint8_t)rnr_retry, .max_rd_atomic = 4 };
    REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                          IBV_QP_MAX_QP_RD_ATOMIC));
    barrier();
}

static struct ibv_wc wait_for(uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc;
    time_t end = time(NULL) + 20;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        REQUIRE(time(NULL) < end);
    REQUIRE(count == 1);
    if (wc.wr_id != id || wc.status != status) {
        fprintf(stderr, "request %d ended with %d, expected: request %d with %d\n", (int)wc.wr_id, wc.status, (int)id, status);
        exit(1);
    }
    return wc;
}

static void receive(uint64_t id, uint32_t length)
{
    struct ibv_sge sge = { (uintptr_t)buffer + HALF, length, mr->lkey };
    struct ibv_recv_wr request = { .wr_id = id, .sg_list = &sge, .num_sge = length ? 1 : 0 }, *bad;
    REQUIRE(!ibv_post_recv(qp, &request, &bad));
}

static struct ibv_send_wr request(uint64_t id, enum ibv_wr_opcode opcode, uint32_t immediate)
{
    struct ibv_send_wr request = { .wr_id = id, .opcode = opcode };
    request.imm_data = htonl(immediate);
    request.wr.rdma.remote_addr = theirs.address;
    request.wr.rdma.rkey = theirs.key;
    return request;
}

static void post(struct ibv_send_wr request, uint32_t offset, uint32_t length)
{
    struct ibv_sge sge = { (uintptr_t)buffer + offset, length, mr->lkey };
    struct ibv_send_wr *bad;
    request.sg_list = &sge;
    request.num_sge = length ? 1 : 0;
    REQUIRE(!ibv_post_send(qp, &request, &bad));
}

static void transfers(int active, uint32_t mtu, uint32_t length, uint32_t seed)
{
    /* Places that are not aligned, some. */
    uint32_t offset = seed % 5;
    if (active) {
        fill(buffer + offset, length, seed);
        struct ibv_send_wr writing = request(1, IBV_WR_RDMA_WRITE_WITH_IMM, seed);
        writing.wr.rdma.remote_addr += offset;
        barrier();
        post(writing, offset, length);
        wait_for(1, IBV_WC_SUCCESS);
        struct ibv_send_wr reading = request(2, IBV_WR_RDMA_READ, 0);
        reading.wr.rdma.remote_addr += offset;
        memset(buffer, 0, HALF);
        post(reading, 7, length);
        wait_for(2, IBV_WC_SUCCESS);
        REQUIRE(same(buffer + 7, length, seed));
        barrier();
        fill(buffer + offset, length, seed + 1);
        barrier();
        post(request(3, IBV_WR_SEND_WITH_IMM, ~seed), offset, length);
        wait_for(3, IBV_WC_SUCCESS);
    } else {
        memset(buffer + HALF, 0, HALF);
        receive(4, 0);
        barrier();
        struct ibv_wc wc = wait_for(4, IBV_WC_SUCCESS);
        REQUIRE(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == length && ntohl(wc.imm_data) == seed);
        REQUIRE(same(buffer + HALF + offset, length, seed));
        barrier();
        memset(buffer + HALF, 0, HALF);
        barrier();
        /* The peer is told to wait meanwhile: RNR NAK. */
        usleep(length % mtu == 0 ? 30000 : 0);
        receive(5, length + 1);
        wc = wait_for(5, IBV_WC_SUCCESS);
        REQUIRE(wc.opcode == IBV_WC_RECV && wc.byte_len == length && ntohl(wc.imm_data) == ~seed);
        REQUIRE(same(buffer + HALF, length, seed + 1));
    }
    barrier();
}

static void atomics(int active)
{
    uint64_t *word = (uint64_t *)(buffer + HALF), *result = (uint64_t *)buffer;
    *word = 1000;
    barrier();
    for (uint64_t i = 0; active && i < 40; i++) {
        int swap = i % 4 == 3;
        struct ibv_send_wr atomic = request(i, swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, 0);
        atomic.wr.atomic.remote_addr = theirs.address;
        atomic.wr.atomic.rkey = theirs.key;
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
        REQUIRE(write(tcp, result, 8) == 8);
    else {
        uint64_t last;
        REQUIRE(recv(tcp, &last, 8, MSG_WAITALL) == 8 && *word == last);
    }
    barrier();
}

enum wrong { KEY_OF_WRITE, KEY_OF_READ, BEYOND_REGION, TOO_LONG, NEVER_READY, WRONGS };

static void refusals(int active, enum wrong wrong)
{
    static const enum ibv_wc_status expected[WRONGS] = { IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR,
                                                         IBV_WC_REM_INV_REQ_ERR, IBV_WC_RNR_RETRY_EXC_ERR };
    join(IBV_MTU_1024, wrong == NEVER_READY ? 1 : 7);
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
        wait_for(2, wrong == TOO_LONG && theirs.is_rxe ? IBV_WC_REM_OP_ERR : expected[wrong]);
        wait_for(3, IBV_WC_WR_FLUSH_ERR);
    } else if (wrong == TOO_LONG) {
        wait_for(1, mine.is_rxe ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR);
    }
    barrier();
}

static void meet(const char *server, uint16_t port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY };
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (server) {
        REQUIRE(inet_pton(AF_INET, server, &address.sin_addr) == 1);
        REQUIRE(!connect(tcp = listener, (struct sockaddr *)&address, sizeof address));
        return;
    }
    REQUIRE(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    REQUIRE(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 1));
    REQUIRE((tcp = accept(listener, NULL, NULL)) >= 0);
}

int main(int count, char **words)
{
    int option, port = 0, seed = 1, data_only = 0;
    while ((option = getopt(count, words, "p:x:s:d")) != -1) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'x': gid_index = atoi(optarg); break;
        case 's': seed = atoi(optarg); break;
        case 'd': data_only = 1; break;
        default: return 2;
        }
    }
    const char *server = words[optind];
    srandom((unsigned)(seed + (server ? 1 : 0)));
    struct ibv_device **devices = ibv_get_device_list(NULL);
    REQUIRE(devices && devices[0] && (context = ibv_open_device(devices[0])));
    REQUIRE((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
    REQUIRE((buffer = aligned_alloc(4096, 2 * HALF)));
    memset(buffer, 0, 2 * HALF);
    REQUIRE((mr = ibv_reg_mr(pd, buffer, 2 * HALF, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)));
    meet(server, (uint16_t)port);
    for (int turn = 0; turn < 2; turn++) {
        int active = turn == (server ? 0 : 1);
        for (enum ibv_mtu code = IBV_MTU_256; code <= IBV_MTU_4096; code++) {
            uint32_t mtu = 128u << code;
            uint32_t lengths[] = { 0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 2, 20000, 300 * mtu + 3 };
            join(code, 7);
            for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                transfers(active, mtu, lengths[i], (uint32_t)seed * 1000 + i);
        }
        join(IBV_MTU_1024, 7);
        atomics(active);
        for (enum wrong wrong = 0; wrong < WRONGS && !data_only; wrong++)
            refusals(active, wrong);
    }
    REQUIRE(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    puts("transfers: all as expected");
    return 0;
}

/* Conditional writes of a verbs program on its own queue pairs: a writer, and a receiver that it starts. Each held write has one completion. */
#include <pagewire_verbs.h>
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define BYTES 4096

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s (%s)\n", what, pw_error_message());
        exit(1);
    }
}

static void send_all(int socket, const void *bytes, size_t count)
{
    require(write(socket, bytes, count) == (ssize_t)count, "a message");
}

static void receive_all(int socket, void *bytes, size_t count)
{
    require(recv(socket, bytes, count, MSG_WAITALL) == (ssize_t)count, "an answer");
}

/* What both processes have. Two queue pairs: the second one ends in the error state. */
struct side {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp[2];
    struct ibv_mr *mr;
    char *memory;
    pw_node *node;
};

/* What they exchange, as other verbs programs do, with the peer's name besides. */
struct about {
    uint32_t number[2];
    union ibv_gid gid;
    uint64_t address;
    uint32_t rkey;
    pw_peer peer;
};

static struct side side;
static struct about mine, theirs;

static void make_side(void)
{
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    require(devices && count && (side.context = ibv_open_device(devices[0])), "a device");
    side.pd = ibv_alloc_pd(side.context);
    side.cq = ibv_create_cq(side.context, 64, NULL, NULL, 0);
    side.memory = calloc(1, BYTES);
    side.mr = ibv_reg_mr(side.pd, side.memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    require(side.pd && side.cq && side.mr && !pw_node_alone(&side.node), "a side");
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = side.cq,
            .recv_cq = side.cq,
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 2, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 1},
        };
        require((side.qp[i] = ibv_create_qp(side.pd, &init)) != NULL, "a queue pair");
        mine.number[i] = side.qp[i]->qp_num;
    }
    require(!ibv_query_gid(side.context, 1, 0, &mine.gid), "a GID");
    mine.address = (uintptr_t)side.memory;
    mine.rkey = side.mr->rkey;
    require(!pw_identity(side.node, &mine.peer), "an identity");
}

static void connect_sides(int socket)
{
    send_all(socket, &mine, sizeof mine);
    receive_all(socket, &theirs, sizeof theirs);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
        require(!ibv_modify_qp(side.qp[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
        attr = (struct ibv_qp_attr){
            .qp_state = IBV_QPS_RTR,
            .path_mtu = IBV_MTU_1024,
            .dest_qp_num = theirs.number[i],
            .max_dest_rd_atomic = 1,
            .min_rnr_timer = 12,
            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = theirs.gid, .hop_limit = 64}},
        };
        require(!ibv_modify_qp(side.qp[i], &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                "RTR");
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
        require(!ibv_modify_qp(side.qp[i], &attr,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                   IBV_QP_MAX_QP_RD_ATOMIC),
                "RTS");
    }
    /* Both are ready. */
    char ready = 1;
    send_all(socket, &ready, 1);
    receive_all(socket, &ready, 1);
}

static struct ibv_wc completion(void)
{
    struct ibv_wc wc;
    time_t patience = time(NULL) + 60;
    int found;
    while (!(found = ibv_poll_cq(side.cq, 1, &wc)))
        require(time(NULL) < patience, "a completion within a minute");
    require(found == 1, "one completion");
    return wc;
}

static void no_completion(void)
{
    struct ibv_wc wc;
    for (int i = 0; i < 2000; i++)
        require(ibv_poll_cq(side.cq, 1, &wc) == 0, "no further completion");
}

/* What the receiver is asked for. */
struct wish {
    enum { RELEASE, RELEASE_WRONG_KEY, WAIT, DECLINE, RECEIVE, LAST } what;
    uint64_t tag, length;
};

static _Noreturn void receiver(int socket)
{
    pw_operation *released = NULL;
    make_side();
    connect_sides(socket);
    for (;;) {
        struct wish wish;
        int answer = 0;
        receive_all(socket, &wish, sizeof wish);
        switch (wish.what) {
        case RELEASE:
        case RELEASE_WRONG_KEY:
            answer = pw_release_held_write(side.node, &theirs.peer, wish.tag, mine.address,
                                           wish.what == RELEASE ? mine.rkey : mine.rkey + 77, wish.length, &released);
            break;
        case WAIT:
            answer = pw_wait(released);
            require(!pw_operation_free(released), "its free");
            break;
        case DECLINE: {
            pw_conditional_request_info opening;
            pw_conditional_request *opened;
            do
                require(!pw_next_conditional_request(side.node, 20 * SECOND, &opening, &opened), "an opening");
            while (opening.tag != wish.tag && !pw_conditional_request_free(opened));
            require(opening.length == wish.length, "what it says");
            answer = pw_conditional_request_decline(opened);
            break;
        }
        case RECEIVE: {
            struct ibv_recv_wr wr = {.wr_id = 9}, *bad;
            require(!ibv_post_recv(side.qp[0], &wr, &bad), "a receive");
            break;
        }
        case LAST: {
            struct ibv_wc wc = completion();
            require(wc.status == IBV_WC_SUCCESS && wc.wr_id == 9 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "a receive");
            require(ntohl(wc.imm_data) == 1234 && wc.byte_len == wish.length, "its immediate");
            answer = side.memory[0];
            break;
        }
        }
        send_all(socket, &answer, sizeof answer);
    }
}

static int ask(int socket, int what, uint64_t tag, uint64_t length)
{
    struct wish wish = {what, tag, length};
    int answer;
    send_all(socket, &wish, sizeof wish);
    receive_all(socket, &answer, sizeof answer);
    return answer;
}

static struct ibv_sge sge;

static struct ibv_send_wr request(uint64_t wr_id, uint32_t length)
{
    sge = (struct ibv_sge){.addr = (uintptr_t)side.memory, .length = length, .lkey = side.mr->lkey};
    return (struct ibv_send_wr){.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
}

static pw_error hold(int qp, uint64_t tag, const struct ibv_send_wr *wr, uint64_t nanoseconds)
{
    return pw_post_held_write(side.node, &theirs.peer, tag, side.qp[qp], wr, nanoseconds);
}

static void ends(uint64_t wr_id, enum ibv_wc_status status, const char *what)
{
    struct ibv_wc wc = completion();
    if (wc.wr_id != wr_id || wc.status != status)
        fprintf(stderr, "wr_id %lu, %s\n", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
    require(wc.wr_id == wr_id && wc.status == status, what);
}

static void written(int socket)
{
    struct ibv_send_wr wr = request(1, 8);
    memset(side.memory, 'a', 8);
    require(!hold(0, 1, &wr, PW_FOREVER), "a held write");
    no_completion();
    require(!ask(socket, RELEASE, 1, BYTES) && !ask(socket, WAIT, 0, 0), "a release");
    ends(1, IBV_WC_SUCCESS, "it is written");
    /* Released before, with an immediate. */
    side.memory[0] = 'b';
    require(!ask(socket, RECEIVE, 0, 0) && !ask(socket, RELEASE, 2, BYTES), "a release");
    wr = request(2, 64);
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htonl(1234);
    require(!hold(0, 2, &wr, PW_FOREVER), "a held write");
    ends(2, IBV_WC_SUCCESS, "it is written");
    require(!ask(socket, WAIT, 0, 0) && ask(socket, LAST, 0, 64) == 'b', "the bytes");
    no_completion();
}

static void withdrawn(int socket)
{
    struct ibv_send_wr wr = request(3, 8), *bad, other = request(4, 8);
    require(!hold(0, 3, &wr, PW_FOREVER) && hold(0, 3, &wr, PW_FOREVER) == PW_TAG, "one of a tag");
    /* Others pass it. */
    other.send_flags = IBV_SEND_SIGNALED;
    other.wr.rdma.remote_addr = theirs.address;
    other.wr.rdma.rkey = theirs.rkey;
    require(!ibv_post_send(side.qp[0], &other, &bad), "a write");
    ends(4, IBV_WC_SUCCESS, "another write passes it");
    require(!pw_cancel_held_write(side.node, &theirs.peer, 3), "a cancel");
    ends(3, PW_WC_CANCELLED, "it was cancelled");
    require(!pw_cancel_held_write(side.node, &theirs.peer, 3), "a second one");
    wr = request(5, 8);
    require(!hold(0, 5, &wr, SECOND / 50), "a held write");
    ends(5, PW_WC_TIMED_OUT, "it has timed out");
    wr = request(6, 8);
    require(!hold(0, 6, &wr, PW_FOREVER) && !ask(socket, DECLINE, 6, 8), "a held write");
    ends(6, PW_WC_DECLINED, "it was declined");
    wr = request(7, 64);
    require(!hold(0, 7, &wr, PW_FOREVER) && !ask(socket, RELEASE, 7, 63), "a held write");
    ends(7, PW_WC_TOO_SHORT, "the memory is too short");
    require(ask(socket, WAIT, 0, 0) == PW_RELEASE, "the releaser learns of it");
    no_completion();
}

/* More are released than the send queue takes: all are written. */
static void many(int socket)
{
    for (uint64_t tag = 100; tag < 120; tag++) {
        struct ibv_send_wr wr = request(tag, 8);
        require(!hold(0, tag, &wr, PW_FOREVER), "a held write");
    }
    for (uint64_t tag = 100; tag < 120; tag++)
        require(!ask(socket, RELEASE, tag, 8), "a release");
    unsigned seen = 0;
    for (int i = 0; i < 20; i++) {
        struct ibv_wc wc = completion();
        require(wc.status == IBV_WC_SUCCESS && !(seen & 1u << (wc.wr_id - 100)), "each is written once");
        seen |= 1u << (wc.wr_id - 100);
    }
    require(seen == (1u << 20) - 1 && !ask(socket, WAIT, 0, 0), "all are written");
    no_completion();
}

static void misuse(void)
{
    struct ibv_send_wr wr = request(8, 8);
    pw_peer nobody;
    memset(&nobody, 0, sizeof nobody);
    require(pw_post_held_write(side.node, &nobody, 8, side.qp[0], &wr, PW_FOREVER) == PW_TOKEN, "no peer");
    require(hold(0, 8, NULL, PW_FOREVER) == PW_ARGUMENT, "no request");
    require(pw_post_held_write(side.node, &theirs.peer, 8, NULL, &wr, PW_FOREVER) == PW_ARGUMENT, "no queue pair");
    wr.opcode = IBV_WR_SEND;
    require(hold(0, 8, &wr, PW_FOREVER) == PW_ARGUMENT, "no write");
    wr = request(8, 8);
    wr.num_sge = 3;
    require(hold(0, 8, &wr, PW_FOREVER) == PW_ARGUMENT, "too many elements");
    wr = request(8, 8);
    wr.send_flags = IBV_SEND_INLINE;
    require(hold(0, 8, &wr, PW_FOREVER) == PW_ARGUMENT, "inline data");
    struct ibv_qp_init_attr init = {.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    struct ibv_qp *reset = ibv_create_qp(side.pd, &init);
    wr = request(8, 8);
    require(pw_post_held_write(side.node, &theirs.peer, 8, reset, &wr, PW_FOREVER) == PW_ARGUMENT, "not in RTS");
    require(!ibv_destroy_qp(reset), "its end");
    /* A node that is there no more, as one that is no Pagewire. */
    pw_node *ended;
    pw_peer gone;
    require(!pw_node_alone(&ended) && !pw_identity(ended, &gone) && !pw_node_leave(ended), "a node that ends");
    require(pw_post_held_write(side.node, &gone, 8, side.qp[0], &wr, PW_FOREVER) == PW_PEER_LOST, "no Pagewire there");
    no_completion();
}

/* The key is refused, which ends the queue pair, and with it what else is held for it. */
static void refused(int socket)
{
    struct ibv_send_wr wr = request(10, 8), other = request(11, 8);
    require(!hold(1, 10, &wr, PW_FOREVER) && !hold(1, 11, &other, PW_FOREVER), "held writes");
    require(!ask(socket, RELEASE_WRONG_KEY, 10, 8), "a release with a wrong key");
    ends(10, IBV_WC_REM_ACCESS_ERR, "the key is refused");
    ends(11, IBV_WC_WR_FLUSH_ERR, "the other one is flushed");
    require(!ask(socket, WAIT, 0, 0), "it was posted");
    no_completion();
}

int main(int argc, char **argv)
{
    if (argc == 2)
        receiver(atoi(argv[1]));
    int sockets[2], status;
    char number[16];
    require(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "a socket");
    snprintf(number, sizeof number, "%d", sockets[1]);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        _exit(1);
    }
    close(sockets[1]);
    make_side();
    connect_sides(sockets[0]);
    written(sockets[0]);
    withdrawn(sockets[0]);
    many(sockets[0]);
    misuse();
    refused(sockets[0]);
    /* The peer dies. */
    struct ibv_send_wr wr = request(12, 8);
    require(!hold(0, 12, &wr, PW_FOREVER), "a held write");
    kill(child, SIGKILL);
    require(waitpid(child, &status, 0) == child, "its end");
    ends(12, IBV_WC_WR_FLUSH_ERR, "the peer is lost");
    no_completion();
    require(!ibv_destroy_qp(side.qp[0]) && !ibv_destroy_qp(side.qp[1]) && !ibv_destroy_cq(side.cq), "the end of the verbs");
    require(!ibv_dereg_mr(side.mr) && !ibv_dealloc_pd(side.pd) && !pw_node_leave(side.node), "the end");
    return 0;
}

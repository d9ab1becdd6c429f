/*
 * A peer that is a plain verbs program flushes handlers by a READ: flush_region. The READ ends when the records of what the peer did before have been
 * handled, and not before.
 */
#include "loopback.h"

#include <errno.h>

enum { MOST = 64 };

static unsigned handled;

static void count(void *unused, const pw_access *access)
{
    (void)unused;
    (void)access;
    handled++;
}

static void post_read(const struct ibv_mr *mr, uint64_t wr_id)
{
    struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 8, .lkey = local->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED}, *bad;

    wr.wr.rdma.remote_addr = (uintptr_t)mr->addr;
    wr.wr.rdma.rkey = mr->rkey;
    REQUIRE(!ibv_post_send(qp[0], &wr, &bad));
}

/* Whether the READ with this wr_id completes within so many milliseconds. */
static int completes(uint64_t wr_id, unsigned milliseconds)
{
    struct timespec now, start;
    struct ibv_wc wc;

    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        int found = ibv_poll_cq(cq, 1, &wc);

        REQUIRE(found >= 0);
        if (found) {
            REQUIRE(wc.wr_id == wr_id && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ);
            return 1;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < milliseconds);
    return 0;
}

static enum ibv_wc_status await_status(void)
{
    time_t end = time(NULL) + 60;
    struct ibv_wc wc;

    while (!ibv_poll_cq(cq, 1, &wc))
        REQUIRE(time(NULL) < end);
    return wc.status;
}

int main(void)
{
    static uint64_t words[2];
    char *memory;
    pw_node *node;
    pw_log *log, *other;
    struct ibv_mr *mr, *plain, *flushes, *two, *unreadable, *writable;

    if (posix_memalign((void **)&memory, PAGE, 2 * PAGE) || !(buffer = calloc(1, PAGE)))
        return 1;
    memset(memory, 0, 2 * PAGE);
    make_queue_pairs();
    REQUIRE((local = ibv_reg_mr(pd, buffer, PAGE, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    REQUIRE((mr = ibv_reg_mr(pd, memory, PAGE, ALL)) && (plain = ibv_reg_mr(pd, memory + PAGE, PAGE, ALL)));
    REQUIRE((flushes = ibv_reg_mr(pd, words, 8, IBV_ACCESS_REMOTE_READ)) && (writable = ibv_reg_mr(pd, words, 8, ALL)));
    REQUIRE((two = ibv_reg_mr(pd, words, 16, IBV_ACCESS_REMOTE_READ)) && (unreadable = ibv_reg_mr(pd, words, 8, 0)));
    REQUIRE(pw_node_alone(&node) == PW_OK);
    REQUIRE(pw_log_make(node, 1 << 16, 0, PW_ORDERED, &log) == PW_OK && pw_log_make(node, 1 << 16, 0, PW_ORDERED, &other) == PW_OK);

    /* What is no region of flushes, and does not become one. */
    REQUIRE(pw_make_flush_region(NULL) == PW_ENGINE && strstr(pw_error_message(), "no memory region"));
    REQUIRE(pw_make_flush_region(two) == PW_ARGUMENT && strstr(pw_error_message(), "8 bytes"));
    REQUIRE(pw_make_flush_region(unreadable) == PW_ARGUMENT && strstr(pw_error_message(), "IBV_ACCESS_REMOTE_READ"));
    REQUIRE(pw_make_flush_region(writable) == PW_ARGUMENT && strstr(pw_error_message(), "only right"));
    post_read(two, 1);
    REQUIRE(completes(1, 60000));

    /* Twice is once. Where nothing was logged it waits for nothing. */
    REQUIRE(pw_make_flush_region(flushes) == PW_OK && pw_make_flush_region(flushes) == PW_OK);
    REQUIRE(pw_set_region_attributes(flushes, 0, PW_TO_END, PW_LOG_PUTS, log) == PW_ENGINE && strstr(pw_error_message(), "wait for handlers"));
    REQUIRE(pw_watch_region(flushes, PW_WATCH_READS) == PW_ENGINE);
    REQUIRE(ibv_rereg_mr(flushes, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ) && errno == EINVAL);
    REQUIRE(ibv_rereg_mr(flushes, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, words, 8, 0) && errno == EINVAL);
    post_read(flushes, 2);
    REQUIRE(completes(2, 60000));
    REQUIRE(pw_set_region_attributes(mr, 0, PW_TO_END, PW_LOG_PUTS, log) == PW_OK);
    access_memory(IBV_WR_RDMA_WRITE, plain, (uintptr_t)plain->addr, 8);
    post_read(flushes, 3);
    REQUIRE(completes(3, 60000));

    /* It waits for the records of either log, and for the last of them. */
    for (unsigned round = 0; round < 4; round++) {
        pw_log *read = round % 2 ? other : log;

        if (round < 2)
            REQUIRE(pw_set_region_attributes(mr, 0, PW_TO_END, PW_LOG_PUTS, read) == PW_OK);
        else
            REQUIRE(pw_set_region_attributes(mr, 0, PW_TO_END, PW_REDIRECT_PUTS, read) == PW_OK);
        handled = 0;
        for (int i = 0; i < 3; i++)
            access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)mr->addr + 64 * i, 8);
        post_read(flushes, 10 + round);
        REQUIRE(!completes(10 + round, 150));
        REQUIRE(pw_log_poll(read, 2, count, NULL, NULL) == PW_OK);
        REQUIRE(handled == 3 || !completes(10 + round, 50));
        while (handled < 3)
            REQUIRE(pw_log_poll(read, MOST, count, NULL, NULL) == PW_OK);
        REQUIRE(completes(10 + round, 60000));
    }

    /* Pages with attributes are not for flushes. Peers that may not write are refused a WRITE, and the queue pairs begin anew. */
    REQUIRE(!ibv_dereg_mr(two) && (two = ibv_reg_mr(pd, words, 8, IBV_ACCESS_REMOTE_READ)) != NULL);
    REQUIRE(pw_set_region_attributes(two, 0, PW_TO_END, PW_LOG_PUTS, log) == PW_OK);
    REQUIRE(pw_make_flush_region(two) == PW_ENGINE && strstr(pw_error_message(), "have attributes"));
    REQUIRE(try_access(IBV_WR_RDMA_WRITE, flushes, (uintptr_t)flushes->addr, 8) == IBV_WC_REM_ACCESS_ERR);
    REQUIRE(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]));
    connect_queue_pairs();
    post_read(flushes, 20);
    REQUIRE(completes(20, 60000));

    /* A log that ends holds no READ back. */
    REQUIRE(pw_set_region_attributes(mr, 0, PW_TO_END, PW_LOG_PUTS, log) == PW_OK);
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)mr->addr, 8);
    post_read(flushes, 21);
    REQUIRE(!completes(21, 50));
    REQUIRE(pw_log_free(log) == PW_OK && completes(21, 60000));

    /* A READ that waits ends with the region. Another one of the same memory is ordinary. */
    REQUIRE(pw_set_region_attributes(mr, 0, PW_TO_END, PW_LOG_PUTS, other) == PW_OK);
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)mr->addr, 8);
    post_read(flushes, 22);
    REQUIRE(!completes(22, 50));
    REQUIRE(!ibv_dereg_mr(flushes));
    REQUIRE(await_status() == IBV_WC_REM_ACCESS_ERR);
    REQUIRE(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]) && pw_set_region_attributes(mr, 0, PW_TO_END, 0, other) == PW_OK);
    connect_queue_pairs();
    REQUIRE((flushes = ibv_reg_mr(pd, words, 8, ALL)) != NULL);
    REQUIRE(!ibv_dereg_mr(flushes) && (flushes = ibv_reg_mr(pd, words, 8, ALL)) != NULL);
    access_memory(IBV_WR_RDMA_WRITE, flushes, (uintptr_t)flushes->addr, 8);
    REQUIRE(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]) && pw_log_free(other) == PW_OK);
    pw_node_leave(node);
    return 0;
}

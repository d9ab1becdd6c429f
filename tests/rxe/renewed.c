/* A queue pair that goes to RESET and is used again, and a peer that is killed. */
#include "pair.h"

#include <arpa/inet.h>
#include <signal.h>
#include <unistd.h>

#define LIVES 6
#define IN_FLIGHT 8
#define STALE 99

/* Requests of a former life never complete in a later one (section 10.3.1). */
void renewed(int active)
{
    struct link link = { .timeout = 18 };
    join(&link);
    for (uint32_t life = 0; life < LIVES; life++) {
        pass_message(active, life * 1500 + 1, (uint32_t)pair.seed * 100 + life);
        pass_message(!active, life * 1500 + 2, (uint32_t)pair.seed * 200 + life);
        /* A SEND for which the peer has no receive, and a receive that nothing comes for. */
        if (active)
            post(request(STALE, IBV_WR_SEND, 0), 0, 3000);
        barrier();
        if (active)
            receive(STALE, 4000);
        struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
        REQUIRE(!ibv_modify_qp(pair.qp, &attr, IBV_QP_STATE));
        barrier();
        connect_qp(pair.qp, &link);
    }
    nothing_for(100);
}

/* The passive end is killed while WRITEs and READs are under way to it: the one that goes unanswered ends with its retries, and
 * those behind it are flushed. */
void dies(int active)
{
    join(&(struct link){ .timeout = 17, .retry_cnt = 3 });
    barrier();
    if (!active) {
        usleep(300000);
        kill(getpid(), SIGKILL);
    }
    struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
    uint64_t posted = 0, done = 0;
    while (wc.status == IBV_WC_SUCCESS) {
        for (; posted - done < IN_FLIGHT; posted++)
            post(request(posted, posted % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0), 0, 3000);
        wc = next_completion(pair.cq);
        REQUIRE(wc.wr_id == done++);
    }
    REQUIRE(done > 1 && wc.status == IBV_WC_RETRY_EXC_ERR);
    for (; done < posted; done++)
        wait_for(done, IBV_WC_WR_FLUSH_ERR);
}

void succeeds(int active)
{
    join(&(struct link){ 0 });
    pass_message(active, 5000, 1);
    pass_message(!active, 5000, 2);
}

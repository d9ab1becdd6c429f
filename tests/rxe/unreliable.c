/* UC: messages that arrive are whole and come in order. Where nothing is lost all arrive. */
#include "pair.h"

#include <arpa/inet.h>
#include <unistd.h>

#define BURSTS 10
#define MESSAGES 8
#define SLOT 8192u

static uint32_t length_of(uint32_t number)
{
    return number % 5 == 4 ? 0 : number * 997 % 6000 + 1;
}

static void send_burst(uint32_t first)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint32_t number = first + i;
        struct ibv_send_wr message = request(i, number % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM, number);
        message.wr.rdma.remote_addr += (MESSAGES + i) * SLOT;
        fill_bytes(pair.buffer + i * SLOT, length_of(number), number);
        post(message, i * SLOT, length_of(number));
    }
    for (uint32_t i = 0; i < MESSAGES; i++)
        wait_for(i, IBV_WC_SUCCESS);
}

/* SENDs go to the slot of the receive that they take, WRITEs to one behind those. */
static void look_at(const struct ibv_wc *wc, uint32_t number)
{
    uint32_t slot = number % 2 ? (uint32_t)wc->wr_id : MESSAGES + number % MESSAGES;
    REQUIRE(wc->status == IBV_WC_SUCCESS && wc->wc_flags & IBV_WC_WITH_IMM && wc->byte_len == length_of(number));
    REQUIRE(wc->opcode == (number % 2 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM));
    REQUIRE(bytes_are(pair.buffer + HALF + slot * SLOT, wc->byte_len, number));
}

static void post_slot(uint64_t slot)
{
    struct ibv_sge sge = { (uintptr_t)pair.buffer + HALF + slot * SLOT, SLOT, pair.mr->lkey };
    struct ibv_recv_wr request = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
    REQUIRE(!ibv_post_recv(pair.qp, &request, &bad));
}

/* Those of a burst that come; gives how many. */
static uint32_t receive_burst(uint32_t first)
{
    uint32_t count = 0, least = first;
    for (int idle = 0; count < MESSAGES && idle < (pair.lossy ? 300 : 1000 * PATIENCE); idle++) {
        struct ibv_wc wc;
        int polled = ibv_poll_cq(pair.cq, 1, &wc);
        REQUIRE(polled >= 0);
        if (polled == 0) {
            usleep(1000);
            continue;
        }
        uint32_t number = ntohl(wc.imm_data);
        REQUIRE(number >= least && number < first + MESSAGES);
        least = number + 1;
        look_at(&wc, number);
        post_slot(wc.wr_id);
        count++;
        idle = 0;
    }
    return count;
}

void unreliable(int active)
{
    uint32_t count = 0;
    join(&(struct link){ .type = IBV_QPT_UC });
    for (uint64_t slot = 0; slot < MESSAGES && !active; slot++)
        post_slot(slot);
    for (uint32_t burst = 0; burst < BURSTS; burst++) {
        barrier();
        if (active)
            send_burst(burst * MESSAGES);
        barrier();
        if (!active)
            count += receive_burst(burst * MESSAGES);
    }
    barrier();
    REQUIRE(active || (pair.lossy ? count > 0 : count == BURSTS * MESSAGES));
}

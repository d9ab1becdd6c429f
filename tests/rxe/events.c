/* RC: a receiver that asks for solicited events alone gets one for each message that asks for it, and for no other
 * (InfiniBand specification, section 9.2.3; ibv_req_notify_cq(3)). */
#include "pair.h"

#include <arpa/inet.h>
#include <poll.h>

static struct ibv_comp_channel *channel;

static int event_within(int milliseconds)
{
    struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
    int count = poll(&ready, 1, milliseconds);
    REQUIRE(count >= 0);
    return count;
}

static void send_message(enum ibv_wr_opcode opcode, uint32_t length, int solicited)
{
    struct ibv_send_wr message = request(1, opcode, length);
    message.send_flags = solicited ? IBV_SEND_SOLICITED : 0;
    post(message, 0, length);
    wait_for(1, IBV_WC_SUCCESS);
}

static void receive_message(struct ibv_cq *cq, uint32_t length)
{
    struct ibv_wc wc = next_completion(cq);
    REQUIRE(wc.wr_id == 2 && wc.status == IBV_WC_SUCCESS && wc.byte_len == length);
}

static void take_event(struct ibv_cq *cq)
{
    struct ibv_cq *whose;
    void *context;
    REQUIRE(event_within(1000 * PATIENCE) == 1);
    REQUIRE(!ibv_get_cq_event(channel, &whose, &context) && whose == cq);
    ibv_ack_cq_events(cq, 1);
}

/* One message that asks for no event, and one that does. */
static void one_event(int active, struct ibv_cq *cq, enum ibv_wr_opcode opcode, uint32_t length)
{
    if (!active) {
        receive(2, length);
        receive(2, length);
        REQUIRE(!ibv_req_notify_cq(cq, 1));
    }
    barrier();
    if (active)
        send_message(opcode, length, 0);
    else
        receive_message(cq, length);
    barrier();
    if (!active && event_within(200)) {
        fprintf(stderr, "an event that was not asked for: opcode %d, %u bytes\n", opcode, length);
        exit(1);
    }
    barrier();
    if (active) {
        send_message(opcode, length, 1);
    } else {
        take_event(cq);
        receive_message(cq, length);
    }
    barrier();
}

void events(int active)
{
    static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM };
    REQUIRE((channel = ibv_create_comp_channel(pair.context)));
    struct ibv_cq *cq = ibv_create_cq(pair.context, 16, NULL, channel, 0);
    REQUIRE(cq);
    join(&(struct link){ .cq = active ? NULL : cq });
    for (int i = 0; i < 3; i++) {
        one_event(active, cq, opcodes[i], 10);
        one_event(active, cq, opcodes[i], 5000);
    }
    REQUIRE(!ibv_destroy_qp(pair.qp));
    pair.qp = NULL;
    REQUIRE(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
}

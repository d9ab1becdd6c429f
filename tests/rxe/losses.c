/* RC without a timer (the timeout 0): what is lost inside a message comes again only because the responder sends a NAK for a
 * PSN sequence error and the requester obeys it (InfiniBand specification, sections 9.7.5.1.1 and 9.9.2.4.2). What is lost
 * must leave a packet behind it: scripts/test-rxe has the relay lose MIDDLE packets alone. */
#include "pair.h"

#define MESSAGES 60
#define LENGTH (8 * 1024 - 3)

static void one_message(int active, int sends, uint32_t seed)
{
    if (active)
        fill_bytes(pair.buffer, LENGTH, seed);
    else
        memset(pair.buffer + HALF, 0, LENGTH);
    if (!active && sends)
        receive(2, LENGTH);
    barrier();
    if (active) {
        post(request(1, sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 0), 0, LENGTH);
        wait_for(1, IBV_WC_SUCCESS);
    } else if (sends) {
        REQUIRE(wait_for(2, IBV_WC_SUCCESS).byte_len == LENGTH);
    }
    barrier();
    REQUIRE(active || bytes_are(pair.buffer + HALF, LENGTH, seed));
    barrier();
}

void losses(int active)
{
    join(&(struct link){ .no_timer = 1, .retry_cnt = 7 });
    for (uint32_t i = 0; i < MESSAGES; i++)
        one_message(active, i % 2, (uint32_t)pair.seed * 1000 + i);
}

/* Atomic WRITEs: words that the passive end polls grow, and are never seen in part; a WRITE before one is there when it is. */
#include "pair.h"

#define ROUNDS 200
#define LENGTH 4096u

/* IB_UVERBS_DEVICE_ATOMIC_WRITE: rxe has them from Linux 6.2 on. */
#define HAS_ATOMIC_WRITES (1ULL << 40)

static uint32_t supported(void)
{
    struct ibv_device_attr_ex attributes = { 0 };
    uint32_t here, there;
    REQUIRE(!ibv_query_device_ex(pair.context, NULL, &attributes));
    here = !!(attributes.device_cap_flags_ex & HAS_ATOMIC_WRITES);
    REQUIRE(here || pair.mine.is_rxe);
    tcp_send(&here, sizeof here);
    tcp_receive(&there, sizeof there);
    return here && there;
}

static uint64_t word(uint32_t round)
{
    return (uint64_t)round << 32 | round;
}

static void write_words(void)
{
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint64_t value = word(round);
        struct ibv_send_wr block = request(2 * round, IBV_WR_RDMA_WRITE, 0);
        struct ibv_send_wr flag = request(2 * round + 1, IBV_WR_ATOMIC_WRITE, 0);
        fill_bytes(pair.buffer, LENGTH, (uint32_t)pair.seed * 1000 + round);
        memcpy(pair.buffer + LENGTH, &value, sizeof value);
        block.wr.rdma.remote_addr += LENGTH;
        post(block, 0, LENGTH);
        post(flag, LENGTH, sizeof value);
        wait_for(2 * round, IBV_WC_SUCCESS);
        REQUIRE(wait_for(2 * round + 1, IBV_WC_SUCCESS).opcode == IBV_WC_ATOMIC_WRITE || pair.mine.is_rxe);
        barrier();
        barrier();
    }
}

static void watch_words(void)
{
    volatile uint64_t *place = (volatile uint64_t *)(pair.buffer + HALF);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint64_t seen;
        do {
            seen = *place;
            REQUIRE((uint32_t)seen == (uint32_t)(seen >> 32));
            REQUIRE((uint32_t)seen == round || (uint32_t)seen == round - 1);
        } while ((uint32_t)seen != round);
        REQUIRE(bytes_are(pair.buffer + HALF + LENGTH, LENGTH, (uint32_t)pair.seed * 1000 + round));
        barrier();
        barrier();
    }
}

void atomic_writes(int active)
{
    memset(pair.buffer + HALF, 0, LENGTH);
    join(&(struct link){ 0 });
    if (!supported()) {
        fprintf(stderr, "one end has no atomic WRITEs\n");
        return;
    }
    if (active)
        write_words();
    else
        watch_words();
}

/* UD: what a receive reports (the bytes of the GRH, source queue pair, immediate, length), and that a datagram with another
 * Q_Key is not taken (InfiniBand specification, sections 9.8.3 and 10.2.5; annex A17 for the GRH of RoCEv2). */
#include "pair.h"

#include <arpa/inet.h>

#define QUEUE_KEY 0x11223344
#define WRONG_QUEUE_KEY 0x11223345
#define OWN_QUEUE_KEY 0x80000000
#define TRAFFIC_CLASS 0x60
#define HOP_LIMIT 33
#define DEFAULT_HOP_LIMIT 64
#define GRH 40
#define UDP_PROTOCOL 17
/* Bytes of headers in front of the payload, and behind it. */
#define IPV4 20
#define UDP 8
#define BTH_AND_DETH 20
#define IMMEDIATE 4
#define ICRC 4

static struct ibv_ah *handle;

static void send_datagram(uint64_t id, uint32_t queue_key, const uint32_t *immediate, uint32_t length)
{
    struct ibv_send_wr sending = request(id, immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, immediate ? *immediate : 0);
    sending.wr.ud.ah = handle;
    sending.wr.ud.remote_qpn = pair.theirs.number;
    sending.wr.ud.remote_qkey = queue_key;
    post(sending, 0, length);
    wait_for(id, IBV_WC_SUCCESS);
}

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t checksum(const uint8_t *header)
{
    uint32_t sum = 0;
    for (int i = 0; i < IPV4; i += 2)
        sum += number_at(header + i);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* Linux replaces the hop limit of an address handle by that of its route (ib_resolve_unicast_gid_dmac). */
static uint8_t hop_limit(void)
{
    return pair.theirs.is_rxe ? DEFAULT_HOP_LIMIT : HOP_LIMIT;
}

static void look_at_ipv4(const uint8_t *header, uint32_t udp_length)
{
    REQUIRE(header[0] == 0x45 && header[1] == TRAFFIC_CLASS);
    REQUIRE(number_at(header + 2) == IPV4 + udp_length);
    REQUIRE(header[8] == hop_limit() && header[9] == UDP_PROTOCOL);
    REQUIRE(!memcmp(header + 12, pair.theirs.gid.raw + 12, 4) && !memcmp(header + 16, pair.mine.gid.raw + 12, 4));
    REQUIRE(checksum(header) == 0xffff);
}

static void look_at_ipv6(const uint8_t *header, uint32_t udp_length)
{
    REQUIRE(header[0] >> 4 == 6 && (uint8_t)(number_at(header) >> 4) == TRAFFIC_CLASS);
    REQUIRE(number_at(header + 4) == udp_length);
    REQUIRE(header[6] == UDP_PROTOCOL && header[7] == hop_limit());
    REQUIRE(!memcmp(header + 8, pair.theirs.gid.raw, 16) && !memcmp(header + 24, pair.mine.gid.raw, 16));
}

static void receive_datagram(uint64_t id, const uint32_t *immediate, uint32_t length)
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
    struct ibv_wc wc = wait_for(id, IBV_WC_SUCCESS);
    uint8_t *buffer = pair.buffer + HALF;
    REQUIRE(wc.opcode == IBV_WC_RECV && wc.byte_len == GRH + length);
    REQUIRE(wc.qp_num == pair.qp->qp_num && wc.src_qp == pair.theirs.number);
    REQUIRE(wc.wc_flags & IBV_WC_GRH);
    REQUIRE(!(wc.wc_flags & IBV_WC_WITH_IMM) == !immediate);
    REQUIRE(!immediate || ntohl(wc.imm_data) == *immediate);
    uint32_t padded = (length + 3) / 4 * 4;
    uint32_t udp_length = UDP + BTH_AND_DETH + (immediate ? IMMEDIATE : 0) + padded + ICRC;
    if (!memcmp(pair.mine.gid.raw, mapped, sizeof mapped))
        look_at_ipv4(buffer + GRH - IPV4, udp_length);
    else
        look_at_ipv6(buffer, udp_length);
    REQUIRE(bytes_are(buffer + GRH, length, length));
    REQUIRE(buffer[GRH + length] == 0xee);
}

void datagrams(int active)
{
    static const uint32_t lengths[] = { 0, 1, 2, 5, 40, 511, 1024 };
    join(&(struct link){ .type = IBV_QPT_UD, .queue_key = QUEUE_KEY });
    struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
    to.grh.dgid = pair.theirs.gid;
    to.grh.sgid_index = (uint8_t)pair.gid_index;
    to.grh.hop_limit = HOP_LIMIT;
    to.grh.traffic_class = TRAFFIC_CLASS;
    REQUIRE((handle = ibv_create_ah(pair.pd, &to)));
    for (uint32_t i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        uint32_t length = lengths[i / 2], data = 0xC0FFEE00 + i;
        uint32_t *immediate = i % 2 ? &data : NULL;
        if (!active) {
            memset(pair.buffer + HALF, 0xee, 2048);
            receive(10 + i, 2048);
        } else {
            fill_bytes(pair.buffer, length, length);
        }
        barrier();
        if (active) {
            /* The receiver would take it first, under the length of another. */
            send_datagram(1, WRONG_QUEUE_KEY, immediate, 1000);
            /* rxe sends the Q_Key of the request even where its top bit stands for that of the queue pair. */
            send_datagram(2, i % 3 == 0 && !pair.mine.is_rxe ? OWN_QUEUE_KEY | i : QUEUE_KEY, immediate, length);
        } else {
            receive_datagram(10 + i, immediate, length);
        }
        barrier();
    }
    REQUIRE(!ibv_destroy_ah(handle));
}

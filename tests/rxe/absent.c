/* Pages that are absent at Pagewire's end when soft-RoCE writes to them, reads from them and sends to them: never touched, thrown
 * out of the page cache, and held back by a pager (../faults/place.h). Every byte of the pages must be right afterwards. */
#define _GNU_SOURCE
#include "../faults/place.h"
#include "pair.h"

#define PLACE (2u << 20)
/* Microseconds that a page of the pager takes. */
#define PAGER_DELAY 5000
#define ROUNDS 4

enum operation { WRITE, READ, SEND, OPERATIONS };
static const enum ibv_wr_opcode opcodes[OPERATIONS] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND };
static const enum kind kinds[] = { ZERO_FILL, FILE_PAGES, PAGER_USER };

/* What the other end is to know of a place; without a key there is none. */
struct known {
    uint64_t address;
    uint32_t key;
};

struct piece {
    uint32_t offset, length, seed;
};

/* Some begin and end inside of pages, one is a word. */
static struct piece piece_of(int round, int operation)
{
    uint32_t offset = (uint32_t)(round * OPERATIONS + operation) * 64 * 1024 + (uint32_t)round * 1111;
    return (struct piece){ offset, round == 0 ? 8 : (uint32_t)round * 9000, (uint32_t)(pair.seed * 100 + round * 10 + operation) };
}

/* The bytes that stand at a place before anything is written to it. */
static uint8_t byte_at(enum kind kind, size_t offset)
{
    return kind == ZERO_FILL ? 0 : pattern(PEER, offset);
}

static void initiate(enum kind kind, const struct known *there, int round, int operation)
{
    struct piece piece = piece_of(round, operation);
    fill_bytes(pair.buffer, piece.length, piece.seed);
    barrier();
    struct ibv_send_wr asking = request(1, opcodes[operation], 0);
    asking.wr.rdma.remote_addr = there->address + piece.offset;
    asking.wr.rdma.rkey = there->key;
    post(asking, 0, piece.length);
    wait_for(1, IBV_WC_SUCCESS);
    for (uint32_t i = 0; operation == READ && i < piece.length; i++)
        REQUIRE(pair.buffer[i] == byte_at(kind, piece.offset + i));
    barrier();
}

static void examine(const struct place *place, struct piece piece, int written)
{
    uint32_t end = piece.offset + piece.length;
    if (written)
        REQUIRE(bytes_are((uint8_t *)place->base + piece.offset, piece.length, piece.seed));
    for (size_t at = down(piece.offset); at < up(end); at++)
        if (!written || at < piece.offset || at >= end)
            REQUIRE((uint8_t)place->base[at] == byte_at(place->kind, at));
}

static void lack_pages(struct place *place, const struct ibv_mr *mr, int round, int operation)
{
    struct piece piece = piece_of(round, operation);
    size_t count = make_absent(place, piece.offset, piece.length);
    if (count == 0) {
        fprintf(stderr, "the pages of kind %s do not go away\n", kind_names[place->kind]);
        exit(1);
    }
    if (operation == SEND) {
        struct ibv_sge sge = { (uintptr_t)place->base + piece.offset, piece.length, mr->lkey };
        struct ibv_recv_wr receive = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;
        REQUIRE(!ibv_post_recv(pair.qp, &receive, &bad));
    }
    barrier();
    if (operation == SEND)
        REQUIRE(wait_for(2, IBV_WC_SUCCESS).byte_len == piece.length);
    barrier();
    examine(place, piece, operation != READ);
    if (operation != READ) {
        place->dirty_from = down(piece.offset);
        place->dirty_to = up(piece.offset + piece.length);
    }
}

static void one_kind(int active, enum kind kind)
{
    struct place place;
    struct ibv_mr *mr = NULL;
    struct known known = { 0 };
    if (!active) {
        const char *reason = make_place(&place, kind, PLACE, PEER);
        if (reason)
            printf("not checked: absent pages of kind %s: %s\n", kind_names[kind], reason);
        else
            REQUIRE((mr = ibv_reg_mr(pair.pd, place.base, PLACE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                                                     IBV_ACCESS_REMOTE_READ)));
        known = (struct known){ (uintptr_t)place.base, mr ? mr->rkey : 0 };
        place.pager.delay = PAGER_DELAY;
        tcp_send(&known, sizeof known);
    } else {
        tcp_receive(&known, sizeof known);
    }
    for (int i = 0; i < ROUNDS * OPERATIONS && known.key; i++) {
        if (active)
            initiate(kind, &known, i / OPERATIONS, i % OPERATIONS);
        else
            lack_pages(&place, mr, i / OPERATIONS, i % OPERATIONS);
    }
    if (mr) {
        REQUIRE(!ibv_dereg_mr(mr));
        if (kind == PAGER_USER)
            stop_pager(&place.pager);
    }
}

void absent(int active)
{
    join(&(struct link){ .retry_cnt = 7 });
    if ((active ? pair.theirs : pair.mine).is_rxe)
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        one_kind(active, kinds[i]);
}

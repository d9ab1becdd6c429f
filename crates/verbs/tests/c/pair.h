/* A process and its peer, a forked child, each with an engine of its own and a connected queue pair, for the benchmarks. */
#ifndef PAIR_H
#define PAIR_H

#include "connect.h"

#include <sys/wait.h>

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	/* The bytes of `mr`: ordinary memory. */
	char *memory;
};

/* What a side tells the other. */
struct greeting {
	uint32_t qpn, rkey;
	uint64_t address;
};

static int to_peer, from_peer;

/* Both sides call these in turn: a byte is the permission to go on. */
static inline void hand_over(char what)
{
	CHECK(write(to_peer, &what, 1) == 1);
}

static inline char wait_for_peer(void)
{
	char what;

	CHECK(read(from_peer, &what, 1) == 1);
	return what;
}

/* Makes the other process; gives its PID, to the child 0. */
static inline pid_t fork_peer(void)
{
	int there[2], back[2];
	pid_t child;

	CHECK(pipe(there) == 0 && pipe(back) == 0);
	child = fork();
	CHECK(child >= 0);
	to_peer = child ? there[1] : back[1];
	from_peer = child ? back[0] : there[0];
	/* Of the other's ends none is kept: with it a dead peer would be waited for for ever. */
	CHECK(close(child ? there[0] : back[0]) == 0);
	CHECK(close(child ? back[1] : there[1]) == 0);
	return child;
}

static inline struct side open_side(size_t length)
{
	struct side side = { .context = open_first_device() };
	struct ibv_qp_init_attr init;

	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, 64, NULL, NULL, 0);
	CHECK(side.pd && side.cq);
	init = plain_attributes(side.cq, IBV_QPT_RC);
	side.qp = ibv_create_qp(side.pd, &init);
	CHECK(side.qp);
	side.memory = aligned_alloc(4096, length);
	CHECK(side.memory);
	memset(side.memory, 1, length);
	side.mr = ibv_reg_mr(side.pd, side.memory, length, ALL_ACCESS);
	CHECK(side.mr);
	return side;
}

/* Tells the peer of this side, and is told of the peer's. */
static inline struct greeting exchange_greetings(const struct side *side)
{
	struct greeting mine = { side->qp->qp_num, side->mr->rkey, (uintptr_t)side->memory }, peer;

	CHECK(write(to_peer, &mine, sizeof(mine)) == sizeof(mine));
	CHECK(read(from_peer, &peer, sizeof(peer)) == sizeof(peer));
	return peer;
}

/* RTS, with a peer that has greeted. */
static inline void connect_to(struct side *side, const struct greeting *peer)
{
	struct ibv_qp_attr attr;

	to_open_init(side->qp);
	to_rtr(side->qp, peer->qpn);
	attr = usual_attributes(side->context, 0);
	attr.qp_state = IBV_QPS_RTS;
	/* 17 s: no timer fires because the program runs slowly. */
	attr.timeout = 22;
	CHECK(ibv_modify_qp(side->qp, &attr, RTS_MASK(IBV_QPT_RC)) == 0);
}

static inline struct greeting connect_side(struct side *side)
{
	struct greeting peer = exchange_greetings(side);

	connect_to(side, &peer);
	return peer;
}

/* Until both have come here. */
static inline void meet(void)
{
	hand_over('m');
	CHECK(wait_for_peer() == 'm');
}

#endif

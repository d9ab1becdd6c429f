/* Queue pairs of this process connected with each other, for the C test programs. */
#ifndef CONNECT_H
#define CONNECT_H

#include "check.h"

#include <time.h>
#include <unistd.h>

#define ALL_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define QKEY 0x1234

/* Longest wait for something that must come. */
#define PATIENCE_SECONDS 30

/* The GID that reaches the own host: IPv4 if there is one. */
static inline int gid_index(struct ibv_context *context)
{
	struct ibv_gid_entry entries[64];
	ssize_t count = ibv_query_gid_table(context, entries, 64, 0);
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };

	CHECK(count > 0);
	for (ssize_t i = 0; i < count; i++) {
		if (memcmp(entries[i].gid.raw, mapped, sizeof(mapped)) == 0)
			return i;
	}
	return 0;
}

static inline struct ibv_ah_attr to_own_host(struct ibv_context *context)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };

	attr.grh.sgid_index = gid_index(context);
	CHECK(ibv_query_gid(context, 1, attr.grh.sgid_index, &attr.grh.dgid) == 0);
	return attr;
}

/* All attributes that any transition takes; the state is the caller's. */
static inline struct ibv_qp_attr usual_attributes(struct ibv_context *context, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024, .qkey = QKEY, .rq_psn = 0xfffff0, .sq_psn = 0xfffff0, .dest_qp_num = peer,
		.qp_access_flags = ALL_ACCESS, .port_num = 1, .max_rd_atomic = 4, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
	};

	attr.ah_attr = to_own_host(context);
	return attr;
}

#define RTR_MASK(type)                                                                                    \
	(IBV_QP_STATE |                                                                                   \
	 ((type) == IBV_QPT_UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |      \
	 ((type) == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0))
#define RTS_MASK(type)            \
	(IBV_QP_STATE | IBV_QP_SQ_PSN | \
	 ((type) == IBV_QPT_RC || (type) == IBV_QPT_XRC_SEND                                          \
	      ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0))

static inline void to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = usual_attributes(qp->context, peer);

	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, RTR_MASK(qp->qp_type)) == 0);
}

static inline void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = usual_attributes(qp->context, 0);

	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, RTS_MASK(qp->qp_type)) == 0);
}

/* INIT with all rights, whatever the type. */
static inline void to_open_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = usual_attributes(qp->context, 0);
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	attr.qp_state = IBV_QPS_INIT;
	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

static inline void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

static inline void connect_pair(struct ibv_qp *one, struct ibv_qp *two)
{
	to_open_init(one);
	to_open_init(two);
	to_rtr(one, two->qp_num);
	to_rtr(two, one->qp_num);
	to_rts(one);
	to_rts(two);
}

static inline double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Sets what a WRITE, a READ or a fetch-and-add of 1 names at the peer. */
static inline void set_remote(struct ibv_send_wr *wr, uint64_t address, uint32_t rkey)
{
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = address;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = 1;
	} else {
		wr->wr.rdma.remote_addr = address;
		wr->wr.rdma.rkey = rkey;
	}
}

/* Polls until so many completions are there. */
static inline void poll_all(struct ibv_cq *cq, int wanted, struct ibv_wc *wc)
{
	double end = seconds() + PATIENCE_SECONDS;
	int found = 0, got;

	while (found < wanted) {
		got = ibv_poll_cq(cq, wanted - found, wc + found);
		CHECK(got >= 0);
		found += got;
		CHECK(seconds() < end);
	}
}

/* Gives a completion that should not be a moment to show. */
static inline void poll_none(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (int i = 0; i < 200; i++) {
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
		usleep(100);
	}
}

static inline enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

#endif

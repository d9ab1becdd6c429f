/* The objects of calls.c: who uses whom, and what is right and wrong for them. */
#ifndef CALLS_MODEL_H
#define CALLS_MODEL_H

#include "connect.h"
#include "flush.h"
#include "random.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { PDS = 4, MRS = 12, CHANNELS = 2, CQS = 5, SRQS = 3, AHS = 5, QPS = 10, PIECES = 36 };
enum { MWS = 6, DMS = 3, XRCDS = 2, XRC_SRQS = 3, XRC_QPS = 3, GROUPS = 3 };
enum { GUARD = 1 << 16, ROOM = 1 << 16 };

static struct ibv_context *context;
static struct ibv_pd *pds[PDS];
/* The protection domains that they extend, where they are parent domains. */
static struct ibv_pd *extends[PDS];
static struct ibv_td *td;
static struct ibv_mr *mrs[MRS];
static struct ibv_comp_channel *channels[CHANNELS];
static struct ibv_cq *cqs[CQS];
/* Which of them are polled in the extended way, and what may be read there. */
static uint64_t extended[CQS];
static struct ibv_srq *srqs[SRQS];
static struct ibv_ah *ahs[AHS];
static struct ibv_qp *qps[QPS];
/* What may be posted to them by ibv_wr_*, and the multicast groups that they are in, a bit for each. */
static uint64_t operations[QPS];
static int groups[QPS];
static struct ibv_mw *mws[MWS];
static struct ibv_dm *dms[DMS];
static size_t dm_lengths[DMS];
/* One region of each of them. */
static struct ibv_mr *dm_mrs[DMS];
static struct ibv_xrcd *xrcds[XRCDS];
static struct ibv_srq *xrc_srqs[XRC_SRQS];
/* Their completion queues and domains. */
static struct ibv_cq *cq_of_xrc_srq[XRC_SRQS];
static struct ibv_xrcd *xrcd_of_srq[XRC_SRQS];
/* Of type XRC_RECV. */
static struct ibv_qp *xrc_qps[XRC_QPS];
static struct ibv_xrcd *xrcd_of_qp[XRC_QPS];
static unsigned char *room, *nothing;
static uint64_t calls, refused, completions;

static struct random random_numbers;

static uint64_t any(void)
{
	return next_random(&random_numbers);
}

static uint32_t below(uint32_t bound)
{
	return any() % bound;
}

static int one_in(uint32_t chances)
{
	return below(chances) == 0;
}

/* A number as hostile as its type permits, mostly small. */
static uint32_t number(uint32_t usual)
{
	switch (below(12)) {
	case 0:
		return UINT32_MAX - below(3);
	case 1:
		return INT32_MAX - below(3);
	case 2:
		return 1u << below(32);
	case 3:
		return any();
	case 4:
		return 0;
	default:
		return below(usual + 1);
	}
}

#define PICK(table) ((table)[below(sizeof(table) / sizeof((table)[0]))])
/* NULL now and then; else one that exists, if there is any. */
#define PICK_OR_NULL(table) (one_in(16) ? NULL : PICK(table))

/* The result of a call: an error is an errno that makes sense. EIO is what a panic behind the boundary becomes. */
static int outcome(int error)
{
	calls++;
	if (error == -1)
		error = errno;
	CHECK(error >= 0 && error < 134 && error != EIO);
	refused += error != 0;
	return error;
}

static void *made(void *object)
{
	calls++;
	if (!object) {
		CHECK(errno > 0 && errno != EIO);
		refused++;
	}
	errno = 0;
	return object;
}

static int uses_pd(const struct ibv_pd *pd)
{
	int users = 0;

	for (int i = 0; i < PDS; i++)
		users += pds[i] && extends[i] == pd;
	for (int i = 0; i < MRS; i++)
		users += mrs[i] && mrs[i]->pd == pd;
	for (int i = 0; i < SRQS; i++)
		users += srqs[i] && srqs[i]->pd == pd;
	for (int i = 0; i < AHS; i++)
		users += ahs[i] && ahs[i]->pd == pd;
	for (int i = 0; i < MWS; i++)
		users += mws[i] && mws[i]->pd == pd;
	for (int i = 0; i < XRC_SRQS; i++)
		users += xrc_srqs[i] && xrc_srqs[i]->pd == pd;
	for (int i = 0; i < DMS; i++)
		users += dm_mrs[i] && dm_mrs[i]->pd == pd;
	for (int i = 0; i < QPS; i++)
		users += qps[i] && qps[i]->pd == pd;
	return users;
}

/* An XRC_SEND queue pair receives nothing: nobody keeps its recv_cq for it. */
static int uses_cq(const struct ibv_cq *cq)
{
	int users = 0;

	for (int i = 0; i < XRC_SRQS; i++)
		users += xrc_srqs[i] && cq_of_xrc_srq[i] == cq;
	for (int i = 0; i < QPS; i++)
		users += qps[i] && (qps[i]->send_cq == cq || (qps[i]->qp_type != IBV_QPT_XRC_SEND && qps[i]->recv_cq == cq));
	return users;
}

static int uses_srq(const struct ibv_srq *srq)
{
	int users = 0;

	for (int i = 0; i < QPS; i++)
		users += qps[i] && qps[i]->srq == srq;
	return users;
}

static int uses_channel(const struct ibv_comp_channel *channel)
{
	int users = 0;

	for (int i = 0; i < CQS; i++)
		users += cqs[i] && cqs[i]->channel == channel;
	return users;
}

/* A piece of memory: mostly within a region, or next to it, or nowhere. */
static struct ibv_sge piece(void)
{
	const struct ibv_mr *mr = PICK(mrs);
	struct ibv_sge sge = { .addr = (uintptr_t)room + below(ROOM), .length = number(2000), .lkey = any() };

	if (mr) {
		sge.lkey = mr->lkey;
		if (mr->length <= ROOM && !one_in(4)) {
			sge.addr = (uintptr_t)mr->addr + below(mr->length + 1);
			sge.length = below(mr->length < 4000 ? mr->length + 1 : 4000);
		}
	}
	switch (below(24)) {
	case 0:
		sge.lkey ^= 1u << below(32);
		break;
	case 1:
		sge.addr = any();
		break;
	case 2:
		sge.addr = UINT64_MAX - below(16);
		break;
	case 3:
		sge.addr = below(4096);
		break;
	case 4:
		sge.addr = (uintptr_t)nothing + below(4096);
		break;
	}
	return sge;
}

/* A step on the way to RTS. It must succeed, unless the queue pair has ended by itself: its completion queue overran, or what it
 * had received was wrong. */
static int step(struct ibv_qp *qp, uint32_t peer, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = usual_attributes(context, peer);
	int error;

	attr.qp_state = to;
	attr.timeout = 8;
	attr.rnr_retry = 3;
	error = outcome(ibv_modify_qp(qp, &attr, mask));
	CHECK(!error || state_of(qp) == IBV_QPS_ERR || state_of(qp) == IBV_QPS_SQE);
	return !error;
}

static int raise(struct ibv_qp *qp, uint32_t peer)
{
	int initial = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	initial |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return step(qp, 0, IBV_QPS_INIT, initial) && step(qp, peer, IBV_QPS_RTR, RTR_MASK(qp->qp_type)) &&
	       step(qp, peer, IBV_QPS_RTS, RTS_MASK(qp->qp_type));
}

#endif

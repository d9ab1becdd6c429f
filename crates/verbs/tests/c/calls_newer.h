/* Random calls, for calls.c, of the verbs that came after the first ones: windows, ibv_wr_*, XRC, multicast, device memory. */
#ifndef CALLS_NEWER_H
#define CALLS_NEWER_H

#include "calls_model.h"

static int any_window(void)
{
	for (int i = 0; i < MWS; i++) {
		if (mws[i])
			return 1;
	}
	return 0;
}

/* A window that may be bound to a region keeps it: then it ends another time. */
static void end_region(struct ibv_mr **mr)
{
	int error = outcome(ibv_dereg_mr(*mr));

	CHECK(error == 0 || (error == EBUSY && any_window()));
	if (!error)
		*mr = NULL;
}

static void end_queue_pair(int i)
{
	int error = outcome(ibv_destroy_qp(qps[i]));

	CHECK(error == (groups[i] ? EBUSY : 0));
	if (!error)
		qps[i] = NULL;
}

/* The key of a window or of a region, or nearly. */
static uint32_t window_key(void)
{
	const struct ibv_mw *mw = PICK(mws);
	uint32_t key = mw ? mw->rkey : piece().lkey;

	return one_in(4) ? ibv_inc_rkey(key) : key;
}

static struct ibv_mw_bind_info bind_info(void)
{
	struct ibv_sge part = piece();
	unsigned access = one_in(8) ? any() : any() & (ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE);

	return (struct ibv_mw_bind_info){ .mr = PICK(mrs), .addr = part.addr, .length = part.length, .mw_access_flags = access };
}

static __typeof__(((struct ibv_send_wr *)NULL)->bind_mw) random_bind(void)
{
	__typeof__(((struct ibv_send_wr *)NULL)->bind_mw) bind = { .mw = PICK(mws), .rkey = window_key(), .bind_info = bind_info() };

	return bind;
}

static void windows(void)
{
	int i = below(MWS);
	struct ibv_pd *pd = PICK(pds);
	struct ibv_qp *qp = PICK(qps);

	/* The header looks into the protection domain itself. */
	if (!mws[i] && pd) {
		int type = one_in(8) ? (int)number(5) : 1 + (int)below(2);

		mws[i] = made(ibv_alloc_mw(pd, type));
		CHECK(!mws[i] == (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2));
	} else if (!mws[i]) {
		return;
	} else if (one_in(4)) {
		CHECK(outcome(ibv_dealloc_mw(mws[i])) == 0);
		mws[i] = NULL;
	} else if (qp) {
		struct ibv_mw_bind bind = {
			.wr_id = any(), .send_flags = one_in(8) ? any() : any() & (IBV_SEND_SIGNALED | IBV_SEND_FENCE), .bind_info = bind_info(),
		};

		outcome(ibv_bind_mw(qp, mws[i], &bind));
	}
}

static void device_memory(void)
{
	int i = below(DMS), fits;
	struct ibv_alloc_dm_attr attr = { .length = one_in(8) ? any() : number(8192), .log_align_req = number(14), .comp_mask = number(1) };
	struct ibv_pd *pd = PICK(pds);
	uint64_t offset = one_in(8) ? any() : below(9000) & ~3u;
	size_t length = one_in(8) ? number(4096) : below(4096) & ~3u;
	static unsigned char bytes[4096];

	if (!dms[i]) {
		dms[i] = made(ibv_alloc_dm(context, &attr));
		CHECK(!dms[i] || (attr.length && !attr.comp_mask));
		dm_lengths[i] = attr.length;
		return;
	}
	fits = !((offset | length) & 3) && offset <= dm_lengths[i] && length <= dm_lengths[i] - offset;
	switch (below(6)) {
	case 0: {
		int error = outcome(ibv_free_dm(dms[i]));

		CHECK(error == (dm_mrs[i] ? EBUSY : 0));
		if (!error)
			dms[i] = NULL;
		break;
	}
	case 1:
		if (!dm_mrs[i] && pd) {
			int access = one_in(6) ? (int)any() : ALL_ACCESS | IBV_ACCESS_ZERO_BASED;

			dm_mrs[i] = made(ibv_reg_dm_mr(pd, dms[i], offset, length, access));
			CHECK(!dm_mrs[i] || access & IBV_ACCESS_ZERO_BASED);
		} else if (dm_mrs[i]) {
			CHECK(outcome(ibv_dereg_mr(dm_mrs[i])) == 0);
			dm_mrs[i] = NULL;
		}
		break;
	case 2 ... 3:
		/* What does not fit fails before a byte is copied, however long it is. */
		if (length <= sizeof(bytes) || !fits)
			CHECK((outcome(ibv_memcpy_to_dm(dms[i], offset, bytes, length)) == 0) == fits);
		break;
	default:
		if (length <= sizeof(bytes) || !fits)
			CHECK((outcome(ibv_memcpy_from_dm(bytes, dms[i], offset, length)) == 0) == fits);
	}
}

static uint32_t srq_number(void)
{
	struct ibv_srq *srq = PICK(xrc_srqs);
	uint32_t number_of_srq = any();

	if (srq)
		CHECK(outcome(ibv_get_srq_num(srq, &number_of_srq)) == 0);
	return one_in(16) ? any() : number_of_srq;
}

static int uses_xrcd(const struct ibv_xrcd *xrcd)
{
	int users = 0;

	for (int i = 0; i < XRC_SRQS; i++)
		users += xrc_srqs[i] && xrcd_of_srq[i] == xrcd;
	for (int i = 0; i < XRC_QPS; i++)
		users += xrc_qps[i] && xrcd_of_qp[i] == xrcd;
	return users;
}

static void xrc_domains(void)
{
	int i = below(XRCDS), right = 1;
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };

	if (!xrcds[i]) {
		if (one_in(8)) {
			init.comp_mask = number(8);
			init.fd = -1 - (int)below(3);
			init.oflags = any();
			right = 0;
		}
		xrcds[i] = made(ibv_open_xrcd(context, &init));
		CHECK(xrcds[i] || !right);
	} else {
		int users = uses_xrcd(xrcds[i]), error = outcome(ibv_close_xrcd(xrcds[i]));

		CHECK(error == (users ? EBUSY : 0));
		if (!error)
			xrcds[i] = NULL;
	}
}

static int receives(struct ibv_qp *qp, struct ibv_srq *srq);

static void xrc_queues(void)
{
	int i = below(XRC_SRQS);
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 1 + below(32), .max_sge = 1 + below(4) }, .srq_type = IBV_SRQT_XRC, .pd = PICK_OR_NULL(pds),
		.xrcd = PICK(xrcds), .cq = PICK(cqs),
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	};
	int right = init.pd && init.xrcd && init.cq;

	if (!xrc_srqs[i]) {
		if (one_in(8)) {
			init.comp_mask ^= one_in(4) ? any() : 1u << below(6);
			right = 0;
		}
		if (one_in(8)) {
			init.attr.max_wr = number(32);
			init.srq_type = number(4);
			right = 0;
		}
		xrc_srqs[i] = made(ibv_create_srq_ex(context, &init));
		CHECK(xrc_srqs[i] || !right);
		if (xrc_srqs[i] && (!(init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || init.srq_type != IBV_SRQT_XRC)) {
			/* A basic one: it has no number. */
			uint32_t none;

			CHECK(outcome(ibv_get_srq_num(xrc_srqs[i], &none)) == EOPNOTSUPP);
			CHECK(outcome(ibv_destroy_srq(xrc_srqs[i])) == 0);
			xrc_srqs[i] = NULL;
			return;
		}
		cq_of_xrc_srq[i] = init.cq;
		xrcd_of_srq[i] = init.xrcd;
	} else if (one_in(8)) {
		/* Messages that have one of its receives end, or their queue pairs do. */
		int error = outcome(ibv_destroy_srq(xrc_srqs[i]));

		CHECK(error == 0 || error == EBUSY);
		if (!error)
			xrc_srqs[i] = NULL;
	} else {
		receives(NULL, xrc_srqs[i]);
	}
}

/* An initiator and a receiver become a connected pair. */
static void connect_receiver(struct ibv_qp *receiver)
{
	struct ibv_qp *sender = PICK(qps);
	struct ibv_qp_attr attr;

	if (!sender || sender->qp_type != IBV_QPT_XRC_SEND)
		return;
	to_state(sender, IBV_QPS_RESET);
	to_state(receiver, IBV_QPS_RESET);
	attr = usual_attributes(context, sender->qp_num);
	attr.qp_state = IBV_QPS_INIT;
	CHECK(outcome(ibv_modify_qp(receiver, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(outcome(ibv_modify_qp(receiver, &attr, RTR_MASK(IBV_QPT_RC))) == 0);
	raise(sender, receiver->qp_num);
	attr.qp_state = IBV_QPS_RTS;
	outcome(ibv_modify_qp(receiver, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT));
}

static struct ibv_xrcd *xrcd_of_xrc_qp(const struct ibv_qp *qp)
{
	for (int i = 0; i < XRC_QPS; i++) {
		if (xrc_qps[i] == qp)
			return xrcd_of_qp[i];
	}
	return NULL;
}

static void xrc_receivers(void)
{
	int i = below(XRC_QPS);
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = PICK(xrcds) };
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE, .xrcd = PICK(xrcds),
		.qp_type = IBV_QPT_XRC_RECV,
	};

	if (!xrc_qps[i]) {
		struct ibv_qp *other = PICK(xrc_qps);

		xrcd_of_qp[i] = init.xrcd;
		if (other && one_in(2)) {
			int right = attr.xrcd && attr.xrcd == xrcd_of_xrc_qp(other);

			attr.qp_num = other->qp_num;
			if (one_in(8)) {
				attr.qp_num = any();
				attr.comp_mask ^= one_in(4) ? any() : 1u << below(5);
				right = -1;
			}
			xrcd_of_qp[i] = attr.xrcd;
			xrc_qps[i] = made(ibv_open_qp(context, &attr));
			CHECK(right < 0 || !xrc_qps[i] == !right);
			return;
		}
		xrc_qps[i] = made(ibv_create_qp_ex(context, &init));
		CHECK(!xrc_qps[i] == !init.xrcd);
	} else if (one_in(4)) {
		CHECK(outcome(ibv_destroy_qp(xrc_qps[i])) == 0);
		xrc_qps[i] = NULL;
	} else {
		connect_receiver(xrc_qps[i]);
	}
}

static union ibv_gid group_of(int which)
{
	return (union ibv_gid){ .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [15] = 1 + which } };
}

static void multicast(void)
{
	int i = below(QPS), which = below(GROUPS), is_member = groups[i] >> which & 1, error;
	union ibv_gid group = group_of(which);

	if (!qps[i])
		return;
	if (one_in(8)) {
		group.raw[below(16)] = any();
		if (outcome(ibv_attach_mcast(qps[i], &group, any())) == 0) {
			CHECK(qps[i]->qp_type == IBV_QPT_UD);
			for (which = 0; which < GROUPS; which++) {
				union ibv_gid same = group_of(which);

				if (!memcmp(&same, &group, sizeof(group))) {
					groups[i] |= 1 << which;
					return;
				}
			}
			CHECK(outcome(ibv_detach_mcast(qps[i], &group, 0)) == 0);
		}
	} else if (is_member) {
		CHECK(outcome(ibv_detach_mcast(qps[i], &group, 0)) == 0);
		groups[i] &= ~(1 << which);
	} else if (one_in(4)) {
		CHECK(outcome(ibv_detach_mcast(qps[i], &group, 0)) == EINVAL);
	} else {
		/* Where another program has UDP port 4791, nobody joins: each time is as the first. */
		static int of_datagrams = -1;

		error = outcome(ibv_attach_mcast(qps[i], &group, 0));
		if (of_datagrams < 0 && qps[i]->qp_type == IBV_QPT_UD)
			of_datagrams = error;
		CHECK(error == (qps[i]->qp_type == IBV_QPT_UD ? of_datagrams : EINVAL));
		groups[i] |= !error << which;
	}
}

/* What may be asked for of a type of queue pair. */
static uint64_t operations_of(enum ibv_qp_type type)
{
	const uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
		       unreliable = sends | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
		       reliable = unreliable | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE | QP_EX_WITH_FLUSH;

	switch (type) {
	case IBV_QPT_RC:
		return reliable | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	case IBV_QPT_XRC_SEND:
		return reliable;
	case IBV_QPT_UC:
		return unreliable;
	case IBV_QPT_UD:
		return sends;
	default:
		return 0;
	}
}

/* One request by ibv_wr_*, of those that the queue pair was made for. */
static void post(struct ibv_qp_ex *ex, uint64_t operations)
{
	struct ibv_sge to = piece(), pieces[PIECES];
	uint64_t operation;
	struct ibv_data_buf buffers[4];
	struct ibv_mw_bind_info info = bind_info();

	do {
		operation = operations & 1ull << below(16);
	} while (!operation);
	ex->wr_id = any();
	ex->wr_flags = one_in(16) ? any() : any() & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE);
	switch (operation) {
	case IBV_QP_EX_WITH_SEND:
		ibv_wr_send(ex);
		break;
	case IBV_QP_EX_WITH_SEND_WITH_IMM:
		ibv_wr_send_imm(ex, any());
		break;
	case IBV_QP_EX_WITH_SEND_WITH_INV:
		ibv_wr_send_inv(ex, window_key());
		break;
	case IBV_QP_EX_WITH_RDMA_WRITE:
		ibv_wr_rdma_write(ex, to.lkey, to.addr);
		break;
	case IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, to.lkey, to.addr, any());
		break;
	case IBV_QP_EX_WITH_RDMA_READ:
		ibv_wr_rdma_read(ex, to.lkey, to.addr);
		break;
	case IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(ex, to.lkey, to.addr & ~(uint64_t)7, any(), any());
		break;
	case IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(ex, to.lkey, one_in(4) ? to.addr : to.addr & ~(uint64_t)7, any());
		break;
	case IBV_QP_EX_WITH_ATOMIC_WRITE:
		ibv_wr_atomic_write(ex, to.lkey, to.addr & ~(uint64_t)7, room + below(1024));
		return;
	case QP_EX_WITH_FLUSH:
		wr_flush(ex, to.lkey, to.addr, to.length, one_in(8) ? any() : 1 + below(3), one_in(8) ? any() : below(2));
		return;
	case IBV_QP_EX_WITH_LOCAL_INV:
		ibv_wr_local_inv(ex, window_key());
		return;
	case IBV_QP_EX_WITH_BIND_MW:
		ibv_wr_bind_mw(ex, PICK(mws), window_key(), &info);
		return;
	}
	if (ex->qp_base.qp_type == IBV_QPT_UD && !one_in(64))
		ibv_wr_set_ud_addr(ex, PICK(ahs), number(1 << 24), one_in(4) ? any() : QKEY);
	if (ex->qp_base.qp_type == IBV_QPT_XRC_SEND && !one_in(64))
		ibv_wr_set_xrc_srqn(ex, srq_number());
	for (int i = 0; i < PIECES; i++)
		pieces[i] = piece();
	switch (below(8)) {
	case 0:
		/* No data, or a setter that was forgotten. */
		break;
	case 1:
		ibv_wr_set_inline_data(ex, room + below(1024), below(160));
		break;
	case 2:
		for (int i = 0; i < 4; i++)
			buffers[i] = (struct ibv_data_buf){ .addr = room + below(1024), .length = below(60) };
		ibv_wr_set_inline_data_list(ex, below(5), buffers);
		break;
	case 3 ... 4:
		ibv_wr_set_sge_list(ex, one_in(8) ? below(PIECES + 1) : below(3), pieces);
		break;
	default:
		ibv_wr_set_sge(ex, pieces[0].lkey, pieces[0].addr, pieces[0].length);
	}
}

static void posts(struct ibv_qp *qp, uint64_t operations)
{
	struct ibv_qp_ex *ex = operations ? ibv_qp_to_qp_ex(qp) : NULL;
	enum ibv_qp_state before;

	if (!operations)
		return;
	CHECK(ex);
	before = state_of(qp);
	ibv_wr_start(ex);
	for (int i = below(4); i >= 0; i--)
		post(ex, operations);
	if (one_in(8)) {
		calls++;
		ibv_wr_abort(ex);
	} else {
		int error = outcome(ibv_wr_complete(ex));

		CHECK(error || (before != IBV_QPS_RESET && before != IBV_QPS_INIT && before != IBV_QPS_RTR));
	}
}

static void properties(void)
{
	struct ibv_qp *qp = PICK(qps);
	struct ibv_cq *cq = PICK(cqs);
	struct ibv_modify_cq_attr attr = {
		.attr_mask = one_in(4) ? number(4) : IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = any(), .cq_period = any() },
	};

	/* Nothing is promised of the order, whatever is asked. */
	if (qp)
		CHECK(ibv_query_qp_data_in_order(qp, one_in(4) ? any() : below(16), one_in(4) ? any() : 0) == 0);
	if (cq)
		outcome(ibv_modify_cq(cq, &attr));
}

static void newer(void)
{
	switch (below(16)) {
	case 0 ... 4:
		windows();
		break;
	case 5 ... 6:
		device_memory();
		break;
	case 7:
		xrc_domains();
		break;
	case 8 ... 10:
		xrc_queues();
		break;
	case 11 ... 12:
		xrc_receivers();
		break;
	case 13:
		multicast();
		break;
	default:
		properties();
	}
}

/* Before what they use ends. */
static void end_newer(void)
{
	for (int i = 0; i < MWS; i++)
		CHECK(!mws[i] || ibv_dealloc_mw(mws[i]) == 0);
	for (int i = 0; i < QPS; i++) {
		for (int which = 0; which < GROUPS; which++) {
			union ibv_gid group = group_of(which);

			CHECK(!qps[i] || !(groups[i] >> which & 1) || ibv_detach_mcast(qps[i], &group, 0) == 0);
		}
		if (qps[i] && qps[i]->qp_type == IBV_QPT_XRC_SEND) {
			CHECK(ibv_destroy_qp(qps[i]) == 0);
			qps[i] = NULL;
		}
	}
	for (int i = 0; i < XRC_QPS; i++)
		CHECK(!xrc_qps[i] || ibv_destroy_qp(xrc_qps[i]) == 0);
	for (int i = 0; i < XRC_SRQS; i++)
		CHECK(!xrc_srqs[i] || ibv_destroy_srq(xrc_srqs[i]) == 0);
	for (int i = 0; i < XRCDS; i++)
		CHECK(!xrcds[i] || ibv_close_xrcd(xrcds[i]) == 0);
	for (int i = 0; i < DMS; i++) {
		CHECK(!dm_mrs[i] || ibv_dereg_mr(dm_mrs[i]) == 0);
		CHECK(!dms[i] || ibv_free_dm(dms[i]) == 0);
	}
}

#endif

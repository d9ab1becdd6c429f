/*
 * Calls in a random order with random arguments: calls SEED CALLS [SECONDS] (SECONDS: as many as fit into the time).
 *
 * What a caller may get wrong (sizes, keys, states, masks, flags, enumerations, NULL where a handle is expected, objects of
 * another kind of use) gets an error and harms nothing. What no caller may do (handles that do not exist, pointers to nothing)
 * is not done. Which calls must succeed and which must not is known from a model of the objects: who uses whom, and the states.
 */
#include "calls_model.h"
#include "calls_newer.h"

static void memory(void)
{
	int i = below(MRS);
	static const int rights[] = { 0, IBV_ACCESS_LOCAL_WRITE, ALL_ACCESS, IBV_ACCESS_REMOTE_READ,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, ALL_ACCESS | IBV_ACCESS_MW_BIND,
				      ALL_ACCESS | IBV_ACCESS_MW_BIND | ACCESS_FLUSH_GLOBAL };
	int access = one_in(6) ? (int)any() : PICK(rights), wrong = 0;
	size_t length = 1 + below(8000);
	void *address = room + below(ROOM - length);
	struct ibv_pd *pd = PICK_OR_NULL(pds);

	switch (below(16)) {
	case 0:
		/* What is not mapped may be registered; nobody can use it. */
		address = nothing;
		break;
	case 1:
		length = SIZE_MAX - below(4096);
		wrong = 1;
		break;
	case 2:
		length = (uint64_t)1 << (48 + below(16));
		wrong = 1;
		break;
	}
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
		wrong = 1;
	if (!mrs[i] && pd && one_in(8)) {
		mrs[i] = made(ibv_alloc_null_mr(pd));
		CHECK(mrs[i] && mrs[i]->length == SIZE_MAX);
		return;
	}
	if (!mrs[i]) {
		/* Without a parenthesis around its name it is a macro, which guesses. */
		mrs[i] = made((ibv_reg_mr)(pd, address, length, access));
		CHECK(!mrs[i] || (!wrong && pd && mrs[i]->pd == pd && mrs[i]->addr == address && mrs[i]->length == length));
		CHECK(mrs[i] || wrong || !pd || access & ~(ALL_ACCESS | IBV_ACCESS_ON_DEMAND));
		return;
	}
	if (one_in(3)) {
		int flags = number(8), had = mrs[i]->pd != NULL;
		int result = ibv_rereg_mr(mrs[i], flags, pd, address, length, access);

		calls++;
		CHECK(had && result >= IBV_REREG_MR_ERR_DO_FORK_OLD - 8 && result <= 0);
		if (result) {
			refused++;
			CHECK(errno != EIO && (errno != EBUSY || any_window()));
		}
		CHECK(mrs[i]->pd && (mrs[i]->length <= ROOM + GUARD || (mrs[i]->length == SIZE_MAX && result)));
		return;
	}
	if (pd && one_in(3)) {
		struct ibv_sge pieces[2] = { piece(), piece() };
		int advice = number(3), flags = number(2), error;

		error = outcome(ibv_advise_mr(pd, advice, flags, pieces, number(2) % 3));
		CHECK(!error || error == EINVAL || error == ENOENT || error == EPERM || error == EFAULT || error == EOPNOTSUPP);
		return;
	}
	end_region(&mrs[i]);
}

static void queues(void)
{
	int i = below(CQS), entries = number(3000), vector = one_in(8) ? (int)number(2) : 0;
	struct ibv_comp_channel *channel = PICK(channels);

	if (!cqs[i] && one_in(4)) {
		struct ibv_cq_init_attr_ex init = { .cqe = below(3000) + 1, .channel = channel, .wc_flags = any() & IBV_WC_STANDARD_FLAGS };
		struct ibv_cq_ex *cq;
		int right = 1;

		if (one_in(4)) {
			init.comp_mask = number(4);
			init.flags = number(4);
			init.comp_vector = number(2);
			init.wc_flags = one_in(2) ? any() : init.wc_flags;
			init.cqe = number(3000);
			right = 0;
		}
		cq = made(ibv_create_cq_ex(context, &init));
		CHECK(cq || !right);
		if (cq) {
			CHECK(!(init.wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) && init.cqe > 0 && !init.comp_vector);
			cqs[i] = ibv_cq_ex_to_cq(cq);
			extended[i] = init.wc_flags | 1ull << 63;
		}
	} else if (!cqs[i]) {
		struct ibv_context *of = one_in(16) ? NULL : context;

		extended[i] = 0;
		cqs[i] = made(ibv_create_cq(of, entries, NULL, channel, vector));
		CHECK(!cqs[i] || (of && entries > 0 && cqs[i]->cqe >= entries && cqs[i]->channel == channel));
		CHECK(cqs[i] || !of || entries <= 0 || entries > 1 << 20 || vector);
	} else if (one_in(3)) {
		int before = cqs[i]->cqe, error = outcome(ibv_resize_cq(cqs[i], entries));

		CHECK(error ? cqs[i]->cqe == before : entries > 0 && cqs[i]->cqe >= entries);
	} else if (one_in(2)) {
		CHECK(outcome(ibv_req_notify_cq(cqs[i], any())) == 0);
	} else {
		int users = uses_cq(cqs[i]), error = outcome(ibv_destroy_cq(cqs[i]));

		CHECK(error == (users ? EBUSY : 0));
		if (!error)
			cqs[i] = NULL;
	}
}

static void domains(void)
{
	int i = below(PDS), j = below(CHANNELS);

	if (!td) {
		struct ibv_td_init_attr init = { 0 };

		td = made(ibv_alloc_td(context, &init));
		CHECK(td);
	}
	if (!pds[i] && one_in(3)) {
		int base = below(PDS);
		struct ibv_parent_domain_init_attr init = { .pd = pds[base], .td = one_in(2) ? td : NULL, .comp_mask = number(4) };

		pds[i] = made(ibv_alloc_parent_domain(context, &init));
		CHECK(pds[i] ? init.pd && !(init.comp_mask & ~7) : !init.pd || init.comp_mask & ~7);
		extends[i] = pds[i] ? (extends[base] ? extends[base] : init.pd) : NULL;
	} else if (!pds[i]) {
		pds[i] = made(ibv_alloc_pd(one_in(16) ? NULL : context));
	} else if (one_in(4)) {
		int users = uses_pd(pds[i]), error = outcome(ibv_dealloc_pd(pds[i]));

		CHECK(error == (users ? EBUSY : 0));
		if (!error)
			pds[i] = extends[i] = NULL;
	}
	if (!channels[j]) {
		channels[j] = made(ibv_create_comp_channel(context));
		CHECK(channels[j] && fcntl(channels[j]->fd, F_SETFL, O_NONBLOCK) == 0);
	} else if (one_in(4)) {
		int users = uses_channel(channels[j]), error = outcome(ibv_destroy_comp_channel(channels[j]));

		CHECK(error == (users ? EBUSY : 0));
		if (!error)
			channels[j] = NULL;
	}
}

static int receives(struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_sge pieces[PIECES];
	struct ibv_recv_wr list[3], *bad = NULL;
	int count = 1 + below(3), error;

	for (int i = 0; i < PIECES; i++)
		pieces[i] = piece();
	for (int i = 0; i < count; i++) {
		list[i] = (struct ibv_recv_wr){ .wr_id = any(), .sg_list = pieces, .num_sge = one_in(16) ? number(PIECES) : below(3) };
		if (list[i].num_sge > PIECES)
			list[i].num_sge = -list[i].num_sge;
		if (one_in(32))
			list[i].sg_list = NULL;
		list[i].next = i + 1 < count ? &list[i + 1] : NULL;
	}
	error = outcome(srq ? ibv_post_srq_recv(srq, list, &bad) : ibv_post_recv(qp, list, &bad));
	CHECK(error ? bad >= list && bad < list + count : bad == NULL);
	return error;
}

static void shared_queues(void)
{
	int i = below(SRQS);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = number(32), .max_sge = number(4), .srq_limit = number(4) } };
	struct ibv_srq_attr attr = { .max_wr = number(64), .srq_limit = number(8) }, now;
	struct ibv_pd *pd = PICK_OR_NULL(pds);

	if (!srqs[i]) {
		srqs[i] = made(ibv_create_srq(pd, &init));
		CHECK(!srqs[i] || (pd && srqs[i]->pd == pd && init.attr.max_wr > 0));
		return;
	}
	switch (below(6)) {
	case 0: {
		int users = uses_srq(srqs[i]), error = outcome(ibv_destroy_srq(srqs[i]));

		CHECK(error == (users ? EBUSY : 0));
		if (!error)
			srqs[i] = NULL;
		return;
	}
	case 1:
		outcome(ibv_modify_srq(srqs[i], &attr, number(3)));
		break;
	default:
		receives(NULL, srqs[i]);
	}
	CHECK(outcome(ibv_query_srq(srqs[i], &now)) == 0);
	CHECK(now.max_wr > 0 && now.srq_limit <= now.max_wr);
}

static void addresses(void)
{
	int i = below(AHS);
	struct ibv_ah_attr attr = to_own_host(context);
	struct ibv_pd *pd = PICK_OR_NULL(pds);
	int right = 1;

	if (ahs[i]) {
		CHECK(outcome(ibv_destroy_ah(ahs[i])) == 0);
		ahs[i] = NULL;
		return;
	}
	switch (below(8)) {
	case 0:
		attr.port_num = any();
		right = attr.port_num == 1;
		break;
	case 1:
		attr.is_global = 0;
		right = 0;
		break;
	case 2:
		attr.grh.sgid_index = any();
		right = -1;
		break;
	case 3:
		for (int byte = 0; byte < 16; byte++)
			attr.grh.dgid.raw[byte] = any();
		right = -1;
		break;
	case 4:
		attr.sl = any();
		attr.dlid = any();
		attr.static_rate = any();
		attr.grh.traffic_class = any();
		attr.grh.hop_limit = any();
		attr.grh.flow_label = any();
		right = -1;
		break;
	case 5:
		attr.grh.dgid = group_of(below(GROUPS));
		break;
	}
	ahs[i] = made(ibv_create_ah(pd, one_in(32) ? (right = 0, (struct ibv_ah_attr *)NULL) : &attr));
	CHECK(!ahs[i] || (pd && right));
	CHECK(ahs[i] || !pd || right != 1);
}

/* Which states lead to which (InfiniBand specification, volume 1, figure 124). RESET and ERR: from all. */
static int leads_to(enum ibv_qp_state from, enum ibv_qp_state to)
{
	static const unsigned to_of[] = {
		[IBV_QPS_RESET] = 1 << IBV_QPS_INIT,
		[IBV_QPS_INIT] = 1 << IBV_QPS_INIT | 1 << IBV_QPS_RTR,
		[IBV_QPS_RTR] = 1 << IBV_QPS_RTS,
		[IBV_QPS_RTS] = 1 << IBV_QPS_RTS | 1 << IBV_QPS_SQD,
		[IBV_QPS_SQD] = 1 << IBV_QPS_RTS | 1 << IBV_QPS_SQD,
		[IBV_QPS_SQE] = 1 << IBV_QPS_RTS,
		[IBV_QPS_ERR] = 0,
	};

	return to == IBV_QPS_RESET || to == IBV_QPS_ERR || (to_of[from] >> to & 1);
}

static void change(struct ibv_qp *qp)
{
	const struct ibv_qp *peer = PICK(qps);
	struct ibv_qp_attr attr = usual_attributes(context, peer ? peer->qp_num : number(1 << 24));
	enum ibv_qp_state before = state_of(qp), after;
	int mask = 0, error;
	static const enum ibv_qp_state next[] = {
		[IBV_QPS_RESET] = IBV_QPS_INIT, [IBV_QPS_INIT] = IBV_QPS_RTR, [IBV_QPS_RTR] = IBV_QPS_RTS,
		[IBV_QPS_RTS] = IBV_QPS_SQD,	[IBV_QPS_SQD] = IBV_QPS_RTS,  [IBV_QPS_SQE] = IBV_QPS_RTS,
		[IBV_QPS_ERR] = IBV_QPS_RESET,
	};

	attr.qp_state = one_in(4) ? (enum ibv_qp_state)below(9) : next[before];
	attr.timeout = 1 + below(12);
	attr.retry_cnt = below(8);
	attr.rnr_retry = below(7);
	attr.cur_qp_state = below(8);
	mask = IBV_QP_STATE;
	if (attr.qp_state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	else if (attr.qp_state == IBV_QPS_RTR)
		mask |= RTR_MASK(qp->qp_type);
	else if (attr.qp_state == IBV_QPS_RTS && before == IBV_QPS_RTR)
		mask |= RTS_MASK(qp->qp_type);
	switch (below(12)) {
	case 0:
		mask ^= 1 << below(26);
		break;
	case 1:
		mask = any();
		break;
	case 2:
		attr.port_num = any();
		attr.pkey_index = any();
		break;
	case 3:
		attr.path_mtu = number(6);
		attr.min_rnr_timer = any();
		break;
	case 4:
		attr.timeout = any();
		attr.retry_cnt = any();
		attr.rnr_retry = any();
		break;
	case 5:
		attr.max_rd_atomic = any();
		attr.max_dest_rd_atomic = any();
		break;
	case 6:
		attr.ah_attr.grh.sgid_index = any();
		attr.ah_attr.grh.dgid.raw[below(16)] = any();
		attr.ah_attr.is_global = any();
		break;
	case 7:
		attr.dest_qp_num = number(1 << 24);
		attr.rq_psn = any();
		attr.sq_psn = any();
		attr.qp_access_flags = any();
		break;
	}
	error = outcome(ibv_modify_qp(qp, &attr, mask));
	after = state_of(qp);
	if (error || !(mask & IBV_QP_STATE)) {
		/* Its own doings may have ended it meanwhile. */
		CHECK(after == before || after == IBV_QPS_ERR || after == IBV_QPS_SQE);
	} else {
		CHECK(attr.qp_state <= IBV_QPS_ERR);
		CHECK(leads_to(before, attr.qp_state) || leads_to(IBV_QPS_SQE, attr.qp_state));
		CHECK(after == attr.qp_state || after == IBV_QPS_ERR || after == IBV_QPS_SQE);
	}
}

static void sends(struct ibv_qp *qp)
{
	struct ibv_sge pieces[PIECES];
	struct ibv_send_wr list[3], *bad = NULL;
	int count = 1 + below(3), error;
	enum ibv_qp_state before = state_of(qp);

	for (int i = 0; i < PIECES; i++)
		pieces[i] = piece();
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr *wr = &list[i];
		struct ibv_sge to = piece();

		memset(wr, 0, sizeof(*wr));
		wr->wr_id = any();
		wr->sg_list = pieces;
		wr->num_sge = one_in(16) ? (int)number(PIECES) : 1;
		if (wr->num_sge > PIECES)
			wr->num_sge = -wr->num_sge;
		wr->opcode = one_in(8) ? (enum ibv_wr_opcode)number(16) : (enum ibv_wr_opcode)below(7);
		wr->send_flags = one_in(16) ? any() : any() & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE);
		wr->imm_data = any();
		if (qp->qp_type == IBV_QPT_UD) {
			wr->wr.ud.ah = PICK(ahs);
			wr->wr.ud.remote_qpn = PICK(qps) && one_in(2) ? qp->qp_num : number(1 << 24);
			wr->wr.ud.remote_qkey = one_in(4) ? any() : QKEY;
		} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr->wr.atomic.remote_addr = one_in(4) ? to.addr : to.addr & ~(uint64_t)7;
			wr->wr.atomic.rkey = to.lkey;
			wr->wr.atomic.compare_add = any();
		} else {
			wr->wr.rdma.remote_addr = to.addr;
			wr->wr.rdma.rkey = to.lkey;
		}
		if (wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_SEND_WITH_INV)
			wr->invalidate_rkey = window_key();
		if (wr->opcode == IBV_WR_BIND_MW)
			wr->bind_mw = random_bind();
		if (qp->qp_type == IBV_QPT_XRC_SEND)
			wr->qp_type.xrc.remote_srqn = srq_number();
		if (wr->send_flags & IBV_SEND_INLINE) {
			/* Inline data is read at once, by the caller's own right: it is there. */
			for (int j = 0; j < PIECES; j++)
				pieces[j] = (struct ibv_sge){ .addr = (uintptr_t)room + below(1024), .length = below(80) };
			wr->num_sge = wr->num_sge > 4 ? 4 : wr->num_sge;
		}
		wr->next = i + 1 < count ? &list[i + 1] : NULL;
	}
	error = outcome(ibv_post_send(qp, list, &bad));
	CHECK(error ? bad >= list && bad < list + count : bad == NULL);
	CHECK(error || (before != IBV_QPS_RESET && before != IBV_QPS_INIT && before != IBV_QPS_RTR));
}

static void queue_pairs(void)
{
	int i = below(QPS);
	static const int types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND };
	struct ibv_qp_init_attr init = {
		.send_cq = PICK(cqs), .recv_cq = PICK(cqs), .srq = one_in(3) ? PICK(srqs) : NULL,
		.cap = { .max_send_wr = 1 + below(16), .max_recv_wr = 1 + below(16), .max_send_sge = 1 + below(4),
			 .max_recv_sge = 1 + below(4), .max_inline_data = below(128) },
		.qp_type = PICK(types), .sq_sig_all = below(2),
	}, asked;
	struct ibv_pd *pd = PICK_OR_NULL(pds);
	int wrong = !pd || !init.send_cq || !init.recv_cq;

	if (!qps[i]) {
		struct ibv_qp_init_attr told;
		struct ibv_qp_attr attr;

		/* It has nothing to receive with. */
		if (init.qp_type == IBV_QPT_XRC_SEND)
			wrong = !pd || !init.send_cq || init.srq;
		if (one_in(8)) {
			init.cap = (struct ibv_qp_cap){ number(64), number(64), number(4), number(4), number(128) };
			wrong = -1;
		}
		if (one_in(16)) {
			init.qp_type = number(10);
			wrong = -1;
		}
		asked = init;
		operations[i] = 0;
		if (one_in(2)) {
			qps[i] = made(ibv_create_qp(pd, &init));
		} else {
			uint64_t wanted = operations_of(init.qp_type);
			struct ibv_qp_init_attr_ex extended = {
				.send_cq = init.send_cq, .recv_cq = init.recv_cq, .srq = init.srq, .cap = init.cap, .qp_type = init.qp_type,
				.sq_sig_all = init.sq_sig_all, .pd = pd, .send_ops_flags = wanted,
				.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			};

			if (one_in(16)) {
				extended.comp_mask ^= 1u << below(8);
				extended.send_ops_flags ^= 1ull << below(20);
				wrong = wrong == 1 && extended.comp_mask & IBV_QP_INIT_ATTR_PD ? 1 : -1;
				wanted = 0;
			}
			qps[i] = made(ibv_create_qp_ex(context, &extended));
			if (qps[i] && wanted)
				operations[i] = wanted;
		}
		CHECK(qps[i] ? wrong != 1 : wrong);
		if (qps[i]) {
			CHECK(qps[i]->pd == pd && qps[i]->state == IBV_QPS_RESET && qps[i]->qp_type == asked.qp_type);
			CHECK(outcome(ibv_query_qp(qps[i], &attr, any(), &told)) == 0);
			CHECK(told.cap.max_send_wr >= asked.cap.max_send_wr && told.cap.max_inline_data >= asked.cap.max_inline_data);
		}
		return;
	}
	switch (below(16)) {
	case 0:
		end_queue_pair(i);
		break;
	case 1 ... 2:
		change(qps[i]);
		break;
	case 3 ... 7:
		receives(qps[i], NULL);
		break;
	case 8 ... 9:
		posts(qps[i], operations[i]);
		break;
	default:
		sends(qps[i]);
	}
}

/* Two queue pairs of one type become a connected pair, so that much of what is posted also happens. */
static void pair(void)
{
	struct ibv_qp *one = PICK(qps), *two = PICK(qps);

	if (!one || !two || one->qp_type != two->qp_type)
		return;
	to_state(one, IBV_QPS_RESET);
	to_state(two, IBV_QPS_RESET);
	if (raise(one, two->qp_num) && one != two)
		raise(two, one->qp_num);
}

/* One completion after the other, read as far as was asked for. */
static void poll_extended(struct ibv_cq_ex *cq, uint64_t fields)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = one_in(8) ? number(8) : 0 };
	int error = outcome(ibv_start_poll(cq, &attr));

	CHECK(attr.comp_mask ? error == EINVAL : error == 0 || error == ENOENT);
	if (error)
		return;
	for (int left = below(17); error == 0 && left >= 0; left--) {
		completions++;
		CHECK(cq->status <= IBV_WC_TM_RNDV_INCOMPLETE);
		ibv_wc_read_opcode(cq);
		ibv_wc_read_vendor_err(cq);
		ibv_wc_read_wc_flags(cq);
		CHECK(!(fields & IBV_WC_EX_WITH_QP_NUM) || ibv_wc_read_qp_num(cq) < 1 << 24);
		CHECK(!(fields & IBV_WC_EX_WITH_SRC_QP) || ibv_wc_read_src_qp(cq) < 1 << 24);
		if (fields & IBV_WC_EX_WITH_BYTE_LEN)
			ibv_wc_read_byte_len(cq);
		if (fields & IBV_WC_EX_WITH_IMM)
			ibv_wc_read_imm_data(cq);
		error = outcome(ibv_next_poll(cq));
		CHECK(error == 0 || error == ENOENT);
	}
	ibv_end_poll(cq);
}

static void progress(void)
{
	struct ibv_wc wc[16];
	struct ibv_async_event event;
	int which = below(CQS);
	struct ibv_cq *cq = cqs[which];
	struct ibv_comp_channel *channel = PICK(channels);
	void *cookie;

	if (cq && extended[which] && !one_in(4)) {
		/* In the plain way it can be polled as well. */
		poll_extended((struct ibv_cq_ex *)cq, extended[which]);
	} else if (cq) {
		int wanted = one_in(16) ? -(int)below(100) : (int)below(17), got = ibv_poll_cq(cq, wanted, wc);

		calls++;
		CHECK(wanted < 0 ? got < 0 : got >= 0 && got <= wanted);
		for (int i = 0; i < got; i++) {
			completions++;
			CHECK(wc[i].status <= IBV_WC_TM_RNDV_INCOMPLETE && wc[i].qp_num < 1 << 24);
		}
	}
	if (channel && ibv_get_cq_event(channel, &cq, &cookie) == 0) {
		CHECK(cq && cq->channel == channel);
		ibv_ack_cq_events(cq, 1);
	}
	while (ibv_get_async_event(context, &event) == 0) {
		CHECK(strcmp(ibv_event_type_str(event.event_type), "unknown"));
		ibv_ack_async_event(&event);
	}
}

static void questions(void)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entries[4];
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	union ibv_gid gid;
	uint16_t pkey;
	int one = number(3);
	struct ibv_qp *qp = PICK(qps);

	outcome(ibv_query_port(context, one, &port));
	outcome(ibv_query_gid(context, one, number(4), &gid));
	outcome(ibv_query_pkey(context, one, number(4), &pkey));
	outcome(ibv_query_gid_ex(context, number(3), number(8), entries, number(1)));
	calls++;
	CHECK(ibv_query_gid_table(context, entries, below(5), number(1)) <= 4);
	CHECK(ibv_wc_status_str(any()) && ibv_event_type_str(any()) && ibv_node_type_str(any()) && ibv_port_state_str(any()));
	if (qp)
		CHECK(outcome(ibv_query_qp(qp, &attr, any(), &init)) == 0);
	/* NULL is no object of any kind. */
	CHECK(outcome(ibv_query_qp(NULL, &attr, 0, &init)) == EINVAL);
	CHECK(outcome(ibv_modify_qp(NULL, &attr, 0)) == EINVAL && outcome(ibv_destroy_qp(NULL)) == EINVAL);
	CHECK(outcome(ibv_dereg_mr(NULL)) == EINVAL && outcome(ibv_dealloc_pd(NULL)) == EINVAL);
	CHECK(outcome(ibv_destroy_cq(NULL)) == EINVAL && outcome(ibv_destroy_srq(NULL)) == EINVAL);
	CHECK(outcome(ibv_destroy_ah(NULL)) == EINVAL && outcome(ibv_resize_cq(NULL, 1)) == EINVAL);
}

/* The last call fails if anything of the model is wrong. */
static void end_all(void)
{
	end_newer();
	for (int i = 0; i < QPS; i++)
		CHECK(!qps[i] || ibv_destroy_qp(qps[i]) == 0);
	for (int i = 0; i < AHS; i++)
		CHECK(!ahs[i] || ibv_destroy_ah(ahs[i]) == 0);
	for (int i = 0; i < SRQS; i++)
		CHECK(!srqs[i] || ibv_destroy_srq(srqs[i]) == 0);
	for (int i = 0; i < CQS; i++)
		CHECK(!cqs[i] || ibv_destroy_cq(cqs[i]) == 0);
	for (int i = 0; i < CHANNELS; i++)
		CHECK(!channels[i] || ibv_destroy_comp_channel(channels[i]) == 0);
	for (int i = 0; i < MRS; i++)
		CHECK(!mrs[i] || ibv_dereg_mr(mrs[i]) == 0);
	for (int i = 0; i < PDS; i++)
		CHECK(!pds[i] || !extends[i] || ibv_dealloc_pd(pds[i]) == 0);
	for (int i = 0; i < PDS; i++)
		CHECK(!pds[i] || extends[i] || ibv_dealloc_pd(pds[i]) == 0);
	CHECK(!td || ibv_dealloc_td(td) == 0);
	CHECK(ibv_close_device(context) == 0);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, wanted = argc > 2 ? strtoull(argv[2], NULL, 0) : 20000;
	double end = argc > 3 ? seconds() + strtod(argv[3], NULL) : 0;
	unsigned char *arena = mmap(NULL, 2 * GUARD + ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	nothing = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(arena != MAP_FAILED && nothing != MAP_FAILED);
	room = arena + GUARD;
	memset(arena, 0xee, 2 * GUARD + ROOM);
	random_numbers.state = seed;
	context = open_first_device();
	CHECK(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	while (end ? seconds() < end : calls < wanted) {
		/* A call that does not return is an error, too. */
		alarm(120);
		switch (below(36)) {
		case 0 ... 2:
			memory();
			break;
		case 3 ... 4:
			queues();
			break;
		case 5:
			domains();
			break;
		case 6:
			shared_queues();
			break;
		case 7:
			addresses();
			break;
		case 8:
			questions();
			break;
		case 9 ... 10:
			pair();
			break;
		case 11 ... 18:
			progress();
			break;
		case 19 ... 22:
			newer();
			break;
		default:
			queue_pairs();
		}
		if (one_in(256)) {
			for (int i = 0; i < GUARD; i++)
				CHECK(arena[i] == 0xee && room[ROOM + i] == 0xee);
		}
	}
	alarm(120);
	end_all();
	printf("seed %llu: %llu calls, %llu refused, %llu completions\n", (unsigned long long)seed, (unsigned long long)calls,
	       (unsigned long long)refused, (unsigned long long)completions);
	return 0;
}

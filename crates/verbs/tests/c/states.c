/* Every state transition of each type of queue pair with every attribute, as InfiniBand volume 1, table 91, has them; what each
 * call leaves behind; values out of range (ibv_modify_qp(3), ibv_query_qp(3)). */
#include "connect.h"

#define STATES 7
/* CUR_STATE to DEST_QPN, and RATE_LIMIT. */
#define ALL_BITS (((IBV_QP_DEST_QPN << 1) - 1) | IBV_QP_RATE_LIMIT)

struct rule {
	int valid, required, optional;
};

static struct rule allowed(int required, int optional)
{
	return (struct rule){ 1, required, optional };
}

/* The table. */
static struct rule rule(enum ibv_qp_type type, int from, int to)
{
	int ud = type == IBV_QPT_UD, uc = type == IBV_QPT_UC, rc = type == IBV_QPT_RC;
	int access = IBV_QP_ACCESS_FLAGS, alternate = IBV_QP_ALT_PATH, migration = IBV_QP_PATH_MIG_STATE;
	int current = IBV_QP_CUR_STATE, rnr = IBV_QP_MIN_RNR_TIMER;
	int initial = IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : access);
	struct rule none = { 0 };

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return allowed(0, 0);
	switch (from * 10 + to) {
	case IBV_QPS_RESET * 10 + IBV_QPS_INIT:
		return allowed(initial, 0);
	case IBV_QPS_INIT * 10 + IBV_QPS_INIT:
		return allowed(0, initial);
	case IBV_QPS_INIT * 10 + IBV_QPS_RTR:
		if (ud)
			return allowed(0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
		return allowed(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | rnr : 0),
			       alternate | access | IBV_QP_PKEY_INDEX);
	case IBV_QPS_RTR * 10 + IBV_QPS_RTS:
		if (ud)
			return allowed(IBV_QP_SQ_PSN, current | IBV_QP_QKEY);
		if (uc)
			return allowed(IBV_QP_SQ_PSN, current | alternate | access | migration);
		return allowed(IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
			       current | alternate | access | migration | rnr);
	case IBV_QPS_RTS * 10 + IBV_QPS_RTS:
	case IBV_QPS_SQD * 10 + IBV_QPS_RTS:
		return allowed(0, ud ? current | IBV_QP_QKEY : current | alternate | access | migration | (rc ? rnr : 0));
	case IBV_QPS_RTS * 10 + IBV_QPS_SQD:
		return allowed(0, IBV_QP_EN_SQD_ASYNC_NOTIFY);
	case IBV_QPS_SQD * 10 + IBV_QPS_SQD:
		if (ud)
			return allowed(0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
		if (uc)
			return allowed(0, IBV_QP_AV | alternate | access | IBV_QP_PKEY_INDEX | migration);
		return allowed(0, IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | alternate | access |
					  IBV_QP_PKEY_INDEX | rnr | migration);
	case IBV_QPS_SQE * 10 + IBV_QPS_RTS:
		if (rc)
			return none;
		return allowed(0, current | (ud ? IBV_QP_QKEY : access));
	}
	return none;
}

/* A send that fails at its own side stops only the send queue of UC and UD. */
static void to_send_queue_error(struct ibv_qp *qp, struct ibv_ah *ah)
{
	struct ibv_sge nothing = { .addr = 4096, .length = 8, .lkey = 0 };
	struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_SEND, .sg_list = &nothing, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	poll_all(qp->send_cq, 1, &wc);
	CHECK(wc.wr_id == 5 && wc.status == IBV_WC_LOC_PROT_ERR && wc.qp_num == qp->qp_num);
	CHECK(state_of(qp) == IBV_QPS_SQE && qp->state == IBV_QPS_SQE);
}

/* Brings a queue pair into a state, from RESET. */
static void bring(struct ibv_qp *qp, int state, struct ibv_ah *ah)
{
	to_state(qp, IBV_QPS_RESET);
	if (state == IBV_QPS_RESET)
		return;
	if (state == IBV_QPS_ERR) {
		to_state(qp, IBV_QPS_ERR);
		return;
	}
	to_open_init(qp);
	if (state == IBV_QPS_INIT)
		return;
	to_rtr(qp, qp->qp_num);
	if (state == IBV_QPS_RTR)
		return;
	to_rts(qp);
	if (state == IBV_QPS_SQD)
		to_state(qp, IBV_QPS_SQD);
	if (state == IBV_QPS_SQE)
		to_send_queue_error(qp, ah);
}

static struct ibv_qp_attr changed_attributes(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = usual_attributes(qp->context, qp->qp_num);

	attr.path_mtu = IBV_MTU_512;
	attr.qkey = 0x777;
	attr.rq_psn = 0x123456;
	attr.sq_psn = 0x654321;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	attr.ah_attr.grh.traffic_class = 32;
	attr.max_rd_atomic = 3;
	attr.max_dest_rd_atomic = 5;
	attr.min_rnr_timer = 7;
	attr.timeout = 13;
	attr.retry_cnt = 6;
	attr.rnr_retry = 5;
	attr.path_mig_state = IBV_MIG_MIGRATED;
	attr.alt_port_num = 1;
	attr.cap.max_send_wr = 4;
	return attr;
}

/* What was given is there; what was not given is what it was. */
static void compare(const struct ibv_qp_attr *now, const struct ibv_qp_attr *before, const struct ibv_qp_attr *given, int mask)
{
#define SAME(bit, field) CHECK(now->field == (mask & (bit) ? given : before)->field)
	SAME(IBV_QP_PATH_MTU, path_mtu);
	SAME(IBV_QP_QKEY, qkey);
	SAME(IBV_QP_RQ_PSN, rq_psn);
	SAME(IBV_QP_SQ_PSN, sq_psn);
	SAME(IBV_QP_DEST_QPN, dest_qp_num);
	SAME(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	SAME(IBV_QP_PKEY_INDEX, pkey_index);
	SAME(IBV_QP_PORT, port_num);
	SAME(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	SAME(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	SAME(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	SAME(IBV_QP_TIMEOUT, timeout);
	SAME(IBV_QP_RETRY_CNT, retry_cnt);
	SAME(IBV_QP_RNR_RETRY, rnr_retry);
	SAME(IBV_QP_AV, ah_attr.grh.traffic_class);
	SAME(IBV_QP_AV, ah_attr.grh.hop_limit);
	SAME(IBV_QP_AV, ah_attr.is_global);
	CHECK(memcmp(&now->ah_attr.grh.dgid, &(mask & IBV_QP_AV ? given : before)->ah_attr.grh.dgid, 16) == 0);
#undef SAME
}

static void attempt(struct ibv_qp *qp, int from, int to, int mask, int expected, struct ibv_ah *ah)
{
	struct ibv_qp_attr before, now, given = changed_attributes(qp);
	struct ibv_qp_init_attr init;
	int error;

	if ((int)state_of(qp) != from)
		bring(qp, from, ah);
	CHECK(ibv_query_qp(qp, &before, 0, &init) == 0 && (int)before.qp_state == from);
	given.qp_state = to;
	given.cur_qp_state = from;
	error = ibv_modify_qp(qp, &given, mask | IBV_QP_STATE);
	if (error != expected) {
		fprintf(stderr, "type %d, %d to %d, mask %x: %d instead of %d\n", qp->qp_type, from, to, mask, error, expected);
		exit(1);
	}
	CHECK(ibv_query_qp(qp, &now, 0, &init) == 0);
	if (error) {
		CHECK((int)now.qp_state == from && (int)qp->state == from);
		compare(&now, &before, &given, 0);
		return;
	}
	CHECK((int)now.qp_state == to && (int)qp->state == to && (int)now.cur_qp_state == to);
	if (to != IBV_QPS_RESET)
		compare(&now, &before, &given, mask);
	bring(qp, from, ah);
}

static void every_transition(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_ah_attr ah_attr = to_own_host(pd->context);
	struct ibv_ah *ah = ibv_create_ah(pd, &ah_attr);
	struct ibv_qp_init_attr init = plain_attributes(cq, type);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp && ah);
	for (int from = 0; from < STATES; from++) {
		if (from == IBV_QPS_SQE && type == IBV_QPT_RC)
			continue;
		for (int to = 0; to < STATES; to++) {
			struct rule rule_here = rule(type, from, to);

			if (!rule_here.valid) {
				attempt(qp, from, to, 0, EINVAL, ah);
				continue;
			}
			attempt(qp, from, to, rule_here.required, 0, ah);
			for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
				int expected = rule_here.optional & bit ? 0 : EINVAL;

				if (!(bit & ALL_BITS)) {
					attempt(qp, from, to, rule_here.required | bit, EINVAL, ah);
					continue;
				}
				if (rule_here.required & bit) {
					attempt(qp, from, to, rule_here.required & ~bit, EINVAL, ah);
					continue;
				}
				if (bit == IBV_QP_ALT_PATH && expected == 0)
					expected = EOPNOTSUPP;
				attempt(qp, from, to, rule_here.required | bit, expected, ah);
			}
			attempt(qp, from, to, rule_here.required | (rule_here.optional & ~IBV_QP_ALT_PATH), 0, ah);
		}
	}
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_ah(ah) == 0);
}

/* A wrong value among right ones: refused, and nothing is changed. */
#define WRONG(to, bits, field, value, error)                                                  \
	do {                                                                                  \
		struct ibv_qp_attr attr_ = usual_attributes(pd->context, qp->qp_num);         \
		enum ibv_qp_state from_ = state_of(qp);                                       \
		attr_.qp_state = (to);                                                        \
		attr_.field = (value);                                                        \
		CHECK(ibv_modify_qp(qp, &attr_, (bits)) == (error));                          \
		CHECK(state_of(qp) == from_ && qp->state == from_);                           \
	} while (0)

static void values_out_of_range(struct ibv_pd *pd, struct ibv_cq *cq)
{
	int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_device_attr device;
	struct ibv_port_attr port;

	CHECK(qp && ibv_query_device(pd->context, &device) == 0 && ibv_query_port(pd->context, 1, &port) == 0);
	WRONG(IBV_QPS_INIT, init_mask, port_num, 0, EINVAL);
	WRONG(IBV_QPS_INIT, init_mask, port_num, 2, EINVAL);
	WRONG(IBV_QPS_INIT, init_mask, pkey_index, 1, EINVAL);
	WRONG(IBV_QPS_INIT, init_mask, pkey_index, 0xffff, EINVAL);
	WRONG(IBV_QPS_INIT, init_mask, qp_access_flags, 1 << 15, EINVAL);
	WRONG(IBV_QPS_UNKNOWN, init_mask, port_num, 1, EINVAL);
	WRONG(-1, init_mask, port_num, 1, EINVAL);
	CHECK(ibv_modify_qp(qp, NULL, IBV_QP_STATE) == EINVAL);
	to_open_init(qp);
	WRONG(IBV_QPS_RTR, RTR_MASK(IBV_QPT_RC), path_mtu, 0, EINVAL);
	WRONG(IBV_QPS_RTR, RTR_MASK(IBV_QPT_RC), path_mtu, 6, EINVAL);
	CHECK(port.max_mtu == IBV_MTU_4096);
	WRONG(IBV_QPS_RTR, RTR_MASK(IBV_QPT_RC), dest_qp_num, 1 << 24, EINVAL);
	WRONG(IBV_QPS_RTR, RTR_MASK(IBV_QPT_RC), min_rnr_timer, 32, EINVAL);
	WRONG(IBV_QPS_RTR, RTR_MASK(IBV_QPT_RC), max_dest_rd_atomic, device.max_qp_rd_atom + 1, EINVAL);
	WRONG(IBV_QPS_RTR, RTR_MASK(IBV_QPT_RC), ah_attr.is_global, 0, EINVAL);
	WRONG(IBV_QPS_RTR, RTR_MASK(IBV_QPT_RC), ah_attr.port_num, 2, EINVAL);
	WRONG(IBV_QPS_RTR, RTR_MASK(IBV_QPT_RC), ah_attr.grh.sgid_index, 255, EINVAL);
	to_rtr(qp, qp->qp_num);
	WRONG(IBV_QPS_RTS, RTS_MASK(IBV_QPT_RC), timeout, 32, EINVAL);
	WRONG(IBV_QPS_RTS, RTS_MASK(IBV_QPT_RC), retry_cnt, 8, EINVAL);
	WRONG(IBV_QPS_RTS, RTS_MASK(IBV_QPT_RC), rnr_retry, 8, EINVAL);
	WRONG(IBV_QPS_RTS, RTS_MASK(IBV_QPT_RC), max_rd_atomic, device.max_qp_init_rd_atom + 1, EINVAL);
	WRONG(IBV_QPS_RTS, RTS_MASK(IBV_QPT_RC) | IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_SQD, EINVAL);
	WRONG(IBV_QPS_RTS, RTS_MASK(IBV_QPT_RC) | IBV_QP_PATH_MIG_STATE, path_mig_state, IBV_MIG_ARMED, EOPNOTSUPP);
	WRONG(IBV_QPS_RTS, RTS_MASK(IBV_QPT_RC) | IBV_QP_PATH_MIG_STATE, path_mig_state, 3, EINVAL);
	to_rts(qp);
	CHECK(state_of(qp) == IBV_QPS_RTS);
	to_state(qp, IBV_QPS_SQD);
	/* A connection does not move to another host. */
	WRONG(IBV_QPS_SQD, IBV_QP_STATE | IBV_QP_AV, ah_attr.grh.dgid.raw[15], 77, EOPNOTSUPP);
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* While a message is under way the queue is draining; what is posted meanwhile waits for RTS. */
static void draining(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *one, *two;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 }, now;
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr receive = { .wr_id = 9 }, *bad_receive;
	struct ibv_async_event event;
	struct ibv_wc wc[2];

	init.sq_sig_all = 1;
	one = ibv_create_qp(pd, &init);
	two = ibv_create_qp(pd, &init);
	CHECK(one && two);
	connect_pair(one, two);
	/* No receive is there: the message is sent again and again. */
	CHECK(ibv_post_send(one, &wr, &bad) == 0);
	poll_none(cq);
	CHECK(ibv_modify_qp(one, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
	wr.wr_id = 2;
	CHECK(ibv_post_send(one, &wr, &bad) == 0);
	poll_none(cq);
	CHECK(ibv_query_qp(one, &now, IBV_QP_STATE, &init) == 0);
	CHECK(now.qp_state == IBV_QPS_SQD && now.sq_draining == 1);
	CHECK(ibv_post_recv(two, &receive, &bad_receive) == 0 && ibv_post_recv(two, &receive, &bad_receive) == 0);
	poll_all(cq, 2, wc);
	CHECK(wc[0].status == 0 && wc[1].status == 0 && wc[0].wr_id + wc[1].wr_id == 10);
	do {
		CHECK(ibv_get_async_event(pd->context, &event) == 0);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST);
	CHECK(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == one);
	CHECK(ibv_query_qp(one, &now, IBV_QP_STATE, &init) == 0 && now.sq_draining == 0);
	poll_none(cq);
	to_state(one, IBV_QPS_RTS);
	poll_all(cq, 2, wc);
	CHECK(wc[0].status == 0 && wc[1].status == 0 && wc[0].wr_id + wc[1].wr_id == 11);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
}

/* The drained event comes once for each draining that asks for it, for every type. */
static void drained(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = plain_attributes(cq, type);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 }, now;
	struct ibv_async_event event;

	CHECK(qp);
	to_open_init(qp);
	to_rtr(qp, qp->qp_num);
	to_rts(qp);
	for (int i = 0; i < 2; i++) {
		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
		CHECK(ibv_get_async_event(pd->context, &event) == 0);
		CHECK(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == qp);
		ibv_ack_async_event(&event);
		CHECK(ibv_query_qp(qp, &now, IBV_QP_STATE, &init) == 0);
		CHECK(now.qp_state == IBV_QPS_SQD && now.sq_draining == 0);
		to_state(qp, IBV_QPS_RTS);
	}
	/* Not asked for this time: the next event is the one of the next draining that asks. */
	to_state(qp, IBV_QPS_SQD);
	poll_none(cq);
	to_state(qp, IBV_QPS_RTS);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
	CHECK(ibv_get_async_event(pd->context, &event) == 0);
	ibv_ack_async_event(&event);
	CHECK(ibv_destroy_qp(qp) == 0);
}

int main(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);

	alarm(120);
	CHECK(pd && cq);
	for (int i = 0; i < 3; i++) {
		every_transition(pd, cq, types[i]);
		drained(pd, cq, types[i]);
	}
	draining(pd, cq);
	values_out_of_range(pd, cq);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}

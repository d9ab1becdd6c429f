/* Slots of the send queue: a signaled request keeps its slot until its completion is polled, an unsignaled one until it completes
 * (so do adapters). A program that polls only when ibv_post_send(3) gives ENOMEM never overruns its completion queue. */
#include "connect.h"

#define SLOTS 16
#define CQ_ENTRIES 64
#define ROUNDS 500

static char source[64], target[64];

struct ends {
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *one, *two;
	struct ibv_mr *from, *to;
	struct ibv_ah *ah;
	enum ibv_wr_opcode opcode;
};

static struct ends make(struct ibv_context *context, enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	struct ends e = { .pd = ibv_alloc_pd(context), .opcode = opcode };
	struct ibv_ah_attr to = to_own_host(context);
	struct ibv_qp_init_attr init;

	e.send_cq = ibv_create_cq(context, CQ_ENTRIES, NULL, NULL, 0);
	e.recv_cq = ibv_create_cq(context, CQ_ENTRIES, NULL, NULL, 0);
	CHECK(e.pd && e.send_cq && e.recv_cq);
	init = plain_attributes(e.send_cq, type);
	init.recv_cq = e.recv_cq;
	init.cap.max_send_wr = SLOTS;
	init.cap.max_recv_wr = CQ_ENTRIES;
	e.one = ibv_create_qp(e.pd, &init);
	e.two = ibv_create_qp(e.pd, &init);
	e.from = ibv_reg_mr(e.pd, source, sizeof(source), ALL_ACCESS);
	e.to = ibv_reg_mr(e.pd, target, sizeof(target), ALL_ACCESS);
	e.ah = ibv_create_ah(e.pd, &to);
	CHECK(e.one && e.two && e.from && e.to && e.ah && init.cap.max_send_wr == SLOTS);
	connect_pair(e.one, e.two);
	return e;
}

static void destroy(struct ends *e)
{
	CHECK(ibv_destroy_qp(e->one) == 0 && ibv_destroy_qp(e->two) == 0);
	CHECK(ibv_destroy_cq(e->send_cq) == 0 && ibv_destroy_cq(e->recv_cq) == 0);
	CHECK(ibv_destroy_ah(e->ah) == 0 && ibv_dereg_mr(e->from) == 0 && ibv_dereg_mr(e->to) == 0);
	CHECK(ibv_dealloc_pd(e->pd) == 0);
}

static int post(struct ends *e, uint64_t id, int flags)
{
	struct ibv_sge sge = { .addr = (uintptr_t)source, .length = 16, .lkey = e->from->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = e->opcode, .sg_list = &sge, .num_sge = 1, .send_flags = flags }, *bad = NULL;
	int error;

	if (e->opcode == IBV_WR_SEND && e->one->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = e->two->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)target;
		wr.wr.rdma.rkey = e->to->rkey;
		if (e->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			sge.length = 8;
			wr.wr.atomic.remote_addr = (uintptr_t)target;
			wr.wr.atomic.rkey = e->to->rkey;
		}
	}
	error = ibv_post_send(e->one, &wr, &bad);
	CHECK(error == 0 || (error == ENOMEM && bad == &wr));
	return error;
}

/* A SEND needs a receive. */
static void serve(struct ends *e)
{
	struct ibv_sge sge = { .addr = (uintptr_t)target, .length = sizeof(target), .lkey = e->to->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc[8];

	if (e->opcode != IBV_WR_SEND || e->one->qp_type == IBV_QPT_UD)
		return;
	while (ibv_post_recv(e->two, &wr, &bad) == 0)
		;
	CHECK(ibv_poll_cq(e->recv_cq, 8, wc) >= 0);
}

/* As many requests as there are slots. */
static void fill(struct ends *e)
{
	for (int i = 0; i < SLOTS; i++) {
		serve(e);
		CHECK(post(e, i, IBV_SEND_SIGNALED) == 0);
	}
}

/* Completions that are not polled hold their slots, each one that is polled gives one back. */
static void unpolled(struct ibv_context *context, enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	struct ends e = make(context, type, opcode);
	struct ibv_wc wc[SLOTS];

	fill(&e);
	for (int i = 0; i < 100; i++) {
		serve(&e);
		usleep(100);
		CHECK(post(&e, 99, IBV_SEND_SIGNALED) == ENOMEM);
		CHECK(post(&e, 99, 0) == ENOMEM);
	}
	for (int i = 0; i < 3 * SLOTS; i++) {
		poll_all(e.send_cq, 1, wc);
		CHECK(wc[0].status == 0 && wc[0].wr_id == (uint64_t)i);
		serve(&e);
		CHECK(post(&e, SLOTS + i, IBV_SEND_SIGNALED) == 0);
		CHECK(post(&e, 99, IBV_SEND_SIGNALED) == ENOMEM);
	}
	/* RESET forgets them. */
	poll_all(e.send_cq, 1, wc);
	to_state(e.one, IBV_QPS_RESET);
	to_state(e.two, IBV_QPS_RESET);
	connect_pair(e.one, e.two);
	fill(&e);
	poll_all(e.send_cq, SLOTS, wc);
	CHECK(wc[0].wr_id == 0 && wc[SLOTS - 1].wr_id == SLOTS - 1);
	/* So are requests that are flushed. */
	to_state(e.one, IBV_QPS_ERR);
	for (int i = 0; i < SLOTS; i++)
		CHECK(post(&e, i, 0) == 0);
	CHECK(post(&e, 99, 0) == ENOMEM);
	poll_all(e.send_cq, SLOTS, wc);
	CHECK(wc[SLOTS - 1].status == IBV_WC_WR_FLUSH_ERR && post(&e, 99, 0) == 0);
	destroy(&e);
}

/* An unsignaled request's slot is free when it has completed, without a poll. */
static void unsignaled(struct ibv_context *context, enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	struct ends e = make(context, type, opcode);
	double end = seconds() + PATIENCE_SECONDS;
	struct ibv_wc wc;

	for (int i = 0; i < 10 * SLOTS; i++) {
		while (post(&e, i, 0) == ENOMEM) {
			serve(&e);
			CHECK(ibv_poll_cq(e.recv_cq, 1, &wc) >= 0 && seconds() < end);
		}
	}
	CHECK(ibv_poll_cq(e.send_cq, 1, &wc) == 0);
	destroy(&e);
}

static void polls_only_when_full(struct ibv_context *context, enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	struct ends e = make(context, type, opcode);
	struct ibv_wc wc[CQ_ENTRIES];
	int posted = 0, polled = 0, got;
	double end = seconds() + PATIENCE_SECONDS;

	while (posted < ROUNDS || polled < posted) {
		serve(&e);
		if (posted < ROUNDS && post(&e, posted, IBV_SEND_SIGNALED) == 0) {
			posted++;
			continue;
		}
		got = ibv_poll_cq(e.send_cq, CQ_ENTRIES, wc);
		CHECK(got >= 0 && got <= SLOTS && seconds() < end);
		for (int i = 0; i < got; i++)
			CHECK(wc[i].status == 0 && wc[i].wr_id == (uint64_t)polled++);
	}
	CHECK(state_of(e.one) == IBV_QPS_RTS);
	destroy(&e);
}

/* Two queue pairs whose completions wait in one queue: each has its slots. */
static void shared_queue(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, IBV_WR_RDMA_WRITE), back = e;
	struct ibv_wc wc[2 * SLOTS];
	int of_one = 0;

	back.one = e.two;
	for (int round = 0; round < 3; round++) {
		fill(&e);
		fill(&back);
		CHECK(post(&e, 99, IBV_SEND_SIGNALED) == ENOMEM && post(&back, 99, IBV_SEND_SIGNALED) == ENOMEM);
		poll_all(e.send_cq, SLOTS / 2, wc);
		for (int i = 0; i < SLOTS / 2; i++)
			of_one += wc[i].qp_num == e.one->qp_num;
		for (int i = 0; i < of_one; i++)
			CHECK(post(&e, SLOTS + i, IBV_SEND_SIGNALED) == 0);
		for (int i = of_one; i < SLOTS / 2; i++)
			CHECK(post(&back, SLOTS + i, IBV_SEND_SIGNALED) == 0);
		CHECK(post(&e, 99, IBV_SEND_SIGNALED) == ENOMEM && post(&back, 99, IBV_SEND_SIGNALED) == ENOMEM);
		poll_all(e.send_cq, 2 * SLOTS, wc);
		of_one = 0;
	}
	CHECK(ibv_poll_cq(e.send_cq, 1, wc) == 0);
	destroy(&e);
}

/* What a destroyed queue pair has left in the completion queue is polled, and holds no slot of a later one with its number. */
static void outlived(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, IBV_WR_RDMA_WRITE);
	struct ibv_qp_init_attr init;
	struct ibv_wc wc[CQ_ENTRIES];
	uint32_t number = e.one->qp_num;
	int found;

	fill(&e);
	poll_all(e.send_cq, 1, wc);
	CHECK(ibv_destroy_qp(e.one) == 0);
	/* The numbers of queue pairs come back in the end. */
	for (int i = 0;; i++) {
		init = plain_attributes(e.send_cq, IBV_QPT_RC);
		init.recv_cq = e.recv_cq;
		init.cap.max_send_wr = SLOTS;
		e.one = ibv_create_qp(e.pd, &init);
		CHECK(e.one && i < 2000);
		if (e.one->qp_num == number)
			break;
		CHECK(ibv_destroy_qp(e.one) == 0);
	}
	to_state(e.two, IBV_QPS_RESET);
	connect_pair(e.one, e.two);
	fill(&e);
	CHECK(post(&e, 99, IBV_SEND_SIGNALED) == ENOMEM);
	/* The last of the later one's; those that were left are fewer than SLOTS. */
	for (found = 0; found < SLOTS || wc[0].wr_id != SLOTS - 1; found++)
		poll_all(e.send_cq, 1, wc);
	CHECK(found <= 2 * SLOTS - 1);
	fill(&e);
	CHECK(post(&e, 99, IBV_SEND_SIGNALED) == ENOMEM);
	poll_all(e.send_cq, SLOTS, wc);
	destroy(&e);
}

int main(void)
{
	static const struct {
		enum ibv_qp_type type;
		enum ibv_wr_opcode opcode;
	} runs[] = {
		{ IBV_QPT_RC, IBV_WR_RDMA_WRITE }, { IBV_QPT_RC, IBV_WR_RDMA_READ }, { IBV_QPT_RC, IBV_WR_SEND },
		{ IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD }, { IBV_QPT_UC, IBV_WR_RDMA_WRITE }, { IBV_QPT_UD, IBV_WR_SEND },
	};
	struct ibv_context *context = open_first_device();

	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		unpolled(context, runs[i].type, runs[i].opcode);
		unsignaled(context, runs[i].type, runs[i].opcode);
		polls_only_when_full(context, runs[i].type, runs[i].opcode);
	}
	shared_queue(context);
	outlived(context);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

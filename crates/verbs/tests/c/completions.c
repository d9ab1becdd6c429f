/* What completions say, in what order they come, and who is told of them: sends, receives, immediate data, inline data, lists with
 * a bad request in them, flushes, datagrams (ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3), ibv_req_notify_cq(3)). */
#include "connect.h"

#include <fcntl.h>
#include <poll.h>

#define SIZE 65536
static char source[SIZE], target[SIZE];

struct ends {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *one, *two;
	struct ibv_mr *from, *to;
};

static struct ends make(struct ibv_context *context, enum ibv_qp_type type, int signal_all)
{
	struct ends e = { .pd = ibv_alloc_pd(context), .channel = ibv_create_comp_channel(context) };
	struct ibv_qp_init_attr init;

	e.send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	e.recv_cq = ibv_create_cq(context, 64, NULL, e.channel, 0);
	CHECK(e.pd && e.channel && e.send_cq && e.recv_cq);
	CHECK(fcntl(e.channel->fd, F_SETFL, fcntl(e.channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	init = plain_attributes(e.send_cq, type);
	init.recv_cq = e.recv_cq;
	init.cap.max_send_wr = init.cap.max_recv_wr = 16;
	init.sq_sig_all = signal_all;
	e.one = ibv_create_qp(e.pd, &init);
	e.two = ibv_create_qp(e.pd, &init);
	e.from = ibv_reg_mr(e.pd, source, SIZE, ALL_ACCESS);
	e.to = ibv_reg_mr(e.pd, target, SIZE, ALL_ACCESS);
	CHECK(e.one && e.two && e.from && e.to);
	for (int i = 0; i < SIZE; i++)
		source[i] = i * 7 + i / 251 + 1;
	memset(target, 0, SIZE);
	connect_pair(e.one, e.two);
	return e;
}

static void destroy(struct ends *e)
{
	if (e->one)
		CHECK(ibv_destroy_qp(e->one) == 0);
	CHECK(ibv_destroy_qp(e->two) == 0);
	CHECK(ibv_destroy_cq(e->send_cq) == 0 && ibv_destroy_cq(e->recv_cq) == 0);
	CHECK(ibv_destroy_comp_channel(e->channel) == 0);
	CHECK(ibv_dereg_mr(e->from) == 0 && ibv_dereg_mr(e->to) == 0 && ibv_dealloc_pd(e->pd) == 0);
}

static struct ibv_sge piece_of(struct ibv_mr *mr, size_t offset, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)mr->addr + offset, .length = length, .lkey = mr->lkey };
}

static void receive(struct ends *e, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = piece_of(e->to, offset, length);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(e->two, &wr, &bad) == 0);
}

static int post(struct ends *e, uint64_t id, enum ibv_wr_opcode opcode, struct ibv_sge *sge, int count, int flags)
{
	struct ibv_send_wr wr = { .wr_id = id, .opcode = opcode, .sg_list = sge, .num_sge = count, .send_flags = flags }, *bad = NULL;
	int error;

	wr.imm_data = htobe32(0x01020304);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)target;
		wr.wr.atomic.rkey = e->to->rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 9;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)target + 4096;
		wr.wr.rdma.rkey = e->to->rkey;
	}
	error = ibv_post_send(e->one, &wr, &bad);
	CHECK(error == 0 || bad == &wr);
	return error;
}

static void is_plain(const struct ibv_wc *wc)
{
	CHECK(wc->slid == 0 && wc->sl == 0 && wc->dlid_path_bits == 0 && wc->pkey_index == 0 && wc->vendor_err == 0);
}

/* Fields of each kind of completion of a connection. */
static void fields(struct ibv_context *context, enum ibv_qp_type type)
{
	struct ends e = make(context, type, 0);
	struct ibv_sge pieces[2] = { piece_of(e.from, 0, 100), piece_of(e.from, 100, 200) };
	struct ibv_sge into = piece_of(e.from, 8192, 300), word = piece_of(e.from, 16384, 8);
	struct ibv_wc wc[4];
	uint64_t value = 5;

	receive(&e, 1, 0, 1000);
	CHECK(post(&e, 2, IBV_WR_SEND, pieces, 2, IBV_SEND_SIGNALED) == 0);
	poll_all(e.send_cq, 1, wc);
	CHECK(wc[0].wr_id == 2 && wc[0].status == 0 && wc[0].opcode == IBV_WC_SEND && wc[0].qp_num == e.one->qp_num);
	CHECK(wc[0].wc_flags == 0);
	is_plain(wc);
	poll_all(e.recv_cq, 1, wc);
	CHECK(wc[0].wr_id == 1 && wc[0].status == 0 && wc[0].opcode == IBV_WC_RECV && wc[0].byte_len == 300);
	CHECK(wc[0].qp_num == e.two->qp_num && wc[0].wc_flags == 0);
	is_plain(wc);
	CHECK(memcmp(source, target, 300) == 0 && target[300] == 0);

	receive(&e, 3, 0, 1000);
	CHECK(post(&e, 4, IBV_WR_SEND_WITH_IMM, pieces, 1, IBV_SEND_SIGNALED) == 0);
	poll_all(e.send_cq, 1, wc);
	poll_all(e.recv_cq, 1, wc + 1);
	CHECK(wc[0].opcode == IBV_WC_SEND && wc[1].opcode == IBV_WC_RECV && wc[1].byte_len == 100);
	CHECK(wc[1].wc_flags == IBV_WC_WITH_IMM && wc[1].imm_data == htobe32(0x01020304));

	/* A WRITE with immediate: the length is the WRITE's, the receive's buffer stays untouched. */
	memset(target, 0, SIZE);
	receive(&e, 5, 0, 10);
	CHECK(post(&e, 6, IBV_WR_RDMA_WRITE_WITH_IMM, pieces, 2, IBV_SEND_SIGNALED) == 0);
	poll_all(e.send_cq, 1, wc);
	poll_all(e.recv_cq, 1, wc + 1);
	CHECK(wc[0].opcode == IBV_WC_RDMA_WRITE && wc[1].opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc[1].byte_len == 300);
	CHECK(wc[1].wr_id == 5 && wc[1].wc_flags == IBV_WC_WITH_IMM && wc[1].imm_data == htobe32(0x01020304));
	CHECK(memcmp(source, target + 4096, 300) == 0 && target[0] == 0);

	/* Nothing at all, and pieces of no length among others. */
	receive(&e, 7, 0, 0);
	CHECK(post(&e, 8, IBV_WR_SEND, NULL, 0, IBV_SEND_SIGNALED) == 0);
	poll_all(e.send_cq, 1, wc);
	poll_all(e.recv_cq, 1, wc + 1);
	CHECK(wc[0].status == 0 && wc[1].status == 0 && wc[1].byte_len == 0);
	pieces[0].length = 0;
	receive(&e, 9, 0, 200);
	CHECK(post(&e, 10, IBV_WR_SEND, pieces, 2, IBV_SEND_SIGNALED) == 0);
	poll_all(e.send_cq, 1, wc);
	poll_all(e.recv_cq, 1, wc + 1);
	CHECK(wc[0].status == 0 && wc[1].byte_len == 200 && memcmp(target, source + 100, 200) == 0);

	if (type == IBV_QPT_RC) {
		CHECK(post(&e, 11, IBV_WR_RDMA_READ, &into, 1, IBV_SEND_SIGNALED) == 0);
		poll_all(e.send_cq, 1, wc);
		CHECK(wc[0].opcode == IBV_WC_RDMA_READ && wc[0].byte_len == 300);
		CHECK(memcmp(source + 8192, target + 4096, 300) == 0);
		memcpy(target, &value, 8);
		CHECK(post(&e, 12, IBV_WR_ATOMIC_CMP_AND_SWP, &word, 1, IBV_SEND_SIGNALED) == 0);
		poll_all(e.send_cq, 1, wc);
		CHECK(wc[0].opcode == IBV_WC_COMP_SWAP && wc[0].byte_len == 8);
		CHECK(memcmp(source + 16384, &value, 8) == 0 && *(uint64_t *)target == 9);
		CHECK(post(&e, 13, IBV_WR_ATOMIC_FETCH_AND_ADD, &word, 1, IBV_SEND_SIGNALED) == 0);
		poll_all(e.send_cq, 1, wc);
		CHECK(wc[0].opcode == IBV_WC_FETCH_ADD && wc[0].byte_len == 8 && *(uint64_t *)target == 14);
	} else {
		CHECK(post(&e, 11, IBV_WR_RDMA_READ, &into, 1, 0) == EINVAL);
		CHECK(post(&e, 12, IBV_WR_ATOMIC_FETCH_AND_ADD, &word, 1, 0) == EINVAL);
		CHECK(post(&e, 13, IBV_WR_SEND_WITH_INV, &word, 1, 0) == EINVAL);
	}
	destroy(&e);
}

/* What pagewire(7) says of requests that adapters answer in different ways. */
static void peculiar(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_sge pieces[2] = { piece_of(e.from, 16384, 4), piece_of(e.from, 16400, 20) };
	struct ibv_qp_attr attr = usual_attributes(context, e.two->qp_num);
	static const char expected[] = "abcd____________efgh________________";
	struct ibv_wc wc[2];

	/* Of more than 8 bytes an atomic writes the first 8. */
	memset(source + 16384, '_', sizeof(expected));
	memcpy(target, "abcdefgh", 8);
	CHECK(post(&e, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, pieces, 2, 0) == 0);
	poll_all(e.send_cq, 1, wc);
	CHECK(wc[0].status == 0 && wc[0].byte_len == 8);
	CHECK(memcmp(source + 16384, expected, sizeof(expected) - 1) == 0 && target[0] == 'a' + 5);
	pieces[1].length = 3;
	CHECK(post(&e, 2, IBV_WR_ATOMIC_FETCH_AND_ADD, pieces, 2, 0) == EINVAL);

	/* No key may be invalidated by a peer. */
	receive(&e, 3, 0, 100);
	CHECK(post(&e, 4, IBV_WR_SEND_WITH_INV, pieces, 1, 0) == 0);
	poll_all(e.send_cq, 1, wc);
	poll_all(e.recv_cq, 1, wc + 1);
	CHECK(wc[0].wr_id == 4 && wc[0].status == IBV_WC_REM_ACCESS_ERR);
	CHECK(wc[1].wr_id == 3 && wc[1].status == IBV_WC_REM_INV_REQ_ERR);
	CHECK(state_of(e.one) == IBV_QPS_ERR && state_of(e.two) == IBV_QPS_ERR);

	/* Who may have no READ outstanding can post none. */
	to_state(e.one, IBV_QPS_RESET);
	to_open_init(e.one);
	to_rtr(e.one, e.two->qp_num);
	attr.qp_state = IBV_QPS_RTS;
	attr.max_rd_atomic = 0;
	CHECK(ibv_modify_qp(e.one, &attr, RTS_MASK(IBV_QPT_RC)) == 0);
	pieces[1].length = 4;
	CHECK(post(&e, 5, IBV_WR_RDMA_READ, pieces, 2, 0) == EINVAL);
	CHECK(post(&e, 6, IBV_WR_ATOMIC_CMP_AND_SWP, pieces, 2, 0) == EINVAL);
	poll_none(e.send_cq);
	destroy(&e);
}

/* Inline data is the caller's again when the call returns, may be of no region, and is bounded. */
static void inline_data(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	char own[2048];
	struct ibv_sge sge = { .addr = (uintptr_t)own, .length = 32, .lkey = 0xdead };
	struct ibv_wc wc[2];

	CHECK(ibv_query_qp(e.one, &attr, IBV_QP_CAP, &init) == 0 && attr.cap.max_inline_data >= 32 && attr.cap.max_inline_data < 2048);
	sge.length = attr.cap.max_inline_data;
	memset(own, 'x', sizeof(own));
	receive(&e, 1, 0, 4096);
	CHECK(post(&e, 2, IBV_WR_SEND, &sge, 1, IBV_SEND_INLINE) == 0);
	memset(own, 'y', sizeof(own));
	poll_all(e.send_cq, 1, wc);
	poll_all(e.recv_cq, 1, wc + 1);
	CHECK(wc[0].status == 0 && wc[1].byte_len == sge.length && target[0] == 'x' && target[sge.length - 1] == 'x');
	sge.length++;
	CHECK(post(&e, 3, IBV_WR_SEND, &sge, 1, IBV_SEND_INLINE) == EINVAL);
	sge.length = 8;
	CHECK(post(&e, 4, IBV_WR_RDMA_READ, &sge, 1, IBV_SEND_INLINE) == EINVAL);
	poll_none(e.send_cq);
	destroy(&e);
}

/* A queue pair that was to have none takes as much inline data as its scatter-gather elements have bytes, as adapters do. */
static void inline_data_unasked(struct ibv_context *context)
{
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1, .max_send_sge = 2, .max_recv_wr = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp && init.cap.max_inline_data == 32);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_destroy_cq(cq) == 0);
}

/* Unsignaled requests make no completion, hold their place until a later one completes, and tell when they fail. */
static void signaling(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 0);
	struct ibv_sge sge = piece_of(e.from, 0, 16), wrong = { .addr = 16, .length = 16, .lkey = 0 };
	struct ibv_wc wc[4];

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 15; i++)
			CHECK(post(&e, i, IBV_WR_RDMA_WRITE, &sge, 1, 0) == 0);
		CHECK(post(&e, 100 + round, IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED) == 0);
		poll_all(e.send_cq, 1, wc);
		CHECK(wc[0].wr_id == (uint64_t)(100 + round) && wc[0].status == 0);
	}
	CHECK(ibv_poll_cq(e.send_cq, 4, wc) == 0);
	CHECK(post(&e, 1, IBV_WR_RDMA_WRITE, &wrong, 1, 0) == 0);
	CHECK(post(&e, 2, IBV_WR_RDMA_WRITE, &sge, 1, 0) == 0);
	poll_all(e.send_cq, 2, wc);
	CHECK(wc[0].wr_id == 1 && wc[0].status == IBV_WC_LOC_PROT_ERR);
	CHECK(wc[1].wr_id == 2 && wc[1].status == IBV_WC_WR_FLUSH_ERR && wc[1].qp_num == e.one->qp_num);
	CHECK(state_of(e.one) == IBV_QPS_ERR);
	destroy(&e);
}

/* A full queue is ENOMEM; polled completions give the places back. */
static void full_queues(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_sge sge = piece_of(e.from, 0, 16);
	struct ibv_recv_wr wr = { 0 }, *bad = NULL;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc[64];
	int posted = 0, error;

	CHECK(ibv_query_qp(e.one, &attr, IBV_QP_CAP, &init) == 0);
	for (uint32_t i = 0; i < attr.cap.max_recv_wr; i++)
		CHECK(ibv_post_recv(e.one, &wr, &bad) == 0);
	CHECK(ibv_post_recv(e.one, &wr, &bad) == ENOMEM && bad == &wr);
	/* In SQD nothing leaves the queue. */
	to_state(e.one, IBV_QPS_SQD);
	while ((error = post(&e, posted, IBV_WR_RDMA_WRITE, &sge, 1, 0)) == 0)
		posted++;
	CHECK(error == ENOMEM && posted == (int)attr.cap.max_send_wr);
	poll_none(e.send_cq);
	to_state(e.one, IBV_QPS_RTS);
	poll_all(e.send_cq, 1, wc);
	CHECK(post(&e, posted, IBV_WR_RDMA_WRITE, &sge, 1, 0) == 0);
	poll_all(e.send_cq, posted, wc + 1);
	for (int i = 0; i <= posted; i++)
		CHECK(wc[i].wr_id == (uint64_t)i && wc[i].status == 0);
	destroy(&e);
}

/* The bad request of a list is told; those before it are done, those behind it never happened. */
static void bad_in_the_middle(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_sge sge = piece_of(e.from, 0, 16), many[40];
	struct ibv_send_wr list[5], *bad = NULL;
	struct ibv_recv_wr receives[4], *bad_receive = NULL;
	struct ibv_wc wc[4];

	for (int i = 0; i < 40; i++)
		many[i] = sge;
	for (int wrong = 0; wrong < 6; wrong++) {
		memset(list, 0, sizeof(list));
		for (int i = 0; i < 5; i++) {
			list[i].wr_id = 10 * wrong + i;
			list[i].opcode = IBV_WR_RDMA_WRITE;
			list[i].sg_list = &sge;
			list[i].num_sge = 1;
			list[i].wr.rdma.remote_addr = (uintptr_t)target;
			list[i].wr.rdma.rkey = e.to->rkey;
			list[i].next = i < 4 ? &list[i + 1] : NULL;
		}
		switch (wrong) {
		case 0: list[2].num_sge = 3; list[2].sg_list = many; break;
		case 1: list[2].num_sge = -1; break;
		case 2: list[2].num_sge = 0x7fffffff; break;
		case 3: list[2].opcode = 99; break;
		case 4: list[2].send_flags = 1u << 30; break;
		case 5: list[2].sg_list = NULL; break;
		}
		bad = NULL;
		CHECK(ibv_post_send(e.one, list, &bad) == EINVAL && bad == &list[2]);
		poll_all(e.send_cq, 2, wc);
		CHECK(wc[0].wr_id == list[0].wr_id && wc[1].wr_id == list[1].wr_id && !wc[0].status && !wc[1].status);
		CHECK(ibv_poll_cq(e.send_cq, 1, wc) == 0);
	}
	/* Longer than 2 GiB together. */
	for (int i = 0; i < 2; i++)
		many[i].length = 0x40000001;
	CHECK(post(&e, 1, IBV_WR_RDMA_WRITE, many, 2, 0) == EINVAL);
	many[0].length = many[1].length = 0xffffffff;
	CHECK(post(&e, 1, IBV_WR_SEND, many, 2, 0) == EINVAL);
	memset(receives, 0, sizeof(receives));
	for (int i = 0; i < 3; i++)
		receives[i].next = &receives[i + 1];
	receives[1].num_sge = 33;
	receives[1].sg_list = many;
	CHECK(ibv_post_recv(e.two, receives, &bad_receive) == EINVAL && bad_receive == &receives[1]);
	to_state(e.two, IBV_QPS_ERR);
	poll_all(e.recv_cq, 1, wc);
	CHECK(ibv_poll_cq(e.recv_cq, 1, wc) == 0);
	destroy(&e);
}

/* States in which requests are refused, kept, or flushed. */
static void posting_by_state(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_sge sge = piece_of(e.from, 0, 16);
	struct ibv_recv_wr wr = { .wr_id = 70 }, *bad = NULL;
	struct ibv_wc wc[8];

	to_state(e.one, IBV_QPS_RESET);
	CHECK(ibv_post_recv(e.one, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(post(&e, 1, IBV_WR_SEND, &sge, 1, 0) == EINVAL);
	to_open_init(e.one);
	CHECK(ibv_post_recv(e.one, &wr, &bad) == 0);
	CHECK(post(&e, 1, IBV_WR_SEND, &sge, 1, 0) == EINVAL);
	/* RESET forgets what was posted, without a completion. */
	to_state(e.one, IBV_QPS_RESET);
	to_state(e.one, IBV_QPS_ERR);
	poll_none(e.recv_cq);
	/* In ERR what is posted is flushed in order, receives and sends each by themselves. */
	for (wr.wr_id = 0; wr.wr_id < 3; wr.wr_id++) {
		CHECK(ibv_post_recv(e.one, &wr, &bad) == 0);
		CHECK(post(&e, 10 + wr.wr_id, IBV_WR_SEND, &sge, 1, 0) == 0);
	}
	poll_all(e.recv_cq, 3, wc);
	poll_all(e.send_cq, 3, wc + 3);
	for (int i = 0; i < 6; i++) {
		CHECK(wc[i].status == IBV_WC_WR_FLUSH_ERR && wc[i].qp_num == e.one->qp_num);
		CHECK(wc[i].wr_id == (uint64_t)(i < 3 ? i : 10 + i - 3));
	}
	/* RESET takes away completions that were not polled, those of this queue pair only. */
	CHECK(ibv_post_recv(e.one, &wr, &bad) == 0);
	CHECK(post(&e, 1, IBV_WR_SEND, &sge, 1, 0) == 0);
	wr.wr_id = 44;
	to_state(e.two, IBV_QPS_ERR);
	CHECK(ibv_post_recv(e.two, &wr, &bad) == 0);
	to_state(e.one, IBV_QPS_RESET);
	CHECK(ibv_poll_cq(e.send_cq, 8, wc) == 0);
	CHECK(ibv_poll_cq(e.recv_cq, 8, wc) == 1 && wc[0].wr_id == 44 && wc[0].qp_num == e.two->qp_num);
	destroy(&e);
}

static int events_waiting(struct ends *e)
{
	struct pollfd fd = { .fd = e->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *cq_context;
	int count = 0;

	/* What is on its way arrives, driven by whoever polls. */
	poll_none(e->send_cq);
	while (poll(&fd, 1, 0) == 1) {
		CHECK(ibv_get_cq_event(e->channel, &cq, &cq_context) == 0 && cq == e->recv_cq);
		ibv_ack_cq_events(cq, 1);
		count++;
	}
	return count;
}

/* One event for an arming; solicited-only means solicited messages and failures; arming for any completion is not taken back. */
static void notification(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 0);
	struct ibv_sge sge = piece_of(e.from, 0, 16);
	struct ibv_wc wc[8];

	for (int i = 0; i < 10; i++)
		receive(&e, i, 0, 100);
	CHECK(post(&e, 0, IBV_WR_SEND, &sge, 1, IBV_SEND_SOLICITED) == 0);
	CHECK(events_waiting(&e) == 0);
	/* What was polled before the arming counts for nothing; what is left there would give an event. */
	poll_all(e.recv_cq, 1, wc);
	CHECK(ibv_req_notify_cq(e.recv_cq, 0) == 0);
	CHECK(events_waiting(&e) == 0);
	CHECK(post(&e, 1, IBV_WR_SEND, &sge, 1, 0) == 0);
	CHECK(post(&e, 2, IBV_WR_SEND, &sge, 1, IBV_SEND_SOLICITED) == 0);
	CHECK(events_waiting(&e) == 1);
	poll_all(e.recv_cq, 2, wc);
	CHECK(ibv_req_notify_cq(e.recv_cq, 1) == 0);
	CHECK(post(&e, 3, IBV_WR_SEND, &sge, 1, 0) == 0);
	CHECK(events_waiting(&e) == 0);
	CHECK(post(&e, 4, IBV_WR_SEND, &sge, 1, IBV_SEND_SOLICITED) == 0);
	CHECK(events_waiting(&e) == 1);
	poll_all(e.recv_cq, 2, wc);
	CHECK(ibv_req_notify_cq(e.recv_cq, 0) == 0 && ibv_req_notify_cq(e.recv_cq, 1) == 0);
	CHECK(post(&e, 5, IBV_WR_SEND, &sge, 1, 0) == 0);
	CHECK(events_waiting(&e) == 1);
	poll_all(e.recv_cq, 1, wc);
	CHECK(ibv_req_notify_cq(e.recv_cq, 1) == 0 && ibv_req_notify_cq(e.recv_cq, 0) == 0);
	CHECK(post(&e, 6, IBV_WR_SEND, &sge, 1, 0) == 0);
	CHECK(events_waiting(&e) == 1);
	poll_all(e.recv_cq, 1, wc);
	CHECK(ibv_req_notify_cq(e.recv_cq, 1) == 0);
	to_state(e.two, IBV_QPS_ERR);
	CHECK(events_waiting(&e) == 1);
	poll_all(e.recv_cq, 3, wc);
	destroy(&e);
}

/* A datagram comes behind 40 bytes for the routing header, from which its sender can be answered. */
static void datagrams(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_UD, 1);
	struct ibv_ah_attr ah_attr = to_own_host(context), reply;
	struct ibv_ah *ah = ibv_create_ah(e.pd, &ah_attr), *back;
	struct ibv_sge sge = piece_of(e.from, 0, 64), large = piece_of(e.from, 0, 60000);
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_port_attr port;
	struct ibv_wc wc[2];

	CHECK(ah && ibv_query_port(context, 1, &port) == 0);
	wr.imm_data = htobe32(77);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = e.two->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	receive(&e, 1, 0, 104);
	CHECK(ibv_post_send(e.one, &wr, &bad) == 0);
	poll_all(e.send_cq, 1, wc);
	CHECK(wc[0].wr_id == 7 && wc[0].status == 0 && wc[0].opcode == IBV_WC_SEND);
	poll_all(e.recv_cq, 1, wc);
	CHECK(wc[0].status == 0 && wc[0].opcode == IBV_WC_RECV && wc[0].byte_len == 104 && wc[0].src_qp == e.one->qp_num);
	CHECK(wc[0].qp_num == e.two->qp_num && wc[0].wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && wc[0].imm_data == htobe32(77));
	CHECK(memcmp(target + 40, source, 64) == 0);
	CHECK(ibv_init_ah_from_wc(context, 1, wc, (struct ibv_grh *)target, &reply) == 0);
	CHECK(memcmp(&reply.grh.dgid, &ah_attr.grh.dgid, 16) == 0 && reply.grh.sgid_index == ah_attr.grh.sgid_index);
	back = ibv_create_ah_from_wc(e.pd, wc, (struct ibv_grh *)target, 1);
	CHECK(back && ibv_destroy_ah(back) == 0);
	/* To wrong keys and numbers: sent, and dropped in silence. */
	receive(&e, 2, 0, 104);
	wr.wr.ud.remote_qkey = QKEY + 1;
	CHECK(ibv_post_send(e.one, &wr, &bad) == 0);
	wr.wr.ud.remote_qkey = QKEY;
	for (uint32_t number = 0xfffffe; number <= 0xffffff; number++) {
		wr.wr.ud.remote_qpn = number;
		CHECK(ibv_post_send(e.one, &wr, &bad) == 0);
	}
	wr.wr.ud.remote_qpn = 1 << 24;
	CHECK(ibv_post_send(e.one, &wr, &bad) == EINVAL);
	for (int i = 0; i < 3; i++) {
		poll_all(e.send_cq, 1, wc);
		CHECK(wc[0].wr_id == 7 && wc[0].status == 0);
	}
	poll_none(e.recv_cq);
	/* The Q_Key of the queue pair itself. */
	wr.wr.ud.remote_qpn = e.two->qp_num;
	wr.wr.ud.remote_qkey = 0x80000000;
	CHECK(ibv_post_send(e.one, &wr, &bad) == 0);
	poll_all(e.recv_cq, 1, wc);
	CHECK(wc[0].wr_id == 2 && wc[0].status == 0);
	poll_all(e.send_cq, 1, wc);
	/* Longer than the MTU: not sent, and no error (InfiniBand specification, volume 1, C10-93.1.1). */
	receive(&e, 3, 0, 65000);
	wr.sg_list = &large;
	large.length = (128u << port.active_mtu) + 1;
	CHECK(ibv_post_send(e.one, &wr, &bad) == 0);
	poll_all(e.send_cq, 1, wc);
	CHECK(wc[0].wr_id == 7 && wc[0].status == 0 && wc[0].opcode == IBV_WC_SEND);
	poll_none(e.recv_cq);
	large.length--;
	CHECK(ibv_post_send(e.one, &wr, &bad) == 0);
	poll_all(e.recv_cq, 1, wc);
	CHECK(wc[0].wr_id == 3 && wc[0].status == 0 && wc[0].byte_len == 40 + large.length);
	/* Without address handle; what datagrams cannot do. */
	wr.sg_list = &sge;
	wr.wr.ud.ah = NULL;
	CHECK(ibv_post_send(e.one, &wr, &bad) == EINVAL);
	wr.wr.ud.ah = ah;
	for (int opcode = IBV_WR_RDMA_WRITE; opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD; opcode++) {
		wr.opcode = opcode;
		if (opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM)
			CHECK(ibv_post_send(e.one, &wr, &bad) == EINVAL);
	}
	CHECK(ibv_destroy_ah(ah) == 0);
	destroy(&e);
}

/* Several queue pairs take from one queue: each completion says for whom; the limit is told once, strictly below it; a queue pair
 * that fails leaves the receives of the others alone and tells when it takes no more. */
static void shared_receives(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(e.pd, &srq_init);
	struct ibv_srq_attr limit = { .srq_limit = 3 };
	struct ibv_qp_init_attr init = plain_attributes(e.send_cq, IBV_QPT_RC);
	struct ibv_sge sge = piece_of(e.from, 0, 16), into = piece_of(e.to, 0, 64), wrong = { .addr = 8, .length = 64 };
	struct ibv_recv_wr wr = { .sg_list = &into, .num_sge = 1 }, *bad;
	struct ibv_qp *plain = e.one, *third, *fourth;
	struct ibv_async_event event;
	struct ibv_wc wc[4];

	init.recv_cq = e.recv_cq;
	init.srq = srq;
	init.sq_sig_all = 1;
	CHECK(ibv_destroy_qp(e.two) == 0);
	/* ibv_create_qp(3): ignored with an SRQ. */
	init.cap.max_recv_wr = init.cap.max_recv_sge = UINT32_MAX;
	e.two = ibv_create_qp(e.pd, &init);
	CHECK(e.two && init.cap.max_recv_wr == 0 && init.cap.max_recv_sge == 0);
	fourth = ibv_create_qp(e.pd, &init);
	init.srq = NULL;
	third = ibv_create_qp(e.pd, &init);
	CHECK(srq && e.two && third && fourth);
	to_state(e.one, IBV_QPS_RESET);
	connect_pair(e.one, e.two);
	connect_pair(third, fourth);
	CHECK(ibv_post_recv(e.two, &wr, &bad) == EINVAL && bad == &wr);
	for (wr.wr_id = 0; wr.wr_id < 5; wr.wr_id++)
		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
	CHECK(post(&e, 1, IBV_WR_SEND, &sge, 1, 0) == 0);
	poll_all(e.recv_cq, 1, wc);
	CHECK(wc[0].wr_id == 0 && wc[0].qp_num == e.two->qp_num && wc[0].byte_len == 16);
	e.one = third;
	CHECK(post(&e, 2, IBV_WR_SEND, &sge, 1, 0) == 0);
	poll_all(e.recv_cq, 1, wc);
	CHECK(wc[0].wr_id == 1 && wc[0].qp_num == fourth->qp_num);
	/* Three are left: not below the limit. */
	CHECK(ibv_query_srq(srq, &limit) == 0 && limit.srq_limit == 3);
	CHECK(post(&e, 3, IBV_WR_SEND, &sge, 1, 0) == 0);
	poll_all(e.recv_cq, 1, wc);
	CHECK(ibv_query_srq(srq, &limit) == 0 && limit.srq_limit == 0);
	do {
		CHECK(ibv_get_async_event(context, &event) == 0);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	/* One of the queue pairs fails. */
	poll_all(e.send_cq, 3, wc);
	to_state(fourth, IBV_QPS_ERR);
	do {
		CHECK(ibv_get_async_event(context, &event) == 0);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST);
	CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == fourth);
	poll_none(e.recv_cq);
	e.one = plain;
	CHECK(post(&e, 4, IBV_WR_SEND, &sge, 1, 0) == 0);
	poll_all(e.recv_cq, 1, wc);
	CHECK(wc[0].wr_id == 3 && wc[0].status == 0 && wc[0].qp_num == e.two->qp_num);
	/* A receive that cannot be used fails the queue pair that took it. */
	poll_all(e.send_cq, 1, wc);
	CHECK(post(&e, 5, IBV_WR_SEND, &sge, 1, 0) == 0);
	poll_all(e.recv_cq, 1, wc);
	wr.sg_list = &wrong;
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	CHECK(post(&e, 6, IBV_WR_SEND, &sge, 1, 0) == 0);
	poll_all(e.recv_cq, 1, wc);
	CHECK(wc[0].status == IBV_WC_LOC_PROT_ERR && wc[0].wr_id == 5 && wc[0].qp_num == e.two->qp_num);
	poll_all(e.send_cq, 2, wc);
	CHECK(wc[0].status == 0 && wc[1].status == IBV_WC_REM_OP_ERR);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	CHECK(ibv_destroy_qp(third) == 0 && ibv_destroy_qp(fourth) == 0 && ibv_destroy_qp(e.two) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
	init.qp_type = IBV_QPT_RC;
	e.two = ibv_create_qp(e.pd, &init);
	CHECK(e.two);
	destroy(&e);
}

/* The extended queue reads the same fields. */
static void extended_reading(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &cq_init);
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_qp_init_attr init = plain_attributes(e.send_cq, IBV_QPT_RC);
	struct ibv_sge sge = piece_of(e.from, 0, 100);
	double end = seconds() + PATIENCE_SECONDS;

	CHECK(cq && ibv_destroy_qp(e.two) == 0);
	init.recv_cq = ibv_cq_ex_to_cq(cq);
	e.two = ibv_create_qp(e.pd, &init);
	CHECK(e.two);
	to_state(e.one, IBV_QPS_RESET);
	connect_pair(e.one, e.two);
	receive(&e, 1, 0, 200);
	receive(&e, 2, 0, 200);
	CHECK(post(&e, 1, IBV_WR_SEND_WITH_IMM, &sge, 1, 0) == 0);
	while (ibv_start_poll(cq, &attr) == ENOENT)
		CHECK(seconds() < end);
	CHECK(cq->wr_id == 1 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_RECV);
	CHECK(ibv_wc_read_byte_len(cq) == 100 && ibv_wc_read_qp_num(cq) == e.two->qp_num && ibv_wc_read_vendor_err(cq) == 0);
	CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM && ibv_wc_read_imm_data(cq) == htobe32(0x01020304));
	CHECK(ibv_wc_read_slid(cq) == 0 && ibv_wc_read_sl(cq) == 0 && ibv_wc_read_dlid_path_bits(cq) == 0);
	/* The one being read stays what it is while others come. */
	CHECK(post(&e, 2, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1, 0) == 0);
	while (ibv_next_poll(cq) == ENOENT) {
		CHECK(cq->wr_id == 1 && ibv_wc_read_opcode(cq) == IBV_WC_RECV);
		CHECK(seconds() < end);
	}
	CHECK(cq->wr_id == 2 && ibv_wc_read_opcode(cq) == IBV_WC_RECV_RDMA_WITH_IMM && ibv_wc_read_byte_len(cq) == 100);
	ibv_end_poll(cq);
	CHECK(ibv_destroy_qp(e.two) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	init.recv_cq = e.recv_cq;
	e.two = ibv_create_qp(e.pd, &init);
	CHECK(e.two);
	destroy(&e);
}

/* A queue that is overrun tells so, keeps what it had and takes nothing more; its queue pairs fail. */
static void overrun(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_cq *small = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(e.send_cq, IBV_QPT_RC);
	struct ibv_sge sge = piece_of(e.from, 0, 16);
	struct ibv_async_event event;
	struct ibv_wc wc[8];
	int room = small->cqe, seen = 0;

	CHECK(ibv_destroy_qp(e.one) == 0);
	init.send_cq = small;
	init.cap.max_send_wr = 64;
	init.sq_sig_all = 1;
	e.one = ibv_create_qp(e.pd, &init);
	CHECK(e.one && room >= 1 && room < 8);
	to_state(e.two, IBV_QPS_RESET);
	connect_pair(e.one, e.two);
	for (int i = 0; i < room + 2; i++)
		CHECK(post(&e, i, IBV_WR_RDMA_WRITE, &sge, 1, 0) == 0);
	/* COMM_EST may come as well. */
	while (seen != 3) {
		CHECK(ibv_get_async_event(context, &event) == 0);
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			CHECK(event.element.cq == small && !(seen & 1));
			seen |= 1;
		} else if (event.event_type == IBV_EVENT_QP_FATAL) {
			CHECK(event.element.qp == e.one && !(seen & 2));
			seen |= 2;
		}
		ibv_ack_async_event(&event);
	}
	CHECK(state_of(e.one) == IBV_QPS_ERR);
	CHECK(ibv_poll_cq(small, 8, wc) == room && wc[0].wr_id == 0 && wc[0].status == 0);
	CHECK(post(&e, 50, IBV_WR_RDMA_WRITE, &sge, 1, 0) == 0);
	CHECK(ibv_poll_cq(small, 8, wc) == 0);
	CHECK(ibv_destroy_qp(e.one) == 0 && ibv_destroy_cq(small) == 0);
	e.one = NULL;
	destroy(&e);
}

/* The queue is made larger or smaller, but never below what is in it. */
static void resizing(struct ibv_context *context)
{
	struct ends e = make(context, IBV_QPT_RC, 1);
	struct ibv_sge sge = piece_of(e.from, 0, 16);
	struct ibv_device_attr device;
	struct ibv_wc wc[8];

	CHECK(ibv_query_device(context, &device) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(post(&e, i, IBV_WR_RDMA_WRITE, &sge, 1, 0) == 0);
	for (double end = seconds() + PATIENCE_SECONDS; post(&e, 9, IBV_WR_RDMA_WRITE, &sge, 1, 0) != 0;)
		CHECK(seconds() < end);
	poll_all(e.send_cq, 1, wc);
	poll_none(e.recv_cq);
	CHECK(ibv_resize_cq(e.send_cq, 0) == EINVAL && ibv_resize_cq(e.send_cq, 3) == EINVAL);
	CHECK(ibv_resize_cq(e.send_cq, device.max_cqe + 1) == EINVAL && e.send_cq->cqe == 64);
	CHECK(ibv_resize_cq(e.send_cq, 4) == 0 && e.send_cq->cqe >= 4);
	CHECK(ibv_resize_cq(e.send_cq, device.max_cqe) == 0 && e.send_cq->cqe == device.max_cqe);
	poll_all(e.send_cq, 4, wc);
	CHECK(wc[0].wr_id == 1 && wc[3].wr_id == 9);
	destroy(&e);
}

int main(void)
{
	struct ibv_context *context = open_first_device();

	alarm(120);
	fields(context, IBV_QPT_RC);
	fields(context, IBV_QPT_UC);
	peculiar(context);
	inline_data(context);
	inline_data_unasked(context);
	signaling(context);
	full_queues(context);
	bad_in_the_middle(context);
	posting_by_state(context);
	notification(context);
	datagrams(context);
	shared_receives(context);
	extended_reading(context);
	overrun(context);
	resizing(context);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

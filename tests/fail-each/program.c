/*
 * A program that handles each failure of a verb, and eleven that do not handle one: program FILE sends a message from a queue pair to itself, and
 * writes what arrived to FILE. FAULT, which the compiler gets, is the fault that is planted.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	NONE,
	/* The result of ibv_reg_mr is used unchecked. */
	UNCHECKED_REG_MR,
	/* The result of ibv_create_qp is used unchecked. */
	UNCHECKED_CREATE_QP,
	/* A request that was not posted is waited for. */
	IGNORED_POST_SEND,
	/* A buffer that was not posted is waited for. */
	IGNORED_POST_RECV,
	/* Any completion is taken for success. */
	IGNORED_STATUS,
	/* Whoever goes on without the region of the statistics keeps its protection domain. */
	LEAK,
	/* The queue pair that cannot be connected is destroyed where that is seen, and once more at the end. */
	DOUBLE_DESTROY,
	/* The queue of an event that did not come is used. */
	UNCHECKED_EVENT,
	/* The error is printed, and the exit status is 0. */
	WRONG_EXIT,
	/* The end waits for a request that was never posted. */
	WAITING_END,
	/* Each asynchronous event is taken for one of a queue pair. */
	EVENT_OF_PORT,
};

#ifndef FAULT
#define FAULT NONE
#endif

enum { BYTES = 64 };

struct program {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_pd *statistics_pd;
	struct ibv_mr *mr;
	struct ibv_mr *statistics_mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int posted;
	char buffer[2 * BYTES];
	char statistics[BYTES];
};

static int fail(const char *verb)
{
	fprintf(stderr, "%s failed\n", verb);
	return -1;
}

static int open_first(struct program *p)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (!list)
		return fail("ibv_get_device_list");
	if (list[0])
		p->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	return p->context ? 0 : fail("ibv_open_device");
}

/* The program does without statistics. */
static void add_statistics(struct program *p)
{
	p->statistics_pd = ibv_alloc_pd(p->context);
	if (!p->statistics_pd)
		return;
	p->statistics_mr = ibv_reg_mr(p->statistics_pd, p->statistics, BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (p->statistics_mr)
		return;
	if (FAULT != LEAK && ibv_dealloc_pd(p->statistics_pd))
		fail("ibv_dealloc_pd");
	p->statistics_pd = NULL;
}

static int create(struct program *p)
{
	if (!(p->channel = ibv_create_comp_channel(p->context)))
		return fail("ibv_create_comp_channel");
	if (!(p->pd = ibv_alloc_pd(p->context)))
		return fail("ibv_alloc_pd");
	p->mr = ibv_reg_mr(p->pd, p->buffer, sizeof p->buffer, IBV_ACCESS_LOCAL_WRITE);
	if (!p->mr && FAULT != UNCHECKED_REG_MR)
		return fail("ibv_reg_mr");
	if (!(p->cq = ibv_create_cq(p->context, 4, NULL, p->channel, 0)))
		return fail("ibv_create_cq");
	struct ibv_qp_init_attr attributes = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	p->qp = ibv_create_qp(p->pd, &attributes);
	if (!p->qp && FAULT != UNCHECKED_CREATE_QP)
		return fail("ibv_create_qp");
	return 0;
}

static int connect_to_itself(struct program *p)
{
	union ibv_gid gid;
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = p->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1
	};

	if (ibv_query_gid(p->context, 1, 0, &gid))
		return fail("ibv_query_gid");
	rtr.ah_attr.grh.dgid = gid;
	if (ibv_modify_qp(p->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return fail("ibv_modify_qp to INIT");
	if (ibv_modify_qp(p->qp, &rtr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
		if (FAULT == DOUBLE_DESTROY)
			ibv_destroy_qp(p->qp);
		return fail("ibv_modify_qp to RTR");
	}
	if (ibv_modify_qp(p->qp, &rts,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		return fail("ibv_modify_qp to RTS");
	return 0;
}

static int post(struct program *p)
{
	struct ibv_sge from = { .addr = (uintptr_t)p->buffer, .length = BYTES, .lkey = p->mr->lkey };
	struct ibv_sge to = { .addr = (uintptr_t)p->buffer + BYTES, .length = BYTES, .lkey = p->mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 };
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_recv_wr *bad_receive;
	struct ibv_send_wr *bad_send;

	if (ibv_req_notify_cq(p->cq, 0))
		return fail("ibv_req_notify_cq");
	if (ibv_post_recv(p->qp, &receive, &bad_receive) && FAULT != IGNORED_POST_RECV)
		return fail("ibv_post_recv");
	p->posted++;
	if (FAULT == WAITING_END)
		p->posted++;
	if (ibv_post_send(p->qp, &send, &bad_send) && FAULT != IGNORED_POST_SEND)
		return fail("ibv_post_send");
	if (FAULT != WAITING_END)
		p->posted++;
	return 0;
}

/* Waits for what was posted; a request that fails ends the others, too. */
static int reap(struct program *p)
{
	struct ibv_wc completion;
	int result = 0;

	while (p->posted) {
		int count = ibv_poll_cq(p->cq, 1, &completion);
		if (count < 0)
			return fail("ibv_poll_cq");
		if (count == 0)
			continue;
		p->posted--;
		if (completion.status != IBV_WC_SUCCESS && FAULT != IGNORED_STATUS)
			result = fail(ibv_wc_status_str(completion.status));
	}
	return result;
}

static int await_event(struct program *p)
{
	struct ibv_cq *cq = NULL;
	void *context;

	if (ibv_get_cq_event(p->channel, &cq, &context) && FAULT != UNCHECKED_EVENT)
		return fail("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	/* For the second completion. */
	if (ibv_req_notify_cq(cq, 0))
		return fail("ibv_req_notify_cq");
	return 0;
}

/* Takes the asynchronous events that have come. A port may come up again; anything else is the end of the transfer. */
static int take_async_events(struct program *p)
{
	struct pollfd waiting = { .fd = p->context->async_fd, .events = POLLIN };
	int result = 0;

	while (poll(&waiting, 1, 0) == 1) {
		struct ibv_async_event event;

		if (ibv_get_async_event(p->context, &event))
			return fail("ibv_get_async_event");
		if (event.event_type == IBV_EVENT_QP_FATAL || FAULT == EVENT_OF_PORT)
			fprintf(stderr, "queue pair %#x: ", event.element.qp->qp_num);
		if (event.event_type == IBV_EVENT_PORT_ERR)
			fprintf(stderr, "port %d is down\n", event.element.port_num);
		else
			result = fail(ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	return result;
}

static int transfer(struct program *p, const char *file)
{
	for (int i = 0; i < BYTES; i++)
		p->buffer[i] = (char)('a' + i % 26);
	int result = post(p) || await_event(p) || reap(p) ? -1 : 0;
	/* What went wrong, perhaps. Events that nobody acknowledges would keep the queue pair. */
	if (take_async_events(p) || result)
		return -1;
	FILE *out = fopen(file, "w");
	if (!out)
		return fail("fopen");
	size_t written = fwrite(p->buffer + BYTES, 1, BYTES, out);
	return fclose(out) == 0 && written == BYTES ? 0 : fail("fwrite");
}

/* Ends whatever is there. */
static int end(struct program *p)
{
	int result = 0;

	if (FAULT == WAITING_END && p->posted)
		reap(p);
	if (p->qp && ibv_destroy_qp(p->qp))
		result = fail("ibv_destroy_qp");
	if (p->cq && ibv_destroy_cq(p->cq))
		result = fail("ibv_destroy_cq");
	if (p->mr && ibv_dereg_mr(p->mr))
		result = fail("ibv_dereg_mr");
	if (p->statistics_mr && ibv_dereg_mr(p->statistics_mr))
		result = fail("ibv_dereg_mr");
	if (p->statistics_pd && ibv_dealloc_pd(p->statistics_pd))
		result = fail("ibv_dealloc_pd");
	if (p->pd && ibv_dealloc_pd(p->pd))
		result = fail("ibv_dealloc_pd");
	if (p->channel && ibv_destroy_comp_channel(p->channel))
		result = fail("ibv_destroy_comp_channel");
	if (p->context && ibv_close_device(p->context))
		result = fail("ibv_close_device");
	return result;
}

int main(int argc, char **argv)
{
	static struct program program;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	int result = open_first(&program);
	if (!result) {
		add_statistics(&program);
		result = create(&program);
	}
	if (!result)
		result = connect_to_itself(&program);
	if (!result)
		result = transfer(&program, argv[1]);
	if (end(&program))
		result = -1;
	return result && FAULT != WRONG_EXIT ? 1 : 0;
}

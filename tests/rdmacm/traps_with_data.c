/* Traps with queue pairs, and with processes; see traps.c. */
#define _GNU_SOURCE
#include "ends.h"
#include "traps.h"

#include <signal.h>
#include <sys/wait.h>

#include <rdma/rdma_verbs.h>

#define LENGTH 64

static void add_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	MUST(!rdma_create_qp(id, NULL, &attr));
}

/* Connects with queue pairs. The passive side's ESTABLISHED has not been taken. */
void connect_queue_pairs(struct ends *ends)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };

	resolve(ends->caller, rdma_get_src_port(ends->listener));
	add_queue_pair(ends->caller);
	MUST(!rdma_connect(ends->caller, &param));
	ends->child = take_request(ends->passive);
	add_queue_pair(ends->child);
	MUST(!rdma_accept(ends->child, &param));
	MUST(expect(ends->active, RDMA_CM_EVENT_ESTABLISHED) == 0);
}

void destroy_queue_pairs(struct ends *ends)
{
	rdma_destroy_qp(ends->caller);
	rdma_destroy_qp(ends->child);
}

/* The completion that comes next must be good. */
static void complete(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count = 0;

	while (!count) {
		count = ibv_poll_cq(cq, 1, &wc);
		MUST(count >= 0);
	}
	if (wc.status)
		FAIL("%s", ibv_wc_status_str(wc.status));
}

static void advance(struct ibv_qp *qp, struct rdma_cm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	MUST(!rdma_init_qp_attr(id, &attr, &mask));
	MUST(!ibv_modify_qp(qp, &attr, mask));
}

/* Data of the active side come before its RTU: the passive side's queue pair takes them since the REP. */
void trap_9(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	static uint8_t sent[LENGTH] = "before the RTU", received[LENGTH];
	struct rdma_conn_param param = no_queue_pair();
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 1, 1, 1, 1, LENGTH } };
	struct ibv_sge piece = { .addr = (uintptr_t)sent, .length = LENGTH };
	struct ibv_send_wr work = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE }, *bad;
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	resolve(ends.caller, rdma_get_src_port(ends.listener));
	attr.send_cq = attr.recv_cq = ibv_create_cq(ends.caller->verbs, 2, NULL, NULL, 0);
	MUST(attr.send_cq);
	qp = ibv_create_qp(ends.caller->pd, &attr);
	MUST(qp);
	param.qp_num = qp->qp_num;
	MUST(!rdma_connect(ends.caller, &param));
	ends.child = take_request(ends.passive);
	add_queue_pair(ends.child);
	mr = rdma_reg_msgs(ends.child, received, LENGTH);
	MUST(mr && !rdma_post_recv(ends.child, NULL, received, LENGTH, mr));
	MUST(!rdma_accept(ends.child, &param));
	expect(ends.active, RDMA_CM_EVENT_CONNECT_RESPONSE);
	advance(qp, ends.caller, IBV_QPS_INIT);
	advance(qp, ends.caller, IBV_QPS_RTR);
	advance(qp, ends.caller, IBV_QPS_RTS);
	MUST(!ibv_post_send(qp, &work, &bad));
	complete(ends.child->recv_cq);
	complete(attr.send_cq);
	MUST(!memcmp(sent, received, LENGTH));
	expect_nothing(ends.passive);
	MUST(!rdma_notify(ends.child, IBV_EVENT_COMM_EST));
	expect(ends.passive, RDMA_CM_EVENT_ESTABLISHED);
	MUST(rdma_notify(ends.child, IBV_EVENT_COMM_EST) && errno == EISCONN);
	/* The RTU that comes after all brings no other event. */
	MUST(!rdma_establish(ends.caller));
	MUST(!rdma_disconnect(ends.caller));
	expect(ends.passive, RDMA_CM_EVENT_DISCONNECTED);
	MUST(!rdma_dereg_mr(mr));
	rdma_destroy_qp(ends.child);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(attr.send_cq));
	destroy_ends(&ends);
}

/* How far the connection is when its active side is killed. */
enum progress { REQUESTED, ANSWERED, CONNECTED, PROGRESSES };

/* The active side, in a process of its own, which waits for its death. */
__attribute__((noreturn)) static void live(int port_from, int progress_to, enum progress progress)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	uint16_t port;

	MUST(read(port_from, &port, sizeof(port)) == sizeof(port));
	channel = new_channel();
	id = new_id(channel, RDMA_PS_TCP);
	resolve(id, port);
	MUST(!connect_to(id, NULL, 0));
	if (progress >= ANSWERED)
		expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	if (progress >= CONNECTED)
		MUST(!rdma_establish(id));
	MUST(write(progress_to, &port, 1) == 1);
	for (;;)
		pause();
}

/* Waits until a request's peer has given up: no event tells. */
static void await_refusal(struct rdma_cm_id *child)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	for (int i = 0; i < PATIENCE_MS; i++) {
		if (rdma_init_qp_attr(child, &attr, &mask))
			return;
		usleep(1000);
	}
	FAIL("the request outlives its peer");
}

/* kill -9 of the active side. */
void trap_12(void)
{
	int ports[PROGRESSES][2], steps[PROGRESSES][2];
	pid_t peers[PROGRESSES];
	struct ends ends;
	uint16_t port;

	/* Before anything of RDMA: a forked child cannot have its parent's. */
	for (int i = 0; i < PROGRESSES; i++) {
		MUST(!pipe(ports[i]) && !pipe(steps[i]));
		peers[i] = fork();
		MUST(peers[i] >= 0);
		if (!peers[i])
			live(ports[i][0], steps[i][1], i);
	}
	ends = new_ends(RDMA_PS_TCP);
	port = rdma_get_src_port(ends.listener);
	for (int i = 0; i < PROGRESSES; i++) {
		struct rdma_cm_id *child;
		char byte;

		MUST(write(ports[i][1], &port, sizeof(port)) == sizeof(port));
		child = take_request(ends.passive);
		if (i >= ANSWERED)
			MUST(!accept_with(child, NULL, 0));
		if (i >= CONNECTED)
			expect(ends.passive, RDMA_CM_EVENT_ESTABLISHED);
		MUST(read(steps[i][0], &byte, 1) == 1);
		MUST(!kill(peers[i], SIGKILL));
		MUST(waitpid(peers[i], NULL, 0) == peers[i]);
		if (i == REQUESTED)
			await_refusal(child);
		else
			expect(ends.passive, i == ANSWERED ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_DISCONNECTED);
		MUST(!rdma_destroy_id(child));
	}
	destroy_ends(&ends);
}

static int rights(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	MUST(!rdma_init_qp_attr(id, &attr, &mask) && mask & IBV_QP_ACCESS_FLAGS);
	return attr.qp_access_flags;
}

/* What each side reads of the other's depths, and what that allows. */
static void exchange_depths(uint8_t resources, uint8_t depth)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct rdma_conn_param param = no_queue_pair();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct rdma_cm_event *event;
	/* IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT of newer headers, as a kernel gives them where the device has FLUSH. */
	const int flushes = 1 << 8 | 1 << 9;
	int mask, reads = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | flushes;

	param.responder_resources = resources;
	param.initiator_depth = depth;
	resolve(ends.caller, rdma_get_src_port(ends.listener));
	MUST(!rdma_connect(ends.caller, &param));
	event = take(ends.passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(event->param.conn.responder_resources == depth && event->param.conn.initiator_depth == resources);
	ends.child = event->id;
	MUST(!rdma_ack_cm_event(event));
	MUST(rights(ends.child) == (depth ? IBV_ACCESS_REMOTE_WRITE | reads : IBV_ACCESS_REMOTE_WRITE));
	MUST(!rdma_init_qp_attr(ends.child, &attr, &mask) && mask & IBV_QP_MAX_QP_RD_ATOMIC);
	MUST(attr.max_rd_atomic == resources);
	destroy_ends(&ends);
}

void trap_20(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct ibv_device_attr device;
	struct rdma_conn_param param = no_queue_pair();

	MUST(!ibv_query_device(ends.listener->verbs, &device));
	MUST(device.max_qp_rd_atom > 0 && device.max_qp_init_rd_atom > 0);
	exchange_depths(0, 0);
	exchange_depths(1, 0);
	exchange_depths(0, 1);
	exchange_depths(3, 2);
	resolve(ends.caller, rdma_get_src_port(ends.listener));
	/* 255 stands for the device's. */
	if (device.max_qp_rd_atom < 254) {
		param.responder_resources = device.max_qp_rd_atom + 1;
		MUST(rdma_connect(ends.caller, &param) && errno == EINVAL);
		param.responder_resources = 0;
	}
	if (device.max_qp_init_rd_atom < 254) {
		param.initiator_depth = device.max_qp_init_rd_atom + 1;
		MUST(rdma_connect(ends.caller, &param) && errno == EINVAL);
	}
	destroy_ends(&ends);
}

/* A WRITE of no bytes needs no memory: its address and key are not looked at. */
void trap_25(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct ibv_send_wr work = { .opcode = IBV_WR_RDMA_WRITE }, *bad;

	connect_queue_pairs(&ends);
	expect(ends.passive, RDMA_CM_EVENT_ESTABLISHED);
	for (uint32_t key = 0; key < 3; key++) {
		work.wr.rdma.rkey = key * 0x9E3779B9;
		work.wr.rdma.remote_addr = key * 0x123456789ABCDEF;
		MUST(!ibv_post_send(ends.caller->qp, &work, &bad));
		complete(ends.caller->send_cq);
	}
	destroy_queue_pairs(&ends);
	destroy_ends(&ends);
}

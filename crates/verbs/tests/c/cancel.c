/* Threads that are cancelled (pthread_cancel(3)): in a sleep for an event, as with rdma-core, and nowhere else, since
 * no other verb is a cancellation point (pthreads(7)). */
#include "connect.h"

#include <pthread.h>
#include <signal.h>

#define LENGTH 4096
#define OPERATIONS 60

static struct ibv_context *context;

/* One completion, without a call that is a cancellation point. */
static void poll_one(struct ibv_cq *cq, uint64_t wr_id)
{
	struct ibv_wc wc;
	int polled;

	while ((polled = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(polled == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id);
}

/* Makes, connects, uses and destroys; every completion is an event, too. */
static void live(void)
{
	struct ibv_context *own = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(own);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(own);
	struct ibv_cq *sent = ibv_create_cq(own, 64, NULL, channel, 0);
	struct ibv_cq *received = ibv_create_cq(own, 64, NULL, channel, 0);
	char *memory = calloc(2, LENGTH);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * LENGTH, ALL_ACCESS);
	struct ibv_qp_init_attr init = plain_attributes(sent, IBV_QPT_RC);
	static const enum ibv_wr_opcode operations[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp *one, *two;

	CHECK(pd && channel && sent && received && memory && mr);
	one = ibv_create_qp(pd, &init);
	init.send_cq = init.recv_cq = received;
	two = ibv_create_qp(pd, &init);
	CHECK(one && two);
	connect_pair(one, two);
	for (int i = 0; i < OPERATIONS; i++) {
		struct ibv_sge from = { (uintptr_t)memory, LENGTH, mr->lkey };
		struct ibv_sge to = { (uintptr_t)memory + LENGTH, LENGTH, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &from, .num_sge = 1,
					  .opcode = operations[i % 4], .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_recv_wr receive = { .wr_id = i, .sg_list = &to, .num_sge = 1 }, *bad_receive;

		CHECK(ibv_req_notify_cq(sent, 0) == 0 && ibv_req_notify_cq(received, 0) == 0);
		if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			from.length = 8;
			wr.wr.atomic.remote_addr = to.addr;
			wr.wr.atomic.rkey = mr->rkey;
		} else {
			wr.wr.rdma.remote_addr = to.addr;
			wr.wr.rdma.rkey = mr->rkey;
		}
		if (wr.opcode == IBV_WR_SEND)
			CHECK(ibv_post_recv(two, &receive, &bad_receive) == 0);
		CHECK(ibv_post_send(one, &wr, &bad) == 0);
		poll_one(sent, i);
		if (wr.opcode == IBV_WR_SEND)
			poll_one(received, i);
	}
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_cq(sent) == 0 && ibv_destroy_cq(received) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(own) == 0);
	free(memory);
}

static int reached;

/* A whole life with a cancellation waiting for the next cancellation point. With SIGSEGV blocked memory is copied by
 * system calls. */
static void *live_cancelled(void *blocked)
{
	sigset_t faults;

	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	if (blocked)
		CHECK(pthread_sigmask(SIG_BLOCK, &faults, NULL) == 0);
	CHECK(pthread_cancel(pthread_self()) == 0);
	live();
	reached++;
	pthread_testcancel();
	return NULL;
}

static void *sleep_for_completion(void *channel)
{
	struct ibv_cq *cq;
	void *cq_context;

	ibv_get_cq_event(channel, &cq, &cq_context);
	return NULL;
}

static void *sleep_for_async(void *unused)
{
	struct ibv_async_event event;

	(void)unused;
	ibv_get_async_event(context, &event);
	return NULL;
}

static void run_cancelled(void *(*function)(void *), void *argument, int from_outside)
{
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, function, argument) == 0);
	if (from_outside) {
		/* Before it sleeps and while it does. */
		if (from_outside > 1)
			usleep(20000);
		CHECK(pthread_cancel(thread) == 0);
	}
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
}

int main(void)
{
	struct ibv_comp_channel *channel;

	run_cancelled(live_cancelled, NULL, 0);
	context = open_first_device();
	channel = ibv_create_comp_channel(context);
	CHECK(channel);
	for (int when = 1; when <= 2; when++) {
		run_cancelled(sleep_for_completion, channel, when);
		run_cancelled(sleep_for_async, NULL, when);
	}
	run_cancelled(live_cancelled, context, 0);
	CHECK(reached == 2);
	/* All goes on; nothing is left locked. */
	live();
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_close_device(context) == 0);
	return 0;
}

/* Many threads make, connect, use, break and destroy things at the same time; others post to and poll from the same queues. */
#include "connect.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#define MAKERS 6
#define SHARERS 4
#define POSTS 2000

static struct ibv_context *context;
static int rounds;

/* One life after another: everything is made, used and destroyed; every other time it is destroyed with work under way. */
static void *make_and_destroy(void *argument)
{
	int number = (int)(intptr_t)argument;
	enum ibv_qp_type type = number % 3 == 2 ? IBV_QPT_UC : IBV_QPT_RC;
	char *memory = calloc(2, 65536);

	CHECK(memory);
	for (int round = 0; round < rounds; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
		struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, channel, 0);
		struct ibv_qp_init_attr init = plain_attributes(cq, type);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * 65536, ALL_ACCESS);
		struct ibv_sge from = { .addr = (uintptr_t)memory, .length = 65536 }, to = from;
		struct ibv_send_wr wr = { .sg_list = &from, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_recv_wr receive = { .wr_id = 9, .sg_list = &to, .num_sge = 1 }, *bad_receive;
		struct ibv_qp *one, *two;
		struct ibv_wc wc[3];

		CHECK(pd && channel && cq && mr);
		from.lkey = to.lkey = mr->lkey;
		to.addr += 65536;
		one = ibv_create_qp(pd, &init);
		two = ibv_create_qp(pd, &init);
		CHECK(one && two);
		connect_pair(one, two);
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		CHECK(ibv_post_recv(two, &receive, &bad_receive) == 0);
		memset(memory, number + 1 + round % 100, 65536);
		wr.wr.rdma.remote_addr = to.addr;
		wr.wr.rdma.rkey = mr->rkey;
		wr.opcode = IBV_WR_RDMA_WRITE;
		CHECK(ibv_post_send(one, &wr, &bad) == 0);
		wr.opcode = IBV_WR_SEND;
		CHECK(ibv_post_send(one, &wr, &bad) == 0);
		if (round % 2 == 0 && type == IBV_QPT_RC) {
			poll_all(cq, 3, wc);
			for (int i = 0; i < 3; i++)
				CHECK(wc[i].status == IBV_WC_SUCCESS);
			CHECK(memcmp(memory, memory + 65536, 65536) == 0);
		} else if (round % 4 == 1) {
			to_state(two, IBV_QPS_ERR);
		}
		CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
		CHECK(ibv_dereg_mr(mr) == 0);
		CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
	}
	free(memory);
	return NULL;
}

struct shared {
	struct ibv_qp *one, *two;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint64_t *sum;
	int posted, seen;
};

/* Several threads add to one word through one queue pair and poll the same completion queue. */
static void *post_and_poll(void *argument)
{
	struct shared *shared = argument;
	struct ibv_sge sge = { .addr = (uintptr_t)&shared->sum[1], .length = 8, .lkey = shared->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	double end = seconds() + PATIENCE_SECONDS;
	struct ibv_wc wc[4];
	int found, error;

	wr.wr.atomic.remote_addr = (uintptr_t)shared->sum;
	wr.wr.atomic.rkey = shared->mr->rkey;
	wr.wr.atomic.compare_add = 1;
	while (__atomic_load_n(&shared->seen, __ATOMIC_RELAXED) < POSTS) {
		if (__atomic_load_n(&shared->posted, __ATOMIC_RELAXED) < POSTS) {
			error = ibv_post_send(shared->one, &wr, &bad);
			CHECK(error == 0 || error == ENOMEM);
			if (!error)
				__atomic_fetch_add(&shared->posted, 1, __ATOMIC_RELAXED);
		}
		found = ibv_poll_cq(shared->cq, 4, wc);
		CHECK(found >= 0);
		for (int i = 0; i < found; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_FETCH_ADD);
		__atomic_fetch_add(&shared->seen, found, __ATOMIC_RELAXED);
		CHECK(seconds() < end);
	}
	return NULL;
}

static void *take_events(void *argument)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	volatile int *finished = argument;
	struct ibv_async_event event;

	while (!*finished) {
		/* Between the two calls the event may go with its object. */
		if (poll(&fd, 1, 10) == 1 && ibv_get_async_event(context, &event) == 0)
			ibv_ack_async_event(&event);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static uint64_t sum[2];
	struct shared shared = { .sum = sum };
	pthread_t makers[MAKERS], sharers[SHARERS], watcher;
	volatile int finished = 0;
	struct ibv_wc rest[SHARERS];
	struct ibv_qp_init_attr init;
	struct ibv_pd *pd;

	alarm(300);
	rounds = argc > 1 ? atoi(argv[1]) : 100;
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	shared.cq = ibv_create_cq(context, 4096, NULL, NULL, 0);
	shared.mr = ibv_reg_mr(pd, sum, sizeof(sum), ALL_ACCESS);
	init = plain_attributes(shared.cq, IBV_QPT_RC);
	shared.one = ibv_create_qp(pd, &init);
	shared.two = ibv_create_qp(pd, &init);
	CHECK(shared.mr && shared.one && shared.two);
	connect_pair(shared.one, shared.two);
	CHECK(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) == 0);
	CHECK(pthread_create(&watcher, NULL, take_events, (void *)&finished) == 0);
	for (int i = 0; i < SHARERS; i++)
		CHECK(pthread_create(&sharers[i], NULL, post_and_poll, &shared) == 0);
	for (int i = 0; i < MAKERS; i++)
		CHECK(pthread_create(&makers[i], NULL, make_and_destroy, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < SHARERS; i++)
		CHECK(pthread_join(sharers[i], NULL) == 0);
	for (int i = 0; i < MAKERS; i++)
		CHECK(pthread_join(makers[i], NULL) == 0);
	/* Threads that looked at the same moment may have posted a few more. */
	poll_all(shared.cq, shared.posted - shared.seen, rest);
	CHECK(shared.posted - shared.seen < SHARERS && sum[0] == (uint64_t)shared.posted);
	CHECK(ibv_destroy_qp(shared.one) == 0 && ibv_destroy_qp(shared.two) == 0);
	finished = 1;
	CHECK(pthread_join(watcher, NULL) == 0);
	CHECK(ibv_dereg_mr(shared.mr) == 0 && ibv_destroy_cq(shared.cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}

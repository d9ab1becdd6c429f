/* A thread with little stack, as coroutines and programs with thousands of threads have it, uses every verb of the data path. */
#include "connect.h"

#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

/* What the verbs may take, and what the C library keeps of a thread's stack for itself. */
#define STACK_BYTES (16 << 10)
#define OWN_BYTES (4 << 10)

#define LENGTH (64 << 10)
#define ROUNDS 300

static void poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	poll_all(cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS);
}

static void *live(void *unused)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *sent = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_cq *received = ibv_create_cq(context, 64, NULL, NULL, 0);
	/* Absent at first. */
	char *memory = mmap(NULL, 2 * LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * LENGTH, ALL_ACCESS);
	struct ibv_qp_init_attr init = plain_attributes(sent, IBV_QPT_RC);
	static const enum ibv_wr_opcode operations[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp *one, *two;

	CHECK(pd && sent && received && memory != MAP_FAILED && mr);
	one = ibv_create_qp(pd, &init);
	init.send_cq = init.recv_cq = received;
	two = ibv_create_qp(pd, &init);
	CHECK(one && two);
	connect_pair(one, two);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_sge from = { (uintptr_t)memory, i % 8 < 4 ? 8 : LENGTH, mr->lkey };
		struct ibv_sge to = { (uintptr_t)memory + LENGTH, LENGTH, mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &from, .num_sge = 1, .opcode = operations[i % 4],
					  .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;

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
		poll_one(sent);
		if (wr.opcode == IBV_WR_SEND)
			poll_one(received);
	}
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_cq(sent) == 0 && ibv_destroy_cq(received) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return unused;
}

int main(void)
{
	size_t smallest = PTHREAD_STACK_MIN, size = STACK_BYTES + OWN_BYTES;
	pthread_attr_t attributes;
	pthread_t thread;

	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, size > smallest ? size : smallest) == 0);
	CHECK(pthread_create(&thread, &attributes, live, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}

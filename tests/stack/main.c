/*
 * What the verbs of the data path take of their caller's stack, as coroutines and programs with thousands of threads have little: a thread uses each verb, and
 * the program looks how far down its stack something was written.
 */
#include "connect.h"

#include <pthread.h>
#include <sys/mman.h>

/* What the verbs may take, and what the thread has, filled with a byte that tells how far down something was written. */
#define STACK_BYTES (16 << 10)
#define ALL_BYTES (256 << 10)
#define UNTOUCHED 0xa5

#define LENGTH (64 << 10)
#define ROUNDS 300

static unsigned char *stack;
/* Where the verbs' frames begin: below that of their caller. */
static unsigned char *top;

static __attribute__((noinline)) unsigned char *frame_of_callee(void)
{
	return __builtin_frame_address(0);
}

static void poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	poll_all(cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS);
}

/* Everything is inlined here but the verbs, so that `top` is right for each of them. */
static __attribute__((flatten)) void *live(void *unused)
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

	top = frame_of_callee();
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
	pthread_attr_t attributes;
	pthread_t thread;
	size_t untouched = 0;
	long used;

	stack = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	CHECK(stack != MAP_FAILED);
	memset(stack, UNTOUCHED, ALL_BYTES);
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstack(&attributes, stack, ALL_BYTES) == 0);
	CHECK(pthread_create(&thread, &attributes, live, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	while (stack[untouched] == UNTOUCHED)
		untouched++;
	used = top - (stack + untouched);
	fprintf(stderr, "the verbs took %ld bytes of the stack\n", used);
	CHECK(used > 0 && used <= STACK_BYTES);
	return 0;
}

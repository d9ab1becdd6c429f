/* The extended interface for posting (ibv_wr_post(3)): each operation, data in all ways, batches, what is refused, and several threads. */
#include "connect.h"

#include <errno.h>
#include <pthread.h>

#define LENGTH 4096
#define DEPTH 16
#define INLINE 64
#define ROUNDS 200
#define THREADS 3

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *sent, *received;
static struct ibv_mr *mr;
static char *memory, *here, *there;
static struct ibv_wc wc[DEPTH];

static struct ibv_qp *create(enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = sent, .recv_cq = received, .qp_type = type, .pd = pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 4, .max_recv_sge = 1, .max_inline_data = INLINE },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = operations,
	};

	return ibv_create_qp_ex(context, &init);
}

static void receive(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)there, LENGTH, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* The next completion of a queue. */
static void expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	poll_all(cq, 1, wc);
	CHECK(wc[0].status == IBV_WC_SUCCESS && wc[0].wr_id == wr_id && wc[0].opcode == opcode);
}

/* A signaled request with this number. */
static struct ibv_qp_ex *number(struct ibv_qp_ex *qp, uint64_t wr_id)
{
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	return qp;
}

static void each_operation(struct ibv_qp *to, struct ibv_qp_ex *qp)
{
	uint64_t *word = (uint64_t *)there, *result = (uint64_t *)here;

	memset(there, 0, LENGTH);
	strcpy(here, "written");
	ibv_wr_start(qp);
	ibv_wr_rdma_write(number(qp, 1), mr->rkey, (uintptr_t)there);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 8);
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 1, IBV_WC_RDMA_WRITE);
	CHECK(strcmp(there, "written") == 0);

	receive(to, 2);
	ibv_wr_start(qp);
	ibv_wr_rdma_write_imm(number(qp, 2), mr->rkey, (uintptr_t)there, 0x01020304);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 8);
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 2, IBV_WC_RDMA_WRITE);
	expect(received, 2, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc[0].imm_data == 0x01020304 && wc[0].wc_flags & IBV_WC_WITH_IMM);

	strcpy(here, "a message");
	receive(to, 3);
	ibv_wr_start(qp);
	ibv_wr_send(number(qp, 3));
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 10);
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 3, IBV_WC_SEND);
	expect(received, 3, IBV_WC_RECV);
	CHECK(wc[0].byte_len == 10 && strcmp(there, "a message") == 0);

	receive(to, 4);
	ibv_wr_start(qp);
	ibv_wr_send_imm(number(qp, 4), 7);
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 4, IBV_WC_SEND);
	expect(received, 4, IBV_WC_RECV);
	CHECK(wc[0].byte_len == 0 && wc[0].imm_data == 7);

	strcpy(there, "read");
	ibv_wr_start(qp);
	ibv_wr_rdma_read(number(qp, 5), mr->rkey, (uintptr_t)there);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 5);
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 5, IBV_WC_RDMA_READ);
	CHECK(strcmp(here, "read") == 0);

	*word = 40;
	ibv_wr_start(qp);
	ibv_wr_atomic_fetch_add(number(qp, 6), mr->rkey, (uintptr_t)there, 2);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 8);
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 6, IBV_WC_FETCH_ADD);
	CHECK(*result == 40 && *word == 42);

	ibv_wr_start(qp);
	ibv_wr_atomic_cmp_swp(number(qp, 7), mr->rkey, (uintptr_t)there, 42, 5);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 8);
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 7, IBV_WC_COMP_SWAP);
	CHECK(*result == 42 && *word == 5);
}

/* Data from a list, inline from one buffer and from several, which may be used again at once. */
static void data_in_all_ways(struct ibv_qp_ex *qp)
{
	struct ibv_sge list[] = {
		{ (uintptr_t)here, 1, mr->lkey }, { (uintptr_t)here + 100, 2, mr->lkey }, { (uintptr_t)here + 200, 3, mr->lkey },
	};
	char one[] = "abc", two[] = "defgh";
	struct ibv_data_buf buffers[] = { { one, 3 }, { two, 0 }, { two, 6 } };

	here[0] = '1';
	memcpy(here + 100, "23", 2);
	memcpy(here + 200, "45", 3);
	ibv_wr_start(qp);
	ibv_wr_rdma_write(number(qp, 1), mr->rkey, (uintptr_t)there);
	ibv_wr_set_sge_list(qp, 3, list);
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)there + 100);
	ibv_wr_set_inline_data(qp, one, 4);
	ibv_wr_rdma_write(number(qp, 3), mr->rkey, (uintptr_t)there + 200);
	ibv_wr_set_inline_data_list(qp, 3, buffers);
	memset(one, 'x', sizeof(one));
	memset(two, 'x', sizeof(two));
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 1, IBV_WC_RDMA_WRITE);
	expect(sent, 3, IBV_WC_RDMA_WRITE);
	CHECK(strcmp(there, "12345") == 0 && strcmp(there + 100, "abc") == 0 && strcmp(there + 200, "abcdefgh") == 0);
}

/* What is refused, or given up, posts nothing: neither what is before it nor what is behind it. */
static void nothing_is_posted(struct ibv_qp_ex *qp)
{
	struct ibv_sge many[5] = { { (uintptr_t)here, 1, mr->lkey } };
	static char long_data[INLINE + 1];

	memset(there, 0, LENGTH);
	here[0] = 'z';
	ibv_wr_start(qp);
	ibv_wr_rdma_write(number(qp, 1), mr->rkey, (uintptr_t)there);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 1);
	ibv_wr_abort(qp);

	for (int wrong = 0; wrong < 5; wrong++) {
		ibv_wr_start(qp);
		ibv_wr_rdma_write(number(qp, 2), mr->rkey, (uintptr_t)there);
		ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 1);
		ibv_wr_rdma_write(number(qp, 3), mr->rkey, (uintptr_t)there);
		if (wrong == 0)
			ibv_wr_set_sge_list(qp, 5, many);
		else if (wrong == 1)
			ibv_wr_set_inline_data(qp, long_data, sizeof(long_data));
		else if (wrong == 2)
			ibv_wr_send_tso(qp, long_data, 1, 1);
		else if (wrong == 3)
			ibv_wr_set_inline_data(qp, NULL, 1);
		else
			for (int i = 0; i < DEPTH; i++)
				ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)there);
		CHECK(ibv_wr_complete(qp) == (wrong == 2 ? EOPNOTSUPP : wrong == 4 ? ENOMEM : EINVAL));
	}
	/* Nothing was started. */
	ibv_wr_send(number(qp, 4));
	CHECK(ibv_wr_complete(qp) == EINVAL);
	/* Data without a request, and nothing at all. */
	ibv_wr_start(qp);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 1);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	CHECK(ibv_wr_complete(qp) == 0);
	CHECK(ibv_poll_cq(sent, 1, wc) == 0 && there[0] == 0);

	/* As many as there is room for go. */
	ibv_wr_start(qp);
	for (int i = 0; i < DEPTH; i++) {
		ibv_wr_rdma_write(number(qp, i), mr->rkey, (uintptr_t)there + i);
		ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 1);
	}
	CHECK(ibv_wr_complete(qp) == 0);
	for (int i = 0; i < DEPTH; i++)
		expect(sent, i, IBV_WC_RDMA_WRITE);
	CHECK(there[0] == 'z' && there[DEPTH - 1] == 'z' && there[DEPTH] == 0);
}

static void *add(void *queue_pair)
{
	struct ibv_qp_ex *qp = queue_pair;

	for (int i = 0; i < ROUNDS; i++) {
		int answer;

		do {
			ibv_wr_start(qp);
			for (int j = 0; j < 2; j++) {
				ibv_wr_atomic_fetch_add(number(qp, 1), mr->rkey, (uintptr_t)there, 1);
				ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 8);
			}
			answer = ibv_wr_complete(qp);
		} while (answer == ENOMEM);
		CHECK(answer == 0);
	}
	return NULL;
}

/* Each has a batch of its own. */
static void several_threads(struct ibv_qp_ex *qp)
{
	pthread_t threads[THREADS];

	*(uint64_t *)there = 0;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, add, qp) == 0);
	for (int i = 0; i < THREADS * ROUNDS * 2; i++)
		expect(sent, 1, IBV_WC_FETCH_ADD);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(*(uint64_t *)there == THREADS * ROUNDS * 2);
}

static void unreliable_datagrams(void)
{
	struct ibv_qp *one = create(IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	struct ibv_qp *two = create(IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
	struct ibv_ah_attr attr = to_own_host(context);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_qp_ex *qp;

	CHECK(one && two && ah);
	qp = ibv_qp_to_qp_ex(one);
	CHECK(qp != NULL);
	connect_pair(one, two);
	receive(two, 9);
	strcpy(here, "datagram");
	ibv_wr_start(qp);
	ibv_wr_send_imm(number(qp, 8), 3);
	ibv_wr_set_ud_addr(qp, ah, two->qp_num, QKEY);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, 9);
	CHECK(ibv_wr_complete(qp) == 0);
	expect(sent, 8, IBV_WC_SEND);
	expect(received, 9, IBV_WC_RECV);
	CHECK(wc[0].imm_data == 3 && strcmp(there + 40, "datagram") == 0);
	/* Without an address. */
	ibv_wr_start(qp);
	ibv_wr_send(number(qp, 8));
	CHECK(ibv_wr_complete(qp) == EINVAL);
	CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
}

int main(void)
{
	const uint64_t all = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
			     IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
	struct ibv_qp *one, *two;
	struct ibv_qp_ex *qp;

	context = open_first_device();
	pd = ibv_alloc_pd(context);
	sent = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	received = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	memory = calloc(2, LENGTH);
	CHECK(pd && sent && received && memory);
	here = memory;
	there = memory + LENGTH;
	mr = ibv_reg_mr(pd, memory, 2 * LENGTH, ALL_ACCESS);
	CHECK(mr);

	/* What the type does not have is refused where it is created. */
	errno = 0;
	CHECK(create(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE) == NULL && errno == EOPNOTSUPP);
	CHECK(create(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ) == NULL && errno == EOPNOTSUPP);
	CHECK(create(IBV_QPT_RC, IBV_QP_EX_WITH_TSO) == NULL && errno == EOPNOTSUPP);
	one = create(IBV_QPT_RC, all);
	two = create(IBV_QPT_RC, 0);
	CHECK(one && two && ibv_qp_to_qp_ex(two) == NULL);
	qp = ibv_qp_to_qp_ex(one);
	CHECK(qp != NULL && &qp->qp_base == one);

	/* Not before it may send. */
	ibv_wr_start(qp);
	ibv_wr_send(number(qp, 1));
	CHECK(ibv_wr_complete(qp) == EINVAL);
	connect_pair(one, two);
	each_operation(two, qp);
	data_in_all_ways(qp);
	nothing_is_posted(qp);
	several_threads(qp);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	unreliable_datagrams();
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(sent) == 0 && ibv_destroy_cq(received) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	free(memory);
	return 0;
}

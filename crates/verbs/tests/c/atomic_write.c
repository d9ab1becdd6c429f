/*
 * Atomic WRITEs (InfiniBand specification, volume 1, annex A19): 8 bytes that appear at once, in order with other requests, by both interfaces for
 * posting; and what is refused.
 */
#include "connect.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEPTH 16
#define ROUNDS 2000

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *from, *to;
static struct ibv_mr *mr, *readable, *askew;
static _Alignas(64) uint64_t here[8], there[8];
static _Atomic uint64_t *watched = (_Atomic uint64_t *)&there[2];
static atomic_int is_over;
static struct ibv_wc wc;

static struct ibv_qp *create(enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .pd = pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = operations,
	};

	return ibv_create_qp_ex(context, &init);
}

static int post(enum ibv_wr_opcode opcode, uint32_t length, void *address, uint32_t rkey, int flags)
{
	struct ibv_sge sge = { (uintptr_t)here, length, flags & IBV_SEND_INLINE ? 0 : mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED | flags }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)address;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(from, &wr, &bad);
}

static void finished(enum ibv_wc_status status)
{
	poll_all(cq, 1, &wc);
	CHECK(wc.status == status);
}

static void connect_again(void)
{
	to_state(from, IBV_QPS_RESET);
	to_state(to, IBV_QPS_RESET);
	connect_pair(from, to);
}

/* By a list of elements, inline, and built. */
static void written(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from);
	uint64_t value = 3;

	here[0] = 1;
	CHECK(post(IBV_WR_ATOMIC_WRITE, 8, there, mr->rkey, 0) == 0);
	finished(IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_ATOMIC_WRITE && wc.wr_id == 7 && there[0] == 1 && there[1] == 0);
	here[0] = 2;
	CHECK(post(IBV_WR_ATOMIC_WRITE, 8, there, mr->rkey, IBV_SEND_INLINE) == 0);
	here[0] = 0;
	finished(IBV_WC_SUCCESS);
	CHECK(there[0] == 2);

	/* Behind a WRITE, and before a READ. */
	here[1] = 9;
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)&there[1]);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)&here[1], 8);
	ibv_wr_atomic_write(qp, mr->rkey, (uintptr_t)there, &value);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(qp, mr->rkey, (uintptr_t)there);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)&here[4], 16);
	value = 0;
	CHECK(ibv_wr_complete(qp) == 0);
	finished(IBV_WC_SUCCESS);
	CHECK(here[4] == 3 && here[5] == 9);
}

static void *watch(void *unused)
{
	(void)unused;
	while (!atomic_load(&is_over)) {
		uint64_t seen = atomic_load(watched);

		CHECK((uint32_t)seen == (uint32_t)(seen >> 32));
	}
	return NULL;
}

static void whole(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		here[0] = i << 32 | i;
		CHECK(post(IBV_WR_ATOMIC_WRITE, 8, &there[2], mr->rkey, 0) == 0);
		finished(IBV_WC_SUCCESS);
		CHECK(there[2] == (i << 32 | i));
	}
	atomic_store(&is_over, 1);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void refused(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from);
	struct ibv_qp_attr barred;

	CHECK(post(IBV_WR_ATOMIC_WRITE, 4, there, mr->rkey, 0) == EINVAL);
	CHECK(post(IBV_WR_ATOMIC_WRITE, 16, there, mr->rkey, 0) == EINVAL);
	CHECK(post(IBV_WR_ATOMIC_WRITE, 16, there, mr->rkey, IBV_SEND_INLINE) == EINVAL);
	ibv_wr_start(qp);
	ibv_wr_atomic_write(qp, mr->rkey, (uintptr_t)there, NULL);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	CHECK(!create(IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_WRITE) && errno == EOPNOTSUPP);
	CHECK(!create(IBV_QPT_UD, IBV_QP_EX_WITH_ATOMIC_WRITE) && errno == EOPNOTSUPP);

	there[3] = 0;
	here[0] = 5;
	CHECK(post(IBV_WR_ATOMIC_WRITE, 8, (char *)&there[3] + 4, mr->rkey, 0) == 0);
	finished(IBV_WC_REM_INV_REQ_ERR);
	connect_again();
	/* The address is aligned, and what it names is not. */
	CHECK(post(IBV_WR_ATOMIC_WRITE, 8, (void *)0x1000, askew->rkey, 0) == 0);
	finished(IBV_WC_REM_INV_REQ_ERR);
	connect_again();
	CHECK(post(IBV_WR_ATOMIC_WRITE, 8, &there[3], readable->rkey, 0) == 0);
	finished(IBV_WC_REM_ACCESS_ERR);
	connect_again();
	CHECK(post(IBV_WR_ATOMIC_WRITE, 8, &there[3], mr->rkey ^ 0x100, 0) == 0);
	finished(IBV_WC_REM_ACCESS_ERR);
	connect_again();
	/* Like READs and atomics they have a depth. */
	barred = usual_attributes(context, to->qp_num);
	barred.max_rd_atomic = 0;
	barred.qp_state = IBV_QPS_RTS;
	to_state(from, IBV_QPS_RESET);
	to_state(to, IBV_QPS_RESET);
	to_open_init(from);
	to_rtr(from, to->qp_num);
	CHECK(ibv_modify_qp(from, &barred, RTS_MASK(IBV_QPT_RC)) == 0);
	CHECK(post(IBV_WR_ATOMIC_WRITE, 8, &there[3], mr->rkey, 0) == EINVAL);
	CHECK(there[3] == 0);
}

int main(void)
{
	struct ibv_device_attr_ex attributes;

	context = open_first_device();
	CHECK(ibv_query_device_ex(context, NULL, &attributes) == 0);
	/* IB_UVERBS_DEVICE_ATOMIC_WRITE of Linux 6.2. */
	CHECK(attributes.device_cap_flags_ex & 1ULL << 40);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(pd && cq);
	from = create(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_WRITE);
	to = create(IBV_QPT_RC, 0);
	/* Both arrays, by one key. */
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | ALL_ACCESS);
	readable = ibv_reg_mr(pd, there, sizeof(there), IBV_ACCESS_REMOTE_READ);
	askew = ibv_reg_mr_iova(pd, (char *)&there[3] + 4, 16, 0x1000, ALL_ACCESS);
	CHECK(from && to && mr && readable && askew);
	connect_pair(from, to);
	written();
	whole();
	refused();
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_dereg_mr(mr) && !ibv_dereg_mr(readable) && !ibv_dereg_mr(askew));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}

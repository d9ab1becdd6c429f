/* Device memory: what is copied there peers read and write, within its bounds and those of the device; regions of it begin at 0. */
#include "connect.h"

#include <sys/wait.h>

#define LENGTH 4096
#define DEPTH 4
#define ZERO_BASED (ALL_ACCESS | IBV_ACCESS_ZERO_BASED)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *peer;
static struct ibv_mr *own;
static char *here;

static struct ibv_dm *allocate(size_t length, uint32_t alignment)
{
	struct ibv_alloc_dm_attr attr = { .length = length, .log_align_req = alignment };

	return ibv_alloc_dm(context, &attr);
}

static enum ibv_wc_status execute(enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t address, uint32_t rkey)
{
	struct ibv_send_wr wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	set_remote(&wr, address, rkey);
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	poll_all(cq, 1, &wc);
	return wc.status;
}

static void transfers(void)
{
	struct ibv_dm *dm = allocate(LENGTH, 12);
	struct ibv_mr *mr, *part;
	char bytes[32] = { 0 };
	struct ibv_sge sge = { (uintptr_t)here, 16, own->lkey };
	uint64_t word = 41;

	CHECK(dm && dm->context == context);
	mr = ibv_reg_dm_mr(pd, dm, 0, LENGTH, ZERO_BASED);
	part = ibv_reg_dm_mr(pd, dm, 1024, 512, ZERO_BASED);
	CHECK(mr && part && mr->length == LENGTH && part->length == 512);
	CHECK(ibv_memcpy_from_dm(bytes, dm, 0, sizeof(bytes)) == 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		CHECK(bytes[i] == 0);

	/* The peer writes, the process reads; and the other way round. */
	strcpy(here, "to the device");
	CHECK(execute(IBV_WR_RDMA_WRITE, sge, 8, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ibv_memcpy_from_dm(bytes, dm, 8, 16) == 0 && !strcmp(bytes, "to the device"));
	CHECK(ibv_memcpy_to_dm(dm, 1024, "from a part", 12) == 0);
	CHECK(execute(IBV_WR_RDMA_READ, sge, 0, part->rkey) == IBV_WC_SUCCESS);
	CHECK(!strcmp(here, "from a part"));
	CHECK(ibv_memcpy_to_dm(dm, 64, &word, 8) == 0);
	sge.length = 8;
	CHECK(execute(IBV_WR_ATOMIC_FETCH_AND_ADD, sge, 64, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ibv_memcpy_from_dm(&word, dm, 64, 8) == 0 && word == 42);

	/* It is a source, too: named from 0. */
	sge = (struct ibv_sge) { 0, 12, part->lkey };
	memset(here, 0, LENGTH);
	CHECK(execute(IBV_WR_RDMA_WRITE, sge, (uintptr_t)here, own->rkey) == IBV_WC_SUCCESS);
	CHECK(!strcmp(here, "from a part"));

	/* Not beyond the part. */
	sge = (struct ibv_sge) { (uintptr_t)here, 16, own->lkey };
	CHECK(execute(IBV_WR_RDMA_READ, sge, 504, part->rkey) == IBV_WC_REM_ACCESS_ERR);
	to_state(qp, IBV_QPS_RESET);
	to_state(peer, IBV_QPS_RESET);
	connect_pair(qp, peer);

	CHECK(ibv_memcpy_to_dm(dm, LENGTH - 8, bytes, 12) == EFAULT);
	CHECK(ibv_memcpy_from_dm(bytes, dm, LENGTH + 4, 0) == EFAULT);
	CHECK(ibv_memcpy_from_dm(bytes, dm, UINT64_MAX - 3, 8) == EFAULT);
	CHECK(ibv_memcpy_to_dm(dm, 1, bytes, 4) == EINVAL && ibv_memcpy_from_dm(bytes, dm, 4, 5) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, LENGTH, bytes, 0) == 0);
	REFUSED(ibv_reg_dm_mr(pd, dm, 0, LENGTH, ALL_ACCESS), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, dm, 1, LENGTH, ZERO_BASED), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, dm, LENGTH + 1, 0, ZERO_BASED), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, here, LENGTH, 0) != 0 && errno == EINVAL);

	/* It is in use as long as one region is. */
	CHECK(ibv_free_dm(dm) == EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_free_dm(dm) == EBUSY);
	CHECK(ibv_memcpy_to_dm(dm, 0, "still there", 12) == 0);
	CHECK(ibv_dereg_mr(part) == 0);
	CHECK(ibv_free_dm(dm) == 0);
}

/* It needs no engine: a forked child has some by its parent's context, and what it writes is its own. */
static void forked(void)
{
	struct ibv_dm *dm = allocate(64, 0);
	uint32_t word = 7;
	int status;
	pid_t child;

	CHECK(dm && ibv_memcpy_to_dm(dm, 0, &word, 4) == 0);
	child = fork();
	if (!child) {
		struct ibv_dm *own = allocate(64, 0);
		struct ibv_device_attr_ex attr;

		CHECK(ibv_query_device_ex(context, NULL, &attr) == 0 && attr.max_dm_size >= 64);
		CHECK(own && ibv_memcpy_from_dm(&word, own, 0, 4) == 0 && word == 0);
		CHECK(ibv_memcpy_to_dm(dm, 0, &word, 4) == EIO && ibv_free_dm(dm) == EIO);
		CHECK(ibv_free_dm(own) == 0);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(ibv_memcpy_from_dm(&word, dm, 0, 4) == 0 && word == 7 && ibv_free_dm(dm) == 0);
}

static void bounds(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_alloc_dm_attr unknown = { .length = 8, .comp_mask = 1 };
	struct ibv_dm *all, *little;

	CHECK(ibv_query_device_ex(context, NULL, &attr) == 0 && attr.max_dm_size >= 1 << 20);
	all = allocate(attr.max_dm_size - 8, 0);
	CHECK(all);
	little = allocate(8, 0);
	CHECK(little);
	REFUSED(allocate(1, 0), ENOMEM);
	CHECK(ibv_free_dm(all) == 0);
	all = allocate(1, 0);
	CHECK(all && ibv_free_dm(all) == 0 && ibv_free_dm(little) == 0);
	REFUSED(allocate(attr.max_dm_size + 1, 0), ENOMEM);
	REFUSED(allocate(SIZE_MAX, 0), ENOMEM);
	REFUSED(allocate(8, 63), ENOMEM);
	REFUSED(allocate(8, 4000), ENOMEM);
	REFUSED(allocate(0, 0), EINVAL);
	REFUSED(ibv_alloc_dm(context, &unknown), EINVAL);
}

int main(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_context *other;
	struct ibv_device_attr_ex attr;
	struct ibv_alloc_dm_attr most = { 0 };

	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	here = calloc(1, LENGTH);
	CHECK(pd && cq && here);
	own = ibv_reg_mr(pd, here, LENGTH, ALL_ACCESS);
	init = plain_attributes(cq, IBV_QPT_RC);
	qp = ibv_create_qp(pd, &init);
	peer = ibv_create_qp(pd, &init);
	CHECK(own && qp && peer);
	connect_pair(qp, peer);
	transfers();
	bounds();
	forked();

	/* What a closed device still holds is free for others. */
	other = open_first_device();
	CHECK(ibv_query_device_ex(other, NULL, &attr) == 0);
	most.length = attr.max_dm_size;
	CHECK(ibv_alloc_dm(other, &most));
	REFUSED(allocate(8, 0), ENOMEM);
	CHECK(ibv_close_device(other) == 0);
	{
		struct ibv_dm *dm = allocate(8, 0);

		CHECK(dm && ibv_free_dm(dm) == 0);
	}
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_dereg_mr(own) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	CHECK(ibv_close_device(context) == 0);
	free(here);
	return 0;
}

/*
 * Contexts, protection domains, regions and device memory once more (ibv_import_device(3) and its like): a WRITE goes through imported structures
 * alone; objects end with one of their structures; and what is refused.
 */
#include "connect.h"

#include <fcntl.h>

static char here[64], there[64];

/* A WRITE between queue pairs of an imported protection domain. */
static void imported_objects_work(struct ibv_context *context, struct ibv_pd *pd, struct ibv_mr *mr)
{
	struct ibv_context *again = ibv_import_device(fcntl(context->cmd_fd, F_DUPFD_CLOEXEC, 0));
	struct ibv_pd *pd_again;
	struct ibv_mr *mr_again, *target;
	struct ibv_cq *cq;
	struct ibv_qp *from, *to;
	struct ibv_wc wc;

	CHECK(again && again != context && again->device == context->device && again->cmd_fd != context->cmd_fd);
	pd_again = ibv_import_pd(again, pd->handle);
	CHECK(pd_again && pd_again != pd && pd_again->context == again && pd_again->handle == pd->handle);
	mr_again = ibv_import_mr(pd_again, mr->handle);
	CHECK(mr_again && mr_again != mr && mr_again->lkey == mr->lkey && mr_again->rkey == mr->rkey && !mr_again->addr);
	CHECK(mr_again->length == mr->length && mr_again->pd == pd_again && mr_again->context == again);
	target = ibv_reg_mr(pd_again, there, sizeof(there), ALL_ACCESS);
	cq = ibv_create_cq(again, 4, NULL, NULL, 0);
	CHECK(target && cq);
	{
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
		struct ibv_sge sge = { (uintptr_t)here, 8, mr_again->lkey };
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;

		from = ibv_create_qp(pd_again, &init);
		to = ibv_create_qp(pd, &init);
		CHECK(from && to);
		connect_pair(from, to);
		wr.wr.rdma.remote_addr = (uintptr_t)there;
		wr.wr.rdma.rkey = target->rkey;
		strcpy(here, "through");
		CHECK(ibv_post_send(from, &wr, &bad) == 0);
		poll_all(cq, 1, &wc);
		CHECK(wc.status == IBV_WC_SUCCESS && !strcmp(there, "through"));
	}
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_dereg_mr(target) && !ibv_destroy_cq(cq));
	ibv_unimport_mr(mr_again);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	ibv_unimport_pd(pd_again);
	CHECK(ibv_close_device(again) == 0);
	CHECK(fcntl(context->cmd_fd, F_GETFD) >= 0);
}

/* An object ends with the first structure that is destroyed; the others are freed. */
static void one_ends_for_all(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context), *again = ibv_import_pd(context, pd->handle);
	struct ibv_mr *mr = ibv_reg_mr(pd, here, 8, 0), *imported = ibv_import_mr(again, mr->handle);

	CHECK(pd && again && mr && imported);
	CHECK(ibv_dereg_mr(imported) == 0 && ibv_dealloc_pd(again) == 0);
	REFUSED(ibv_import_pd(context, pd->handle), EINVAL);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	pd = ibv_alloc_pd(context);
	again = ibv_import_pd(context, pd->handle);
	CHECK(pd && again && ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(again) == 0);
}

static void device_memory(struct ibv_context *context)
{
	struct ibv_alloc_dm_attr attributes = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &attributes), *again;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr, *mr_again;
	uint32_t word = 7, found = 0;

	CHECK(dm && pd);
	again = ibv_import_dm(context, dm->handle);
	CHECK(again && again != dm);
	CHECK(ibv_memcpy_to_dm(dm, 4, &word, 4) == 0 && ibv_memcpy_from_dm(&found, again, 4, 4) == 0 && found == 7);
	mr = ibv_reg_dm_mr(pd, again, 0, 64, IBV_ACCESS_ZERO_BASED);
	CHECK(mr);
	mr_again = ibv_import_mr(pd, mr->handle);
	CHECK(mr_again && ibv_free_dm(dm) == EBUSY && ibv_dereg_mr(mr_again) == 0);
	ibv_unimport_mr(mr);
	ibv_unimport_dm(again);
	CHECK(ibv_free_dm(dm) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* What was made lives as long as one of the contexts. */
static void closed_in_any_order(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device), *again;
	struct ibv_pd *pd = ibv_alloc_pd(context), *pd_again;
	struct ibv_mr *mr;

	CHECK(context && pd);
	again = ibv_import_device(dup(context->cmd_fd));
	CHECK(again);
	pd_again = ibv_import_pd(again, pd->handle);
	CHECK(pd_again && ibv_close_device(context) == 0);
	mr = ibv_reg_mr(pd_again, here, 8, 0);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	/* One that is imported can be imported. */
	context = ibv_import_device(dup(again->cmd_fd));
	CHECK(context && ibv_close_device(again) == 0 && ibv_close_device(context) == 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd, *other;
	struct ibv_mr *mr;
	int file = open("/dev/null", O_RDONLY);

	CHECK(list && list[0] && file >= 0);
	context = ibv_open_device(list[0]);
	CHECK(context);
	pd = ibv_alloc_pd(context);
	other = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, here, sizeof(here), ALL_ACCESS);
	CHECK(pd && other && mr && pd->handle != other->handle);
	imported_objects_work(context, pd, mr);
	one_ends_for_all(context);
	device_memory(context);
	closed_in_any_order(list[0]);

	REFUSED(ibv_import_device(-1), EBADF);
	REFUSED(ibv_import_device(1000), EBADF);
	/* A context owns its descriptor. */
	REFUSED(ibv_import_device(context->cmd_fd), EINVAL);
	/* The descriptor stays the caller's. */
	REFUSED(ibv_import_device(file), EOPNOTSUPP);
	CHECK(close(file) == 0);
	REFUSED(ibv_import_pd(context, 999), EINVAL);
	REFUSED(ibv_import_pd(context, mr->handle), EINVAL);
	REFUSED(ibv_import_mr(pd, pd->handle), EINVAL);
	REFUSED(ibv_import_mr(other, mr->handle), EINVAL);
	REFUSED(ibv_import_dm(context, pd->handle), EINVAL);
	REFUSED(ibv_import_pd(NULL, 0), EINVAL);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_dealloc_pd(other) && !ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}

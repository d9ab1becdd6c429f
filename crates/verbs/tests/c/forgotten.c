/* A program that closes its device without destroying anything first, again and again: as with a kernel's device, nothing counts
 * that belonged to a context which was closed. */
#include "connect.h"

/* Of each limit, what one context makes: two of them have more than all. */
#define SHARE(limit) ((limit) / 2 + 1)

static struct ibv_cq *cq;
static struct ibv_pd *pd;

static void forget_all(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_context *context = open_first_device();
	struct ibv_ah_attr address = to_own_host(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_qp_init_attr init;
	struct ibv_device_attr device;

	CHECK(ibv_query_device(context, &device) == 0 && channel);
	for (int i = 0; i < SHARE(device.max_pd); i++)
		CHECK(pd = ibv_alloc_pd(context));
	for (int i = 0; i < SHARE(device.max_cq); i++)
		CHECK(cq = ibv_create_cq(context, 1, NULL, i % 64 ? NULL : channel, 0));
	for (int i = 0; i < SHARE(device.max_srq); i++)
		CHECK(ibv_create_srq(pd, &srq));
	for (int i = 0; i < SHARE(device.max_ah); i++)
		CHECK(ibv_create_ah(pd, &address));
	/* They are in use: by a queue pair, and a region is in the domain. */
	init = plain_attributes(cq, IBV_QPT_RC);
	CHECK(ibv_create_qp(pd, &init));
	CHECK(ibv_reg_mr(pd, &srq, sizeof(srq), IBV_ACCESS_LOCAL_WRITE));
	CHECK(ibv_close_device(context) == 0);
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_wc wc;
	struct ibv_cq *old_cq;
	struct ibv_pd *old_pd;

	alarm(300);
	for (int i = 0; i < 4; i++)
		forget_all();
	/* What is forgotten stays where it is, and may still be given back. */
	old_cq = cq;
	old_pd = pd;
	CHECK(ibv_poll_cq(old_cq, 1, &wc) == 0);
	CHECK(ibv_destroy_cq(old_cq) == 0 && ibv_dealloc_pd(old_pd) == 0);
	context = open_first_device();
	CHECK(cq = ibv_create_cq(context, 1, NULL, NULL, 0));
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_close_device(context) == 0);
	return 0;
}

/* What ibv_query_device promises is so: up to each limit things are made and work, one beyond is refused. */
#include "connect.h"

static struct ibv_context *context;
static struct ibv_device_attr device;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char byte[64];

static void *make_pd(void)
{
	return ibv_alloc_pd(context);
}

static int end_pd(void *object)
{
	return ibv_dealloc_pd(object);
}

static void *make_cq(void)
{
	return ibv_create_cq(context, 1, NULL, NULL, 0);
}

static int end_cq(void *object)
{
	return ibv_destroy_cq(object);
}

static void *make_mr(void)
{
	return ibv_reg_mr(pd, byte, sizeof(byte), IBV_ACCESS_LOCAL_WRITE);
}

static int end_mr(void *object)
{
	return ibv_dereg_mr(object);
}

static void *make_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };

	return ibv_create_srq(pd, &init);
}

static int end_srq(void *object)
{
	return ibv_destroy_srq(object);
}

static void *make_ah(void)
{
	static struct ibv_ah_attr attr;

	if (!attr.is_global)
		attr = to_own_host(context);
	return ibv_create_ah(pd, &attr);
}

static int end_ah(void *object)
{
	return ibv_destroy_ah(object);
}

static void *make_qp(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };

	init.cap.max_send_wr = init.cap.max_recv_wr = 1;
	return ibv_create_qp(pd, &init);
}

static int end_qp(void *object)
{
	return ibv_destroy_qp(object);
}

/* `present`: how many exist already. */
static void number_of(const char *what, void *(*make)(void), int (*end)(void *), int limit, int present)
{
	void **objects = calloc(limit, sizeof(*objects));
	int made = 0;

	CHECK(objects);
	while (made < limit - present) {
		objects[made] = make();
		if (!objects[made]) {
			fprintf(stderr, "%s: %d of %d could be made (errno %d)\n", what, made, limit, errno);
			exit(1);
		}
		made++;
	}
	REFUSED(make(), ENOMEM);
	/* A place that is free again is used again. */
	CHECK(end(objects[made / 2]) == 0);
	objects[made / 2] = make();
	CHECK(objects[made / 2]);
	REFUSED(make(), ENOMEM);
	while (made > 0)
		CHECK(end(objects[--made]) == 0);
	free(objects);
}

static void size_of_queue_pairs(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	struct ibv_sge *sge = calloc(device.max_sge + 1, sizeof(*sge));
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = device.max_sge }, *bad;
	struct ibv_qp_init_attr most = init, beyond;
	struct ibv_qp *qp;

	most.cap.max_send_wr = most.cap.max_recv_wr = device.max_qp_wr;
	most.cap.max_send_sge = most.cap.max_recv_sge = device.max_sge;
	init = most;
	qp = ibv_create_qp(pd, &init);
	CHECK(qp && sge);
	CHECK(init.cap.max_send_wr >= most.cap.max_send_wr && init.cap.max_recv_wr >= most.cap.max_recv_wr);
	CHECK(init.cap.max_send_sge >= most.cap.max_send_sge && init.cap.max_recv_sge >= most.cap.max_recv_sge);
	to_open_init(qp);
	for (uint32_t i = 0; i < init.cap.max_recv_wr; i++)
		CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(ibv_post_recv(qp, &wr, &bad) == ENOMEM);
	wr.num_sge++;
	CHECK(ibv_post_recv(qp, &wr, &bad) == EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
#define BEYOND(field, value)                          \
	do {                                          \
		beyond = most;                        \
		beyond.cap.field = (value);           \
		REFUSED(ibv_create_qp(pd, &beyond), EINVAL); \
	} while (0)
	BEYOND(max_send_wr, device.max_qp_wr + 1);
	BEYOND(max_recv_wr, device.max_qp_wr + 1);
	BEYOND(max_send_sge, device.max_sge + 1);
	BEYOND(max_recv_sge, device.max_sge + 1);
	BEYOND(max_send_wr, UINT32_MAX);
	BEYOND(max_recv_wr, UINT32_MAX);
	BEYOND(max_send_sge, UINT32_MAX);
	BEYOND(max_recv_sge, UINT32_MAX);
	BEYOND(max_inline_data, UINT32_MAX);
	free(sge);
}

static void size_of_shared_queues(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = device.max_srq_wr, .max_sge = device.max_srq_sge } };
	struct ibv_srq_attr attr = { .max_wr = device.max_srq_wr + 1 };
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	CHECK(srq && init.attr.max_wr >= (uint32_t)device.max_srq_wr && init.attr.max_sge >= (uint32_t)device.max_srq_sge);
	for (uint32_t i = 0; i < init.attr.max_wr; i++)
		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == ENOMEM && bad == &wr);
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EINVAL);
	attr.max_wr = 5;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EINVAL);
	attr.srq_limit = device.max_srq_wr + 1;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == EINVAL);
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.max_wr == init.attr.max_wr && attr.srq_limit == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
	init.attr.max_wr = device.max_srq_wr + 1;
	REFUSED(ibv_create_srq(pd, &init), EINVAL);
	init.attr.max_wr = 1;
	init.attr.max_sge = device.max_srq_sge + 1;
	REFUSED(ibv_create_srq(pd, &init), EINVAL);
	init.attr.max_wr = 0;
	init.attr.max_sge = 1;
	REFUSED(ibv_create_srq(pd, &init), EINVAL);
}

static void sizes(void)
{
	struct ibv_cq *largest = ibv_create_cq(context, device.max_cqe, NULL, NULL, 0);
	struct ibv_mr *mr;

	CHECK(largest && largest->cqe >= device.max_cqe);
	CHECK(ibv_destroy_cq(largest) == 0);
	REFUSED(ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(context, 4, NULL, NULL, -1), EINVAL);
	mr = ibv_reg_mr(pd, (void *)4096, device.max_mr_size, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	REFUSED(ibv_reg_mr(pd, (void *)4096, device.max_mr_size + 1, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	REFUSED(ibv_reg_mr(pd, byte, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	REFUSED(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 10), 100, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	REFUSED(ibv_reg_mr_iova(pd, byte, sizeof(byte), UINT64_MAX - 10, IBV_ACCESS_LOCAL_WRITE), EINVAL);
}

/* The extended query says the same, whatever room it is given. */
static void extended_query(void)
{
	struct ibv_device_attr_ex extended;
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };

	memset(&extended, 0xff, sizeof(extended));
	CHECK(ibv_query_device_ex(context, NULL, &extended) == 0);
	CHECK(memcmp(&extended.orig_attr, &device, sizeof(device)) == 0);
	CHECK(device.vendor_id != 0 && device.node_guid != 0 && device.sys_image_guid != 0);
	CHECK(extended.phys_port_cnt_ex == device.phys_port_cnt && extended.comp_mask == 0 && extended.max_dm_size > 0);
	CHECK(extended.tso_caps.max_tso == 0 && extended.raw_packet_caps == 0);
	CHECK(ibv_query_device_ex(context, &input, &extended) == EINVAL);
}

int main(void)
{
	alarm(300);
	context = open_first_device();
	CHECK(ibv_query_device(context, &device) == 0);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	extended_query();
	sizes();
	size_of_queue_pairs();
	size_of_shared_queues();
	number_of("PD", make_pd, end_pd, device.max_pd, 1);
	number_of("CQ", make_cq, end_cq, device.max_cq, 1);
	number_of("SRQ", make_srq, end_srq, device.max_srq, 0);
	number_of("AH", make_ah, end_ah, device.max_ah, 0);
	number_of("MR", make_mr, end_mr, device.max_mr, 0);
	number_of("QP", make_qp, end_qp, device.max_qp, 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}

/* Functions that other libraries call rather than programs: conversions of rates and of the kernel's structures, sysfs, forks; and registrations
 * with all functions that there are for them. */
#include "connect.h"

#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

/* Exported for other libraries, in no header that is installed. */
extern const char *ibv_get_sysfs_path(void);
extern int ibv_read_sysfs_file(const char *directory, const char *file, char *buffer, size_t size);
extern int ibv_dontfork_range(void *base, size_t size);
extern int ibv_dofork_range(void *base, size_t size);
extern void ibv_register_driver(void);
extern void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from);
extern void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from);
extern void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from);
extern void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from);

static void rates(void)
{
	CHECK(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4 && mult_to_ibv_rate(4) == IBV_RATE_10_GBPS);
	CHECK(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125 && mbps_to_ibv_rate(103125) == IBV_RATE_100_GBPS);
	CHECK(ibv_rate_to_mult(IBV_RATE_MAX) == -1 && ibv_rate_to_mbps((enum ibv_rate)99) == -1);
	CHECK(mult_to_ibv_rate(7) == IBV_RATE_MAX && mbps_to_ibv_rate(1) == IBV_RATE_MAX);
}

static void kernel_structures(void)
{
	struct ib_uverbs_ah_attr vector = { .sl = 3, .port_num = 1, .is_global = 1, .grh = { .hop_limit = 9, .dgid = { 7 } } };
	struct ib_uverbs_qp_attr attributes = { .qp_state = IBV_QPS_RTS, .dest_qp_num = 77, .sq_psn = 5, .ah_attr = vector };
	struct ib_user_path_rec given = { .dgid = { 1 }, .sgid = { 2 }, .hop_limit = 64, .pkey = 0xffff }, back;
	struct ibv_ah_attr ah;
	struct ibv_qp_attr qp;
	struct ibv_sa_path_rec path;

	ibv_copy_ah_attr_from_kern(&ah, &vector);
	CHECK(ah.sl == 3 && ah.port_num == 1 && ah.is_global && ah.grh.hop_limit == 9 && ah.grh.dgid.raw[0] == 7);
	ibv_copy_qp_attr_from_kern(&qp, &attributes);
	CHECK(qp.qp_state == IBV_QPS_RTS && qp.dest_qp_num == 77 && qp.sq_psn == 5 && qp.ah_attr.grh.dgid.raw[0] == 7);
	memset(&back, 0, sizeof(back));
	ibv_copy_path_rec_from_kern(&path, &given);
	CHECK(path.dgid.raw[0] == 1 && path.sgid.raw[0] == 2 && path.hop_limit == 64 && path.pkey == 0xffff);
	ibv_copy_path_rec_to_kern(&back, &path);
	CHECK(!memcmp(&back.dgid, &given.dgid, 16) && back.hop_limit == 64 && back.pkey == 0xffff);
}

static void sysfs(struct ibv_device *device)
{
	char text[64] = "";

	CHECK(!strcmp(ibv_get_sysfs_path(), "/sys"));
	CHECK(ibv_read_sysfs_file(device->ibdev_path, "node_type", text, sizeof(text)) > 0 && text[0] == '1');
	CHECK(ibv_read_sysfs_file(device->ibdev_path, "no_such_file", text, sizeof(text)) == -1);
	CHECK(ibv_get_device_index(device) >= 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	static char memory[4096];

	CHECK(list && list[0]);
	rates();
	kernel_structures();
	sysfs(list[0]);
	/* Nothing is kept from children: there is nothing to do. */
	CHECK(ibv_dontfork_range(memory, sizeof(memory)) == 0 && ibv_dofork_range(memory, sizeof(memory)) == 0);
	/* Drivers of other devices are not used. */
	ibv_register_driver();

	context = ibv_open_device(list[0]);
	CHECK(context);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	CHECK(pd && cq);
	/* What the header calls where the flags are no constant. */
	mr = ibv_reg_mr_iova2(pd, memory, sizeof(memory), 0x1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	{
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };

		qp = ibv_create_qp(pd, &init);
	}
	/* Only the last bytes of a message are promised to come last. */
	CHECK(qp && ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 0);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}

/*
 * Functions of rdma-core 45 to 65, which the installed header need not know, as that of 65 declares them; and private symbols in each
 * of their version nodes, found as programs and providers' libraries of those releases find them.
 */
#define _GNU_SOURCE
#include "connect.h"

#include <dlfcn.h>

struct attributes {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};
enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32 };

static void *function(const char *name, const char *node)
{
	void *found = dlvsym(RTLD_DEFAULT, name, node);

	if (!found)
		fprintf(stderr, "%s@%s: ", name, node);
	CHECK(found);
	return found;
}

static struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct attributes *);

static void write_to(struct ibv_pd *pd, struct ibv_mr *mr, uint64_t address, const char *memory)
{
	static char source[64] = "written by way of a region";
	struct ibv_mr *from = ibv_reg_mr(pd, source, sizeof(source), 0);
	struct ibv_cq *cq = ibv_create_cq(pd->context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_sge sge = { .addr = (uintptr_t)source, .length = sizeof(source), .lkey = from->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
	struct ibv_wc wc;

	CHECK(from && cq && one && two);
	connect_pair(one, two);
	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(ibv_post_send(one, &wr, &bad) == 0);
	poll_all(cq, 1, &wc);
	CHECK(wc.status == 0 && memcmp(memory, source, sizeof(source)) == 0);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(from) == 0);
}

static void registration(struct ibv_pd *pd)
{
	static char memory[8192];
	struct attributes attr = { .length = sizeof(memory), .access = ALL_ACCESS, .comp_mask = ADDR, .addr = memory };
	struct ibv_mr *mr = reg_mr_ex(pd, &attr);

	CHECK(mr && mr->addr == memory && mr->length == sizeof(memory));
	write_to(pd, mr, (uintptr_t)memory + 100, memory + 100);
	CHECK(ibv_dereg_mr(mr) == 0);
	attr.comp_mask = ADDR | IOVA;
	attr.iova = 0x1000;
	mr = reg_mr_ex(pd, &attr);
	CHECK(mr);
	write_to(pd, mr, 0x1000 + 200, memory + 200);
	CHECK(ibv_dereg_mr(mr) == 0);
	attr.comp_mask = IOVA;
	REFUSED(reg_mr_ex(pd, &attr), EINVAL);
	attr.comp_mask = ADDR | FD | FD_OFFSET;
	REFUSED(reg_mr_ex(pd, &attr), EOPNOTSUPP);
	attr.comp_mask = ADDR | DMAH;
	REFUSED(reg_mr_ex(pd, &attr), EOPNOTSUPP);
	attr.comp_mask = ADDR | 1u << 31;
	REFUSED(reg_mr_ex(pd, &attr), EOPNOTSUPP);
	attr.comp_mask = ADDR;
	attr.access = 1 << 10;
	REFUSED(reg_mr_ex(pd, &attr), EINVAL);
	REFUSED(reg_mr_ex(NULL, &attr), EINVAL);
	REFUSED(reg_mr_ex(pd, NULL), EINVAL);
}

static void buffers(struct ibv_pd *pd)
{
	void *(*alloc_buf)(struct ibv_pd *, size_t, void **) = function("ibv_alloc_buf", "IBVERBS_1.17");
	void (*free_buf)(void *) = function("ibv_free_buf", "IBVERBS_1.17");
	struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int) = function("ibv_reg_buf_mr", "IBVERBS_1.17");
	int (*export_fd)(void *) = function("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
	struct attributes attr = { .length = 4096, .access = ALL_ACCESS, .comp_mask = ADDR | BUF };
	struct ibv_pd *other = ibv_alloc_pd(pd->context);
	void *buffer = NULL;
	char *memory = alloc_buf(pd, 10000, &buffer);
	struct ibv_mr *mr;

	CHECK(other && memory && buffer && (uintptr_t)memory % 4096 == 0);
	mr = reg_buf_mr(pd, buffer, memory + 5000, 5000, ALL_ACCESS);
	CHECK(mr && mr->addr == memory + 5000);
	write_to(pd, mr, (uintptr_t)memory + 5000, memory + 5000);
	CHECK(ibv_dereg_mr(mr) == 0);
	REFUSED(reg_buf_mr(pd, buffer, memory + 5000, 5001, ALL_ACCESS), EINVAL);
	REFUSED(reg_buf_mr(pd, buffer, memory - 1, 10, ALL_ACCESS), EINVAL);
	REFUSED(reg_buf_mr(other, buffer, memory, 10, ALL_ACCESS), EINVAL);
	attr.buf = buffer;
	attr.addr = memory;
	mr = reg_mr_ex(pd, &attr);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	attr.comp_mask = BUF;
	REFUSED(reg_mr_ex(pd, &attr), EINVAL);
	CHECK(export_fd(buffer) == -1 && errno == ENODATA);
	CHECK(export_fd(NULL) == -1 && errno == EINVAL);
	free_buf(buffer);
	free_buf(NULL);
	REFUSED(alloc_buf(NULL, 64, &buffer), EINVAL);
	REFUSED(alloc_buf(pd, 64, NULL), EINVAL);
	CHECK(ibv_dealloc_pd(other) == 0);
}

static void not_supported(struct ibv_context *context)
{
	void *(*alloc_dmah)(struct ibv_context *, void *) = function("ibv_alloc_dmah", "IBVERBS_1.15");
	int (*dealloc_dmah)(void *) = function("ibv_dealloc_dmah", "IBVERBS_1.15");
	int (*export_dm)(void *) = function("ibv_dm_export_dmabuf_fd", "IBVERBS_1.16");

	REFUSED(alloc_dmah(context, NULL), EOPNOTSUPP);
	CHECK(dealloc_dmah(NULL) == EOPNOTSUPP);
	CHECK(export_dm(NULL) == -1 && errno == EOPNOTSUPP);
}

static void speed(struct ibv_context *context)
{
	int (*query)(struct ibv_context *, uint32_t, uint64_t *) = function("ibv_query_port_speed", "IBVERBS_1.16");
	uint64_t units = 0;

	CHECK(query(context, 1, &units) == 0 && units > 0);
	CHECK(query(context, 2, &units) == EINVAL && query(context, 1, NULL) == EINVAL);
}

static void private_symbols(struct ibv_context *context)
{
	static const char *nodes[] = { "IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57", "IBVERBS_PRIVATE_59", "IBVERBS_PRIVATE_64",
				       "IBVERBS_PRIVATE_65" };
	static const int releases[] = { 34, 57, 59, 64, 65 };

	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		int (*query_gid_type)(struct ibv_context *, uint8_t, unsigned int, int *) = function("ibv_query_gid_type", nodes[i]);
		const char *(*name_of)(enum ibv_wr_opcode) = function("ibv_wr_opcode_str", nodes[i]);
		int (*alloc_pd)(void) = function("ibv_cmd_alloc_pd", nodes[i]);
		void *(*open_device)(void) = function("verbs_open_device", nodes[i]);
		void (*register_driver)(void);
		char name[32];
		int type = -1;

		CHECK(query_gid_type(context, 1, 0, &type) == 0 && type == 1);
		CHECK(strcmp(name_of(IBV_WR_RDMA_READ), "rdma-read") == 0);
		CHECK(alloc_pd() == EOPNOTSUPP);
		REFUSED(open_device(), EOPNOTSUPP);
		snprintf(name, sizeof(name), "verbs_register_driver_%d", releases[i]);
		register_driver = function(name, nodes[i]);
		register_driver();
	}
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(pd && cq && qp);
	reg_mr_ex = function("ibv_reg_mr_ex", "IBVERBS_1.15");
	registration(pd);
	buffers(pd);
	not_supported(context);
	speed(context);
	private_symbols(context);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}

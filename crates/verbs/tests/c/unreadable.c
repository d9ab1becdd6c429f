/*
 * What a request sends may have become unreadable since it was registered: protected, or a mapping of a file beyond the
 * file's end. The sender is at fault, and is told so, whoever finds out.
 */
#define _GNU_SOURCE
#include "connect.h"

#include <sys/mman.h>

#define PAGES 4

static char *mapped_file(size_t page)
{
	int fd = memfd_create("unreadable", 0);
	char *memory;

	CHECK(fd >= 0 && ftruncate(fd, PAGES * page) == 0);
	memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	memset(memory, 7, PAGES * page);
	/* The last page stays mapped, but there is nothing behind it. */
	CHECK(ftruncate(fd, (PAGES - 1) * page) == 0 && close(fd) == 0);
	return memory;
}

static char *protected_memory(size_t page)
{
	char *memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	memset(memory, 7, PAGES * page);
	CHECK(mprotect(memory + (PAGES - 1) * page, page, PROT_NONE) == 0);
	return memory;
}

static void refused(struct ibv_context *context, char *memory, size_t page, enum ibv_wr_opcode opcode)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *send_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_cq *recv_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = send_cq, .recv_cq = recv_cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
	char *target = malloc(PAGES * page);
	struct ibv_mr *from = ibv_reg_mr(pd, memory, PAGES * page, ALL_ACCESS);
	struct ibv_mr *to = ibv_reg_mr(pd, target, PAGES * page, ALL_ACCESS);
	struct ibv_sge into = { (uintptr_t)target, PAGES * page, to->lkey };
	struct ibv_sge sge = { (uintptr_t)memory, PAGES * page, from->lkey };
	struct ibv_recv_wr receive = { .wr_id = 9, .sg_list = &into, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad_send;
	struct ibv_wc wc;

	connect_pair(one, two);
	CHECK(ibv_post_recv(two, &receive, &bad_receive) == 0);
	send.wr.rdma.remote_addr = (uintptr_t)target;
	send.wr.rdma.rkey = to->rkey;
	CHECK(ibv_post_send(one, &send, &bad_send) == 0);
	poll_all(send_cq, 1, &wc);
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_LOC_PROT_ERR);
	CHECK(state_of(one) == IBV_QPS_ERR && state_of(two) == IBV_QPS_RTS);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	CHECK(ibv_destroy_cq(send_cq) == 0 && ibv_destroy_cq(recv_cq) == 0);
	CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0 && ibv_dealloc_pd(pd) == 0);
	free(target);
}

int main(void)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM };
	struct ibv_context *context = open_first_device();
	size_t page = sysconf(_SC_PAGESIZE);

	alarm(120);
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++) {
		refused(context, protected_memory(page), page, opcodes[i]);
		refused(context, mapped_file(page), page, opcodes[i]);
	}
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

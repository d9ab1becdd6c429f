/*
 * A path MTU up to the port's max_mtu is taken, as soft-RoCE does, also above what the link carries (active_mtu): packets then are no
 * longer than that. To be run where the link carries less than 4096 bytes.
 */
#include "connect.h"

#define SIZE 20000

static char source[SIZE], target[SIZE];

static void transfers(struct ibv_pd *pd, enum ibv_qp_type type)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ };
	struct ibv_mr *from = ibv_reg_mr(pd, source, SIZE, ALL_ACCESS), *to = ibv_reg_mr(pd, target, SIZE, ALL_ACCESS);
	struct ibv_cq *cq = ibv_create_cq(pd->context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, type), unused;
	struct ibv_qp *ends[2];
	struct ibv_qp_attr attr;
	struct ibv_wc wc[2];

	CHECK(from && to && cq);
	for (int i = 0; i < 2; i++) {
		ends[i] = ibv_create_qp(pd, &init);
		CHECK(ends[i]);
		to_open_init(ends[i]);
	}
	for (int i = 0; i < 2; i++) {
		attr = usual_attributes(pd->context, ends[1 - i]->qp_num);
		attr.qp_state = IBV_QPS_RTR;
		attr.path_mtu = IBV_MTU_4096;
		CHECK(ibv_modify_qp(ends[i], &attr, RTR_MASK(type)) == 0);
		to_rts(ends[i]);
		CHECK(ibv_query_qp(ends[i], &attr, IBV_QP_PATH_MTU, &unused) == 0 && attr.path_mtu == IBV_MTU_4096);
	}
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		int reads = opcodes[i] == IBV_WR_RDMA_READ, received = opcodes[i] == IBV_WR_SEND || opcodes[i] == IBV_WR_RDMA_WRITE_WITH_IMM;
		struct ibv_sge sge = { .addr = (uintptr_t)source, .length = SIZE, .lkey = from->lkey };
		struct ibv_sge into = { .addr = (uintptr_t)target, .length = SIZE, .lkey = to->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcodes[i], .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;

		if (reads && type != IBV_QPT_RC)
			continue;
		for (int at = 0; at < SIZE; at++)
			source[at] = at * 5 + at / 255 + i;
		memset(target, 0, SIZE);
		if (reads) {
			sge.addr = (uintptr_t)target;
			sge.lkey = to->lkey;
		}
		wr.wr.rdma.remote_addr = (uintptr_t)(reads ? source : target);
		wr.wr.rdma.rkey = reads ? from->rkey : to->rkey;
		if (received)
			CHECK(ibv_post_recv(ends[1], &receive, &bad_receive) == 0);
		CHECK(ibv_post_send(ends[0], &wr, &bad) == 0);
		poll_all(cq, 1 + received, wc);
		CHECK(wc[0].status == 0 && (!received || wc[1].status == 0));
		for (double end = seconds() + PATIENCE_SECONDS; memcmp(source, target, SIZE) != 0;)
			CHECK(ibv_poll_cq(cq, 1, wc) == 0 && seconds() < end);
	}
	CHECK(ibv_destroy_qp(ends[0]) == 0 && ibv_destroy_qp(ends[1]) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_port_attr port;

	CHECK(pd && ibv_query_port(context, 1, &port) == 0);
	CHECK(port.active_mtu == IBV_MTU_1024 && port.max_mtu == IBV_MTU_4096);
	transfers(pd, IBV_QPT_RC);
	transfers(pd, IBV_QPT_UC);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}

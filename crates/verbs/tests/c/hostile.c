/* Arguments that are wrong, of another context or of another object: refused with an errno, and nothing is harmed. */
#include "connect.h"

static char buffer[8192];

static void other_contexts(struct ibv_context *context)
{
	struct ibv_context *other = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context), *other_pd = ibv_alloc_pd(other);
	struct ibv_comp_channel *other_channel = ibv_create_comp_channel(other);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0), *other_cq = ibv_create_cq(other, 4, NULL, other_channel, 0);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init), *other_srq = ibv_create_srq(other_pd, &srq_init);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);

	CHECK(context != other && context->device == other->device && context->async_fd != other->async_fd);
	CHECK(pd && other_pd && cq && other_cq && srq && other_srq && mr);
	init.send_cq = other_cq;
	REFUSED(ibv_create_qp(pd, &init), EINVAL);
	init.send_cq = cq;
	init.recv_cq = other_cq;
	REFUSED(ibv_create_qp(pd, &init), EINVAL);
	init.recv_cq = cq;
	init.srq = other_srq;
	REFUSED(ibv_create_qp(pd, &init), EINVAL);
	init.srq = NULL;
	init.recv_cq = NULL;
	REFUSED(ibv_create_qp(pd, &init), EINVAL);
	REFUSED(ibv_create_cq(context, 4, NULL, other_channel, 0), EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other_pd, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(mr->pd == pd);
	CHECK(ibv_dereg_mr(mr) == 0);
	/* Nothing of the refused calls is left. */
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_srq(other_srq) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(other_cq) == 0);
	CHECK(ibv_destroy_comp_channel(other_channel) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(other_pd) == 0);
	CHECK(ibv_close_device(other) == 0);
}

static void address_handles(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context), *another = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_UD);
	struct ibv_ah_attr right = to_own_host(context), attr = right;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_ah *ah;
	struct ibv_qp *qp;

	REFUSED(ibv_create_ah(pd, NULL), EINVAL);
	REFUSED(ibv_create_ah(NULL, &attr), EINVAL);
	attr.is_global = 0;
	REFUSED(ibv_create_ah(pd, &attr), EINVAL);
	attr = right;
	attr.port_num = 0;
	REFUSED(ibv_create_ah(pd, &attr), EINVAL);
	attr.port_num = 255;
	REFUSED(ibv_create_ah(pd, &attr), EINVAL);
	attr = right;
	attr.grh.sgid_index = 255;
	REFUSED(ibv_create_ah(pd, &attr), EINVAL);
	attr = right;
	memset(&attr.grh.dgid, 0, sizeof(attr.grh.dgid));
	REFUSED(ibv_create_ah(pd, &attr), EINVAL);
	/* A handle of another protection domain. */
	ah = ibv_create_ah(another, &right);
	qp = ibv_create_qp(pd, &init);
	CHECK(ah && qp);
	to_open_init(qp);
	to_rtr(qp, 0);
	to_rts(qp);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_ah(ah) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(another) == 0);
}

/* Work with keys and addresses that are wrong in every way fails by completions, not otherwise. */
static void wrong_keys(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context), *another = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *one, *two;
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 4096, ALL_ACCESS), *foreign = ibv_reg_mr(another, buffer, 4096, ALL_ACCESS);
	struct ibv_mr *unmapped = ibv_reg_mr(pd, (void *)4096, 1 << 20, ALL_ACCESS);
	struct ibv_sge cases[] = {
		{ .addr = (uintptr_t)buffer, .length = 16, .lkey = 0 },
		{ .addr = (uintptr_t)buffer, .length = 16, .lkey = UINT32_MAX },
		{ .addr = (uintptr_t)buffer, .length = 16, .lkey = mr->lkey ^ 1 },
		{ .addr = (uintptr_t)buffer, .length = 16, .lkey = mr->lkey ^ (1 << 31) },
		{ .addr = (uintptr_t)buffer, .length = 16, .lkey = foreign->lkey },
		{ .addr = (uintptr_t)buffer - 1, .length = 16, .lkey = mr->lkey },
		{ .addr = (uintptr_t)buffer + 4081, .length = 16, .lkey = mr->lkey },
		{ .addr = UINT64_MAX - 3, .length = 16, .lkey = mr->lkey },
		{ .addr = 0, .length = 0x7fffffff, .lkey = mr->lkey },
		{ .addr = 4096, .length = 4096, .lkey = unmapped->lkey },
	};
	struct ibv_wc wc[4];

	init.sq_sig_all = 1;
	one = ibv_create_qp(pd, &init);
	two = ibv_create_qp(pd, &init);
	CHECK(one && two && mr && foreign && unmapped);
	for (size_t i = 0; i < 4 * sizeof(cases) / sizeof(cases[0]); i++) {
		struct ibv_sge good = { .addr = (uintptr_t)buffer, .length = 16, .lkey = mr->lkey }, sge = cases[i / 4];
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		struct ibv_recv_wr receive = { .wr_id = 1000, .sg_list = &good, .num_sge = 1 }, *bad_receive;
		int status = IBV_WC_LOC_PROT_ERR;

		to_state(one, IBV_QPS_RESET);
		to_state(two, IBV_QPS_RESET);
		connect_pair(one, two);
		wr.wr.rdma.remote_addr = (uintptr_t)buffer;
		wr.wr.rdma.rkey = mr->rkey;
		switch (i % 4) {
		case 0:
			wr.opcode = IBV_WR_RDMA_WRITE;
			break;
		case 1:
			wr.opcode = IBV_WR_RDMA_READ;
			if (sge.length > 4096)
				status = 0; /* which side finds its fault first is open */
			break;
		case 2:
			wr.opcode = IBV_WR_RDMA_WRITE;
			wr.sg_list = &good;
			wr.wr.rdma.remote_addr = sge.addr;
			wr.wr.rdma.rkey = sge.lkey;
			if (sge.length > 4096)
				sge.length = 16;
			status = IBV_WC_REM_ACCESS_ERR;
			break;
		case 3:
			wr.opcode = IBV_WR_SEND;
			wr.sg_list = &good;
			receive.sg_list = &sge;
			CHECK(ibv_post_recv(two, &receive, &bad_receive) == 0);
			status = IBV_WC_REM_OP_ERR;
			break;
		}
		CHECK(ibv_post_send(one, &wr, &bad) == 0);
		poll_all(cq, i % 4 == 3 ? 2 : 1, wc);
		for (int j = 0; j < (i % 4 == 3 ? 2 : 1); j++) {
			int expected = wc[j].wr_id == 1000 ? IBV_WC_LOC_PROT_ERR : status;

			if (expected ? wc[j].status != (enum ibv_wc_status)expected : wc[j].status == 0) {
				fprintf(stderr, "case %zu: %s\n", i, ibv_wc_status_str(wc[j].status));
				exit(1);
			}
		}
	}
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(foreign) == 0 && ibv_dereg_mr(unmapped) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(another) == 0);
}

/* Any value of an enumeration has a text, and the texts of those that exist differ. */
static void texts(void)
{
	for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++) {
		CHECK(strcmp(ibv_wc_status_str(i), "unknown"));
		for (int j = 0; j < i; j++)
			CHECK(strcmp(ibv_wc_status_str(i), ibv_wc_status_str(j)));
	}
	for (int i = 0; i <= IBV_EVENT_WQ_FATAL; i++)
		CHECK(strcmp(ibv_event_type_str(i), "unknown"));
	for (int i = IBV_NODE_CA; i <= IBV_NODE_UNSPECIFIED; i++)
		CHECK(strcmp(ibv_node_type_str(i), "unknown"));
	for (int i = 0; i <= IBV_PORT_ACTIVE_DEFER; i++)
		CHECK(strcmp(ibv_port_state_str(i), "unknown"));
	CHECK(!strcmp(ibv_wc_status_str(-1), "unknown") && !strcmp(ibv_event_type_str(-1), "unknown"));
	CHECK(!strcmp(ibv_node_type_str(99), "unknown") && !strcmp(ibv_port_state_str(-1), "unknown"));
}

static void ports(struct ibv_context *context)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	uint16_t pkey;

	for (int number = 0; number < 256; number++) {
		int wrong = number != 1;

		CHECK(ibv_query_port(context, number, &port) == (wrong ? EINVAL : 0));
		CHECK(ibv_query_gid(context, number, 0, &gid) == (wrong ? -1 : 0));
		CHECK(ibv_query_pkey(context, number, 0, &pkey) == (wrong ? -1 : 0));
		CHECK(ibv_get_pkey_index(context, number, 0xffff) == (wrong ? -1 : 0));
		CHECK(ibv_query_gid_ex(context, number, 0, &entry, 0) == (wrong ? EINVAL : 0));
	}
	CHECK(ibv_query_gid_ex(context, UINT32_MAX, 0, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid_ex(context, 1, UINT32_MAX, &entry, 0) == EINVAL);
	CHECK(ibv_query_pkey(context, 1, -1, &pkey) == -1 && ibv_query_pkey(context, 1, 1 << 16, &pkey) == -1);
	CHECK(port.max_msg_sz == 1u << 31 && port.pkey_tbl_len == 1 && port.gid_tbl_len > 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();

	alarm(120);
	texts();
	ports(context);
	other_contexts(context);
	address_handles(context);
	wrong_keys(context);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

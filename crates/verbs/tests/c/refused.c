/* Everything that is not supported says so: src/unsupported.rs is the list. */
#include "connect.h"

static void refused_operations(struct ibv_context *context, struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_wq_init_attr wq = { 0 };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_flow_attr flow = { .size = sizeof(flow) };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1 };
	struct ibv_ece ece = { .vendor_id = 1 };
	struct ibv_ops_wr ops = { 0 };
	struct ibv_ops_wr *bad_ops = NULL;

	REFUSED(ibv_create_wq(context, &wq), EOPNOTSUPP);
	REFUSED(ibv_create_rwq_ind_table(context, &table), EOPNOTSUPP);
	REFUSED(ibv_create_flow(qp, &flow), EOPNOTSUPP);
	REFUSED(ibv_create_flow_action_esp(context, &esp), EOPNOTSUPP);
	REFUSED(ibv_create_counters(context, &counters), EOPNOTSUPP);
	REFUSED(ibv_import_device(0), EOPNOTSUPP);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0), EOPNOTSUPP);
	CHECK(ibv_query_ece(qp, &ece) == EOPNOTSUPP && ibv_set_ece(qp, &ece) == EOPNOTSUPP);
	CHECK(ibv_modify_qp_rate_limit(qp, &rate) == EOPNOTSUPP);
	CHECK(ibv_post_srq_ops(srq, &ops, &bad_ops) == EOPNOTSUPP && bad_ops == &ops);
}

static void refused_queue_pairs(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER };
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp_init_attr_ex extended;
	struct ibv_qp *qp;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		init.qp_type = types[i];
		REFUSED(ibv_create_qp(pd, &init), EOPNOTSUPP);
	}
	init.qp_type = 77;
	REFUSED(ibv_create_qp(pd, &init), EINVAL);

	init.qp_type = IBV_QPT_RC;
	memset(&extended, 0, sizeof(extended));
	memcpy(&extended, &init, sizeof(init));
	extended.pd = pd;
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	extended.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	REFUSED(ibv_create_qp_ex(context, &extended), EOPNOTSUPP);
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	extended.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	REFUSED(ibv_create_qp_ex(context, &extended), EOPNOTSUPP);
	extended.create_flags = 0;
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	extended.max_tso_header = 64;
	REFUSED(ibv_create_qp_ex(context, &extended), EOPNOTSUPP);
	/* None of these can be made, so that none can be given. */
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE;
	REFUSED(ibv_create_qp_ex(context, &extended), EOPNOTSUPP);
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH;
	REFUSED(ibv_create_qp_ex(context, &extended), EOPNOTSUPP);
	extended.comp_mask = 1u << 31;
	REFUSED(ibv_create_qp_ex(context, &extended), EINVAL);
	extended.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	extended.send_ops_flags = 0;
	REFUSED(ibv_create_qp_ex(context, &extended), EINVAL);

	/* Plain attributes said in the extended way are served. */
	extended.comp_mask = IBV_QP_INIT_ATTR_PD;
	qp = ibv_create_qp_ex(context, &extended);
	CHECK(qp && ibv_qp_to_qp_ex(qp) == NULL);
	CHECK(ibv_destroy_qp(qp) == 0);
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			     IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	extended.max_tso_header = 0;
	qp = ibv_create_qp_ex(context, &extended);
	CHECK(qp);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void refused_completion_queues(struct ibv_context *context)
{
	static const uint64_t fields[] = {
		IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO,
	};
	struct ibv_cq_init_attr_ex init = { .cqe = 8 };
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		init.wc_flags = fields[i];
		REFUSED(ibv_create_cq_ex(context, &init), EOPNOTSUPP);
	}
	init.wc_flags = IBV_WC_STANDARD_FLAGS;
	init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	init.flags = 1u << 31;
	REFUSED(ibv_create_cq_ex(context, &init), EOPNOTSUPP);
	init.comp_mask = 1u << 31;
	REFUSED(ibv_create_cq_ex(context, &init), EINVAL);
	init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	init.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq = ibv_create_cq_ex(context, &init);
	CHECK(cq);
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	/* A failed start leaves nothing held. */
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	attr.comp_mask = 1;
	CHECK(ibv_start_poll(cq, &attr) == EINVAL);
	CHECK(cq->read_completion_ts == NULL && cq->read_byte_len != NULL);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

static void refused_requests(struct ibv_qp *qp)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_TSO, IBV_WR_DRIVER1 };
	struct ibv_send_wr wr = { .wr_id = 1 }, *bad;

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		bad = NULL;
		wr.opcode = opcodes[i];
		CHECK(ibv_post_send(qp, &wr, &bad) == EOPNOTSUPP);
		CHECK(bad == &wr);
	}
	wr.opcode = 77;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL);
}

static void refused_attributes(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = usual_attributes(qp->context, qp->qp_num);

	to_init(qp);
	attr.qp_state = IBV_QPS_RTR;
	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_port_num = 1;
	CHECK(ibv_modify_qp(qp, &attr, RTR_MASK(IBV_QPT_RC) | IBV_QP_ALT_PATH) == EOPNOTSUPP);
	/* The alternate path is all that it was refused for. */
	CHECK(ibv_modify_qp(qp, &attr, RTR_MASK(IBV_QPT_RC)) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp;

	CHECK(pd && cq && srq);
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	refused_operations(context, pd, qp, srq);
	refused_queue_pairs(context, pd, cq);
	refused_completion_queues(context);
	refused_requests(qp);
	refused_attributes(qp);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

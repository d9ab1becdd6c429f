/* Copies a file by RDMA WRITE, from one region of this process to another: fixed IN OUT. Each failure of a verb ends it with an error. */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>

enum { PIECE = 4096 };

static char source[PIECE], target[PIECE];

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (!list || !list[0])
		errx(1, "there is no verbs device");
	struct ibv_context *context = ibv_open_device(list[0]);
	if (!context)
		err(1, "ibv_open_device");
	ibv_free_device_list(list);
	return context;
}

static struct ibv_qp *connect_to_itself(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attributes);
	if (!qp)
		err(1, "ibv_create_qp");

	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	if (ibv_query_gid(pd->context, 1, 0, &attr.ah_attr.grh.dgid))
		errx(1, "ibv_query_gid");
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		errx(1, "ibv_modify_qp to INIT");
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		errx(1, "ibv_modify_qp to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		errx(1, "ibv_modify_qp to RTS");
	return qp;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: %s IN OUT", argv[0]);
	FILE *in = fopen(argv[1], "r"), *out = fopen(argv[2], "w");
	if (!in || !out)
		err(1, "fopen");

	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	if (!pd)
		err(1, "ibv_alloc_pd");
	struct ibv_mr *from = ibv_reg_mr(pd, source, PIECE, 0);
	struct ibv_mr *to = ibv_reg_mr(pd, target, PIECE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!from || !to)
		err(1, "ibv_reg_mr");
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	if (!cq)
		err(1, "ibv_create_cq");
	struct ibv_qp *qp = connect_to_itself(pd, cq);

	size_t bytes;
	while ((bytes = fread(source, 1, PIECE, in)) > 0) {
		struct ibv_sge piece = { .addr = (uintptr_t)source, .length = bytes, .lkey = from->lkey };
		struct ibv_send_wr *bad, write = {
			.sg_list = &piece,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = (uintptr_t)target, .rkey = to->rkey },
		};
		if (ibv_post_send(qp, &write, &bad))
			errx(1, "ibv_post_send");
		struct ibv_wc completion;
		int count;
		while ((count = ibv_poll_cq(cq, 1, &completion)) == 0)
			;
		if (count < 0)
			errx(1, "ibv_poll_cq");
		if (completion.status != IBV_WC_SUCCESS)
			errx(1, "the write failed: %s", ibv_wc_status_str(completion.status));
		fwrite(target, 1, bytes, out);
	}
	if (fclose(out) || ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dereg_mr(to) || ibv_dereg_mr(from) ||
	    ibv_dealloc_pd(pd) || ibv_close_device(context))
		err(1, "the end");
	return 0;
}

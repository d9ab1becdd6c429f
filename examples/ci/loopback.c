/*
 * Two queue pairs of one process, connected to each other: a WRITE carries a text, and the bytes are compared. Exit status 0: they are equal.
 *
 * It is a plain verbs program: it knows nothing of Pagewire.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 262144, PORT = 1, GID_INDEX = 0 };

static void require(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	require(qp != NULL, "ibv_create_qp");
	require(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	return qp;
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = PORT, .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 1 } },
	};
	struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };

	require(!ibv_modify_qp(qp, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	require(!ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			       IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

int main(void)
{
	static char source[LENGTH] = "the bytes that a WRITE carries";
	char *target = malloc(LENGTH);
	require(target != NULL, "malloc");
	struct ibv_device **devices = ibv_get_device_list(NULL);
	require(devices && devices[0], "no verbs device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	require(context != NULL, "ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	require(pd != NULL, "ibv_alloc_pd");
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	require(cq != NULL, "ibv_create_cq");
	struct ibv_mr *from = ibv_reg_mr(pd, source, LENGTH, 0);
	struct ibv_mr *to = ibv_reg_mr(pd, target, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	require(from && to, "ibv_reg_mr");
	struct ibv_qp *a = create(pd, cq), *b = create(pd, cq);
	union ibv_gid gid;
	require(!ibv_query_gid(context, PORT, GID_INDEX, &gid), "ibv_query_gid");
	connect_to(a, b, &gid);
	connect_to(b, a, &gid);

	struct ibv_sge piece = { .addr = (uintptr_t)source, .length = LENGTH, .lkey = from->lkey };
	struct ibv_send_wr request = {
		.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)target, .rkey = to->rkey },
	};
	struct ibv_send_wr *bad;
	require(!ibv_post_send(a, &request, &bad), "ibv_post_send");
	struct ibv_wc completion;
	int polled;
	while ((polled = ibv_poll_cq(cq, 1, &completion)) == 0)
		;
	require(polled == 1, "ibv_poll_cq");
	if (completion.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "WRITE: %s\n", ibv_wc_status_str(completion.status));
		return 1;
	}
	if (memcmp(source, target, LENGTH)) {
		fprintf(stderr, "the bytes differ\n");
		return 1;
	}
	require(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_dereg_mr(from) && !ibv_dereg_mr(to) && !ibv_destroy_cq(cq) &&
		!ibv_dealloc_pd(pd) && !ibv_close_device(context), "destroying");
	ibv_free_device_list(devices);
	free(target);
	printf("%s: %d bytes written and compared\n", "loopback", LENGTH);
	return 0;
}

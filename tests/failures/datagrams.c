/*
 * datagrams SENT EXPECTED: one UD queue pair of this process sends numbered datagrams, from 1 to SENT, to another one. Prints the numbers of the first
 * EXPECTED that arrive, in their order.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, GRH = 40, QKEY = 17 };

static void must(int holds, const char *verb)
{
	if (!holds) {
		printf("%s: %s\n", verb, strerror(errno));
		exit(1);
	}
}

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *sent, struct ibv_cq *received)
{
	struct ibv_qp_init_attr init = {
		.send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = MOST, .max_recv_wr = MOST, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	must(qp != NULL, "ibv_create_qp");
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
	return qp;
}

int main(int argc, char **argv)
{
	must(argc == 3, "two arguments");
	int count = atoi(argv[1]), expected = atoi(argv[2]);
	must(count <= MOST && expected <= MOST, "at most 64");
	static uint32_t source[MOST];
	static unsigned char target[MOST][GRH + sizeof(uint32_t)];
	struct ibv_device **devices = ibv_get_device_list(NULL);
	must(devices && *devices, "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(*devices);
	must(context != NULL, "ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *sent = ibv_create_cq(context, MOST, NULL, NULL, 0), *received = ibv_create_cq(context, MOST, NULL, NULL, 0);
	struct ibv_mr *from = ibv_reg_mr(pd, source, sizeof(source), 0);
	struct ibv_mr *to = ibv_reg_mr(pd, target, sizeof(target), IBV_ACCESS_LOCAL_WRITE);
	union ibv_gid gid;
	must(pd && sent && received && from && to && !ibv_query_gid(context, 1, 0, &gid), "creation");
	struct ibv_qp *qp = create(pd, sent, received), *peer = create(pd, sent, received);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	must(ah != NULL, "ibv_create_ah");
	for (int i = 0; i < MOST; i++) {
		struct ibv_sge piece = { .addr = (uintptr_t)target[i], .length = sizeof(target[i]), .lkey = to->lkey };
		struct ibv_recv_wr receive = { .wr_id = i, .sg_list = &piece, .num_sge = 1 }, *bad;
		must(!ibv_post_recv(peer, &receive, &bad), "ibv_post_recv");
	}
	for (int i = 0; i < count; i++) {
		source[i] = i + 1;
		struct ibv_sge piece = { .addr = (uintptr_t)&source[i], .length = sizeof(source[i]), .lkey = from->lkey };
		struct ibv_send_wr send = {
			.wr_id = i, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.wr.ud = { .ah = ah, .remote_qpn = peer->qp_num, .remote_qkey = QKEY },
		}, *bad;
		must(!ibv_post_send(qp, &send, &bad), "ibv_post_send");
	}
	for (int i = 0; i < expected;) {
		struct ibv_wc completion;
		int polled = ibv_poll_cq(received, 1, &completion);
		must(polled >= 0, "ibv_poll_cq");
		if (!polled)
			continue;
		must(completion.status == IBV_WC_SUCCESS, "a receive");
		uint32_t number;
		memcpy(&number, target[completion.wr_id] + GRH, sizeof(number));
		printf("%s%u", i ? " " : "", number);
		i++;
	}
	printf("\n");
	return 0;
}

/*
 * sends COUNT RNR_RETRY poll|sleep: COUNT SENDs from one RC queue pair of this process to another one, posted at once. Prints for each completion of a
 * SEND its wr_id, its status, and the milliseconds since the posts; then the bytes that arrived in error, if all SENDs succeeded.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 64, LENGTH = 64 };

static void must(int holds, const char *verb)
{
	if (!holds) {
		printf("%s: %s\n", verb, strerror(errno));
		exit(1);
	}
}

static long milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000;
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer, union ibv_gid gid, int rnr_retry)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
	};
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry };
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

int main(int argc, char **argv)
{
	must(argc == 4, "three arguments");
	int count = atoi(argv[1]), sleeps = !strcmp(argv[3], "sleep");
	must(count > 0 && count <= MOST, "COUNT");
	static unsigned char source[MOST][LENGTH], target[MOST][LENGTH];
	struct ibv_device **devices = ibv_get_device_list(NULL);
	must(devices && *devices, "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(*devices);
	must(context != NULL, "ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	must(pd && channel, "creation");
	struct ibv_cq *cq = ibv_create_cq(context, MOST, NULL, channel, 0), *received = ibv_create_cq(context, MOST, NULL, NULL, 0);
	struct ibv_mr *from = ibv_reg_mr(pd, source, sizeof(source), 0);
	struct ibv_mr *to = ibv_reg_mr(pd, target, sizeof(target), IBV_ACCESS_LOCAL_WRITE);
	must(cq && received && from && to, "creation");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = received, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = MOST, .max_recv_wr = MOST, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init), *peer = ibv_create_qp(pd, &init);
	union ibv_gid gid;
	must(qp && peer && !ibv_query_gid(context, 1, 0, &gid), "creation");
	connect_to(qp, peer, gid, atoi(argv[2]));
	connect_to(peer, qp, gid, atoi(argv[2]));

	struct ibv_sge pieces[MOST];
	struct ibv_send_wr sends[MOST] = { 0 }, *refused;
	for (int i = 0; i < count; i++) {
		memset(source[i], i + 1, LENGTH);
		struct ibv_sge piece = { .addr = (uintptr_t)target[i], .length = LENGTH, .lkey = to->lkey };
		struct ibv_recv_wr receive = { .wr_id = i + 1, .sg_list = &piece, .num_sge = 1 }, *bad;
		must(!ibv_post_recv(peer, &receive, &bad), "ibv_post_recv");
		pieces[i] = (struct ibv_sge){ .addr = (uintptr_t)source[i], .length = LENGTH, .lkey = from->lkey };
		sends[i] = (struct ibv_send_wr){
			.wr_id = i + 1, .sg_list = &pieces[i], .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.next = i + 1 < count ? &sends[i + 1] : NULL,
		};
	}
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	long began = milliseconds();
	must(!ibv_post_send(qp, sends, &refused), "ibv_post_send");
	int succeeded = 0;
	unsigned events = 0;
	for (int done = 0; done < count;) {
		struct ibv_wc completion;
		int polled = ibv_poll_cq(cq, 1, &completion);
		must(polled >= 0, "ibv_poll_cq");
		if (polled) {
			printf("%d %d %ld\n", (int)completion.wr_id, completion.status, milliseconds() - began);
			succeeded += completion.status == IBV_WC_SUCCESS;
			done++;
		} else if (sleeps) {
			void *own;
			struct ibv_cq *of_event;
			must(!ibv_get_cq_event(channel, &of_event, &own), "ibv_get_cq_event");
			events++;
			must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
		}
	}
	ibv_ack_cq_events(cq, events);
	if (succeeded == count)
		printf("%s\n", memcmp(source, target, sizeof(source)) ? "the bytes differ" : "the bytes arrived");
	must(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_dereg_mr(from) && !ibv_dereg_mr(to), "destruction");
	must(!ibv_destroy_cq(cq) && !ibv_destroy_cq(received) && !ibv_destroy_comp_channel(channel), "destruction");
	must(!ibv_dealloc_pd(pd) && !ibv_close_device(context), "closing");
	ibv_free_device_list(devices);
	return 0;
}

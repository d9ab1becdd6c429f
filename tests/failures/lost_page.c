/*
 * lost_page deregister|error|destroy|exit LOG: a WRITE goes to a page that a rule loses. When the file LOG says so, a second WRITE goes by other queue pairs to a
 * page that comes. When that has ended, and nothing else has for 300 ms, the region is deregistered, or the first queue pair is put into the error state, or
 * destroyed, or the process exits. Prints how each WRITE ended.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, LENGTH = 64 * PAGE };

static void must(int holds, const char *verb)
{
	if (!holds) {
		printf("%s: %s\n", verb, strerror(errno));
		exit(1);
	}
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer, union ibv_gid gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
	};
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static struct ibv_mr *untouched(struct ibv_pd *pd)
{
	void *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(memory != MAP_FAILED, "mmap");
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	return mr;
}

static void write_to(struct ibv_qp *qp, struct ibv_mr *from, struct ibv_mr *to, int id)
{
	struct ibv_sge piece = { .addr = (uintptr_t)from->addr, .length = 8, .lkey = from->lkey };
	struct ibv_send_wr request = {
		.wr_id = id, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)to->addr, .rkey = to->rkey },
	}, *bad;
	must(!ibv_post_send(qp, &request, &bad), "ibv_post_send");
}

static void await(struct ibv_cq *cq)
{
	struct ibv_wc completion;
	int polled;
	while ((polled = ibv_poll_cq(cq, 1, &completion)) == 0)
		;
	must(polled == 1, "ibv_poll_cq");
	printf("%d: %s\n", (int)completion.wr_id, ibv_wc_status_str(completion.status));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	must(argc == 3, "two arguments");
	static char source[PAGE] = "bytes";
	struct ibv_device **devices = ibv_get_device_list(NULL);
	must(devices && *devices, "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(*devices);
	must(context != NULL, "ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	must(pd && cq, "creation");
	struct ibv_mr *from = ibv_reg_mr(pd, source, sizeof(source), 0), *lost = untouched(pd), *other = untouched(pd);
	must(from != NULL, "ibv_reg_mr");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp[4];
	union ibv_gid gid;
	must(!ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
	for (int i = 0; i < 4; i++)
		must((qp[i] = ibv_create_qp(pd, &init)) != NULL, "ibv_create_qp");
	for (int i = 0; i < 4; i++)
		connect_to(qp[i], qp[i ^ 1], gid);
	write_to(qp[0], from, lost, 1);
	struct stat log;
	while (stat(argv[2], &log) || !log.st_size)
		usleep(1000);
	write_to(qp[2], from, other, 2);
	await(cq);
	/* A device looks again now and then for pages that did not come: these never do. */
	usleep(300000);
	struct ibv_wc early;
	must(ibv_poll_cq(cq, 1, &early) == 0, "no completion before its cause");

	if (!strcmp(argv[1], "exit"))
		return 0;
	if (!strcmp(argv[1], "deregister")) {
		must(!ibv_dereg_mr(lost), "ibv_dereg_mr");
		lost = NULL;
		await(cq);
	} else if (!strcmp(argv[1], "error")) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
		must(!ibv_modify_qp(qp[0], &attr, IBV_QP_STATE), "ERR");
		await(cq);
	}
	for (int i = 0; i < 4; i++)
		must(!ibv_destroy_qp(qp[i]), "ibv_destroy_qp");
	must((!lost || !ibv_dereg_mr(lost)) && !ibv_dereg_mr(other) && !ibv_dereg_mr(from), "ibv_dereg_mr");
	must(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context), "closing");
	ibv_free_device_list(devices);
	printf("closed\n");
	return 0;
}

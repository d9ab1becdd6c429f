/*
 * With little address space (ulimit -v) a device works or cannot be opened: a request that is accepted has an end. The
 * argument is the room in MiB beyond what the program has when it starts.
 */
#include "connect.h"

#include <sys/resource.h>

static void limit(unsigned long megabytes)
{
	struct rlimit room;
	unsigned long pages;
	FILE *statm = fopen("/proc/self/statm", "r");

	CHECK(statm != NULL && fscanf(statm, "%lu", &pages) == 1 && fclose(statm) == 0);
	room.rlim_cur = room.rlim_max = pages * sysconf(_SC_PAGESIZE) + (megabytes << 20);
	CHECK(setrlimit(RLIMIT_AS, &room) == 0);
}

int main(int argc, char **argv)
{
	static char buffer[64];
	struct ibv_device **devices;
	struct ibv_context *context;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_sge sge = { (uintptr_t)buffer, sizeof(buffer), 0 };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_qp *one, *two;
	struct ibv_wc wc;

	alarm(120);
	CHECK(argc == 2);
	limit(strtoul(argv[1], NULL, 10));
	devices = ibv_get_device_list(NULL);
	if (!devices || !devices[0])
		return 0;
	context = ibv_open_device(devices[0]);
	if (!context)
		return 0;
	pd = ibv_alloc_pd(context);
	init.send_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	init.recv_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	CHECK(pd && init.send_cq && init.recv_cq);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), ALL_ACCESS);
	one = ibv_create_qp(pd, &init);
	two = ibv_create_qp(pd, &init);
	CHECK(mr && one && two);
	sge.lkey = mr->lkey;
	connect_pair(one, two);
	CHECK(ibv_post_recv(two, &receive, &bad_receive) == 0 && ibv_post_send(one, &send, &bad_send) == 0);
	/* Whatever it is. */
	poll_all(init.send_cq, 1, &wc);
	return 0;
}

/*
 * A process to which a family of sockets is forbidden, as RestrictAddressFamilies= of systemd.exec(5) does: socket(2) answers EAFNOSUPPORT. The
 * argument names the family. Without netlink a connection is made and bytes are moved; without AF_UNIX the library says what is missing.
 */
#include "check.h"
#include "connect.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void forbid(unsigned family)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		/* The lower half of the first argument, in the order of a little-endian machine. */
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, family, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(*filter), .filter = filter };

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	CHECK(socket(family, SOCK_DGRAM, 0) == -1 && errno == EAFNOSUPPORT);
}

/* A WRITE from one queue pair to another one of this process. */
static void write_something(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	static char memory[128] = "something";
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
	struct ibv_sge from = { .addr = (uintptr_t)memory, .length = 64 };
	struct ibv_send_wr wr = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	CHECK(pd && cq && mr && one && two);
	connect_pair(one, two);
	from.lkey = mr->lkey;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 64;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_post_send(one, &wr, &bad));
	poll_all(cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && !strcmp(memory + 64, "something"));
}

int main(int count, char **arguments)
{
	struct ibv_device **list;

	CHECK(count == 2);
	if (!strcmp(arguments[1], "netlink")) {
		forbid(AF_NETLINK);
		write_something();
		return 0;
	}
	CHECK(!strcmp(arguments[1], "unix"));
	forbid(AF_UNIX);
	list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	errno = 0;
	CHECK(!ibv_open_device(list[0]) && errno == EAFNOSUPPORT);
	ibv_free_device_list(list);
	return 0;
}

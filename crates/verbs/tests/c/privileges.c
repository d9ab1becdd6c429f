/*
 * Two processes of which the kernel allows access to each other's memory when they connect, or when they open the device, and not any more later. As
 * root. The argument says what changes:
 *   dumpable   PR_SET_DUMPABLE 0 after connecting, in processes of another user than root
 *   after      setuid(2) after connecting, as daemons do
 *   before     setuid(2) between creating the queue pair and connecting it
 *   one        setuid(2) as before, in one of the two only
 */
#include "connect.h"

#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define NOBODY 65534
#define LENGTH (1 << 20)
#define ROUNDS 3

struct address {
	uint32_t number, rkey;
	uint64_t memory;
};

static char *way;
static int side, from_peer, to_peer;

static int is(const char *name)
{
	return !strcmp(way, name);
}

static void become_nobody(void)
{
	CHECK(!setgroups(0, NULL) && !setgid(NOBODY) && !setuid(NOBODY));
}

/* Waits until the other side is here, too. */
static void meet(void)
{
	char byte = 0;

	CHECK(write(to_peer, &byte, 1) == 1 && read(from_peer, &byte, 1) == 1);
}

static void complete(struct ibv_cq *cq, const char *what, int round)
{
	struct ibv_wc wc;

	poll_all(cq, 1, &wc);
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s, round %d: %s ended with %s\n", way, round, what, ibv_wc_status_str(wc.status));
		exit(1);
	}
}

/* Each operation, of lengths that are copied at once and of others. */
static void request(struct ibv_qp *qp, struct ibv_mr *mr, struct address there, int round)
{
	static const struct { enum ibv_wr_opcode opcode; const char *name; uint32_t length; } all[] = {
		{ IBV_WR_RDMA_WRITE, "WRITE", 8 }, { IBV_WR_RDMA_WRITE, "long WRITE", 500000 },
		{ IBV_WR_RDMA_READ, "READ", 100 }, { IBV_WR_RDMA_READ, "long READ", 500000 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, "atomic", 8 }, { IBV_WR_SEND, "long SEND", 300000 },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = all[i].length, .lkey = mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = all[i].opcode,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;

		if (all[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = there.memory + LENGTH / 2;
			wr.wr.atomic.rkey = there.rkey;
			wr.wr.atomic.compare_add = 1;
		} else {
			wr.wr.rdma.remote_addr = there.memory;
			wr.wr.rdma.rkey = there.rkey;
		}
		memset(mr->addr, 1 + round, all[i].length);
		CHECK(!ibv_post_send(qp, &wr, &bad));
		complete(qp->send_cq, all[i].name, round);
	}
}

static void check_received(const char *memory, int round)
{
	for (int i = 0; i < 300000; i++)
		CHECK(memory[LENGTH / 2 + 4096 + i] == 1 + round);
	CHECK(*(const uint64_t *)(memory + LENGTH / 2) == (uint64_t)round + 1);
}

static int run(void)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory = calloc(1, LENGTH);
	struct address own, there;
	int early = is("before") || (is("one") && side == 1);

	if (is("dumpable")) {
		become_nobody();
		CHECK(!prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
	}
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(memory && pd && cq);
	qp = ibv_create_qp(pd, &(struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
							   .cap = { 4, 4, 1, 1, 0 } });
	mr = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
	CHECK(qp && mr);
	own = (struct address){ qp->qp_num, mr->rkey, (uintptr_t)memory };
	if (early)
		become_nobody();
	CHECK(write(to_peer, &own, sizeof(own)) == sizeof(own) && read(from_peer, &there, sizeof(there)) == sizeof(there));
	to_open_init(qp);
	to_rtr(qp, there.number);
	to_rts(qp);
	meet();
	for (int round = 0; round < ROUNDS; round++) {
		if (round == 1 && is("after"))
			become_nobody();
		if (round == 1 && is("dumpable"))
			CHECK(!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
		if (side == 1) {
			struct ibv_sge sge = { .addr = (uintptr_t)memory + LENGTH / 2 + 4096, .length = 300000, .lkey = mr->lkey };
			struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

			CHECK(!ibv_post_recv(qp, &wr, &bad));
		}
		meet();
		if (side == 0) {
			request(qp, mr, there, round);
		} else {
			complete(cq, "receive", round);
			check_received(memory, round);
		}
		meet();
	}
	return 0;
}

int main(int count, char **arguments)
{
	int there[2], back[2], status;
	pid_t child;

	CHECK(count == 2);
	way = arguments[1];
	CHECK(!pipe(there) && !pipe(back));
	child = fork();
	CHECK(child >= 0);
	side = child == 0;
	from_peer = side ? there[0] : back[0];
	to_peer = side ? back[1] : there[1];
	close(side ? there[1] : there[0]);
	close(side ? back[0] : back[1]);
	alarm(120);
	if (side)
		exit(run());
	status = run();
	CHECK(waitpid(child, &count, 0) == child && WIFEXITED(count) && !WEXITSTATUS(count));
	return status;
}

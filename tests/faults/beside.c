/*
 * beside target|poster all|user: memory whose first pages were never touched, and whose others, beside these in the same 64 KiB, a pager
 * is asked for that never answers. Requests that need the former alone, page after page and all at once, must end: nobody may wait for
 * the latter on their behalf (PART-4: what hits goes on).
 */
#define _GNU_SOURCE
#include "link.h"
#include "place.h"

#include <signal.h>

#define LENGTH (64 << 10)
/* The pages that come. */
#define COMING 7
#define LIMIT_SECONDS 60

static struct ibv_cq *cq;
static struct link only;
static struct ibv_mr *mr;
static struct remote its;
static char *base;
static int side, owner;
static const char *what;

static void give_up(int signal)
{
	(void)signal;
	if (write(2, what, strlen(what)) > 0 && write(2, " hangs\n", 7) == 7)
		_exit(1);
	_exit(2);
}

static void post(enum ibv_wr_opcode opcode, size_t at, size_t length)
{
	struct ibv_sge sge = { (uintptr_t)base + at, length, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = its.address + at;
	wr.wr.rdma.rkey = its.rkey;
	CHECK(ibv_post_send(only.qp, &wr, &bad) == 0);
	CHECK(next_completion(cq, LIMIT_SECONDS).status == IBV_WC_SUCCESS);
}

/* The pages that come are absent again, and a SEND has its receive. */
static void prepare(enum ibv_wr_opcode opcode, size_t at, size_t length)
{
	struct ibv_sge sge = { (uintptr_t)base + at, length, mr->lkey };

	if (side == owner && at == 0)
		CHECK(madvise(base, COMING * PAGE, MADV_DONTNEED) == 0);
	if (side && opcode == IBV_WR_SEND)
		post_receive(only.qp, 0, &sge);
	meet();
}

static void try_each(enum ibv_wr_opcode opcode, size_t length)
{
	for (size_t at = 0; at < COMING * PAGE; at += length) {
		prepare(opcode, at, length);
		if (!side)
			post(opcode, at, length);
		else if (opcode == IBV_WR_SEND)
			CHECK(next_completion(cq, LIMIT_SECONDS).status == IBV_WC_SUCCESS);
		meet();
	}
}

int main(int argc, char **argv)
{
	static const struct { const char *name; enum ibv_wr_opcode opcode; } requests[] = {
		{ "WRITE", IBV_WR_RDMA_WRITE }, { "READ", IBV_WR_RDMA_READ }, { "SEND", IBV_WR_SEND },
	};
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct remote mine;
	struct pager pager;
	pid_t child;

	if (argc != 3) {
		fprintf(stderr, "usage: %s target|poster all|user\n", argv[0]);
		return 2;
	}
	CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && signal(SIGALRM, give_up) != SIG_ERR);
	child = fork_peer();
	side = child == 0;
	owner = strcmp(argv[1], "target") == 0;
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	base = map(LENGTH, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(pd && cq && base);
	CHECK(madvise(base, LENGTH, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	if (side != owner) {
		memset(base, 1, LENGTH);
	} else if (start_pager(&pager, base + COMING * PAGE, LENGTH - COMING * PAGE, base, strcmp(argv[2], "user") == 0)) {
		pager.held = true;
	} else {
		fprintf(stderr, "no userfaultfd\n");
		exit(NOT_HERE);
	}
	mr = ibv_reg_mr(pd, base, LENGTH, ALL_ACCESS);
	CHECK(mr);
	mine = (struct remote){ (uintptr_t)base, mr->rkey };
	exchange(&mine, &its, sizeof(mine));
	make_links(pd, cq, &only, 1, 14);
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
			what = requests[i].name;
			alarm(LIMIT_SECONDS + !side);
			try_each(requests[i].opcode, PAGE);
			try_each(requests[i].opcode, COMING * PAGE);
		}
	}
	if (side == owner)
		stop_pager(&pager);
	if (!side)
		end_of_peer(child);
	return 0;
}

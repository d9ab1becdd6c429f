/*
 * A request that waits for the first page of its memory at either side, whose pager has been asked for it and never answers: what
 * programs share in which something happens to that memory then. Their words are target|poster, whose memory it is; all|user,
 * whether the kernel's accesses wait for the pages, too, or fail, and the program's own wait; and what happens.
 */
#ifndef AWAITED_H
#define AWAITED_H

#include "link.h"
#include "place.h"

#include <signal.h>

#define LENGTH (1 << 20)
#ifndef LIMIT_SECONDS
#define LIMIT_SECONDS 100
#endif

static const struct request {
	const char *name;
	enum ibv_wr_opcode opcode;
} requests[] = {
	{ "WRITE", IBV_WR_RDMA_WRITE },
	{ "SEND", IBV_WR_SEND },
	{ "READ", IBV_WR_RDMA_READ },
	{ "FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD },
};

/* One side's memory, what its pager would answer with, and the connection by which it is accessed. */
struct awaited {
	char *base, *content;
	struct pager pager;
	struct ibv_mr *mr;
	struct link link;
};

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static int side, owner, user;
static const char *how, *what;
static size_t bytes;

static void give_up(int signal)
{
	char text[200];
	int length = snprintf(text, sizeof(text), "%s: hangs: %s of %zu bytes, %s\n", side ? "target" : "poster", what,
			      bytes, how);

	(void)signal;
	_exit(write(2, text, length) == length ? 1 : 2);
}

/* Both sides call this; the owner's comes back when its pager has been asked. `file`: what the memory is of, or -1. */
static inline void begin(struct awaited *awaited, enum ibv_wr_opcode opcode, int file)
{
	struct remote mine, its;

	awaited->content = map(LENGTH, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	awaited->base = map(LENGTH, file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file);
	CHECK(awaited->content && awaited->base);
	if (side != owner) {
		memset(awaited->base, 1, LENGTH);
	} else if (!start_pager(&awaited->pager, awaited->base, LENGTH, awaited->content, user)) {
		fprintf(stderr, "no userfaultfd\n");
		exit(NOT_HERE);
	} else {
		awaited->pager.held = true;
	}
	awaited->mr = ibv_reg_mr(pd, awaited->base, LENGTH, ALL_ACCESS);
	CHECK(awaited->mr);
	mine = (struct remote){ (uintptr_t)awaited->base, awaited->mr->rkey };
	exchange(&mine, &its, sizeof(mine));
	make_links(pd, cq, &awaited->link, 1, 14);

	struct ibv_sge sge = { (uintptr_t)awaited->base, bytes, awaited->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = its.address;
		wr.wr.atomic.rkey = its.rkey;
	} else {
		wr.wr.rdma.remote_addr = its.address;
		wr.wr.rdma.rkey = its.rkey;
	}
	if (side && opcode == IBV_WR_SEND)
		post_receive(awaited->link.qp, 8, &sge);
	meet();
	if (!side)
		CHECK(ibv_post_send(awaited->link.qp, &wr, &bad) == 0);
	while (side == owner && awaited->pager.faults == 0)
		usleep(50);
}

/* Has a request of so many bytes tried in bounded time. */
static inline void try_request(const struct request *request, size_t length, void (*try_once)(enum ibv_wr_opcode opcode))
{
	what = request->name;
	bytes = length;
	alarm(LIMIT_SECONDS + !side);
	try_once(request->opcode);
}

/* A program: what happens is one of `ways`, and `try_all` tries it with each request. */
static inline int run(int argc, char **argv, const char *ways, void (*try_all)(void))
{
	struct ibv_context *context;
	pid_t child;

	if (argc != 4) {
		fprintf(stderr, "usage: %s target|poster all|user %s\n", argv[0], ways);
		return 2;
	}
	owner = strcmp(argv[1], "target") == 0;
	user = strcmp(argv[2], "user") == 0;
	how = argv[3];
	CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && signal(SIGALRM, give_up) != SIG_ERR);
	child = fork_peer();
	side = child == 0;
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	try_all();
	if (!side)
		end_of_peer(child);
	return 0;
}

#endif

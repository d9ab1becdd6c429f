/*
 * ended target|poster all|user deregister|flush|destroy: a request waits for the first page of long memory, whose pager has been
 * asked for it and never answers. The owner of the memory ends the region (after its queue pair, with flush and destroy), which
 * succeeds in bounded time. Then something else is mapped there, and whoever slept for a page is woken: no page of the new
 * mapping may be touched by the engine, neither that one nor those behind it.
 *
 * user: the kernel's accesses fail there, and only threads of the owner wait, which come back when the region ends. all: a thread
 * of the other side may wait inside the kernel, where nothing but the pager or its death has it come back: of the new mapping
 * that page may be touched, and no other.
 */
#define _GNU_SOURCE
#include "../../benches/link.h"
#include "place.h"

#include <signal.h>

#define LENGTH (1 << 20)
/* Microseconds in which a thread that was woken would have touched the page that it waits for at least. */
#define AFTERWARDS 300000
#ifndef LIMIT_SECONDS
#define LIMIT_SECONDS 100
#endif

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
} requests[] = {
	{ "WRITE", IBV_WR_RDMA_WRITE },
	{ "SEND", IBV_WR_SEND },
	{ "READ", IBV_WR_RDMA_READ },
};

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static int side, owner, user;
static const char *how, *what;

static void give_up(int signal)
{
	char text[200];
	int length = snprintf(text, sizeof(text), "%s: hangs: %s, %s\n", side ? "target" : "poster", what, how);

	(void)signal;
	_exit(write(2, text, length) == length ? 1 : 2);
}

static void end_queue_pair(struct ibv_qp *qp)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	if (strcmp(how, "flush") == 0)
		CHECK(ibv_modify_qp(qp, &error, IBV_QP_STATE) == 0);
	else if (strcmp(how, "destroy") == 0)
		CHECK(ibv_destroy_qp(qp) == 0);
}

/* How many pages of the memory are there. */
static size_t present(const char *base)
{
	static unsigned char resident[LENGTH / PAGE];
	size_t count = 0;

	CHECK(mincore((void *)base, LENGTH, resident) == 0);
	for (size_t i = 0; i < LENGTH / PAGE; i++)
		count += resident[i] & 1;
	return count;
}

static void try_once(enum ibv_wr_opcode opcode)
{
	char *base, *content = map(LENGTH, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct pager pager, next;
	struct ibv_mr *mr;
	struct remote mine, its;
	struct link link;
	size_t touched;

	base = map(LENGTH, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(content && base);
	if (side != owner) {
		memset(base, 1, LENGTH);
	} else if (!start_pager(&pager, base, LENGTH, content, user)) {
		fprintf(stderr, "no userfaultfd\n");
		exit(NOT_HERE);
	} else {
		pager.held = true;
	}
	mr = ibv_reg_mr(pd, base, LENGTH, ALL_ACCESS);
	CHECK(mr);
	mine = (struct remote){ (uintptr_t)base, mr->rkey };
	exchange(&mine, &its, sizeof(mine));
	make_links(pd, cq, &link, 1, 14);

	struct ibv_sge sge = { (uintptr_t)base, LENGTH, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = its.address;
	wr.wr.rdma.rkey = its.rkey;
	if (side && opcode == IBV_WR_SEND)
		post_receive(link.qp, 8, &sge);
	meet();
	if (!side)
		CHECK(ibv_post_send(link.qp, &wr, &bad) == 0);
	if (side == owner) {
		while (pager.faults == 0)
			usleep(50);
		end_queue_pair(link.qp);
		CHECK(ibv_dereg_mr(mr) == 0);
		CHECK(munmap(base, LENGTH) == 0);
		CHECK(mmap(base, LENGTH, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == base);
		CHECK(madvise(base, LENGTH, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
		stop_pager(&pager);
		usleep(AFTERWARDS);
		touched = present(base);
		/* Whoever is asked for these pages from now on is asked for all of them. */
		CHECK(start_pager(&next, base, LENGTH, content, user));
		usleep(AFTERWARDS);
		if (touched > !user || next.faults > 0) {
			fprintf(stderr, "%s: %s, %s: after the end of the region %zu pages of what is there now came in, %zu were asked for\n",
				side ? "target" : "poster", what, how, touched, (size_t)next.faults);
			exit(1);
		}
		stop_pager(&next);
	}
	meet();
	if (side != owner || strcmp(how, "destroy") != 0)
		CHECK(ibv_destroy_qp(link.qp) == 0);
	if (side != owner)
		CHECK(ibv_dereg_mr(mr) == 0);
	for (struct ibv_wc wc; ibv_poll_cq(cq, 1, &wc) > 0;)
		CHECK(wc.status != IBV_WC_SUCCESS);
	CHECK(munmap(content, LENGTH) == 0 && munmap(base, LENGTH) == 0);
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	pid_t child;

	if (argc != 4) {
		fprintf(stderr, "usage: %s target|poster all|user deregister|flush|destroy\n", argv[0]);
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
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		what = requests[i].name;
		alarm(LIMIT_SECONDS + !side);
		try_once(requests[i].opcode);
	}
	if (!side)
		end_of_peer(child);
	return 0;
}

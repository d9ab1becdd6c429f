/*
 * revoked target|poster all|user munmap|mremap|protect|truncate: memory that a request waits for is taken away while its page
 * is under way: the pager has been asked for it and never answers. Each kind of request, short and long, on a connection of
 * its own, must end in one error completion that says whose memory it was, in bounded time, and in nothing else.
 *
 * all: the kernel's accesses wait for the pages too; user: they fail, and the program's own wait.
 */
#define _GNU_SOURCE
#include "../../benches/link.h"
#include "place.h"

#include <signal.h>

#define LENGTH (1 << 20)
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
	{ "FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD },
};

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static int side, owner, user;
static const char *how, *what;
static size_t bytes;

static void give_up(int signal)
{
	char text[200];
	int length = snprintf(text, sizeof(text), "%s: hangs: %s of %zu bytes\n", side ? "target" : "poster", what, bytes);

	(void)signal;
	_exit(write(2, text, length) == length ? 1 : 2);
}

/* Something else may be mapped there at once: nothing may be touched. */
static void take_away(char *base, int file)
{
	if (strcmp(how, "munmap") == 0) {
		CHECK(munmap(base, LENGTH) == 0);
	} else if (strcmp(how, "mremap") == 0) {
		char *elsewhere = map(LENGTH, MAP_PRIVATE | MAP_ANONYMOUS, -1);

		CHECK(elsewhere && mremap(base, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
	} else if (strcmp(how, "protect") == 0) {
		CHECK(mprotect(base, LENGTH, PROT_NONE) == 0);
	} else {
		CHECK(ftruncate(file, 0) == 0);
	}
}

static int peer_has_spoken(void)
{
	struct pollfd ready = { .fd = from_peer, .events = POLLIN };

	return poll(&ready, 1, 1) > 0;
}

static void expect(struct ibv_wc wc, enum ibv_wc_status one, enum ibv_wc_status other)
{
	if (wc.status == one || wc.status == other)
		return;
	fprintf(stderr, "%s: %s of %zu bytes, memory taken away at the %s: status %s instead of %s\n",
		side ? "target" : "poster", what, bytes, owner ? "target" : "poster", ibv_wc_status_str(wc.status),
		ibv_wc_status_str(one));
	exit(1);
}

static void try_once(enum ibv_wr_opcode opcode)
{
	int file = strcmp(how, "truncate") == 0 ? memfd_create("pages", MFD_CLOEXEC) : -1;
	char *base, *content = map(LENGTH, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct pager pager;
	struct ibv_mr *mr;
	struct remote mine, its;
	struct link link;
	struct ibv_wc wc;

	CHECK(content && (file < 0 || ftruncate(file, LENGTH) == 0));
	base = map(LENGTH, file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file);
	CHECK(base);
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

	struct ibv_sge sge = { (uintptr_t)base, bytes, mr->lkey };
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
		post_receive(link.qp, 8, &sge);
	meet();
	if (!side)
		CHECK(ibv_post_send(link.qp, &wr, &bad) == 0);
	if (side == owner) {
		while (pager.faults == 0)
			usleep(50);
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
		take_away(base, file);
	}

	int got = 0;

	/* Until the poster has its completion, whoever sleeps in the kernel is to look again: the pager is silent. */
	while (side ? !peer_has_spoken() : (got = ibv_poll_cq(cq, 1, &wc)) == 0) {
		if (side == owner)
			wake(&pager);
	}
	if (!side) {
		CHECK(got == 1 && wc.wr_id == 7);
		if (owner)
			expect(wc, opcode == IBV_WR_SEND ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR);
		else
			expect(wc, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
		CHECK(state_of(link.qp) == IBV_QPS_ERR);
	} else if (owner && opcode == IBV_WR_SEND) {
		wc = next_completion(cq, LIMIT_SECONDS);
		CHECK(wc.wr_id == 8);
		expect(wc, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
	}
	meet();
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(ibv_destroy_qp(link.qp) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	if (side == owner)
		stop_pager(&pager);
	CHECK(munmap(content, LENGTH) == 0 && munmap(base, LENGTH) == 0);
	CHECK(file < 0 || close(file) == 0);
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	pid_t child;

	if (argc != 4) {
		fprintf(stderr, "usage: %s target|poster all|user munmap|mremap|protect|truncate\n", argv[0]);
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
	for (int length = 0; length < 2; length++) {
		for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
			what = requests[i].name;
			bytes = length && requests[i].opcode != IBV_WR_ATOMIC_FETCH_AND_ADD ? LENGTH : 8;
			alarm(LIMIT_SECONDS + !side);
			try_once(requests[i].opcode);
		}
	}
	if (!side)
		end_of_peer(child);
	return 0;
}

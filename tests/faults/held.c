/*
 * held target|poster all|user COUNT PAGES release|destroy|exit: COUNT queue pairs each with a request that meets pages which
 * do not come, at the target or at the poster itself, and four others that must go on meanwhile in both directions: they do
 * a fixed number of operations, and only then the pages come (release), the queue pairs are destroyed by the owner of the
 * pages (destroy), or the owner ends (exit). Nothing depends on how fast that is: whoever waits for a page waits for ever.
 *
 * all: the kernel's accesses wait for the pages too; user: they fail, and the program's own wait.
 */
#define _GNU_SOURCE
#include "link.h"
#include "place.h"

#include <signal.h>

#define HEALTHY 4
#define ROUNDS 20
#define LONG 65536
/* What each side posts on a healthy link in a phase, of the kind that takes a receive. */
#define SENDS (2 * ROUNDS)
#ifndef LIMIT_SECONDS
#define LIMIT_SECONDS 100
#endif

struct memory {
	char *base;
	struct ibv_mr *mr;
	struct remote remote;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct link healthy[HEALTHY], *held;
static struct ibv_cq *cq_healthy, *cq_held;
/* Of the healthy: each link's is 4 * LONG, written by the peer, the source of own WRITEs and SENDs, for READs, received. */
static struct memory plain, pages;
static struct pager pager;
static char *content;
static int side, owner, count, received;
static size_t length;
static const char *phase = "setting up";

static void give_up(int signal)
{
	(void)signal;
	if (write(2, side ? "target: hangs: " : "poster: hangs: ", 15) > 0 && write(2, phase, strlen(phase)) > 0)
		_exit(1);
	_exit(1);
}

static void enter(const char *what)
{
	phase = what;
}

static struct memory memory_of(char *base, size_t bytes)
{
	struct memory memory = { base, ibv_reg_mr(pd, base, bytes, ALL_ACCESS) };
	struct remote mine;

	CHECK(memory.mr);
	mine = (struct remote){ (uintptr_t)base, memory.mr->rkey };
	exchange(&mine, &memory.remote, sizeof(mine));
	return memory;
}

static void post(struct link *link, enum ibv_wr_opcode opcode, const struct memory *memory, size_t here, size_t there,
		 size_t bytes, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)memory->base + here, bytes, memory->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = memory->remote.address + there;
		wr.wr.atomic.rkey = memory->remote.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = memory->remote.address + there;
		wr.wr.rdma.rkey = memory->remote.rkey;
	}
	CHECK(ibv_post_send(link->qp, &wr, &bad) == 0);
}

static void receive(int link)
{
	struct ibv_sge sge = { (uintptr_t)plain.base + (4 * link + 3) * LONG, LONG, plain.mr->lkey };

	post_receive(healthy[link].qp, link, &sge);
}

/* Nobody may wait for a held page as if it were there. */
static void none_is_through(void)
{
	struct ibv_wc wc;
	int got = ibv_poll_cq(cq_held, 1, &wc);

	if (got != 0) {
		fprintf(stderr, "a request on absent pages completed: status %s\n", got > 0 ? ibv_wc_status_str(wc.status) : "?");
		exit(1);
	}
}

/* The completion of an own request, or only one of a receive. */
static int take(void)
{
	struct ibv_wc wc = next_completion(cq_healthy, LIMIT_SECONDS);

	CHECK(wc.status == IBV_WC_SUCCESS);
	if (wc.opcode != IBV_WC_RECV)
		return 1;
	receive(wc.wr_id);
	received++;
	return 0;
}

static void operate(int link, enum ibv_wr_opcode opcode, size_t bytes)
{
	/* What the peer writes is never what it reads. */
	size_t base = 4 * link * LONG, there = base + (opcode == IBV_WR_RDMA_READ ? LONG : 0);
	size_t here = base + (opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 2 : 1) * LONG;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		bytes = 8;
	memset(plain.base + base + 2 * LONG, 0, bytes);
	post(&healthy[link], opcode, &plain, here, there, bytes, 0);
	while (!take())
		;
	if (opcode == IBV_WR_RDMA_READ)
		CHECK(first_not(plain.base + here, side ? MOVER : PEER, base + LONG, bytes) == bytes);
	none_is_through();
}

/* Both sides at the same time. */
static void go_on(const char *what)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};

	enter(what);
	for (int round = 0; round < ROUNDS; round++) {
		for (int link = 0; link < HEALTHY; link++) {
			for (int i = 0; i < 4; i++) {
				operate(link, opcodes[i], 8);
				operate(link, opcodes[i], LONG);
			}
		}
	}
	while (received < HEALTHY * SENDS)
		CHECK(!take());
	received = 0;
	for (int link = 0; link < HEALTHY; link++)
		CHECK(first_not(plain.base + (4 * link + 3) * LONG, side ? MOVER : PEER, (4 * link + 1) * LONG, LONG) == LONG);
	meet();
}

static enum ibv_wr_opcode held_opcode(int i)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};

	return opcodes[i % 4];
}

static void set_up(int user)
{
	size_t all = count * length;

	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq_healthy = ibv_create_cq(context, HEALTHY * 2 * DEPTH, NULL, NULL, 0);
	cq_held = ibv_create_cq(context, 2 * count, NULL, NULL, 0);
	held = calloc(count, sizeof(*held));
	CHECK(pd && cq_healthy && cq_held && held);

	plain = memory_of(map(4 * HEALTHY * LONG, MAP_PRIVATE | MAP_ANONYMOUS, -1), 4 * HEALTHY * LONG);
	fill(plain.base, side ? PEER : MOVER, 0, 4 * HEALTHY * LONG);
	make_links(pd, cq_healthy, healthy, HEALTHY, 14);
	for (int i = 0; i < HEALTHY * 100; i++)
		receive(i % HEALTHY);

	content = map(all, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(content);
	fill(content, side ? PEER : MOVER, 0, all);
	pages = memory_of(map(all, MAP_PRIVATE | MAP_ANONYMOUS, -1), all);
	make_links(pd, cq_held, held, count, 14);
	if (side != owner) {
		memcpy(pages.base, content, all);
	} else if (!start_pager(&pager, pages.base, all, content, user)) {
		fprintf(stderr, "no userfaultfd\n");
		exit(NOT_HERE);
	} else {
		pager.held = true;
	}
	for (int i = 0; side && i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)pages.base + i * length, length, pages.mr->lkey };

		if (held_opcode(i) == IBV_WR_SEND)
			post_receive(held[i].qp, i, &sge);
	}
	meet();
}

static void destroy_held(void)
{
	for (int i = 0; i < count; i++)
		CHECK(ibv_destroy_qp(held[i].qp) == 0);
}

/* What each page of `pages` must contain when all is done. */
static void examine(void)
{
	for (int i = 0; i < count; i++) {
		enum ibv_wr_opcode opcode = held_opcode(i);
		char *base = pages.base + i * length;
		int arrives = opcode == IBV_WR_RDMA_READ ? side == 0 : side == 1;
		uint64_t old, now, own;

		if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			fill((char *)&old, PEER, i * length, 8);
			memcpy(&own, base, 8);
			now = side ? old + 1 : old;
			CHECK(own == now);
			CHECK(first_not(base + 8, side ? PEER : MOVER, i * length + 8, length - 8) == length - 8);
		} else {
			CHECK(first_not(base, arrives != side ? PEER : MOVER, i * length, length) == length);
		}
	}
}

static void take_held(int wanted, int well)
{
	for (int i = 0; i < wanted; i++) {
		struct ibv_wc wc = next_completion(cq_held, LIMIT_SECONDS);

		if ((wc.status == IBV_WC_SUCCESS) != well) {
			fprintf(stderr, "request %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
			exit(1);
		}
	}
}

static void end_by_release(void)
{
	enter("the pages come");
	if (side == owner)
		pager.held = false;
	take_held(side ? (count + 2) / 4 : count, 1);
	meet();
	examine();
	none_is_through();
}

static void end_by_destruction(void)
{
	enter("the owner of the pages destroys the queue pairs");
	if (side == owner)
		destroy_held();
	meet();
	enter("the other side's requests end in an error");
	if (side != owner && side == 0)
		take_held(count, 0);
	if (side != owner)
		destroy_held();
	meet();
}

static void tear_down(void)
{
	enter("objects are destroyed");
	for (int i = 0; i < HEALTHY; i++)
		CHECK(ibv_destroy_qp(healthy[i].qp) == 0);
	CHECK(ibv_dereg_mr(pages.mr) == 0 && ibv_dereg_mr(plain.mr) == 0);
	CHECK(ibv_destroy_cq(cq_held) == 0 && ibv_destroy_cq(cq_healthy) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

int main(int argc, char **argv)
{
	pid_t child;

	if (argc != 6) {
		fprintf(stderr, "usage: %s target|poster all|user COUNT PAGES release|destroy|exit\n", argv[0]);
		return 2;
	}
	owner = strcmp(argv[1], "target") == 0;
	count = atoi(argv[3]);
	length = atoi(argv[4]) * (size_t)PAGE;
	const char *end = argv[5];

	CHECK(count > 0 && length > 0 && (owner || strcmp(end, "exit") != 0));
	CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && signal(SIGALRM, give_up) != SIG_ERR);
	child = fork_peer();
	side = child == 0;
	alarm(LIMIT_SECONDS + !side);
	set_up(strcmp(argv[2], "user") == 0);
	go_on("before anything");

	enter("posting");
	if (!side) {
		for (int i = 0; i < count; i++)
			post(&held[i], held_opcode(i), &pages, i * length, i * length,
			     held_opcode(i) == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : length, i);
	}
	go_on("others, just after posting");
	enter("a page is asked for");
	while (side == owner && pager.faults == 0)
		usleep(100);
	meet();
	go_on("others, while pages are waited for");

	if (strcmp(end, "exit") == 0) {
		enter("the owner of the pages ends");
		if (side)
			_exit(0);
		end_of_peer(child);
		take_held(count, 0);
		destroy_held();
		tear_down();
		return 0;
	}
	if (strcmp(end, "release") == 0) {
		end_by_release();
		destroy_held();
	} else {
		end_by_destruction();
	}
	go_on("others, afterwards");
	tear_down();
	if (!side)
		end_of_peer(child);
	return 0;
}

/*
 * crowd target|poster all|user: many queue pairs each with a WRITE to or from a page that never comes, of one region; then another one
 * with WRITEs to and from pages of other regions: of memory that was never touched, and of a pager that answers. These must end, before and after the
 * crowd's queue pairs are destroyed.
 */
#define _GNU_SOURCE
#include "link.h"
#include "place.h"

#include <signal.h>

#define CROWD 40
#define LENGTH (CROWD * PAGE)
#define LIMIT_SECONDS 60

/* In this order at both sides. */
enum { WITHHELD, FRESH, PAGED, AREAS };

static struct area {
	char *base;
	struct ibv_mr *mr;
	struct remote its;
	struct pager pager;
} areas[AREAS];
static struct link crowd[CROWD], other;
static struct ibv_cq *cq, *cq_other;
static int side, owner, user;
static char content[LENGTH];
static const char *phase = "setting up";

static void give_up(int signal)
{
	(void)signal;
	if (write(2, phase, strlen(phase)) > 0 && write(2, ": hangs\n", 8) == 8)
		_exit(1);
	_exit(2);
}

static void make_area(struct ibv_pd *pd, int which)
{
	struct area *area = &areas[which];
	struct remote mine;

	area->base = map(LENGTH, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(area->base);
	CHECK(madvise(area->base, LENGTH, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	if (side != owner) {
		memset(area->base, 1, LENGTH);
	} else if (which != FRESH && !start_pager(&area->pager, area->base, LENGTH, content, user)) {
		fprintf(stderr, "no userfaultfd\n");
		exit(NOT_HERE);
	}
	area->pager.held = which == WITHHELD;
	area->mr = ibv_reg_mr(pd, area->base, LENGTH, ALL_ACCESS);
	CHECK(area->mr);
	mine = (struct remote){ (uintptr_t)area->base, area->mr->rkey };
	exchange(&mine, &area->its, sizeof(mine));
}

static void write_page(struct link *link, int which, size_t at)
{
	struct area *area = &areas[which];
	struct ibv_sge sge = { (uintptr_t)area->base + at, PAGE, area->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = area->its.address + at;
	wr.wr.rdma.rkey = area->its.rkey;
	CHECK(ibv_post_send(link->qp, &wr, &bad) == 0);
}

/* Half of the pages each time. */
static void others_end(const char *name, size_t from)
{
	phase = name;
	alarm(LIMIT_SECONDS + !side);
	for (int which = FRESH; !side && which <= PAGED; which++) {
		for (size_t at = from; at < LENGTH; at += 2 * PAGE) {
			write_page(&other, which, at);
			CHECK(next_completion(cq_other, LIMIT_SECONDS).status == IBV_WC_SUCCESS);
		}
	}
	meet();
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	pid_t child;

	if (argc != 3) {
		fprintf(stderr, "usage: %s target|poster all|user\n", argv[0]);
		return 2;
	}
	CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && signal(SIGALRM, give_up) != SIG_ERR);
	user = strcmp(argv[2], "user") == 0;
	owner = strcmp(argv[1], "target") == 0;
	child = fork_peer();
	side = child == 0;
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 2 * CROWD, NULL, NULL, 0);
	cq_other = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	CHECK(pd && cq && cq_other);
	for (int which = 0; which < AREAS; which++)
		make_area(pd, which);
	/* 17 s: it is not what is tried. */
	make_links(pd, cq, crowd, CROWD, 22);
	make_links(pd, cq_other, &other, 1, 22);
	for (int i = 0; !side && i < CROWD; i++)
		write_page(&crowd[i], WITHHELD, i * PAGE);
	/* Until no more of them come: so many threads are taken as ever will be. */
	if (side == owner) {
		for (unsigned long seen = 0, still = 0; seen == 0 || still < 100; still++) {
			if (areas[WITHHELD].pager.faults != seen)
				still = 0;
			seen = areas[WITHHELD].pager.faults;
			usleep(1000);
		}
	}
	meet();
	others_end("others beside the crowd", 0);
	for (int i = 0; i < CROWD; i++)
		CHECK(ibv_destroy_qp(crowd[i].qp) == 0);
	meet();
	others_end("others behind it", PAGE);
	for (int which = 0; side == owner && which < AREAS; which++) {
		if (which != FRESH)
			stop_pager(&areas[which].pager);
	}
	if (!side)
		end_of_peer(child);
	return 0;
}

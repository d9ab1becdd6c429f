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
#include "awaited.h"

/* Microseconds in which a thread that was woken would have touched the page that it waits for at least. */
#define AFTERWARDS 300000

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
	struct awaited awaited;
	char *base;

	begin(&awaited, opcode, -1);
	base = awaited.base;
	if (side == owner) {
		struct pager next;
		size_t touched;

		end_queue_pair(awaited.link.qp);
		CHECK(ibv_dereg_mr(awaited.mr) == 0);
		CHECK(munmap(base, LENGTH) == 0);
		CHECK(mmap(base, LENGTH, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == base);
		CHECK(madvise(base, LENGTH, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
		stop_pager(&awaited.pager);
		usleep(AFTERWARDS);
		touched = present(base);
		/* Whoever is asked for these pages from now on is asked for all of them. */
		CHECK(start_pager(&next, base, LENGTH, awaited.content, user));
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
		CHECK(ibv_destroy_qp(awaited.link.qp) == 0);
	if (side != owner)
		CHECK(ibv_dereg_mr(awaited.mr) == 0);
	for (struct ibv_wc wc; ibv_poll_cq(cq, 1, &wc) > 0;)
		CHECK(wc.status != IBV_WC_SUCCESS);
	CHECK(munmap(awaited.content, LENGTH) == 0 && munmap(base, LENGTH) == 0);
}

static void try_all(void)
{
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		/* Of one page nothing lies behind. */
		if (requests[i].opcode != IBV_WR_ATOMIC_FETCH_AND_ADD)
			try_request(&requests[i], LENGTH, try_once);
	}
}

int main(int argc, char **argv)
{
	return run(argc, argv, "deregister|flush|destroy", try_all);
}

/* Memory of two processes at which WRITEs are aimed, and what the target does with its own when it is asked to. */
#ifndef ORDERS_H
#define ORDERS_H

#include "link.h"

#include <sys/mman.h>

#define PAGE 4096
/* Aligned like page tables: what is measured is never their making. */
#define ALIGNED (2 << 20)
/* Of one kind. */
#define MOST_SAMPLES 6144

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* What the initiator asks the target to do with its memory. */
enum order { DROP = 'd', TOUCH = 't', POPULATE = 'p', LOCK = 'l', UNLOCK = 'u', RECEIVE = 'r', RENEW = 'n', QUIT = 'q' };

/* With how much of it, from the start; of DROP, how many of these pages, at random. */
struct extent {
	size_t bytes, pages;
};

struct samples {
	double values[MOST_SAMPLES];
	int count;
};

static char *memory;
static struct ibv_mr *mr;
static struct greeting peer;
static struct link link_;
/* Of the queue pair, as make_links has it. */
static int acknowledgement_timeout;

static inline double now(void)
{
	return seconds() * 1e6;
}

static inline void add(struct samples *samples, double value)
{
	CHECK(samples->count < MOST_SAMPLES);
	samples->values[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median; null of none. */
static inline void print(const char *before, const char *name, struct samples *samples)
{
	qsort(samples->values, samples->count, sizeof(double), compare);
	if (samples->count > 0)
		printf("%s\"%s\":%.3f", before, name, samples->values[samples->count / 2]);
	else
		printf("%s\"%s\":null", before, name);
}

/* All of `length` bytes of new memory, without huge pages. */
static inline void map_memory(size_t length)
{
	memory = mmap(NULL, length + 2 * ALIGNED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(memory != MAP_FAILED);
	memory = (char *)(((uintptr_t)memory + ALIGNED - 1) / ALIGNED * ALIGNED);
	CHECK(madvise(memory, length, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
}

/* Registers it, tells the peer, and makes the queue pair. */
static inline void share_memory(struct ibv_pd *pd, struct ibv_cq *cq, size_t length, int timeout)
{
	struct greeting mine;

	mr = ibv_reg_mr(pd, memory, length, ALL_ACCESS);
	CHECK(mr);
	mine = (struct greeting){ .rkey = mr->rkey, .address = (uintptr_t)memory };
	exchange(&mine, &peer, sizeof(mine));
	acknowledgement_timeout = timeout;
	make_links(pd, cq, &link_, 1, timeout);
}

/* A new queue pair in place of one that failed; both sides do it. */
static inline void renew(void)
{
	CHECK(ibv_destroy_qp(link_.qp) == 0);
	make_links(mr->pd, link_.cq, &link_, 1, acknowledgement_timeout);
}

/* From and to the same offset of both. */
static inline void post(enum ibv_wr_opcode opcode, size_t at, size_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)memory + at, bytes, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = peer.address + at;
	wr.wr.rdma.rkey = peer.rkey;
	CHECK(ibv_post_send(link_.qp, &wr, &bad) == 0);
}

static inline enum ibv_wc_status complete(void)
{
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(link_.cq, 1, &wc)) == 0)
		;
	CHECK(got == 1);
	return wc.status;
}

static inline void must_complete(void)
{
	enum ibv_wc_status status = complete();

	if (status != IBV_WC_SUCCESS) {
		fprintf(stderr, "a completion: %s\n", ibv_wc_status_str(status));
		exit(1);
	}
}

static inline double write_once(size_t at, size_t bytes)
{
	double start = now();

	post(IBV_WR_RDMA_WRITE, at, bytes);
	must_complete();
	return now() - start;
}

static inline void touch(size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		*(volatile char *)(memory + at) = 1;
}

/* The rest is there. */
static inline void drop(struct extent what)
{
	size_t left = what.pages;

	if (what.pages * PAGE >= what.bytes) {
		CHECK(madvise(memory, what.bytes, MADV_DONTNEED) == 0);
		return;
	}
	touch(what.bytes);
	/* Each page with the probability that makes so many of those that are still to come (Knuth's algorithm S). */
	for (size_t at = 0; left > 0; at += PAGE) {
		if (random() % ((what.bytes - at + PAGE - 1) / PAGE) >= left)
			continue;
		CHECK(madvise(memory + at, PAGE, MADV_DONTNEED) == 0);
		left--;
	}
}

/* Does an order and gives how long it took; negative: not permitted. */
static inline double obey(enum order order, struct extent what)
{
	struct ibv_sge sge = { (uintptr_t)memory, what.bytes, mr->lkey };
	double start = now();
	struct ibv_wc wc;

	switch (order) {
	case DROP:
		drop(what);
		break;
	case TOUCH:
		touch(what.bytes);
		break;
	case POPULATE:
		CHECK(madvise(memory, what.bytes, MADV_POPULATE_WRITE) == 0);
		break;
	case LOCK:
		if (mlock(memory, what.bytes) != 0) {
			CHECK(errno == EPERM || errno == ENOMEM);
			return -1;
		}
		break;
	case UNLOCK:
		CHECK(munlock(memory, what.bytes) == 0);
		break;
	case RECEIVE:
		while (ibv_poll_cq(link_.cq, 1, &wc) > 0)
			CHECK(wc.status == IBV_WC_SUCCESS);
		post_receive(link_.qp, 0, &sge);
		break;
	case RENEW:
		renew();
		break;
	default:
		CHECK(!"an order");
	}
	return now() - start;
}

static inline double order(enum order order, struct extent what)
{
	double took;

	hand_over(order);
	tell_peer(&what, sizeof(what));
	if (order == RENEW)
		renew();
	hear_peer(&took, sizeof(took));
	return took;
}

/* Until it is told to quit. */
static inline void serve(void)
{
	char order;

	while ((order = wait_for_peer()) != QUIT) {
		struct extent what;
		double took;

		hear_peer(&what, sizeof(what));
		took = obey(order, what);
		tell_peer(&took, sizeof(took));
	}
}

#endif

/*
 * hostile SIZE SECONDS: WRITEs on one connection between two processes, first alone, then while a third process has 512 WRITEs,
 * on 16 queue pairs, to pages of the same target that never come. A plain verbs program; `pagewire bench` runs it.
 *
 * Prints one JSON object, without and with the third process: microseconds from ibv_post_send until the completion is polled,
 * half of them and 99 in a hundred, and how many microseconds each takes where 32 are under way. Exit status 77: no userfaultfd
 * here.
 */
#define _GNU_SOURCE
#include "link.h"
#include "pager.h"

#define PAGE 4096
#define LINKS 16
#define EACH 32
#define PAGES ((size_t)LINKS * EACH * PAGE)
/* Seconds before each measurement that are not measured. */
#define WARM_UP 0.1
#define MOST 8000000

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void open_device(void)
{
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 2 * LINKS * DEPTH, NULL, NULL, 0);
	CHECK(pd && cq);
}

static struct greeting greet(struct ibv_mr *region)
{
	struct greeting mine = { .rkey = region->rkey, .address = (uintptr_t)region->addr }, its;

	exchange(&mine, &its, sizeof(mine));
	return its;
}

static struct ibv_mr *new_region(size_t length)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	CHECK(memory != MAP_FAILED);
	mr = ibv_reg_mr(pd, memory, length, ALL_ACCESS);
	CHECK(mr);
	return mr;
}

static void post(struct link *link, struct ibv_mr *from, const struct greeting *to, size_t at, size_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)from->addr + at, bytes, from->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = to->address + at;
	wr.wr.rdma.rkey = to->rkey;
	CHECK(ibv_post_send(link->qp, &wr, &bad) == 0);
}

/* The third process: it takes the processor for nothing but what waiting costs. */
static void be_hostile(void)
{
	struct link links[LINKS];
	struct greeting target;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	open_device();
	mr = new_region(PAGES);
	memset(mr->addr, 1, PAGES);
	target = greet(mr);
	make_links(pd, cq, links, LINKS, 14);
	if (wait_for_peer() == 'h') {
		for (size_t i = 0; i < LINKS * EACH; i++)
			post(&links[i % LINKS], mr, &target, i * PAGE, PAGE);
		hand_over('h');
		CHECK(wait_for_peer() == 'q');
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	}
	_exit(0);
}

static void be_target(size_t size)
{
	int mover[2] = { to_peer, from_peer }, hostile[2];
	struct link links[LINKS], plain;
	struct ibv_mr *pages, *mr;
	struct pager pager;
	pid_t child = fork_peer();

	if (child == 0) {
		/* Else nobody would notice that the target has ended. */
		CHECK(close(mover[0]) == 0 && close(mover[1]) == 0);
		be_hostile();
	}
	hostile[0] = to_peer, hostile[1] = from_peer;
	open_device();
	pages = new_region(PAGES);
	if (!start_pager(&pager, pages->addr, PAGES, NULL, false) &&
	    !start_pager(&pager, pages->addr, PAGES, NULL, true)) {
		fprintf(stderr, "no userfaultfd\n");
		exit(NOT_HERE);
	}
	pager.held = true;
	greet(pages);
	make_links(pd, cq, links, LINKS, 14);
	to_peer = mover[0], from_peer = mover[1];
	mr = new_region(size);
	memset(mr->addr, 1, size);
	greet(mr);
	make_links(pd, cq, &plain, 1, 22);
	CHECK(wait_for_peer() == 'h');
	to_peer = hostile[0], from_peer = hostile[1];
	hand_over('h');
	CHECK(wait_for_peer() == 'h');
	while (pager.faults == 0)
		usleep(100);
	to_peer = mover[0], from_peer = mover[1];
	hand_over('h');
	CHECK(wait_for_peer() == 'q');
	to_peer = hostile[0];
	hand_over('q');
	end_of_peer(child);
	stop_pager(&pager);
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static int take(void)
{
	struct ibv_wc wc;
	int got = ibv_poll_cq(cq, 1, &wc);

	CHECK(got >= 0 && (got == 0 || wc.status == IBV_WC_SUCCESS));
	return got;
}

static size_t one_by_one(struct link *link, struct ibv_mr *mr, const struct greeting *target, double patience, float *samples)
{
	double end = seconds() + patience;
	size_t count = 0;

	for (double start; (start = seconds()) < end && count < MOST; count++) {
		post(link, mr, target, 0, mr->length);
		while (!take())
			;
		samples[count] = (seconds() - start) * 1e6;
	}
	return count;
}

static double together(struct link *link, struct ibv_mr *mr, const struct greeting *target, double patience)
{
	double start = seconds();
	size_t posted = 0, done = 0;

	while (seconds() < start + patience) {
		for (; posted < done + EACH; posted++)
			post(link, mr, target, 0, mr->length);
		while (take())
			done++;
	}
	patience = seconds() - start;
	for (size_t left = posted - done; left > 0;)
		left -= take();
	return patience * 1e6 / done;
}

static void measure(struct link *link, struct ibv_mr *mr, const struct greeting *target, double patience, const char *name)
{
	static float samples[MOST];
	size_t count;
	double each;

	one_by_one(link, mr, target, WARM_UP, samples);
	count = one_by_one(link, mr, target, patience / 2, samples);
	together(link, mr, target, WARM_UP);
	each = together(link, mr, target, patience / 2);
	qsort(samples, count, sizeof(float), compare);
	printf("\"median_%s\":%.3f,\"p99_%s\":%.3f,\"each_%s\":%.3f", name, samples[count / 2], name,
	       samples[count * 99 / 100], name, each);
}

int main(int argc, char **argv)
{
	struct greeting target;
	struct link link;
	struct ibv_mr *mr;
	double patience;
	size_t size;
	pid_t child;

	if (argc != 3) {
		fprintf(stderr, "usage: %s SIZE SECONDS\n", argv[0]);
		return 2;
	}
	size = strtoul(argv[1], NULL, 10);
	patience = atof(argv[2]) / 2;
	CHECK(size > 0 && patience > 0);
	child = fork_peer();
	if (child == 0) {
		be_target(size);
		return 0;
	}
	open_device();
	mr = new_region(size);
	memset(mr->addr, 1, size);
	target = greet(mr);
	/* 17 s: no timer fires because the program runs slowly. */
	make_links(pd, cq, &link, 1, 22);
	putchar('{');
	measure(&link, mr, &target, patience, "without");
	hand_over('h');
	CHECK(wait_for_peer() == 'h');
	putchar(',');
	measure(&link, mr, &target, patience, "with");
	puts("}");
	hand_over('q');
	end_of_peer(child);
	return 0;
}

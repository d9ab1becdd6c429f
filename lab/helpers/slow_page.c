/*
 * slow_page target|poster same|other write|send|read SIZE SECONDS: latencies on four connections while a fifth of the same two
 * processes meets a page that takes 10 ms each time, at the target or at the poster itself, and without it, in turn. same: one
 * thread posts to all; other: the slow connection has a thread of its own. A plain verbs program; `pagewire bench` runs it.
 *
 * Prints one JSON object: microseconds from ibv_post_send until the completion is polled, half of them and 99 in a hundred,
 * without and with the slow page; "longest_post", the longest call of ibv_post_send on the slow connection; and how many slow
 * pages there were. Exit status 77: no userfaultfd here.
 */
#define _GNU_SOURCE
#include "link.h"
#include "pager.h"

#define PAGE 4096
#define LINKS 4
/* Microseconds that the page takes, and for which it may be there before it goes again. */
#define SLOW 10000
#define THERE 1000
/* Seconds of a stretch with or without the slow page. */
#define STRETCH 0.1
/* Stretches after which what happens once has happened. */
#define WARM_UP 2
#define MOST 4000000

struct samples {
	float *values;
	size_t count;
};

static struct ibv_pd *pd;
static struct link links[LINKS], slow;
static char *memory, *page;
static struct ibv_mr *mr, *page_mr;
static struct greeting peer, peer_page;
static struct pager pager;
static size_t size;
static enum ibv_wr_opcode opcode;
static int same;
static double longest_post;
static size_t slow_ones;
/* The other thread: it may post; nothing of it is under way; the program ends. */
static _Atomic bool may, idle = true, over;

static double now(void)
{
	return seconds() * 1e6;
}

static void post(struct link *link, struct ibv_mr *from, const struct greeting *to, size_t bytes, enum ibv_wr_opcode what)
{
	struct ibv_sge sge = { (uintptr_t)from->addr, bytes, from->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = what, .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = to->address;
	wr.wr.rdma.rkey = to->rkey;
	CHECK(ibv_post_send(link->qp, &wr, &bad) == 0);
}

static void post_slow(void)
{
	double start = now(), took;

	post(&slow, page_mr, &peer_page, PAGE, IBV_WR_RDMA_WRITE);
	took = now() - start;
	if (took > longest_post)
		longest_post = took;
}

static int slow_is_complete(void)
{
	struct ibv_wc wc;
	int got = ibv_poll_cq(slow.cq, 1, &wc);

	CHECK(got >= 0 && (got == 0 || wc.status == IBV_WC_SUCCESS));
	return got;
}

/* One slow request after the other while they are wanted. */
static void *post_slow_ones(void *nothing)
{
	while (!over) {
		if (!may) {
			usleep(200);
			continue;
		}
		idle = false;
		if (may) {
			post_slow();
			while (!slow_is_complete())
				usleep(500);
			slow_ones++;
			usleep(2 * THERE);
		}
		idle = true;
	}
	return nothing;
}

/* Keeps one slow request under way while `wanted`; called between the requests of the measured connections. */
static void keep_one_under_way(int wanted)
{
	static double next;
	static int under_way;

	do {
		if (under_way && slow_is_complete()) {
			under_way = 0;
			slow_ones++;
			next = now() + 2 * THERE;
		} else if (!under_way && wanted && now() >= next) {
			post_slow();
			under_way = 1;
		}
	} while (!wanted && under_way);
}

static void wait_until_idle(void)
{
	while (!idle)
		usleep(100);
}

static void stretch(int with, struct samples *samples)
{
	double end = now() + STRETCH * 1e6;
	int link = 0;

	may = with && !same;
	for (;;) {
		double start = now();
		struct ibv_wc wc;
		int got;

		if (start > end)
			break;
		post(&links[link], mr, &peer, size, opcode);
		while ((got = ibv_poll_cq(links[link].cq, 1, &wc)) == 0)
			;
		CHECK(got == 1 && wc.status == IBV_WC_SUCCESS);
		CHECK(samples->count < MOST);
		samples->values[samples->count++] = now() - start;
		link = (link + 1) % LINKS;
		if (same && with)
			keep_one_under_way(1);
	}
	if (same)
		keep_one_under_way(0);
	may = false;
	wait_until_idle();
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static void print(const char *name, struct samples *samples)
{
	qsort(samples->values, samples->count, sizeof(float), compare);
	printf("\"median_%s\":%.3f,\"p99_%s\":%.3f,", name, samples->values[samples->count / 2], name,
	       samples->values[samples->count * 99 / 100]);
}

/* Takes the page away again and again: a slow request comes later than that after the one before. */
static void *take_away(void *nothing)
{
	while (!over) {
		CHECK(madvise(page, PAGE, MADV_DONTNEED) == 0);
		usleep(THERE);
	}
	return nothing;
}

static void take_part(void)
{
	struct pollfd ready = { .fd = from_peer, .events = POLLIN };
	struct ibv_wc wc;
	int got;

	if (opcode == IBV_WR_SEND) {
		for (int i = 0; i < LINKS * 64; i++)
			post_receive(links[i % LINKS].qp, i % LINKS, &(struct ibv_sge){ (uintptr_t)memory, size, mr->lkey });
		meet();
		for (unsigned turn = 0; turn % 1024 || poll(&ready, 1, 0) == 0; turn++) {
			while ((got = ibv_poll_cq(links[0].cq, 1, &wc)) > 0) {
				CHECK(wc.status == IBV_WC_SUCCESS);
				post_receive(links[wc.wr_id].qp, wc.wr_id,
					     &(struct ibv_sge){ (uintptr_t)memory, size, mr->lkey });
			}
			CHECK(got == 0);
		}
	} else {
		meet();
	}
	CHECK(wait_for_peer() == 'q');
}

static struct greeting greet(struct ibv_mr *region)
{
	struct greeting mine = { .rkey = region->rkey, .address = (uintptr_t)region->addr }, its;

	exchange(&mine, &its, sizeof(mine));
	return its;
}

int main(int argc, char **argv)
{
	struct samples samples[2] = { { malloc(MOST * sizeof(float)), 0 }, { malloc(MOST * sizeof(float)), 0 } };
	int owner, side, stretches;
	struct ibv_context *context;
	struct ibv_cq *cq, *slow_cq;
	pthread_t threads[2];
	pid_t child;

	if (argc != 6) {
		fprintf(stderr, "usage: %s target|poster same|other write|send|read SIZE SECONDS\n", argv[0]);
		return 2;
	}
	owner = strcmp(argv[1], "target") == 0;
	same = strcmp(argv[2], "same") == 0;
	opcode = strcmp(argv[3], "send") == 0 ? IBV_WR_SEND :
		 strcmp(argv[3], "read") == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	size = strtoul(argv[4], NULL, 10);
	stretches = atof(argv[5]) / STRETCH;
	CHECK(size > 0 && stretches > WARM_UP && samples[0].values && samples[1].values);
	child = fork_peer();
	side = child == 0;
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4 * DEPTH * LINKS, NULL, NULL, 0);
	slow_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	memory = aligned_alloc(PAGE, (size + PAGE) / PAGE * PAGE);
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pd && cq && slow_cq && memory && page != MAP_FAILED);
	memset(memory, 1, size);
	if (side != owner) {
		memset(page, 1, PAGE);
	} else if (!start_pager(&pager, page, PAGE, memory, false) && !start_pager(&pager, page, PAGE, memory, true)) {
		fprintf(stderr, "no userfaultfd\n");
		exit(NOT_HERE);
	}
	pager.delay = SLOW;
	mr = ibv_reg_mr(pd, memory, size, ALL_ACCESS);
	page_mr = ibv_reg_mr(pd, page, PAGE, ALL_ACCESS);
	CHECK(mr && page_mr);
	peer = greet(mr);
	peer_page = greet(page_mr);
	/* 17 s: no timer fires because the program runs slowly. */
	make_links(pd, cq, links, LINKS, 22);
	make_links(pd, slow_cq, &slow, 1, 22);
	if (side == owner)
		CHECK(pthread_create(&threads[0], NULL, take_away, NULL) == 0);
	if (side) {
		take_part();
	} else {
		CHECK(pthread_create(&threads[1], NULL, post_slow_ones, NULL) == 0);
		meet();
		for (int i = -WARM_UP; i < stretches; i++) {
			struct samples nowhere = samples[0];

			stretch(i & 1, i < 0 ? &nowhere : &samples[i & 1]);
			if (i < 0)
				slow_ones = 0, longest_post = 0;
		}
		over = true;
		CHECK(pthread_join(threads[1], NULL) == 0);
		hand_over('q');
		end_of_peer(child);
		putchar('{');
		print("without", &samples[0]);
		print("with", &samples[1]);
		printf("\"longest_post\":%.3f,\"slow_pages\":%zu}\n", longest_post, slow_ones);
	}
	over = true;
	if (side == owner) {
		CHECK(pthread_join(threads[0], NULL) == 0);
		stop_pager(&pager);
	}
	return 0;
}

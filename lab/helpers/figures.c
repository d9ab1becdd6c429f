/*
 * figures write KIND BEFORE TIMEOUT PERCENTS SIZES | get WINDOW SIZES | send SIZES: the experiments of the papers' figures on
 * this machine. A plain verbs program; `pagewire reproduce --live` runs it.
 *
 * write: WRITEs, of whose pages so many in a hundred, at random, are absent at the target; as many whole pages as that makes,
 *        rounded down. KIND: how they come in: zero (filled by the kernel) or pager (by a thread of the target, through
 *        userfaultfd(2)). BEFORE: what the target does before with all of its pages: nothing, touch, populate (one call of the
 *        kernel) or lock (mlock). TIMEOUT: as ibv_modify_qp(3) has it, 4.096 us times 2 to its power.
 *        "before" is what that took, "transfer" the WRITE, "whole" both; null where this user may not do what comes before.
 *        "failed": WRITEs that are in none of these, because the retry counter was exceeded; "times": those that are.
 * get:   READs of memory that is there. WINDOW 1: "post" is the call, "whole" the time until its completion. Otherwise so many
 *        are posted together, and one more after each completion: "rate" in MB/s.
 * send:  SENDs of memory that is there: "post" is the call, "touch" a load and a store to each page before it, "whole" both.
 *
 * Prints for each size and percentage one JSON object: {"size", "percent", ...}, medians in microseconds. Exit status 77: no
 * userfaultfd here.
 */
#define _GNU_SOURCE
#include "orders.h"
#include "pager.h"

/* Of each size and percentage: not beyond this time, but so many times at least. */
#define SECONDS 0.05
#define LEAST 5
/* WRITEs that may fail of one size and percentage. */
#define MOST_FAILED 20
/* Times that are not counted. */
#define WARM_UP 2
/* Of a figure with a window. */
#define RATE_SECONDS 0.15

struct list {
	size_t values[32];
	int count;
};

/* Numbers with commas between them. */
static struct list numbers(const char *text)
{
	struct list list = { .count = 0 };
	char *end;

	do {
		CHECK(list.count < 32);
		list.values[list.count++] = strtoul(text, &end, 10);
		CHECK(end != text && (*end == ',' || *end == 0));
		text = end + 1;
	} while (*end);
	return list;
}

static size_t pages_of(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE;
}

static int goes_on(const struct samples *samples, int times, double end)
{
	return times < LEAST + WARM_UP || (samples->count < MOST_SAMPLES && seconds() < end);
}

static void begin(size_t size, size_t percent)
{
	printf("{\"size\":%zu,\"percent\":%zu", size, percent);
}

static void measure_writes(enum order before, size_t percent, size_t size)
{
	struct samples prepared = { .count = 0 }, transferred = { .count = 0 }, whole = { .count = 0 };
	struct extent all = { size, pages_of(size) }, absent = { size, pages_of(size) * percent / 100 };
	double end = seconds() + SECONDS;
	int failed = 0;

	for (int times = 0; goes_on(&transferred, times, end) && failed < MOST_FAILED; times++) {
		double took = 0, start, transfer;
		enum ibv_wc_status status;

		order(DROP, absent);
		if (before != DROP)
			took = order(before, all);
		if (took < 0)
			break;
		start = now();
		post(IBV_WR_RDMA_WRITE, 0, size);
		status = complete();
		transfer = now() - start;
		if (before == LOCK)
			order(UNLOCK, all);
		if (status == IBV_WC_RETRY_EXC_ERR) {
			order(RENEW, all);
			failed++;
			times--;
			continue;
		}
		if (status != IBV_WC_SUCCESS) {
			fprintf(stderr, "WRITE: %s\n", ibv_wc_status_str(status));
			exit(1);
		}
		if (times < WARM_UP)
			continue;
		add(&prepared, took);
		add(&transferred, transfer);
		add(&whole, took + transfer);
	}
	begin(size, percent);
	print(",", "before", &prepared);
	print(",", "transfer", &transferred);
	print(",", "whole", &whole);
	printf(",\"times\":%d,\"failed\":%d}\n", whole.count, failed);
}

static void measure_gets(size_t size)
{
	struct samples posts = { .count = 0 }, whole = { .count = 0 };
	double end = seconds() + SECONDS;

	for (int times = 0; goes_on(&whole, times, end); times++) {
		double start = now(), posted;

		post(IBV_WR_RDMA_READ, 0, size);
		posted = now();
		must_complete();
		if (times < WARM_UP)
			continue;
		add(&posts, posted - start);
		add(&whole, now() - start);
	}
	begin(size, 0);
	print(",", "post", &posts);
	print(",", "whole", &whole);
	puts("}");
}

static void measure_rate(int window, size_t size)
{
	double start = 0, end = 0;
	size_t gets = 0;

	for (int i = 0; i < window; i++)
		post(IBV_WR_RDMA_READ, 0, size);
	/* Counted from the completion of the first window on, and for another one at least. */
	for (int more = 1; more; ) {
		for (int i = 0; i < window; i++) {
			must_complete();
			post(IBV_WR_RDMA_READ, 0, size);
		}
		if (start == 0) {
			start = seconds();
			continue;
		}
		gets += window;
		end = seconds();
		more = end - start < RATE_SECONDS;
	}
	for (int i = 0; i < window; i++)
		must_complete();
	begin(size, 0);
	printf(",\"rate\":%.3f}\n", gets * size / (end - start) / 1e6);
}

static void measure_sends(size_t size)
{
	struct samples posts = { .count = 0 }, touches = { .count = 0 }, whole = { .count = 0 };
	struct extent all = { size, pages_of(size) };
	double end = seconds() + SECONDS;

	for (int times = 0; goes_on(&posts, times, end); times++) {
		double start, touched, posted;

		order(RECEIVE, all);
		start = now();
		for (size_t at = 0; at < size; at += PAGE)
			*(volatile char *)(memory + at) += 1;
		touched = now();
		post(IBV_WR_SEND, 0, size);
		posted = now();
		must_complete();
		if (times < WARM_UP)
			continue;
		add(&touches, touched - start);
		add(&posts, posted - touched);
		add(&whole, posted - start);
	}
	begin(size, 0);
	print(",", "touch", &touches);
	print(",", "post", &posts);
	print(",", "whole", &whole);
	puts("}");
}

static enum order order_of(const char *before)
{
	static const struct {
		const char *name;
		enum order order;
	} orders[] = { { "nothing", DROP }, { "touch", TOUCH }, { "populate", POPULATE }, { "lock", LOCK } };

	for (int i = 0; i < 4; i++) {
		if (strcmp(before, orders[i].name) == 0)
			return orders[i].order;
	}
	fprintf(stderr, "what comes before is nothing, touch, populate or lock: %s\n", before);
	exit(2);
}

/* From now on the target's pages come from a thread of it. */
static void page_by_thread(size_t length)
{
	static struct pager pager;
	/* Of zeros, and never written: it takes no memory. */
	const char *zeros = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(zeros != MAP_FAILED);
	if (!start_pager(&pager, memory, length, zeros, false) && !start_pager(&pager, memory, length, zeros, true)) {
		fprintf(stderr, "no userfaultfd\n");
		exit(NOT_HERE);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int writes = strcmp(what, "write") == 0 && argc == 7, gets = strcmp(what, "get") == 0 && argc == 4,
	    sends = strcmp(what, "send") == 0 && argc == 3;
	struct list sizes, percents;
	struct ibv_context *context;
	size_t longest = PAGE;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	pid_t child;

	if (!writes && !gets && !sends) {
		fprintf(stderr, "usage: %s write KIND BEFORE TIMEOUT PERCENTS SIZES | get WINDOW SIZES | send SIZES\n",
			argv[0]);
		return 2;
	}
	sizes = numbers(argv[argc - 1]);
	percents = numbers(writes ? argv[5] : "0");
	for (int i = 0; i < sizes.count; i++)
		longest = sizes.values[i] > longest ? sizes.values[i] : longest;
	/* A reader sees what there is so far, if the program fails. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	child = fork_peer();
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	CHECK(pd && cq);
	map_memory(longest);
	touch(longest);
	/* 17 s where it is not what is measured: no timer fires because the program runs slowly. */
	share_memory(pd, cq, longest, writes ? atoi(argv[4]) : 22);
	if (!child) {
		if (writes && strcmp(argv[2], "pager") == 0)
			page_by_thread(pages_of(longest) * PAGE);
		serve();
		return 0;
	}
	for (int i = 0; i < sizes.count; i++) {
		for (int j = 0; j < percents.count; j++) {
			size_t size = sizes.values[i];

			if (writes)
				measure_writes(order_of(argv[3]), percents.values[j], size);
			else if (sends)
				measure_sends(size);
			else if (atoi(argv[2]) == 1)
				measure_gets(size);
			else
				measure_rate(atoi(argv[2]), size);
		}
	}
	hand_over(QUIT);
	end_of_peer(child);
	return 0;
}

/*
 * absent page|whole|swapped: what RDMA WRITEs cost whose pages are absent, beside the parts of which that cost can be made. A
 * plain verbs program; `pagewire bench` runs it. Medians in microseconds, one JSON object.
 *
 * page:    WRITEs of 4 KB to pages of the target that are resident, and to others that have never been touched, in any order;
 *          "touch" is what the target itself takes for its first store to such a page.
 * whole:   WRITEs of 4 MiB to pages that have never been touched.
 * swapped: WRITEs of 4 MiB from pages that are swapped out.
 *
 * Of 4 MiB: "absent" the WRITE, "resident" the same when all pages are there; of who has the absent pages: "touch" one access
 * to each page, "populate" the kernel's bringing all in in one call, "mlock" and "munlock" those calls (null if not permitted).
 */
#define _GNU_SOURCE
#include "orders.h"

#include <fcntl.h>
#include <sched.h>

#define WHOLE (4 << 20)
/* Slots of which each has one page that is used, far from the next. */
#define SLOTS 512
#define SLOT ALIGNED
#define PAGE_ROUNDS 12
#define WHOLE_ROUNDS 60

static size_t length;

/* `touched`: which of its pages the target has touched in this round. */
static void serve_pages(void)
{
	static char touched[SLOTS];

	for (int round = 0; round < PAGE_ROUNDS; round++) {
		static double took[SLOTS];

		hear_peer(touched, sizeof(touched));
		for (int i = 0; i < SLOTS; i++)
			CHECK(madvise(memory + (size_t)i * SLOT, PAGE, MADV_DONTNEED) == 0);
		for (int i = 0; i < SLOTS; i++) {
			double start = now();

			if (touched[i])
				*(volatile char *)(memory + (size_t)i * SLOT) = 1;
			took[i] = now() - start;
		}
		tell_peer(took, sizeof(took));
	}
	CHECK(wait_for_peer() == QUIT);
}

static void measure_pages(void)
{
	static struct samples absent, resident, touch;
	static char touched[SLOTS];
	static double took[SLOTS];

	srandom(1);
	for (int round = 0; round < PAGE_ROUNDS; round++) {
		for (int i = 0; i < SLOTS; i++) {
			touched[i] = random() % 2;
			/* The source is not what is measured. */
			*(volatile char *)(memory + (size_t)i * SLOT) = round;
		}
		tell_peer(touched, sizeof(touched));
		hear_peer(took, sizeof(took));
		for (int i = 0; i < SLOTS; i++) {
			/* An odd multiple: every slot once, none beside the one before. */
			int slot = i * 197 % SLOTS;
			double time = write_once((size_t)slot * SLOT, PAGE);

			/* The first round is for everything else that happens once. */
			if (round > 0)
				add(touched[slot] ? &resident : &absent, time);
			if (round > 0 && touched[slot])
				add(&touch, took[slot]);
		}
	}
	print("{", "absent", &absent);
	print(",", "resident", &resident);
	print(",", "touch", &touch);
	puts("}");
}

static void measure_whole(void)
{
	struct extent all = { length, length / PAGE };
	static struct samples absent, resident, touch, populate, lock, unlock;

	memset(memory, 1, length);
	for (int round = -2; round < WHOLE_ROUNDS; round++) {
		double times[6];

		order(DROP, all);
		times[0] = write_once(0, length);
		times[1] = write_once(0, length);
		order(DROP, all);
		times[2] = order(TOUCH, all);
		order(DROP, all);
		times[3] = order(POPULATE, all);
		order(DROP, all);
		times[4] = order(LOCK, all);
		times[5] = times[4] < 0 ? -1 : order(UNLOCK, all);
		/* Not what happens once. */
		if (round < 0)
			continue;
		add(&absent, times[0]);
		add(&resident, times[1]);
		add(&touch, times[2]);
		add(&populate, times[3]);
		if (times[4] >= 0) {
			add(&lock, times[4]);
			add(&unlock, times[5]);
		}
	}
	print("{", "absent", &absent);
	print(",", "resident", &resident);
	print(",", "touch", &touch);
	print(",", "populate", &populate);
	print(",", "mlock", &lock);
	print(",", "munlock", &unlock);
	puts("}");
}

/*
 * Each processor keeps some pages that just came in to itself, where they cannot be swapped out: others take their place. Affinity is
 * set as it was.
 */
static void drive_out_of_processors(void)
{
	static char others[64 * PAGE] __attribute__((aligned(PAGE)));
	cpu_set_t before, one;

	CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
	for (int processor = 0; processor < CPU_SETSIZE; processor++) {
		if (!CPU_ISSET(processor, &before))
			continue;
		CPU_ZERO(&one);
		CPU_SET(processor, &one);
		CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
		CHECK(madvise(others, sizeof(others), MADV_DONTNEED) == 0);
		for (size_t at = 0; at < sizeof(others); at += PAGE)
			*(volatile char *)(others + at) = 1;
	}
	CHECK(sched_setaffinity(0, sizeof(before), &before) == 0);
}

static void page_out(void)
{
	static uint64_t entries[WHOLE / PAGE];
	static int pagemap = -1;

	if (pagemap < 0)
		CHECK((pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) >= 0);
	for (int tries = 0; tries < 100; tries++) {
		size_t out = 0;

		CHECK(madvise(memory, length, MADV_PAGEOUT) == 0);
		CHECK(pread(pagemap, entries, sizeof(entries), (uintptr_t)memory / PAGE * 8) == sizeof(entries));
		/* Bit 62: swapped (proc_pid_pagemap(5)). */
		for (size_t i = 0; i < WHOLE / PAGE; i++)
			out += entries[i] >> 62 & 1;
		if (out == WHOLE / PAGE)
			return;
		drive_out_of_processors();
		usleep(1000);
	}
	fprintf(stderr, "the kernel keeps pages in memory that it was asked to swap out\n");
	exit(1);
}

static void measure_swapped(void)
{
	static struct samples absent, resident, touch, populate;
	uint64_t word = 1;

	/* Compressed to about half. */
	for (size_t at = 0; at < length; at += 8) {
		word = word * 6364136223846793005 + 1442695040888963407;
		*(uint64_t *)(memory + at) = word & 0xffffffff;
	}
	for (int round = -2; round < WHOLE_ROUNDS; round++) {
		double times[4], start;

		page_out();
		times[0] = write_once(0, length);
		times[1] = write_once(0, length);
		page_out();
		start = now();
		for (size_t at = 0; at < length; at += PAGE)
			(void)*(volatile char *)(memory + at);
		times[2] = now() - start;
		page_out();
		start = now();
		CHECK(madvise(memory, length, MADV_POPULATE_READ) == 0);
		times[3] = now() - start;
		if (round < 0)
			continue;
		add(&absent, times[0]);
		add(&resident, times[1]);
		add(&touch, times[2]);
		add(&populate, times[3]);
	}
	print("{", "absent", &absent);
	print(",", "resident", &resident);
	print(",", "touch", &touch);
	print(",", "populate", &populate);
	puts("}");
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";
	int pages = strcmp(what, "page") == 0, swapped = strcmp(what, "swapped") == 0;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	pid_t child;

	if (!pages && !swapped && strcmp(what, "whole") != 0) {
		fprintf(stderr, "usage: %s page|whole|swapped\n", argv[0]);
		return 2;
	}
	child = fork_peer();
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	length = pages ? (size_t)SLOTS * SLOT : WHOLE;
	CHECK(pd && cq);
	map_memory(length);
	/* Keeps the page table of each slot. */
	for (size_t at = 0; pages && at < length; at += SLOT)
		memory[at + SLOT - PAGE] = 1;
	/* 17 s: no timer fires because the program runs slowly. */
	share_memory(pd, cq, length, 22);
	if (!child) {
		if (pages)
			serve_pages();
		else
			serve();
		return 0;
	}
	if (pages)
		measure_pages();
	else if (swapped)
		measure_swapped();
	else
		measure_whole();
	hand_over(QUIT);
	end_of_peer(child);
	return 0;
}

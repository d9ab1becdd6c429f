/*
 * pressure MEBIBYTES [GROUP GROUP]: both sides have so much memory, of which far less can be resident: each enters its memory
 * cgroup first (the file cgroup.procs). One side fills its memory, WRITEs it all into the other's, and READs it back into
 * memory of its own; the other's bytes and those that came back are examined. Registration brings nothing in (PART-1, JBMT-1).
 * Prints the seconds of each step.
 */
#define _GNU_SOURCE
#include "link.h"
#include "place.h"

#define CHUNK (1 << 20)
/* Requests under way. */
#define AT_ONCE 8

static size_t length;

static void enter_group(const char *file)
{
	int group = open(file, O_WRONLY | O_CLOEXEC);

	CHECK(group >= 0 && write(group, "0", 1) == 1 && close(group) == 0);
}

/* Not a pattern that repeats: a page in the place of another is seen. */
static uint64_t word(size_t index)
{
	uint64_t x = (index + 1) * 0x9E3779B97F4A7C15;

	return x ^ x >> 29;
}

/* The other half of each page is left: compressed swap holds it well, and so there is more of it. */
static void fill_all(char *base)
{
	for (size_t at = 0; at < length; at += PAGE) {
		for (size_t i = 0; i < PAGE / 2; i += 8)
			*(uint64_t *)(base + at + i) = word((at + i) / 8);
	}
}

static void examine_all(const char *base, const char *whose)
{
	for (size_t at = 0; at < length; at += 8) {
		uint64_t expected = at % PAGE < PAGE / 2 ? word(at / 8) : 0;

		if (*(const uint64_t *)(base + at) != expected) {
			fprintf(stderr, "%s: a wrong word at offset %zu\n", whose, at);
			exit(1);
		}
	}
}

static void move_all(struct link *link, enum ibv_wr_opcode opcode, struct ibv_mr *mr, char *base, struct remote its)
{
	size_t posted = 0, done = 0;

	while (done < length) {
		struct ibv_sge sge = { (uintptr_t)base + posted, CHUNK, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = posted, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_wc wc;

		if (posted < length && posted - done < AT_ONCE * CHUNK) {
			wr.wr.rdma.remote_addr = its.address + posted;
			wr.wr.rdma.rkey = its.rkey;
			CHECK(ibv_post_send(link->qp, &wr, &bad) == 0);
			posted += CHUNK;
			continue;
		}
		wc = next_completion(link->cq, 300);
		if (wc.status != IBV_WC_SUCCESS || wc.wr_id != done) {
			fprintf(stderr, "%zu bytes at offset %zu: %s\n", (size_t)CHUNK, (size_t)wc.wr_id,
				ibv_wc_status_str(wc.status));
			exit(1);
		}
		done += CHUNK;
	}
}

/* By mincore(2), a GiB at a time. */
static size_t pages_present(const char *base)
{
	static unsigned char present[(1 << 30) / PAGE];
	size_t pages = 0;

	for (size_t at = 0; at < length; at += 1 << 30) {
		size_t bytes = length - at < 1 << 30 ? length - at : 1 << 30;

		CHECK(mincore((void *)(base + at), bytes, present) == 0);
		for (size_t i = 0; i < bytes / PAGE; i++)
			pages += present[i] & 1;
	}
	return pages;
}

static double said(const char *what, double since)
{
	double now = seconds();

	printf("%s: %.2f s\n", what, now - since);
	return now;
}

int main(int argc, char **argv)
{
	struct remote mine, its;
	struct link link;
	double since;
	pid_t child;
	int side;

	if (argc != 2 && argc != 4) {
		fprintf(stderr, "usage: %s MEBIBYTES [GROUP GROUP]\n", argv[0]);
		return 2;
	}
	length = strtoull(argv[1], NULL, 10) << 20;
	CHECK(length > 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	child = fork_peer();
	side = child == 0;
	if (argc == 4)
		enter_group(argv[2 + side]);

	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *mr;

	CHECK(pd && cq && base != MAP_FAILED);
	mr = ibv_reg_mr(pd, base, length, ALL_ACCESS);
	CHECK(mr && pages_present(base) == 0);
	mine = (struct remote){ (uintptr_t)base, mr->rkey };
	exchange(&mine, &its, sizeof(mine));
	make_links(pd, cq, &link, 1, 18);
	if (side) {
		CHECK(wait_for_peer() == 'w');
		examine_all(base, "the target");
		hand_over('w');
		CHECK(wait_for_peer() == 'r');
		return 0;
	}
	since = seconds();
	fill_all(base);
	since = said("filled", since);
	move_all(&link, IBV_WR_RDMA_WRITE, mr, base, its);
	since = said("written", since);
	hand_over('w');
	CHECK(wait_for_peer() == 'w');
	since = said("examined", since);
	CHECK(madvise(base, length, MADV_DONTNEED) == 0);
	move_all(&link, IBV_WR_RDMA_READ, mr, base, its);
	since = said("read back", since);
	examine_all(base, "the initiator");
	said("examined", since);
	hand_over('r');
	end_of_peer(child);
	return 0;
}

/*
 * revoked target|poster all|user munmap|mremap|protect|truncate|remap: memory that a request waits for is taken away while its page
 * is under way: the pager has been asked for it and never answers, nor wakes whoever waits. Each kind of request, short and long, on a
 * connection of its own, must end in one error completion that says whose memory it was, in bounded time, and in nothing else;
 * with remap, where other memory is mapped in its place, in success.
 */
#define _GNU_SOURCE
#include "awaited.h"

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
	} else if (strcmp(how, "remap") == 0) {
		CHECK(mmap(base, LENGTH, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == base);
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
	if (strcmp(how, "remap") == 0)
		one = other = IBV_WC_SUCCESS;
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
	struct awaited awaited;
	struct ibv_wc wc;

	CHECK(file < 0 || ftruncate(file, LENGTH) == 0);
	begin(&awaited, opcode, file);
	if (side == owner) {
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
		take_away(awaited.base, file);
	}

	int got = 0;

	while (side ? !peer_has_spoken() : (got = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	if (!side) {
		CHECK(got == 1 && wc.wr_id == 7);
		if (owner)
			expect(wc, opcode == IBV_WR_SEND ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR);
		else
			expect(wc, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
		CHECK(state_of(awaited.link.qp) == (strcmp(how, "remap") == 0 ? IBV_QPS_RTS : IBV_QPS_ERR));
	} else if (opcode == IBV_WR_SEND && (owner || strcmp(how, "remap") == 0)) {
		wc = next_completion(cq, LIMIT_SECONDS);
		CHECK(wc.wr_id == 8);
		expect(wc, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
	}
	meet();
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(ibv_destroy_qp(awaited.link.qp) == 0);
	CHECK(ibv_dereg_mr(awaited.mr) == 0);
	if (side == owner)
		stop_pager(&awaited.pager);
	CHECK(munmap(awaited.content, LENGTH) == 0 && munmap(awaited.base, LENGTH) == 0);
	CHECK(file < 0 || close(file) == 0);
}

static void try_all(void)
{
	for (int length = 0; length < 2; length++) {
		for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
			int is_long = length && requests[i].opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;

			try_request(&requests[i], is_long ? LENGTH : 8, try_once);
		}
	}
}

int main(int argc, char **argv)
{
	return run(argc, argv, "munmap|mremap|protect|truncate|remap", try_all);
}

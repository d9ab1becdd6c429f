/*
 * matrix SEED all|few KIND...: every pair of kinds of memory (place.h), one at the source of the data and one at its
 * destination, under every operation, at several sizes and offsets. Before each operation the pages are taken away at both
 * sides, unless the kind is one that is always resident. Afterwards every byte of the pages around must be what it should, and every
 * completion must be right. `few`: one size instead of all.
 *
 * Exit status 77, with the reason: this machine has no such memory.
 */
#define _GNU_SOURCE
#include "link.h"
#include "place.h"
#include "random.h"

#define LENGTH (8 << 20)
/* A page of a pager takes so many microseconds, one in sixteen. */
#define SLOW_PAGE 400

enum operation { SEND, WRITE, WRITE_IMM, READ, FETCH_ADD, COMPARE_SWAP, OPERATIONS };
static const char *const operation_names[OPERATIONS] = {
	"SEND", "WRITE", "WRITE with immediate", "READ", "FETCH_ADD", "COMPARE_SWAP",
};

/* What the initiator tells the target to do, before and after. */
struct order {
	enum { PREPARE, EXAMINE, QUIT } what;
	enum operation operation;
	/* Of the memory at the initiator and at the target. */
	enum kind kinds[2];
	size_t offsets[2];
	size_t length;
};

static struct place places[KINDS];
static struct ibv_mr *regions[KINDS];
static struct remote remotes[KINDS];
/* What stands in the memory of the initiator and of the target. */
static char *patterns[2], *zeroes;
static struct link only;
static struct random random_numbers;
static size_t done, absent_of[KINDS];

static const char *content(int side, enum kind kind)
{
	return kind == ZERO_FILL || kind == SHARED || kind == HUGE || kind == HUGETLB ? zeroes : patterns[side];
}

static uint64_t word_at(const char *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

static int is_atomic(enum operation operation)
{
	return operation == FETCH_ADD || operation == COMPARE_SWAP;
}

static void complain(const struct order *order, int side, size_t at)
{
	fprintf(stderr,
		"%s of %zu bytes, %s at offset %zu to %s at offset %zu: a wrong byte %zd bytes behind the beginning at the %s\n",
		operation_names[order->operation], order->length, kind_names[order->kinds[0]], order->offsets[0],
		kind_names[order->kinds[1]], order->offsets[1], (ssize_t)(at - order->offsets[side]),
		side ? "target" : "initiator");
	exit(1);
}

/* `inside`: what must stand there now; around it nothing may have changed. */
static void examine(const struct order *order, int side, const char *inside)
{
	struct place *place = &places[order->kinds[side]];
	size_t from = order->offsets[side], to = from + order->length;

	for (size_t at = down(from); at < up(to); at++) {
		/* Whole pages at a time where all is well. */
		if (at == from && memcmp(place->base + from, inside, order->length) == 0)
			at = to;
		if (at < up(to) && place->base[at] != (at >= from && at < to ? inside[at - from] : place->before[at]))
			complain(order, side, at);
	}
}

static void examine_side(const struct order *order, int side)
{
	const char *here = content(side, order->kinds[side]) + order->offsets[side];
	const char *there = content(!side, order->kinds[!side]) + order->offsets[!side];
	uint64_t word;

	if (is_atomic(order->operation)) {
		word = word_at(content(1, order->kinds[1]) + order->offsets[1]);
		if (side)
			word = order->operation == FETCH_ADD ? word + 0x1234567 : ~word;
		examine(order, side, (char *)&word);
	} else {
		examine(order, side, (order->operation == READ) == (side == 0) ? there : here);
	}
}

/* Takes the pages away. What the operation writes is to be put right before the next. */
static void prepare(const struct order *order, int side)
{
	struct place *place = &places[order->kinds[side]];
	size_t offset = order->offsets[side];

	absent_of[place->kind] += make_absent(place, offset, order->length);
	if (is_atomic(order->operation) || (order->operation == READ) == (side == 0)) {
		place->dirty_from = down(offset);
		place->dirty_to = up(offset + order->length);
	}
	if (place->kind == PAGER || place->kind == PAGER_USER)
		place->pager.delay = next_random(&random_numbers) % 4 ? 0 : SLOW_PAGE;
}

static void obey(void)
{
	struct order order;

	for (;;) {
		char ready = 'r';

		hear_peer(&order, sizeof(order));
		if (order.what == QUIT)
			break;
		struct place *place = &places[order.kinds[1]];
		struct ibv_sge sge = { (uintptr_t)place->base + order.offsets[1], order.length,
				       regions[place->kind]->lkey };

		if (order.what == PREPARE) {
			prepare(&order, 1);
			if (order.operation == SEND)
				post_receive(only.qp, done, &sge);
			else if (order.operation == WRITE_IMM)
				post_receive(only.qp, done, NULL);
		} else {
			if (order.operation == SEND || order.operation == WRITE_IMM) {
				struct ibv_wc wc = next_completion(only.cq, PATIENCE_SECONDS);

				CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == done && wc.byte_len == order.length);
				if (order.operation == SEND) {
					CHECK(wc.opcode == IBV_WC_RECV);
				} else {
					CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
					CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x01020304);
				}
			}
			examine_side(&order, 1);
			done++;
		}
		tell_peer(&ready, 1);
	}
}

static void give(struct order *order, int what)
{
	char ready;

	order->what = what;
	tell_peer(order, sizeof(*order));
	hear_peer(&ready, 1);
}

static void run(enum operation operation, enum kind here, enum kind there, size_t length)
{
	static const enum ibv_wr_opcode posted[OPERATIONS] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	static const enum ibv_wc_opcode completed[OPERATIONS] = {
		IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP,
	};
	struct order order = { .operation = operation, .kinds = { here, there }, .length = length };
	struct ibv_send_wr wr = { .wr_id = done, .num_sge = 1, .opcode = posted[operation],
				  .send_flags = IBV_SEND_SIGNALED, .imm_data = 0x01020304 }, *bad;
	struct ibv_wc wc;

	for (int side = 0; side < 2; side++) {
		order.offsets[side] = next_random(&random_numbers) % (LENGTH - length + 1);
		if (next_random(&random_numbers) % 2)
			order.offsets[side] = down(order.offsets[side]);
		if (is_atomic(operation))
			order.offsets[side] &= ~(size_t)7;
	}
	snprintf(waiting_for, sizeof(waiting_for), "%s of %zu bytes, %s at offset %zu to %s at offset %zu, number %zu",
		 operation_names[operation], length, kind_names[here], order.offsets[0], kind_names[there],
		 order.offsets[1], done);
	prepare(&order, 0);
	give(&order, PREPARE);

	struct ibv_sge sge = { (uintptr_t)places[here].base + order.offsets[0], length, regions[here]->lkey };
	wr.sg_list = &sge;
	if (is_atomic(operation)) {
		uint64_t word = word_at(content(1, there) + order.offsets[1]);

		wr.wr.atomic.remote_addr = remotes[there].address + order.offsets[1];
		wr.wr.atomic.rkey = remotes[there].rkey;
		wr.wr.atomic.compare_add = operation == FETCH_ADD ? 0x1234567 : word;
		wr.wr.atomic.swap = ~word;
	} else {
		wr.wr.rdma.remote_addr = remotes[there].address + order.offsets[1];
		wr.wr.rdma.rkey = remotes[there].rkey;
	}
	CHECK(ibv_post_send(only.qp, &wr, &bad) == 0);
	wc = next_completion(only.cq, PATIENCE_SECONDS);
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != done || wc.opcode != completed[operation]) {
		fprintf(stderr, "%s of %zu bytes, %s to %s: status %s, opcode %d, request %zu instead of %zu\n",
			operation_names[operation], length, kind_names[here], kind_names[there],
			ibv_wc_status_str(wc.status), wc.opcode, (size_t)wc.wr_id, done);
		exit(1);
	}
	examine_side(&order, 0);
	give(&order, EXAMINE);
	done++;
}

static enum kind kind_named(const char *name)
{
	for (int kind = 0; kind < KINDS; kind++) {
		if (strcmp(kind_names[kind], name) == 0)
			return kind;
	}
	fprintf(stderr, "no kind of memory: %s\n", name);
	exit(2);
}

static void make_places(int side, const enum kind *kinds, int count)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	struct remote mine[KINDS] = { 0 };

	CHECK(pd && cq);
	for (int i = 0; i < count; i++) {
		const char *why = make_place(&places[kinds[i]], kinds[i], LENGTH, side ? PEER : MOVER);
		struct place *place = &places[kinds[i]];

		if (why) {
			fprintf(stderr, "%s: %s\n", kind_names[kinds[i]], why);
			exit(NOT_HERE);
		}
		regions[kinds[i]] = ibv_reg_mr(pd, place->base, LENGTH, ALL_ACCESS);
		CHECK(regions[kinds[i]]);
		mine[kinds[i]] = (struct remote){ (uintptr_t)place->base, regions[kinds[i]]->rkey };
	}
	exchange(mine, remotes, sizeof(mine));
	/* 0.27 s. */
	make_links(pd, cq, &only, 1, 16);
}

static void run_all(const enum kind *kinds, int count, int few)
{
	for (int here = 0; here < count; here++) {
		for (int there = 0; there < count; there++) {
			for (int operation = 0; operation < OPERATIONS; operation++) {
				size_t sizes[] = {
					8, 1 + next_random(&random_numbers) % 5000, 4096, 4097, 65536 + next_random(&random_numbers) % PAGE, 1 << 20, 4 << 20,
				};
				int all = sizeof(sizes) / sizeof(*sizes), only_one = next_random(&random_numbers) % all;

				for (int i = 0; i < (is_atomic(operation) ? 1 : all); i++) {
					if (!few || is_atomic(operation) || i == only_one)
						run(operation, kinds[here], kinds[there], sizes[i]);
				}
			}
		}
	}
}

int main(int argc, char **argv)
{
	enum kind kinds[KINDS];
	int count = argc - 3, side;
	pid_t child;

	if (argc < 4 || count > KINDS) {
		fprintf(stderr, "usage: %s SEED all|few KIND...\n", argv[0]);
		return 2;
	}
	for (int i = 0; i < count; i++)
		kinds[i] = kind_named(argv[3 + i]);
	/* A peer that is gone is seen when it is read from. */
	CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	child = fork_peer();
	side = child == 0;
	random_numbers.state = strtoull(argv[1], NULL, 10) * 2 + side;
	zeroes = calloc(1, LENGTH);
	for (int i = 0; i < 2; i++) {
		CHECK(zeroes && (patterns[i] = malloc(LENGTH)));
		fill(patterns[i], i ? PEER : MOVER, 0, LENGTH);
	}
	make_places(side, kinds, count);
	if (side) {
		obey();
	} else {
		struct order quit = { .what = QUIT };

		run_all(kinds, count, strcmp(argv[2], "few") == 0);
		tell_peer(&quit, sizeof(quit));
		end_of_peer(child);
	}
	for (int i = 0; i < count; i++) {
		printf("%s: %s, %zu pages were absent\n", side ? "target" : "initiator", kind_names[kinds[i]],
		       absent_of[kinds[i]]);
		/* Otherwise nothing has been tried. */
		CHECK(absent_of[kinds[i]] > 0 || is_resident(kinds[i]));
	}
	if (!side)
		printf("%zu operations\n", done);
	return 0;
}

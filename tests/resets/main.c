/*
 * main SECONDS SEED: two processes that send each other rounds of WRITE, FETCH_ADD and SEND, with READs among them, for so long, while somebody
 * breaks the connections beneath them. Each round has a number. The fetch and the receive say whether it came once and in its turn, the bytes
 * whether they are those of this round.
 *
 * Prints one line: how many rounds each process sent.
 */
#include "../../crates/verbs/tests/c/pair.h"
#include "../../crates/verbs/tests/c/random.h"

#include <sys/mman.h>

#define DEPTH 4 /* rounds under way */
#define SLOTS (2 * DEPTH)
#define SLOT_BYTES (256 << 10)
#define MESSAGE_BYTES (16 << 10)
/* What the registered memory has: slots that the peer writes, slots that it gets, what a READ brings, results of atomics, messages. */
#define MINE SLOTS
#define READ_SLOT (2 * SLOTS)
#define FETCHED ((size_t)(2 * SLOTS + 1) * SLOT_BYTES)
#define COUNTER (FETCHED + 8 * DEPTH)
#define SENT ((COUNTER + 8 + 4095) & ~(size_t)4095)
#define RECEIVED (SENT + DEPTH * MESSAGE_BYTES)
#define MEMORY ((RECEIVED + DEPTH * MESSAGE_BYTES + 4095) & ~(size_t)4095)
/* Completions by their requests: of what, of which round. */
enum { WRITTEN = 1, ADDED, TOLD, READ_BACK, TAKEN };

struct message {
	uint64_t round, length, last;
	char bytes[MESSAGE_BYTES - 24];
};

static struct side side;
static struct greeting peer;
static struct random random_state;
/* The rounds that have begun, that are done, that have come; the last one of the peer, once that is known. */
static uint64_t begun, done, come, peer_last = UINT64_MAX;
static uint64_t lengths[DEPTH];

static void fill(char *bytes, uint64_t round, size_t length)
{
	for (size_t at = 0; at < length; at += 8)
		*(uint64_t *)(bytes + at) = (round << 24 | at) * 0x9e3779b97f4a7c15;
}

static void check_bytes(const char *bytes, uint64_t round, size_t length, const char *what)
{
	for (size_t at = 0; at < length; at += 8) {
		uint64_t found = *(const volatile uint64_t *)(bytes + at), expected = (round << 24 | at) * 0x9e3779b97f4a7c15;

		if (found != expected) {
			fprintf(stderr, "%s of round %lu: %#lx at byte %zu of %zu, and not %#lx\n", what, round, found, at, length, expected);
			exit(1);
		}
	}
}

static void post(int opcode, uint64_t id, void *local, size_t length, size_t remote)
{
	struct ibv_sge sge = { (uintptr_t)local, length, side.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = peer.address + remote;
		wr.wr.atomic.rkey = peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = peer.address + remote;
		wr.wr.rdma.rkey = peer.rkey;
	}
	CHECK(ibv_post_send(side.qp, &wr, &bad) == 0);
}

static void post_receive(uint64_t round)
{
	char *at = side.memory + RECEIVED + round % DEPTH * MESSAGE_BYTES;
	struct ibv_sge sges[2] = { { (uintptr_t)at, 5000, side.mr->lkey }, { (uintptr_t)at + 5000, MESSAGE_BYTES - 5000, side.mr->lkey } };
	struct ibv_recv_wr wr = { .wr_id = round << 8 | TAKEN, .sg_list = sges, .num_sge = 2 }, *bad;

	/* The message finds its pages absent. */
	CHECK(madvise(at, MESSAGE_BYTES, MADV_DONTNEED) == 0);
	CHECK(ibv_post_recv(side.qp, &wr, &bad) == 0);
}

/* The peer has looked at the slot of a round before it takes the message of the DEPTH-th behind it. */
static void begin_round(int is_last)
{
	uint64_t round = begun++;
	size_t slot = round % SLOTS, length = 8 + random_below(&random_state, SLOT_BYTES / 8 - 1) * 8;
	char *source = side.memory + (MINE + slot) * SLOT_BYTES;
	struct message *message = (struct message *)(side.memory + SENT + round % DEPTH * MESSAGE_BYTES);

	if (random_below(&random_state, 3) == 0)
		length = 8 + random_below(&random_state, 64) * 8;
	lengths[round % DEPTH] = length;
	fill(source, round, length);
	message->round = round;
	message->length = length;
	message->last = is_last ? round : UINT64_MAX;
	fill(message->bytes, round, sizeof(message->bytes));
	post(IBV_WR_RDMA_WRITE, round << 8 | WRITTEN, source, length, slot * SLOT_BYTES);
	post(IBV_WR_ATOMIC_FETCH_AND_ADD, round << 8 | ADDED, side.memory + FETCHED + round % DEPTH * 8, 8, COUNTER);
	/* Before the message the peer leaves the slot as it is. */
	if (round % DEPTH == 0)
		post(IBV_WR_RDMA_READ, round << 8 | READ_BACK, side.memory + (size_t)READ_SLOT * SLOT_BYTES, length, slot * SLOT_BYTES);
	post(IBV_WR_SEND, round << 8 | TOLD, message, MESSAGE_BYTES, 0);
}

static void take(const struct ibv_wc *wc)
{
	uint64_t round = wc->wr_id >> 8;

	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "request %lu of round %lu: %s\n", wc->wr_id & 0xff, round, ibv_wc_status_str(wc->status));
		exit(1);
	}
	switch (wc->wr_id & 0xff) {
	case ADDED:
		if (*(volatile uint64_t *)(side.memory + FETCHED + round % DEPTH * 8) != round) {
			fprintf(stderr, "round %lu fetched %lu\n", round, *(uint64_t *)(side.memory + FETCHED + round % DEPTH * 8));
			exit(1);
		}
		break;
	case READ_BACK:
		check_bytes(side.memory + (size_t)READ_SLOT * SLOT_BYTES, round, lengths[round % DEPTH], "READ");
		break;
	case TOLD:
		CHECK(round == done++);
		break;
	case TAKEN: {
		const struct message *message = (struct message *)(side.memory + RECEIVED + round % DEPTH * MESSAGE_BYTES);

		if (message->round != come || round != come) {
			fprintf(stderr, "message %lu came as the %luth\n", message->round, come);
			exit(1);
		}
		come++;
		check_bytes(message->bytes, round, sizeof(message->bytes), "SEND");
		check_bytes(side.memory + message->round % SLOTS * SLOT_BYTES, message->round, message->length, "WRITE");
		peer_last = message->last;
		post_receive(round + DEPTH);
	}
	}
}

/* For all requests of the rounds under way. */
static void make_room(void)
{
	struct ibv_qp_init_attr init = plain_attributes(side.cq, IBV_QPT_RC);

	CHECK(ibv_destroy_qp(side.qp) == 0);
	init.cap.max_send_wr = 4 * DEPTH;
	side.qp = ibv_create_qp(side.pd, &init);
	CHECK(side.qp);
}

int main(int argc, char **argv)
{
	double end, most;
	int is_last = 0;
	pid_t child;

	if (argc != 3 || atof(argv[1]) <= 0) {
		fprintf(stderr, "usage: %s SECONDS SEED\n", argv[0]);
		return 2;
	}
	child = fork_peer();
	random_state = (struct random){ strtoull(argv[2], NULL, 0) * 2 + (child == 0) };
	side = open_side(MEMORY);
	memset(side.memory, 0, MEMORY);
	make_room();
	peer = exchange_greetings(&side);
	to_open_init(side.qp);
	for (uint64_t round = 0; round < DEPTH; round++)
		post_receive(round);
	to_rtr(side.qp, peer.qpn);
	{
		struct ibv_qp_attr attr = usual_attributes(side.context, 0);

		attr.qp_state = IBV_QPS_RTS;
		/* A second, seven times: no matter how often the connection breaks, it comes again sooner. */
		attr.timeout = 18;
		CHECK(ibv_modify_qp(side.qp, &attr, RTS_MASK(IBV_QPT_RC)) == 0);
	}
	meet();
	end = seconds() + atof(argv[1]);
	most = end + 60;
	/* Each has told its last round, and has the peer's. */
	while (!is_last || done < begun || peer_last == UINT64_MAX || come <= peer_last) {
		struct ibv_wc wc[16];
		int count = ibv_poll_cq(side.cq, 16, wc);

		CHECK(count >= 0);
		for (int i = 0; i < count; i++)
			take(&wc[i]);
		if (!is_last && begun < done + DEPTH) {
			is_last = seconds() > end;
			begin_round(is_last);
		}
		if (seconds() > most) {
			fprintf(stderr, "round %lu of %lu is not done, %lu have come\n", done, begun, come);
			return 1;
		}
	}
	meet();
	if (child > 0) {
		int status;

		CHECK(waitpid(child, &status, 0) == child);
		CHECK(status == 0);
		printf("%lu rounds\n", begun);
	}
	return 0;
}

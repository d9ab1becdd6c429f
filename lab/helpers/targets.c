/*
 * targets pingpong|polls|sleeps|computes|stopped SIZE [CPU CPU]: RDMA WRITEs to a target (a forked child) that does what the
 * first word says, the initiator on the first processor, the target on the second. A plain verbs program; `pagewire bench`
 * runs it.
 *
 * pingpong: WRITEs to and fro, both sides poll their completion queues; half a round trip. The others: from ibv_post_send
 * until the completion is polled. Prints the median: {"microseconds": median}.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#define WARM_UP 200
#define ROUNDS 10000
/* Microseconds after which no further round begins. */
#define TIME 2e6

static double now(void)
{
	return seconds() * 1e6;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void write_to(struct side *side, const struct greeting *peer, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)side->memory, size, side->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = peer->address;
	wr.wr.rdma.rkey = peer->rkey;
	CHECK(ibv_post_send(side->qp, &wr, &bad) == 0);
}

static int completed(struct side *side)
{
	struct ibv_wc wc;
	int got = ibv_poll_cq(side->cq, 1, &wc);

	CHECK(got >= 0 && (got == 0 || wc.status == IBV_WC_SUCCESS));
	return got;
}

/* Rounds until there are so many or the time is over; gives how many. A WRITE of the other's has come when its last byte
 * changes to what the round expects. What is sent lies in the upper half of the memory. */
static int ping_pong(struct side *side, const struct greeting *peer, size_t size, int rounds, int first, double *times)
{
	volatile char *last = side->memory + size - 1;
	struct side from = *side;
	double begun = now();

	from.memory = side->memory + size;
	for (int round = 0; round < rounds; round++) {
		double start = now();

		if (times && start - begun > TIME)
			return round;
		char value = 2 + round % 100;

		for (int half = 0; half < 2; half++) {
			if (half == !first) {
				from.memory[size - 1] = value;
				write_to(&from, peer, size);
				while (!completed(side))
					;
			} else {
				while (*last != value)
					CHECK(completed(side) == 0);
			}
		}
		if (times)
			times[round] = (now() - start) / 2;
	}
	return rounds;
}

static int one_by_one(struct side *side, const struct greeting *peer, size_t size, int rounds, double *times)
{
	double begun = now();

	for (int round = 0; round < rounds; round++) {
		double start = now();

		if (start - begun > TIME)
			return round;
		write_to(side, peer, size);
		while (!completed(side))
			;
		times[round] = now() - start;
	}
	return rounds;
}

/* What the target does until it is killed. */
static void be(const char *what, struct side *side)
{
	volatile unsigned work = 0;

	for (;;) {
		if (strcmp(what, "polls") == 0)
			completed(side);
		else if (strcmp(what, "computes") == 0)
			work++;
		else
			pause();
	}
}

static void stay_on(const char *processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(processor), &set);
	CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

int main(int argc, char **argv)
{
	if (argc != 3 && argc != 5) {
		fprintf(stderr, "usage: %s pingpong|polls|sleeps|computes|stopped SIZE [CPU CPU]\n", argv[0]);
		return 2;
	}
	const char *what = argv[1];
	size_t size = strtoul(argv[2], NULL, 10);
	int together = strcmp(what, "pingpong") == 0, rounds, status = 0;
	static double times[ROUNDS];
	pid_t child;

	CHECK(size > 0 && size <= (1 << 30));
	child = fork_peer();
	/* Whatever ends the initiator ends the target. */
	CHECK(child || prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	if (argc == 5)
		stay_on(argv[child ? 3 : 4]);
	struct side side = open_side(2 * size);
	struct greeting peer = connect_side(&side);

	meet();
	/* Both take part, so that the path is there. */
	ping_pong(&side, &peer, size, WARM_UP, child != 0, NULL);
	meet();
	if (!child) {
		if (together)
			ping_pong(&side, &peer, size, INT_MAX, 0, NULL);
		be(what, &side);
	}
	if (strcmp(what, "stopped") == 0) {
		CHECK(kill(child, SIGSTOP) == 0);
		CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	}
	rounds = (together ? ping_pong(&side, &peer, size, ROUNDS, 1, times) :
			     one_by_one(&side, &peer, size, ROUNDS, times));
	CHECK(rounds > 0);
	CHECK(kill(child, SIGKILL) == 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	qsort(times, rounds, sizeof(*times), compare);
	printf("{\"microseconds\":%.4f}\n", times[rounds / 2]);
	return 0;
}

/* SIGKILL of a peer at a random instant: while it opens its device, registers, connects, in the midst of traffic while it
 * registers and deregisters, makes and destroys. The survivor must see each of its requests complete once, in bounded time,
 * go on with everybody else, get rid of its objects, and hold no more afterwards than before. */
#define _GNU_SOURCE
#include "companion.h"
#include "leaks.h"
#include "roles.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* Seconds from the kill until everything under way has completed: the processor may be somebody else's meanwhile. */
#define BOUND 30.0
/* Seconds from the kill until descriptors, mappings and names of the dead are given back. */
#define GIVEN_BACK 10.0
/* Seconds of traffic before the kill at most, and of setting up before the first one was measured. */
#define TRAFFIC 0.020
#define SETTING_UP 0.050
/* Rounds at most, half of all at most, after which what is held is taken as what is always held. */
#define WARM_UP 200
/* What an allocator may do without being a leak; the engine keeps reports of 1,024 queue pairs that are gone, if it is
 * to write statistics. */
#define MAPPINGS_SLACK 16
#define RESIDENT_SLACK (16 << 10)
#define ALLOCATED_SLACK 1536
/* Seconds in which the least that is allocated is looked for. */
#define SETTLES 0.5
/* Buffers of packets that an engine keeps for reuse, and a few in use. */
#define ARENAS 24
/* What the companion must get done after each death. */
#define GOES_ON 50

struct killing {
	pthread_t thread;
	struct party *victim;
	struct link *link;
	double delay;
	int begun;
};

struct survivor {
	struct companion companion;
	struct link link;
	char *reachable, *buffers;
	struct killing killing;
	/* The most that was open between two rounds: what goes between the living is closed while they rest. */
	int descriptors;
	double setting_up;
	/* What is to be told in the end: seconds until everything had completed, the longest and all. */
	double longest, all;
	uint64_t waited, died_setting_up, transferred;
};

static uint64_t round_number, seed;

static void tell_round(void)
{
	if (round_number != UINT64_MAX)
		fprintf(stderr, "kill: failed in round %llu of seed %llu (again: ROUNDS=1 FIRST=%llu SEED=%llu)\n",
			(unsigned long long)round_number, (unsigned long long)seed, (unsigned long long)round_number,
			(unsigned long long)seed);
}

static uint64_t mix(uint64_t one, uint64_t two)
{
	struct random random = { one ^ two * 0xd1342543de82ef95ull };

	return next_random(&random);
}

static void *kill_later(void *argument)
{
	struct killing *killing = argument;
	struct timespec delay = { .tv_sec = killing->delay };

	delay.tv_nsec = (killing->delay - delay.tv_sec) * 1e9;
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &delay, NULL) == 0);
	killing->link->killed_at = seconds();
	CHECK(kill(killing->victim->pid, SIGKILL) == 0);
	return NULL;
}

static void begin_killing(struct killing *killing, struct party *victim, struct link *link, double delay)
{
	killing->victim = victim;
	killing->link = link;
	killing->delay = delay;
	killing->begun = 1;
	CHECK(pthread_create(&killing->thread, NULL, kill_later, killing) == 0);
}

/* Goes on with the companion until the victim says something. 0: it has ended. */
static int listen_to(struct survivor *survivor, struct party *victim, void *bytes, size_t length)
{
	double end = seconds() + PATIENCE_SECONDS;

	while (!has_word(victim->socket)) {
		go_on(&survivor->companion);
		CHECK(seconds() < end);
	}
	return hear(victim->socket, bytes, length);
}

/* Makes and connects a link to the victim. 0: it has ended before it could use it. */
static int connect_victim(struct survivor *survivor, struct party *victim, int *connected)
{
	struct link *link = &survivor->link;
	struct introduction own = introduce(link), peer;
	char ready = 'r';

	if (!tell(victim->socket, &own, sizeof(own)) || !listen_to(survivor, victim, &peer, sizeof(peer)))
		return 0;
	connect_link(link, &peer, WATCHFUL);
	*connected = 1;
	return tell(victim->socket, &ready, 1) && listen_to(survivor, victim, &ready, 1);
}

static void both(struct survivor *survivor)
{
	go_on(&survivor->companion);
	post_some(&survivor->link);
	take_completions(&survivor->link);
}

/* Everything that was posted must complete: RC by itself, UC and UD, which do not know of the death, when they are told. */
static void wait_for_flush(struct survivor *survivor)
{
	struct link *link = &survivor->link;
	double needed;

	while (!is_flushed(&link->lanes[RC_ONE]) || !is_flushed(&link->lanes[RC_TWO])) {
		both(survivor);
		if (seconds() > link->killed_at + BOUND)
			fprintf(stderr, "not completed %.1f s after the kill: %u and %u requests\n", BOUND,
				link->lanes[RC_ONE].under_way, link->lanes[RC_TWO].under_way);
		CHECK(seconds() <= link->killed_at + BOUND);
	}
	needed = seconds() - link->killed_at;
	survivor->longest = needed > survivor->longest ? needed : survivor->longest;
	survivor->all += needed;
	survivor->waited++;
	close_lane(&link->lanes[UC]);
	close_lane(&link->lanes[UD]);
	while (!is_flushed(&link->lanes[UC]) || !is_flushed(&link->lanes[UD])) {
		take_completions(link);
		CHECK(seconds() <= link->killed_at + 2 * BOUND);
	}
	/* None comes twice. */
	for (int i = 0; i < 8; i++)
		take_completions(link);
}

/* What the dead has held must come back. */
static void wait_until_given_back(struct survivor *survivor)
{
	double end = seconds() + GIVEN_BACK;

	while (descriptors_held() > survivor->descriptors + COMPANION_SOCKETS + PAGE_DESCRIPTORS) {
		go_on(&survivor->companion);
		CHECK(seconds() < end);
	}
}

static struct party start_victim(uint64_t victim_seed)
{
	char number[32];
	char *arguments[] = { "death", "victim", number, NULL };

	snprintf(number, sizeof(number), "%llu", (unsigned long long)victim_seed);
	return start_party(arguments, -1);
}

static void play_round(struct survivor *survivor)
{
	struct random random = { mix(seed, round_number) };
	struct link *link = &survivor->link;
	int in_traffic = random_below(&random, 3) != 0, orderly = random_below(&random, 3) != 0;
	double delay = random_below(&random, 1000000) * 1e-6;
	int descriptors = descriptors_held(), connected = 0, alive, status;
	struct party victim;
	double begun;

	if (survivor->descriptors < descriptors)
		survivor->descriptors = descriptors;
	make_link(link, "victim", survivor->companion.link.context, survivor->reachable, survivor->buffers,
		  next_random(&random));
	survivor->killing.begun = 0;
	begun = seconds();
	victim = start_victim(next_random(&random));
	if (!in_traffic)
		begin_killing(&survivor->killing, &victim, link, delay * survivor->setting_up);
	alive = connect_victim(survivor, &victim, &connected);
	if (alive && in_traffic) {
		survivor->setting_up = 0.9 * survivor->setting_up + 0.1 * (seconds() - begun);
		begin_killing(&survivor->killing, &victim, link, delay * TRAFFIC);
	}
	/* A victim that ends by itself is not what is looked for. */
	CHECK(survivor->killing.begun);
	while (link->killed_at == 0)
		alive && connected ? both(survivor) : go_on(&survivor->companion);
	CHECK(pthread_join(survivor->killing.thread, NULL) == 0);
	survivor->died_setting_up += !alive;
	if (connected && orderly)
		wait_for_flush(survivor);
	else if (connected && random_below(&random, 2))
		both(survivor);
	survivor->transferred += link->done;
	/* Where it was not orderly, with requests under way. */
	destroy_link(link);
	status = end_of(&victim);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	must_go_on(&survivor->companion, GOES_ON);
	wait_until_given_back(survivor);
}

/* While nothing is under way: packets that wait their turn in traffic are no growth. What the engine still tidies up
 * after the last death is waited for. */
static struct held look_at_held(struct survivor *survivor, int enough)
{
	struct held held, again;
	double end = seconds() + (enough ? GIVEN_BACK : SETTLES);

	rest(&survivor->companion);
	held = what_is_held();
	while (held.allocated > enough && seconds() < end) {
		take_completions(&survivor->companion.link);
		again = what_is_held();
		if (again.allocated < held.allocated)
			held = again;
	}
	work_again(&survivor->companion);
	return held;
}

static void compare(const struct held *before, const struct held *after)
{
	printf("kill: held before and after: descriptors %d %d, mappings %d %d, resident kB %d %d, allocated kB %d %d, "
	       "names %d %d, files %d %d, buffers kept %d %d\n", before->descriptors, after->descriptors, before->mappings,
	       after->mappings, before->resident, after->resident, before->allocated, after->allocated, before->names,
	       after->names, before->files, after->files, before->arenas, after->arenas);
	fflush(stdout);
	CHECK(after->descriptors <= before->descriptors + COMPANION_SOCKETS + PAGE_DESCRIPTORS);
	CHECK(after->names <= before->names && after->files <= before->files);
	CHECK(after->arenas <= ARENAS);
	CHECK(after->mappings <= before->mappings + MAPPINGS_SLACK);
	CHECK(after->resident <= before->resident + RESIDENT_SLACK);
	CHECK(after->allocated <= before->allocated + ALLOCATED_SLACK);
}

int survive_kills(char **arguments)
{
	static struct survivor survivor = { .setting_up = SETTING_UP };
	uint64_t rounds = strtoull(arguments[0], NULL, 10), first = strtoull(arguments[2], NULL, 10);
	struct held before = { 0 }, after;
	double begun = seconds();

	seed = strtoull(arguments[1], NULL, 10);
	round_number = UINT64_MAX;
	CHECK(atexit(tell_round) == 0);
	survivor.reachable = pages(reachable_length());
	survivor.buffers = pages(buffers_length());
	/* Touched now, it is no growth later. */
	memset(survivor.reachable, 1, reachable_length());
	memset(survivor.buffers, 1, buffers_length());
	start_companion(&survivor.companion, open_first_device(), mix(seed, UINT64_MAX), 0);
	for (round_number = first; round_number < first + rounds; round_number++) {
		if (round_number - first == (rounds / 2 < WARM_UP ? rounds / 2 : WARM_UP))
			before = look_at_held(&survivor, 0);
		play_round(&survivor);
	}
	round_number--;
	after = look_at_held(&survivor, before.allocated + ALLOCATED_SLACK);
	compare(&before, &after);
	end_companion(&survivor.companion);
	round_number = UINT64_MAX;
	printf("kill: path %s, seed %llu: %llu rounds in %.0f s, %llu deaths before traffic; everything completed after "
	       "%.0f ms on average, %.0f ms at most; %llu transfers with victims\n", getenv("PAGEWIRE_PATH"),
	       (unsigned long long)seed, (unsigned long long)rounds, seconds() - begun,
	       (unsigned long long)survivor.died_setting_up, survivor.waited ? 1e3 * survivor.all / survivor.waited : 0.0,
	       1e3 * survivor.longest, (unsigned long long)survivor.transferred);
	return 0;
}

/* Something that is made and ended beside the traffic. */
static void churn(struct link *link, struct random *random)
{
	struct ibv_qp_init_attr init = plain_attributes(link->cq, IBV_QPT_RC);
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	CHECK(mr = ibv_reg_mr(link->pd, link->buffer_bytes, 1 + random_below(random, buffers_length()), ALL_ACCESS));
	if (random_below(random, 4) == 0) {
		CHECK(qp = ibv_create_qp(link->pd, &init));
		to_open_init(qp);
		CHECK(ibv_destroy_qp(qp) == 0);
	}
	CHECK(ibv_dereg_mr(mr) == 0);
}

int be_victim(char **arguments)
{
	static struct link link;
	struct random random = { strtoull(arguments[0], NULL, 10) };

	follow_starter();
	make_link(&link, "survivor", open_first_device(), pages(reachable_length()), pages(buffers_length()),
		  next_random(&random));
	CHECK(meet(&link, SOCKET));
	for (;;) {
		post_some(&link);
		take_completions(&link);
		if (random_below(&random, 8) == 0)
			churn(&link, &random);
	}
}

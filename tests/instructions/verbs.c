/*
 * Counts the instructions of the hot paths. A process and its peer (a forked child) do each operation many times, one step at
 * a time: one side runs while the other sleeps in read(2). Nothing else may decide what is counted:
 *
 * - The NIC thread stands in a signal handler, so that the calling thread alone drives its engine.
 * - The two processes connect one after the other, so that there is one channel between them, not two.
 * - The engine's clock advances by a fixed amount at each step (clock.h).
 *
 * Runs under `valgrind --tool=callgrind --collect-atstart=no --separate-threads=yes`. Each side makes a dump for each operation,
 * which names it, and the initiator prints of how many it is. PAGEWIRE_PATH says over which path. `make instructions` records
 * the counts.
 *
 * With the name of a walk it does that one operation only, once it has done some that are not counted: `make walks` lists the files
 * that run.
 */
#define _GNU_SOURCE
#include "pair.h"
#include "clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <valgrind/callgrind.h>

/* Operations counted, after as many that are not; of large ones fewer. */
#define COUNT 200
#define LARGE_COUNT 20
#define LARGE 65536
/* Steps of each side until an operation must be complete. */
#define STEPS 1000
/* What a step takes by the engine's clock, and what passes between two empty polls. */
#define STEP_NANOSECONDS 1000
#define PAUSE_NANOSECONDS 100000

/* The engine's thread stands in the signal handler. */
static volatile sig_atomic_t is_held;

/* Whether a signal came while the thread waited in the kernel: then what it was in has just been interrupted. */
static int has_waited(const ucontext_t *interrupted)
{
#if defined(__x86_64__)
	return interrupted->uc_mcontext.gregs[REG_RAX] == -EINTR;
#elif defined(__aarch64__)
	return (long)interrupted->uc_mcontext.regs[0] == -EINTR;
#else
#error "where does this processor have the result of a system call?"
#endif
}

/* Elsewhere the thread may hold a lock. It goes on then, and is asked again. */
static void hold(int signal, siginfo_t *info, void *interrupted)
{
	(void)signal;
	(void)info;
	if (!has_waited(interrupted))
		return;
	is_held = 1;
	for (;;)
		pause();
}

static size_t read_task(const char *task, const char *file, char *text, size_t room)
{
	char path[300];
	ssize_t length;
	int from;

	snprintf(path, sizeof(path), "/proc/self/task/%s/%s", task, file);
	from = open(path, O_RDONLY);
	CHECK(from >= 0);
	length = read(from, text, room - 1);
	CHECK(length >= 0);
	close(from);
	text[length] = 0;
	return length;
}

/* Whether a thread waits in the kernel for an event or a wake-up, and not for its turn under valgrind (which is a read). */
static int sleeps(const char *task)
{
	static const int waits[] = { SYS_futex, SYS_poll, SYS_ppoll, SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2 };
	char text[256];

	read_task(task, "syscall", text, sizeof(text));
	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
		if (text[0] >= '0' && text[0] <= '9' && atoi(text) == waits[i])
			return 1;
	}
	return 0;
}

/* The number of the engine's thread. */
static void find_engine(char *engine)
{
	char name[32];
	struct dirent *entry;
	DIR *tasks = opendir("/proc/self/task");

	CHECK(tasks);
	*engine = 0;
	while ((entry = readdir(tasks))) {
		if (entry->d_name[0] == '.')
			continue;
		read_task(entry->d_name, "comm", name, sizeof(name));
		if (strcmp(name, "pagewire-nic\n") == 0)
			strcpy(engine, entry->d_name);
	}
	closedir(tasks);
	CHECK(*engine);
}

/* Until the engine's thread has nothing to do any more. */
static void wait_for_engine(const char *engine)
{
	double end = seconds() + PATIENCE_SECONDS;

	for (int calm = 0; calm < 10; calm = sleeps(engine) ? calm + 1 : 0) {
		CHECK(seconds() < end);
		usleep(20000);
	}
}

/* Holds the engine's thread where it sleeps: nowhere else is it sure to hold no lock. */
static void hold_engine(const char *engine)
{
	struct sigaction action = { .sa_sigaction = hold, .sa_flags = SA_SIGINFO };
	double end = seconds() + PATIENCE_SECONDS;

	/* Which the engine's threads leave open, and valgrind delivers between instructions, unlike SIGTRAP. */
	CHECK(sigaction(SIGABRT, &action, NULL) == 0);
	while (!is_held) {
		CHECK(seconds() < end);
		wait_for_engine(engine);
		CHECK(syscall(SYS_tgkill, getpid(), atoi(engine), SIGABRT) == 0);
		usleep(100000);
	}
}

static int poll_once(struct side *side)
{
	struct ibv_wc wc;
	int got;

	advance_clock(STEP_NANOSECONDS);
	CALLGRIND_TOGGLE_COLLECT;
	got = ibv_poll_cq(side->cq, 1, &wc);
	CALLGRIND_TOGGLE_COLLECT;
	CHECK(got >= 0);
	CHECK(got == 0 || wc.status == IBV_WC_SUCCESS);
	return got;
}

static void post_receive(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)side->memory, 64, side->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int failed;

	CALLGRIND_TOGGLE_COLLECT;
	failed = ibv_post_recv(side->qp, &wr, &bad);
	CALLGRIND_TOGGLE_COLLECT;
	CHECK(failed == 0);
}

struct operation {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	int count;
	/* Microseconds from step to step: what another thread does takes its time. */
	int pause;
};

static void post(struct side *side, const struct operation *operation, const struct greeting *peer)
{
	struct ibv_sge sge = { (uintptr_t)side->memory, operation->length, side->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = operation->opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	int failed;

	if (operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = peer->address;
		wr.wr.atomic.rkey = peer->rkey;
		wr.wr.atomic.compare_add = 1;
	} else if (operation->opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = peer->address;
		wr.wr.rdma.rkey = peer->rkey;
	}
	CALLGRIND_TOGGLE_COLLECT;
	failed = ibv_post_send(side->qp, &wr, &bad);
	CALLGRIND_TOGGLE_COLLECT;
	CHECK(failed == 0);
}

/* A step of the peer: it does what the byte says, then gives the turn back. */
static void peer_step(char what)
{
	hand_over(what);
	CHECK(wait_for_peer() == what);
}

static void perform(struct side *side, const struct operation *operation, const struct greeting *peer)
{
	if (operation->opcode == IBV_WR_SEND)
		peer_step('r');
	post(side, operation, peer);
	for (int step = 0; !poll_once(side); step++) {
		CHECK(step < STEPS);
		usleep(operation->pause);
		peer_step('p');
	}
}

/* So much later that what is looked at now and then is due. */
static int poll_later(struct side *side)
{
	advance_clock(PAUSE_NANOSECONDS);
	return poll_once(side);
}

static void do_register(struct side *side, int deregister)
{
	struct ibv_mr *mr;
	int failed;

	if (!deregister)
		CALLGRIND_TOGGLE_COLLECT;
	mr = ibv_reg_mr(side->pd, side->memory, LARGE, ALL_ACCESS);
	CALLGRIND_TOGGLE_COLLECT;
	failed = ibv_dereg_mr(mr);
	if (deregister)
		CALLGRIND_TOGGLE_COLLECT;
	CHECK(mr && failed == 0);
}

static const struct operation operations[] = {
	{ "write_8", IBV_WR_RDMA_WRITE, 8, COUNT },
	{ "send_8", IBV_WR_SEND, 8, COUNT },
	{ "read_8", IBV_WR_RDMA_READ, 8, COUNT },
	{ "atomic_8", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, COUNT },
	{ "write_65536", IBV_WR_RDMA_WRITE, LARGE, LARGE_COUNT },
	{ "read_65536", IBV_WR_RDMA_READ, LARGE, LARGE_COUNT },
};

static const struct walk {
	struct operation operation;
	/* Only ibv_post_send is counted. */
	int is_post_alone;
	/* The page at the destination is in a file alone, which a thread of the engine reads. */
	int is_absent;
} walks[] = {
	{ { "post_write", IBV_WR_RDMA_WRITE, 8, 1 }, .is_post_alone = 1 },
	{ { "write", IBV_WR_RDMA_WRITE, LARGE, 1 } },
	{ { "page_fault", IBV_WR_RDMA_WRITE, 8, 1, .pause = 1000 }, .is_absent = 1 },
};

static const struct walk *find_walk(const char *name)
{
	for (size_t i = 0; i < sizeof(walks) / sizeof(*walks); i++) {
		if (strcmp(name, walks[i].operation.name) == 0)
			return &walks[i];
	}
	fprintf(stderr, "no walk: %s\n", name);
	exit(2);
}

/* The file whose pages are the memory of a side, where they are to be absent. */
static int file = -1;

/* Puts a file in the place of a side's memory. */
static void use_file(struct side *side)
{
	char name[] = "walk-XXXXXX";

	file = mkstemp(name);
	CHECK(file >= 0 && unlink(name) == 0 && ftruncate(file, LARGE) == 0);
	CHECK(ibv_dereg_mr(side->mr) == 0);
	side->memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(side->memory != MAP_FAILED);
	side->mr = ibv_reg_mr(side->pd, side->memory, LARGE, ALL_ACCESS);
	CHECK(side->mr);
}

static void evict(struct side *side)
{
	unsigned char is_resident = 0;

	CHECK(msync(side->memory, LARGE, MS_SYNC) == 0 && madvise(side->memory, LARGE, MADV_DONTNEED) == 0);
	CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
	CHECK(mincore(side->memory, 4096, &is_resident) == 0 && !(is_resident & 1));
	/* What was seen before is old. */
	advance_clock(SECOND_NANOSECONDS);
}

/* Both sides: what was collected so far is of `name`, or of nobody. */
static void dump(const char *name)
{
	CALLGRIND_DUMP_STATS_AT(name);
}

/* The initiator: it is of so many operations. */
static void dump_counted(const char *name, int count)
{
	dump(name);
	printf("%s %d\n", name, count);
}

static void initiator(struct side *side, const struct greeting *peer)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		const struct operation *operation = &operations[i];

		for (int n = 0; n < operation->count; n++)
			perform(side, operation, peer);
		peer_step('z');
		dump("-");
		for (int n = 0; n < operation->count; n++)
			perform(side, operation, peer);
		peer_step('0' + i);
		dump_counted(operation->name, operation->count);
	}
	for (int deregister = 0; deregister < 2; deregister++) {
		for (int n = 0; n < COUNT; n++)
			do_register(side, deregister);
		dump("-");
		for (int n = 0; n < COUNT; n++)
			do_register(side, deregister);
		dump_counted(deregister ? "dereg_mr" : "reg_mr", COUNT);
	}
	for (int n = 0; n < COUNT; n++)
		poll_later(side);
	dump("-");
	for (int n = 0; n < COUNT; n++)
		CHECK(poll_later(side) == 0);
	dump_counted("poll_empty", COUNT);
	hand_over('q');
}

static void walk_initiator(struct side *side, const struct greeting *peer, const struct walk *walk)
{
	for (int n = 0; n < COUNT; n++)
		perform(side, &walk->operation, peer);
	peer_step(walk->is_absent ? 'e' : 'z');
	dump("-");
	if (walk->is_post_alone) {
		post(side, &walk->operation, peer);
	} else {
		perform(side, &walk->operation, peer);
		peer_step('w');
	}
	dump_counted(walk->operation.name, 1);
	hand_over('q');
}

/* Receives that wait or were completed stay within what the queue takes: a SEND is complete at both sides before the next. */
static void responder(struct side *side, const struct walk *walk)
{
	for (;;) {
		char what = wait_for_peer();

		switch (what) {
		case 'q':
			return;
		case 'r':
			post_receive(side);
			break;
		case 'p':
			poll_once(side);
			break;
		case 'e':
			evict(side);
			dump("-");
			break;
		case 'w':
			dump(walk->operation.name);
			break;
		case 'z':
			while (poll_once(side))
				;
			dump("-");
			break;
		default:
			while (poll_once(side))
				;
			dump(operations[what - '0'].name);
		}
		hand_over(what);
	}
}

/* One side after the other: processes that ask for each other at the same time may make two channels. */
static struct greeting connect_in_turn(struct side *side, const char *engine, int is_first)
{
	struct greeting peer = exchange_greetings(side);

	if (!is_first)
		meet();
	connect_to(side, &peer);
	wait_for_engine(engine);
	if (is_first)
		meet();
	meet();
	wait_for_engine(engine);
	return peer;
}

int main(int count, char **words)
{
	const struct walk *walk = count > 1 ? find_walk(words[1]) : NULL;
	int status = 0;
	char engine[32];
	struct greeting peer;
	struct side side;
	pid_t child;

	share_clock();
	child = fork_peer();
	side = open_side(LARGE);
	if (!child && walk && walk->is_absent)
		use_file(&side);
	find_engine(engine);
	peer = connect_in_turn(&side, engine, child != 0);
	meet();
	hold_engine(engine);
	meet();
	if (child)
		set_clock();
	meet();
	if (child) {
		if (walk)
			walk_initiator(&side, &peer, walk);
		else
			initiator(&side, &peer);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		/* Else the clock was the kernel's, and the counts are of this run alone. */
		CHECK(clock_reads > 0 || !RUNNING_ON_VALGRIND);
		fflush(stdout);
	} else {
		responder(&side, walk);
	}
	/* Not exit(3): the engine's thread is held. */
	_exit(0);
}

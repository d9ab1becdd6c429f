/* Has a victim execute so many instructions of one operation, and kills it there, or stops it.
 *
 * The victim marks the begin and the end of its operation by SIGUSR1, and by SIGUSR2 the moment at which it waits for
 * the other side. Only the thread that does the operation runs meanwhile: the engine's other threads are held where they
 * sleep in the kernel, so that everything is done by the one that is counted. A system call counts as one instruction,
 * whatever the kernel does meanwhile. */
#define _GNU_SOURCE
#include "parties.h"
#include "roles.h"
#include "route.h"
#include "tracer.h"

#include <dirent.h>
#include <sched.h>
#include <stddef.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

/* Microseconds that the other side is given to answer: for one that rests between its looks, so many of its rests. Where it has not
 * answered by then, the operation is as much longer as it takes to look for the answer again and again. */
#define ANSWER 3000
#define RESTS 30
/* Threads of a victim. */
#define THREADS 64
/* Looks at a thread until it sleeps. */
#define LOOKS 100000

static pid_t threads[THREADS];
static int held;

/* A line that the kernel tells of a thread (proc(5)). */
static void ask(pid_t process, pid_t thread, const char *what, char line[256])
{
	char name[64];
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/task/%d/%s", process, thread, what);
	CHECK(file = fopen(name, "re"));
	CHECK(fgets(line, 256, file));
	fclose(file);
}

/* The next instruction of a stopped thread (ptrace(2), proc_pid_syscall(5)). */
static unsigned long next_of(pid_t process)
{
#ifdef __x86_64__
	return ptrace(PTRACE_PEEKUSER, process, offsetof(struct user, regs.rip), 0);
#else
	char line[256], *last;

	ask(process, process, "syscall", line);
	CHECK(last = strrchr(line, ' '));
	return strtoul(last, NULL, 16);
#endif
}

/* Whether a thread sleeps in a system call that waits for others: it then holds no lock of the engine. Gives what the kernel
 * says of the call. */
static int sleeps(pid_t process, pid_t thread, char call[256])
{
	static const long waits[] = { SYS_epoll_pwait, SYS_epoll_pwait2, SYS_futex, SYS_ppoll, SYS_accept4, SYS_accept,
#ifdef SYS_epoll_wait
				      SYS_epoll_wait, SYS_poll,
#endif
	};
	char line[256], *state;

	ask(process, thread, "stat", line);
	CHECK(state = strrchr(line, ')'));
	ask(process, thread, "syscall", call);
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		if (state[2] == 'S' && atol(call) == waits[i] && call[0] != 'r')
			return 1;
	}
	return 0;
}

static int stop_of(pid_t thread)
{
	int status;

	CHECK(waitpid(thread, &status, __WALL) == thread);
	CHECK(WIFSTOPPED(status));
	return WSTOPSIG(status);
}

static int end_of_thread(pid_t thread)
{
	int status;

	do {
		CHECK(waitpid(thread, &status, __WALL) == thread);
	} while (WIFSTOPPED(status));
	return status;
}

static void hold_others(pid_t process)
{
	char name[64], before[256], after[256];
	struct dirent *entry;
	DIR *tasks;

	snprintf(name, sizeof(name), "/proc/%d/task", process);
	CHECK(tasks = opendir(name));
	while ((entry = readdir(tasks))) {
		pid_t thread = atoi(entry->d_name);
		int looks = 0;

		if (thread == 0 || thread == process)
			continue;
		CHECK(held < THREADS);
		CHECK(ptrace(PTRACE_SEIZE, thread, 0, 0) == 0);
		for (;; usleep(100)) {
			CHECK(looks++ < LOOKS);
			if (!sleeps(process, thread, before))
				continue;
			CHECK(ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0);
			stop_of(thread);
			/* It may have been woken just before, and be anywhere. */
			ask(process, thread, "syscall", after);
			if (strcmp(before, after) == 0)
				break;
			CHECK(ptrace(PTRACE_CONT, thread, 0, 0) == 0);
		}
		threads[held++] = thread;
	}
	closedir(tasks);
}

/* Addresses that a file, or something of the kernel's, is mapped to in a process: `from` and before `to`, which is 0 where it is not. */
struct mapped {
	unsigned long from, to;
};

static struct mapped where_is(pid_t process, const char *called)
{
	struct mapped all = { 0 }, one;
	char name[64], line[512];
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/maps", process);
	CHECK(file = fopen(name, "re"));
	while (fgets(line, sizeof(line), file)) {
		if (!strstr(line, called))
			continue;
		CHECK(sscanf(line, "%lx-%lx", &one.from, &one.to) == 2);
		/* Its parts lie one behind the other. */
		all = (struct mapped){ all.to ? all.from : one.from, one.to };
	}
	fclose(file);
	return all;
}

static int lies_in(struct mapped mapped, unsigned long address)
{
	return mapped.from <= address && address < mapped.to;
}

/* Lets the victim go on as `how` says, and gives the signal that it stops with next. It is not told of those that are for the tracer. */
static int go_on(pid_t process, enum __ptrace_request how, unsigned pause)
{
	int signal = 0, stop;

	for (;;) {
		CHECK(ptrace(how, process, 0, signal) == 0);
		stop = stop_of(process);
		signal = 0;
		if (stop == SIGTRAP || stop == SIGUSR1)
			return stop;
		if (stop == SIGUSR2)
			usleep(ANSWER + RESTS * pause);
		else
			signal = stop;
	}
}

/* Has the victim execute an instruction. One of the kernel's functions in the program's memory counts as one, as a system call does:
 * those that tell the time begin anew when the clock has gone on, which it does again and again while they are stepped through. */
static int step_once(pid_t process, unsigned long next, struct mapped kernels, unsigned pause)
{
	uint64_t back = lies_in(kernels, next) ? return_address(process) : 0;
	int stop;

	if (back == 0 || !set_breakpoint(process, back))
		return go_on(process, PTRACE_SINGLESTEP, pause);
	stop = go_on(process, PTRACE_CONT, pause);
	/* No operation ends within one of them. */
	CHECK(stop == SIGTRAP && next_of(process) == back && set_breakpoint(process, 0));
	return stop;
}

/* Steps until the victim has executed so many instructions more, or its operation is over; notes which, if asked. */
static void step(pid_t process, uint64_t instructions, unsigned pause, struct instant *instant, struct route *route)
{
	struct mapped kernels = where_is(process, "[vdso]");

	for (; instructions > 0 && !instant->over; instructions--) {
		unsigned long next = next_of(process);

		if (route)
			extend_route(route, next);
		if (step_once(process, next, kernels, pause) == SIGTRAP)
			instant->instructions++;
		else
			instant->over = 1;
	}
}

/* Has the victim come to an instruction by a breakpoint. 0: its operation is over before. */
static int come_to(pid_t process, const struct approach *approach, unsigned pause)
{
	CHECK(set_breakpoint(process, approach->address));
	for (size_t hits = 1;; hits++) {
		if (go_on(process, PTRACE_CONT, pause) != SIGTRAP)
			return 0;
		CHECK(next_of(process) == approach->address && set_breakpoint(process, 0));
		if (hits == approach->hits)
			return 1;
		/* One that repeats itself is one step each time, and one hit in all. */
		do {
			if (go_on(process, PTRACE_SINGLESTEP, pause) != SIGTRAP)
				return 0;
		} while (next_of(process) == approach->address);
		CHECK(set_breakpoint(process, approach->address));
	}
}

/* Whether programs that this one starts find their code at the same addresses each time. */
static int starts_where_others_do(void)
{
	int persona = personality(0xffffffff);

	return persona != -1 && (persona & ADDR_NO_RANDOMIZE) != 0;
}

/* Has the victim execute so many instructions of its operation, or all, by the route that is known or step by step. */
static struct instant advance(pid_t process, uint64_t instructions, unsigned pause, const char *file)
{
	struct route route = read_route(file);
	struct instant instant = { 0 };

	if (instructions == RECORD) {
		struct route new = { 0 };

		step(process, instructions, pause, &instant, &new);
		/* Where the next one starts elsewhere, or breakpoints are not to be had, they take the steps. */
		if (starts_where_others_do() && set_breakpoint(process, new.addresses[0]) && set_breakpoint(process, 0) &&
		    (route.length == 0 || new.length < route.length))
			write_route(&new, file);
	} else if (instructions < route.length) {
		struct approach approach = approach_to(&route, instructions);

		if (approach.hits == 0 || come_to(process, &approach, pause)) {
			instant.instructions = instructions - approach.steps;
			step(process, approach.steps, pause, &instant, NULL);
			/* The operation went another way. */
			instant.over |= next_of(process) != route.addresses[instructions];
		} else {
			instant.over = 1;
		}
	} else {
		step(process, instructions, pause, &instant, NULL);
	}
	instant.in_library = lies_in(where_is(process, "libpagewire.so"), next_of(process));
	return instant;
}

static pid_t start_traced(char *operation, char *fate)
{
	char *arguments[] = { "death", "stepped", operation, fate, NULL };
	pid_t process = fork();
	int stop;

	CHECK(process >= 0);
	if (process == 0) {
		CHECK(close(OTHER) == 0);
		CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
		execv("/proc/self/exe", arguments);
		_exit(127);
	}
	close(SOCKET);
	CHECK(stop_of(process) == SIGTRAP);
	CHECK(ptrace(PTRACE_SETOPTIONS, process, 0, PTRACE_O_EXITKILL) == 0);
	for (int signal = 0;; signal = stop) {
		CHECK(ptrace(PTRACE_CONT, process, 0, signal) == 0);
		stop = stop_of(process);
		if (stop == SIGUSR1)
			return process;
	}
}

static char order(void)
{
	char word;

	CHECK(hear(OTHER, &word, 1));
	return word;
}

/* Puts this process and the victim's first thread on one processor: a step is a change from one to the other and back, and
 * between two processors, of which one sleeps meanwhile, it takes several times as long. */
static void share_processor(pid_t process)
{
	cpu_set_t permitted, one;
	int skip;

	CHECK(sched_getaffinity(0, sizeof(permitted), &permitted) == 0);
	skip = getpid() % CPU_COUNT(&permitted);
	CPU_ZERO(&one);
	for (int processor = 0; CPU_COUNT(&one) == 0; processor++) {
		if (CPU_ISSET(processor, &permitted) && skip-- == 0)
			CPU_SET(processor, &one);
	}
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0 && sched_setaffinity(process, sizeof(one), &one) == 0);
}

int trace_steps(char **arguments)
{
	int stops = strcmp(arguments[1], "stop") == 0, status;
	uint64_t instructions = strtoull(arguments[0], NULL, 10);
	char word = HELD;
	struct instant instant;
	pid_t process;

	follow_starter();
	/* Refused in some containers: the route is of no use there. */
	(void)personality(ADDR_NO_RANDOMIZE);
	process = start_traced(arguments[2], arguments[1]);
	hold_others(process);
	share_processor(process);
	CHECK(tell(OTHER, &word, 1));
	CHECK(order() == BEGIN);
	instant = advance(process, instructions, strtoul(arguments[3], NULL, 10), arguments[4]);
	if (stops) {
		CHECK(tell(OTHER, &instant, sizeof(instant)));
		CHECK(order() == GO_ON);
		for (int i = 0; i < held; i++)
			CHECK(ptrace(PTRACE_CONT, threads[i], 0, 0) == 0);
		CHECK(ptrace(PTRACE_CONT, process, 0, 0) == 0);
		CHECK(order() == KILL);
	}
	CHECK(kill(process, SIGKILL) == 0);
	/* The first thread's end is told when those of all others were asked for. */
	for (int i = 0; i < held; i++)
		end_of_thread(threads[i]);
	status = end_of_thread(process);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	if (!stops)
		CHECK(tell(OTHER, &instant, sizeof(instant)));
	return 0;
}

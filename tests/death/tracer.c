/* Has a victim execute so many instructions of one operation, and kills it there, or stops it.
 *
 * The victim marks the begin and the end of its operation by SIGUSR1, and by SIGUSR2 the moment at which it waits for
 * the other side. Only the thread that does the operation runs meanwhile: the engine's other threads are held where they
 * sleep in the kernel, so that everything is done by the one that is counted. A system call counts as one instruction,
 * whatever the kernel does meanwhile. */
#define _GNU_SOURCE
#include "parties.h"
#include "roles.h"
#include "tracer.h"

#include <dirent.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Microseconds that the other side is given to answer. */
#define ANSWER 3000
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

/* The next instruction of a stopped thread (proc_pid_syscall(5)). */
static unsigned long next_of(pid_t process)
{
	char line[256], *last;

	ask(process, process, "syscall", line);
	CHECK(last = strrchr(line, ' '));
	return strtoul(last, NULL, 16);
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

/* Whether an address is one of the engine's code. */
static int is_library(pid_t process, unsigned long address)
{
	char name[64], line[512];
	unsigned long from, to;
	int found = 0;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/maps", process);
	CHECK(file = fopen(name, "re"));
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= address && address < to)
			found = strstr(line, "libpagewire.so") != NULL;
	}
	fclose(file);
	return found;
}

/* Steps until the victim has executed so many instructions, or its operation is over. */
static struct instant step(pid_t process, uint64_t instructions)
{
	struct instant instant = { 0 };
	int signal = 0, stop;

	while (instant.instructions < instructions) {
		CHECK(ptrace(PTRACE_SINGLESTEP, process, 0, signal) == 0);
		stop = stop_of(process);
		signal = 0;
		if (stop == SIGTRAP)
			instant.instructions++;
		else if (stop == SIGUSR1) {
			instant.over = 1;
			break;
		} else if (stop == SIGUSR2)
			usleep(ANSWER);
		else
			signal = stop;
	}
	instant.in_library = is_library(process, next_of(process));
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

int trace_steps(char **arguments)
{
	int stops = strcmp(arguments[1], "stop") == 0, status;
	uint64_t instructions = strtoull(arguments[0], NULL, 10);
	char word = HELD;
	struct instant instant;
	pid_t process;

	follow_starter();
	process = start_traced(arguments[2], arguments[1]);
	hold_others(process);
	CHECK(tell(OTHER, &word, 1));
	CHECK(order() == BEGIN);
	instant = step(process, instructions);
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

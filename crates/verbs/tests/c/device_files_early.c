/*
 * Files of the devices before any constructor has run, in an allocator that opens files, below signal handlers on small
 * stacks, in many threads, and in a forked child.
 */
#include "check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICE "/sys/class/infiniband/pagewire0"
enum { ROUNDS = 300, THREADS = 4, SMALL_STACK = 16384 };

void *__libc_malloc(size_t size);

/* An allocator as others are: it reads its settings when it is first called, and cannot be called meanwhile. */
static int begun;
static __thread int is_beginning;
void *malloc(size_t size)
{
	char target[64];
	struct stat status;
	int descriptor;

	if (is_beginning)
		_exit(77);
	if (!__atomic_exchange_n(&begun, 1, __ATOMIC_RELAXED)) {
		is_beginning = 1;
		descriptor = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
		if (descriptor >= 0)
			close(descriptor);
		if (readlink("/etc/no-such-settings", target, sizeof(target)) != -1 || access("/", F_OK) != 0 ||
		    stat("/proc", &status) != 0)
			_exit(78);
		is_beginning = 0;
	}
	return __libc_malloc(size);
}

static int early = -1;

/* As many entries as a device has in its class, and a file that says what it is. */
static int see(void)
{
	char content[64];
	struct stat status;
	int descriptor = open(DEVICE "/node_type", O_RDONLY), entries = 0;
	DIR *stream;

	if (descriptor < 0 || read(descriptor, content, sizeof(content)) != 6 || memcmp(content, "1: CA\n", 6) != 0)
		return 0;
	if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || close(descriptor) != 0)
		return 0;
	if (lstat(DEVICE, &status) != 0 || !S_ISLNK(status.st_mode) || access(DEVICE, R_OK) != 0)
		return 0;
	stream = opendir(DEVICE "/ports");
	if (!stream)
		return 0;
	while (readdir(stream))
		entries++;
	closedir(stream);
	return entries == 3;
}

static void before_constructors(int count, char **arguments, char **environment)
{
	(void)count, (void)arguments, (void)environment;
	early = see();
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = before_constructors;

static int root = -1;
static volatile sig_atomic_t interrupted;

static void handle(int number)
{
	int error = errno, descriptor;
	struct stat status;
	char target[64];

	(void)number;
	descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (descriptor < 0 || fstat(descriptor, &status) != 0 || close(descriptor) != 0)
		_exit(79);
	if (stat("/proc", &status) != 0 || fstatat(root, "proc", &status, 0) != 0 || access("/proc", F_OK) != 0)
		_exit(80);
	if (readlink("/proc/self", target, sizeof(target)) <= 0 || faccessat(root, "proc", F_OK, 0) != 0)
		_exit(81);
	descriptor = openat(root, "dev/null", O_RDONLY | O_CLOEXEC);
	if (descriptor < 0 || close(descriptor) != 0)
		_exit(82);
	interrupted++;
	errno = error;
}

static void be_interrupted(void)
{
	static char stack[SMALL_STACK];
	stack_t small = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_ONSTACK | SA_RESTART };
	struct itimerval timer = { .it_interval = { .tv_usec = 300 }, .it_value = { .tv_usec = 300 } };

	root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(root >= 0 && sigaltstack(&small, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	/* A clock that is slow gives fewer interruptions, but some. */
	for (int round = 0; round < ROUNDS || (interrupted < 3 && round < 100 * ROUNDS); round++)
		CHECK(see());
	CHECK(interrupted >= 3);
	timer = (struct itimerval){ 0 };
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void *see_often(void *argument)
{
	for (int round = 0; round < ROUNDS; round++)
		CHECK(see());
	return argument;
}

/* A child is forked while others look. */
static void fork_meanwhile(void)
{
	pthread_t threads[THREADS];
	int status;

	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, see_often, NULL) == 0);
	for (int round = 0; round < 20; round++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0)
			_exit(see() ? 0 : 1);
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
	CHECK(begun);
	CHECK(early == 1);
	be_interrupted();
	fork_meanwhile();
	return 0;
}

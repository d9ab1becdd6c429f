/*
 * malloc(3) from the registered heap (LD_PRELOAD): children of a program with threads that allocate, which has used the name service and
 * has streams open. The C library touches what these have allocated in each child before any handler of fork(2) runs there.
 *
 * PAGEWIRE_HEAP_FORKS sets how many forks there are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 3
#define OBJECTS 200

static volatile bool stop;
static char *kept[OBJECTS];
static FILE *stream;

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void *allocate(void *argument)
{
	char *objects[100] = {0};
	unsigned seed = (unsigned)(size_t)argument;

	while (!stop) {
		int place = rand_r(&seed) % 100;

		free(objects[place]);
		objects[place] = malloc(rand_r(&seed) % 4000 + 1);
		objects[place][0] = 1;
	}
	for (int place = 0; place < 100; place++)
		free(objects[place]);
	return NULL;
}

/* 0: the child has what the parent had, and its memory serves as any. */
static int check_in_child(void)
{
	char *more[500];

	for (int number = 0; number < OBJECTS; number++) {
		for (int byte = 0; byte < number; byte++)
			if (kept[number][byte] != (char)number)
				return 2;
		memset(kept[number], -1, number);
	}
	for (int number = 0; number < 500; number++) {
		more[number] = malloc(number * 10 + 1);
		if (!more[number])
			return 3;
		memset(more[number], number, number * 10 + 1);
	}
	for (int number = 0; number < 500; number++)
		if (more[number][number * 10] != (char)number)
			return 4;
	for (int number = 0; number < 500; number++)
		free(more[number]);
	for (int number = 0; number < OBJECTS; number++)
		free(kept[number]);
	if (!getpwuid(0) || fprintf(stream, "x") != 1)
		return 5;
	return 0;
}

static void expect_good(pid_t child, const char *how, int number)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child)
		fail(how);
	if (status) {
		printf("%s %d: the child's status is %#x\n", how, number, status);
		exit(1);
	}
	for (int object = 0; object < OBJECTS; object++)
		for (int byte = 0; byte < object; byte++)
			if (kept[object][byte] != (char)object) {
				printf("%s %d: a child's write shows here\n", how, number);
				exit(1);
			}
}

static void interrupted(int signal)
{
	pid_t child = fork();

	(void)signal;
	if (!child)
		_exit(check_in_child());
	expect_good(child, "fork in a signal handler", 0);
}

int main(void)
{
	const char *asked = getenv("PAGEWIRE_HEAP_FORKS");
	int forks = asked ? atoi(asked) : 100;
	pthread_t threads[THREADS];
	struct addrinfo *addresses;
	pid_t child;

	alarm(3600);
	if (!getpwuid(0) || !getgrgid(0))
		fail("getpwuid");
	if (!getaddrinfo("localhost", "80", NULL, &addresses))
		freeaddrinfo(addresses);
	stream = tmpfile();
	for (int number = 0; number < OBJECTS; number++) {
		kept[number] = malloc(number + 1);
		memset(kept[number], number, number);
	}
	for (size_t number = 0; number < THREADS; number++)
		pthread_create(&threads[number], NULL, allocate, (void *)number);
	for (int number = 0; number < forks; number++) {
		child = fork();
		if (!child) {
			int bad = check_in_child();

			/* A child of the child, now and then. */
			if (!bad && number % 10 == 0) {
				child = fork();
				if (!child)
					_exit(getpwuid(0) ? 0 : 6);
				if (waitpid(child, &bad, 0) != child)
					bad = 7;
			}
			_exit(bad ? 1 : 0);
		}
		expect_good(child, "fork", number);
	}
	child = _Fork();
	if (!child)
		_exit(kept[100][50] == 100 ? 0 : 1);
	expect_good(child, "_Fork", 0);
	signal(SIGUSR1, interrupted);
	for (int number = 0; number < 20; number++)
		raise(SIGUSR1);
	if (system("true"))
		fail("system");
	stop = true;
	for (int number = 0; number < THREADS; number++)
		pthread_join(threads[number], NULL);
	return 0;
}

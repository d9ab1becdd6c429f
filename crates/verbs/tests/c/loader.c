/* Functions that a signal handler may call (signal-safety(7)) do not wait for the dynamic loader. */
#define _GNU_SOURCE
#define _XOPEN_SOURCE 700
#include "check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static char fifo[] = "/tmp/pagewire-loader-XXXXXX";

/* Has the loader's lock until the other end of the FIFO is closed. */
static void *load(void *unused)
{
	CHECK(dlopen(fifo, RTLD_NOW) == NULL);
	return unused;
}

int main(void)
{
	struct sigaction action = { .sa_handler = SIG_IGN };
	pthread_t loader;
	sigset_t set;
	int writer;

	alarm(60);
	CHECK(close(mkstemp(fifo)) == 0 && unlink(fifo) == 0 && mkfifo(fifo, 0600) == 0);
	CHECK(pthread_create(&loader, NULL, load, NULL) == 0);
	while ((writer = open(fifo, O_WRONLY | O_NONBLOCK)) < 0)
		CHECK(errno == ENXIO);
	CHECK(unlink(fifo) == 0);

	sigemptyset(&set);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(signal(SIGUSR1, SIG_DFL) == SIG_IGN);
	CHECK(sigset(SIGUSR1, SIG_IGN) == SIG_DFL);
	CHECK(sigignore(SIGUSR2) == 0);
	CHECK(sighold(SIGUSR2) == 0);
	CHECK(sigrelse(SIGUSR2) == 0);
	CHECK(sigaction(SIGSEGV, NULL, &action) == 0);

	CHECK(close(writer) == 0);
	CHECK(pthread_join(loader, NULL) == 0);
	return 0;
}

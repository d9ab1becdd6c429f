/* Pages that a thread of this program brings in, when it wants to (userfaultfd(2)). */
#ifndef PAGER_H
#define PAGER_H

#include "check.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* The exit status of a program that cannot do here what it is asked for; it has said why. */
#define NOT_HERE 77

struct pager {
	int descriptor;
	char *base;
	size_t length;
	/* What the pages shall contain: `length` bytes. */
	const char *content;
	/* Microseconds that each page takes. */
	_Atomic unsigned delay;
	/* No page comes before this is false. */
	_Atomic bool held;
	/* Faults that have been reported. */
	_Atomic size_t faults;
	_Atomic bool stop;
	pthread_t thread;
};

static inline void answer(struct pager *pager, char *page, size_t page_size)
{
	struct uffdio_copy copy = { .dst = (uintptr_t)page, .len = page_size,
				    .src = (uintptr_t)pager->content + (page - pager->base) };
	struct uffdio_range range = { .start = (uintptr_t)page, .len = page_size };

	while (ioctl(pager->descriptor, UFFDIO_COPY, &copy) != 0) {
		if (errno == EAGAIN)
			continue;
		/* Somebody else's answer was there first, or the page belongs to nobody any more. */
		CHECK(errno == EEXIST || errno == ENOENT || errno == EFAULT);
		CHECK(ioctl(pager->descriptor, UFFDIO_WAKE, &range) == 0);
		break;
	}
}

static inline void *bring_in(void *argument)
{
	struct pager *pager = argument;
	struct pollfd ready = { .fd = pager->descriptor, .events = POLLIN };
	size_t page_size = sysconf(_SC_PAGESIZE);
	struct uffd_msg message;

	while (!pager->stop) {
		if (poll(&ready, 1, 10) <= 0)
			continue;
		if (read(pager->descriptor, &message, sizeof(message)) != sizeof(message)) {
			CHECK(errno == EINTR || errno == EAGAIN);
			continue;
		}
		CHECK(message.event == UFFD_EVENT_PAGEFAULT);
		pager->faults++;
		while (pager->held && !pager->stop)
			usleep(10000);
		if (pager->stop)
			break;
		if (pager->delay)
			usleep(pager->delay);
		answer(pager, (char *)(message.arg.pagefault.address / page_size * page_size), page_size);
	}
	return NULL;
}

/* Pages of [base, base + length), now and whenever they are thrown away, come from the thread. False: this kernel does not
 * let this user do it (errno). */
static inline bool start_pager(struct pager *pager, char *base, size_t length, const char *content, bool user_mode_only)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .range = { .start = (uintptr_t)base, .len = length },
					 .mode = UFFDIO_REGISTER_MODE_MISSING };

	*pager = (struct pager){ .base = base, .length = length, .content = content };
	pager->descriptor =
		syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | (user_mode_only ? UFFD_USER_MODE_ONLY : 0));
	if (pager->descriptor < 0) {
		CHECK(errno == ENOSYS || errno == EPERM);
		return false;
	}
	CHECK(ioctl(pager->descriptor, UFFDIO_API, &api) == 0);
	CHECK(ioctl(pager->descriptor, UFFDIO_REGISTER, &range) == 0);
	CHECK(pthread_create(&pager->thread, NULL, bring_in, pager) == 0);
	return true;
}

/* Closing wakes whoever waits; pages are ordinary ones from then on. */
static inline void stop_pager(struct pager *pager)
{
	pager->stop = true;
	CHECK(pthread_join(pager->thread, NULL) == 0);
	CHECK(close(pager->descriptor) == 0);
}

#endif

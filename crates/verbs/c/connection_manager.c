/*
 * write(2): librdmacm writes its commands to a descriptor that is ours (src/connection_manager.rs). Any other call is the C library's, and
 * costs one look at a word.
 */
#include "interpose.h"
#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* In src/connection_manager.rs. */
extern _Bool PAGEWIRE_CM_OPENED;
/* `channel`: the one that the command was begun on, or 0; then it is set. */
ssize_t pagewire_cm_write(int descriptor, const void *bytes, size_t length, unsigned long *channel);

/* What pagewire_cm_write answers for other descriptors. */
#define NOT_OURS (-2)
/* And where the command waits for an event. */
#define WAITS (-3)

REAL(write, write);

/* A command that waits for an event is executed again when there may be one. Another thread may close the descriptor meanwhile: to the kernel
 * the command is one call, which keeps the channel and waits on, so that EBADF, or what has got the number since, is not met. */
static ssize_t wait_for_event(int descriptor, const void *bytes, size_t length, unsigned long channel)
{
	ssize_t written;
	char mark;

	do {
		/* No frame of Rust is below a cancellation. Unlike poll(2), recv(2) goes on after a signal whose handler says so (SA_RESTART), as
		 * the kernel's command does. */
		if (recv(descriptor, &mark, 1, MSG_PEEK) < 0 && errno != EAGAIN)
			return errno == EINTR ? -1 : pause();
		written = pagewire_cm_write(descriptor, bytes, length, &channel);
	} while (written == WAITS);
	return written == NOT_OURS || (written < 0 && errno == EBADF) ? pause() : written;
}

ssize_t pagewire_write(int descriptor, const void *bytes, size_t length)
{
	ssize_t (*real)(int, const void *, size_t) = __atomic_load_n(&real_write, __ATOMIC_ACQUIRE);

	if (__builtin_expect(__atomic_load_n(&PAGEWIRE_CM_OPENED, __ATOMIC_ACQUIRE), 0)) {
		unsigned long channel = 0;
		ssize_t written = pagewire_cm_write(descriptor, bytes, length, &channel);

		if (written == WAITS)
			return wait_for_event(descriptor, bytes, length, channel);
		if (written != NOT_OURS)
			return written;
	}
	/* Before the constructors no lock of the dynamic loader is taken: a signal handler may call. */
	return real ? real(descriptor, bytes, length) : syscall(SYS_write, descriptor, bytes, length);
}
STANDS_FOR(pagewire_write, write, BASE);

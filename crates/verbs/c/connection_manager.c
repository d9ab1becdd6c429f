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
ssize_t pagewire_cm_write(int descriptor, const void *bytes, size_t length);

/* What pagewire_cm_write answers for other descriptors. */
#define NOT_OURS (-2)
/* And where the command waits for an event. */
#define WAITS (-3)

REAL(write, write);

ssize_t pagewire_write(int descriptor, const void *bytes, size_t length)
{
	ssize_t (*real)(int, const void *, size_t) = __atomic_load_n(&real_write, __ATOMIC_ACQUIRE);

	if (__builtin_expect(__atomic_load_n(&PAGEWIRE_CM_OPENED, __ATOMIC_ACQUIRE), 0)) {
		ssize_t written;
		char mark;

		/* No frame of Rust is below a cancellation. Unlike poll(2), recv(2) goes on after a signal whose handler says so (SA_RESTART), as
		 * the kernel's command does. */
		while ((written = pagewire_cm_write(descriptor, bytes, length)) == WAITS) {
			if (recv(descriptor, &mark, 1, MSG_PEEK) < 0 && errno != EAGAIN)
				return -1;
		}
		if (written != NOT_OURS)
			return written;
	}
	/* Before the constructors no lock of the dynamic loader is taken: a signal handler may call. */
	return real ? real(descriptor, bytes, length) : syscall(SYS_write, descriptor, bytes, length);
}
STANDS_FOR(pagewire_write, write, BASE);

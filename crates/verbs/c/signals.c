/*
 * Sees the program change what happens on signals.
 *
 * The engine touches application memory directly only while its handler for SIGSEGV and SIGBUS is in place and the two
 * are not blocked (crates/memory/src/guard.rs). It looks, remembers what it saw, and must hear of every change. These
 * functions stand before those of the C library, do what they do, and say so.
 *
 * They have the C library's versions, not as defaults: programs that run with this library find them, programs that
 * are linked with it do not come to need them from it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#if defined(__x86_64__)
#define BASE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define BASE "GLIBC_2.17"
#else
#error "the version of the C library's oldest functions on this architecture"
#endif
/* Since then pthread_sigmask is in libc itself; the old name stays for old programs. */
#define NEWER "GLIBC_2.32"

#define STANDS_FOR(ours, name, version) __asm__(".symver " #ours ", " #name "@" version)

/* In src/signals.rs. */
void pagewire_handlers_begin_to_change(void);
void pagewire_handlers_have_changed(void);
void pagewire_mask_has_changed(void);
void pagewire_changes_are_seen(void);

typedef int (*action_function)(int, const struct sigaction *, struct sigaction *);
typedef int (*mask_function)(int, const sigset_t *, sigset_t *);
typedef sighandler_t (*handler_function)(int, sighandler_t);
typedef int (*signal_function)(int);

static void *next(const char *name, void **known)
{
	void *found = __atomic_load_n(known, __ATOMIC_ACQUIRE);

	if (!found) {
		found = dlsym(RTLD_NEXT, name);
		__atomic_store_n(known, found, __ATOMIC_RELEASE);
	}
	return found;
}

static int change_action(const char *name, void **known, int number, const struct sigaction *new,
			 struct sigaction *old)
{
	action_function real = (action_function)next(name, known);
	int result;

	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	if (!new)
		return real(number, new, old);
	pagewire_handlers_begin_to_change();
	result = real(number, new, old);
	pagewire_handlers_have_changed();
	return result;
}

static sighandler_t change_handler(const char *name, void **known, int number, sighandler_t handler)
{
	handler_function real = (handler_function)next(name, known);
	sighandler_t result;

	if (!real) {
		errno = ENOSYS;
		return SIG_ERR;
	}
	pagewire_handlers_begin_to_change();
	result = real(number, handler);
	pagewire_handlers_have_changed();
	/* sigset(3) blocks, too. */
	pagewire_mask_has_changed();
	return result;
}

static int change_mask(const char *name, void **known, int how, const sigset_t *new, sigset_t *old, int failure)
{
	mask_function real = (mask_function)next(name, known);
	int result;

	if (!real) {
		errno = ENOSYS;
		return failure;
	}
	result = real(how, new, old);
	if (new)
		pagewire_mask_has_changed();
	return result;
}

static int change_one(const char *name, void **known, int argument)
{
	signal_function real = (signal_function)next(name, known);
	int result;

	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	pagewire_handlers_begin_to_change();
	result = real(argument);
	pagewire_handlers_have_changed();
	pagewire_mask_has_changed();
	return result;
}

#define ACTION(name) \
	int pagewire_##name(int number, const struct sigaction *new, struct sigaction *old) \
	{ \
		static void *known; \
		return change_action(#name, &known, number, new, old); \
	} \
	STANDS_FOR(pagewire_##name, name, BASE)
#define HANDLER(name) \
	sighandler_t pagewire_##name(int number, sighandler_t handler) \
	{ \
		static void *known; \
		return change_handler(#name, &known, number, handler); \
	} \
	STANDS_FOR(pagewire_##name, name, BASE)
#define ONE(name) \
	int pagewire_##name(int argument) \
	{ \
		static void *known; \
		return change_one(#name, &known, argument); \
	} \
	STANDS_FOR(pagewire_##name, name, BASE)
#define MASK(ours, name, version, failure) \
	int pagewire_##ours(int how, const sigset_t *new, sigset_t *old) \
	{ \
		static void *known; \
		return change_mask(#name, &known, how, new, old, failure); \
	} \
	STANDS_FOR(pagewire_##ours, name, version)

ACTION(sigaction);
ACTION(__sigaction);
HANDLER(signal);
HANDLER(bsd_signal);
HANDLER(ssignal);
HANDLER(sysv_signal);
HANDLER(__sysv_signal);
HANDLER(sigset);
ONE(sigignore);
ONE(sighold);
ONE(sigrelse);
ONE(sigblock);
ONE(sigsetmask);
MASK(sigprocmask, sigprocmask, BASE, -1);
/* pthread_sigmask(3) gives the error's number. */
MASK(pthread_sigmask, pthread_sigmask, NEWER, ENOSYS);
MASK(pthread_sigmask_of_old, pthread_sigmask, BASE, ENOSYS);

/* Whether a program's calls come here: this library is searched before the C library, and that has no newer versions. */
__attribute__((constructor)) static void look(void)
{
	int first = dlvsym(RTLD_DEFAULT, "sigaction", BASE) == (void *)pagewire_sigaction &&
		    dlvsym(RTLD_DEFAULT, "signal", BASE) == (void *)pagewire_signal &&
		    dlvsym(RTLD_DEFAULT, "sigprocmask", BASE) == (void *)pagewire_sigprocmask &&
		    dlvsym(RTLD_DEFAULT, "pthread_sigmask", NEWER) == (void *)pagewire_pthread_sigmask;
	int known = dlsym(RTLD_NEXT, "sigaction") == dlvsym(RTLD_NEXT, "sigaction", BASE) &&
		    dlsym(RTLD_NEXT, "signal") == dlvsym(RTLD_NEXT, "signal", BASE) &&
		    dlsym(RTLD_NEXT, "sigprocmask") == dlvsym(RTLD_NEXT, "sigprocmask", BASE) &&
		    dlsym(RTLD_NEXT, "pthread_sigmask") == dlvsym(RTLD_NEXT, "pthread_sigmask", NEWER);

	if (first && known)
		pagewire_changes_are_seen();
}

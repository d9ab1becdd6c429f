/*
 * Sees the program change what happens on signals.
 *
 * The engine touches application memory directly only while its handler for SIGSEGV and SIGBUS is in place and the two
 * are not blocked (crates/memory/src/guard.rs). It looks, remembers what it saw, and must hear of every change. These
 * functions stand before those of the C library. A handler for one of the two is kept by the engine, whose own stays in its
 * place and calls it (crates/memory/src/guard/program.rs); of changed masks the engine is told.
 */
#include "interpose.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>

/* Since then pthread_sigmask is in libc itself; the old name stays for old programs. */
#define NEWER LATER("2.32")

/* In src/signals.rs. */
int pagewire_change_action(int, const struct sigaction *, struct sigaction *);
void pagewire_actions_are_set_by(int (*)(int, const struct sigaction *, struct sigaction *));
void pagewire_mask_has_changed(void);
void pagewire_changes_are_seen(void);

typedef int (*action_function)(int, const struct sigaction *, struct sigaction *);
typedef int (*mask_function)(int, const sigset_t *, sigset_t *);
typedef sighandler_t (*handler_function)(int, sighandler_t);
typedef int (*signal_function)(int);

/* The handlers of these two the engine keeps for the program, and stays in their place. */
static int is_kept(int number)
{
	return number == SIGSEGV || number == SIGBUS;
}

REAL(sigaction, sigaction);

/* The engine must not come by here itself, however early a program begins. */
static int know_real(void)
{
	action_function real = (action_function)next("sigaction", &real_sigaction);

	if (real)
		pagewire_actions_are_set_by(real);
	return real != NULL;
}

static int change_kept(int number, const struct sigaction *new, struct sigaction *old)
{
	if (!know_real()) {
		errno = ENOSYS;
		return -1;
	}
	return pagewire_change_action(number, new, old);
}

static int change_action(const char *name, void **known, int number, const struct sigaction *new,
			 struct sigaction *old)
{
	action_function real;

	if (is_kept(number))
		return change_kept(number, new, old);
	real = (action_function)next(name, known);
	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	return real(number, new, old);
}

/* What signal(2) and its relatives set: its flags, and whether the signal itself stands in its mask. */
static sighandler_t keep_handler(int number, sighandler_t handler, int flags, int masked)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags }, old;

	if (handler == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (masked)
		sigaddset(&action.sa_mask, number);
	return change_kept(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

static sighandler_t change_handler(const char *name, void **known, int number, sighandler_t handler, int flags, int masked)
{
	handler_function real;

	if (is_kept(number))
		return keep_handler(number, handler, flags, masked);
	real = (handler_function)next(name, known);
	if (!real) {
		errno = ENOSYS;
		return SIG_ERR;
	}
	return real(number, handler);
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

/* sighold(3) and the like change the mask. */
static int change_one(const char *name, void **known, int argument)
{
	signal_function real = (signal_function)next(name, known);
	int result;

	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	result = real(argument);
	pagewire_mask_has_changed();
	return result;
}

#define ACTION(name) \
	int pagewire_##name(int number, const struct sigaction *new, struct sigaction *old) \
	{ \
		return change_action(#name, &real_##name, number, new, old); \
	} \
	STANDS_FOR(pagewire_##name, name, BASE)
#define HANDLER(name, flags, masked) \
	REAL(name, name); \
	sighandler_t pagewire_##name(int number, sighandler_t handler) \
	{ \
		return change_handler(#name, &real_##name, number, handler, flags, masked); \
	} \
	STANDS_FOR(pagewire_##name, name, BASE)
#define ONE(name) \
	REAL(name, name); \
	int pagewire_##name(int argument) \
	{ \
		return change_one(#name, &real_##name, argument); \
	} \
	STANDS_FOR(pagewire_##name, name, BASE)
#define MASK(ours, name, version, failure) \
	REAL(ours, name); \
	int pagewire_##ours(int how, const sigset_t *new, sigset_t *old) \
	{ \
		return change_mask(#name, &real_##ours, how, new, old, failure); \
	} \
	STANDS_FOR(pagewire_##ours, name, version)

ACTION(sigaction);
REAL(__sigaction, __sigaction);
ACTION(__sigaction);
HANDLER(signal, SA_RESTART, 1);
HANDLER(bsd_signal, SA_RESTART, 1);
HANDLER(ssignal, SA_RESTART, 1);
HANDLER(sysv_signal, SA_RESETHAND | SA_NODEFER, 0);
HANDLER(__sysv_signal, SA_RESETHAND | SA_NODEFER, 0);
ONE(sighold);
ONE(sigrelse);
ONE(sigblock);
ONE(sigsetmask);
MASK(sigprocmask, sigprocmask, BASE, -1);
/* pthread_sigmask(3) gives the error's number. */
MASK(pthread_sigmask, pthread_sigmask, NEWER, ENOSYS);
MASK(pthread_sigmask_of_old, pthread_sigmask, BASE, ENOSYS);

/* sigset(3): the mask too, and what it was. */
REAL(sigset, sigset);
sighandler_t pagewire_sigset(int number, sighandler_t handler)
{
	struct sigaction now;
	sighandler_t before;
	sigset_t one, mask;

	if (!is_kept(number)) {
		before = change_handler("sigset", &real_sigset, number, handler, 0, 0);
		pagewire_mask_has_changed();
		return before;
	}
	sigemptyset(&one);
	sigaddset(&one, number);
	if (handler == SIG_HOLD) {
		if (change_kept(number, NULL, &now) != 0)
			return SIG_ERR;
		before = now.sa_handler;
	} else {
		before = keep_handler(number, handler, 0, 0);
		if (before == SIG_ERR)
			return SIG_ERR;
	}
	if (pagewire_sigprocmask(handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &one, &mask) != 0)
		return SIG_ERR;
	return sigismember(&mask, number) ? SIG_HOLD : before;
}
STANDS_FOR(pagewire_sigset, sigset, BASE);

REAL(sigignore, sigignore);
int pagewire_sigignore(int number)
{
	if (is_kept(number))
		return keep_handler(number, SIG_IGN, 0, 0) == SIG_ERR ? -1 : 0;
	return change_one("sigignore", &real_sigignore, number);
}
STANDS_FOR(pagewire_sigignore, sigignore, BASE);

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

	if (know_real() && first && known)
		pagewire_changes_are_seen();
}

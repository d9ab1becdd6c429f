/*
 * The program's own handlers of SIGSEGV and SIGBUS. It faults on purpose, as garbage collectors, virtual machines and stack
 * checks do, while the engine's accesses to memory that moves away fault, too. Each sees its own faults and no others.
 */
#include "motion.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* Faults of its own that a run must have seen. */
#define FAULTS_ENOUGH 20
#define STACK_BYTES (64 << 10)

/* AFTER_USE: when the device has been opened and used. BY_OTHERS: the language's runtime sees to it. */
enum when { NEVER, BEFORE, AFTER_USE, REPLACED, BY_OTHERS };

static const struct manner {
	const char *name;
	enum when when;
	int flags;        /* of sigaction(2); 0: signal(2) */
	bool jumps;       /* leaves by siglongjmp(3); else mends the page and returns */
	bool ignored;     /* SIG_IGN instead of a handler */
	bool blocked;     /* both signals, in all threads, from the beginning */
	bool masks;       /* a thread that works with the device blocks and unblocks them */
} manners[] = {
	{ "none", NEVER, 0, false, false, false, false },
	{ "before", BEFORE, SA_SIGINFO, false, false, false, false },
	{ "before-signal", BEFORE, 0, true, false, false, false },
	{ "before-jump", BEFORE, SA_SIGINFO | SA_ONSTACK, true, false, false, false },
	{ "before-nodefer", BEFORE, SA_SIGINFO | SA_NODEFER, true, false, false, false },
	{ "before-reset", BEFORE, SA_SIGINFO | SA_RESETHAND, false, false, false, false },
	{ "before-ignored", BEFORE, 0, false, true, false, false },
	{ "after", AFTER_USE, SA_SIGINFO, false, false, false, false },
	{ "after-signal", AFTER_USE, 0, true, false, false, false },
	{ "after-jump", AFTER_USE, SA_SIGINFO | SA_ONSTACK, true, false, false, false },
	{ "after-ignored", AFTER_USE, 0, false, true, false, false },
	{ "blocked", NEVER, 0, false, false, true, false },
	{ "masked", NEVER, 0, false, false, false, true },
	{ "replaced", REPLACED, SA_SIGINFO, false, false, false, false },
	{ "foreign", BY_OTHERS, 0, false, false, false, false },
	{ "replaced-masked", REPLACED, SA_SIGINFO, true, false, false, true },
};

static const struct manner *manner;
static const int both[] = { SIGSEGV, SIGBUS };
static uint64_t seed;
static pthread_t thread;
static _Atomic bool stop;
static _Atomic size_t faults;

/* What the faulting thread awaits now. */
static __thread sigjmp_buf way_out;
static __thread volatile int awaited; /* the signal */
static __thread char *awaited_at;
static __thread int awaited_file;
static __thread bool jump;
static char other_stack[STACK_BYTES];

static bool on_other_stack(void)
{
	char here;

	return (uintptr_t)&here - (uintptr_t)other_stack < sizeof(other_stack);
}

static void own(int number)
{
	if (awaited != number)
		VIOLATION("the program's handler saw a fault that is not its own (signal %d%s)", number, awaited ? ", another" : "");
}

static void seen(int number, const siginfo_t *info)
{
	char *page;

	own(number);
	if (info && awaited_at && info->si_addr != awaited_at)
		VIOLATION("the program's handler saw a fault at %p instead of %p", info->si_addr, (void *)awaited_at);
	awaited = 0;
	atomic_fetch_add(&faults, 1);
	if (jump)
		siglongjmp(way_out, 1);
	page = (char *)((uintptr_t)awaited_at / page_size() * page_size());
	if (number == SIGSEGV)
		CHECK(mprotect(page, page_size(), PROT_READ | PROT_WRITE) == 0);
	else
		CHECK(ftruncate(awaited_file, page_size()) == 0);
}

static void with_information(int number, siginfo_t *info, void *context)
{
	sigset_t mask;

	own(number);
	CHECK(context && pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
	if (!sigismember(&mask, SIGUSR1) || sigismember(&mask, number) != !(manner->flags & SA_NODEFER))
		VIOLATION("the program's handler runs with a mask that it did not ask for");
	if (on_other_stack() != !!(manner->flags & SA_ONSTACK))
		VIOLATION("the program's handler runs on a stack that it did not ask for");
	if (info->si_code != (number == SIGSEGV ? SEGV_ACCERR : BUS_ADRERR) && awaited_at)
		VIOLATION("the program's handler sees si_code %d", info->si_code);
	seen(number, info);
}

static void without_information(int number)
{
	seen(number, NULL);
}

static void set_handler(int number, int flags)
{
	struct sigaction action = { .sa_flags = flags }, now;

	if (!flags) {
		CHECK(signal(number, without_information) != SIG_ERR);
		CHECK(sigaction(number, NULL, &now) == 0);
		if (now.sa_handler != without_information || now.sa_flags & SA_SIGINFO)
			VIOLATION("sigaction does not give the handler that signal has set");
		return;
	}
	action.sa_sigaction = with_information;
	sigaddset(&action.sa_mask, SIGUSR1);
	CHECK(sigaction(number, &action, NULL) == 0);
	/* What was set is what is there. */
	CHECK(sigaction(number, NULL, &now) == 0);
	if (now.sa_sigaction != with_information || (now.sa_flags & flags) != flags || !sigismember(&now.sa_mask, SIGUSR1))
		VIOLATION("sigaction does not give the handler that was set");
}

static void set_handlers(void)
{
	for (int i = 0; i < 2; i++) {
		if (manner->ignored)
			CHECK(signal(both[i], SIG_IGN) != SIG_ERR);
		else
			set_handler(both[i], manner->flags);
	}
}

/* A page that may not be written to, and one beyond the end of its file. */
static void fault_once(struct random *random, char *page, char *beyond, int file)
{
	int number = both[random_below(random, 2)];
	char *volatile at = (number == SIGSEGV ? page : beyond) + random_below(random, page_size());

	jump = manner->jumps;
	if (number == SIGSEGV)
		CHECK(mprotect(page, page_size(), PROT_READ) == 0);
	else
		CHECK(ftruncate(file, 0) == 0);
	awaited_at = at;
	awaited_file = file;
	if (sigsetjmp(way_out, 1) == 0) {
		awaited = number;
		*(volatile char *)at = 7;
		if (awaited || jump || *at != 7)
			VIOLATION("the program's fault had no effect");
	}
}

/* More stack than there is; the handler has one of its own. */
__attribute__((noinline)) static int deep(int depth)
{
	volatile char some[4096];

	memset((char *)some, depth, sizeof(some));
	return depth > 0 ? deep(depth - 1) + some[depth % sizeof(some)] : 0;
}

static void *overflow(void *unused)
{
	stack_t stack = { .ss_sp = other_stack, .ss_size = sizeof(other_stack) };

	(void)unused;
	CHECK(sigaltstack(&stack, NULL) == 0);
	jump = true;
	awaited_at = NULL;
	if (sigsetjmp(way_out, 1) == 0) {
		awaited = SIGSEGV;
		deep(1 << 20);
		VIOLATION("a stack without an end");
	}
	CHECK(!on_other_stack());
	return NULL;
}

static void overflow_once(void)
{
	pthread_t deep_thread;
	pthread_attr_t attributes;

	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
	CHECK(pthread_create(&deep_thread, &attributes, overflow, NULL) == 0 && pthread_join(deep_thread, NULL) == 0);
	CHECK(pthread_attr_destroy(&attributes) == 0);
}

/* Nobody waits for a fault of the program meanwhile. */
static void replace(struct random *random)
{
	int number = both[random_below(random, 2)];

	switch (random_below(random, 4)) {
	case 0:
		CHECK(signal(number, SIG_DFL) != SIG_ERR);
		break;
	case 1:
		CHECK(signal(number, SIG_IGN) != SIG_ERR);
		break;
	case 2:
		set_handler(number, 0);
		break;
	default:
		set_handler(number, manner->flags);
	}
	pause_up_to(random, 300);
}

static void *fault_often(void *unused)
{
	stack_t stack = { .ss_sp = other_stack, .ss_size = sizeof(other_stack) }, none = { .ss_flags = SS_DISABLE };
	struct random random = { seed + 23 };
	int file = memfd_create("beyond", MFD_CLOEXEC);
	char *page = mmap(NULL, page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *beyond = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	(void)unused;
	CHECK(file >= 0 && page != MAP_FAILED && beyond != MAP_FAILED);
	while (!atomic_load(&stop)) {
		if (manner->when == REPLACED) {
			replace(&random);
			set_handlers();
		}
		CHECK(sigaltstack(&stack, NULL) == 0);
		fault_once(&random, page, beyond, file);
		if (manner->flags & SA_ONSTACK && random_below(&random, 8) == 0) {
			CHECK(sigaltstack(&none, NULL) == 0);
			overflow_once();
		}
		pause_up_to(&random, 500);
	}
	return NULL;
}

void handlers_before(const struct settings *settings)
{
	sigset_t set;

	for (size_t i = 0; i < sizeof(manners) / sizeof(*manners); i++) {
		if (strcmp(manners[i].name, settings->handlers) == 0)
			manner = &manners[i];
	}
	if (!manner) {
		fprintf(stderr, "no manner of handlers is called %s\n", settings->handlers);
		_exit(2);
	}
	seed = settings->seed;
	if (manner->blocked) {
		sigemptyset(&set);
		sigaddset(&set, SIGSEGV);
		sigaddset(&set, SIGBUS);
		CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	}
	if (manner->when == BEFORE)
		set_handlers();
}

static bool faults_itself(void)
{
	return manner->when != NEVER && manner->when != BY_OTHERS && !manner->ignored && !(manner->flags & SA_RESETHAND);
}

void handlers_after(void)
{
	if (manner->when == AFTER_USE)
		set_handlers();
	if (faults_itself())
		CHECK(pthread_create(&thread, NULL, fault_often, NULL) == 0);
}

void handlers_turn(struct random *random)
{
	static __thread int how = SIG_UNBLOCK;
	sigset_t set;

	if (!manner || !manner->masks || random_below(random, 8))
		return;
	how = how == SIG_BLOCK ? SIG_UNBLOCK : SIG_BLOCK;
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	sigaddset(&set, SIGBUS);
	if (random_below(random, 2))
		CHECK(pthread_sigmask(how, &set, NULL) == 0);
	else
		CHECK(sigprocmask(how, &set, NULL) == 0);
}

/* A fault that nobody mends ends a process, with the signal, after its handler has seen it as often as it asked for. */
static void check_death(void)
{
	size_t *times = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *page = mmap(NULL, page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t child;

	CHECK(times != MAP_FAILED && page != MAP_FAILED);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(20);
		awaited = SIGSEGV;
		awaited_at = page;
		*(volatile char *)page = 1;
		if (manner->flags & SA_RESETHAND) {
			/* It mended that fault, and is not there for another. */
			*times = faults;
			CHECK(mprotect(page, page_size(), PROT_NONE) == 0);
			awaited = SIGSEGV;
			*(volatile char *)page = 1;
		}
		_exit(5);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
		VIOLATION("a fault of the program ended it with status 0x%x instead of SIGSEGV", status);
	if (manner->flags & SA_RESETHAND)
		CHECK(*times == 1);
	CHECK(munmap(times, page_size()) == 0 && munmap(page, page_size()) == 0);
}

void handlers_end(void)
{
	if (!faults_itself()) {
		if (!manner->blocked && manner->when != BY_OTHERS)
			check_death();
		return;
	}
	/* As many as promised, however short the run was. */
	for (double limit = seconds() + PATIENCE_SECONDS; atomic_load(&faults) < FAULTS_ENOUGH; usleep(1000))
		CHECK(seconds() < limit);
	atomic_store(&stop, true);
	CHECK(pthread_join(thread, NULL) == 0);
}

/*
 * Counts the instructions of a put, and of a put with its handler, by the native interface on one host. One thread does all but the flush, which the owner's
 * NIC thread answers.
 *
 * Runs under `valgrind --tool=callgrind --collect-atstart=no --separate-threads=yes`, with PAGEWIRE_HEAP_RANGE at 4 GiB: valgrind refuses the
 * address space of the usual one. Makes a dump for each operation, which names it, and prints of how many it is. `make instructions` records
 * the counts.
 *
 * With the name of a walk it does that one operation only, once it has done some that are not counted: `make walks` lists the files that run.
 */
#include <pagewire.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

/* Operations counted, after as many that are not. */
#define COUNT 200
#define PAGE 4096

#define CHECK(call)                                                                     \
	do {                                                                            \
		pw_error error = (call);                                                \
		if (error != PW_OK) {                                                   \
			fprintf(stderr, "%s: %s\n", #call, pw_error_message());         \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

struct target {
	pw_remote *remote;
	/* Of the page's accesses, where they are logged. */
	pw_log *log;
	uint64_t handled;
};

static void count_access(void *context, const pw_access *access)
{
	struct target *target = context;

	(void)access;
	target->handled++;
}

static void put(struct target *target, uint64_t value)
{
	CHECK(pw_put(target->remote, 0, &value, sizeof(value)));
}

static void put_handled(struct target *target, uint64_t value)
{
	put(target, value);
	CHECK(pw_log_poll(target->log, 1, count_access, target, NULL));
}

/* How many instructions the flush takes depends on when the owner's NIC thread answers it. */
static void put_flushed(struct target *target, uint64_t value)
{
	put_handled(target, value);
	CHECK(pw_flush_handled(target->remote, PW_ALL_DOMAINS));
}

static const struct operation {
	const char *name;
	void (*perform)(struct target *, uint64_t);
	int is_logged;
	int is_walk;
} operations[] = {
	{ "native_put_8", put, .is_logged = 0 },
	{ "handled_put_8", put_handled, .is_logged = 1 },
	{ "handled_put", put_flushed, .is_logged = 1, .is_walk = 1 },
};

static const struct operation *find_operation(const char *name)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		if (strcmp(name, operations[i].name) == 0)
			return &operations[i];
	}
	fprintf(stderr, "no operation: %s\n", name);
	exit(2);
}

static void count(const struct operation *operation, struct target *target, int times)
{
	for (int n = 0; n < COUNT; n++)
		operation->perform(target, n);
	CALLGRIND_DUMP_STATS_AT("-");
	CALLGRIND_TOGGLE_COLLECT;
	for (int n = 0; n < times; n++)
		operation->perform(target, n);
	CALLGRIND_TOGGLE_COLLECT;
	CALLGRIND_DUMP_STATS_AT(operation->name);
	printf("%s %d\n", operation->name, times);
	if (operation->is_logged && target->handled != (uint64_t)COUNT + times) {
		fprintf(stderr, "%d accesses, %llu handled\n", COUNT + times, (unsigned long long)target->handled);
		exit(1);
	}
}

/* A page of its own, which logs puts if the operation wants it. */
static struct target make_target(pw_node *owner, pw_node *peer, const struct operation *operation)
{
	struct target target = { 0 };
	pw_token token;
	void *page = aligned_alloc(PAGE, PAGE);

	if (!page)
		exit(1);
	/* A put that finds no page is the owner's to make and to log: the log would have a second source, at which each poll looks. */
	memset(page, 0, PAGE);
	CHECK(pw_export(owner, page, PAGE, PW_READ | PW_WRITE, &token));
	if (operation->is_logged) {
		CHECK(pw_log_make(owner, 1 << 16, 0, 0, &target.log));
		CHECK(pw_set_attributes(owner, &token, 0, PAGE, PW_LOG_PUTS, target.log));
	}
	CHECK(pw_open(peer, &token, &target.remote));
	return target;
}

int main(int words, char **word)
{
	const struct operation *walk = words > 1 ? find_operation(word[1]) : NULL;
	pw_node *owner, *peer;

	CHECK(pw_node_alone(&owner));
	CHECK(pw_node_alone(&peer));
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		struct target target;

		if (walk ? walk != &operations[i] : operations[i].is_walk)
			continue;
		target = make_target(owner, peer, &operations[i]);
		count(&operations[i], &target, walk ? 1 : COUNT);
	}
	fflush(stdout);
	/* What the process would do to end is no part of an operation. */
	_Exit(0);
}

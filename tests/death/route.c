#define _GNU_SOURCE
#include "route.h"

#include "check.h"

#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>

/* How far before an instruction a breakpoint for it is looked for: loops come to the same one many times. */
#define WINDOW 128
/* What coming to a breakpoint and going on costs, in steps. */
#define HIT 3

struct route read_route(const char *file)
{
	struct route route = { 0 };
	FILE *stream = fopen(file, "re");
	struct stat status;

	CHECK(stream && fstat(fileno(stream), &status) == 0);
	route.length = status.st_size / sizeof(*route.addresses);
	CHECK(route.addresses = malloc(status.st_size + 1));
	CHECK(fread(route.addresses, sizeof(*route.addresses), route.length, stream) == route.length);
	fclose(stream);
	return route;
}

void extend_route(struct route *route, uint64_t address)
{
	/* Each power of two. */
	if ((route->length & (route->length - 1)) == 0)
		CHECK(route->addresses = realloc(route->addresses, (2 * route->length + 1) * sizeof(address)));
	route->addresses[route->length++] = address;
}

void write_route(const struct route *route, const char *file)
{
	FILE *stream = fopen(file, "we");

	CHECK(stream);
	CHECK(fwrite(route->addresses, sizeof(*route->addresses), route->length, stream) == route->length);
	CHECK(fclose(stream) == 0);
}

/* Whether an instruction is come to that the one before was not: one that repeats itself is stepped through. */
static int begins(const struct route *route, size_t place)
{
	return place == 0 || route->addresses[place] != route->addresses[place - 1];
}

static size_t times_before(const struct route *route, size_t place)
{
	size_t times = 0;

	for (size_t i = 0; i < place; i++)
		times += route->addresses[i] == route->addresses[place] && begins(route, i);
	return times;
}

struct approach approach_to(const struct route *route, size_t instructions)
{
	struct approach best = { 0, 0, instructions };
	size_t cost = instructions;

	for (size_t steps = 0; steps <= WINDOW && steps <= instructions && steps < cost; steps++) {
		size_t hits;

		if (!begins(route, instructions - steps))
			continue;
		hits = times_before(route, instructions - steps) + 1;
		if (HIT * hits + steps >= cost)
			continue;
		cost = HIT * hits + steps;
		best = (struct approach){ route->addresses[instructions - steps], hits, steps };
	}
	return best;
}

int set_breakpoint(pid_t thread, uint64_t address)
{
#ifdef __x86_64__
	/* Debug register 7: register 0 is on, for execution. */
	const size_t at = offsetof(struct user, u_debugreg);
	const size_t word = sizeof(((struct user *)0)->u_debugreg[0]);

	if (ptrace(PTRACE_POKEUSER, thread, at + 7 * word, 0) != 0)
		return 0;
	return address == 0 || (ptrace(PTRACE_POKEUSER, thread, at, address) == 0 &&
				ptrace(PTRACE_POKEUSER, thread, at + 7 * word, 1) == 0);
#else
	(void)thread;
	return address == 0;
#endif
}

uint64_t return_address(pid_t thread)
{
#ifdef __x86_64__
	uint64_t stack = ptrace(PTRACE_PEEKUSER, thread, offsetof(struct user, regs.rsp), 0);

	return ptrace(PTRACE_PEEKDATA, thread, stack, 0);
#else
	(void)thread;
	return 0;
#endif
}

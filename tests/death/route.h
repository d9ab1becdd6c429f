/* The instructions that an operation executes, recorded once: another victim comes to one of them by a breakpoint of the processor,
 * and not by as many steps, each of which is a trap and two changes of processes. */
#ifndef ROUTE_H
#define ROUTE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Addresses, in the order of execution; each is that of the next instruction when so many have been executed. */
struct route {
	uint64_t *addresses;
	size_t length;
};

/* A part of it: to the place at which an address comes for the `hits`th time, and so many steps from there. */
struct approach {
	uint64_t address;
	size_t hits, steps;
};

/* What was recorded to a file. None: its length is 0. */
struct route read_route(const char *file);

/* Adds the next address to a route that is recorded. */
void extend_route(struct route *route, uint64_t address);
void write_route(const struct route *route, const char *file);

/* The quickest way to where so many instructions, fewer than the route has, are executed. */
struct approach approach_to(const struct route *route, size_t instructions);

/* Has a stopped thread stop again before it executes the instruction at an address; 0: no more. Gives 0 where that cannot be had. */
int set_breakpoint(pid_t thread, uint64_t address);

/* Where a stopped thread that has just been called returns to. */
uint64_t return_address(pid_t thread);

#endif

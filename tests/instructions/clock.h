/*
 * The engine's clock under valgrind: both processes of a pair read it from one shared page, and a program sets it. What the
 * engine does at times (looking at pages anew, offering the processor) then happens after the same operations in each run,
 * however slow the machine is.
 *
 * valgrind replaces the function by which rustix reads a clock without the vDSO, which valgrind hides. Until `set_clock` the
 * time is the kernel's. Outside valgrind nothing changes.
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/valgrind.h>

/* The kernel's coarse clock advances by so many nanoseconds at once. */
#define TICK_NANOSECONDS 4000000
#define SECOND_NANOSECONDS 1000000000ull

/* Nanoseconds of CLOCK_MONOTONIC; 0: the kernel's time. */
static volatile uint64_t *shared_clock;
/* Times that the engine has read the shared clock. */
static uint64_t clock_reads;

/* Before the fork that makes the other process. */
static inline void share_clock(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	shared_clock = page;
}

/* From now on the time is `shared_clock`: the next whole second but one, so that all that was noted before is old. */
static inline void set_clock(void)
{
	struct timespec now;

	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	*shared_clock = (now.tv_sec + 2) * SECOND_NANOSECONDS;
}

static inline void advance_clock(uint64_t nanoseconds)
{
	*shared_clock += nanoseconds;
}

/* Stands for `*clock_gettime_via_syscall*` of libpagewire.so.1. */
int I_WRAP_SONAME_FNNAME_ZZ(libpagewireZdsoZd1, ZaclockZugettimeZuviaZusyscallZa)(clockid_t clock, struct timespec *time)
{
	uint64_t now = shared_clock ? *shared_clock : 0;

	if (!now)
		return syscall(SYS_clock_gettime, clock, time);
	clock_reads++;
	if (clock == CLOCK_MONOTONIC_COARSE)
		now -= now % TICK_NANOSECONDS;
	time->tv_sec = now / SECOND_NANOSECONDS;
	time->tv_nsec = now % SECOND_NANOSECONDS;
	return 0;
}

#endif

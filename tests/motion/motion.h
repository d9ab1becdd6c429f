/*
 * Memory in motion: two ends of an RC connection, of which one's registered memory is unmapped, moved, truncated, protected,
 * forked away, deregistered, under the traffic of both. Right data or an error completion is allowed; a crash, a hang, a
 * byte changed outside the region, or an access after ibv_dereg_mr has returned is not.
 *
 * traffic.c   both ends: requests of all kinds, their completions, and what their bytes must be
 * moves.c     what the moving end does to its memory
 * renewal.c   deregistration, registration elsewhere, and the watch over memory that is no longer registered
 * handlers.c  the program's own handlers of SIGSEGV and SIGBUS
 * motion.c    arguments, the two processes, the end
 */
#ifndef MOTION_H
#define MOTION_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "connect.h"
#include "pattern.h"
#include "random.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Registered memory begins and ends that far inside its first and last page: the rest must stay as it is. */
#define MARGIN 64
/* Each end's requests use slots of their own: two for WRITE and READ, two for SEND. */
#define SLOTS 8
/* Requests that must succeed of every kind at each end before a run is at its end. */
#define ENOUGH 30

enum kind { SEND, WRITE, WRITE_IMM, READ, FETCH_ADD, COMPARE_SWAP, KINDS };

/* A program is given up when it has not ended by then: it hangs. */
#define LIMIT_SECONDS 240

#define VIOLATION(...)                                                  \
	do {                                                            \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);         \
		fprintf(stderr, __VA_ARGS__);                           \
		fputc('\n', stderr);                                    \
		_exit(1);                                               \
	} while (0)

static inline void pause_up_to(struct random *random, size_t microseconds)
{
	size_t length = random_below(random, microseconds + 1);

	/* Often none: the moment at which things meet shall not always be that of a thread that has just slept. */
	if (length > microseconds / 4)
		usleep(length);
}

struct settings {
	const char *move;     /* a name of moves.c */
	const char *handlers; /* a name of handlers.c */
	uint64_t seed;
	size_t rounds;        /* moves at least */
	bool together;        /* both ends in one process */
	bool quiet;           /* no summary */
};

/* What the moving end tells its peer about its memory. The keys stay those of the last registration when it has ended. */
struct published {
	uint64_t address;
	uint32_t lkey, rkey;
};

/* Memory that is registered in turn with another one. */
struct area {
	char *base;    /* of the first page; a page that does not move lies before it and behind it */
	size_t bytes;  /* of all pages */
	int file;      /* what is mapped, or -1 */
	int segment;   /* System V shared memory, or -1 */
};

struct move;

struct mover {
	const struct settings *settings;
	const struct move *move;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct area areas[2];
	int current;
	size_t length;              /* registered bytes */
	struct random random;
	pthread_mutex_t renewing;   /* held while nothing is registered and the memory has another pattern */
	_Atomic uint64_t generation; /* odd while the pattern is another one */
	pthread_mutex_t publishing;
	struct published published;
	_Atomic size_t rounds;
	_Atomic size_t renewals, busy;
	_Atomic bool stop;
};

/* moves.c */
enum { FAULTS = 1, ZEROES = 2, REPLACES = 4 };
enum backing { ANONYMOUS, MEMORY_FILE, DISK_FILE, SHARED_MEMORY, BREAK };
struct move {
	const char *name;
	int flags;             /* FAULTS: requests may fail. ZEROES: bytes become 0, or the mover's. REPLACES: only the mover's */
	enum backing backing;
	void (*run)(struct mover *, struct area *);
	void (*prepare)(struct mover *, struct area *);
};
extern const struct move moves[];
const struct move *move_named(const char *name);
void make_area(struct mover *mover, struct area *area, int number);
/* Fills the registered part with a class, and what lies around it with its own. */
void fill_area(struct mover *mover, struct area *area, unsigned char class);
/* Ends the program if a byte is not what it may be. */
void check_area(struct mover *mover, struct area *area, const char *when);

/* renewal.c */
void first_registration(struct mover *mover);
void renew(struct mover *mover);
void last_deregistration(struct mover *mover);
struct published what_is_published(struct mover *mover);

/* traffic.c */
struct end;
struct end *make_end(int number, int control, const struct settings *settings, size_t slot, struct mover *mover,
		     struct ibv_context *context);
/* Until the mover has had its rounds and every kind of request has succeeded often enough at both ends. */
void run_end(struct end *end);
void say_end(struct end *end);
struct ibv_pd *pd_of(struct end *end);

/* handlers.c */
/* What a program does about its signals before it opens a device, when it has used it, and while it uses it. */
void handlers_before(const struct settings *settings);
void handlers_after(void);
/* Now and then in a thread that works with the device. */
void handlers_turn(struct random *random);
void handlers_end(void);

/* motion.c */
int motion_main(int argc, char **argv);

static inline size_t page_size(void)
{
	static size_t size;

	if (!size)
		size = sysconf(_SC_PAGESIZE);
	return size;
}

#endif

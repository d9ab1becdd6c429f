/* Random numbers by a seed (SplitMix64), for the C test programs. One state for each thread. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state;
};

static inline uint64_t next_random(struct random *random)
{
	uint64_t word = random->state += 0x9e3779b97f4a7c15;

	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
	word = (word ^ word >> 27) * 0x94d049bb133111eb;
	return word ^ word >> 31;
}

/* A number below the bound. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
	return next_random(random) % bound;
}

#endif

/* Random numbers by a seed, which is in `state`. */
#ifndef DRAW_H
#define DRAW_H

#include <stdint.h>

static uint64_t state;

/* SplitMix64. */
static uint64_t draw(void)
{
	uint64_t word = state += 0x9E3779B97F4A7C15;

	word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9;
	word = (word ^ word >> 27) * 0x94D049BB133111EB;
	return word ^ word >> 31;
}

static uint64_t below(uint64_t bound)
{
	return draw() % bound;
}

#endif

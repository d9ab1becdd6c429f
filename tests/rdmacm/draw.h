/* Random numbers by a seed, which is in `random_numbers`. */
#ifndef DRAW_H
#define DRAW_H

#include "random.h"

static struct random random_numbers;

static uint64_t draw(void)
{
	return next_random(&random_numbers);
}

static uint64_t below(uint64_t bound)
{
	return random_below(&random_numbers, bound);
}

#endif

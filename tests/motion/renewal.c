/* Registration ends under traffic: from the moment ibv_dereg_mr returns the memory is the program's alone. */
#include "motion.h"

struct published what_is_published(struct mover *mover)
{
	struct published published;

	CHECK(pthread_mutex_lock(&mover->publishing) == 0);
	published = mover->published;
	CHECK(pthread_mutex_unlock(&mover->publishing) == 0);
	return published;
}

static void publish(struct mover *mover)
{
	struct area *area = &mover->areas[mover->current];

	CHECK(pthread_mutex_lock(&mover->publishing) == 0);
	mover->published = (struct published){ (uintptr_t)area->base + MARGIN, mover->mr->lkey, mover->mr->rkey };
	CHECK(pthread_mutex_unlock(&mover->publishing) == 0);
}

static void register_current(struct mover *mover)
{
	mover->mr = ibv_reg_mr(mover->pd, mover->areas[mover->current].base + MARGIN, mover->length, ALL_ACCESS);
	CHECK(mover->mr);
	publish(mover);
}

void first_registration(struct mover *mover)
{
	register_current(mover);
}

static void deregister(struct mover *mover)
{
	int error;

	/* A peer that got no processor for two seconds, with an access in its hands, is no fault. */
	for (int attempt = 0; attempt < 10; attempt++) {
		error = ibv_dereg_mr(mover->mr);
		if (error != EBUSY)
			break;
		atomic_fetch_add(&mover->busy, 1);
	}
	CHECK(error == 0);
	mover->mr = NULL;
}

/* Nobody may see or change what the program does with its memory now. */
static void watch(struct mover *mover, struct area *area)
{
	size_t looks = 1 + random_below(&mover->random, 3);

	fill_area(mover, area, AFTER);
	for (size_t look = 0; look < looks; look++) {
		pause_up_to(&mover->random, 2000);
		size_t wrong = first_not(area->base + MARGIN, AFTER, 0, mover->length);

		if (wrong != mover->length)
			VIOLATION("byte %zu became 0x%02x after ibv_dereg_mr had returned", wrong,
				  (unsigned char)area->base[MARGIN + wrong]);
	}
	fill_area(mover, area, MOVER);
}

void renew(struct mover *mover)
{
	struct area *before = &mover->areas[mover->current];
	bool elsewhere = mover->areas[1].base && random_below(&mover->random, 2);
	struct area *after = elsewhere ? &mover->areas[1 - mover->current] : before;

	CHECK(pthread_mutex_lock(&mover->renewing) == 0);
	atomic_fetch_add(&mover->generation, 1);
	if (elsewhere && random_below(&mover->random, 2)) {
		/* The key may stay the same, what it means does not. */
		CHECK(ibv_rereg_mr(mover->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, after->base + MARGIN, mover->length, 0) ==
		      0);
		mover->current = 1 - mover->current;
		publish(mover);
		check_area(mover, before, "after ibv_rereg_mr");
		watch(mover, before);
	} else {
		deregister(mover);
		check_area(mover, before, "after ibv_dereg_mr");
		watch(mover, before);
		if (elsewhere)
			mover->current = 1 - mover->current;
		register_current(mover);
	}
	atomic_fetch_add(&mover->generation, 1);
	CHECK(pthread_mutex_unlock(&mover->renewing) == 0);
	atomic_fetch_add(&mover->renewals, 1);
}

void last_deregistration(struct mover *mover)
{
	struct area *area = &mover->areas[mover->current];

	CHECK(pthread_mutex_lock(&mover->renewing) == 0);
	atomic_fetch_add(&mover->generation, 1);
	deregister(mover);
	check_area(mover, area, "at the end");
	watch(mover, area);
	CHECK(pthread_mutex_unlock(&mover->renewing) == 0);
}

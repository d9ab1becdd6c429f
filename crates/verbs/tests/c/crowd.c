/*
 * A thousand threads make queue pairs at once: each gets some. What the process keeps of that when all are gone is bounded: two sockets for each 256
 * numbers of queue pairs that it has leased, and it has leased no more than twice what it needed.
 */
#include "connect.h"

#include <fcntl.h>
#include <pthread.h>

#define THREADS 1000
#define EACH 2
/* Sockets that belong to no block: of peers, and of steering. */
#define OTHERS 24

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static pthread_barrier_t barrier;

static void *make(void *unused)
{
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *made[EACH];

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < EACH; i++) {
		made[i] = ibv_create_qp(pd, &init);
		CHECK(made[i]);
	}
	/* All are there at the same time. */
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < EACH; i++)
		CHECK(!ibv_destroy_qp(made[i]));
	return unused;
}

static int descriptors(void)
{
	int count = 0;

	for (int i = 0; i < 4096; i++)
		count += fcntl(i, F_GETFD) >= 0;
	return count;
}

int main(void)
{
	static pthread_t threads[THREADS];
	struct ibv_context *context = open_first_device();
	int before = descriptors(), blocks = (THREADS * EACH + 255) / 256, kept;
	pthread_attr_t small;

	CHECK(!pthread_attr_init(&small) && !pthread_attr_setstacksize(&small, 65536));
	CHECK(!pthread_barrier_init(&barrier, NULL, THREADS));
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], &small, make, NULL));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	kept = descriptors() - before;
	if (kept > 2 * 2 * blocks + OTHERS) {
		fprintf(stderr, "%d descriptors are kept for %d queue pairs that are gone\n", kept, THREADS * EACH);
		return 1;
	}
	return 0;
}

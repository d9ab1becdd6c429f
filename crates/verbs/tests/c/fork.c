/* After fork the parent goes on; the child has no NIC, its parent's objects are refused, and it can open a device of its own. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 300

static void in_child(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad = NULL;
	struct ibv_context *own;
	struct ibv_wc wc;

	CHECK(ibv_poll_cq(cq, 1, &wc) < 0);
	CHECK(ibv_post_recv(qp, &wr, &bad) == EIO && bad == &wr);
	REFUSED(ibv_alloc_pd(context), EIO);
	CHECK(ibv_destroy_qp(qp) == EIO);
	CHECK(ibv_destroy_cq(cq) == EIO);
	CHECK(ibv_dealloc_pd(pd) == EIO);
	CHECK(ibv_close_device(context) == -1 && errno == EIO);
	own = open_first_device();
	pd = ibv_alloc_pd(own);
	CHECK(pd);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(own) == 0);
}

static volatile int finished;

/* What a child may do whatever other threads of its parent were at. */
static void open_in_child(void)
{
	alarm(30);
	CHECK(ibv_close_device(open_first_device()) == 0);
}

static void *open_often(void *unused)
{
	while (!finished)
		CHECK(ibv_close_device(open_first_device()) == 0);
	return unused;
}

/* Other threads are at work in the library at the moment of the fork, and wait for each other. */
static void fork_often(void)
{
	pthread_t threads[6];
	int result;

	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&threads[i], NULL, open_often, NULL) == 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0) {
			open_in_child();
			_exit(0);
		}
		CHECK(waitpid(child, &result, 0) == child);
		CHECK(WIFEXITED(result) && WEXITSTATUS(result) == 0);
	}
	finished = 1;
	for (int i = 0; i < 6; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_wc wc;
	int result;
	pid_t child;

	alarm(120);
	CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		in_child(context, pd, cq, qp);
		_exit(0);
	}
	CHECK(waitpid(child, &result, 0) == child);
	CHECK(WIFEXITED(result) && WEXITSTATUS(result) == 0);
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	fork_often();
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

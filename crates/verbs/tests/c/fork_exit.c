/* Parent and child each open a device and end by exit(3): what the library does then concerns the own queue pairs only. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static void destroy_one_queue_pair(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void use_a_device(int queue_pairs)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);

	CHECK(pd && cq);
	while (queue_pairs-- > 0)
		destroy_one_queue_pair(pd, cq);
}

int main(void)
{
	int result;
	pid_t child;

	use_a_device(2);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		use_a_device(1);
		exit(0);
	}
	CHECK(waitpid(child, &result, 0) == child);
	CHECK(WIFEXITED(result) && WEXITSTATUS(result) == 0);
	return 0;
}

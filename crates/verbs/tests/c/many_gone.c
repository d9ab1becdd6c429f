/* More queue pairs end than the statistics keep (1024). */
#include "check.h"

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	int created;

	CHECK(pd && cq);
	for (created = 0; created < 1030; created++) {
		struct ibv_qp *qp = ibv_create_qp(pd, &init);

		CHECK(qp);
		CHECK(ibv_destroy_qp(qp) == 0);
	}
	return 0;
}

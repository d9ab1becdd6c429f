/* Is refused RTR for the reason that the argument names; its standard error is looked at. */
#include "connect.h"

int main(int count, char **arguments)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr;

	CHECK(count == 2 && qp);
	to_open_init(qp);
	attr = usual_attributes(context, qp->qp_num);
	attr.qp_state = IBV_QPS_RTR;
	if (strcmp(arguments[1], "grh") == 0)
		attr.ah_attr.is_global = 0;
	else if (strcmp(arguments[1], "family") == 0)
		/* The own GID is of IPv4: ::ffff:a.b.c.d. */
		attr.ah_attr.grh.dgid.raw[10] = 0;
	else if (strcmp(arguments[1], "mtu") == 0)
		attr.path_mtu = 6;
	else
		CHECK(!"an argument that is known");
	CHECK(ibv_modify_qp(qp, &attr, RTR_MASK(IBV_QPT_RC)) == EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}

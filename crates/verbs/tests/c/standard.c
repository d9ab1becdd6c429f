/* A program without standard input, output and error: what it writes to them by mistake, or opens and expects there, must
 * not be the engine's. */
#include "connect.h"

#include <fcntl.h>

#define MESSAGES 104

static void use(struct ibv_context *context, struct ibv_comp_channel *channel)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	char *memory = calloc(2, 4096);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * 4096, ALL_ACCESS);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_sge from = { (uintptr_t)memory, 4096, mr->lkey }, to = { (uintptr_t)memory + 4096, 4096, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;
	struct ibv_qp *one, *two;
	struct ibv_wc wc;

	one = ibv_create_qp(pd, &init);
	two = ibv_create_qp(pd, &init);
	CHECK(one && two);
	connect_pair(one, two);
	CHECK(ibv_post_recv(two, &receive, &bad_receive) == 0 && ibv_post_send(one, &wr, &bad) == 0);
	poll_all(cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	free(memory);
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	int taken[3];

	CHECK(dup2(STDERR_FILENO, MESSAGES) == MESSAGES);
	for (int standard = 0; standard < 3; standard++)
		close(standard);
	context = open_first_device();
	channel = ibv_create_comp_channel(context);
	CHECK(channel);
	use(context, channel);
	for (int standard = 0; standard < 3; standard++)
		taken[standard] = fcntl(standard, F_GETFD) != -1;
	CHECK(dup2(MESSAGES, STDERR_FILENO) == STDERR_FILENO);
	CHECK(!taken[0] && !taken[1] && !taken[2]);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_close_device(context) == 0);
	return 0;
}

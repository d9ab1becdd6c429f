/*
 * Scatter-gather lists at odd addresses, as packed structures have them: adapters take them. Two elements each, in requests that
 * stand in one list.
 */
#include "connect.h"

#define PIECES 2
#define BYTES 8

struct __attribute__((packed)) packed_list {
	char odd;
	struct ibv_sge pieces[PIECES];
};

static struct ibv_sge *fill_list(struct packed_list *list, const struct ibv_mr *mr, char *bytes)
{
	struct ibv_sge *pieces = (void *)(&list->odd + 1);

	for (int i = 0; i < PIECES; i++) {
		struct ibv_sge piece = { (uintptr_t)bytes + i * BYTES, BYTES, mr->lkey };

		memcpy((char *)pieces + i * sizeof(piece), &piece, sizeof(piece));
	}
	return pieces;
}

int main(void)
{
	static char buffer[4][PIECES * BYTES];
	static struct packed_list lists[4];
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = PIECES, .max_recv_sge = PIECES, .max_inline_data = 64 },
	};
	struct ibv_recv_wr receives[2] = { 0 }, *bad_receive;
	struct ibv_send_wr sends[2] = { 0 }, *bad_send;
	struct ibv_qp *one, *two;
	struct ibv_wc wc[2];
	struct ibv_mr *mr;

	alarm(60);
	init.send_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	init.recv_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), ALL_ACCESS);
	CHECK(init.send_cq && init.recv_cq && mr);
	one = ibv_create_qp(pd, &init);
	two = ibv_create_qp(pd, &init);
	CHECK(one && two);
	connect_pair(one, two);
	for (int i = 0; i < 2; i++) {
		memset(buffer[i], 0x11 * (i + 1), sizeof(buffer[i]));
		sends[i] = (struct ibv_send_wr){ .sg_list = fill_list(&lists[i], mr, buffer[i]), .num_sge = PIECES,
						 .opcode = IBV_WR_SEND, .send_flags = i ? IBV_SEND_INLINE : 0 };
		receives[i] = (struct ibv_recv_wr){ .sg_list = fill_list(&lists[2 + i], mr, buffer[2 + i]), .num_sge = PIECES };
	}
	sends[0].next = &sends[1];
	receives[0].next = &receives[1];
	CHECK(ibv_post_recv(two, receives, &bad_receive) == 0);
	CHECK(ibv_post_send(one, sends, &bad_send) == 0);
	poll_all(init.send_cq, 2, wc);
	poll_all(init.recv_cq, 2, wc);
	CHECK(wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS);
	CHECK(memcmp(buffer[0], buffer[2], sizeof(buffer[0])) == 0 && memcmp(buffer[1], buffer[3], sizeof(buffer[1])) == 0);
	return 0;
}

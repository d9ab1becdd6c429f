/* Multicast groups (ibv_attach_mcast(3)): who gets a datagram of a group, and what is refused. */
#include "connect.h"

#define GRH 40
#define RECEIVES 4

static const union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, 192, 7, 9 } };
static const union ibv_gid other_group = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, 192, 7, 10 } };

struct member {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[RECEIVES][GRH + 64];
};

static void make_member(struct member *member, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { 8, 8, 1, 1, 64 }, .sq_sig_all = 1 };

	member->cq = ibv_create_cq(pd->context, 16, NULL, NULL, 0);
	CHECK(member->cq);
	init.send_cq = init.recv_cq = member->cq;
	member->qp = ibv_create_qp(pd, &init);
	member->mr = ibv_reg_mr(pd, member->memory, sizeof(member->memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(member->qp && member->mr);
	to_open_init(member->qp);
	to_rtr(member->qp, 0);
	to_rts(member->qp);
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_sge sge = { (uintptr_t)member->memory[i], sizeof(member->memory[i]), member->mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		CHECK(ibv_post_recv(member->qp, &wr, &bad) == 0);
	}
}

static void end_member(struct member *member)
{
	CHECK(ibv_destroy_qp(member->qp) == 0);
	CHECK(ibv_dereg_mr(member->mr) == 0);
	CHECK(ibv_destroy_cq(member->cq) == 0);
}

/* Sends to a group, and waits for the send's completion. */
static void send_to(struct member *sender, struct ibv_ah *ah, const char *text)
{
	struct ibv_sge sge = { (uintptr_t)text, 16, 0 };
	struct ibv_send_wr wr = {
		.wr_id = 100, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE,
		.wr = { .ud = { .ah = ah, .remote_qpn = 0xFFFFFF, .remote_qkey = QKEY } },
	}, *bad;

	CHECK(ibv_post_send(sender->qp, &wr, &bad) == 0);
}

static void expect(struct member *member, struct member *sender, const char *text)
{
	struct ibv_wc wc;

	poll_all(member->cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == GRH + 16);
	CHECK(wc.src_qp == sender->qp->qp_num && (wc.wc_flags & IBV_WC_GRH));
	CHECK(strcmp(member->memory[wc.wr_id] + GRH, text) == 0);
	/* The IPv4 header in the last 20 bytes of the GRH's place names the group. */
	CHECK(memcmp(member->memory[wc.wr_id] + GRH - 4, group.raw + 12, 4) == 0);
}

static void expect_sent(struct member *sender)
{
	struct ibv_wc wc;

	poll_all(sender->cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 100);
}

static void refusals(struct ibv_pd *pd, struct member *member)
{
	union ibv_gid own;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1 } };
	struct ibv_qp *connected;

	CHECK(ibv_query_gid(pd->context, 1, gid_index(pd->context), &own) == 0);
	CHECK(ibv_attach_mcast(member->qp, &own, 0) == EINVAL);
	CHECK(ibv_detach_mcast(member->qp, &group, 0) == EINVAL);
	init.send_cq = init.recv_cq = member->cq;
	connected = ibv_create_qp(pd, &init);
	CHECK(connected && ibv_attach_mcast(connected, &group, 0) == EINVAL);
	CHECK(ibv_destroy_qp(connected) == 0);
	/* Twice is once. */
	CHECK(ibv_attach_mcast(member->qp, &group, 0) == 0);
	CHECK(ibv_attach_mcast(member->qp, &group, 0) == 0);
	CHECK(ibv_destroy_qp(member->qp) == EBUSY);
	CHECK(ibv_detach_mcast(member->qp, &other_group, 0) == EINVAL);
	CHECK(ibv_detach_mcast(member->qp, &group, 0) == 0);
	CHECK(ibv_detach_mcast(member->qp, &group, 0) == EINVAL);
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_ah_attr to = to_own_host(context);
	struct ibv_device_attr device;
	static struct member members[3];
	struct ibv_ah *ah;

	CHECK(pd && ibv_query_device(context, &device) == 0);
	CHECK(device.max_mcast_grp > 0 && device.max_mcast_qp_attach > 0 && device.max_total_mcast_qp_attach > 0);
	to.grh.dgid = group;
	ah = ibv_create_ah(pd, &to);
	CHECK(ah);
	for (int i = 0; i < 3; i++)
		make_member(&members[i], pd);
	refusals(pd, &members[0]);
	CHECK(ibv_attach_mcast(members[0].qp, &group, 0) == 0);
	CHECK(ibv_attach_mcast(members[1].qp, &group, 0) == 0);
	CHECK(ibv_attach_mcast(members[2].qp, &other_group, 0) == 0);
	send_to(&members[2], ah, "to all of them.");
	expect_sent(&members[2]);
	expect(&members[0], &members[2], "to all of them.");
	expect(&members[1], &members[2], "to all of them.");
	poll_none(members[2].cq);
	/* Who has left gets no more. */
	CHECK(ibv_detach_mcast(members[0].qp, &group, 0) == 0);
	send_to(&members[2], ah, "to one of them..");
	expect_sent(&members[2]);
	poll_all(members[1].cq, 1, &(struct ibv_wc){ 0 });
	poll_none(members[0].cq);
	CHECK(ibv_detach_mcast(members[1].qp, &group, 0) == 0);
	CHECK(ibv_detach_mcast(members[2].qp, &other_group, 0) == 0);
	for (int i = 0; i < 3; i++)
		end_member(&members[i]);
	CHECK(ibv_destroy_ah(ah) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

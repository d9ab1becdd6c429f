/*
 * A datagram's completion says in `sl` of which IP version the header in front of it is, as mlx5's do (UCX finds the
 * destination address by it and drops datagrams that do not say so). A datagram to each GID of the own device.
 */
#include "connect.h"

#define GRH_BYTES 40
#define PAYLOAD 64

/* Bit 3: over UDP. Bits 0 and 1: IPv6, IPv4. */
#define PACKET_TYPE_IPV6 9
#define PACKET_TYPE_IPV4 10

struct side {
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char memory[2 * (GRH_BYTES + PAYLOAD)];
};

static void open_side(struct side *side, struct ibv_context *context)
{
	struct ibv_qp_init_attr init = plain_attributes(NULL, IBV_QPT_UD);

	side->pd = ibv_alloc_pd(context);
	init.send_cq = side->send_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	init.recv_cq = side->recv_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	init.sq_sig_all = 1;
	CHECK(side->pd && side->send_cq && side->recv_cq);
	side->qp = ibv_create_qp(side->pd, &init);
	side->mr = ibv_reg_mr(side->pd, side->memory, sizeof(side->memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(side->qp && side->mr);
	to_open_init(side->qp);
	to_rtr(side->qp, 0);
	to_rts(side->qp);
}

/* Sends a datagram to a GID of this device; gives the completion of its receive. */
static struct ibv_wc send_to(struct side *side, struct ibv_ah_attr *address)
{
	struct ibv_sge into = { (uintptr_t)side->memory, GRH_BYTES + PAYLOAD, side->mr->lkey };
	struct ibv_sge from = { (uintptr_t)side->memory + GRH_BYTES + PAYLOAD, PAYLOAD, side->mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1 }, *bad_send;
	struct ibv_ah *ah = ibv_create_ah(side->pd, address);
	struct ibv_wc wc;

	CHECK(ah);
	send.wr.ud.ah = ah;
	send.wr.ud.remote_qpn = side->qp->qp_num;
	send.wr.ud.remote_qkey = QKEY;
	memset(side->memory, 0, sizeof(side->memory));
	CHECK(ibv_post_recv(side->qp, &receive, &bad_receive) == 0);
	CHECK(ibv_post_send(side->qp, &send, &bad_send) == 0);
	poll_all(side->send_cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.sl == 0);
	poll_all(side->recv_cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wc_flags == IBV_WC_GRH);
	CHECK(ibv_destroy_ah(ah) == 0);
	return wc;
}

/* The destination address stands where the packet type says. */
static void check_type(const struct side *side, const struct ibv_wc *wc, const union ibv_gid *gid)
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	const struct ibv_grh *grh = (const struct ibv_grh *)side->memory;

	if (memcmp(gid->raw, mapped, sizeof(mapped)) == 0) {
		CHECK(wc->sl == PACKET_TYPE_IPV4);
		CHECK(memcmp(side->memory + GRH_BYTES - 4, gid->raw + sizeof(mapped), 4) == 0);
	} else {
		CHECK(wc->sl == PACKET_TYPE_IPV6);
		CHECK(memcmp(grh->dgid.raw, gid->raw, sizeof(gid->raw)) == 0);
	}
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_ah_attr address = to_own_host(context), reply;
	struct ibv_gid_entry entries[64];
	static struct side side;
	struct ibv_wc wc;
	ssize_t count = ibv_query_gid_table(context, entries, 64, 0);

	CHECK(count > 0);
	open_side(&side, context);
	for (ssize_t i = 0; i < count; i++) {
		address.grh.sgid_index = entries[i].gid_index;
		address.grh.dgid = entries[i].gid;
		wc = send_to(&side, &address);
		check_type(&side, &wc, &address.grh.dgid);
		/* It is no service level for the answer to be refused for. */
		CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)side.memory, &reply) == 0);
		send_to(&side, &reply);
	}
	CHECK(ibv_destroy_qp(side.qp) == 0 && ibv_dereg_mr(side.mr) == 0);
	CHECK(ibv_destroy_cq(side.send_cq) == 0 && ibv_destroy_cq(side.recv_cq) == 0 && ibv_dealloc_pd(side.pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

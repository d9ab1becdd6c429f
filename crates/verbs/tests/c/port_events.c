/* Events of a port: addresses that are added and removed, and a link that goes down and comes back. The program runs in a network namespace of
 * its own, in which it may change devices. */
#include "connect.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdarg.h>

/* Runs a command of ip-route2. */
static void ip(const char *words)
{
	char line[200];

	snprintf(line, sizeof(line), "ip %s", words);
	CHECK(system(line) == 0);
}

static union ibv_gid gid_of(const char *address)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	CHECK(inet_pton(AF_INET, address, gid.raw + 12) == 1);
	return gid;
}

/* Waits for an event of this kind of port 1; others of the port may come before it. */
static void wait_for(struct ibv_context *context, enum ibv_event_type kind)
{
	struct ibv_async_event event = { .event_type = -1 };
	double end = seconds() + PATIENCE_SECONDS;

	while (event.event_type != kind) {
		struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };

		CHECK(seconds() < end);
		if (poll(&fd, 1, 1000) != 1)
			continue;
		CHECK(ibv_get_async_event(context, &event) == 0);
		CHECK(event.element.port_num == 1);
		ibv_ack_async_event(&event);
	}
}

/* Reads events that wait, so that those that follow have another cause. */
static void drop_events(struct ibv_context *context)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };

	while (poll(&fd, 1, 300) == 1) {
		struct ibv_async_event event;

		CHECK(ibv_get_async_event(context, &event) == 0);
		ibv_ack_async_event(&event);
	}
}

static int place_of(struct ibv_context *context, union ibv_gid wanted)
{
	struct ibv_port_attr port;
	union ibv_gid gid;

	CHECK(ibv_query_port(context, 1, &port) == 0);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		CHECK(ibv_query_gid(context, 1, i, &gid) == 0);
		if (memcmp(&gid, &wanted, sizeof(gid)) == 0)
			return i;
	}
	return -1;
}

static enum ibv_port_state port_state(struct ibv_context *context)
{
	struct ibv_port_attr port;

	CHECK(ibv_query_port(context, 1, &port) == 0);
	return port.state;
}

static struct ibv_qp *open_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	return qp;
}

static void connect_at(struct ibv_qp *one, struct ibv_qp *two, int place)
{
	struct ibv_qp *ends[2] = { one, two };

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = usual_attributes(one->context, ends[1 - i]->qp_num);

		to_open_init(ends[i]);
		attr.qp_state = IBV_QPS_RTR;
		attr.ah_attr.grh.sgid_index = place;
		CHECK(ibv_query_gid(one->context, 1, place, &attr.ah_attr.grh.dgid) == 0);
		CHECK(ibv_modify_qp(ends[i], &attr, RTR_MASK(IBV_QPT_RC)) == 0);
	}
	to_rts(one);
	to_rts(two);
}

static void write_works(struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = 64, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { .remote_addr = (uintptr_t)mr->addr + 64, .rkey = mr->rkey } };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	poll_all(qp->send_cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS);
}

int main(void)
{
	static char memory[4096];
	union ibv_gid first = gid_of("10.9.0.1"), second = gid_of("10.10.0.2"), third = gid_of("10.9.0.3");
	struct ibv_gid_entry entry;
	struct ibv_context *context;
	struct ibv_ah_attr away = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_qp *one, *two;
	int place;

	ip("link add d0 type veth peer name d1");
	ip("addr add 10.9.0.1/24 dev d0");
	ip("addr add 10.10.0.2/24 dev d0");
	ip("link set lo up");
	ip("link set d1 up");
	ip("link set d0 up");
	context = open_first_device();
	drop_events(context);
	CHECK(port_state(context) == IBV_PORT_ACTIVE);
	place = place_of(context, second);
	CHECK(place >= 0 && place_of(context, first) >= 0 && place_of(context, third) < 0);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	CHECK(pd && cq);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	one = open_qp(pd, cq);
	two = open_qp(pd, cq);
	CHECK(mr);
	connect_at(one, two, place);
	write_works(one, mr);

	/* An address that goes leaves an empty entry; the other keeps its place, and its queue pairs go on. */
	away.grh.sgid_index = place_of(context, first);
	away.grh.dgid = second;
	ip("addr add 10.9.0.3/24 dev d0");
	wait_for(context, IBV_EVENT_GID_CHANGE);
	CHECK(place_of(context, third) >= 0);
	ip("addr del 10.9.0.3/24 dev d0");
	wait_for(context, IBV_EVENT_GID_CHANGE);
	CHECK(place_of(context, third) < 0);
	CHECK(place_of(context, second) == place);
	write_works(one, mr);
	ip("addr del 10.9.0.1/24 dev d0");
	wait_for(context, IBV_EVENT_GID_CHANGE);
	CHECK(place_of(context, first) < 0);
	CHECK(place_of(context, second) == place);
	write_works(one, mr);
	CHECK(ibv_query_gid_ex(context, 1, away.grh.sgid_index, &entry, 0) == ENODATA);
	REFUSED(ibv_create_ah(pd, &away), EINVAL);

	/* The link. */
	drop_events(context);
	ip("link set d1 down");
	wait_for(context, IBV_EVENT_PORT_ERR);
	CHECK(port_state(context) == IBV_PORT_DOWN);
	ip("link set d1 up");
	wait_for(context, IBV_EVENT_PORT_ACTIVE);
	CHECK(port_state(context) == IBV_PORT_ACTIVE);
	ip("link set d0 down");
	wait_for(context, IBV_EVENT_PORT_ERR);
	ip("link set d0 up");
	wait_for(context, IBV_EVENT_PORT_ACTIVE);
	CHECK(place_of(context, second) == place);
	write_works(one, mr);

	/* The network device itself. */
	drop_events(context);
	ip("link del d0");
	wait_for(context, IBV_EVENT_PORT_ERR);
	CHECK(port_state(context) == IBV_PORT_DOWN);
	CHECK(place_of(context, second) < 0);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

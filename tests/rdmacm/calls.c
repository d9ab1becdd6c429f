/*
 * Each call of librdmacm on an ID in each state. Prints a line for each pair: port space, state, call, and 0 or the name of the errno.
 * The expected answers are in calls.tsv.
 *
 * calls ADDRESS: an IPv4 address of this host.
 */
#define _GNU_SOURCE
#include "ends.h"

#define TOO_LONG 255

/* How an ID comes into a state. Gives the ID of `ends` that is in it. */
struct state {
	const char *name;
	/* Bits of the port spaces that have it. */
	int spaces;
	struct rdma_cm_id *(*make)(struct ends *ends);
	/* librdmacm reads the device of the ID. */
	int has_device;
};

enum { TCP = 1, UDP = 2, BOTH = TCP | UDP };

static struct rdma_cm_id *idle(struct ends *ends)
{
	return ends->caller;
}

static struct rdma_cm_id *bound(struct ends *ends)
{
	bind_to(ends->caller, host.sin_addr.s_addr);
	return ends->caller;
}

static struct rdma_cm_id *bound_any(struct ends *ends)
{
	bind_to(ends->caller, htonl(INADDR_ANY));
	return ends->caller;
}

static struct rdma_cm_id *listening(struct ends *ends)
{
	return ends->listener;
}

static struct rdma_cm_id *listening_any(struct ends *ends)
{
	bound_any(ends);
	MUST(!rdma_listen(ends->caller, BACKLOG));
	return ends->caller;
}

static struct rdma_cm_id *address_resolved(struct ends *ends)
{
	resolve_address(ends->caller, rdma_get_src_port(ends->listener));
	return ends->caller;
}

static struct rdma_cm_id *route_resolved(struct ends *ends)
{
	resolve(ends->caller, rdma_get_src_port(ends->listener));
	return ends->caller;
}

static struct rdma_cm_id *req_sent(struct ends *ends)
{
	ask(ends);
	return ends->caller;
}

static struct rdma_cm_id *req_received(struct ends *ends)
{
	request(ends);
	return ends->child;
}

static struct rdma_cm_id *rep_received(struct ends *ends)
{
	answer(ends);
	return ends->caller;
}

static struct rdma_cm_id *rep_sent(struct ends *ends)
{
	answer(ends);
	return ends->child;
}

static struct rdma_cm_id *established_active(struct ends *ends)
{
	establish(ends);
	return ends->caller;
}

static struct rdma_cm_id *established_passive(struct ends *ends)
{
	establish(ends);
	return ends->child;
}

static struct rdma_cm_id *disconnected_peer(struct ends *ends)
{
	establish(ends);
	MUST(!rdma_disconnect(ends->caller));
	expect(ends->passive, RDMA_CM_EVENT_DISCONNECTED);
	return ends->child;
}

static struct rdma_cm_id *disconnected_caller(struct ends *ends)
{
	disconnected_peer(ends);
	MUST(!rdma_disconnect(ends->child));
	expect(ends->active, RDMA_CM_EVENT_DISCONNECTED);
	return ends->caller;
}

static struct rdma_cm_id *rejected_active(struct ends *ends)
{
	request(ends);
	MUST(!rdma_reject(ends->child, NULL, 0));
	expect(ends->active, ends->space == RDMA_PS_UDP ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_REJECTED);
	return ends->caller;
}

static struct rdma_cm_id *rejects_req(struct ends *ends)
{
	rejected_active(ends);
	return ends->child;
}

static struct rdma_cm_id *rejected_passive(struct ends *ends)
{
	answer(ends);
	MUST(!rdma_reject(ends->caller, NULL, 0));
	expect(ends->passive, RDMA_CM_EVENT_REJECTED);
	return ends->child;
}

static struct rdma_cm_id *rejects_rep(struct ends *ends)
{
	rejected_passive(ends);
	return ends->caller;
}

static const struct state states[] = {
	{ "idle", BOTH, idle, 0 },
	{ "bound", BOTH, bound, 1 },
	{ "bound-any", BOTH, bound_any, 0 },
	{ "listen", BOTH, listening, 1 },
	{ "listen-any", BOTH, listening_any, 0 },
	{ "addr-resolved", BOTH, address_resolved, 1 },
	{ "route-resolved", BOTH, route_resolved, 1 },
	{ "req-sent", BOTH, req_sent, 1 },
	{ "req-received", BOTH, req_received, 1 },
	{ "rep-received", TCP, rep_received, 1 },
	{ "rep-sent", BOTH, rep_sent, 1 },
	{ "est-active", TCP, established_active, 1 },
	{ "est-passive", TCP, established_passive, 1 },
	{ "found", UDP, rep_received, 1 },
	{ "disc-peer", TCP, disconnected_peer, 1 },
	{ "disc-caller", TCP, disconnected_caller, 1 },
	{ "rejected-act", BOTH, rejected_active, 1 },
	{ "rejects-req", BOTH, rejects_req, 1 },
	{ "rejected-pas", TCP, rejected_passive, 1 },
	{ "rejects-rep", TCP, rejects_rep, 1 },
};

/* A call, which answers as librdmacm's do: 0, or something else and errno. */
struct call {
	const char *name;
	int (*make)(struct rdma_cm_id *id);
	/* Bits of the port spaces in which librdmacm reads the device of the ID without asking whether there is one. */
	int reads_device;
};

static const uint8_t private_data[TOO_LONG];

static int bind_addr(struct rdma_cm_id *id)
{
	struct sockaddr_in own = address_of(host.sin_addr.s_addr, 0);

	return rdma_bind_addr(id, (struct sockaddr *)&own);
}

static int resolve_addr(struct rdma_cm_id *id)
{
	/* Nobody needs to listen there. */
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, htons(9));

	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS);
}

static int resolve_route(struct rdma_cm_id *id)
{
	return rdma_resolve_route(id, RESOLVE_MS);
}

static int resolve_route_0(struct rdma_cm_id *id)
{
	return rdma_resolve_route(id, 0);
}

static int listen_there(struct rdma_cm_id *id)
{
	return rdma_listen(id, BACKLOG);
}

static int connect_there(struct rdma_cm_id *id)
{
	return connect_to(id, NULL, 0);
}

/* One byte more than there is room for. */
static int connect_long(struct rdma_cm_id *id)
{
	return connect_to(id, private_data, id->ps == RDMA_PS_UDP ? 181 : 57);
}

static int connect_null(struct rdma_cm_id *id)
{
	return rdma_connect(id, NULL);
}

static int accept_there(struct rdma_cm_id *id)
{
	return accept_with(id, NULL, 0);
}

static int accept_long(struct rdma_cm_id *id)
{
	return accept_with(id, private_data, id->ps == RDMA_PS_UDP ? 137 : 197);
}

static int reject_it(struct rdma_cm_id *id)
{
	return rdma_reject(id, NULL, 0);
}

static int reject_long(struct rdma_cm_id *id)
{
	return rdma_reject(id, private_data, id->ps == RDMA_PS_UDP ? 137 : 149);
}

static int reject_ece(struct rdma_cm_id *id)
{
	return rdma_reject_ece(id, NULL, 0);
}

static int notify(struct rdma_cm_id *id)
{
	return rdma_notify(id, IBV_EVENT_COMM_EST);
}

static int notify_fatal(struct rdma_cm_id *id)
{
	return rdma_notify(id, IBV_EVENT_QP_FATAL);
}

/* One byte is of an option that takes a byte, four are of one that takes an int. */
static int set(struct rdma_cm_id *id, int option, uint32_t value, size_t length)
{
	return rdma_set_option(id, RDMA_OPTION_ID, option, &value, length);
}

static int tos(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_TOS, 32, 1);
}

static int tos_long(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_TOS, 32, 4);
}

static int reuse(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_REUSEADDR, 1, 4);
}

static int reuse_off(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_REUSEADDR, 0, 4);
}

static int reuse_short(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_REUSEADDR, 1, 1);
}

static int afonly(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_AFONLY, 1, 4);
}

static int afonly_off(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_AFONLY, 0, 4);
}

static int afonly_short(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_AFONLY, 1, 1);
}

static int ack_timeout(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_ACK_TIMEOUT, 14, 1);
}

static int ack_timeout_long(struct rdma_cm_id *id)
{
	return set(id, RDMA_OPTION_ID_ACK_TIMEOUT, 14, 4);
}

static int option_99(struct rdma_cm_id *id)
{
	return set(id, 99, 0, 4);
}

static int ib_path_short(struct rdma_cm_id *id)
{
	uint8_t path = 0;

	return rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path));
}

static int level_99(struct rdma_cm_id *id)
{
	int value = 0;

	return rdma_set_option(id, 99, 0, &value, sizeof(value));
}

/* The channel to which IDs migrate, while a call runs. */
static struct rdma_event_channel *destination;

static int migrate(struct rdma_cm_id *id)
{
	return rdma_migrate_id(id, destination);
}

static struct sockaddr_in group(void)
{
	return address_of(inet_addr("239.1.2.3"), 0);
}

static int join(struct rdma_cm_id *id)
{
	struct sockaddr_in address = group();

	return rdma_join_multicast(id, (struct sockaddr *)&address, NULL);
}

static int leave(struct rdma_cm_id *id)
{
	struct sockaddr_in address = group();

	return rdma_leave_multicast(id, (struct sockaddr *)&address);
}

static int attributes(struct rdma_cm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	return rdma_init_qp_attr(id, &attr, &mask);
}

static int attr_init(struct rdma_cm_id *id)
{
	return attributes(id, IBV_QPS_INIT);
}

static int attr_rtr(struct rdma_cm_id *id)
{
	return attributes(id, IBV_QPS_RTR);
}

static int attr_rts(struct rdma_cm_id *id)
{
	return attributes(id, IBV_QPS_RTS);
}

static int attr_err(struct rdma_cm_id *id)
{
	return attributes(id, IBV_QPS_ERR);
}

static int attr_7(struct rdma_cm_id *id)
{
	return attributes(id, 7);
}

/* Protection domain of the one device. */
static struct ibv_pd *pd;

static int create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int result = rdma_create_qp(id, pd, &attr), error = errno;

	if (!result)
		rdma_destroy_qp(id);
	errno = error;
	return result;
}

/* 0: there is one. */
static int src_port(struct rdma_cm_id *id)
{
	errno = ENODATA;
	return !rdma_get_src_port(id);
}

static int dst_port(struct rdma_cm_id *id)
{
	errno = ENODATA;
	return !rdma_get_dst_port(id);
}

/* Every cell destroys its IDs, and fails if it cannot: this one says it of each state. */
static int destroy(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

static const struct call calls[] = {
	{ "bind_addr", bind_addr, 0 },
	{ "resolve_addr", resolve_addr, 0 },
	{ "resolve_route", resolve_route, BOTH },
	{ "resolve_route 0 ms", resolve_route_0, BOTH },
	{ "listen", listen_there, 0 },
	{ "connect", connect_there, TCP },
	{ "connect, long data", connect_long, TCP },
	{ "connect NULL", connect_null, UDP },
	{ "accept", accept_there, TCP },
	{ "accept, long data", accept_long, TCP },
	{ "reject", reject_it, 0 },
	{ "reject, long data", reject_long, 0 },
	{ "reject_ece", reject_ece, 0 },
	{ "disconnect", rdma_disconnect, 0 },
	{ "establish", rdma_establish, 0 },
	{ "notify COMM_EST", notify, 0 },
	{ "notify QP_FATAL", notify_fatal, 0 },
	{ "TOS", tos, 0 },
	{ "TOS, int", tos_long, 0 },
	{ "REUSEADDR 1", reuse, 0 },
	{ "REUSEADDR 0", reuse_off, 0 },
	{ "REUSEADDR, byte", reuse_short, 0 },
	{ "AFONLY 1", afonly, 0 },
	{ "AFONLY 0", afonly_off, 0 },
	{ "AFONLY, byte", afonly_short, 0 },
	{ "ACK_TIMEOUT", ack_timeout, 0 },
	{ "ACK_TIMEOUT, int", ack_timeout_long, 0 },
	{ "unknown option", option_99, 0 },
	{ "IB_PATH, byte", ib_path_short, 0 },
	{ "unknown level", level_99, 0 },
	{ "migrate_id", migrate, 0 },
	{ "join_multicast", join, 0 },
	{ "leave_multicast", leave, 0 },
	{ "attributes INIT", attr_init, 0 },
	{ "attributes RTR", attr_rtr, 0 },
	{ "attributes RTS", attr_rts, 0 },
	{ "attributes ERR", attr_err, 0 },
	{ "attributes 7", attr_7, 0 },
	{ "create_qp", create_qp, 0 },
	{ "get_src_port", src_port, 0 },
	{ "get_dst_port", dst_port, 0 },
	{ "destroy_id", destroy, 0 },
};

/* Makes the state anew and the call in it. */
static const char *try_call(const struct state *state, const struct call *call, int space)
{
	struct ends ends = new_ends(space == TCP ? RDMA_PS_TCP : RDMA_PS_UDP);
	struct rdma_cm_id *id = state->make(&ends);
	const char *result = "0";

	destination = new_channel();
	errno = 0;
	if (call->make(id))
		result = strerrorname_np(errno);
	if (!result)
		FAIL("%s in %s: errno %d", call->name, state->name, errno);
	destroy_ends(&ends);
	rdma_destroy_event_channel(destination);
	return result;
}

int main(int argc, char **argv)
{
	int count;
	struct ibv_context **devices;

	if (argc != 2)
		FAIL("usage: calls ADDRESS");
	set_host(argv[1]);
	devices = rdma_get_devices(&count);
	MUST(devices && count >= 1);
	pd = ibv_alloc_pd(devices[0]);
	MUST(pd);
	for (int space = TCP; space <= UDP; space <<= 1)
		for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++)
			for (size_t k = 0; k < sizeof(calls) / sizeof(*calls); k++) {
				const struct state *state = &states[i];
				const struct call *call = &calls[k];
				int is_fatal = call->reads_device & space && !state->has_device;

				if (!(state->spaces & space))
					continue;
				printf("%s\t%s\t%s\t%s\n", space == TCP ? "TCP" : "UDP", state->name, call->name,
				       is_fatal ? "-" : try_call(state, call, space));
			}
	ibv_dealloc_pd(pd);
	rdma_free_devices(devices);
	return 0;
}

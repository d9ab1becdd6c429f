/*
 * Traps of the connection manager in which programs were caught: each has a number, and a line in traps.tsv.
 *
 * traps ADDRESS NUMBER [SEED]: an IPv4 address of this host; which trap; where random choices begin.
 */
#define _GNU_SOURCE
#include "ends.h"
#include "traps.h"

#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

/* The kernel's (`enum ib_cm_rej_reason`). */
enum { INVALID_SERVICE_ID = 8, CONSUMER_DEFINED = 28 };

static int is_readable(int descriptor)
{
	struct pollfd ready = { .fd = descriptor, .events = POLLIN };
	int count = poll(&ready, 1, 0);

	MUST(count >= 0);
	return count;
}

static void must_fail(int result, int error, const char *what)
{
	if (!result)
		FAIL("%s: no error, but %s was due", what, strerrorname_np(error));
	if (errno != error)
		FAIL("%s: %s, not %s", what, strerrorname_np(errno), strerrorname_np(error));
}

#define REFUSED(call, error) must_fail(call, error, #call)

/* Waits until the attributes of an ID answer an error: its connection has ended, of which no event tells. */
static void await_end(struct rdma_cm_id *id)
{
	for (int i = 0; i < PATIENCE_MS; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
		int mask;

		if (rdma_init_qp_attr(id, &attr, &mask))
			return;
		usleep(1000);
	}
	FAIL("the connection does not end");
}

static void nonblocking_channel(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct epoll_event ready = { .events = EPOLLIN };
	struct rdma_cm_event *event;
	int poller = epoll_create1(0);

	MUST(poller >= 0 && !epoll_ctl(poller, EPOLL_CTL_ADD, ends.active->fd, &ready));
	MUST(!fcntl(ends.active->fd, F_SETFL, fcntl(ends.active->fd, F_GETFL) | O_NONBLOCK));
	REFUSED(rdma_get_cm_event(ends.active, &event), EAGAIN);
	MUST(epoll_wait(poller, &ready, 1, 0) == 0);
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_id *id = i ? ends.caller : new_id(ends.active, RDMA_PS_TCP);
		struct sockaddr_in peer = address_of(host.sin_addr.s_addr, htons(9));

		MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
		ends.child = i ? ends.child : id;
	}
	/* Level-triggered: as long as an event waits, and no longer. */
	for (int left = 2; left > 0; left--) {
		MUST(epoll_wait(poller, &ready, 1, PATIENCE_MS) == 1);
		MUST(is_readable(ends.active->fd));
		expect(ends.active, RDMA_CM_EVENT_ADDR_RESOLVED);
	}
	MUST(!is_readable(ends.active->fd) && epoll_wait(poller, &ready, 1, 0) == 0);
	REFUSED(rdma_get_cm_event(ends.active, &event), EAGAIN);
	close(poller);
	destroy_ends(&ends);
}

static void on_signal(int number)
{
	(void)number;
}

struct waiter {
	struct rdma_event_channel *channel;
	int result, error;
	struct rdma_cm_event *event;
	_Atomic int has_ended;
};

static void *wait_for_event(void *argument)
{
	struct waiter *waiter = argument;

	waiter->result = rdma_get_cm_event(waiter->channel, &waiter->event);
	waiter->error = errno;
	waiter->has_ended = 1;
	return NULL;
}

/* A signal ends the wait with EINTR, unless its handler says SA_RESTART: then the wait goes on. */
static void interrupted_wait(int flags)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct waiter waiter = { .channel = ends.active };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	pthread_t thread;

	MUST(!sigaction(SIGUSR1, &action, NULL));
	MUST(!pthread_create(&thread, NULL, wait_for_event, &waiter));
	for (int i = 0; i < PATIENCE_MS && !waiter.has_ended; i++) {
		/* The first ones may come before it waits. */
		pthread_kill(thread, SIGUSR1);
		usleep(1000);
		if (flags && i == 100) {
			struct sockaddr_in peer = address_of(host.sin_addr.s_addr, htons(9));

			MUST(!rdma_resolve_addr(ends.caller, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
		}
	}
	MUST(!pthread_join(thread, NULL));
	if (flags) {
		if (waiter.result)
			FAIL("the wait ended: %s", strerrorname_np(waiter.error));
		MUST(!rdma_ack_cm_event(waiter.event));
	} else {
		MUST(waiter.result && waiter.error == EINTR);
	}
	destroy_ends(&ends);
}

static void trap_1(void)
{
	nonblocking_channel();
	interrupted_wait(0);
	interrupted_wait(SA_RESTART);
}

struct destroyer {
	struct rdma_cm_id *id;
	_Atomic int has_ended;
};

static void *destroy(void *argument)
{
	struct destroyer *destroyer = argument;

	MUST(!rdma_destroy_id(destroyer->id));
	destroyer->has_ended = 1;
	return NULL;
}

static void trap_2(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct destroyer destroyer = { .id = ends.caller };
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, rdma_get_src_port(ends.listener));
	struct rdma_cm_event *event;
	pthread_t thread;

	MUST(!rdma_resolve_addr(ends.caller, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
	event = take(ends.active, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!pthread_create(&thread, NULL, destroy, &destroyer));
	usleep(100000);
	if (destroyer.has_ended)
		FAIL("an ID is destroyed whose event is not acknowledged");
	MUST(!rdma_ack_cm_event(event));
	MUST(!pthread_join(thread, NULL));
	ends.caller = NULL;
	destroy_ends(&ends);
}

/* Takes events until it is told to end, and acknowledges each. */
struct taker {
	struct rdma_event_channel *channel;
	_Atomic int is_over;
	int taken;
};

static void *take_events(void *argument)
{
	struct taker *taker = argument;
	struct rdma_cm_event *event;

	while (!taker->is_over) {
		struct pollfd ready = { .fd = taker->channel->fd, .events = POLLIN };

		MUST(poll(&ready, 1, 1) >= 0);
		if (rdma_get_cm_event(taker->channel, &event)) {
			MUST(errno == EAGAIN);
			continue;
		}
		taker->taken++;
		MUST(!rdma_ack_cm_event(event));
	}
	return NULL;
}

static void trap_3(void)
{
	struct rdma_event_channel *other = new_channel();
	struct taker taker = { .channel = new_channel() };
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, htons(9));
	pthread_t threads[2];

	MUST(!fcntl(taker.channel->fd, F_SETFL, O_NONBLOCK));
	for (int i = 0; i < 2; i++)
		MUST(!pthread_create(&threads[i], NULL, take_events, &taker));
	for (int i = 0; i < 2000; i++) {
		struct rdma_cm_id *id = new_id(taker.channel, RDMA_PS_TCP);
		unsigned int fate = random() % 4;

		if (fate)
			MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
		if (fate == 2)
			usleep(random() % 200);
		if (fate == 3)
			MUST(!rdma_migrate_id(id, other));
		MUST(!rdma_destroy_id(id));
	}
	taker.is_over = 1;
	for (int i = 0; i < 2; i++)
		MUST(!pthread_join(threads[i], NULL));
	expect_nothing(other);
	expect_nothing(taker.channel);
	rdma_destroy_event_channel(other);
	rdma_destroy_event_channel(taker.channel);
}

static void trap_4(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct rdma_event_channel *later = new_channel(), *children = new_channel();
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, rdma_get_src_port(ends.listener));

	/* What waits goes along. */
	MUST(!rdma_resolve_addr(ends.caller, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
	MUST(!rdma_migrate_id(ends.caller, later));
	expect_nothing(ends.active);
	expect(later, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(ends.caller, RESOLVE_MS));
	expect(later, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(!connect_to(ends.caller, NULL, 0));
	ends.child = take_request(ends.passive);
	MUST(!rdma_migrate_id(ends.child, children));
	MUST(!accept_with(ends.child, NULL, 0));
	expect(later, RDMA_CM_EVENT_CONNECT_RESPONSE);
	MUST(!rdma_establish(ends.caller));
	expect(children, RDMA_CM_EVENT_ESTABLISHED);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	destroy_ends(&ends);
	rdma_destroy_event_channel(later);
	rdma_destroy_event_channel(children);
}

/* An event with exactly these bytes, and zeros up to `room`. */
static struct rdma_cm_id *expect_data(struct rdma_event_channel *channel, enum rdma_cm_event_type type, int is_ud, const uint8_t *data, int length, int room)
{
	struct rdma_cm_event *event = take(channel, type);
	const uint8_t *found = is_ud ? event->param.ud.private_data : event->param.conn.private_data;
	int count = is_ud ? event->param.ud.private_data_len : event->param.conn.private_data_len;
	struct rdma_cm_id *id = event->id;

	if (count != room)
		FAIL("%s has %d bytes, not %d", rdma_event_str(type), count, room);
	for (int i = 0; i < room; i++)
		if (found[i] != (i < length ? data[i] : 0))
			FAIL("%s: byte %d of %d is %d", rdma_event_str(type), i, length, found[i]);
	MUST(!rdma_ack_cm_event(event));
	return id;
}

static void exchange_data(enum rdma_port_space space, int is_accepted, int request_length, int answer_length)
{
	int is_ud = space == RDMA_PS_UDP;
	struct ends ends = new_ends(space);
	uint8_t data[256];

	for (int i = 0; i < 256; i++)
		data[i] = 255 - i % 250;
	resolve(ends.caller, rdma_get_src_port(ends.listener));
	MUST(!connect_to(ends.caller, data, request_length));
	ends.child = expect_data(ends.passive, RDMA_CM_EVENT_CONNECT_REQUEST, is_ud, data, request_length, is_ud ? 180 : 56);
	if (is_accepted) {
		MUST(!accept_with(ends.child, data, answer_length));
		expect_data(ends.active, is_ud ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE, is_ud, data, answer_length, is_ud ? 136 : 196);
		if (!is_ud) {
			MUST(!rdma_establish(ends.caller));
			expect_data(ends.passive, RDMA_CM_EVENT_ESTABLISHED, 0, data, 0, 0);
			MUST(!rdma_disconnect(ends.caller));
			expect_data(ends.passive, RDMA_CM_EVENT_DISCONNECTED, 0, data, 0, 0);
		}
	} else {
		MUST(!rdma_reject(ends.child, data, answer_length));
		expect_data(ends.active, is_ud ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_REJECTED, is_ud, data, answer_length, is_ud ? 136 : 148);
	}
	destroy_ends(&ends);
}

static void trap_5(void)
{
	for (int is_accepted = 0; is_accepted < 2; is_accepted++) {
		exchange_data(RDMA_PS_TCP, is_accepted, 0, 0);
		exchange_data(RDMA_PS_TCP, is_accepted, 3, 5);
		exchange_data(RDMA_PS_TCP, is_accepted, 56, is_accepted ? 196 : 148);
		exchange_data(RDMA_PS_UDP, is_accepted, 0, 0);
		exchange_data(RDMA_PS_UDP, is_accepted, 7, 1);
		exchange_data(RDMA_PS_UDP, is_accepted, 180, 136);
	}
}

static void trap_6(void)
{
	static const uint8_t data[255];
	struct ends ends = new_ends(RDMA_PS_TCP);

	resolve(ends.caller, rdma_get_src_port(ends.listener));
	for (int length = 57; length <= 255; length++)
		REFUSED(connect_to(ends.caller, data, length), EINVAL);
	MUST(!connect_to(ends.caller, data, 56));
	ends.child = take_request(ends.passive);
	destroy_ends(&ends);
}

static void trap_7(void)
{
	for (int is_destroyed = 0; is_destroyed < 2; is_destroyed++) {
		struct ends ends = new_ends(RDMA_PS_TCP);

		answer(&ends);
		if (is_destroyed) {
			MUST(!rdma_destroy_id(ends.caller));
			ends.caller = NULL;
		} else {
			MUST(!rdma_reject(ends.caller, NULL, 0));
		}
		MUST(expect(ends.passive, RDMA_CM_EVENT_REJECTED) == CONSUMER_DEFINED);
		expect_nothing(ends.passive);
		expect_nothing(ends.active);
		destroy_ends(&ends);
	}
}

static void trap_8(void)
{
	for (int is_destroyed = 0; is_destroyed < 2; is_destroyed++) {
		struct ends ends = new_ends(RDMA_PS_TCP);

		request(&ends);
		if (is_destroyed) {
			MUST(!rdma_destroy_id(ends.caller));
			ends.caller = NULL;
		} else {
			MUST(!rdma_reject(ends.caller, NULL, 0));
		}
		await_end(ends.child);
		REFUSED(rdma_reject(ends.child, NULL, 0), EINVAL);
		REFUSED(accept_with(ends.child, NULL, 0), EINVAL);
		/* The program has not accepted: no event is for it. */
		expect_nothing(ends.passive);
		expect_nothing(ends.active);
		destroy_ends(&ends);
	}
}

static void trap_11(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);

	establish(&ends);
	MUST(!rdma_disconnect(ends.caller));
	MUST(!rdma_disconnect(ends.child));
	MUST(expect(ends.active, RDMA_CM_EVENT_DISCONNECTED) == 0);
	MUST(expect(ends.passive, RDMA_CM_EVENT_DISCONNECTED) == 0);
	MUST(!rdma_disconnect(ends.caller));
	MUST(!rdma_disconnect(ends.child));
	MUST(expect(ends.active, RDMA_CM_EVENT_TIMEWAIT_EXIT) == 0);
	MUST(expect(ends.passive, RDMA_CM_EVENT_TIMEWAIT_EXIT) == 0);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	destroy_ends(&ends);
}

/* Each side in turn ends the connection; all events of a connection with queue pairs, in their order, and no other. */
static void trap_13(void)
{
	for (int is_passive = 0; is_passive < 2; is_passive++) {
		struct ends ends = new_ends(RDMA_PS_TCP);
		struct rdma_event_channel *first = is_passive ? ends.passive : ends.active;
		struct rdma_event_channel *second = is_passive ? ends.active : ends.passive;

		connect_queue_pairs(&ends);
		MUST(expect(ends.passive, RDMA_CM_EVENT_ESTABLISHED) == 0);
		MUST(!rdma_disconnect(is_passive ? ends.child : ends.caller));
		MUST(expect(second, RDMA_CM_EVENT_DISCONNECTED) == 0);
		/* The DREP leaves when the other side calls it, too. */
		expect_nothing(first);
		MUST(!rdma_disconnect(is_passive ? ends.caller : ends.child));
		MUST(expect(first, RDMA_CM_EVENT_DISCONNECTED) == 0);
		MUST(expect(first, RDMA_CM_EVENT_TIMEWAIT_EXIT) == 0);
		MUST(expect(second, RDMA_CM_EVENT_TIMEWAIT_EXIT) == 0);
		expect_nothing(first);
		expect_nothing(second);
		destroy_queue_pairs(&ends);
		destroy_ends(&ends);
	}
}

static void trap_16(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct rdma_cm_id *any = new_id(ends.active, RDMA_PS_TCP);
	struct ibv_device_attr attr;

	MUST(!ends.caller->verbs && !ends.caller->pd && !ends.caller->port_num);
	bind_to(any, htonl(INADDR_ANY));
	MUST(!any->verbs && rdma_get_src_port(any));
	MUST(ends.listener->verbs && ends.listener->port_num == 1);
	resolve_address(ends.caller, rdma_get_src_port(ends.listener));
	MUST(ends.caller->verbs == ends.listener->verbs && ends.caller->pd && ends.caller->port_num == 1);
	MUST(!ibv_query_device(ends.caller->verbs, &attr));
	MUST(attr.node_guid && attr.node_guid == ibv_get_device_guid(ends.caller->verbs->device));
	MUST(!rdma_destroy_id(any));
	destroy_ends(&ends);
}

static void trap_17(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct rdma_conn_param active = no_queue_pair(), passive = no_queue_pair();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	union ibv_gid own;
	struct rdma_cm_event *event;
	int mask;

	resolve(ends.caller, rdma_get_src_port(ends.listener));
	MUST(!rdma_connect(ends.caller, &active));
	event = take(ends.passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(event->param.conn.qp_num == active.qp_num && event->listen_id == ends.listener);
	ends.child = event->id;
	MUST(!rdma_ack_cm_event(event));
	MUST(!rdma_accept(ends.child, &passive));
	event = take(ends.active, RDMA_CM_EVENT_CONNECT_RESPONSE);
	MUST(event->param.conn.qp_num == passive.qp_num);
	MUST(!rdma_ack_cm_event(event));
	MUST(!rdma_init_qp_attr(ends.caller, &attr, &mask));
	MUST(mask & IBV_QP_AV && mask & IBV_QP_PATH_MTU && mask & IBV_QP_DEST_QPN);
	MUST(attr.dest_qp_num == passive.qp_num);
	MUST(attr.path_mtu >= IBV_MTU_256 && attr.path_mtu <= IBV_MTU_4096);
	MUST(attr.ah_attr.is_global && attr.ah_attr.port_num == 1 && attr.ah_attr.grh.hop_limit);
	MUST(!ibv_query_gid(ends.caller->verbs, 1, attr.ah_attr.grh.sgid_index, &own));
	/* Both sides have the same address. */
	MUST(!memcmp(&own, &attr.ah_attr.grh.dgid, sizeof(own)));
	MUST(!memcmp(&own.raw[12], &host.sin_addr, 4));
	MUST(!rdma_establish(ends.caller));
	expect(ends.passive, RDMA_CM_EVENT_ESTABLISHED);
	/* RTU brings no event where it is sent. */
	expect_nothing(ends.active);
	destroy_ends(&ends);
}

static int bind_port(struct rdma_cm_id *id, uint32_t address, uint16_t port)
{
	struct sockaddr_in own = address_of(address, port);

	return rdma_bind_addr(id, (struct sockaddr *)&own);
}

static struct rdma_cm_id *reusing(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	int on = 1;

	MUST(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	return id;
}

static void trap_18(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	uint16_t port = rdma_get_src_port(ends.listener);
	uint32_t own = host.sin_addr.s_addr, any = htonl(INADDR_ANY);
	struct rdma_cm_id *first = new_id(ends.active, RDMA_PS_TCP), *one = reusing(ends.active), *two = reusing(ends.active);
	struct rdma_cm_id *datagrams = new_id(ends.active, RDMA_PS_UDP);

	REFUSED(bind_port(ends.caller, own, port), EADDRINUSE);
	REFUSED(bind_port(ends.caller, any, port), EADDRNOTAVAIL);
	REFUSED(bind_port(ends.caller, htonl(INADDR_LOOPBACK), port), EADDRNOTAVAIL);
	/* An address of documentation (RFC 5737), which is none of ours. */
	REFUSED(bind_port(ends.caller, inet_addr("203.0.113.77"), 0), EADDRNOTAVAIL);
	/* One side alone does not share. */
	REFUSED(bind_port(one, own, port), EADDRINUSE);
	MUST(!bind_port(datagrams, own, port));
	MUST(!bind_port(first, any, 0));
	REFUSED(bind_port(ends.caller, any, rdma_get_src_port(first)), EADDRNOTAVAIL);
	REFUSED(bind_port(ends.caller, own, rdma_get_src_port(first)), EADDRNOTAVAIL);
	MUST(!rdma_destroy_id(first));
	MUST(!bind_port(one, own, 0));
	MUST(!bind_port(two, own, rdma_get_src_port(one)));
	/* Only one of them can listen. */
	REFUSED(rdma_listen(one, BACKLOG), EADDRINUSE);
	MUST(!rdma_destroy_id(two));
	MUST(!rdma_listen(one, BACKLOG));
	MUST(!rdma_destroy_id(one));
	MUST(!rdma_destroy_id(datagrams));
	/* A port is free when its ID is destroyed. */
	MUST(!rdma_destroy_id(ends.listener));
	ends.listener = NULL;
	MUST(!bind_port(ends.caller, any, port));
	destroy_ends(&ends);
}

static void trap_19(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct sockaddr_in own, peer = address_of(host.sin_addr.s_addr, rdma_get_src_port(ends.listener));
	struct rdma_cm_id *second = new_id(ends.active, RDMA_PS_TCP);
	struct rdma_cm_id *shared[2] = { reusing(ends.active), reusing(ends.active) };

	resolve_address(ends.caller, peer.sin_port);
	own = address_of(host.sin_addr.s_addr, rdma_get_src_port(ends.caller));
	REFUSED(rdma_resolve_addr(second, (struct sockaddr *)&own, (struct sockaddr *)&peer, RESOLVE_MS), EADDRINUSE);
	/* It may try again with another one. */
	resolve_address(second, peer.sin_port);
	MUST(rdma_get_src_port(second) != own.sin_port);
	own.sin_port = 0;
	for (int i = 0; i < 2; i++) {
		MUST(!rdma_resolve_addr(shared[i], (struct sockaddr *)&own, (struct sockaddr *)&peer, RESOLVE_MS));
		expect(ends.active, RDMA_CM_EVENT_ADDR_RESOLVED);
		own.sin_port = rdma_get_src_port(shared[0]);
		MUST(rdma_get_src_port(shared[i]) == own.sin_port);
	}
	for (int i = 0; i < 2; i++)
		MUST(!rdma_destroy_id(shared[i]));
	MUST(!rdma_destroy_id(second));
	destroy_ends(&ends);
}

static int set_ack_timeout(struct rdma_cm_id *id, uint8_t timeout)
{
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
}

static uint8_t ack_timeout_of(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int mask;

	MUST(!rdma_init_qp_attr(id, &attr, &mask));
	MUST(mask & IBV_QP_TIMEOUT);
	return attr.timeout;
}

static void trap_21(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);

	MUST(!set_ack_timeout(ends.listener, 7));
	answer(&ends);
	/* A request has not that of its listener. */
	MUST(ack_timeout_of(ends.child) != 7);
	MUST(!set_ack_timeout(ends.child, 11));
	MUST(ack_timeout_of(ends.child) == 11);
	MUST(!set_ack_timeout(ends.caller, 13));
	MUST(ack_timeout_of(ends.caller) == 13);
	MUST(ack_timeout_of(ends.child) == 11);
	destroy_ends(&ends);
}

static void trap_22(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	uint16_t port = rdma_get_src_port(ends.listener);

	MUST(!rdma_destroy_id(ends.listener));
	ends.listener = NULL;
	resolve(ends.caller, port);
	MUST(!connect_to(ends.caller, NULL, 0));
	MUST(expect(ends.active, RDMA_CM_EVENT_REJECTED) == INVALID_SERVICE_ID);
	expect_nothing(ends.active);
	MUST(!rdma_destroy_id(ends.caller));
	/* Once somebody listens another ID comes through. */
	ends.caller = new_id(ends.active, RDMA_PS_TCP);
	ends.listener = new_id(ends.passive, RDMA_PS_TCP);
	MUST(!bind_port(ends.listener, host.sin_addr.s_addr, port));
	MUST(!rdma_listen(ends.listener, BACKLOG));
	establish(&ends);
	destroy_ends(&ends);
}

static void trap_23(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct rdma_cm_id *id;
	char address[INET_ADDRSTRLEN];

	MUST(inet_ntop(AF_INET, &host.sin_addr, address, sizeof(address)));
	/* Its errors are those of getaddrinfo(3), not errno's. */
	MUST(rdma_getaddrinfo("no such host.invalid", "1", &hints, &found) == EAI_NONAME);
	MUST(!rdma_getaddrinfo(address, "7471", &hints, &found));
	MUST(found && !found->ai_next && found->ai_port_space == RDMA_PS_TCP && found->ai_qp_type == IBV_QPT_RC);
	MUST(!rdma_create_ep(&id, found, NULL, NULL));
	MUST(id->verbs);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(found);
	REFUSED(rdma_create_id(NULL, &id, NULL, 0), EINVAL);
}

static void trap_24(void)
{
	int count, again;
	struct ibv_context **devices = rdma_get_devices(&count), **others;
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct ibv_device_attr attr;

	MUST(devices && count >= 1 && devices[count] == NULL);
	others = rdma_get_devices(&again);
	MUST(others && again == count && others[0] == devices[0]);
	/* The list is freed, the devices stay open. */
	rdma_free_devices(others);
	MUST(ends.listener->verbs == devices[0]);
	MUST(!ibv_query_device(devices[0], &attr));
	rdma_free_devices(devices);
	MUST(!ibv_query_device(ends.listener->verbs, &attr));
	destroy_ends(&ends);
}

static void (*const traps[])(void) = {
	[1] = trap_1, [2] = trap_2, [3] = trap_3, [4] = trap_4, [5] = trap_5, [6] = trap_6, [7] = trap_7, [8] = trap_8,
	[9] = trap_9, [11] = trap_11, [12] = trap_12, [13] = trap_13, [16] = trap_16, [17] = trap_17, [18] = trap_18, [19] = trap_19,
	[20] = trap_20, [21] = trap_21, [22] = trap_22, [23] = trap_23, [24] = trap_24, [25] = trap_25,
};

int main(int argc, char **argv)
{
	size_t number = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

	if (argc < 3 || number >= sizeof(traps) / sizeof(*traps) || !traps[number])
		FAIL("usage: traps ADDRESS NUMBER [SEED]");
	set_host(argv[1]);
	srandom(argc > 3 ? strtoul(argv[3], NULL, 10) : 1);
	traps[number]();
	return 0;
}

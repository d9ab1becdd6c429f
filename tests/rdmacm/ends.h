/*
 * Both ends of connections in one process, each with a channel of its own: what the tests of the connection manager share. Nothing here
 * waits without a bound, and an event that nobody expects ends the program.
 */
#ifndef ENDS_H
#define ENDS_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

/* Only says that nothing hangs. */
#define PATIENCE_MS 60000
#define RESOLVE_MS 2000
#define BACKLOG 8

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define MUST(what) ((what) ? (void)0 : FAIL("%s: %s", #what, strerror(errno)))

__attribute__((noreturn, format(printf, 3, 4))) static inline void fail_at(const char *file, int line, const char *format, ...)
{
	va_list words;

	fprintf(stderr, "%s:%d: ", file, line);
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	fputc('\n', stderr);
	exit(1);
}

/* The address of this host, from the command line. All files of a program have one. */
__attribute__((weak)) struct sockaddr_in host;

static inline void set_host(const char *address)
{
	host.sin_family = AF_INET;
	if (inet_pton(AF_INET, address, &host.sin_addr) != 1)
		FAIL("%s is no IPv4 address", address);
}

/* An address with a port, which is in network order as rdma_get_src_port(3) gives it. */
static inline struct sockaddr_in address_of(uint32_t address, uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = address };
}

static inline struct rdma_event_channel *new_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	MUST(channel);
	return channel;
}

static inline struct rdma_cm_id *new_id(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(channel, &id, channel, space));
	return id;
}

/* The next event, which must be this one; whoever calls acknowledges it. */
static inline struct rdma_cm_event *take(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int count = poll(&ready, 1, PATIENCE_MS);

	if (count != 1)
		FAIL("%s does not come", rdma_event_str(type));
	MUST(!rdma_get_cm_event(channel, &event));
	if (event->event != type)
		FAIL("%s instead of %s, status %d", rdma_event_str(event->event), rdma_event_str(type), event->status);
	return event;
}

/* The next event, acknowledged; gives its status. */
static inline int expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = take(channel, type);
	int status = event->status;

	MUST(!rdma_ack_cm_event(event));
	return status;
}

/* No event waits now. Who calls has seen the last message that could bring one. */
static inline void expect_nothing(struct rdma_event_channel *channel)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&ready, 1, 0) == 0)
		return;
	MUST(!rdma_get_cm_event(channel, &event));
	FAIL("a stray %s, status %d", rdma_event_str(event->event), event->status);
}

static inline void bind_to(struct rdma_cm_id *id, uint32_t address)
{
	struct sockaddr_in own = address_of(address, 0);

	MUST(!rdma_bind_addr(id, (struct sockaddr *)&own));
}

static inline struct rdma_cm_id *new_listener(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct rdma_cm_id *id = new_id(channel, space);

	bind_to(id, host.sin_addr.s_addr);
	MUST(!rdma_listen(id, BACKLOG));
	return id;
}

/* Resolves the address of a port of this host. */
static inline void resolve_address(struct rdma_cm_id *id, uint16_t port)
{
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, port);

	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
	MUST(expect(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
}

static inline void resolve(struct rdma_cm_id *id, uint16_t port)
{
	resolve_address(id, port);
	MUST(!rdma_resolve_route(id, RESOLVE_MS));
	MUST(expect(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0);
}

/* Parameters of a connection without a queue pair; no two have the same number. */
static inline struct rdma_conn_param no_queue_pair(void)
{
	static uint32_t number = 0x1000;

	return (struct rdma_conn_param){ .qp_num = number++, .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
}

static inline int connect_to(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	struct rdma_conn_param param = no_queue_pair();

	param.private_data = data;
	param.private_data_len = length;
	return rdma_connect(id, &param);
}

static inline int accept_with(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	struct rdma_conn_param param = no_queue_pair();

	param.private_data = data;
	param.private_data_len = length;
	return rdma_accept(id, &param);
}

/* The request that a listener has got. */
static inline struct rdma_cm_id *take_request(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *child = event->id;

	MUST(!rdma_ack_cm_event(event));
	return child;
}

/* A listener, an ID that asks it, and the ID that its request has made: NULL where there is none yet. */
struct ends {
	enum rdma_port_space space;
	struct rdma_event_channel *passive, *active;
	struct rdma_cm_id *listener, *caller, *child;
};

static inline struct ends new_ends(enum rdma_port_space space)
{
	struct ends ends = { .space = space, .passive = new_channel(), .active = new_channel() };

	ends.listener = new_listener(ends.passive, space);
	ends.caller = new_id(ends.active, space);
	return ends;
}

static inline void ask(struct ends *ends)
{
	resolve(ends->caller, rdma_get_src_port(ends->listener));
	MUST(!connect_to(ends->caller, NULL, 0));
}

static inline void request(struct ends *ends)
{
	ask(ends);
	ends->child = take_request(ends->passive);
}

static inline void answer(struct ends *ends)
{
	request(ends);
	MUST(!accept_with(ends->child, NULL, 0));
	MUST(expect(ends->active, ends->space == RDMA_PS_UDP ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE) == 0);
}

static inline void establish(struct ends *ends)
{
	answer(ends);
	MUST(!rdma_establish(ends->caller));
	MUST(expect(ends->passive, RDMA_CM_EVENT_ESTABLISHED) == 0);
}

static inline void destroy_ends(struct ends *ends)
{
	if (ends->caller)
		MUST(!rdma_destroy_id(ends->caller));
	if (ends->child)
		MUST(!rdma_destroy_id(ends->child));
	if (ends->listener)
		MUST(!rdma_destroy_id(ends->listener));
	rdma_destroy_event_channel(ends->active);
	rdma_destroy_event_channel(ends->passive);
}

#endif

/* The device of an ID of librdmacm is removed: the program hears of it, and can only destroy the ID. In a network namespace of its own. */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#define PATIENCE_MS 30000

static struct rdma_cm_id *bound(struct rdma_event_channel *channel, const char *address)
{
	struct sockaddr_in own = { .sin_family = AF_INET };
	struct rdma_cm_id *id;

	CHECK(inet_pton(AF_INET, address, &own.sin_addr) == 1);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&own) == 0);
	return id;
}

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *removed, *kept, *everywhere;
	struct pollfd ready = { .events = POLLIN };
	struct rdma_cm_event *event;

	CHECK(channel);
	ready.fd = channel->fd;
	removed = bound(channel, "10.80.0.1");
	kept = bound(channel, "10.81.0.1");
	everywhere = bound(channel, "0.0.0.0");
	CHECK(rdma_listen(removed, 1) == 0);
	CHECK(system("ip link delete pw0") == 0);
	CHECK(poll(&ready, 1, PATIENCE_MS) == 1);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	CHECK(event->event == RDMA_CM_EVENT_DEVICE_REMOVAL && event->id == removed && event->status == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_listen(removed, 1) == -1 && errno == ENXIO);
	CHECK(rdma_destroy_id(removed) == 0);
	/* The others hear nothing, and work. */
	CHECK(poll(&ready, 1, 300) == 0);
	CHECK(rdma_listen(kept, 1) == 0 && rdma_listen(everywhere, 1) == 0);
	CHECK(rdma_destroy_id(kept) == 0 && rdma_destroy_id(everywhere) == 0);
	rdma_destroy_event_channel(channel);
	return 0;
}

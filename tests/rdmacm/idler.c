/*
 * An end of a connection on which nothing is sent: `listen ADDRESS PORT FILE` or `connect ADDRESS PORT FILE`. It writes to the file when
 * it is connected, and says which event follows. At SIGTERM it ends, and destroys nothing.
 */
#include "ends.h"

#include <fcntl.h>
#include <signal.h>

static void interrupt(int signal)
{
	(void)signal;
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_conn_param param = { .qp_num = 0x123456, .retry_count = 7 };
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	struct sockaddr_in address;
	struct sigaction on_term = { .sa_handler = interrupt };
	struct rdma_cm_event *event;

	if (argc != 5)
		FAIL("usage: %s listen|connect ADDRESS PORT FILE", argv[0]);
	MUST(!sigaction(SIGTERM, &on_term, NULL));
	set_host(argv[2]);
	address = address_of(host.sin_addr.s_addr, htons((uint16_t)atoi(argv[3])));
	if (strcmp(argv[1], "listen") == 0) {
		MUST(!rdma_bind_addr(id, (struct sockaddr *)&address));
		MUST(!rdma_listen(id, BACKLOG));
		event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		id = event->id;
		MUST(!rdma_ack_cm_event(event));
		MUST(!rdma_accept(id, &param));
		event = take(channel, RDMA_CM_EVENT_ESTABLISHED);
	} else {
		MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS));
		MUST(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ADDR_RESOLVED)));
		MUST(!rdma_resolve_route(id, RESOLVE_MS));
		MUST(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED)));
		MUST(!rdma_connect(id, &param));
		event = take(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
		MUST(!rdma_establish(id));
	}
	MUST(!rdma_ack_cm_event(event));
	MUST(write(open(argv[4], O_WRONLY), "+", 1) == 1);
	if (rdma_get_cm_event(channel, &event)) {
		MUST(errno == EINTR);
		return 0;
	}
	printf("%s %d\n", rdma_event_str(event->event), event->status);
	MUST(!rdma_ack_cm_event(event));
	return 0;
}

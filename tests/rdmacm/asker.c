/*
 * Asks ADDRESS for a connection to PORT, says what came of it, and stays until it is killed: `pagewire explain` is to see it.
 */
#include "ends.h"

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.qp_num = 0x123456, .retry_count = 7};
	struct sockaddr_in peer = {.sin_family = AF_INET};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &peer.sin_addr) != 1)
		FAIL("usage: %s ADDRESS PORT", argv[0]);
	peer.sin_port = htons((uint16_t)atoi(argv[2]));
	MUST(channel);
	MUST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
	MUST(!rdma_get_cm_event(channel, &event));
	MUST(!rdma_ack_cm_event(event));
	MUST(!rdma_resolve_route(id, RESOLVE_MS));
	MUST(!rdma_get_cm_event(channel, &event));
	MUST(!rdma_ack_cm_event(event));
	MUST(!rdma_connect(id, &param));
	MUST(!rdma_get_cm_event(channel, &event));
	printf("%s %d\n", rdma_event_str(event->event), event->status);
	fflush(stdout);
	MUST(!rdma_ack_cm_event(event));
	for (;;)
		pause();
}

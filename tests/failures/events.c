/*
 * events [gid]: makes a queue pair with a shared receive queue, queries a GID, and waits for one asynchronous event. Prints it, the port's state
 * and the queue pair's. A verb that fails is named with its error. Without "gid", changes of the GID table are passed over: addresses of a new
 * host come a second after it.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int holds, const char *verb)
{
	if (!holds) {
		printf("%s: %s\n", verb, strerror(errno));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	must(devices && *devices, "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(*devices);
	must(context != NULL, "ibv_open_device");
	ibv_free_device_list(devices);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	must(pd && cq && srq, "creation");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 8, .max_send_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	must(qp != NULL, "ibv_create_qp");
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");

	union ibv_gid gid;
	must(!ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
	int counts_gid = argc > 1 && !strcmp(argv[1], "gid"), is_awaited;
	do {
		struct ibv_async_event event;
		must(!ibv_get_async_event(context, &event), "ibv_get_async_event");
		is_awaited = counts_gid || event.event_type != IBV_EVENT_GID_CHANGE;
		if (is_awaited)
			puts(ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	} while (!is_awaited);

	struct ibv_port_attr port;
	errno = ibv_query_port(context, 1, &port);
	must(!errno, "ibv_query_port");
	printf("port state %d\n", port.state);
	must(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
	printf("queue pair state %d\n", attr.qp_state);
	must(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq), "destruction");
	must(!ibv_dealloc_pd(pd) && !ibv_close_device(context), "closing");
	return 0;
}

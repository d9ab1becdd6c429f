/* What the C test programs share: each statement checked says where it failed and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define CHECK(condition)                                                                            \
	do {                                                                                        \
		if (!(condition)) {                                                                 \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, \
				errno, strerror(errno));                                            \
			exit(1);                                                                    \
		}                                                                                   \
	} while (0)

/* A call that gives NULL with this errno. */
#define REFUSED(call, error)          \
	do {                          \
		errno = 0;            \
		CHECK(!(call));       \
		CHECK(errno == (error)); \
	} while (0)

static inline struct ibv_context *open_first_device(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;

	CHECK(list && count > 0);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline struct ibv_qp_init_attr plain_attributes(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2,
			 .max_inline_data = 32 },
	};

	return init;
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
	CHECK(qp->state == IBV_QPS_INIT);
}

static inline void to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	CHECK(qp->state == IBV_QPS_ERR);
}

#endif

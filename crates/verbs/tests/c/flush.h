/* FLUSH, which the headers have from rdma-core 45 on, for the C test programs. */
#ifndef FLUSH_H
#define FLUSH_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <string.h>

/* enum ibv_wr_opcode, ibv_wc_opcode, ibv_access_flags, ibv_placement_type, ibv_selectivity_level. */
#define WR_FLUSH 14
#define WC_FLUSH 8
#define ACCESS_FLUSH_GLOBAL (1 << 8)
#define ACCESS_FLUSH_PERSISTENT (1 << 9)
#define QP_EX_WITH_FLUSH (1 << 11)
#define FLUSH_GLOBAL 1
#define FLUSH_PERSISTENT 2
#define FLUSH_RANGE 0
#define FLUSH_MR 1
/* IB_UVERBS_DEVICE_FLUSH_GLOBAL and IB_UVERBS_DEVICE_FLUSH_PERSISTENT of Linux 6.2. */
#define DEVICE_FLUSH (3ULL << 38)

typedef void (*wr_flush_function)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);

/* ibv_wr_flush(3): its function is behind those that older headers know. */
static inline void wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, size_t length, uint8_t type, uint8_t level)
{
	size_t place = offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(qp->wr_atomic_write);
	wr_flush_function function;

	memcpy(&function, (char *)qp + place, sizeof(function));
	function(qp, rkey, address, length, type, level);
}

#endif

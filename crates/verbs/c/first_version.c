/*
 * The names of libibverbs 1.0, of programs that were built before 2007. Its structures are others, and nothing of it is built: what gives a status
 * answers EOPNOTSUPP, what gives a pointer NULL with errno EOPNOTSUPP. Programs that were built since find the names of IBVERBS_1.1.
 *
 * A reference without a version gets the default version, because IBVERBS_1.0 is not the first node of this library (scripts/link-library).
 */
#include <errno.h>
#include <stddef.h>

#define FIRST(name) __asm__(".symver first_" #name "," #name "@IBVERBS_1.0")

#define STATUS(name)               \
	int first_##name(void)     \
	{                          \
		return EOPNOTSUPP; \
	}                          \
	FIRST(name);

/* -1 with errno, as those that wait for an event. */
#define NUMBER(name)                 \
	int first_##name(void)       \
	{                            \
		errno = EOPNOTSUPP;  \
		return -1;           \
	}                            \
	FIRST(name);

#define POINTER(name)                \
	void *first_##name(void)     \
	{                            \
		errno = EOPNOTSUPP;  \
		return NULL;         \
	}                            \
	FIRST(name);

#define NOTHING(name)                \
	void first_##name(void)      \
	{                            \
		errno = EOPNOTSUPP;  \
	}                            \
	FIRST(name);

POINTER(ibv_get_device_list)
NOTHING(ibv_free_device_list)
POINTER(ibv_get_device_name)
POINTER(ibv_open_device)
STATUS(ibv_close_device)
NUMBER(ibv_get_async_event)
NOTHING(ibv_ack_async_event)
STATUS(ibv_query_device)
STATUS(ibv_query_port)
NUMBER(ibv_query_gid)
NUMBER(ibv_query_pkey)
POINTER(ibv_alloc_pd)
STATUS(ibv_dealloc_pd)
POINTER(ibv_reg_mr)
STATUS(ibv_dereg_mr)
POINTER(ibv_create_cq)
STATUS(ibv_resize_cq)
STATUS(ibv_destroy_cq)
NUMBER(ibv_get_cq_event)
NOTHING(ibv_ack_cq_events)
POINTER(ibv_create_srq)
STATUS(ibv_modify_srq)
STATUS(ibv_query_srq)
STATUS(ibv_destroy_srq)
POINTER(ibv_create_qp)
STATUS(ibv_query_qp)
STATUS(ibv_modify_qp)
STATUS(ibv_destroy_qp)
POINTER(ibv_create_ah)
STATUS(ibv_destroy_ah)
STATUS(ibv_attach_mcast)
STATUS(ibv_detach_mcast)

/* In network byte order; 0: none. */
unsigned long long first_ibv_get_device_guid(void)
{
	errno = EOPNOTSUPP;
	return 0;
}
FIRST(ibv_get_device_guid);

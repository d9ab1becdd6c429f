/*
 * Private symbols behind which there is nothing: the kernel's command interface and the set-up of providers' libraries, as no kernel
 * driver and no provider is there. libmlx5, libefa and their like need the names. What gives a status answers EOPNOTSUPP, what gives
 * a pointer NULL with errno EOPNOTSUPP. What gives nothing only sets errno, as nothing can exist that it would act on.
 *
 * Callers pass more arguments than these functions read: on x86-64 and AArch64 the caller cleans up.
 */
#include "private.h"

#include <errno.h>
#include <stddef.h>

struct ibv_context;

/* In src/query.rs and src/names.rs. */
int pagewire_query_gid_type(struct ibv_context *context, unsigned char port, unsigned int index, unsigned int *kind);
const char *pagewire_wr_opcode_str(unsigned int opcode);

#define STATUS(since, name)        \
	int private_##name(void)   \
	{                          \
		return EOPNOTSUPP; \
	}                          \
	SINCE_##since(private_##name, name);

#define POINTER(since, name)         \
	void *private_##name(void)   \
	{                            \
		errno = EOPNOTSUPP;  \
		return NULL;         \
	}                            \
	SINCE_##since(private_##name, name);

#define NOTHING(since, name)        \
	void private_##name(void)   \
	{                           \
		errno = EOPNOTSUPP; \
	}                           \
	SINCE_##since(private_##name, name);

/* Providers of each node register by a function of their own. */
#define REGISTRATION(node)                                \
	void private_verbs_register_driver_##node(void)   \
	{                                                 \
		errno = EOPNOTSUPP;                       \
	}                                                 \
	VERSION(private_verbs_register_driver_##node, verbs_register_driver_##node, node, "@@");

STATUS(34, __ioctl_final_num_attrs)
STATUS(34, execute_ioctl)
STATUS(34, ibv_cmd_advise_mr)
STATUS(34, ibv_cmd_alloc_dm)
STATUS(34, ibv_cmd_alloc_mw)
STATUS(34, ibv_cmd_alloc_pd)
STATUS(34, ibv_cmd_attach_mcast)
STATUS(34, ibv_cmd_close_xrcd)
STATUS(34, ibv_cmd_create_ah)
STATUS(34, ibv_cmd_create_counters)
STATUS(34, ibv_cmd_create_cq)
STATUS(34, ibv_cmd_create_cq_ex)
STATUS(34, ibv_cmd_create_cq_ex2)
STATUS(34, ibv_cmd_create_flow)
STATUS(34, ibv_cmd_create_flow_action_esp)
STATUS(34, ibv_cmd_create_qp)
STATUS(34, ibv_cmd_create_qp_ex)
STATUS(34, ibv_cmd_create_qp_ex2)
STATUS(34, ibv_cmd_create_rwq_ind_table)
STATUS(34, ibv_cmd_create_srq)
STATUS(34, ibv_cmd_create_srq_ex)
STATUS(34, ibv_cmd_create_wq)
STATUS(34, ibv_cmd_dealloc_mw)
STATUS(34, ibv_cmd_dealloc_pd)
STATUS(34, ibv_cmd_dereg_mr)
STATUS(34, ibv_cmd_destroy_ah)
STATUS(34, ibv_cmd_destroy_counters)
STATUS(34, ibv_cmd_destroy_cq)
STATUS(34, ibv_cmd_destroy_flow)
STATUS(34, ibv_cmd_destroy_flow_action)
STATUS(34, ibv_cmd_destroy_qp)
STATUS(34, ibv_cmd_destroy_rwq_ind_table)
STATUS(34, ibv_cmd_destroy_srq)
STATUS(34, ibv_cmd_destroy_wq)
STATUS(34, ibv_cmd_detach_mcast)
STATUS(34, ibv_cmd_free_dm)
STATUS(34, ibv_cmd_get_context)
STATUS(34, ibv_cmd_modify_cq)
STATUS(34, ibv_cmd_modify_flow_action_esp)
STATUS(34, ibv_cmd_modify_qp)
STATUS(34, ibv_cmd_modify_qp_ex)
STATUS(34, ibv_cmd_modify_srq)
STATUS(34, ibv_cmd_modify_wq)
STATUS(34, ibv_cmd_open_qp)
STATUS(34, ibv_cmd_open_xrcd)
STATUS(34, ibv_cmd_poll_cq)
STATUS(34, ibv_cmd_post_recv)
STATUS(34, ibv_cmd_post_send)
STATUS(34, ibv_cmd_post_srq_recv)
STATUS(34, ibv_cmd_query_context)
STATUS(34, ibv_cmd_query_device_any)
STATUS(34, ibv_cmd_query_mr)
STATUS(34, ibv_cmd_query_port)
STATUS(34, ibv_cmd_query_qp)
STATUS(34, ibv_cmd_query_srq)
STATUS(34, ibv_cmd_read_counters)
STATUS(34, ibv_cmd_reg_dm_mr)
STATUS(34, ibv_cmd_reg_dmabuf_mr)
STATUS(34, ibv_cmd_reg_mr)
STATUS(34, ibv_cmd_req_notify_cq)
STATUS(34, ibv_cmd_rereg_mr)
STATUS(34, ibv_cmd_resize_cq)
STATUS(59, ibv_cmd_alloc_dmah)
STATUS(59, ibv_cmd_export_dmabuf_fd)
STATUS(59, ibv_cmd_free_dmah)
STATUS(59, ibv_cmd_query_port_speed)
STATUS(59, ibv_cmd_reg_mr_ex)
POINTER(64, ibv_dmabuf_heap_cc_shared_init)
STATUS(65, ibv_cmd_create_comp_cntr)
STATUS(65, ibv_cmd_destroy_comp_cntr)
STATUS(65, ibv_cmd_inc_comp_cntr)
STATUS(65, ibv_cmd_inc_err_comp_cntr)
STATUS(65, ibv_cmd_qp_attach_comp_cntr)
STATUS(65, ibv_cmd_query_comp_cntr_caps)
STATUS(65, ibv_cmd_read_comp_cntr)
STATUS(65, ibv_cmd_read_err_comp_cntr)
STATUS(65, ibv_cmd_set_comp_cntr)
STATUS(65, ibv_cmd_set_err_comp_cntr)
POINTER(34, _verbs_init_and_alloc_context)
POINTER(34, verbs_open_device)
POINTER(64, ibv_dmabuf_heap_alloc)
NOTHING(34, verbs_init_cq)
NOTHING(34, verbs_set_ops)
NOTHING(34, verbs_uninit_context)
NOTHING(64, ibv_dmabuf_heap_destroy)
NOTHING(64, ibv_dmabuf_heap_free)

/* That of providers older than the private nodes. */
void ibv_register_driver(void)
{
	errno = EOPNOTSUPP;
}

REGISTRATION(22)
REGISTRATION(25)
REGISTRATION(33)
REGISTRATION(34)
REGISTRATION(57)
REGISTRATION(59)
REGISTRATION(64)
REGISTRATION(65)

/* What providers' libraries set where a device may go while a program holds objects of it (the only variable that libibverbs exports). Nobody reads
 * it here, but libraries write to it where they find it. */
_Bool private_verbs_allow_disassociate_destroy;
SINCE_34(private_verbs_allow_disassociate_destroy, verbs_allow_disassociate_destroy);

/* The type of a GID table entry, for ibv_devinfo, pyverbs and the providers' libraries. */
int private_query_gid_type(struct ibv_context *context, unsigned char port, unsigned int index, unsigned int *kind)
{
	return pagewire_query_gid_type(context, port, index, kind);
}
SINCE_34(private_query_gid_type, ibv_query_gid_type);

/* The name of an operation, for programs built against the header of rdma-core 56 and later. */
const char *private_wr_opcode_str(unsigned int opcode)
{
	return pagewire_wr_opcode_str(opcode);
}
SINCE_34(private_wr_opcode_str, ibv_wr_opcode_str);

//! Everything that is not supported yet, in one place: the code below is what refuses it, and `ALL` is its list.
//! Each answers EOPNOTSUPP (creating verbs: NULL with `errno` EOPNOTSUPP).

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, set_errno};
use libc::{EOPNOTSUPP, c_int, c_void};

/// How a program comes to a thing that is not supported.
#[derive(Debug, Clone, Copy)]
pub enum Entry {
    /// A function of the library that gives an `errno` value.
    Status(unsafe extern "C" fn() -> c_int),
    /// A function of the library that gives a pointer, here NULL with `errno` set.
    Pointer(unsafe extern "C" fn() -> *mut c_void),
    /// A function of the library that gives nothing.
    Nothing(unsafe extern "C" fn()),
    /// An operation of `verbs_context` that is NULL: the inline function of the header answers.
    Operation,
    /// A request, flag or type that the named verb refuses.
    Request,
}

/// One thing that is not supported.
#[derive(Debug, Clone, Copy)]
pub struct Unsupported {
    /// The function's or operation's name, or the constant's.
    pub name: &'static str,
    /// How a program comes to it.
    pub entry: Entry,
}

macro_rules! unsupported {
    (
        status { $($status:ident)* }
        pointer { $($pointer:ident)* }
        nothing { $($nothing:ident)* }
        operation { $($operation:ident)* }
        request { $($request:ident)* }
    ) => {
        $(
            /// Not supported: EOPNOTSUPP.
            #[unsafe(no_mangle)]
            pub extern "C" fn $status() -> c_int {
                EOPNOTSUPP
            }
        )*
        $(
            /// Not supported: NULL with `errno` EOPNOTSUPP.
            #[unsafe(no_mangle)]
            pub extern "C" fn $pointer() -> *mut c_void {
                set_errno(EOPNOTSUPP);
                std::ptr::null_mut()
            }
        )*
        $(
            /// Not supported: does nothing, as nothing can exist that it would act on.
            #[unsafe(no_mangle)]
            pub extern "C" fn $nothing() {
                set_errno(EOPNOTSUPP);
            }
        )*
        /// Everything that is not supported.
        pub const ALL: &[Unsupported] = &[
            $(Unsupported { name: stringify!($status), entry: Entry::Status($status) },)*
            $(Unsupported { name: stringify!($pointer), entry: Entry::Pointer($pointer) },)*
            $(Unsupported { name: stringify!($nothing), entry: Entry::Nothing($nothing) },)*
            $(Unsupported { name: stringify!($operation), entry: Entry::Operation },)*
            $(Unsupported { name: stringify!($request), entry: Entry::Request },)*
        ];

        /// Whether an operation of `verbs_context` is absent.
        #[cfg(test)]
        fn is_absent(operations: &verbs_context, name: &str) -> bool {
            match name {
                $(stringify!($operation) => operations.$operation.is_none(),)*
                _ => false,
            }
        }
    };
}

// Functions of the C calling convention may be called with more arguments than they read (x86-64, AArch64: the caller
// cleans up), so that these need not know their parameters.
unsupported! {
    status {
        ibv_attach_mcast ibv_detach_mcast
        // Private: the kernel's command interface, behind which no kernel driver is; libmlx5 and libefa need the names.
        __ioctl_final_num_attrs execute_ioctl
        ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd
        ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_flow
        ibv_cmd_create_flow_action_esp ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2
        ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw
        ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq
        ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
        ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context
        ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq
        ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send
        ibv_cmd_post_srq_recv ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port
        ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr
        ibv_cmd_reg_mr ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
    }
    pointer {
        ibv_import_device ibv_import_pd ibv_import_mr ibv_import_dm ibv_reg_dmabuf_mr
        // Private: contexts and devices of the providers' libraries.
        _verbs_init_and_alloc_context verbs_open_device
    }
    nothing {
        ibv_unimport_pd ibv_unimport_mr ibv_unimport_dm
        // Private: registration and set-up of the providers' libraries, which have no device here.
        verbs_allow_disassociate_destroy verbs_init_cq verbs_register_driver_34 verbs_set_ops verbs_uninit_context
    }
    operation {
        read_counters attach_counters_point_flow create_counters destroy_counters
        reg_dm_mr alloc_dm free_dm modify_flow_action_esp destroy_flow_action create_flow_action_esp
        modify_qp_rate_limit post_srq_ops destroy_rwq_ind_table
        create_rwq_ind_table destroy_wq modify_wq create_wq ibv_destroy_flow ibv_create_flow
        open_qp get_srq_num create_srq_ex open_xrcd
    }
    request {
        // ibv_create_qp
        IBV_QPT_RAW_PACKET IBV_QPT_XRC_SEND IBV_QPT_XRC_RECV IBV_QPT_DRIVER
        // ibv_create_qp_ex
        IBV_QP_INIT_ATTR_XRCD IBV_QP_INIT_ATTR_CREATE_FLAGS IBV_QP_INIT_ATTR_MAX_TSO_HEADER IBV_QP_INIT_ATTR_IND_TABLE
        IBV_QP_INIT_ATTR_RX_HASH IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        // ibv_modify_qp
        IBV_QP_ALT_PATH
        // ibv_post_send
        IBV_WR_LOCAL_INV IBV_WR_BIND_MW IBV_WR_TSO IBV_WR_DRIVER1 IBV_WR_ATOMIC_WRITE
        // ibv_create_cq_ex
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
        IBV_WC_EX_WITH_CVLAN IBV_WC_EX_WITH_FLOW_TAG IBV_WC_EX_WITH_TM_INFO
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    }
}

/// `ibv_alloc_mw(3)`, by way of `context->ops`.
pub extern "C" fn alloc_mw(_pd: *mut ibv_pd, _kind: ibv_mw_type) -> *mut ibv_mw {
    set_errno(EOPNOTSUPP);
    std::ptr::null_mut()
}

/// `ibv_bind_mw(3)`, by way of `context->ops`.
pub extern "C" fn bind_mw(_qp: *mut ibv_qp, _mw: *mut ibv_mw, _bind: *mut ibv_mw_bind) -> c_int {
    EOPNOTSUPP
}

/// `ibv_dealloc_mw(3)`, by way of `context->ops`.
pub extern "C" fn dealloc_mw(_mw: *mut ibv_mw) -> c_int {
    EOPNOTSUPP
}

/// `ibv_close_xrcd(3)`, by way of `verbs_context`, which the header calls without looking.
pub extern "C" fn close_xrcd(_xrcd: *mut ibv_xrcd) -> c_int {
    EOPNOTSUPP
}

/// Why a queue pair of a type is refused.
pub fn queue_pair_type(kind: ibv_qp_type) -> Errno {
    match kind {
        IBV_QPT_RAW_PACKET | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV | IBV_QPT_DRIVER => Errno(EOPNOTSUPP),
        _ => Errno(libc::EINVAL),
    }
}

/// Why a send request with an opcode is refused.
pub fn send_opcode(opcode: ibv_wr_opcode) -> Errno {
    match opcode {
        // There are no memory windows yet that a local invalidate could act on.
        IBV_WR_LOCAL_INV | IBV_WR_BIND_MW | IBV_WR_TSO | IBV_WR_DRIVER1 | IBV_WR_ATOMIC_WRITE => {
            Errno(EOPNOTSUPP)
        }
        _ => Errno(libc::EINVAL),
    }
}

/// Refuses what the extended creation of queue pairs cannot do. Options that are named but ask for nothing pass.
pub fn queue_pair_options(init: &ibv_qp_init_attr_ex) -> Result<()> {
    const KNOWN: u32 = (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS << 1) - 1;
    if init.comp_mask & !KNOWN != 0 {
        return invalid("comp_mask");
    }
    let named = |flag| init.comp_mask & flag != 0;
    let refused = named(IBV_QP_INIT_ATTR_XRCD)
        || named(IBV_QP_INIT_ATTR_IND_TABLE)
        || named(IBV_QP_INIT_ATTR_RX_HASH)
        || named(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0
        || named(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && init.max_tso_header != 0
        || named(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && init.send_ops_flags != 0;
    if refused { Err(Errno(EOPNOTSUPP)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::verbs_operations;

    #[test]
    fn each_answers_that_it_is_not_supported() {
        let operations = verbs_operations();
        for thing in ALL {
            set_errno(0);
            // SAFETY: the functions read no arguments.
            unsafe {
                match thing.entry {
                    Entry::Status(function) => assert_eq!(function(), EOPNOTSUPP, "{}", thing.name),
                    Entry::Pointer(function) => {
                        assert!(function().is_null(), "{}", thing.name);
                        assert_eq!(
                            std::io::Error::last_os_error().raw_os_error(),
                            Some(EOPNOTSUPP),
                            "{}",
                            thing.name
                        );
                    }
                    Entry::Nothing(function) => function(),
                    Entry::Operation => {
                        assert!(is_absent(&operations, thing.name), "{} is there", thing.name)
                    }
                    // Needs objects: tests/c/refused.c.
                    Entry::Request => {}
                }
            }
        }
    }

    #[test]
    fn what_has_no_objects_refuses_them() {
        use std::ptr::null_mut;
        assert!(alloc_mw(null_mut(), 1).is_null());
        assert_eq!(bind_mw(null_mut(), null_mut(), null_mut()), EOPNOTSUPP);
        assert_eq!(dealloc_mw(null_mut()), EOPNOTSUPP);
        assert_eq!(close_xrcd(null_mut()), EOPNOTSUPP);
    }

    #[test]
    fn types_and_opcodes_that_do_not_exist_are_invalid() {
        assert_eq!(queue_pair_type(IBV_QPT_XRC_SEND), Errno(EOPNOTSUPP));
        assert_eq!(queue_pair_type(77), Errno(libc::EINVAL));
        assert_eq!(send_opcode(IBV_WR_TSO), Errno(EOPNOTSUPP));
        assert_eq!(send_opcode(77), Errno(libc::EINVAL));
    }
}

//! The structures and constants of `<infiniband/verbs.h>` (rdma-core 44, x86-64), and what is certain about their layout.

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_docs,
    dead_code,
    unused_imports,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
#[rustfmt::skip]
mod bindings;

pub use bindings::*;
use std::mem::offset_of;

/// Bits of the access flags that a device may ignore when it does not know them (`IBV_ACCESS_OPTIONAL_RANGE` in the headers).
pub const IBV_ACCESS_OPTIONAL_RANGE: u32 = 0x3FF0_0000;

/// A port needs a GRH in each address vector (`IBV_QPF_GRH_REQUIRED` in the headers).
pub const IBV_QPF_GRH_REQUIRED: u8 = 1;

/// `IBV_WR_FLUSH` of rdma-core 45.
pub const IBV_WR_FLUSH: ibv_wr_opcode = 14;

/// `IBV_ACCESS_FLUSH_GLOBAL` of rdma-core 45.
pub const IBV_ACCESS_FLUSH_GLOBAL: ibv_access_flags = 1 << 8;

/// `IBV_ACCESS_FLUSH_PERSISTENT` of rdma-core 45.
pub const IBV_ACCESS_FLUSH_PERSISTENT: ibv_access_flags = 1 << 9;

/// `IBV_ODP_SUPPORT_FLUSH` of newer headers.
pub const IBV_ODP_SUPPORT_FLUSH: u32 = 1 << 6;

/// `IBV_ODP_SUPPORT_ATOMIC_WRITE` of newer headers.
pub const IBV_ODP_SUPPORT_ATOMIC_WRITE: u32 = 1 << 7;

/// A function of [`FlushingQueuePair`].
pub type WrFlush =
    unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, len: usize, type_: u8, level: u8);

/// `struct ibv_qp_ex` of rdma-core 45: what the one of rdma-core 44 has, and one function behind it.
#[repr(C)]
pub struct FlushingQueuePair {
    pub qp: ibv_qp_ex,
    pub wr_flush: Option<WrFlush>,
}

/// `struct ibv_comp_cntr` of rdma-core 65.
#[repr(C)]
pub struct ibv_comp_cntr {
    pub context: *mut ibv_context,
    pub handle: u32,
}

/// `struct ibv_comp_cntr_caps` of rdma-core 65.
#[repr(C)]
pub struct ibv_comp_cntr_caps {
    pub max_value: u64,
    pub max_counters: u32,
    pub supported_qp_attach_ops: u32,
}

/// `struct ibv_comp_cntr_init_attr` of rdma-core 65.
#[repr(C)]
pub struct ibv_comp_cntr_init_attr {
    pub comp_mask: u32,
    pub type_: u32,
    pub flags: u32,
}

/// `IBV_COMP_CNTR_TYPE_WRS` of rdma-core 65.
pub const IBV_COMP_CNTR_TYPE_WRS: u32 = 0;

/// `IBV_COMP_CNTR_TYPE_BYTES` of rdma-core 65.
pub const IBV_COMP_CNTR_TYPE_BYTES: u32 = 1;

/// `struct ibv_qp_attach_comp_cntr_attr` of rdma-core 65.
#[repr(C)]
pub struct ibv_qp_attach_comp_cntr_attr {
    pub comp_mask: u32,
    pub op_mask: u32,
}

/// `abi_compat` of a context that is part of a `verbs_context` (`__VERBS_ABI_IS_EXTENDED`).
pub const EXTENDED: usize = usize::MAX;

/// Where `struct ibv_context` lies in `struct verbs_context`.
pub const CONTEXT_OFFSET: usize = offset_of!(verbs_context, context);

/// A structure of the C ABI for which all zeroes is a valid value.
///
/// # Safety
/// All-zero bytes are a valid value of the type.
pub unsafe trait Zeroed: Sized {
    /// The structure with every byte zero: numbers 0, pointers NULL, functions absent, mutexes as initialised.
    fn zeroed() -> Self {
        // SAFETY: the trait's promise.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zeroed {
    ($($name:ident)*) => {$(
        // SAFETY: a C structure of integers, raw pointers, optional function pointers and glibc mutexes, for which
        // zero is the initial value (PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER).
        unsafe impl Zeroed for $name {}
    )*};
}

zeroed! {
    ibv_device verbs_context ibv_device_attr ibv_device_attr_ex ibv_port_attr ibv_pd ibv_mr
    ibv_comp_channel ibv_cq_ex ibv_send_wr ibv_srq ibv_qp_ex ibv_ah ibv_ah_attr ibv_qp_attr ibv_qp_init_attr ibv_wc ibv_gid_entry
    ibv_sa_path_rec ib_user_path_rec ib_uverbs_qp_attr ib_uverbs_ah_attr
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    /// The facts that binaries built against rdma-core depend on.
    #[test]
    fn layout_is_that_of_the_headers() {
        assert_eq!(size_of::<verbs_context>(), 648);
        assert_eq!(offset_of!(verbs_context, context), 320);
        assert_eq!(offset_of!(verbs_context, sz), 312);
        assert_eq!(size_of::<ibv_context>(), 328);
        assert_eq!(offset_of!(ibv_context, ops) + offset_of!(ibv_context_ops, poll_cq), 96);
        assert_eq!(offset_of!(ibv_context, ops) + offset_of!(ibv_context_ops, post_send), 208);
        assert_eq!(offset_of!(ibv_context, ops) + offset_of!(ibv_context_ops, post_recv), 216);
        assert_eq!(offset_of!(verbs_context, query_port), 0);
        assert_eq!(size_of::<ibv_device>(), 664);
        assert_eq!(size_of::<ibv_qp_ex>(), 352);
        assert_eq!(offset_of!(ibv_qp_ex, qp_base), 0);
        assert_eq!(size_of::<ibv_cq_ex>(), 288);
        assert_eq!(offset_of!(ibv_cq_ex, comp_mask), size_of::<ibv_cq>());
        assert_eq!(size_of::<ibv_port_attr>(), 52);
        assert_eq!(size_of::<ibv_sge>(), 16);
        assert_eq!(size_of::<ibv_wc>(), 48);
        assert_eq!(size_of::<ibv_send_wr>(), 128);
        assert_eq!(size_of::<ibv_recv_wr>(), 32);
        assert_eq!(size_of::<ibv_grh>(), 40);
        assert_eq!(size_of::<ibv_gid_entry>(), 32);
        assert_eq!(size_of::<ibv_async_event>(), 16);
        assert_eq!(size_of::<ibv_comp_cntr>(), 16);
        assert_eq!(size_of::<ibv_comp_cntr_caps>(), 16);
        assert_eq!(size_of::<ibv_comp_cntr_init_attr>(), 12);
        assert_eq!(size_of::<ibv_qp_attach_comp_cntr_attr>(), 8);
    }

    /// `struct ibv_cq` is how `struct ibv_cq_ex` begins.
    #[test]
    fn a_completion_queue_begins_alike() {
        assert_eq!(offset_of!(ibv_cq, context), offset_of!(ibv_cq_ex, context));
        assert_eq!(offset_of!(ibv_cq, channel), offset_of!(ibv_cq_ex, channel));
        assert_eq!(offset_of!(ibv_cq, cq_context), offset_of!(ibv_cq_ex, cq_context));
        assert_eq!(offset_of!(ibv_cq, cqe), offset_of!(ibv_cq_ex, cqe));
        assert_eq!(offset_of!(ibv_cq, async_events_completed), offset_of!(ibv_cq_ex, async_events_completed));
    }

    /// An engine's scatter-gather element is the program's.
    #[test]
    fn scatter_gather_elements_are_alike() {
        use pagewire_nic::ScatterGather;
        assert_eq!(size_of::<ScatterGather>(), size_of::<ibv_sge>());
        assert_eq!(align_of::<ScatterGather>(), align_of::<ibv_sge>());
        assert_eq!(offset_of!(ScatterGather, address), offset_of!(ibv_sge, addr));
        assert_eq!(offset_of!(ScatterGather, length), offset_of!(ibv_sge, length));
        assert_eq!(offset_of!(ScatterGather, key), offset_of!(ibv_sge, lkey));
    }
}

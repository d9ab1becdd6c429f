//! The verbs by their names in C.

use crate::event::ObjectKind;
use strum::{EnumIter, EnumString, IntoStaticStr};

/// A function of libibverbs that a program calls, or a command that librdmacm writes to its device file, by the name of the function that does.
///
/// `ibv_reg_mr` stands for `ibv_reg_mr_iova2(3)`, too, which the header calls in its place where the access flags are no constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, EnumIter, EnumString, IntoStaticStr)]
#[repr(u8)]
pub enum Verb {
    #[strum(serialize = "ibv_get_device_list")]
    GetDeviceList,
    #[strum(serialize = "ibv_free_device_list")]
    FreeDeviceList,
    #[strum(serialize = "ibv_open_device")]
    OpenDevice,
    #[strum(serialize = "ibv_import_device")]
    ImportDevice,
    #[strum(serialize = "ibv_close_device")]
    CloseDevice,
    #[strum(serialize = "ibv_query_device")]
    QueryDevice,
    #[strum(serialize = "ibv_query_device_ex")]
    QueryDeviceEx,
    #[strum(serialize = "ibv_query_rt_values_ex")]
    QueryRtValuesEx,
    #[strum(serialize = "ibv_query_port")]
    QueryPort,
    #[strum(serialize = "ibv_query_port_speed")]
    QueryPortSpeed,
    #[strum(serialize = "ibv_query_gid")]
    QueryGid,
    #[strum(serialize = "ibv_query_gid_ex")]
    QueryGidEx,
    #[strum(serialize = "ibv_query_gid_table")]
    QueryGidTable,
    #[strum(serialize = "ibv_query_pkey")]
    QueryPkey,
    #[strum(serialize = "ibv_get_pkey_index")]
    GetPkeyIndex,
    #[strum(serialize = "ibv_alloc_pd")]
    AllocPd,
    #[strum(serialize = "ibv_dealloc_pd")]
    DeallocPd,
    #[strum(serialize = "ibv_import_pd")]
    ImportPd,
    #[strum(serialize = "ibv_unimport_pd")]
    UnimportPd,
    #[strum(serialize = "ibv_alloc_td")]
    AllocTd,
    #[strum(serialize = "ibv_dealloc_td")]
    DeallocTd,
    #[strum(serialize = "ibv_alloc_parent_domain")]
    AllocParentDomain,
    #[strum(serialize = "ibv_reg_mr")]
    RegMr,
    #[strum(serialize = "ibv_reg_mr_iova")]
    RegMrIova,
    #[strum(serialize = "ibv_reg_mr_ex")]
    RegMrEx,
    #[strum(serialize = "ibv_alloc_buf")]
    AllocBuf,
    #[strum(serialize = "ibv_free_buf")]
    FreeBuf,
    #[strum(serialize = "ibv_alloc_null_mr")]
    AllocNullMr,
    #[strum(serialize = "ibv_rereg_mr")]
    ReregMr,
    #[strum(serialize = "ibv_dereg_mr")]
    DeregMr,
    #[strum(serialize = "ibv_import_mr")]
    ImportMr,
    #[strum(serialize = "ibv_unimport_mr")]
    UnimportMr,
    #[strum(serialize = "ibv_advise_mr")]
    AdviseMr,
    #[strum(serialize = "ibv_alloc_dm")]
    AllocDm,
    #[strum(serialize = "ibv_reg_dm_mr")]
    RegDmMr,
    #[strum(serialize = "ibv_free_dm")]
    FreeDm,
    #[strum(serialize = "ibv_import_dm")]
    ImportDm,
    #[strum(serialize = "ibv_unimport_dm")]
    UnimportDm,
    #[strum(serialize = "ibv_alloc_mw")]
    AllocMw,
    #[strum(serialize = "ibv_bind_mw")]
    BindMw,
    #[strum(serialize = "ibv_dealloc_mw")]
    DeallocMw,
    #[strum(serialize = "ibv_create_comp_channel")]
    CreateCompChannel,
    #[strum(serialize = "ibv_destroy_comp_channel")]
    DestroyCompChannel,
    #[strum(serialize = "ibv_get_cq_event")]
    GetCqEvent,
    #[strum(serialize = "ibv_ack_cq_events")]
    AckCqEvents,
    #[strum(serialize = "ibv_create_cq")]
    CreateCq,
    #[strum(serialize = "ibv_create_cq_ex")]
    CreateCqEx,
    #[strum(serialize = "ibv_resize_cq")]
    ResizeCq,
    #[strum(serialize = "ibv_modify_cq")]
    ModifyCq,
    #[strum(serialize = "ibv_destroy_cq")]
    DestroyCq,
    #[strum(serialize = "ibv_poll_cq")]
    PollCq,
    #[strum(serialize = "ibv_start_poll")]
    StartPoll,
    #[strum(serialize = "ibv_next_poll")]
    NextPoll,
    #[strum(serialize = "ibv_end_poll")]
    EndPoll,
    #[strum(serialize = "ibv_req_notify_cq")]
    ReqNotifyCq,
    #[strum(serialize = "ibv_query_comp_cntr_caps")]
    QueryCompCntrCaps,
    #[strum(serialize = "ibv_create_comp_cntr")]
    CreateCompCntr,
    #[strum(serialize = "ibv_destroy_comp_cntr")]
    DestroyCompCntr,
    #[strum(serialize = "ibv_qp_attach_comp_cntr")]
    QpAttachCompCntr,
    #[strum(serialize = "ibv_set_comp_cntr")]
    SetCompCntr,
    #[strum(serialize = "ibv_set_err_comp_cntr")]
    SetErrCompCntr,
    #[strum(serialize = "ibv_inc_comp_cntr")]
    IncCompCntr,
    #[strum(serialize = "ibv_inc_err_comp_cntr")]
    IncErrCompCntr,
    #[strum(serialize = "ibv_read_comp_cntr")]
    ReadCompCntr,
    #[strum(serialize = "ibv_read_err_comp_cntr")]
    ReadErrCompCntr,
    #[strum(serialize = "ibv_open_xrcd")]
    OpenXrcd,
    #[strum(serialize = "ibv_close_xrcd")]
    CloseXrcd,
    #[strum(serialize = "ibv_create_srq_ex")]
    CreateSrqEx,
    #[strum(serialize = "ibv_get_srq_num")]
    GetSrqNum,
    #[strum(serialize = "ibv_open_qp")]
    OpenQp,
    #[strum(serialize = "ibv_create_srq")]
    CreateSrq,
    #[strum(serialize = "ibv_modify_srq")]
    ModifySrq,
    #[strum(serialize = "ibv_query_srq")]
    QuerySrq,
    #[strum(serialize = "ibv_destroy_srq")]
    DestroySrq,
    #[strum(serialize = "ibv_post_srq_recv")]
    PostSrqRecv,
    #[strum(serialize = "ibv_create_qp")]
    CreateQp,
    #[strum(serialize = "ibv_create_qp_ex")]
    CreateQpEx,
    #[strum(serialize = "ibv_modify_qp")]
    ModifyQp,
    #[strum(serialize = "ibv_query_qp")]
    QueryQp,
    #[strum(serialize = "ibv_destroy_qp")]
    DestroyQp,
    #[strum(serialize = "ibv_post_send")]
    PostSend,
    #[strum(serialize = "ibv_post_recv")]
    PostRecv,
    #[strum(serialize = "ibv_query_ece")]
    QueryEce,
    #[strum(serialize = "ibv_set_ece")]
    SetEce,
    #[strum(serialize = "ibv_attach_mcast")]
    AttachMcast,
    #[strum(serialize = "ibv_detach_mcast")]
    DetachMcast,
    #[strum(serialize = "ibv_create_ah")]
    CreateAh,
    #[strum(serialize = "ibv_init_ah_from_wc")]
    InitAhFromWc,
    #[strum(serialize = "ibv_create_ah_from_wc")]
    CreateAhFromWc,
    #[strum(serialize = "ibv_destroy_ah")]
    DestroyAh,
    #[strum(serialize = "ibv_resolve_eth_l2_from_gid")]
    ResolveEthL2FromGid,
    #[strum(serialize = "ibv_get_async_event")]
    GetAsyncEvent,
    #[strum(serialize = "ibv_ack_async_event")]
    AckAsyncEvent,
    #[strum(serialize = "rdma_create_id")]
    RdmaCreateId,
    #[strum(serialize = "rdma_destroy_id")]
    RdmaDestroyId,
    #[strum(serialize = "rdma_bind_addr")]
    RdmaBindAddr,
    #[strum(serialize = "rdma_resolve_addr")]
    RdmaResolveAddr,
    #[strum(serialize = "rdma_resolve_route")]
    RdmaResolveRoute,
    #[strum(serialize = "rdma_query_route")]
    RdmaQueryRoute,
    #[strum(serialize = "rdma_connect")]
    RdmaConnect,
    #[strum(serialize = "rdma_listen")]
    RdmaListen,
    #[strum(serialize = "rdma_accept")]
    RdmaAccept,
    #[strum(serialize = "rdma_reject")]
    RdmaReject,
    #[strum(serialize = "rdma_disconnect")]
    RdmaDisconnect,
    #[strum(serialize = "rdma_init_qp_attr")]
    RdmaInitQpAttr,
    #[strum(serialize = "rdma_get_cm_event")]
    RdmaGetCmEvent,
    #[strum(serialize = "rdma_set_option")]
    RdmaSetOption,
    #[strum(serialize = "rdma_notify")]
    RdmaNotify,
    #[strum(serialize = "rdma_join_multicast")]
    RdmaJoinMulticast,
    #[strum(serialize = "rdma_leave_multicast")]
    RdmaLeaveMulticast,
    #[strum(serialize = "rdma_migrate_id")]
    RdmaMigrateId,
    #[strum(serialize = "rdma_write_cm_event")]
    RdmaWriteCmEvent,
}

impl Verb {
    /// The name in C, such as `ibv_reg_mr`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The verb with this name in C. What the header makes of another name is that name: `ibv_reg_mr_iova2` is `ibv_reg_mr`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ibv_reg_mr_iova2" => Some(Verb::RegMr),
            _ => name.parse().ok(),
        }
    }

    /// Whether the verb can fail. The others return nothing.
    pub fn can_fail(self) -> bool {
        !matches!(
            self,
            Verb::FreeDeviceList
                | Verb::FreeBuf
                | Verb::UnimportPd
                | Verb::UnimportMr
                | Verb::UnimportDm
                | Verb::AckCqEvents
                | Verb::AckAsyncEvent
                | Verb::EndPoll
        )
    }

    /// Whether the verb asks for completions. It is called again and again, as often as the processor is fast.
    pub fn polls(self) -> bool {
        matches!(self, Verb::PollCq | Verb::StartPoll | Verb::NextPoll)
    }

    /// The kind of queue that the verb works on again and again: its calls are counted for each queue.
    pub fn queue(self) -> Option<ObjectKind> {
        match self {
            Verb::PostSend | Verb::PostRecv => Some(ObjectKind::QueuePair),
            Verb::PostSrqRecv => Some(ObjectKind::SharedReceiveQueue),
            Verb::PollCq | Verb::StartPoll | Verb::NextPoll | Verb::EndPoll | Verb::ReqNotifyCq => {
                Some(ObjectKind::CompletionQueue)
            }
            _ => None,
        }
    }

    /// The kind of object that the verb is called on, among those that rules number.
    pub fn object(self) -> Option<ObjectKind> {
        match self {
            Verb::ModifyQp
            | Verb::QueryQp
            | Verb::DestroyQp
            | Verb::PostSend
            | Verb::PostRecv
            | Verb::QueryEce
            | Verb::SetEce
            | Verb::QpAttachCompCntr
            | Verb::AttachMcast
            | Verb::DetachMcast => Some(ObjectKind::QueuePair),
            Verb::AckCqEvents
            | Verb::ResizeCq
            | Verb::ModifyCq
            | Verb::DestroyCq
            | Verb::PollCq
            | Verb::StartPoll
            | Verb::NextPoll
            | Verb::EndPoll
            | Verb::ReqNotifyCq => Some(ObjectKind::CompletionQueue),
            Verb::ModifySrq | Verb::QuerySrq | Verb::DestroySrq | Verb::PostSrqRecv => {
                Some(ObjectKind::SharedReceiveQueue)
            }
            _ => None,
        }
    }

    /// All verbs.
    pub fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_c() {
        for verb in Verb::all() {
            assert!(verb.name().starts_with("ibv_") || verb.name().starts_with("rdma_"), "{verb:?}");
            assert_eq!(Verb::from_name(verb.name()), Some(verb));
        }
        assert_eq!(Verb::RegMr.name(), "ibv_reg_mr");
        assert_eq!(Verb::ResolveEthL2FromGid.name(), "ibv_resolve_eth_l2_from_gid");
        assert_eq!(Verb::from_name("ibv_reg_mr_iova2"), Some(Verb::RegMr));
        assert_eq!(Verb::from_name("reg_mr"), None);
    }

    #[test]
    fn queues_are_objects() {
        for verb in Verb::all().filter(|verb| verb.queue().is_some()) {
            assert_eq!(verb.object(), verb.queue(), "{verb:?}");
        }
    }
}

//! Which errors a verb may return, and which statuses a completion may have.

use crate::checks::{is_of_unreliable, status_fits};
use crate::{EventOpcode, Verb, WorkStatus};
use strum::IntoEnumIterator;

/// The names of the errnos of a verb: those that its manual page names. Where it names none, the one that the kernel or rdma-core's
/// providers have for it. Empty: the verb cannot fail, or is called again and again.
pub fn errnos(verb: Verb) -> &'static [&'static str] {
    use Verb::*;
    match verb {
        // ibv_get_device_list(3), ERRORS.
        GetDeviceList => &["EPERM", "ENOMEM", "ENOSYS"],
        // ibv_advise_mr(3), RETURN VALUE. ENOTSUP is EOPNOTSUPP on Linux.
        AdviseMr => &["EOPNOTSUPP", "EFAULT", "EINVAL"],
        // ibv_create_cq_ex(3): a flag that is not supported.
        CreateCqEx => &["ENOMEM", "ENOENT"],
        // ibv_query_gid_ex(3), ERRORS.
        QueryGidEx => &["ENODATA"],
        // ibv_query_ece(3), ibv_set_ece(3), RETURN VALUE.
        QueryEce | SetEce => &["EOPNOTSUPP", "EINVAL"],
        // These give NULL, by their manual pages: memory is what most often lacks.
        OpenDevice | AllocPd | AllocTd | AllocParentDomain | RegMr | RegMrIova | RegMrEx | AllocBuf
        | AllocNullMr | AllocMw | AllocDm | RegDmMr | ImportDevice | ImportPd | ImportMr | ImportDm
        | CreateCompChannel | CreateCompCntr | CreateCq | CreateSrq | CreateSrqEx | OpenXrcd | OpenQp
        | CreateQp | CreateQpEx | CreateAh | CreateAhFromWc => &["ENOMEM"],
        ResizeCq | ReregMr => &["ENOMEM"],
        // A queue that is full: ENOMEM in the providers of rdma-core.
        PostSend | PostRecv | PostSrqRecv | BindMw => &["ENOMEM"],
        // A signal ends the read(2) beneath.
        GetCqEvent | GetAsyncEvent | RdmaGetCmEvent => &["EINTR"],
        // These ask or change: "the value of errno".
        QueryDevice | QueryDeviceEx | QueryRtValuesEx | QueryPort | QueryPortSpeed | QueryGid
        | QueryGidTable | QueryPkey | GetPkeyIndex | QueryQp | QuerySrq | ModifyQp | ModifySrq | ModifyCq
        | ReqNotifyCq | AttachMcast | DetachMcast | InitAhFromWc | ResolveEthL2FromGid => &["EINVAL"],
        // These destroy: the kernel refuses what is in use.
        DeallocPd | DeallocTd | DeregMr | FreeDm | CloseXrcd | DestroyCompChannel | DestroyCq | DestroyQp
        | DestroySrq => &["EBUSY"],
        DestroyCompCntr => &["EBUSY"],
        // ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), ERRORS. ENOTSUP is EOPNOTSUPP on Linux.
        QpAttachCompCntr => &["EOPNOTSUPP", "EINVAL", "EBUSY"],
        QueryCompCntrCaps => &["EOPNOTSUPP"],
        SetCompCntr | SetErrCompCntr | IncCompCntr | IncErrCompCntr | ReadCompCntr | ReadErrCompCntr => {
            &["EOPNOTSUPP", "EINVAL"]
        }
        DestroyAh | CloseDevice | DeallocMw | GetSrqNum => &["EINVAL"],
        RdmaCreateId => &["ENOMEM"],
        RdmaBindAddr | RdmaListen => &["EADDRINUSE"],
        RdmaResolveAddr => &["ENODEV"],
        // rdma_notify(3): the connection was established before.
        RdmaNotify => &["EISCONN"],
        RdmaDestroyId | RdmaResolveRoute | RdmaQueryRoute | RdmaConnect | RdmaAccept | RdmaReject
        | RdmaDisconnect | RdmaInitQpAttr | RdmaSetOption | RdmaJoinMulticast | RdmaLeaveMulticast
        | RdmaMigrateId | RdmaWriteCmEvent => &["EINVAL"],
        PollCq | StartPoll | NextPoll | EndPoll | FreeDeviceList | FreeBuf | UnimportPd | UnimportMr
        | UnimportDm | AckCqEvents | AckAsyncEvent => &[],
    }
}

/// The statuses with which a work request may end, the most common failure first; `is_reliable`: on a queue pair whose peer answers (RC).
pub fn statuses(opcode: EventOpcode, is_reliable: bool) -> impl Iterator<Item = WorkStatus> {
    let common = match (opcode, is_reliable) {
        (EventOpcode::Recv, _) => WorkStatus::LocalLength,
        (_, true) => WorkStatus::RetryExceeded,
        (_, false) => WorkStatus::Flushed,
    };
    let others = WorkStatus::iter().filter(move |status| *status != common);
    let fits =
        move |status: &WorkStatus| status_fits(*status, opcode) && (is_reliable || is_of_unreliable(*status));
    std::iter::once(common).chain(others).filter(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_fail_has_an_errno() {
        for verb in Verb::all() {
            let expected = verb.can_fail() && !verb.polls();
            assert_eq!(!errnos(verb).is_empty(), expected, "{}", verb.name());
            assert!(errnos(verb).iter().all(|name| crate::errno_of(name).is_some()), "{}", verb.name());
        }
    }

    #[test]
    fn most_common_status_is_first() {
        let of = |opcode, is_reliable| statuses(opcode, is_reliable).collect::<Vec<_>>();
        assert_eq!(of(EventOpcode::Send, true)[0], WorkStatus::RetryExceeded);
        assert!(of(EventOpcode::RdmaWrite, true).contains(&WorkStatus::RemoteAccess));
        assert!(of(EventOpcode::Send, true).len() > of(EventOpcode::Send, false).len());
        assert_eq!(of(EventOpcode::Recv, true), [WorkStatus::LocalLength, WorkStatus::LocalProtection]);
        assert!(of(EventOpcode::Acknowledge, true).is_empty(), "no work request");
    }
}

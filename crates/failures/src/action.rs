//! What a rule does.

use crate::errno::errno_name;
use std::fmt;
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

/// The status of a completion, as `enum ibv_wc_status` names and numbers it. Those that RC, UC and UD have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumIter, EnumString, IntoStaticStr)]
#[repr(u32)]
pub enum WorkStatus {
    #[strum(serialize = "IBV_WC_LOC_LEN_ERR")]
    LocalLength = 1,
    #[strum(serialize = "IBV_WC_LOC_QP_OP_ERR")]
    LocalQpOperation = 2,
    #[strum(serialize = "IBV_WC_LOC_PROT_ERR")]
    LocalProtection = 4,
    #[strum(serialize = "IBV_WC_WR_FLUSH_ERR")]
    Flushed = 5,
    #[strum(serialize = "IBV_WC_MW_BIND_ERR")]
    WindowBind = 6,
    #[strum(serialize = "IBV_WC_BAD_RESP_ERR")]
    BadResponse = 7,
    #[strum(serialize = "IBV_WC_REM_INV_REQ_ERR")]
    RemoteInvalidRequest = 9,
    #[strum(serialize = "IBV_WC_REM_ACCESS_ERR")]
    RemoteAccess = 10,
    #[strum(serialize = "IBV_WC_REM_OP_ERR")]
    RemoteOperation = 11,
    #[strum(serialize = "IBV_WC_RETRY_EXC_ERR")]
    RetryExceeded = 12,
    #[strum(serialize = "IBV_WC_RNR_RETRY_EXC_ERR")]
    RnrRetryExceeded = 13,
}

/// Asynchronous events that a rule may raise (names of `enum ibv_event_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumIter, EnumString, IntoStaticStr)]
pub enum RuleEvent {
    /// The port goes down, and stays so until PORT_ACTIVE.
    #[strum(serialize = "IBV_EVENT_PORT_ERR")]
    PortError,
    #[strum(serialize = "IBV_EVENT_PORT_ACTIVE")]
    PortActive,
    #[strum(serialize = "IBV_EVENT_GID_CHANGE")]
    GidChange,
    /// The device is gone: queue pairs go to the error state, and verbs that make or change something give EIO.
    #[strum(serialize = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal,
    #[strum(serialize = "IBV_EVENT_QP_FATAL")]
    QueuePairFatal,
    #[strum(serialize = "IBV_EVENT_CQ_ERR")]
    CompletionQueueError,
    #[strum(serialize = "IBV_EVENT_SRQ_ERR")]
    SharedReceiveQueueError,
    #[strum(serialize = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SharedReceiveQueueLimitReached,
    /// The queue pair, which has a shared receive queue, goes to the error state.
    #[strum(serialize = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    LastWorkRequestReached,
}

/// What becomes of a packet that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PacketFailure {
    Lose,
    Double,
    /// Later packets overtake it.
    Reorder,
    /// A bit is turned round after the ICRC was computed.
    Corrupt,
}

/// What an acknowledgement becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum NakKind {
    Rnr,
    Sequence,
    InvalidRequest,
    RemoteAccess,
    RemoteOperational,
}

/// What happens where a rule fires. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A call fails with this `errno` value, and does nothing.
    Errno(i32),
    /// A work request fails with this status.
    Status(WorkStatus),
    /// A completion, packet, page or message comes later.
    Delay(u64),
    /// An asynchronous event is raised.
    Event(RuleEvent),
    /// Of a packet.
    Packet(PacketFailure),
    /// Of an acknowledgement.
    Nak(NakKind),
    /// A page does not come, or a message is lost.
    Lose,
    /// A request of the connection manager is answered by REJ.
    Reject,
    /// The process is killed (SIGKILL).
    Kill,
    /// The process is stopped (SIGSTOP), and goes on after that time, if there is one (SIGCONT).
    Stop(Option<u64>),
}

/// A time as rules write it, in the largest unit that it is a whole number of.
fn time(nanoseconds: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    match units.iter().find(|(_, unit)| nanoseconds % unit == 0) {
        Some((name, unit)) => format!("{}{name}", nanoseconds / unit),
        None => format!("{nanoseconds}ns"),
    }
}

/// As in a rule's text.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Errno(value) => write!(f, "errno={}", errno_name(*value)),
            Action::Status(status) => write!(f, "status={status}"),
            Action::Delay(delay) => write!(f, "delay={}", time(*delay)),
            Action::Event(event) => write!(f, "event={event}"),
            Action::Packet(failure) => write!(f, "action={failure}"),
            Action::Nak(kind) => write!(f, "nak={kind}"),
            Action::Lose => write!(f, "action=lose"),
            Action::Reject => write!(f, "action=reject"),
            Action::Kill => write!(f, "action=kill"),
            Action::Stop(None) => write!(f, "action=stop"),
            Action::Stop(Some(pause)) => write!(f, "action=stop for={}", time(*pause)),
        }
    }
}

/// A time such as `5ms`.
pub(crate) fn time_of(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit).filter(|all| *all <= crate::limits::MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, nanoseconds) in
            [("5ms", 5_000_000), ("0s", 0), ("1500us", 1_500_000), ("7ns", 7), ("3600s", 3_600_000_000_000)]
        {
            assert_eq!(time_of(text), Some(nanoseconds));
            assert_eq!(time_of(&time(nanoseconds)), Some(nanoseconds));
        }
        for wrong in ["", "5", "ms", "5 ms", "5m", "-5ms", "3601s", "99999999999999999999s"] {
            assert_eq!(time_of(wrong), None, "{wrong}");
        }
    }
}

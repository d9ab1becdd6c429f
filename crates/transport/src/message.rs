//! What RC and UC share: how a message is cut into packets, and how a refusal at this side is reported.

use pagewire_wire::PacketOperation as Code;

use crate::{Denial, Link, PayloadSource, Status, WorkRequest};

/// The bytes of packet `offset` of a message; `copied`: see [`PayloadSource::Work`].
pub(crate) fn piece(work: &WorkRequest, offset: u32, mtu: u32, copied: bool) -> PayloadSource {
    if work.length == 0 {
        return PayloadSource::None;
    }
    let start = offset * mtu;
    PayloadSource::Work { id: work.id, offset: start, length: mtu.min(work.length - start), copied }
}

/// Where in its message a packet stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessagePosition {
    First,
    Middle,
    Last,
    Only,
}

impl MessagePosition {
    pub(crate) fn of(offset: u32, packets: u32) -> MessagePosition {
        match (offset == 0, offset + 1 == packets) {
            (true, true) => MessagePosition::Only,
            (true, false) => MessagePosition::First,
            (false, true) => MessagePosition::Last,
            (false, false) => MessagePosition::Middle,
        }
    }

    /// Whether so many bytes may stand here: FIRST and MIDDLE are full, LAST is not empty, none is longer
    /// than the MTU (InfiniBand specification, volume 1, section 9.7.4.1.6). Inside a host a message that cannot be read where it lies
    /// comes in parts of the [shorter MTU](Link::shorter_mtu).
    pub(crate) fn suits(self, length: u64, link: &Link) -> bool {
        let mtu = u64::from(link.request_mtu);
        match self {
            MessagePosition::First | MessagePosition::Middle => {
                length == mtu || link.lossless && length == u64::from(link.shorter_mtu())
            }
            MessagePosition::Last => 0 < length && length <= mtu,
            MessagePosition::Only => length <= mtu,
        }
    }

    pub(crate) fn is_start(self) -> bool {
        matches!(self, MessagePosition::First | MessagePosition::Only)
    }

    pub(crate) fn is_end(self) -> bool {
        matches!(self, MessagePosition::Last | MessagePosition::Only)
    }
}

/// What a message does that goes out in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    Send,
    Write,
}

/// Which part of a SEND or WRITE a packet is; `None` for what is neither.
pub(crate) fn part_of(code: Code) -> Option<(MessageKind, MessagePosition)> {
    Some(match code {
        Code::SendFirst => (MessageKind::Send, MessagePosition::First),
        Code::SendMiddle => (MessageKind::Send, MessagePosition::Middle),
        Code::SendLast | Code::SendLastImmediate | Code::SendLastInvalidate => {
            (MessageKind::Send, MessagePosition::Last)
        }
        Code::SendOnly | Code::SendOnlyImmediate | Code::SendOnlyInvalidate => {
            (MessageKind::Send, MessagePosition::Only)
        }
        Code::WriteFirst => (MessageKind::Write, MessagePosition::First),
        Code::WriteMiddle => (MessageKind::Write, MessagePosition::Middle),
        Code::WriteLast | Code::WriteLastImmediate => (MessageKind::Write, MessagePosition::Last),
        Code::WriteOnly | Code::WriteOnlyImmediate => (MessageKind::Write, MessagePosition::Only),
        Code::ReadRequest
        | Code::ReadResponseFirst
        | Code::ReadResponseMiddle
        | Code::ReadResponseLast
        | Code::ReadResponseOnly
        | Code::Acknowledge
        | Code::AtomicAcknowledge
        | Code::CompareSwap
        | Code::FetchAdd
        | Code::Flush
        | Code::AtomicWrite => return None,
    })
}

pub(crate) fn send_code(place: MessagePosition, immediate: bool, invalidate: bool) -> Code {
    match (place, immediate, invalidate) {
        (MessagePosition::First, ..) => Code::SendFirst,
        (MessagePosition::Middle, ..) => Code::SendMiddle,
        (MessagePosition::Last, true, _) => Code::SendLastImmediate,
        (MessagePosition::Last, false, true) => Code::SendLastInvalidate,
        (MessagePosition::Last, false, false) => Code::SendLast,
        (MessagePosition::Only, true, _) => Code::SendOnlyImmediate,
        (MessagePosition::Only, false, true) => Code::SendOnlyInvalidate,
        (MessagePosition::Only, false, false) => Code::SendOnly,
    }
}

pub(crate) fn write_code(place: MessagePosition, immediate: bool) -> Code {
    match (place, immediate) {
        (MessagePosition::First, _) => Code::WriteFirst,
        (MessagePosition::Middle, _) => Code::WriteMiddle,
        (MessagePosition::Last, true) => Code::WriteLastImmediate,
        (MessagePosition::Last, false) => Code::WriteLast,
        (MessagePosition::Only, true) => Code::WriteOnlyImmediate,
        (MessagePosition::Only, false) => Code::WriteOnly,
    }
}

/// How a refusal at this side is reported.
pub(crate) fn denied_status(denial: Denial) -> Status {
    match denial {
        Denial::LocalProtection => Status::LocalProtection,
        Denial::LocalLength => Status::LocalLength,
        Denial::RemoteAccess
        | Denial::InvalidRequest
        | Denial::Operational
        | Denial::SenderGone
        | Denial::SenderUnreadable => Status::LocalQpOperation,
    }
}

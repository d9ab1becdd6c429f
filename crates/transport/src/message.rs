//! What RC and UC share: how a message is cut into packets, and how a refusal at this side is reported.

use pagewire_wire::PacketOperation as Code;

use crate::{Denial, Link, Source, Status, Work};

/// The bytes of packet `offset` of a message; `copied`: see [`Source::Work`].
pub(crate) fn piece(work: &Work, offset: u32, mtu: u32, copied: bool) -> Source {
    if work.length == 0 {
        return Source::None;
    }
    let start = offset * mtu;
    Source::Work { id: work.id, offset: start, length: mtu.min(work.length - start), copied }
}

/// Where in its message a packet stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Middle,
    Last,
    Only,
}

impl Place {
    pub(crate) fn of(offset: u32, packets: u32) -> Place {
        match (offset == 0, offset + 1 == packets) {
            (true, true) => Place::Only,
            (true, false) => Place::First,
            (false, true) => Place::Last,
            (false, false) => Place::Middle,
        }
    }

    /// Whether so many bytes may stand here: FIRST and MIDDLE are full, LAST is not empty, none is longer
    /// than the MTU (InfiniBand specification, volume 1, section 9.7.4.1.6). Inside a host a message that cannot be read where it lies
    /// comes in parts of the [shorter MTU](Link::shorter_mtu).
    pub(crate) fn suits(self, length: u64, link: &Link) -> bool {
        let mtu = u64::from(link.request_mtu);
        match self {
            Place::First | Place::Middle => {
                length == mtu || link.lossless && length == u64::from(link.shorter_mtu())
            }
            Place::Last => 0 < length && length <= mtu,
            Place::Only => length <= mtu,
        }
    }

    pub(crate) fn is_start(self) -> bool {
        matches!(self, Place::First | Place::Only)
    }

    pub(crate) fn is_end(self) -> bool {
        matches!(self, Place::Last | Place::Only)
    }
}

/// What a message does that goes out in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Write,
}

/// Which part of a SEND or WRITE a packet is; `None` for what is neither.
pub(crate) fn part_of(code: Code) -> Option<(Kind, Place)> {
    Some(match code {
        Code::SendFirst => (Kind::Send, Place::First),
        Code::SendMiddle => (Kind::Send, Place::Middle),
        Code::SendLast | Code::SendLastImmediate | Code::SendLastInvalidate => (Kind::Send, Place::Last),
        Code::SendOnly | Code::SendOnlyImmediate | Code::SendOnlyInvalidate => (Kind::Send, Place::Only),
        Code::WriteFirst => (Kind::Write, Place::First),
        Code::WriteMiddle => (Kind::Write, Place::Middle),
        Code::WriteLast | Code::WriteLastImmediate => (Kind::Write, Place::Last),
        Code::WriteOnly | Code::WriteOnlyImmediate => (Kind::Write, Place::Only),
        Code::ReadRequest
        | Code::ReadResponseFirst
        | Code::ReadResponseMiddle
        | Code::ReadResponseLast
        | Code::ReadResponseOnly
        | Code::Acknowledge
        | Code::AtomicAcknowledge
        | Code::CompareSwap
        | Code::FetchAdd => return None,
    })
}

pub(crate) fn send_code(place: Place, immediate: bool, invalidate: bool) -> Code {
    match (place, immediate, invalidate) {
        (Place::First, ..) => Code::SendFirst,
        (Place::Middle, ..) => Code::SendMiddle,
        (Place::Last, true, _) => Code::SendLastImmediate,
        (Place::Last, false, true) => Code::SendLastInvalidate,
        (Place::Last, false, false) => Code::SendLast,
        (Place::Only, true, _) => Code::SendOnlyImmediate,
        (Place::Only, false, true) => Code::SendOnlyInvalidate,
        (Place::Only, false, false) => Code::SendOnly,
    }
}

pub(crate) fn write_code(place: Place, immediate: bool) -> Code {
    match (place, immediate) {
        (Place::First, _) => Code::WriteFirst,
        (Place::Middle, _) => Code::WriteMiddle,
        (Place::Last, true) => Code::WriteLastImmediate,
        (Place::Last, false) => Code::WriteLast,
        (Place::Only, true) => Code::WriteOnlyImmediate,
        (Place::Only, false) => Code::WriteOnly,
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

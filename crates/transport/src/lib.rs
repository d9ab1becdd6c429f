//! RC, UC and UD as state machines: packets, work requests and the time come in; packets, accesses
//! and completions go out. No socket, no clock, no thread, no bytes.
#![forbid(unsafe_code)]

mod counters;
mod fault_handling;
pub mod limits;
mod message;
mod placing;
mod psn;
mod rc;
mod reorder_buffer;
pub mod timers;
mod transport_ops;
mod uc;
pub mod ud;

pub use counters::ProtocolCounters;
pub use fault_handling::{FaultHandling, UnknownFaultHandling};
pub use psn::Psn;
pub use rc::{
    FastExecution, FastSend, Occasion, RcConnection, RcProgress, RcSettings, RcUpdate, RefusalScope,
    RemoteRights, RequesterSettings, SendOnlyRequest,
};
pub use transport_ops::*;
pub use uc::{UcConnection, UcSettings};

use pagewire_wire::{Bth, Opcode};

/// What kind of link a connection runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Payload bytes a request packet carries at most (a path MTU, or up to 2^31 inside one host).
    pub request_mtu: u32,
    /// Payload bytes a READ response packet carries at most.
    pub response_mtu: u32,
    /// Nothing is lost or reordered; an overdue acknowledgement asks [`PacketSink::link`] before it counts.
    pub lossless: bool,
    /// WRITEs, READs and atomics may be executed by [`MemoryAccess::initiator_copy`].
    pub initiator_copy: bool,
    /// Of links that may lose packets: one that does so only where it breaks, and takes no more than it has room for.
    pub is_stream: bool,
}

impl Link {
    /// Payload bytes that one connection has under way at most where packets may be lost.
    pub(crate) fn most_in_flight(&self) -> u32 {
        if self.is_stream { limits::MAX_IN_STREAM } else { limits::MAX_IN_FLIGHT }
    }

    /// Bytes that one READ request asks for at most there.
    pub(crate) fn read_chunk(&self) -> u32 {
        if self.is_stream { limits::STREAM_READ_CHUNK } else { limits::READ_CHUNK }
    }

    /// Payload bytes that a packet carries at most whichever way it goes: where requests may be as long as messages their bytes do not
    /// travel with them.
    pub(crate) fn shorter_mtu(&self) -> u32 {
        self.request_mtu.min(self.response_mtu)
    }
}

/// Packets (or PSNs) that a message of `length` bytes takes: at least one.
pub(crate) fn packets_for(length: u32, mtu: u32) -> u32 {
    length.div_ceil(mtu.max(1)).max(1)
}

/// Whether two partition keys admit one another: the same partition, and not both limited members
/// (section 10.9.3).
pub(crate) fn partitions_match(one: u16, other: u16) -> bool {
    const FULL: u16 = 0x8000;
    (one | FULL) == (other | FULL) && (one | other) & FULL != 0
}

/// A BTH with the flags at rest.
pub(crate) fn plain_bth(opcode: Opcode, destination: u32, partition: u16, psn: Psn) -> Bth {
    Bth { partition, ..Bth::new(opcode, destination, psn.value()) }
}

//! Packets that wait at a queue pair: for its turn, or for a page.

use crate::limits::MAX_INBOX_PACKETS;
use crate::path::local::LocalChannel;
use pagewire_fabric::Fabric;
use pagewire_transport::Payload;
use pagewire_wire::{Header, Own};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// Where a packet came from.
pub enum Origin<F: Fabric> {
    Local(Arc<LocalChannel<F>>),
    Network { source: IpAddr },
}

impl<F: Fabric> Clone for Origin<F> {
    fn clone(&self) -> Self {
        match self {
            Origin::Local(channel) => Origin::Local(channel.clone()),
            Origin::Network { source } => Origin::Network { source: *source },
        }
    }
}

/// Bytes of a packet, or pieces of the sender's memory.
pub enum KeptPayload {
    Bytes(SmallVec<[u8; 128]>),
    Reference(SmallVec<[(u64, u64); 4]>),
}

impl KeptPayload {
    /// As transport takes it.
    pub fn payload(&self) -> Payload<'_> {
        match self {
            KeptPayload::Bytes(bytes) => Payload::Bytes(bytes),
            KeptPayload::Reference(pieces) => Payload::Reference(pieces),
        }
    }
}

impl From<Payload<'_>> for KeptPayload {
    fn from(payload: Payload<'_>) -> Self {
        match payload {
            Payload::Bytes(bytes) => KeptPayload::Bytes(SmallVec::from_slice(bytes)),
            Payload::Reference(pieces) => KeptPayload::Reference(SmallVec::from_slice(pieces)),
        }
    }
}

/// What a packet is.
#[allow(clippy::large_enum_variant)] // a packet is what nearly all are; boxing it would cost an allocation each
pub enum Content {
    Packet { header: Header, payload: KeptPayload, global_route: Option<[u8; 40]> },
    Own(Own),
}

/// A packet that waits.
pub struct InboxPacket<F: Fabric> {
    pub content: Content,
    pub origin: Origin<F>,
}

/// The packets of one queue pair that wait, oldest first.
pub struct Inbox<F: Fabric>(VecDeque<InboxPacket<F>>);

impl<F: Fabric> Default for Inbox<F> {
    fn default() -> Self {
        Inbox(VecDeque::new())
    }
}

impl<F: Fabric> Inbox<F> {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a packet. False: it was dropped, because too many wait. What came over a ring is bounded by the peer's
    /// send queue and is never dropped.
    pub fn push(&mut self, packet: InboxPacket<F>) -> bool {
        if self.0.len() >= MAX_INBOX_PACKETS && matches!(packet.origin, Origin::Network { .. }) {
            return false;
        }
        self.0.push_back(packet);
        true
    }

    /// Puts a packet back that has to wait on.
    pub fn put_back(&mut self, packet: InboxPacket<F>) {
        self.0.push_front(packet);
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<InboxPacket<F>> {
        self.0.pop_front()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

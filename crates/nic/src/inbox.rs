//! Packets that wait at a queue pair: for its turn, or for a page.

use crate::limits::{MAX_INBOX_BYTES, MAX_INBOX_PACKETS};
use crate::path::local::LocalChannel;
use pagewire_fabric::Fabric;
use pagewire_transport::{Payload, RemoteAddress};
use pagewire_wire::{Header, Operation, Own};
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
    Reference(SmallVec<[(RemoteAddress, u32); 4]>),
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

/// The half of a queue pair that a packet is for. Neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Responses, acknowledgements, and what the peer's NIC has to say.
    Requester,
    /// Requests.
    Responder,
}

impl Half {
    /// Which one a packet is for.
    pub fn of(header: &Header) -> Half {
        use Operation::{
            Acknowledge, AtomicAcknowledge, ReadResponseFirst, ReadResponseLast, ReadResponseMiddle,
            ReadResponseOnly,
        };
        match header.bth.opcode.operation() {
            None
            | Some(
                Acknowledge | AtomicAcknowledge | ReadResponseFirst | ReadResponseMiddle | ReadResponseLast
                | ReadResponseOnly,
            ) => Half::Requester,
            Some(_) => Half::Responder,
        }
    }
}

impl<F: Fabric> InboxPacket<F> {
    /// Which half it is for.
    pub fn half(&self) -> Half {
        match &self.content {
            Content::Packet { header, .. } => Half::of(header),
            Content::Own(_) => Half::Requester,
        }
    }

    /// Bytes that are kept for it, about.
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Packet { payload: KeptPayload::Bytes(bytes), .. } => bytes.len(),
            Content::Packet { payload: KeptPayload::Reference(pieces), .. } => size_of_val(&pieces[..]),
            Content::Own(_) => 0,
        }
    }
}

/// The packets of one queue pair that wait, oldest first in each half.
pub struct Inbox<F: Fabric> {
    requester: VecDeque<InboxPacket<F>>,
    responder: VecDeque<InboxPacket<F>>,
    bytes: usize,
}

impl<F: Fabric> Default for Inbox<F> {
    fn default() -> Self {
        Inbox { requester: VecDeque::new(), responder: VecDeque::new(), bytes: 0 }
    }
}

impl<F: Fabric> Inbox<F> {
    fn lane(&mut self, half: Half) -> &mut VecDeque<InboxPacket<F>> {
        match half {
            Half::Requester => &mut self.requester,
            Half::Responder => &mut self.responder,
        }
    }

    /// Whether nothing waits for one half.
    pub fn is_empty(&mut self, half: Half) -> bool {
        self.lane(half).is_empty()
    }

    /// Adds a packet. False: it was dropped, because too much waits; what is reliable is sent again by its source.
    pub fn push(&mut self, packet: InboxPacket<F>) -> bool {
        let bytes = packet.bytes();
        let lane = self.lane(packet.half());
        if lane.len() >= MAX_INBOX_PACKETS || self.bytes + bytes > MAX_INBOX_BYTES {
            return false;
        }
        self.bytes += bytes;
        self.lane(packet.half()).push_back(packet);
        true
    }

    /// Puts a packet back that has to wait on.
    pub fn put_back(&mut self, packet: InboxPacket<F>) {
        self.bytes += packet.bytes();
        self.lane(packet.half()).push_front(packet);
    }

    /// The oldest for one half.
    pub fn pop(&mut self, half: Half) -> Option<InboxPacket<F>> {
        let packet = self.lane(half).pop_front()?;
        self.bytes -= packet.bytes();
        Some(packet)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Inbox::default();
    }
}

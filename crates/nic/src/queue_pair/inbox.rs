//! Packets that wait at a queue pair: for its turn, or for a page.

use crate::path::local::{LocalChannel, publish_kept};
use crate::types::attributes::{QpState, QueuePairType};
use crate::types::limits::{MAX_INBOX_BYTES, MAX_INBOX_PACKETS};
use crate::types::qp_role::QpRole;
use derive_where::derive_where;
use pagewire_fabric::{DeferredPayload, Fabric};
use pagewire_transport::{DropCause, Payload, RemoteAddress};
use pagewire_wire::{Bth, Opcode, PacketHeader, Transport, VendorPacket};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Packets for which a queue keeps room once it is empty: a queue that was long would hold most of a megabyte for ever.
const KEPT_ROOM: usize = 32;

/// Where a packet came from.
#[derive_where(Clone)]
pub enum PacketOrigin<F: Fabric> {
    Local(Arc<LocalChannel<F>>),
    Network,
}

/// Bytes of a packet, or pieces of the sender's memory.
pub enum KeptPayload {
    Bytes(SmallVec<[u8; 128]>),
    Reference(SmallVec<[(RemoteAddress, u32); 4]>),
}

impl KeptPayload {
    /// A copy of a packet's bytes, or of what names them. `None`: they cannot be read.
    fn copy(payload: Payload<'_>, deferred: Option<&dyn DeferredPayload>) -> Option<Self> {
        Some(match payload {
            Payload::Bytes(burst) => KeptPayload::Bytes(burst.first().copied().unwrap_or_default().into()),
            Payload::Reference(pieces) => KeptPayload::Reference(SmallVec::from_slice(pieces)),
            Payload::Deferred(_) => KeptPayload::Bytes(SmallVec::from_slice(&deferred?.read()?)),
        })
    }
}

/// A packet as it comes in, with those of its burst: its bytes are those of a ring or of a receive buffer.
pub struct Incoming<'a, F: Fabric> {
    pub header: PacketHeader,
    pub payload: Payload<'a>,
    /// Who reads a payload that is deferred.
    pub deferred: Option<&'a dyn DeferredPayload>,
    /// The global routing header that goes before a UD payload.
    pub global_route: Option<[u8; 40]>,
    pub origin: &'a PacketOrigin<F>,
}

impl<F: Fabric> Incoming<'_, F> {
    /// Whether it is one of Pagewire's own.
    pub fn is_vendor(&self) -> bool {
        self.header.bth.opcode.transport() == Transport::Manufacturer
    }

    /// Whether it is for a queue pair of this type and state, if it comes from where it should: right type, right partition.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn check_for(&self, kind: QueuePairType, state: QpState) -> Result<(), DropCause> {
        let Bth { opcode, partition, .. } = self.header.bth;
        let is_right = match opcode.transport() {
            Transport::Rc => kind == QueuePairType::Rc,
            Transport::Cnp => kind.is_reliable(),
            Transport::Xrc => kind.is_xrc(),
            Transport::Uc => kind == QueuePairType::Uc,
            Transport::Ud => kind == QueuePairType::Ud,
            // Rings lose nothing: there is nothing to say there but that the peer has begun, or goes on behind a refusal.
            Transport::Manufacturer => {
                let said = matches!(self.origin, PacketOrigin::Network)
                    || matches!(opcode, Opcode::HELLO | Opcode::SKIP);
                kind != QueuePairType::Ud && said
            }
            _ => false,
        };
        if !is_right {
            return Err(DropCause::Malformed);
        }
        if !is_default_partition(partition) {
            return Err(DropCause::WrongPartition);
        }
        if state.receives() { Ok(()) } else { Err(DropCause::WrongState) }
    }

    /// A copy of the first packet that can wait. `None`: its bytes cannot be read, and it is lost.
    pub fn keep(&self) -> Option<InboxPacket<F>> {
        let Incoming { header, payload, deferred, global_route, origin } = self;
        let (header, payload, global_route) =
            (*header, KeptPayload::copy(*payload, *deferred)?, *global_route);
        let content = PacketContent::Packet { header, payload, global_route };
        Some(InboxPacket { content, origin: (*origin).clone() })
    }
}

/// Whether a P_Key is the one that every port has, full or limited.
#[inline]
pub fn is_default_partition(partition: u16) -> bool {
    partition & 0x7FFF == 0x7FFF
}

/// What a packet is.
#[allow(clippy::large_enum_variant)] // a packet is what nearly all are; boxing it would cost an allocation each
pub enum PacketContent {
    Packet { header: PacketHeader, payload: KeptPayload, global_route: Option<[u8; 40]> },
    Vendor(VendorPacket),
}

/// A packet that waits.
pub struct InboxPacket<F: Fabric> {
    pub content: PacketContent,
    pub origin: PacketOrigin<F>,
}

impl<F: Fabric> InboxPacket<F> {
    /// Which half it is for.
    pub fn half(&self) -> QpRole {
        match &self.content {
            PacketContent::Packet { header, .. } => QpRole::of(header),
            PacketContent::Vendor(_) => QpRole::Requester,
        }
    }

    /// Bytes that are kept for it, about.
    fn bytes(&self) -> usize {
        match &self.content {
            PacketContent::Packet { payload: KeptPayload::Bytes(bytes), .. } => bytes.len(),
            PacketContent::Packet { payload: KeptPayload::Reference(pieces), .. } => size_of_val(&pieces[..]),
            PacketContent::Vendor(_) => 0,
        }
    }
}

/// The packets of one queue pair that wait, oldest first in each half.
pub struct Inbox<F: Fabric> {
    kept: Mutex<InboxQueues<F>>,
    /// How many wait for each half, for a look without the lock.
    waiting: [AtomicUsize; 2],
    /// A request found no room since [`take_overflow`](Self::take_overflow) was last asked.
    overflow: AtomicBool,
    /// A request came, whether it found room or not, since [`take_arrival`](Self::take_arrival) was last asked.
    arrival: AtomicBool,
    /// The process's tables, and the queue pair's place there: local peers see whether requests wait.
    tables: F::SharedMemory,
    place: u32,
}

struct InboxQueues<F: Fabric> {
    halves: [VecDeque<InboxPacket<F>>; 2],
    bytes: usize,
    /// Nothing is added any more.
    closed: bool,
}

impl<F: Fabric> Inbox<F> {
    /// An empty one, of the queue pair at a place of its process's tables.
    pub fn new(tables: F::SharedMemory, place: u32) -> Self {
        let kept = InboxQueues { halves: [VecDeque::new(), VecDeque::new()], bytes: 0, closed: false };
        let (waiting, kept) = (Default::default(), Mutex::new(kept));
        let [overflow, arrival] = [(); 2].map(|()| AtomicBool::new(false));
        Inbox { kept, waiting, overflow, arrival, tables, place }
    }

    /// Whether nothing waits for one half.
    #[inline]
    pub fn is_empty(&self, half: QpRole) -> bool {
        self.waiting[half as usize].load(Ordering::SeqCst) == 0
    }

    /// Adds a packet. False: it was dropped, because too much waits; what is reliable is sent again by its source.
    pub fn push(&self, packet: InboxPacket<F>) -> bool {
        let (bytes, half) = (packet.bytes(), packet.half());
        self.arrival.fetch_or(half == QpRole::Responder, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        let is_full =
            kept.halves[half as usize].len() >= MAX_INBOX_PACKETS || kept.bytes + bytes > MAX_INBOX_BYTES;
        if is_full || kept.closed {
            self.overflow.fetch_or(half == QpRole::Responder, Ordering::Relaxed);
            return false;
        }
        kept.bytes += bytes;
        kept.halves[half as usize].push_back(packet);
        self.count(&kept, half);
        true
    }

    /// Puts a packet back that has to wait on.
    pub fn put_back(&self, packet: InboxPacket<F>) {
        let half = packet.half();
        let mut kept = self.kept.lock();
        kept.bytes += packet.bytes();
        kept.halves[half as usize].push_front(packet);
        self.count(&kept, half);
    }

    /// The oldest for one half.
    pub fn pop(&self, half: QpRole) -> Option<InboxPacket<F>> {
        if self.is_empty(half) {
            return None;
        }
        let mut kept = self.kept.lock();
        let packet = kept.halves[half as usize].pop_front()?;
        kept.bytes -= packet.bytes();
        if kept.halves[half as usize].is_empty() {
            kept.halves[half as usize].shrink_to(KEPT_ROOM);
        }
        self.count(&kept, half);
        Some(packet)
    }

    /// Whether a request was dropped for want of room; tells once.
    pub fn take_overflow(&self) -> bool {
        self.overflow.swap(false, Ordering::Relaxed)
    }

    /// Whether a request came meanwhile: its source may not know that it has to wait; tells once.
    pub fn take_arrival(&self) -> bool {
        self.arrival.swap(false, Ordering::Relaxed)
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.empty(&mut self.kept.lock());
    }

    /// Forgets all, and takes nothing any more: the place in the tables will be another queue pair's.
    pub fn close(&self) {
        let mut kept = self.kept.lock();
        kept.closed = true;
        self.empty(&mut kept);
    }

    fn empty(&self, kept: &mut InboxQueues<F>) {
        let old = std::mem::take(&mut kept.halves);
        kept.bytes = 0;
        self.overflow.store(false, Ordering::Relaxed);
        self.count(kept, QpRole::Requester);
        self.count(kept, QpRole::Responder);
        drop(old);
    }

    fn count(&self, kept: &InboxQueues<F>, half: QpRole) {
        let (waiting, now) = (&self.waiting[half as usize], kept.halves[half as usize].len());
        let before = waiting.load(Ordering::SeqCst);
        waiting.store(now, Ordering::SeqCst);
        if half == QpRole::Responder && (before == 0) != (now == 0) {
            publish_kept(&self.tables, self.place, now > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_fabric::HostFabric;
    use pagewire_wire::{Bth, Opcode, PacketOperation, Transport};

    fn inbox() -> Inbox<HostFabric> {
        Inbox::new(HostFabric::new().unwrap().tables().clone(), 0)
    }

    fn packet(operation: PacketOperation, psn: u32, length: usize) -> InboxPacket<HostFabric> {
        let header = PacketHeader::new(Bth::new(Opcode::new(Transport::Rc, operation), 1, psn));
        let payload = KeptPayload::Bytes(SmallVec::from_elem(0, length));
        let origin = PacketOrigin::Network;
        InboxPacket { content: PacketContent::Packet { header, payload, global_route: None }, origin }
    }

    fn request(psn: u32, length: usize) -> InboxPacket<HostFabric> {
        packet(PacketOperation::WriteMiddle, psn, length)
    }

    fn pop(inbox: &Inbox<HostFabric>, half: QpRole) -> Option<u32> {
        inbox.pop(half).map(|packet| match packet.content {
            PacketContent::Packet { header, .. } => header.bth.psn,
            PacketContent::Vendor(_) => unreachable!("none was kept"),
        })
    }

    #[test]
    fn each_half_has_its_own_order() {
        let inbox = inbox();
        assert!(inbox.push(request(1, 8)) && inbox.push(packet(PacketOperation::Acknowledge, 2, 0)));
        assert!(inbox.push(request(3, 8)));
        let first = inbox.pop(QpRole::Responder).unwrap();
        inbox.put_back(first);
        assert_eq!([(); 3].map(|()| pop(&inbox, QpRole::Responder)), [Some(1), Some(3), None]);
        assert!(inbox.is_empty(QpRole::Responder) && !inbox.is_empty(QpRole::Requester));
        assert_eq!(pop(&inbox, QpRole::Requester), Some(2));
    }

    #[test]
    fn a_queue_that_was_long_gives_its_room_back() {
        let inbox = inbox();
        for psn in 0..1000 {
            assert!(inbox.push(request(psn, 8)));
        }
        let room = || inbox.kept.lock().halves[QpRole::Responder as usize].capacity();
        assert!(room() >= 1000);
        for psn in 0..1000 {
            assert_eq!(pop(&inbox, QpRole::Responder), Some(psn));
        }
        assert!(room() <= 2 * KEPT_ROOM, "room for {}", room());
    }

    #[test]
    fn what_is_too_much_is_dropped() {
        let inbox = inbox();
        // By number, in each half by itself.
        for psn in 0..MAX_INBOX_PACKETS as u32 {
            assert!(inbox.push(request(psn, 0)));
        }
        assert!(!inbox.take_overflow());
        assert_eq!([(); 2].map(|()| inbox.take_arrival()), [true, false]);
        assert!(!inbox.push(request(0, 0)));
        assert!(inbox.take_arrival(), "also of what was dropped");
        assert!(inbox.push(packet(PacketOperation::Acknowledge, 0, 0)));
        assert_eq!([(); 2].map(|()| inbox.take_overflow()), [true, false]);
        assert_eq!(pop(&inbox, QpRole::Responder), Some(0));
        assert!(inbox.push(request(0, 0)));
        inbox.clear();
        assert!(inbox.is_empty(QpRole::Responder) && inbox.is_empty(QpRole::Requester));
        // By bytes, of both together.
        assert!(inbox.push(request(0, MAX_INBOX_BYTES - 1)));
        assert!(!inbox.push(packet(PacketOperation::ReadResponseMiddle, 1, 2)));
        assert!(!inbox.take_overflow(), "that was a response");
        assert!(inbox.push(packet(PacketOperation::ReadResponseMiddle, 1, 1)));
        assert!(!inbox.push(request(1, 1)));
        let long = inbox.pop(QpRole::Responder).unwrap();
        assert!(inbox.push(request(1, 1)));
        // What was there before has its place.
        inbox.put_back(long);
        assert!(!inbox.push(request(2, 1)));
    }
}

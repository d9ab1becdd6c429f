//! What the protocol of one queue pair is given by the NIC: memory, receives, completions, the link.

mod intercepted;

use self::intercepted::is_without_right;
use crate::access::fault_state::Purpose;
use crate::access::{AccessRequest, AccessSession, Claimant};
use crate::completion::{Completion, Opcode, Status};
use crate::path::Path;
use crate::path::initiator_copy::{AtomicTransfer, Bytes, Transfer, memory_operation};
use crate::path::local::LocalChannel;
use crate::path::receiver_read::{CopyTarget, ReceiverRead};
use crate::path::ring::{Kind, emit_reference};
use crate::path::ring_ack::Awaited;
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::Origin;
use crate::queue_pair::qp_context::QpContext;
use crate::queue_pair::request::KeptData;
use crate::services::event::AsyncEventKind;
use crate::services::ready::Again;
use crate::types::attributes::QueuePairType;
use crate::types::limits::RING_INLINE;
use crate::types::outcome::{AccessError, Cause};
use crate::types::sge::{Piece, ScatterGather, slice_of, total_length};
use pagewire_fabric::{Batch, Fabric, Route};
use pagewire_iommu::{Refusal, Rights};
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_transport::{
    Arrival, ArrivalKind, Atomic, Denial, Event, InitiatorCopy, LinkState, Outcome, Payload, Psn, Reason,
    RemoteAddress, Right, Source, TransportOps, Work, WorkId,
};
use pagewire_wire::{Bth, Header, Operation, VendorPacket, bth, packet, reth};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Headers of a packet: BTH and the longest extension.
const MAX_HEADERS: usize = 64;

/// Why a queue pair's protocol ended.
pub struct Failure {
    /// The asynchronous event that tells the program.
    pub event: Option<AsyncEventKind>,
    /// A send request failed, the receiving side is in order.
    pub send_only: bool,
}

/// Registered memory of this process that a payload goes to or comes from.
#[derive(Clone, Copy)]
struct PayloadMemory<'a> {
    domain: u32,
    pieces: &'a [ScatterGather],
    need: Rights,
    /// What a refusal means to the protocol.
    denial: Denial,
    purpose: Purpose,
    /// Bytes that follow in the same transfer, where that is known; else 0.
    to_come: u64,
}

impl<'a> PayloadMemory<'a> {
    /// The access to it.
    fn request(&self, by: &'a Claimant, write: bool) -> AccessRequest<'a> {
        AccessRequest { by, pieces: self.pieces, domain: self.domain, need: self.need, write }
    }
}

/// What happened while the protocol ran.
#[derive(Default)]
pub struct Ended {
    pub failure: Option<Failure>,
    /// Something waits for what nobody announces.
    pub requeue: bool,
}

/// The surroundings of one queue pair while it is driven.
pub struct QpTransportOps<'a, 'n, F: Fabric> {
    queue_pair: &'a QueuePair<F>,
    qpc: &'a mut QpContext<F>,
    /// Where the packet in hand came from.
    origin: Option<&'a Origin<F>>,
    batch: Option<F::Batch>,
    /// It has no room for one more packet like the last.
    full: bool,
    /// The access that the packets handled in a row share.
    session: &'a mut AccessSession<'n, F>,
    /// The send request of the last packet, where its bytes are one piece. A request does not change while it is kept.
    gathered: Option<(WorkId, ScatterGather)>,
    ended: Ended,
}

impl<'a, 'n, F: Fabric> QpTransportOps<'a, 'n, F> {
    /// For one call of the protocol.
    pub fn new(
        queue_pair: &'a QueuePair<F>,
        qpc: &'a mut QpContext<F>,
        origin: Option<&'a Origin<F>>,
        session: &'a mut AccessSession<'n, F>,
    ) -> Self {
        let ended = Ended::default();
        let (batch, full, gathered) = (None, false, None);
        QpTransportOps { queue_pair, qpc, origin, batch, full, session, gathered, ended }
    }

    /// The state of the queue pair that is driven.
    pub fn qpc(&mut self) -> &mut QpContext<F> {
        self.qpc
    }

    /// Sends what was gathered and tells what happened.
    #[inline(always)] // Part of each packet.
    pub fn finish(mut self) -> Ended {
        if self.ended.failure.is_some() {
            // Whoever ends the queue pair waits for accesses through it.
            self.session.release();
        }
        if let Some(batch) = self.batch.take() {
            self.queue_pair.services.fabric.flush(batch);
        }
        if self.ended.requeue {
            self.queue_pair.services.ready(&self.queue_pair.schedule, Again::Later);
        }
        self.ended
    }

    /// Sends a greeting to the peer's queue pair; [`QueuePair::knows_greeting`] says which PSN it carries.
    pub fn transmit_hello(&mut self, own: &VendorPacket) {
        let attributes = self.qpc.attributes;
        let reply = matches!(own, VendorPacket::Hello(hello) if hello.reply);
        let header = Header::new(Bth::new(
            own.opcode(),
            attributes.destination,
            if reply { attributes.receive_psn } else { attributes.send_psn },
        ));
        // Lost if the link is full, as it may be lost on the way.
        let _ = self.transmit_control(&header, own);
    }

    /// Sends headers and bytes that are at hand.
    fn emit(&mut self, header: &Header, bytes: &[u8]) -> Outcome<u32> {
        match self.qpc.path() {
            Path::None | Path::Connecting { .. } => Outcome::Wait(Reason::Path),
            Path::Dead { .. } => Outcome::Done(1),
            Path::Local(channel) => {
                let channel = channel.clone();
                self.send_record(&channel, Kind::Bytes, header, bytes)
            }
            Path::Udp { route, .. } => {
                let route = *route;
                self.send_packet(&route, header, (bytes.len(), Denial::Operational), |into| {
                    into.copy_from_slice(bytes);
                    Ok(())
                })
            }
        }
    }

    fn send_record(
        &mut self,
        channel: &LocalChannel<F>,
        kind: Kind,
        header: &Header,
        payload: &[u8],
    ) -> Outcome<u32> {
        if channel.is_gone() {
            return Outcome::Done(1);
        }
        let mut headers = [0; MAX_HEADERS];
        let length = header.emit(&mut headers);
        let request = Awaited { queue_pair: Some(self.queue_pair.number), psn: header.bth.psn };
        let awaited = ends_with_acknowledgement(header).then_some(request);
        if !channel.send(&self.queue_pair.services.fabric, kind, &headers[..length], payload, awaited) {
            return self.wait(Reason::LinkFull);
        }
        self.queue_pair.counters.ring_packets_sent.add_alone(1);
        Outcome::Done(1)
    }

    /// Puts a packet into the batch; `fill` writes its payload, or is refused with this denial.
    fn send_packet(
        &mut self,
        route: &Route,
        header: &Header,
        (payload, denial): (usize, Denial),
        fill: impl FnOnce(&mut [u8]) -> Result<(), AccessError>,
    ) -> Outcome<u32> {
        let fabric = &self.queue_pair.services.fabric;
        let length = length_in_batch(header, payload);
        if let Some(full) = self.batch.take_if(|batch| !batch.fits(length)) {
            fabric.flush(full);
        }
        let batch = self.batch.get_or_insert_with(|| fabric.batch());
        match append_packet(batch, route, header, payload, fill) {
            None => {
                return self.wait(Reason::LinkFull);
            }
            Some(Err(error)) => return self.outcome_of(error, denial),
            Some(Ok(())) => {}
        }
        self.full = !batch.fits(length);
        self.queue_pair.counters.udp_packets_sent.add_alone(1);
        Outcome::Done(1)
    }

    /// The one piece that holds the bytes of a send request, if it is one.
    fn gathered(&mut self, id: WorkId) -> Option<ScatterGather> {
        if let Some((_, whole)) = self.gathered.filter(|(known, _)| *known == id) {
            return Some(whole);
        }
        let send = self.queue_pair.send.lock();
        let KeptData::Segments(segments) = &send.get(id)?.data else { return None };
        let [whole] = segments[..] else { return None };
        self.gathered = Some((id, whole));
        Some(whole)
    }

    /// The pieces of a send request that hold some of its bytes, or the bytes themselves if they are inline.
    fn pieces(&self, id: WorkId, offset: u32, length: u32) -> Option<KeptData> {
        let send = self.queue_pair.send.lock();
        Some(match &send.get(id)?.data {
            KeptData::Segments(segments) => {
                KeptData::Segments(slice_of(segments, u64::from(offset), u64::from(length)))
            }
            KeptData::Inline(bytes) => {
                let from = (offset as usize).min(bytes.len());
                let to = (from + length as usize).min(bytes.len());
                KeptData::Inline(SmallVec::from_slice(&bytes[from..to]))
            }
        })
    }

    fn transmit_work(
        &mut self,
        header: &Header,
        id: WorkId,
        bytes: Range<u32>,
        copied: bool,
    ) -> Outcome<u32> {
        let (offset, length) = (bytes.start, bytes.end - bytes.start);
        let domain = self.queue_pair.domain.number();
        if let (Some(whole), Path::Udp { .. }) = (self.gathered(id), self.qpc.path()) {
            let piece = whole.part(u64::from(offset), u64::from(length));
            let to_come = u64::from(whole.length.saturating_sub(bytes.end));
            return self.transmit_pieces(header, &requested(domain, &[piece], to_come), length);
        }
        let pieces = match self.pieces(id, offset, length) {
            Some(KeptData::Segments(pieces)) => pieces,
            Some(KeptData::Inline(bytes)) => return self.emit(header, &bytes),
            None => return Outcome::Denied(Denial::LocalProtection),
        };
        match self.qpc.path() {
            // Only RC keeps the bytes until the receiver has them; UC completes when they have left.
            Path::Local(channel)
                if length > RING_INLINE
                    && !copied
                    && self.queue_pair.kind == QueuePairType::Rc
                    && !channel.channel.bounce_only =>
            {
                let channel = channel.clone();
                self.transmit_reference(&channel, header, domain, &pieces)
            }
            _ => self.transmit_pieces(header, &requested(domain, &pieces, 0), length),
        }
    }

    /// Sends a packet whose payload is read from registered memory.
    fn transmit_pieces(&mut self, header: &Header, source: &PayloadMemory<'_>, length: u32) -> Outcome<u32> {
        let queue_pair = self.queue_pair;
        let request = source.request(&queue_pair.claimant, false);
        let waits = self.qpc.begin_access(source.purpose);
        waits.to_come = source.to_come;
        if let [_] = source.pieces {
            return match self.session.begin(&request, waits) {
                Ok(segment) => self.transmit_segments(header, &[segment], length, source.denial),
                Err(error) if is_without_right(&error) => self.read_intercepted(header, source),
                Err(error) => self.outcome_of(error, source.denial),
            };
        }
        match queue_pair.services.begin(&request, waits) {
            Ok(access) => self.transmit_segments(header, &access.segments, length, source.denial),
            Err(error) => self.outcome_of(error, source.denial),
        }
    }

    /// Sends packets over the network whose bytes are resident and in one piece. Gives how many; 0: the first one has to be sent by
    /// itself, which says what is in its way.
    fn transmit_burst(&mut self, header: &Header, source: Source, count: u32) -> u32 {
        let Path::Udp { route, .. } = self.qpc.path() else { return 0 };
        let route = *route;
        let (piece, length, need, waits) = match source {
            Source::Work { id, offset, length, .. } => {
                let Some(whole) = self.gathered(id) else { return 0 };
                let (from, bytes) = (u64::from(offset), u64::from(length) * u64::from(count));
                let waits = self.qpc.begin_access(Purpose::Request);
                waits.to_come = u64::from(whole.length).saturating_sub(from + bytes);
                (whole.part(from, bytes), length, Rights::empty(), waits)
            }
            Source::Remote { remote, length, .. } => {
                let [whole] = piece(remote, length * count);
                (whole, length, Rights::REMOTE_READ, self.qpc.begin_access(Purpose::Respond))
            }
            Source::None => return 0,
        };
        if packet::pad_for(length as usize) != 0 {
            return 0;
        }
        let queue_pair = self.queue_pair;
        let domain = queue_pair.domain.number();
        let request =
            AccessRequest { by: &queue_pair.claimant, pieces: &[piece], domain, need, write: false };
        match self.session.begin_burst(&request, waits) {
            Some(segment) => {
                let sent = self.send_burst(&route, header, segment, length, count);
                queue_pair.counters.udp_packets_sent.add_alone(u64::from(sent));
                sent
            }
            None => 0,
        }
    }

    /// Puts a burst of packets into a batch, until that is full: the first has this header and `length` bytes of the segment.
    /// Gives how many.
    fn send_burst(
        &mut self,
        route: &Route,
        header: &Header,
        segment: Segment,
        length: u32,
        count: u32,
    ) -> u32 {
        let fabric = &self.queue_pair.services.fabric;
        let (at, payload) = (header.len(), length as usize);
        let whole = at + payload;
        let mut headers = [0; MAX_HEADERS];
        header.emit(&mut headers);
        let first = Psn::new(header.bth.psn);
        if let Some(full) = self.batch.take_if(|batch| !batch.fits(whole)) {
            fabric.flush(full);
        }
        let batch = self.batch.get_or_insert_with(|| fabric.batch());
        let read = fabric.memory().reads();
        let sent = batch.burst(route, whole, count as usize, |index, buffer| {
            buffer[..at].copy_from_slice(&headers[..at]);
            let Ok(mut bth) = bth::Packet::new(&mut *buffer) else { return false };
            bth.set_psn(first.plus(index as u32).value());
            if let Some(reth) = &header.reth {
                let Ok(mut packet) = reth::Packet::new(&mut buffer[bth::LEN..]) else { return false };
                let skipped = index as u32 * length;
                packet.set_address(reth.address.wrapping_add(skipped.into()));
                packet.set_length(reth.length.wrapping_sub(skipped));
            }
            let part = segment.part(index as u64 * u64::from(length), u64::from(length));
            read(part, &mut buffer[at..])
        });
        self.full = !batch.fits(whole);
        sent as u32
    }

    /// Places the payloads of packets that follow each other into one piece of registered memory; gives how many.
    fn place_burst(&mut self, target: &PayloadMemory<'_>, burst: &[&[u8]]) -> usize {
        let queue_pair = self.queue_pair;
        let services = &*queue_pair.services;
        if !matches!(target.pieces, [piece] if u64::from(piece.length) == bytes_of(burst)) {
            return 0;
        }
        let waits = self.qpc.begin_access(target.purpose);
        waits.to_come = target.to_come;
        let request = target.request(&queue_pair.claimant, true);
        let Some(whole) = self.session.begin_burst(&request, waits) else { return 0 };
        let write = services.fabric.memory().writes();
        let mut at = 0;
        let placed = burst.iter().take_while(|bytes| {
            let to = whole.part(at, bytes.len() as u64);
            at += to.length;
            write(bytes, to)
        });
        placed.count()
    }

    /// Sends a packet whose payload lies in segments that were checked.
    fn transmit_segments(
        &mut self,
        header: &Header,
        segments: &[Segment],
        length: u32,
        denial: Denial,
    ) -> Outcome<u32> {
        let memory = self.queue_pair.services.fabric.memory();
        match self.qpc.path() {
            Path::Udp { route, .. } => {
                let route = *route;
                self.send_packet(&route, header, (length as usize, denial), |into| {
                    memory.read(segments, into).map_err(AccessError::from)
                })
            }
            _ => {
                let mut bytes: SmallVec<[u8; 512]> = SmallVec::from_elem(0, length as usize);
                match memory.read(segments, &mut bytes) {
                    Ok(()) => self.emit(header, &bytes),
                    Err(error) => self.outcome_of(error.into(), denial),
                }
            }
        }
    }

    /// Sends a record that names this process's memory, for the receiver to pull.
    fn transmit_reference(
        &mut self,
        channel: &Arc<LocalChannel<F>>,
        header: &Header,
        domain: u32,
        pieces: &[ScatterGather],
    ) -> Outcome<u32> {
        let queue_pair = self.queue_pair;
        let request = requested(domain, pieces, 0).request(&queue_pair.claimant, false);
        // The pages are brought in here: the receiver's thread must not wait for them.
        let begun = queue_pair.services.begin(&request, self.qpc.begin_access(Purpose::Request));
        let _access = match begun {
            Ok(access) => access,
            Err(error) => return self.outcome_of(error, Denial::LocalProtection),
        };
        let mut references: SmallVec<[u8; 64]> = SmallVec::new();
        for piece in pieces {
            let at = RemoteAddress { address: piece.address, key: piece.key };
            references.extend_from_slice(&emit_reference(at, piece.length));
        }
        self.send_record(channel, Kind::Reference, header, &references)
    }

    /// Places payloads into registered memory of this process: a burst whose memory is resident and in one piece, or the first packet;
    /// gives how many packets.
    fn place(&mut self, target: &PayloadMemory<'_>, payload: Payload<'_>, last: bool) -> Outcome<u32> {
        let Payload::Bytes(burst @ [first, _, ..]) = payload else {
            return self.place_one(target, payload, last);
        };
        let placed = self.place_burst(target, burst);
        if placed > 0 {
            return Outcome::Done(placed as u32);
        }
        // By itself it says what is in its way.
        let length = first.len() as u64;
        let (pieces, to_come) = (slice_of(target.pieces, 0, length), target.to_come + payload.len() - length);
        self.place_one(&PayloadMemory { pieces: &pieces, to_come, ..*target }, payload.first(1), false)
    }

    #[inline(always)] // Part of each packet.
    fn place_one(&mut self, target: &PayloadMemory<'_>, payload: Payload<'_>, last: bool) -> Outcome<u32> {
        if payload.is_empty() {
            return Outcome::Done(1);
        }
        let queue_pair = self.queue_pair;
        let services = &*queue_pair.services;
        let (request, denial) = (target.request(&queue_pair.claimant, true), target.denial);
        let waits = self.qpc.begin_access(target.purpose);
        waits.to_come = target.to_come;
        if let ([_], Payload::Bytes([bytes])) = (target.pieces, payload) {
            let segment = match self.session.begin(&request, waits) {
                Ok(segment) => segment,
                Err(error) => return self.placed_otherwise(error, target, payload),
            };
            return match services.fabric.memory().write(bytes, &[segment], last) {
                Ok(()) => Outcome::Done(1),
                Err(error) => self.outcome_of(error.into(), denial),
            };
        }
        let access = match services.begin(&request, waits) {
            Ok(access) => access,
            Err(error) => return self.placed_otherwise(error, target, payload),
        };
        let placed = match (payload, self.origin) {
            (Payload::Bytes(burst), _) => {
                let bytes = burst.first().copied().unwrap_or_default();
                services.fabric.memory().write(bytes, &access.segments, last).map_err(AccessError::from)
            }
            (Payload::Reference(from), Some(Origin::Local(channel))) => {
                let (by, sender) = (&queue_pair.claimant, queue_pair.peer());
                let remote = channel.cross_memory(&services.fabric);
                let mut read = ReceiverRead { services, by, channel, remote, sender, fault: waits };
                read.read(from, CopyTarget::Segments(&access.segments), last)
            }
            (Payload::Reference(_), _) => Err(AccessError::Refused(Cause::PeerGone)),
        };
        drop(access);
        if !matches!(placed, Err(AccessError::Wait(_))) {
            services.end_wait_if_any(waits);
        }
        match placed {
            Ok(()) => Outcome::Done(1),
            Err(error) => self.outcome_of(error, denial),
        }
    }

    /// What it means to the protocol that an access is not made now; `of_region`: what a region's refusal means.
    fn outcome_of<T>(&mut self, error: AccessError, of_region: Denial) -> Outcome<T> {
        match error {
            AccessError::Wait(reason) => self.wait(reason),
            AccessError::Refused(cause) => Outcome::Denied(self.denial_of(cause, of_region)),
        }
    }

    /// How the protocol refuses for a cause. Where the key is valid and nothing is mapped, verbs programs get the remote access error that
    /// pagewire(7) promises; a node of the native interface learns that the memory is gone.
    #[cold]
    fn denial_of(&self, cause: Cause, of_region: Denial) -> Denial {
        let interception = &self.queue_pair.services.interception;
        match cause {
            Cause::PeerGone => Denial::SenderGone,
            Cause::PeerUnreadable => Denial::SenderUnreadable,
            Cause::LogDamaged => Denial::Operational,
            Cause::NotMapped
                if of_region == Denial::RemoteAccess
                    && interception.connects_nodes(self.queue_pair.number) =>
            {
                Denial::Operational
            }
            Cause::Region(_) | Cause::NotMapped | Cause::NoRemoteAccess => of_region,
        }
    }

    fn wait<T>(&mut self, reason: Reason) -> Outcome<T> {
        self.ended.requeue |= !reason.is_announced();
        Outcome::Wait(reason)
    }

    fn fail(&mut self, event: Option<AsyncEventKind>, send_only: bool) {
        if self.ended.failure.is_none() {
            self.ended.failure = Some(Failure { event, send_only });
        }
    }
}

/// Bytes that a packet takes in a batch.
pub fn length_in_batch(header: &Header, payload: usize) -> usize {
    packet::len(header, payload) - packet::ICRC_LEN
}

/// Puts a packet into a batch; `fill` writes its payload. `None`: there is no room. A packet that could not be filled is taken back.
pub fn append_packet<B: Batch, E>(
    batch: &mut B,
    route: &Route,
    header: &Header,
    payload: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Option<Result<(), E>> {
    let buffer = batch.packet(route, length_in_batch(header, payload))?;
    packet::emit_without_icrc(header, payload, buffer);
    let at = header.len();
    let filled = fill(&mut buffer[at..at + payload]);
    if filled.is_err() {
        batch.cancel();
    }
    Some(filled)
}

/// Whether a packet is a request that wants an acknowledgement, rather than a response of its own.
fn ends_with_acknowledgement(header: &Header) -> bool {
    let responded = matches!(
        header.bth.opcode.operation(),
        Some(Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd)
    );
    header.bth.acknowledge && !responded
}

/// Memory that a send request names, with so many bytes behind it.
fn requested(domain: u32, pieces: &[ScatterGather], to_come: u64) -> PayloadMemory<'_> {
    let (need, denial) = (Rights::empty(), Denial::LocalProtection);
    PayloadMemory { domain, pieces, need, denial, purpose: Purpose::Request, to_come }
}

/// Memory that a receive names.
fn received(domain: u32, pieces: &[ScatterGather]) -> PayloadMemory<'_> {
    let (need, denial) = (Rights::LOCAL_WRITE, Denial::LocalProtection);
    PayloadMemory { domain, pieces, need, denial, purpose: Purpose::Execute, to_come: 0 }
}

/// Memory that the peer writes, and `rest` bytes more behind it.
fn written(domain: u32, pieces: &[ScatterGather], rest: u32) -> PayloadMemory<'_> {
    let (need, denial) = (Rights::REMOTE_WRITE, Denial::RemoteAccess);
    PayloadMemory { domain, pieces, need, denial, purpose: Purpose::Execute, to_come: rest.into() }
}

/// Memory that a response goes to, with so many bytes behind it.
fn responded(domain: u32, pieces: &[ScatterGather], to_come: u64) -> PayloadMemory<'_> {
    let (need, denial) = (Rights::LOCAL_WRITE, Denial::LocalProtection);
    PayloadMemory { domain, pieces, need, denial, purpose: Purpose::PlaceResponse, to_come }
}

fn rights_of(right: Right) -> Rights {
    match right {
        Right::RemoteRead => Rights::REMOTE_READ,
        Right::RemoteWrite => Rights::REMOTE_WRITE,
        Right::RemoteAtomic => Rights::REMOTE_ATOMIC,
    }
}

/// Bytes of packets of equal length.
fn bytes_of(burst: &[&[u8]]) -> u64 {
    burst.first().map_or(0, |bytes| (bytes.len() * burst.len()) as u64)
}

fn piece(remote: RemoteAddress, length: u32) -> [ScatterGather; 1] {
    [ScatterGather { address: remote.address, length, key: remote.key }]
}

impl<F: Fabric> TransportOps for QpTransportOps<'_, '_, F> {
    fn transmit(&mut self, header: &Header, source: Source, count: u32) -> Outcome<u32> {
        let sent = if count > 1 { self.transmit_burst(header, source, count) } else { 0 };
        if sent > 0 {
            return Outcome::Done(sent);
        }
        match source {
            Source::None | Source::Work { length: 0, .. } | Source::Remote { length: 0, .. } => {
                self.emit(header, &[])
            }
            Source::Work { id, offset, length, copied } => {
                self.transmit_work(header, id, offset..offset + length, copied)
            }
            Source::Remote { remote, length, part } => {
                self.qpc.intercepted.part = part;
                let source = PayloadMemory {
                    domain: self.queue_pair.domain.number(),
                    pieces: &piece(remote, length),
                    need: Rights::REMOTE_READ,
                    denial: Denial::RemoteAccess,
                    purpose: Purpose::Respond,
                    to_come: 0,
                };
                self.transmit_pieces(header, &source, length)
            }
        }
    }

    fn is_full(&self) -> bool {
        self.full
    }

    fn transmit_control(&mut self, header: &Header, own: &VendorPacket) -> Outcome<u32> {
        let mut body = [0; VendorPacket::MAX_LEN];
        let length = own.emit(&mut body);
        self.emit(header, &body[..length])
    }

    fn initiator_copy(&mut self, work: &Work) -> InitiatorCopy {
        let (transfer, atomic) = (Transfer::of(work), AtomicTransfer::new(&work.operation));
        if transfer.is_none() && (atomic.is_none() || !self.queue_pair.maps_memory(self.qpc)) {
            return InitiatorCopy::Unavailable;
        }
        let pieces = self.pieces(work.id, 0, work.length);
        let Some(pieces) = pieces else { return InitiatorCopy::Unavailable };
        self.qpc.peer_logs.request = Some(work.id);
        let outcome = match (transfer, atomic, &pieces) {
            (Some(transfer), _, KeptData::Inline(bytes)) => {
                self.queue_pair.execute(self.qpc, &transfer, Bytes::Inline(bytes))
            }
            (Some(transfer), _, KeptData::Segments(pieces)) => {
                self.queue_pair.execute(self.qpc, &transfer, Bytes::Segments(pieces))
            }
            (None, Some(atomic), KeptData::Segments(pieces)) => {
                self.queue_pair.execute_atomic(self.qpc, &atomic, pieces)
            }
            _ => Err(AccessError::Refused(Cause::NoRemoteAccess)),
        };
        self.qpc.peer_logs.request = None;
        if !matches!(outcome, Err(AccessError::Wait(_))) {
            self.qpc.peer_logs.end_message();
        }
        match outcome {
            Ok(()) => {
                self.queue_pair.counters.initiator_copies_queued.add_alone(1);
                InitiatorCopy::Done
            }
            Err(AccessError::Wait(reason)) => {
                self.ended.requeue |= !reason.is_announced();
                InitiatorCopy::Wait
            }
            Err(AccessError::Refused(_)) => InitiatorCopy::Unavailable,
        }
    }

    fn link(&mut self) -> LinkState {
        let Path::Local(channel) = self.qpc.path() else { return LinkState::Delivered };
        if channel.is_gone() {
            return LinkState::Dead;
        }
        let destination = self.queue_pair.peer();
        let is_with_peer = !channel.is_drained() || channel.is_holding(destination);
        let peer = channel.channel.instance;
        // What has come may be the answer. Whoever reads goes on, or has the ring in its hands and gets no processor.
        let unread = self.queue_pair.paths.unread_from(peer);
        let before = std::mem::replace(&mut self.qpc.unread, unread);
        let is_stuck = !before.is_empty() && before == self.qpc.unread;
        if is_with_peer || is_stuck { LinkState::Pending } else { LinkState::Delivered }
    }

    fn begin_receive(&mut self) -> bool {
        if self.qpc.receive.is_none() {
            self.qpc.receive = self.queue_pair.take_receive();
        }
        self.qpc.receive.is_some()
    }

    fn place_receive(&mut self, offset: u64, payload: Payload<'_>, last: bool) -> Outcome<u32> {
        let Some(receive) = &self.qpc.receive else { return Outcome::Denied(Denial::LocalProtection) };
        let pieces = slice_of(&receive.segments, offset, payload.len());
        if total_length(&pieces) < payload.first(1).len() {
            return Outcome::Denied(Denial::LocalLength);
        }
        let domain = self.queue_pair.receive_domain();
        self.place(&received(domain, &pieces), payload, last)
    }

    fn finish_receive(&mut self, arrival: Arrival) {
        let Some(receive) = self.qpc.receive.take() else { return };
        let opcode = match arrival.kind {
            ArrivalKind::Send => Opcode::Receive,
            ArrivalKind::WriteImmediate => Opcode::ReceiveWriteImmediate,
        };
        let queue_pair = self.queue_pair;
        queue_pair.complete_receive(Completion {
            byte_length: arrival.length,
            immediate: arrival.immediate,
            invalidated: arrival.invalidated,
            solicited: arrival.solicited,
            ..queue_pair.completion(receive.wr_id, opcode, Status::Success)
        });
    }

    fn fail_receive(&mut self, status: Status) {
        let Some(receive) = self.qpc.receive.take() else { return };
        let queue_pair = self.queue_pair;
        queue_pair.complete_receive(queue_pair.completion(receive.wr_id, Opcode::Receive, status));
    }

    fn keep_short_receive(&mut self) -> bool {
        let keeps = self.queue_pair.srq.is_none();
        if !keeps {
            self.fail_receive(Status::LocalLength);
        }
        keeps
    }

    fn check_remote(&mut self, remote: RemoteAddress, length: u32, right: Right) -> Outcome<()> {
        let view = self.queue_pair.services.regions.view();
        let domain = self.queue_pair.domain.number();
        match view.check(remote.key, remote.address, u64::from(length), rights_of(right), domain) {
            Ok(_) => Outcome::Done(()),
            Err(Refusal::Rights) => self.check_intercepted(remote, length, right),
            Err(_) => Outcome::Denied(Denial::RemoteAccess),
        }
    }

    fn write_remote(&mut self, remote: RemoteAddress, payload: Payload<'_>, rest: u32) -> Outcome<u32> {
        let pieces = piece(remote, payload.len() as u32);
        let target = written(self.queue_pair.domain.number(), &pieces, rest);
        self.place(&target, payload, rest == 0)
    }

    fn atomic_remote(&mut self, remote: RemoteAddress, atomic: Atomic) -> Outcome<u64> {
        let queue_pair = self.queue_pair;
        let services = &*queue_pair.services;
        let domain = queue_pair.domain.number();
        let pieces = piece(remote, 8);
        let request = AccessRequest {
            by: &queue_pair.claimant,
            pieces: &pieces,
            domain,
            need: Rights::REMOTE_ATOMIC,
            write: true,
        };
        let operation = memory_operation(atomic);
        let access = match services.begin(&request, self.qpc.begin_access(Purpose::Execute)) {
            Ok(access) => access,
            Err(error) if is_without_right(&error) => {
                return self.atomic_intercepted(remote, operation);
            }
            Err(error) => return self.outcome_of(error, Denial::RemoteAccess),
        };
        let outcome = match access.segments.first() {
            Some(segment) if segment.address % 8 == 0 => {
                services.fabric.memory().atomic(segment.address, operation)
            }
            _ => return Outcome::Denied(Denial::InvalidRequest),
        };
        match outcome {
            Ok(original) => Outcome::Done(original),
            Err(error) => self.outcome_of(error.into(), Denial::RemoteAccess),
        }
    }

    fn invalidate(&mut self, _key: u32) -> Outcome<()> {
        // Regions of ibv_reg_mr may not be invalidated by a peer; memory windows, which may, come later.
        Outcome::Denied(Denial::RemoteAccess)
    }

    fn place_response(
        &mut self,
        work: WorkId,
        offset: u64,
        payload: Payload<'_>,
        last: bool,
    ) -> Outcome<u32> {
        let Some(KeptData::Segments(pieces)) = self.pieces(work, offset as u32, payload.len() as u32) else {
            return Outcome::Denied(Denial::LocalProtection);
        };
        // Where the response goes to one place the rest of it follows there.
        let rest = if last { None } else { self.gathered(work) };
        let to_come = rest.map_or(0, |whole| u64::from(whole.length).saturating_sub(offset + payload.len()));
        self.place(&responded(self.queue_pair.domain.number(), &pieces, to_come), payload, last)
    }

    fn place_atomic(&mut self, work: WorkId, value: u64) -> Outcome<()> {
        // The CPU's byte order: the program reads the value as a number of its own.
        self.place_response(work, 0, Payload::Bytes(&[&value.to_ne_bytes()]), true).map(drop)
    }

    fn complete(&mut self, work: WorkId, status: Status) {
        self.queue_pair.complete_send(work, status);
        if status != Status::Success {
            self.fail(None, true);
        }
    }

    fn end_request(&mut self, work: WorkId, status: Status, landed: u32) {
        self.queue_pair.end_send(work, status, landed);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::CommunicationEstablished => self.queue_pair.establish_communication(self.qpc),
            Event::RequestError => self.fail(Some(AsyncEventKind::QueuePairRequestError), false),
            Event::AccessError => self.fail(Some(AsyncEventKind::QueuePairAccessError), false),
        }
    }
}

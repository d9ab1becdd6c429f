//! The link of a queue pair: records of a ring, and packets in batches.

use super::intercepted::is_without_right;
use super::{PayloadMemory, QpTransportOps, piece, requested};
use crate::access::fault_state::Purpose;
use crate::access::{AccessRequest, Accesses};
use crate::path::local::LocalChannel;
use crate::path::ring::{RecordKind, emit_reference};
use crate::path::ring_ack::Awaited;
use crate::path::{Path, STREAM_PATIENCE};
use crate::queue_pair::qp_context::PendingQuestion;
use crate::queue_pair::request::KeptData;
use crate::types::attributes::QueuePairType;
use crate::types::limits::RING_INLINE;
use crate::types::outcome::AccessError;
use crate::types::sge::{ByteSpan, ScatterGather};
use pagewire_fabric::{Fabric, LONG_PAYLOAD, Route, SendBatch, StreamAnswer, StreamId, StreamSend};
use pagewire_iommu::Rights;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_transport::{
    Denial, LinkState, Outcome, PacketSink, PayloadSource, Psn, Reason, RemoteAddress, WorkId,
};
use pagewire_wire::{Bth, PacketHeader, PacketOperation, VendorPacket, bth, packet, reth};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Nanoseconds in which a process that has read everything acknowledges it.
const ACKNOWLEDGEMENT_TIME: u64 = 500_000_000;
/// Headers of a packet: BTH and the longest extension.
const MAX_HEADERS: usize = 64;

impl<F: Fabric> PacketSink for QpTransportOps<'_, '_, F> {
    fn transmit(&mut self, header: &PacketHeader, source: PayloadSource, count: u32) -> Outcome<u32> {
        let sent = if count > 1 { self.transmit_burst(header, source, count) } else { 0 };
        if sent > 0 {
            return Outcome::Done(sent);
        }
        match source {
            PayloadSource::None
            | PayloadSource::Work { length: 0, .. }
            | PayloadSource::Remote { length: 0, .. } => self.emit(header, &[]),
            PayloadSource::Work { id, offset, length, copied } => {
                self.transmit_work(header, id, offset..offset + length, copied)
            }
            PayloadSource::Remote { remote, length, part } => {
                if part.shared_queue != 0
                    && let Some(outcome) = self.transmit_relayed(header, (remote, length), part)
                {
                    return outcome;
                }
                self.qpc.intercepted.part = part;
                let source = PayloadMemory {
                    domain: self.domain_of_read(remote.key),
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

    fn transmit_control(&mut self, header: &PacketHeader, own: &VendorPacket) -> Outcome<u32> {
        let mut body = [0; VendorPacket::MAX_LEN];
        let length = own.emit(&mut body);
        self.emit(header, &body[..length])
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

    #[cold]
    fn is_unread(&mut self, again: bool) -> bool {
        let fabric = &self.queue_pair.services.fabric;
        let Some(stream) = self.qpc.path().stream() else { return false };
        let now = fabric.now();
        let known = self.qpc.stream_question.take().filter(|_| again);
        let known = known.map(|known| (known, fabric.answer_to(stream, known.question)));
        let pending = match known {
            None | Some((_, StreamAnswer::Lost)) => {
                fabric.ask_stream(stream).map(|question| PendingQuestion { question, since: now, read: None })
            }
            Some((known, StreamAnswer::Pending)) => {
                Some(known).filter(|known| now.saturating_sub(known.since) < STREAM_PATIENCE)
            }
            Some((known, StreamAnswer::Read)) => {
                // Acknowledgements leave behind the answer.
                let read = known.read.unwrap_or(now);
                Some(PendingQuestion { read: Some(read), ..known })
                    .filter(|_| now.saturating_sub(read) < ACKNOWLEDGEMENT_TIME)
            }
        };
        self.qpc.stream_question = pending;
        pending.is_some()
    }
}

impl<F: Fabric> QpTransportOps<'_, '_, F> {
    /// Sends a greeting to the peer's queue pair; [`QueuePair::knows_greeting`] says which PSN it carries.
    pub fn transmit_hello(&mut self, own: &VendorPacket) {
        let attributes = self.qpc.attributes;
        let reply = matches!(own, VendorPacket::Hello(hello) if hello.reply);
        let header = PacketHeader::new(Bth::new(
            own.opcode(),
            attributes.destination,
            if reply { attributes.receive_psn } else { attributes.send_psn },
        ));
        let outcome = self.transmit_control(&header, own);
        // A question is repeated, as it may be lost on the way.
        self.qpc.owe_reply(reply && matches!(outcome, Outcome::Wait(_)));
    }

    /// Sends headers and bytes that are at hand.
    pub(super) fn emit(&mut self, header: &PacketHeader, bytes: &[u8]) -> Outcome<u32> {
        match self.qpc.path() {
            Path::None | Path::Connecting { .. } => Outcome::Wait(Reason::Path),
            Path::Dead { .. } => Outcome::Done(1),
            Path::Local(channel) => {
                let channel = channel.clone();
                self.send_record(&channel, RecordKind::Bytes, header, bytes)
            }
            Path::Network { route, .. } => {
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
        kind: RecordKind,
        header: &PacketHeader,
        payload: &[u8],
    ) -> Outcome<u32> {
        if channel.is_gone() {
            return Outcome::Done(1);
        }
        let mut headers = [0; MAX_HEADERS];
        let length = header.emit(&mut headers);
        let request = Awaited { queue_pair: Some(self.queue_pair.properties.number), psn: header.bth.psn };
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
        header: &PacketHeader,
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
    pub(super) fn gathered(&mut self, id: WorkId) -> Option<ScatterGather> {
        if let Some((_, whole)) = self.gathered.filter(|(known, _)| *known == id) {
            return Some(whole);
        }
        let send = self.queue_pair.send.lock();
        let KeptData::Segments(segments) = &send.get(id)?.data else { return None };
        let [whole] = segments[..] else { return None };
        self.gathered = Some((id, whole));
        Some(whole)
    }

    /// The protection domain of memory that a READ names. That of one by XRC was right when it was executed, and its key is of no other while it
    /// lives.
    fn domain_of_read(&self, key: u32) -> u32 {
        let regions = &self.queue_pair.services.regions;
        let of_queue_pair = self.queue_pair.domain.number();
        match &self.queue_pair.xrc {
            None => of_queue_pair,
            Some(_) => regions.view().domain_of(key).unwrap_or(of_queue_pair),
        }
    }

    fn transmit_work(
        &mut self,
        header: &PacketHeader,
        id: WorkId,
        bytes: Range<u32>,
        copied: bool,
    ) -> Outcome<u32> {
        let (offset, length) = (bytes.start, bytes.end - bytes.start);
        let domain = self.queue_pair.domain.number();
        if let (Some(whole), Path::Network { .. }) = (self.gathered(id), self.qpc.path()) {
            let piece = whole.part(u64::from(offset), u64::from(length));
            let to_come = u64::from(whole.length.saturating_sub(bytes.end));
            return self.transmit_pieces(header, &requested(domain, &[piece], to_come), length);
        }
        let pieces = match self.pieces(id, offset, length) {
            Some(KeptData::Segments(pieces)) => pieces,
            Some(KeptData::Inline(bytes)) => return self.emit(header, &bytes),
            Some(KeptData::Window(_)) | None => return Outcome::Denied(Denial::LocalProtection),
        };
        match self.qpc.path() {
            // Only RC keeps the bytes until the receiver has them; UC completes when they have left.
            Path::Local(channel)
                if length > RING_INLINE
                    && !copied
                    && self.queue_pair.properties.kind == QueuePairType::Rc
                    && !channel.channel.bounce_only =>
            {
                let channel = channel.clone();
                self.transmit_reference(&channel, header, domain, &pieces)
            }
            _ => self.transmit_pieces(header, &requested(domain, &pieces, 0), length),
        }
    }

    /// Sends a packet whose payload is read from registered memory.
    fn transmit_pieces(
        &mut self,
        header: &PacketHeader,
        source: &PayloadMemory<'_>,
        length: u32,
    ) -> Outcome<u32> {
        let queue_pair = self.queue_pair;
        let request = source.request(&queue_pair.properties.claimant, false);
        let waits = self.qpc.begin_access(source.purpose);
        waits.to_come = source.to_come;
        if let [_] = source.pieces {
            return match self.session.begin(&request, waits) {
                Ok(segment) => self.transmit_segments(header, &[segment], length, source.denial),
                Err(error) if is_without_right(&error) => self.read_intercepted(header, source),
                Err(error) => self.outcome_of(error, source.denial),
            };
        }
        match Accesses(&queue_pair.services).begin(&request, waits) {
            Ok(access) => self.transmit_segments(header, &access.segments, length, source.denial),
            Err(error) => self.outcome_of(error, source.denial),
        }
    }

    /// Sends packets over the network whose bytes are resident and in one piece. Gives how many; 0: the first one has to be sent by
    /// itself, which says what is in its way.
    fn transmit_burst(&mut self, header: &PacketHeader, source: PayloadSource, count: u32) -> u32 {
        let Path::Network { route, .. } = self.qpc.path() else { return 0 };
        if matches!(source, PayloadSource::Remote { part, .. } if part.shared_queue != 0 && self.is_read_elsewhere(&part))
        {
            return 0;
        }
        if route.stream.is_some() && source.len() as usize >= LONG_PAYLOAD {
            // Each is sent from where it lies.
            return 0;
        }
        let route = *route;
        let domain = match source {
            PayloadSource::Remote { remote, .. } => self.domain_of_read(remote.key),
            PayloadSource::Work { .. } | PayloadSource::None => self.queue_pair.domain.number(),
        };
        let (piece, length, need, waits) = match source {
            PayloadSource::Work { id, offset, length, .. } => {
                let Some(whole) = self.gathered(id) else { return 0 };
                let (from, bytes) = (u64::from(offset), u64::from(length) * u64::from(count));
                let waits = self.qpc.begin_access(Purpose::Request);
                waits.to_come = u64::from(whole.length).saturating_sub(from + bytes);
                (whole.part(from, bytes), length, Rights::empty(), waits)
            }
            PayloadSource::Remote { remote, length, .. } => {
                let [whole] = piece(remote, length * count);
                (whole, length, Rights::REMOTE_READ, self.qpc.begin_access(Purpose::Respond))
            }
            PayloadSource::None => return 0,
        };
        if packet::pad_for(length as usize) != 0 {
            return 0;
        }
        let queue_pair = self.queue_pair;
        let request = AccessRequest {
            by: &queue_pair.properties.claimant,
            pieces: &[piece],
            domain,
            need,
            write: false,
        };
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
        header: &PacketHeader,
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

    /// Sends a packet whose payload lies in segments that were checked.
    fn transmit_segments(
        &mut self,
        header: &PacketHeader,
        segments: &[Segment],
        length: u32,
        denial: Denial,
    ) -> Outcome<u32> {
        let memory = self.queue_pair.services.fabric.memory();
        match self.qpc.path() {
            Path::Network { route, .. } => {
                let route = *route;
                if let (Some(stream), [segment]) = (route.stream, segments)
                    && length as usize >= LONG_PAYLOAD
                    && let Some(outcome) = self.send_from_memory(stream, header, *segment)
                {
                    return outcome;
                }
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

    /// Sends a packet by a stream, whose payload the kernel reads where it lies. `None`: it has to go by a batch, as others do.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    fn send_from_memory(
        &mut self,
        stream: StreamId,
        header: &PacketHeader,
        payload: Segment,
    ) -> Option<Outcome<u32>> {
        if packet::pad_for(payload.length as usize) != 0 {
            return None;
        }
        let fabric = &self.queue_pair.services.fabric;
        if let Some(before) = self.batch.take() {
            fabric.flush(before);
        }
        let mut headers = [0; MAX_HEADERS];
        let length = header.emit(&mut headers);
        match fabric.send_from_memory(stream, &headers[..length], payload) {
            StreamSend::Taken => {
                // It has left: others may be served.
                self.full = true;
                self.queue_pair.counters.udp_packets_sent.add_alone(1);
                Some(Outcome::Done(1))
            }
            StreamSend::NoRoom => Some(self.wait(Reason::LinkFull)),
            StreamSend::Unavailable => None,
        }
    }

    /// Sends a record that names this process's memory, for the receiver to pull.
    fn transmit_reference(
        &mut self,
        channel: &Arc<LocalChannel<F>>,
        header: &PacketHeader,
        domain: u32,
        pieces: &[ScatterGather],
    ) -> Outcome<u32> {
        let queue_pair = self.queue_pair;
        let request = requested(domain, pieces, 0).request(&queue_pair.properties.claimant, false);
        // The pages are brought in here: the receiver's thread must not wait for them.
        let begun = Accesses(&queue_pair.services).begin(&request, self.qpc.begin_access(Purpose::Request));
        let _access = match begun {
            Ok(access) => access,
            Err(error) => return self.outcome_of(error, Denial::LocalProtection),
        };
        let mut references: SmallVec<[u8; 64]> = SmallVec::new();
        for piece in pieces {
            let at = RemoteAddress { address: piece.address, key: piece.key };
            references.extend_from_slice(&emit_reference(at, piece.length));
        }
        self.send_record(channel, RecordKind::Reference, header, &references)
    }
}

/// Bytes that a packet takes in a batch.
pub fn length_in_batch(header: &PacketHeader, payload: usize) -> usize {
    packet::len(header, payload) - packet::ICRC_LEN
}

/// Puts a packet into a batch; `fill` writes its payload. `None`: there is no room. A packet that could not be filled is taken back.
pub fn append_packet<B: SendBatch, E>(
    batch: &mut B,
    route: &Route,
    header: &PacketHeader,
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
fn ends_with_acknowledgement(header: &PacketHeader) -> bool {
    header.bth.acknowledge && !header.bth.opcode.operation().is_some_and(PacketOperation::has_responses)
}

//! What peers do to pages with attributes: the operations of [`QpTransportOps`] on regions with intercepted rights in the place of the plain ones.

use super::{PayloadMemory, QpTransportOps, piece, rights_of};
use crate::access::AccessRequest;
use crate::access::fault_state::Purpose;
use crate::access::intercepted::{Accessor, Around, LoggedPiece, Response, operands_of};
use crate::path::receiver_read::{CopyTarget, ReceiverRead};
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::PacketOrigin;
use crate::types::outcome::{AccessError, Cause};
use crate::types::sge::ScatterGather;
use pagewire_fabric::Fabric;
use pagewire_iommu::access_log::{FlushState, LoggedOperation, RecordFlags, flushed_domain};
use pagewire_iommu::{AccessKind, AccessRefusal, AccessScope, AttributeTable, PageAttributes, Rights};
use pagewire_memory::{ApplicationMemory, AtomicOperation, Segment};
use pagewire_transport::{Denial, Outcome, Payload, Reason, RemoteAddress, Right};
use pagewire_wire::PacketHeader;
use std::borrow::Cow;

/// Memory of an access, and the attributes of its pages.
type Begun<F> = (Segment, Option<AttributeTable<<F as Fabric>::SharedMemory>>);

/// Whether an access was refused for want of a right: pages with attributes may be why.
pub fn is_without_right(error: &AccessError) -> bool {
    matches!(error, AccessError::Refused(Cause::Region(AccessRefusal::Rights)))
}

impl<F: Fabric> QpTransportOps<'_, '_, F> {
    /// Places a payload in pages with attributes, if they are why the plain way found no right.
    #[cold]
    pub(super) fn placed_otherwise(
        &mut self,
        error: AccessError,
        target: &PayloadMemory<'_>,
        payload: Payload<'_>,
    ) -> Outcome<u32> {
        match target.need == Rights::REMOTE_WRITE && is_without_right(&error) {
            true => self.write_intercepted(target, payload),
            false => self.outcome_of(error, target.denial),
        }
    }

    /// Whether pages with attributes permit all of an access that a message begins, and their logs have space.
    #[cold]
    pub(super) fn check_intercepted(
        &mut self,
        remote: RemoteAddress,
        length: u32,
        right: Right,
    ) -> Outcome<()> {
        let queue_pair = self.queue_pair;
        let by = accessor(queue_pair);
        let services = by.services;
        let view = services.regions.view();
        let need = rights_of(right).intercepted(true);
        let bytes = u64::from(length);
        let window = view.window(remote.key, need, self.remote_scope());
        let located = window.and_then(|window| Ok((window, window.locate(remote.address, bytes)?)));
        let Ok((window, granted)) = located else { return Outcome::Denied(Denial::RemoteAccess) };
        if services.interception.is_flush(granted.index) {
            let user_domain = flushed_domain(remote.address.wrapping_sub(window.iova()));
            return match self.qpc.intercepted.flush(by, user_domain) {
                FlushState::Handled => Outcome::Done(()),
                FlushState::Waits => self.wait(Reason::Handlers),
                FlushState::Lost => Outcome::Denied(Denial::Operational),
            };
        }
        let intercepted = &mut self.qpc.intercepted;
        let (kind, operation, sequence) = match right {
            Right::RemoteRead => (AccessKind::Read, LoggedOperation::Read, intercepted.next_sequence()),
            Right::RemoteWord if granted.address % 8 != 0 => return Outcome::Denied(Denial::InvalidRequest),
            Right::RemoteWrite | Right::RemoteWord => {
                (AccessKind::Write, LoggedOperation::Write, intercepted.begin_message(remote, length))
            }
            Right::RemoteAtomic => {
                // It lies in one page, and is permitted or refused when it is run: its record says which atomic it is.
                intercepted.begin_message(remote, length);
                return Outcome::Done(());
            }
        };
        let Some(table) = services.interception.table(granted.index) else { return Outcome::Done(()) };
        let mut permitted = Ok(());
        for (run, attributes) in table.runs(granted.address, bytes) {
            let segment = Segment { address: run.start, length: run.end - run.start };
            if !attributes.effect(kind).is_allowed {
                let flags = RecordFlags::FIRST | RecordFlags::LAST;
                let piece = LoggedPiece { operation, sequence, flags, key: remote.key, segment, attributes };
                permitted = Err(self.qpc.intercepted.log_refused(by, &piece));
                break;
            }
            if kind == AccessKind::Read {
                permitted = self.qpc.intercepted.has_space(by, attributes, segment.length);
            }
            if permitted.is_err() {
                break;
            }
        }
        match permitted {
            Ok(()) => Outcome::Done(()),
            Err(error) => self.outcome_of(error, Denial::RemoteAccess),
        }
    }

    /// The memory of an access to pages with attributes, under the session's claim, with their table.
    fn begin_intercepted(
        &mut self,
        target: &PayloadMemory<'_>,
        write: bool,
    ) -> Result<Begun<F>, Outcome<u32>> {
        let queue_pair = self.queue_pair;
        let need = target.need.intercepted(true);
        let request = AccessRequest { need, ..target.request(&queue_pair.properties.claimant, write) };
        let waits = self.qpc.begin_access(target.purpose);
        match self.session.begin(&request, waits) {
            Ok(segment) => {
                let region = self.session.region();
                let table = region.and_then(|region| queue_pair.services.interception.table(region));
                Ok((segment, table))
            }
            // The region has lost its attributes since: a plain access finds its right again.
            Err(error) if is_without_right(&error) && self.has_plain_right(target) => {
                Err(self.wait(Reason::NoClaim))
            }
            Err(error) => Err(self.outcome_of(error, target.denial)),
        }
    }

    fn has_plain_right(&self, target: &PayloadMemory<'_>) -> bool {
        let view = self.queue_pair.services.regions.view();
        let [ScatterGather { key, .. }, ..] = *target.pieces else { return false };
        let scope = AccessScope { domain: target.domain, ..self.queue_pair.scope() };
        view.window(key, target.need, scope).is_ok()
    }

    /// Places the payload of the first packet in pages with attributes. What had to wait goes on where it stopped.
    #[cold]
    pub(super) fn write_intercepted(
        &mut self,
        target: &PayloadMemory<'_>,
        payload: Payload<'_>,
    ) -> Outcome<u32> {
        let (payload, is_last) = (payload.first(1), target.to_come == 0);
        let [at] = *target.pieces else { return Outcome::Denied(target.denial) };
        let (whole, table) = match self.begin_intercepted(target, true) {
            Ok(begun) => begun,
            Err(outcome) => return outcome,
        };
        let mut handled = self.qpc.intercepted.handled_before(at.address, whole.length);
        while handled < whole.length {
            let rest = whole.part(handled, whole.length - handled);
            match self.write_piece((at, handled), table.as_ref(), rest, (payload, is_last)) {
                Ok(length) => {
                    handled += length;
                    self.qpc.intercepted.note_handled(length, is_last && handled == whole.length);
                }
                Err(error) => return self.outcome_of(error, target.denial),
            }
        }
        Outcome::Done(1)
    }

    /// Logs and places the first piece of what is left of a packet; gives its length.
    fn write_piece(
        &mut self,
        (at, offset): (ScatterGather, u64),
        table: Option<&AttributeTable<F::SharedMemory>>,
        rest: Segment,
        (payload, is_last): (Payload<'_>, bool),
    ) -> Result<u64, AccessError> {
        let by = accessor(self.queue_pair);
        let intercepted = &mut self.qpc.intercepted;
        let (attributes, length) = intercepted.first_piece(by, table, AccessKind::Write, rest)?;
        let segment = Segment { address: rest.address, length };
        let around = intercepted.around(at.address.wrapping_add(offset), length);
        let flags = around.flags(table, AccessKind::Write, attributes, segment);
        let bytes = self.payload_bytes(payload, offset, length)?;
        let (operation, key, sequence) =
            (LoggedOperation::Write, at.key, self.qpc.intercepted.open_sequence());
        let piece = LoggedPiece { operation, sequence, flags, key, segment, attributes };
        self.qpc.intercepted.log(by, &piece, &bytes, |reaches_memory| match reaches_memory {
            true => {
                Ok(by.services.fabric.memory().write(&bytes, &[segment], is_last && length == rest.length)?)
            }
            false => Ok(()),
        })?;
        Ok(length)
    }

    /// Some bytes of a packet, which nobody changes any more.
    fn payload_bytes<'p>(
        &mut self,
        payload: Payload<'p>,
        offset: u64,
        length: u64,
    ) -> Result<Cow<'p, [u8]>, AccessError> {
        let queue_pair = self.queue_pair;
        match (payload, self.origin) {
            (Payload::Bytes(burst), origin) => {
                let bytes = burst.first().copied().unwrap_or_default();
                let bytes = bytes.get(offset as usize..(offset + length) as usize).unwrap_or_default();
                // A peer of this host can write to the ring that they came by.
                Ok(match origin {
                    Some(PacketOrigin::Local(_)) => Cow::Owned(bytes.to_vec()),
                    _ => Cow::Borrowed(bytes),
                })
            }
            (Payload::Reference(from), Some(PacketOrigin::Local(channel))) => {
                let mut bytes = vec![0; length as usize];
                let services = &*queue_pair.services;
                let (by, sender) = (&queue_pair.properties.claimant, queue_pair.peer());
                let remote = channel.cross_memory(&services.fabric);
                let fault = self.qpc.begin_access(Purpose::Execute);
                let mut read = ReceiverRead { services, by, channel, remote, sender, fault };
                read.read(&references_of(from, offset, length), CopyTarget::Bytes(&mut bytes), false)?;
                Ok(Cow::Owned(bytes))
            }
            (Payload::Reference(_) | Payload::Deferred(_), _) => Err(AccessError::Refused(Cause::PeerGone)),
        }
    }

    /// Sends a response from pages with attributes, once it is logged.
    #[cold]
    pub(super) fn read_intercepted(
        &mut self,
        header: &PacketHeader,
        source: &PayloadMemory<'_>,
    ) -> Outcome<u32> {
        let [at] = *source.pieces else { return Outcome::Denied(source.denial) };
        let remote = RemoteAddress { address: at.address, key: at.key };
        let response = match self.qpc.intercepted.take_response(header.bth.psn, remote, at.length) {
            Some(kept) => Ok(kept),
            None => self.read_response(header, remote, source),
        };
        let mut response = match response {
            Ok(response) => response,
            Err(outcome) => return outcome,
        };
        let outcome = match self.log_response(&mut response) {
            Ok(()) => self.emit(header, &response.bytes),
            Err(error) => self.outcome_of(error, source.denial),
        };
        if matches!(outcome, Outcome::Wait(_)) {
            self.qpc.intercepted.keep_response(response);
        }
        outcome
    }

    fn read_response(
        &mut self,
        header: &PacketHeader,
        remote: RemoteAddress,
        source: &PayloadMemory<'_>,
    ) -> Result<Response, Outcome<u32>> {
        let (segment, _) = self.begin_intercepted(source, false)?;
        let mut bytes = vec![0; segment.length as usize];
        if self.queue_pair.services.fabric.memory().read(&[segment], &mut bytes).is_err() {
            return Err(Outcome::Denied(source.denial));
        }
        let (psn, part) = (header.bth.psn, self.qpc.intercepted.part);
        let sequence = self.qpc.intercepted.sequence_of_read(part);
        Ok(Response { psn, sequence, part, remote, bytes, segment, region: self.session.region(), logged: 0 })
    }

    fn log_response(&mut self, response: &mut Response) -> Result<(), AccessError> {
        let by = accessor(self.queue_pair);
        let table = response.region.and_then(|region| by.services.interception.table(region));
        let length = response.segment.length;
        while response.logged < length {
            let rest = response.segment.part(response.logged, length - response.logged);
            let (attributes, size) =
                self.qpc.intercepted.first_piece(by, table.as_ref(), AccessKind::Read, rest)?;
            let segment = Segment { address: rest.address, length: size };
            let around = Around {
                before: u64::from(response.part.before) + response.logged,
                behind: u64::from(response.part.after) + (rest.length - size),
            };
            let mut flags = around.flags(table.as_ref(), AccessKind::Read, attributes, segment);
            flags.set(RecordFlags::REPEATED, response.part.repeated);
            let (operation, key, sequence) = (LoggedOperation::Read, response.remote.key, response.sequence);
            let piece = LoggedPiece { operation, sequence, flags, key, segment, attributes };
            let data = &response.bytes[response.logged as usize..(response.logged + size) as usize];
            self.qpc.intercepted.log(by, &piece, data, |_| Ok(()))?;
            response.logged += size;
        }
        Ok(())
    }

    /// Runs an atomic on a page with attributes.
    #[cold]
    pub(super) fn atomic_intercepted(
        &mut self,
        remote: RemoteAddress,
        operation: AtomicOperation,
    ) -> Outcome<u64> {
        let (domain, denial) = (self.queue_pair.domain.number(), Denial::RemoteAccess);
        let pieces = piece(remote, 8);
        let need = Rights::REMOTE_ATOMIC;
        let target =
            PayloadMemory { domain, pieces: &pieces, need, denial, purpose: Purpose::Execute, to_come: 0 };
        let (segment, table) = match self.begin_intercepted(&target, true) {
            Ok(begun) => begun,
            Err(Outcome::Wait(reason)) => return Outcome::Wait(reason),
            Err(Outcome::Denied(denial)) => return Outcome::Denied(denial),
            Err(Outcome::Done(_)) => return Outcome::Denied(denial),
        };
        if segment.address % 8 != 0 {
            return Outcome::Denied(Denial::InvalidRequest);
        }
        let attributes = table.map_or(PageAttributes::ORDINARY, |table| table.at(segment.address));
        let (logged_operation, operands) = operands_of(operation);
        let flags = RecordFlags::FIRST | RecordFlags::LAST;
        let logged = LoggedPiece {
            operation: logged_operation,
            sequence: self.qpc.intercepted.open_sequence(),
            flags,
            key: remote.key,
            segment,
            attributes,
        };
        let by = accessor(self.queue_pair);
        let memory = by.services.fabric.memory();
        let run = |_| Ok(memory.atomic(segment.address, operation)?);
        match self.qpc.intercepted.log(by, &logged, &operands, run) {
            Ok(original) => {
                self.qpc.intercepted.note_handled(8, true);
                Outcome::Done(original)
            }
            Err(error) => self.outcome_of(error, denial),
        }
    }
}

/// Who accesses by a queue pair.
fn accessor<F: Fabric>(queue_pair: &QueuePair<F>) -> Accessor<'_, F> {
    Accessor { services: &queue_pair.services, number: queue_pair.properties.number }
}

/// The pieces of a sender's memory that hold some bytes of a packet.
fn references_of(from: &[(RemoteAddress, u32)], offset: u64, length: u64) -> Vec<(RemoteAddress, u32)> {
    let pieces: Vec<_> = from
        .iter()
        .map(|(at, length)| ScatterGather { address: at.address, length: *length, key: at.key })
        .collect();
    let cut = crate::types::sge::slice_of(&pieces, offset, length);
    cut.iter().map(|piece| (RemoteAddress { address: piece.address, key: piece.key }, piece.length)).collect()
}

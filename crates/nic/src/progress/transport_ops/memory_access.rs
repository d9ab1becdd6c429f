//! Memory that requests of a queue pair name, and those of its peer.

use super::intercepted::is_without_right;
use super::{PayloadMemory, QpTransportOps, piece, responded, rights_of, written};
use crate::access::fault_state::Purpose;
use crate::access::{AccessRequest, Accesses};
use crate::path::initiator_copy::{AtomicTransfer, InitiatorBytes, InitiatorTransfer, memory_operation};
use crate::path::receiver_read::{CopyTarget, ReceiverRead};
use crate::progress::initiator::Initiator;
use crate::queue_pair::inbox::PacketOrigin;
use crate::queue_pair::request::KeptData;
use crate::services::memory_window::WindowStep;
use crate::types::outcome::{AccessError, Cause};
use crate::types::sge::slice_of;
use pagewire_fabric::Fabric;
use pagewire_iommu::{AccessRefusal, Rights};
use pagewire_memory::ApplicationMemory;
use pagewire_transport::{
    AtomicRequest, Denial, FlushRequest, InitiatorCopy, MemoryAccess, Outcome, Payload, Reason,
    RemoteAddress, Right, WorkId, WorkRequest,
};

impl<F: Fabric> MemoryAccess for QpTransportOps<'_, '_, F> {
    fn check_remote(&mut self, remote: RemoteAddress, length: u32, right: Right) -> Outcome<()> {
        if self.is_relayed() {
            return self.check_relayed(remote, length, right);
        }
        let view = self.queue_pair.services.regions.view();
        let by = self.remote_scope();
        match view.check(remote.key, remote.address, u64::from(length), rights_of(right), by) {
            Ok(granted) if right == Right::RemoteWord && granted.address % 8 != 0 => {
                Outcome::Denied(Denial::InvalidRequest)
            }
            Ok(_) => Outcome::Done(()),
            Err(AccessRefusal::Rights) => self.check_intercepted(remote, length, right),
            Err(_) => Outcome::Denied(Denial::RemoteAccess),
        }
    }

    fn write_remote(&mut self, remote: RemoteAddress, payload: Payload<'_>, rest: u32) -> Outcome<u32> {
        if self.is_relayed() {
            return self.write_relayed(remote, payload);
        }
        let pieces = piece(remote, payload.len() as u32);
        let target = written(self.remote_domain(), &pieces, rest);
        self.place(&target, payload, rest == 0)
    }

    fn atomic_remote(&mut self, remote: RemoteAddress, atomic: AtomicRequest) -> Outcome<u64> {
        if self.is_relayed() {
            return self.atomic_relayed(remote, atomic);
        }
        let queue_pair = self.queue_pair;
        let services = &*queue_pair.services;
        let domain = self.remote_domain();
        let pieces = piece(remote, 8);
        let request = AccessRequest {
            by: &queue_pair.properties.claimant,
            pieces: &pieces,
            domain,
            need: Rights::REMOTE_ATOMIC,
            write: true,
        };
        let operation = memory_operation(atomic);
        let access = match Accesses(services).begin(&request, self.qpc.begin_access(Purpose::Execute)) {
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

    fn flush_remote(&mut self, remote: RemoteAddress, length: u32, flush: FlushRequest) -> Outcome<()> {
        if self.is_relayed() {
            return self.flush_relayed(remote, length, flush);
        }
        self.flush(remote, length, flush)
    }

    fn invalidate(&mut self, key: u32) -> Outcome<()> {
        // What this thread has accessed for the peer may be what ends.
        self.session.release();
        let step = self.queue_pair.services.invalidate_for_peer(key, self.queue_pair.scope());
        self.window_outcome(step, Denial::RemoteAccess)
    }

    fn execute_local(&mut self, work: WorkId) -> Outcome<()> {
        let window_work = match self.queue_pair.send.lock().get(work).map(|work| &work.data) {
            Some(KeptData::Window(work)) => *work,
            _ => return Outcome::Denied(Denial::LocalProtection),
        };
        self.session.release();
        let step = self.queue_pair.services.execute_window_work(&window_work, self.queue_pair.scope());
        self.window_outcome(step, Denial::LocalProtection)
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

    fn initiator_copy(&mut self, work: &WorkRequest) -> InitiatorCopy {
        let (transfer, atomic) =
            (InitiatorTransfer::new(&work.operation, work.length), AtomicTransfer::new(&work.operation));
        let is_possible =
            transfer.is_some() || atomic.is_some() && Initiator::new(self.queue_pair, self.qpc).maps_memory();
        let pieces = if is_possible { self.pieces(work.id, 0, work.length) } else { None };
        let Some(pieces) = pieces else { return InitiatorCopy::Unavailable };
        self.qpc.peer_logs.request = Some(work.id);
        let mut initiator = Initiator::new(self.queue_pair, self.qpc);
        let outcome = match (transfer, atomic, &pieces) {
            (Some(transfer), _, KeptData::Inline(bytes)) => {
                initiator.transfer(&transfer, InitiatorBytes::Inline(bytes))
            }
            (Some(transfer), _, KeptData::Segments(pieces)) => {
                initiator.transfer(&transfer, InitiatorBytes::Segments(pieces))
            }
            (None, Some(atomic), KeptData::Segments(pieces)) => initiator.atomic(&atomic, pieces),
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
}

impl<F: Fabric> QpTransportOps<'_, '_, F> {
    fn window_outcome(&mut self, step: WindowStep, refused: Denial) -> Outcome<()> {
        match step {
            WindowStep::Done => Outcome::Done(()),
            WindowStep::Drains => self.wait(Reason::NoClaim),
            WindowStep::Refused => Outcome::Denied(refused),
        }
    }

    /// Places payloads into registered memory of this process: a burst whose memory is resident and in one piece, or the first packet;
    /// gives how many packets.
    pub(super) fn place(
        &mut self,
        target: &PayloadMemory<'_>,
        payload: Payload<'_>,
        last: bool,
    ) -> Outcome<u32> {
        let burst @ [first, _, ..] = (match payload {
            Payload::Bytes(burst) => burst,
            Payload::Reference(_) => &[],
            Payload::Deferred(_) => return self.place_deferred(target, last),
        }) else {
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
        let (request, denial) = (target.request(&queue_pair.properties.claimant, true), target.denial);
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
        let access = match Accesses(services).begin(&request, waits) {
            Ok(access) => access,
            Err(error) => return self.placed_otherwise(error, target, payload),
        };
        let placed = match (payload, self.origin) {
            (Payload::Bytes(burst), _) => {
                let bytes = burst.first().copied().unwrap_or_default();
                services.fabric.memory().write(bytes, &access.segments, last).map_err(AccessError::from)
            }
            (Payload::Reference(from), Some(PacketOrigin::Local(channel))) => {
                let (by, sender) = (&queue_pair.properties.claimant, queue_pair.peer());
                let remote = channel.cross_memory(&services.fabric);
                let mut read = ReceiverRead { services, by, channel, remote, sender, fault: waits };
                read.read(from, CopyTarget::Segments(&access.segments), last)
            }
            (Payload::Reference(_) | Payload::Deferred(_), _) => Err(AccessError::Refused(Cause::PeerGone)),
        };
        drop(access);
        if !matches!(placed, Err(AccessError::Wait(_))) {
            Accesses(services).end_wait_if_any(waits);
        }
        match placed {
            Ok(()) => Outcome::Done(1),
            Err(error) => self.outcome_of(error, denial),
        }
    }

    /// Has the kernel place a payload that it has still, where it goes to one resident piece; else it is copied into this process before.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    fn place_deferred(&mut self, target: &PayloadMemory<'_>, last: bool) -> Outcome<u32> {
        let Some(deferred) = self.deferred else { return Outcome::Denied(Denial::SenderUnreadable) };
        if let [_] = target.pieces {
            let queue_pair = self.queue_pair;
            let request = target.request(&queue_pair.properties.claimant, true);
            let waits = self.qpc.begin_access(target.purpose);
            waits.to_come = target.to_come;
            match self.session.begin(&request, waits) {
                Ok(segment) => {
                    return match deferred.place(segment, last) {
                        Ok(()) => Outcome::Done(1),
                        Err(error) => self.outcome_of(error.into(), target.denial),
                    };
                }
                Err(AccessError::Wait(reason)) => return self.wait(reason),
                // The program may have asked for accesses to be intercepted: that wants the bytes.
                Err(AccessError::Refused(_)) => {}
            }
        }
        match deferred.read() {
            Some(bytes) => self.place_one(target, Payload::Bytes(&[&bytes]), last),
            None => Outcome::Denied(Denial::SenderUnreadable),
        }
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
        let request = target.request(&queue_pair.properties.claimant, true);
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
}

/// Bytes of packets of equal length.
fn bytes_of(burst: &[&[u8]]) -> u64 {
    burst.first().map_or(0, |bytes| (bytes.len() * burst.len()) as u64)
}

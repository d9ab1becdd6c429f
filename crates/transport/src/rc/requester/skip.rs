//! A request that ends with an error while the connection goes on ([`RefusalScope::Request`](crate::RefusalScope)).
//!
//! The PSNs of the request, and of those that are linked to it, are skipped: SKIP tells the responder where the stream goes on. SKIP is not
//! acknowledged. While it is lost, the responder's answers name a PSN that is over, and it is sent again.

use pagewire_wire::{Nak, Opcode, Skip, VendorPacket};

use super::{RequestEntry, Requester};
use crate::rc::{RcShared, RefusalScope};
use crate::{Outcome, PacketSink, Psn, Status, Time, TransportOps, WorkOperation, WorkQueues, limits};

/// PSNs that are over, though the responder may still expect one of them.
#[derive(Debug, Clone, Copy)]
pub(in crate::rc) struct Skipped {
    from: Psn,
    resume: Psn,
    /// The one that the responder has named last, or is believed to expect.
    refused: Psn,
    is_due: bool,
    sent: Option<Time>,
}

impl Requester {
    /// The oldest work request ends with an error: alone, with what is linked to it, where both ends have agreed on that, and the error is one
    /// of the request; else with the connection.
    #[cold]
    pub(in crate::rc) fn end_oldest<E: WorkQueues>(
        &mut self,
        now: Time,
        status: Status,
        shared: &mut RcShared,
        ops: &mut E,
    ) {
        let is_of_request = matches!(
            status,
            Status::RemoteAccess
                | Status::RemoteOperation
                | Status::RemoteInvalidRequest
                | Status::LocalProtection
                | Status::LocalLength
        );
        if shared.refusal == RefusalScope::Connection || !is_of_request {
            return self.fail(status, shared, ops);
        }
        let Some(oldest) = self.queue.front().copied() else { return };
        let offset = self.unacked.since(oldest.first);
        let landed = if self.started == 0 { 0 } else { oldest.landed(offset, shared) };
        self.blocked = self.blocked.filter(|(id, _)| *id != oldest.work.id);
        let mut resume = self.drop_oldest().unwrap_or(self.unacked);
        ops.end_request(oldest.work.id, status, landed);
        while self.queue.front().is_some_and(|entry| entry.work.linked) {
            let id = self.queue[0].work.id;
            self.blocked = self.blocked.filter(|(blocked, _)| *blocked != id);
            resume = self.drop_oldest().unwrap_or(resume);
            ops.end_request(id, Status::Flushed, 0);
        }
        self.chain_failed = self.queue.is_empty();
        // Where nothing of it has left the responder knows nothing of it.
        if resume != self.unacked || offset > 0 {
            self.skip_to(resume, now, shared);
        }
        self.complete_blocked(now, shared, ops);
    }

    /// The request with a PSN was refused by this queue pair itself, whose connection has ended. Those before it were executed.
    #[cold]
    pub(in crate::rc) fn end_refused<E: TransportOps>(
        &mut self,
        now: Time,
        psn: Psn,
        nak: Nak,
        shared: &mut RcShared,
        ops: &mut E,
    ) {
        if psn.since(self.unacked) >= self.next.since(self.unacked) {
            return;
        }
        // A READ before it whose responses are still on their way is flushed, and it with that.
        if !self.acknowledge(psn, now, shared, ops) {
            if let Some(status) = status_of(nak) {
                self.fail(status, shared, ops);
            }
        }
    }

    /// Takes the oldest work request out; gives the PSN behind those that were sent of it, if it was begun.
    fn drop_oldest(&mut self) -> Option<Psn> {
        let entry = self.queue.pop_front()?;
        if self.started == 0 {
            return None;
        }
        self.started -= 1;
        // Only the last one that was begun may be sent in part.
        let end = if self.started == 0 { self.next } else { entry.end() };
        if entry.awaits_response() {
            let begin = if self.unacked.is_before(entry.first) { entry.first } else { self.unacked };
            let (from, to) = (begin.since(entry.first), end.since(entry.first));
            let requests = (from..to).filter(|offset| entry.ends_request(*offset)).count();
            self.reads = self.reads.saturating_sub(requests as u8);
        }
        Some(end)
    }

    /// What is before `resume` is over.
    fn skip_to(&mut self, resume: Psn, now: Time, shared: &RcShared) {
        let from = match self.skipped {
            Some(skipped) if skipped.resume == self.unacked => skipped.from,
            _ => self.unacked,
        };
        let refused = self.unacked;
        let mut resume = resume;
        if resume == refused {
            // All that was sent was executed: the responder is in the middle of the message. One PSN stands for the rest.
            self.next = self.next.plus(1);
            resume = self.next;
        }
        self.skipped = Some(Skipped { from, resume, refused, is_due: true, sent: None });
        self.executed = self.executed.later(resume);
        self.advance(resume, now, shared);
        self.go_on_behind(now, shared);
    }

    /// What was sent behind a refused request was not executed: it is sent again.
    fn go_on_behind(&mut self, now: Time, shared: &RcShared) {
        self.retry.restart(now, crate::rc::retry::pace(shared));
        self.doubt_all();
        self.go_back(self.unacked, shared);
    }

    /// Whether an answer of the responder names a PSN that is over. SKIP is sent again then, once in a round trip.
    #[cold]
    pub(in crate::rc) fn asks_for_skip(&mut self, psn: Psn, now: Time, shared: &RcShared) -> bool {
        let round_trip = self.retry.shortest_round_trip().unwrap_or(limits::MIN_PROBE).min(limits::MIN_PROBE);
        let Some(skipped) = &mut self.skipped else { return false };
        if psn.since(skipped.from) >= skipped.resume.since(skipped.from) {
            return false;
        }
        let recent = skipped.sent.is_some_and(|sent| now.0.saturating_sub(sent.0) < round_trip);
        if !recent && !skipped.is_due {
            (skipped.refused, skipped.is_due) = (psn, true);
            if self.unacked == skipped.resume {
                self.go_on_behind(now, shared);
            }
        }
        true
    }

    /// The responder is silent: SKIP may be lost.
    pub(in crate::rc) fn doubt_skip(&mut self) {
        if let Some(skipped) = self.skipped.as_mut().filter(|skipped| skipped.resume == self.unacked) {
            skipped.is_due = true;
        }
    }

    /// Something behind the skipped PSNs was executed.
    #[inline]
    pub(in crate::rc) fn forget_skip(&mut self) {
        if self.skipped.is_some_and(|skipped| skipped.resume.is_before(self.unacked)) {
            self.skipped = None;
        }
    }

    /// Sends SKIP if it is due, ahead of all requests. False: the transport operations say wait.
    #[cold]
    pub(super) fn send_skip<E: PacketSink>(&mut self, now: Time, shared: &RcShared, ops: &mut E) -> bool {
        let Some(skipped) = self.skipped.as_mut().filter(|skipped| skipped.is_due) else { return true };
        let (refused, resume) = (skipped.refused.value(), skipped.resume.value());
        let header = shared.header_of(Opcode::SKIP, skipped.refused);
        if let Outcome::Wait(_) = ops.transmit_control(&header, &VendorPacket::Skip(Skip { refused, resume }))
        {
            return false;
        }
        (skipped.is_due, skipped.sent) = (false, Some(now));
        true
    }

    /// Whether SKIP is to be sent.
    #[inline]
    pub(in crate::rc) fn owes_skip(&self) -> bool {
        self.skipped.is_some_and(|skipped| skipped.is_due)
    }
}

/// How a request ends that gets this NAK. `None`: it does not end.
pub(in crate::rc) fn status_of(nak: Nak) -> Option<Status> {
    match nak {
        Nak::PsnSequence => None,
        Nak::InvalidRequest => Some(Status::RemoteInvalidRequest),
        Nak::RemoteAccess => Some(Status::RemoteAccess),
        Nak::RemoteOperational => Some(Status::RemoteOperation),
        Nak::InvalidRd | Nak::Reserved(_) => Some(Status::BadResponse),
    }
}

impl RequestEntry {
    /// Bytes of its message in the packets before `offset`.
    fn landed(&self, offset: u32, shared: &RcShared) -> u32 {
        let mtu = match self.work.operation {
            WorkOperation::Send { .. } | WorkOperation::Write { .. } => self.request_mtu(&shared.link),
            WorkOperation::Read { .. } => shared.link.response_mtu,
            WorkOperation::Atomic { .. }
            | WorkOperation::AtomicWrite { .. }
            | WorkOperation::Flush { .. }
            | WorkOperation::Local(_)
            | WorkOperation::Failing { .. } => 0,
        };
        (u64::from(offset) * u64::from(mtu)).min(u64::from(self.work.length)) as u32
    }
}

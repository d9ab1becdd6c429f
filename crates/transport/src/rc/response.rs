//! The requester's other half: acknowledgements, NAKs, and the responses to READs and atomics.

use pagewire_wire::{Hold, HoldFlags, PacketHeader, PacketOperation as Code, Resume, SelectiveAck, Syndrome};

use super::requester::{LossScope, Requester, status_of};
use super::retry::pace;
use super::{RcShared, RcState};
use crate::message::denied_status;
use crate::{
    Disposition, DropCause, MemoryAccess, Outcome, Payload, Psn, Status, Time, WorkId, WorkOperation,
    WorkQueues, limits,
};

impl Requester {
    /// An ACK or NAK.
    pub(super) fn acknowledgement<E: WorkQueues>(
        &mut self,
        now: Time,
        header: &PacketHeader,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> Disposition {
        let psn = Psn::new(header.bth.psn);
        let syndrome = header.aeth.map(|aeth| aeth.syndrome);
        let asks_again = matches!(syndrome, Some(Syndrome::Nak(_) | Syndrome::ReceiverNotReady { .. }));
        if asks_again && self.asks_for_skip(psn, now, shared) {
            return Disposition::Executed(1);
        }
        if !self.is_outstanding(psn) || matches!(syndrome, Some(Syndrome::Reserved(_))) {
            return Disposition::Dropped(DropCause::Stale);
        }
        match syndrome {
            // It came by other means than a packet and may have overtaken responses: it does not say that they were lost.
            None => _ = self.acknowledge(psn.plus(1), now, shared, ops),
            Some(syndrome) => self.obey(now, psn, syndrome, shared, ops),
        }
        Disposition::Executed(1)
    }

    /// Does what the syndrome of an ACK or NAK says of an outstanding PSN.
    fn obey<E: WorkQueues>(
        &mut self,
        now: Time,
        psn: Psn,
        syndrome: Syndrome,
        shared: &mut RcShared,
        ops: &mut E,
    ) {
        match syndrome {
            Syndrome::Ack { .. } => {
                let to = psn.plus(1);
                if self.acknowledge(to, now, shared, ops) {
                    self.responses_missing(to, now, shared, ops);
                }
            }
            Syndrome::ReceiverNotReady { timer } => self.not_ready(psn, timer, now, shared, ops),
            Syndrome::Nak(nak) => {
                let missing = self.acknowledge(psn, now, shared, ops);
                if shared.state != RcState::Alive {
                    return;
                }
                if missing {
                    return self.responses_missing(psn, now, shared, ops);
                }
                if self.unacked != psn {
                    // What it acknowledges has ended the request behind that, too.
                    return;
                }
                match status_of(nak) {
                    None => {
                        shared.counters.sequence_naks_received += 1;
                        self.sequence_error(psn, now, shared, ops);
                    }
                    Some(status) => self.end_oldest(now, status, shared, ops),
                }
            }
            Syndrome::Reserved(_) => {}
        }
    }

    /// A READ response, and those of its burst that go with it, or an atomic acknowledgement.
    pub(super) fn response<E: MemoryAccess + WorkQueues>(
        &mut self,
        now: Time,
        header: &PacketHeader,
        payload: Payload<'_>,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> Disposition {
        let psn = Psn::new(header.bth.psn);
        let waiting = self.queue.range(..self.started).position(|entry| entry.awaits_response());
        let Some(index) = waiting.filter(|_| self.is_outstanding(psn)) else {
            return Disposition::Dropped(DropCause::Stale);
        };
        let expected = if index == 0 { self.unacked } else { self.queue[index].first };
        if psn.is_before(expected) {
            return Disposition::Dropped(DropCause::Stale);
        }
        // A response says that everything before it was executed.
        self.acknowledge(expected, now, shared, ops);
        if shared.state != RcState::Alive {
            return Disposition::Dropped(DropCause::WrongState);
        }
        if psn != expected {
            let is_kept = self.keep_response(psn, header, payload, shared);
            self.responses_missing(psn, now, shared, ops);
            return if is_kept { Disposition::Kept } else { Disposition::Dropped(DropCause::OutOfOrder) };
        }
        if self.kept.has(0) {
            // `resume` goes on with it.
            return Disposition::Duplicate;
        }
        let disposition = self.take(now, header, payload, shared, ops);
        if !disposition.is_held() {
            // A kept response that has to wait is `progress`'s to repeat: this packet is done.
            self.resume(now, shared, ops);
        }
        disposition
    }

    /// Keeps a response that came before a missing one, if there is a use for it and space.
    fn keep_response(
        &mut self,
        psn: Psn,
        header: &PacketHeader,
        payload: Payload<'_>,
        shared: &RcShared,
    ) -> bool {
        let wanted = self.find(psn).is_some_and(|at| self.queue[at].awaits_response());
        let Payload::Bytes(burst) = payload else { return false };
        let (index, bytes) = (psn.since(self.unacked), burst.first().copied().unwrap_or_default());
        let is_kept = shared.fills_gaps() && wanted && self.kept.insert(index, header, bytes);
        if is_kept {
            self.board.arrive(index);
        }
        is_kept
    }

    /// Goes on with responses that were kept; true: the transport operations say wait.
    pub(super) fn resume<E: MemoryAccess + WorkQueues>(
        &mut self,
        now: Time,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> bool {
        while shared.state == RcState::Alive {
            let Some(kept) = self.kept.take_first() else { return false };
            if !self.queue.front().is_some_and(|entry| self.started > 0 && entry.awaits_response()) {
                return false;
            }
            let payload = Payload::Bytes(&[&kept.bytes]);
            if self.take(now, &kept.header, payload, shared, ops).is_held() {
                self.kept.put_back(kept);
                return true;
            }
        }
        false
    }

    /// A selective acknowledgement: what the responder has beyond a gap.
    pub(super) fn selective_acknowledgement<E: WorkQueues>(
        &mut self,
        now: Time,
        report: &SelectiveAck,
        shared: &mut RcShared,
        ops: &mut E,
    ) {
        let expected = Psn::new(report.expected);
        if self.asks_for_skip(expected, now, shared) {
            return;
        }
        let outstanding = self.next.since(self.unacked);
        if expected.since(self.unacked) > outstanding {
            shared.counters.stale += 1;
            return;
        }
        // It overtakes READ responses on their way: unlike an ACK it does not say that they were lost.
        self.acknowledge(expected, now, shared, ops);
        if shared.state != RcState::Alive || expected == self.next {
            return;
        }
        if !shared.fills_gaps() {
            if self.gone_back.replace(expected) != Some(expected) {
                // No retry is used up: the peer is a Pagewire, only its greeting is still on the way.
                self.repeat_from(expected, now, shared);
            }
            return;
        }
        self.note_executed(expected);
        let outstanding = self.next.since(self.unacked);
        let base = expected.since(self.unacked);
        let mut beyond = base + 1;
        for bit in report.received.iter() {
            let index = base + 1 + bit as u32;
            if index >= outstanding {
                break;
            }
            self.board.arrive(index);
            beyond = index;
        }
        let beyond = self.request_end(self.unacked.plus(beyond).previous());
        if self.lose_missing(expected, beyond, LossScope::Requests) {
            self.reduce_window();
            self.retry.discard_rtt_sample();
        }
        self.board.mark_requests(beyond);
    }

    /// The responder waits for a page.
    pub(super) fn hold(&mut self, now: Time, hold: &Hold, shared: &mut RcShared) {
        let psn = Psn::new(hold.psn);
        if psn.since(self.unacked) > self.next.since(self.unacked) {
            // Of another connection, or of somebody who does not know this one.
            shared.counters.stale += 1;
            return;
        }
        shared.counters.holds_received += 1;
        self.waits_there();
        if !hold.flags.contains(HoldFlags::DROPPED) {
            return self.retry.held(now, pace(shared));
        }
        self.dropped_request = Some(psn);
        // In no case is it sent again for that: the page is not there yet.
        if hold.flags.contains(HoldFlags::UNTIL_RESUME) {
            self.retry.await_word(now);
        } else {
            self.retry.spare(now);
        }
    }

    /// The responder can go on from a PSN: what is missing there is sent again. The same at most once in a round trip: what was
    /// sent for the last one has not got there before. Another one after a millisecond at the latest: round trips may have been measured
    /// while the peer was slow.
    pub(super) fn resume_from<E: WorkQueues>(
        &mut self,
        now: Time,
        resume: &Resume,
        shared: &mut RcShared,
        ops: &mut E,
    ) {
        let psn = Psn::new(resume.psn);
        if self.asks_for_skip(psn, now, shared) {
            return;
        }
        // Where none is known yet, as of a peer that has acknowledged nothing, the same is not sent over and over.
        let round_trip = self.retry.shortest_round_trip();
        let interval = |last: Psn| match last == psn {
            true => round_trip.unwrap_or(limits::MIN_PROBE),
            false => round_trip.map_or(0, |round_trip| round_trip.min(limits::MIN_PROBE)),
        };
        let recent = self.resumed.is_some_and(|(last, at)| now.0.saturating_sub(at.0) < interval(last));
        if recent || !shared.fills_gaps() || !self.is_outstanding(psn) {
            shared.counters.stale += 1;
            return;
        }
        shared.counters.resumes_received += 1;
        self.resumed = Some((psn, now));
        self.acknowledge(psn, now, shared, ops);
        if shared.state != RcState::Alive {
            return;
        }
        self.note_executed(psn);
        let end = match resume.block {
            0 => self.next,
            block => psn.plus(block.min(self.next.since(psn))),
        };
        self.lose_request(psn);
        self.lose_missing(psn, end, LossScope::All);
        // What tells of the same gap has it sent only once.
        self.board.mark_requests(end.later(self.request_end(psn)));
        self.retry.discard_rtt_sample();
        self.dropped_request = None;
        self.retry.resumed(now, pace(shared));
    }

    /// Sends the request again that the responder dropped for want of a page, the page may be there by now; false: there is none.
    #[cold]
    pub(super) fn repeat_dropped_request(&mut self) -> bool {
        // Whoever drops it again says so again.
        let held = self.dropped_request.take().filter(|psn| self.is_outstanding(*psn));
        if let Some(psn) = held {
            self.lose_request(psn);
            self.retry.discard_rtt_sample();
        }
        held.is_some()
    }

    /// Notes the request with a PSN as lost, with all PSNs that it has.
    fn lose_request(&mut self, psn: Psn) {
        let from = psn.since(self.unacked);
        let to = self.request_end(psn).since(self.unacked).min(self.next.since(self.unacked));
        (from..to).for_each(|index| self.board.lose(index));
    }

    /// The response that is next was dropped for want of a page.
    pub(super) fn dropped_response(&mut self) {
        self.dropped_response = Some(self.unacked);
    }

    /// Asks for that response again; false: there is none.
    pub(super) fn ask_for_dropped_response(&mut self, shared: &RcShared) -> bool {
        // It is noted anew if it comes and is dropped again.
        if self.dropped_response.is_none() || self.dropped_response.take() != Some(self.unacked) {
            return false;
        }
        self.retry.discard_rtt_sample();
        if shared.fills_gaps() {
            self.board.lose(0);
        } else {
            self.go_back(self.unacked, shared);
        }
        true
    }

    fn is_outstanding(&self, psn: Psn) -> bool {
        psn.since(self.unacked) < self.next.since(self.unacked)
    }

    /// Every request before `to` was executed: completes what can be. True: a READ or atomic before
    /// `to` still lacks responses.
    pub(super) fn acknowledge<E: WorkQueues>(
        &mut self,
        to: Psn,
        now: Time,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> bool {
        self.executed = self.executed.later(to);
        let mut done = None;
        let mut at = self.unacked;
        while self.started > 0 {
            let entry = &self.queue[0];
            if entry.awaits_response() {
                break;
            }
            if to.is_before(entry.end()) {
                at = at.later(to);
                break;
            }
            at = entry.end();
            done = Some(entry.work.id);
            self.queue.pop_front();
            self.started -= 1;
        }
        self.advance(at, now, shared);
        if let Some(id) = done {
            ops.complete(id, Status::Success);
            self.complete_blocked(now, shared, ops);
        }
        at.is_before(to)
    }

    /// The oldest request, of one packet, was executed; what it completes, unless there is more to do than to take it out.
    pub(super) fn acknowledged_fast(&mut self, now: Time, psn: Psn, shared: &RcShared) -> Option<WorkId> {
        let oldest = self.queue.front().filter(|oldest| {
            self.started > 0
                && self.blocked.is_none()
                && self.is_outstanding(psn)
                && oldest.first == psn
                && self.unacked == psn
                && oldest.end() == psn.plus(1)
                && !oldest.awaits_response()
        })?;
        let id = oldest.work.id;
        self.queue.pop_front();
        self.started -= 1;
        self.advance(psn.plus(1), now, shared);
        Some(id)
    }

    /// The oldest unacknowledged PSN is now `to`.
    pub(super) fn advance(&mut self, to: Psn, now: Time, shared: &RcShared) {
        let count = to.since(self.unacked);
        if count == 0 {
            return;
        }
        if !shared.link.lossless {
            self.board.advance(self.unacked, count);
            self.kept.advance(count);
            self.window.acknowledged(count);
        }
        self.unacked = to;
        self.forget_skip();
        self.repeat_naks = 0;
        self.executed = self.executed.later(to);
        // Half the PSNs further on they would count as the future.
        self.recover = self.recover.filter(|psn| to.is_before(*psn));
        self.gone_back = self.gone_back.filter(|psn| !psn.is_before(to));
        self.gone_back_for_response = self.gone_back_for_response.filter(|psn| !psn.is_before(to));
        if let Some(resend) = self.resend {
            let resend = resend.later(to);
            self.resend = (resend != self.next).then_some(resend);
        }
        self.retry.measured(to, now);
        if !shared.link.lossless {
            self.set_pace();
        }
        self.retry.note_advance(now, to != self.next, pace(shared));
    }

    /// Takes the response with PSN `unacked`, and those of its burst that go with it.
    fn take<E: MemoryAccess + WorkQueues>(
        &mut self,
        now: Time,
        header: &PacketHeader,
        payload: Payload<'_>,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> Disposition {
        let entry = self.queue[0];
        let offset = self.unacked.since(entry.first);
        // A refusal is an ACKNOWLEDGE of its own, never part of a response.
        let refuses = header.aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack { .. }));
        let outcome = match (entry.work.operation, header.bth.opcode.operation(), header.atomic_ack) {
            _ if refuses => None,
            (WorkOperation::Read { .. }, Some(code), _) if code != Code::AtomicAcknowledge => {
                let start = offset * shared.link.response_mtu;
                let left = entry.work.length - start;
                let length = left.min(shared.link.response_mtu);
                // The last response to each request comes by itself.
                let middle = code == Code::ReadResponseMiddle;
                let payload = payload.alike(if middle { u64::from(entry.span(offset) - 1) } else { 1 });
                match payload.first_len() == u64::from(length) {
                    false => None,
                    true if length == 0 => Some(Outcome::Done(1)),
                    true => Some(ops.place_response(entry.work.id, start.into(), payload, length == left)),
                }
            }
            (WorkOperation::Atomic { .. }, _, Some(original)) => {
                Some(ops.place_atomic(entry.work.id, original).map(|()| 1))
            }
            (
                WorkOperation::AtomicWrite { .. } | WorkOperation::Flush { .. },
                Some(Code::ReadResponseOnly),
                _,
            ) if payload.is_empty() => Some(Outcome::Done(1)),
            _ => None,
        };
        let taken = match outcome {
            Some(Outcome::Done(taken)) => taken,
            Some(Outcome::Wait(reason)) => return Disposition::Held { reason, again: false },
            Some(Outcome::Denied(denial)) => {
                self.end_oldest(now, denied_status(denial), shared, ops);
                return Disposition::Dropped(DropCause::NoAccess);
            }
            None => {
                self.fail(Status::BadResponse, shared, ops);
                return Disposition::Dropped(DropCause::Malformed);
            }
        };
        if entry.ends_request(offset + taken - 1) {
            self.reads = self.reads.saturating_sub(1);
        }
        if offset + taken == entry.packets {
            self.queue.pop_front();
            self.started -= 1;
            self.advance(self.unacked.plus(1), now, shared);
            ops.complete(entry.work.id, Status::Success);
            self.complete_blocked(now, shared, ops);
            if shared.state == RcState::Alive && self.unacked.is_before(self.executed) {
                // What lies behind was acknowledged while responses were missing.
                self.acknowledge(self.executed, now, shared, ops);
            }
        } else {
            self.advance(self.unacked.plus(taken), now, shared);
        }
        Disposition::Executed(taken)
    }

    /// Responses before `to` were lost (the implied NAK of section 9.7.5.2.4): they are asked for again.
    fn responses_missing<E: WorkQueues>(&mut self, to: Psn, now: Time, shared: &mut RcShared, ops: &mut E) {
        // One that was dropped here is asked for when its page is there.
        if shared.state != RcState::Alive || self.dropped_response == Some(self.unacked) {
            return;
        }
        if !shared.fills_gaps() {
            // A mark of its own: requests and responses that are missing would send it to and fro.
            if self.gone_back_for_response.replace(self.unacked) != Some(self.unacked) {
                shared.counters.implied_naks += 1;
                self.go_back_for(self.unacked, now, shared, ops);
            }
            return;
        }
        self.note_executed(self.executed);
        if self.lose_missing(self.unacked, to, LossScope::Responses) {
            shared.counters.implied_naks += 1;
            self.reduce_window();
            self.retry.discard_rtt_sample();
        }
        self.board.mark_responses(to);
    }

    /// Requests before `to` that need no response have arrived.
    fn note_executed(&mut self, to: Psn) {
        let end = to.since(self.unacked);
        let mut index = 0;
        while index < end {
            let Some(entry) = self.find(self.unacked.plus(index)).map(|at| self.queue[at]) else { return };
            let entry_end = entry.end().since(self.unacked).min(end);
            if !entry.awaits_response() {
                (index..entry_end).for_each(|index| self.board.arrive(index));
            }
            index = entry_end;
        }
    }

    /// The responder misses `psn`.
    fn sequence_error<E: WorkQueues>(&mut self, psn: Psn, now: Time, shared: &mut RcShared, ops: &mut E) {
        if self.gone_back.replace(psn) == Some(psn) {
            return;
        }
        if !shared.link.lossless {
            return self.go_back_for(psn, now, shared, ops);
        }
        // It has arrived, and its bytes could not be read where they lie, or there was no room to keep it. No such repetition says
        // that the peer is gone.
        self.repeat_naks += 1;
        if self.repeat_naks > limits::LOSSLESS_REPETITIONS {
            return self.fail(Status::RetryExceeded, shared, ops);
        }
        self.bounce_copy(psn, &shared.link);
        self.repeat_from(psn, now, shared);
    }

    /// The responder misses `psn`, or this side a response: a retry is used up, where they are counted, and sending goes
    /// back.
    fn go_back_for<E: WorkQueues>(&mut self, psn: Psn, now: Time, shared: &mut RcShared, ops: &mut E) {
        // Two Pagewires count none; until that is known only timeouts are counted. A link that loses nothing did not lose it.
        if !shared.greeting && !shared.link.lossless && !self.retry.count(pace(shared)) {
            return self.fail(Status::RetryExceeded, shared, ops);
        }
        self.repeat_from(psn, now, shared);
    }

    fn repeat_from(&mut self, psn: Psn, now: Time, shared: &RcShared) {
        if !shared.link.lossless {
            self.reduce_window();
        }
        self.retry.restart(now, pace(shared));
        self.go_back(psn, shared);
    }

    fn not_ready<E: WorkQueues>(
        &mut self,
        psn: Psn,
        timer: u8,
        now: Time,
        shared: &mut RcShared,
        ops: &mut E,
    ) {
        if self.retry.waits_for_receiver() {
            // A repetition of the NAK that is being obeyed.
            return;
        }
        shared.counters.rnr_naks_received += 1;
        let missing = self.acknowledge(psn, now, shared, ops);
        if shared.state != RcState::Alive {
            return;
        }
        if !missing && self.unacked != psn {
            // What it acknowledges has ended the request behind that, too.
            return;
        }
        if shared.fills_gaps() {
            // It had arrived, and was given up again.
            self.board.lose(psn.since(self.unacked));
        }
        if missing {
            return self.responses_missing(psn, now, shared, ops);
        }
        if !self.retry.not_ready(now, timer) {
            return self.fail(Status::RnrRetryExceeded, shared, ops);
        }
        (self.gone_back, self.gone_back_for_response) = (None, None);
        self.go_back(psn, shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rc::{ProtocolCounters, RefusalScope, RequesterSettings};
    use crate::{Link, limits};

    #[test]
    fn a_loss_reduces_the_window_however_long_ago_the_last_one_was() {
        let link = Link {
            request_mtu: 4096,
            response_mtu: 4096,
            lossless: false,
            initiator_copy: false,
            is_stream: false,
        };
        let shared = RcShared {
            link,
            destination: 1,
            partition: 0xffff,
            selective: true,
            greeting: false,
            request_stalled: false,
            response_stalled: false,
            requests_wait: false,
            state: RcState::Alive,
            refusal: RefusalScope::Connection,
            is_xrc: false,
            counters: ProtocolCounters::default(),
        };
        let mut requester = Requester::new(&link);
        requester.start(RequesterSettings {
            send_psn: 0,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
        });
        requester.next = Psn::new(10);
        requester.reduce_window();
        // Somewhat more than half of all PSNs, acknowledged in pieces of a window.
        for _ in 0..(1 << 23) / limits::LOSSY_SPAN + 100 {
            requester.next = requester.unacked.plus(limits::LOSSY_SPAN);
            requester.advance(requester.next, Time(0), &shared);
        }
        let window = requester.window.packets();
        requester.next = requester.unacked.plus(10);
        requester.reduce_window();
        assert_eq!(requester.window.packets(), window / 2);
    }
}

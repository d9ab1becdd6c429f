//! Retransmission: which packets count as lost, and how they are sent again.
//!
//! A peer that fills gaps gets the packets that are missing. Another peer gets all packets from the oldest missing one on, in order.
//! The timers (`expire`) and the answers of the peer (`response`) decide when.

use super::{EntryPackets, Requester};
use crate::rc::retry::pace;
use crate::rc::{RcShared, SendStep};
use crate::{PacketSink, Psn, Time, WorkOperation, WorkQueues, limits};

impl Requester {
    /// Whether something that was sent before is to be sent again.
    pub(in crate::rc) fn has_to_repeat(&self, shared: &RcShared) -> bool {
        self.resend.is_some() || shared.fills_gaps() && self.board.first_lost().is_some()
    }

    /// The responder may have given up what has arrived there.
    pub(super) fn doubt_all(&mut self) {
        self.board.doubt_all();
        for (index, _) in self.kept.iter() {
            self.board.arrive(index);
        }
    }

    /// Sends the last request again: what comes back tells what is missing before it (the idea of
    /// TCP's tail loss probe, RFC 8985).
    pub(super) fn probe_tail(&mut self) {
        let last = self.next.previous();
        let Some(entry) = self.find(last).map(|at| self.queue[at]) else { return };
        let offset = last.since(entry.first);
        let start = match entry.work.operation {
            WorkOperation::Read { .. } => entry.first.plus(offset - entry.within_request(offset)),
            _ => last,
        };
        let from = start.later(self.unacked).since(self.unacked);
        for index in from..self.next.since(self.unacked) {
            if !self.kept.has(index) {
                self.board.lose(index);
            }
        }
        // What was repeated and is still missing was lost again.
        self.board.start(self.unacked);
    }

    /// Sends again everything from `from` on that may be missing.
    pub(in crate::rc) fn go_back(&mut self, from: Psn, shared: &RcShared) {
        if from == self.next {
            return;
        }
        self.retry.discard_rtt_sample();
        if shared.fills_gaps() {
            self.lose_missing(from, self.next, LossScope::All);
            self.board.mark_requests(self.next);
            self.board.mark_responses(self.next);
        } else if self.resend.is_none_or(|resend| from.is_before(resend)) {
            self.resend = Some(from);
        }
    }

    /// Everything that was on its way is lost.
    pub(in crate::rc) fn repeat_all(&mut self, now: Time, shared: &RcShared) {
        self.retry.restart(now, pace(shared));
        (self.gone_back, self.gone_back_for_response) = (None, None);
        self.go_back(self.unacked, shared);
    }

    /// The peer has turned out to fill gaps, or not to: what was still to be sent again in order becomes gaps.
    pub(in crate::rc) fn policy_changed(&mut self, shared: &RcShared) {
        if shared.fills_gaps() {
            if let Some(from) = self.resend.take() {
                self.go_back(from, shared);
            }
        }
    }

    /// Notes the missing ones of `from .. to` as lost; says whether there are any.
    pub(in crate::rc) fn lose_missing(&mut self, from: Psn, to: Psn, doubt: LossScope) -> bool {
        let mut any = false;
        let end = to.since(self.unacked).min(limits::LOSSY_SPAN);
        let mut index = from.since(self.unacked);
        index = index.max(match doubt {
            LossScope::All => 0,
            LossScope::Requests => self.board.requests_marked_since(self.unacked),
            LossScope::Responses => self.board.responses_marked_since(self.unacked),
        });
        while index < end {
            // One look-up a work request, not one a PSN.
            let Some(entry) = self.find(self.unacked.plus(index)).map(|at| self.queue[at]) else { break };
            let entry_end = entry.end().since(self.unacked).min(end);
            for index in index..entry_end {
                let arrived = match doubt {
                    // That the request has arrived does not mean that its responses have.
                    // The oldest one would be acknowledged.
                    LossScope::All => index > 0 && self.board.has_arrived(index) && !entry.awaits_response(),
                    LossScope::Requests => self.board.has_arrived(index),
                    LossScope::Responses => !entry.awaits_response(),
                };
                if !arrived && !self.kept.has(index) && !self.board.is_lost(index) {
                    self.board.lose(index);
                    any = true;
                }
            }
            index = entry_end;
        }
        any
    }

    /// Sends the packet at `psn` again. The next turn goes on with the packet after it.
    pub(super) fn send_again<E: PacketSink + WorkQueues>(
        &mut self,
        psn: Psn,
        now: Time,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> SendStep {
        let Some(index) = self.find(psn) else {
            // Cannot be: whatever lies before `next` belongs to a started work request.
            self.resend = None;
            return SendStep::Idle;
        };
        let entry = self.queue[index];
        let offset = psn.since(entry.first);
        let span = entry.span(offset).min(self.next.since(psn));
        let packets = EntryPackets { entry: &entry, offset, span, count: 1, again: true };
        match self.transmit(now, &packets, shared, ops) {
            SendStep::Sent(_) => {}
            other => return other,
        }
        shared.counters.retransmissions += 1;
        if shared.link.lossless {
            // Whoever asks for it now has got this one.
            self.gone_back = self.gone_back.filter(|asked| *asked != psn);
        }
        let after = psn.plus(span);
        self.resend = (after != self.next).then_some(after);
        SendStep::Sent(1)
    }

    /// Sends the lost packet at `index` of the scoreboard again.
    pub(super) fn fill_gap<E: PacketSink + WorkQueues>(
        &mut self,
        index: u32,
        now: Time,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> SendStep {
        let psn = self.unacked.plus(index);
        let Some(entry) = self.find(psn).map(|at| self.queue[at]) else {
            self.board.resent(index, 1);
            return SendStep::Sent(1);
        };
        let offset = psn.since(entry.first);
        let longest = entry.span(offset).min(self.next.since(psn));
        // A READ asks again for as much as is missing in one piece.
        let mut span = 1;
        while span < longest && self.board.is_lost(index + span) {
            span += 1;
        }
        let packets = EntryPackets { entry: &entry, offset, span, count: 1, again: true };
        match self.transmit(now, &packets, shared, ops) {
            SendStep::Sent(_) => {}
            other => return other,
        }
        shared.counters.selective_retransmissions += 1;
        self.board.resent(index, span);
        SendStep::Sent(1)
    }
}

/// What [`Requester::lose_missing`] doubts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rc) enum LossScope {
    /// Whatever is not known to be done.
    All,
    /// Requests that are not known to have arrived, and were not repeated lately.
    Requests,
    /// Responses to READs and atomics that have not arrived, and were not asked for again lately.
    Responses,
}

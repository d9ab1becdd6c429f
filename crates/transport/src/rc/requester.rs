//! The requester: cuts work requests into packets, in order, and sends again what was lost.
//!
//! What comes back is handled in `response`.

mod bursts;
mod packets;
mod retransmission;
mod skip;

use std::collections::VecDeque;

use super::congestion::Window;
use super::pacer::Pacer;
use super::retry::{Expiry, Retry, pace};
use super::scoreboard::Scoreboard;
use super::{RcShared, RcState, RequesterSettings, SendStep};
use crate::message::denied_status;
use crate::reorder_buffer::ReorderBuffer;
use crate::{
    InitiatorCopy, Link, LinkState, MemoryAccess, Outcome, PacketSink, Psn, Reason, Status, Time,
    TransportOps, WorkId, WorkOperation, WorkQueues, WorkRequest, limits, packets_for,
};
use packets::request;
pub(super) use retransmission::LossScope;
use skip::Skipped;
pub(super) use skip::status_of;

/// A posted work request, and which PSNs are its own once it has started.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestEntry {
    pub(super) work: WorkRequest,
    pub(super) first: Psn,
    pub(super) packets: u32,
    /// A READ goes out as requests of so many PSNs, counted from `cut_at` on; what is before is answered.
    chunk: u32,
    cut_at: u32,
    /// A WRITE that goes out as one WRITE ONLY after the other, each with a RETH of its own. Their headers are of equal
    /// length, so that the kernel can cut a long burst of them out of one send. It stays as it was begun: the responder is in the
    /// middle of a message or is not.
    write_only: bool,
    /// The peer could not read its bytes where they lie: they travel themselves, in packets of the [shorter
    /// MTU](Link::shorter_mtu).
    bounced: bool,
    /// What it is linked to has failed: it ends without having begun.
    is_flushed: bool,
}

impl RequestEntry {
    /// The PSN behind the last one.
    pub(super) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// How many PSNs a packet at `offset` spans: a READ request has those of its responses.
    pub(super) fn span(&self, offset: u32) -> u32 {
        match self.work.operation {
            WorkOperation::Read { .. } => {
                (self.chunk - self.within_request(offset)).min(self.packets - offset)
            }
            _ => 1,
        }
    }

    /// Payload bytes of its packets, but the last.
    fn request_mtu(&self, link: &Link) -> u32 {
        if self.bounced { link.shorter_mtu() } else { link.request_mtu }
    }

    /// How many PSNs of the same READ request come before the one at `offset`.
    fn within_request(&self, offset: u32) -> u32 {
        offset.saturating_sub(self.cut_at) % self.chunk
    }

    /// Whether the PSN `offset` into a READ is the last of one request.
    pub(super) fn ends_request(&self, offset: u32) -> bool {
        self.span(offset) == 1
    }

    /// Whether it ends with responses of its own, not with an acknowledgement.
    pub(super) fn awaits_response(&self) -> bool {
        matches!(
            self.work.operation,
            WorkOperation::Read { .. }
                | WorkOperation::Atomic { .. }
                | WorkOperation::AtomicWrite { .. }
                | WorkOperation::Flush { .. }
        )
    }
}

/// Packets of one work request that leave together.
struct EntryPackets<'e> {
    entry: &'e RequestEntry,
    /// PSNs of the work request before them.
    offset: u32,
    /// PSNs of each.
    span: u32,
    /// More than one are a [burst](Requester::burst).
    count: u32,
    /// They were sent before.
    again: bool,
}

#[derive(Debug, Default)]
pub(super) struct Requester {
    running: bool,
    draining: bool,
    max_rd_atomic: u8,
    /// PSNs of one READ request at most; longer READs are several requests.
    read_chunk: u32,
    pub(super) queue: VecDeque<RequestEntry>,
    /// How many entries of the queue have PSNs; the last of them may be sent in part.
    pub(super) started: usize,
    /// The oldest PSN that is neither acknowledged nor answered.
    pub(super) unacked: Psn,
    /// The PSN of the next packet that was never sent.
    pub(super) next: Psn,
    /// The responder has executed every request before it. Beyond `unacked` only where READ or atomic
    /// responses were lost.
    pub(super) executed: Psn,
    /// From here to `next` everything is sent again, in order.
    pub(super) resend: Option<Psn>,
    pub(super) board: Scoreboard,
    /// Responses that arrived before one that is missing.
    pub(super) kept: ReorderBuffer,
    /// READ requests and atomics without their last response.
    pub(super) reads: u8,
    /// Packets sent since an acknowledgement was asked for.
    unasked: u32,
    pub(super) window: Window,
    pacer: Pacer,
    pub(super) retry: Retry,
    /// The loss that the window was last reduced for is over when this PSN is acknowledged.
    pub(super) recover: Option<Psn>,
    /// The PSN that a NAK last sent the requester back to; a repetition of that NAK is ignored, on a link that loses nothing until that
    /// PSN has been sent again.
    pub(super) gone_back: Option<Psn>,
    /// Times in a row that the peer has asked for the oldest request, on a link that loses nothing.
    pub(super) repeat_naks: u32,
    /// The responder dropped the request with this PSN for want of a page.
    pub(super) dropped_request: Option<Psn>,
    /// This side dropped the response with this PSN for want of a page.
    pub(super) dropped_response: Option<Psn>,
    /// The PSN of the RESUME that was last obeyed, and when.
    pub(super) resumed: Option<(Psn, Time)>,
    /// The PSN that missing responses last sent it back to; see there.
    pub(super) gone_back_for_response: Option<Psn>,
    /// A work request that failed at this side; it is reported once those before it are complete.
    pub(super) blocked: Option<(WorkId, Status)>,
    /// PSNs that are over without having been executed.
    skipped: Option<Skipped>,
    /// The last work request has failed, or is linked to one that has.
    chain_failed: bool,
    /// Of the PSNs under way so many have got there: the peer has said since they were sent that it waits for a page.
    waiting_there: u32,
    /// It has said so since the timer last ran out.
    held_since_timeout: bool,
    /// PSNs that may be put under way until the caller allows more.
    allowance: u32,
    /// More would have been sent with a greater allowance.
    held: bool,
    /// Something was sent in this turn: what room there is is used.
    filling: bool,
}

impl Requester {
    pub(super) fn new(link: &Link) -> Requester {
        let mtu = link.response_mtu.max(1);
        let read_chunk = if link.lossless {
            limits::LOSSLESS_READ_SPAN
        } else {
            (link.read_chunk() / mtu).clamp(1, limits::LOSSY_SPAN)
        };
        Requester {
            read_chunk,
            window: Window::new(link.request_mtu.max(link.response_mtu), link.most_in_flight()),
            allowance: u32::MAX,
            ..Requester::default()
        }
    }

    /// A turn begins.
    pub(super) fn begin_round(&mut self) {
        self.filling = false;
    }

    /// At most so many PSNs are put under way from now on.
    pub(super) fn set_allowance(&mut self, packets: u32) {
        (self.allowance, self.held) = (packets, false);
    }

    /// Whether more would have been sent with a greater allowance.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    pub(super) fn start(&mut self, settings: RequesterSettings) {
        let psn = Psn::new(settings.send_psn);
        (self.unacked, self.next, self.executed) = (psn, psn, psn);
        self.board.start(psn);
        self.update(&settings);
        self.running = true;
    }

    pub(super) fn update(&mut self, settings: &RequesterSettings) {
        self.max_rd_atomic = settings.max_rd_atomic;
        self.retry.set(settings);
    }

    pub(super) fn post(&mut self, mut work: WorkRequest) {
        self.chain_failed &= work.linked;
        // The responder may execute it before it has found out that it cannot answer the READ.
        work.fence |= work.linked && self.queue.back().is_some_and(RequestEntry::awaits_response);
        self.queue.push_back(RequestEntry { is_flushed: self.chain_failed, ..self.entry(work) });
    }

    /// Whether everything that was posted has been sent, and nothing is to be repeated.
    #[inline]
    pub(super) fn has_sent_everything(&self) -> bool {
        self.blocked.is_none()
            && self.resend.is_none()
            && !self.owes_skip()
            && self.started == self.queue.len()
            && self.queue.back().is_none_or(|last| last.end() == self.next)
    }

    /// Whether a request of one packet that is posted now would leave at once.
    #[inline(always)] // Part of each short SEND.
    pub(super) fn may_send_fast(&self, work: &WorkRequest, shared: &RcShared) -> bool {
        self.running
            && !self.draining
            && self.has_sent_everything()
            && !self.retry.waits_for_receiver()
            && !self.owes_skip()
            && (!work.fence || self.reads == 0)
            && work.length <= shared.link.request_mtu
            // One packet a round trip is no burst, however slow the pace.
            && (shared.link.lossless || self.queue.is_empty())
            && self.fits(1, false, shared)
    }

    /// A work request that has not begun.
    #[inline(always)] // Part of the fast path.
    fn entry(&self, work: WorkRequest) -> RequestEntry {
        let (first, chunk) = (Psn::default(), self.read_chunk);
        let (write_only, bounced, is_flushed) = (false, false, false);
        RequestEntry { work, first, packets: 0, chunk, cut_at: 0, write_only, bounced, is_flushed }
    }

    /// That packet has left.
    pub(super) fn sent_fast(&mut self, now: Time, work: &WorkRequest, shared: &mut RcShared) {
        self.leaves();
        self.queue.push_back(RequestEntry { first: self.next, packets: 1, ..self.entry(*work) });
        self.started += 1;
        self.retry.sent(now, pace(shared));
        self.retry.measure(self.next, now);
        if !shared.link.lossless {
            self.pacer.sent(1, now);
        }
        self.next = self.next.plus(1);
        self.unasked = 0;
        self.chain_failed = false;
        shared.counters.requests_sent += 1;
    }

    pub(super) fn set_draining(&mut self, on: bool) {
        self.draining = on;
    }

    pub(super) fn is_drained(&self) -> bool {
        self.started == 0
    }

    /// Takes new work at once: nothing is outstanding.
    pub(super) fn is_quiet(&self) -> bool {
        self.running && !self.draining && self.queue.is_empty() && !self.chain_failed
    }

    pub(super) fn outstanding(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.retry.deadline().into_iter().chain(self.pacer.deadline()).min()
    }

    /// Sends a burst of `most` packets at most.
    pub(super) fn step<E: TransportOps>(
        &mut self,
        now: Time,
        most: u32,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> SendStep {
        self.pacer.look();
        if !self.running || self.retry.waits_for_receiver() {
            return SendStep::Idle;
        }
        if self.owes_skip() && !self.send_skip(now, shared, ops) {
            return SendStep::Wait;
        }
        if let Some(psn) = self.resend {
            return self.send_again(psn, now, shared, ops);
        }
        if shared.fills_gaps() {
            if let Some(index) = self.board.first_lost() {
                return self.fill_gap(index, now, shared, ops);
            }
        }
        self.send_new(now, most, shared, ops)
    }

    /// Handles what is due at `now`.
    pub(super) fn expire<E: PacketSink + WorkQueues>(
        &mut self,
        now: Time,
        shared: &mut RcShared,
        ops: &mut E,
    ) {
        self.retry.rnr_over(now);
        let pace = pace(shared);
        if !self.retry.is_due(now) {
            return;
        }
        // Also a response that came before others, and whose turn it is.
        if shared.response_stalled || self.kept.has(0) || shared.requests_wait {
            // Nothing that waits here is worth waiting for once the peer's process has ended.
            if shared.link.lossless && ops.link() == LinkState::Dead {
                return self.fail(Status::RetryExceeded, shared, ops);
            }
            match (shared.link.lossless, shared.requests_wait) {
                (true, _) => self.retry.patience(now, pace),
                (false, true) => self.retry.postponed(now, pace),
                // Whoever drives this goes on when the page is there.
                (false, false) => self.retry.held(now, pace),
            }
            return;
        }
        if self.ask_for_dropped_response(shared) {
            return self.retry.patience(now, pace);
        }
        if shared.link.lossless {
            match ops.link() {
                LinkState::Pending => return self.retry.patience(now, pace),
                LinkState::Dead => return self.fail(Status::RetryExceeded, shared, ops),
                LinkState::Delivered => {}
            }
        }
        self.doubt_skip();
        match self.retry.expired(now, pace) {
            // Should the peer be a Pagewire, whose greeting was lost, it has its time. Nothing is sent to it meanwhile.
            Expiry::Exhausted if shared.greeting => {
                self.retry.restart(now, pace);
                return;
            }
            Expiry::Exhausted if ops.is_unread(self.retry.has_questioned_process()) => {
                return self.retry.question_process(now, pace);
            }
            Expiry::Exhausted => {
                shared.counters.timeouts += 1;
                return self.fail(Status::RetryExceeded, shared, ops);
            }
            Expiry::Timeout => {
                shared.counters.timeouts += 1;
                self.retry.restart(now, pace);
                self.doubt_all();
            }
            Expiry::Probe if shared.link.lossless => {
                self.retry.probed(now, pace);
                return;
            }
            Expiry::Probe => {
                shared.counters.probes += 1;
                let in_a_row = self.retry.probed(now, pace);
                if shared.fills_gaps() && self.resend.is_none() {
                    if self.repeat_dropped_request() {
                        return;
                    }
                    // What waits at the peer is not lost: it is enough to ask.
                    if std::mem::take(&mut self.held_since_timeout) || in_a_row == 1 {
                        return self.probe_tail();
                    }
                }
            }
        }
        self.window.silent();
        self.set_pace();
        self.recover = Some(self.next);
        (self.gone_back, self.gone_back_for_response) = (None, None);
        self.go_back(self.unacked, shared);
    }

    /// The message at `psn`, which the peer cannot read where it lies, travels in parts from now on. That peer has executed nothing
    /// from there on, and what it was sent stands in its ring before all that is sent now: the PSNs behind the message are given
    /// anew.
    #[cold]
    pub(super) fn bounce_copy(&mut self, psn: Psn, link: &Link) {
        let Some(at) = self.find(psn) else { return };
        let entry = &mut self.queue[at];
        if entry.bounced || entry.awaits_response() {
            return;
        }
        entry.bounced = true;
        let packets = packets_for(entry.work.length, entry.request_mtu(link));
        let more = packets - std::mem::replace(&mut entry.packets, packets);
        for behind in self.queue.range_mut(at + 1..self.started) {
            behind.first = behind.first.plus(more);
        }
        self.next = self.next.plus(more);
    }

    /// Reduces the window, once for everything that is under way now.
    pub(super) fn reduce_window(&mut self) {
        if self.recover.is_none_or(|psn| !self.unacked.is_before(psn)) {
            self.recover = Some(self.next);
            self.window.lost();
            self.set_pace();
        }
    }

    /// Paces what is sent by what the window and the round trip have become.
    pub(super) fn set_pace(&mut self) {
        let round_trip = self.retry.shortest_round_trip().filter(|_| self.window.is_reduced());
        self.pacer.set(self.window.packets(), round_trip);
    }

    /// The oldest work request ends with an error, and with it the connection.
    pub(super) fn fail<E: WorkQueues>(&mut self, status: Status, shared: &mut RcShared, ops: &mut E) {
        shared.state = RcState::Dead;
        if let Some(entry) = self.queue.pop_front() {
            self.started = self.started.saturating_sub(1);
            ops.complete(entry.work.id, status);
        }
    }

    /// Reports a work request that failed at this side, once it is the oldest.
    pub(super) fn complete_blocked<E: WorkQueues>(&mut self, now: Time, shared: &mut RcShared, ops: &mut E) {
        let Some((id, status)) = self.blocked else { return };
        match self.queue.front() {
            Some(entry) if entry.work.id < id => {}
            Some(entry) if entry.work.id == id => self.end_oldest(now, status, shared, ops),
            // It was sent again only, and the peer had it by then.
            _ => self.blocked = None,
        }
    }

    /// The started work request that a PSN belongs to.
    pub(super) fn find(&self, psn: Psn) -> Option<usize> {
        let base = self.queue.front()?.first;
        let at = psn.since(base);
        let (mut low, mut high) = (0, self.started);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.queue[middle].first.since(base) <= at { low = middle + 1 } else { high = middle }
        }
        let index = low.checked_sub(1)?;
        (at - self.queue[index].first.since(base) < self.queue[index].packets).then_some(index)
    }

    /// The PSN behind the request packet that `psn` belongs to. Whoever takes a request for lost must take
    /// all of it: a READ that was asked for in part would be executed in part.
    pub(super) fn request_end(&self, psn: Psn) -> Psn {
        let Some(entry) = self.find(psn).map(|at| &self.queue[at]) else { return psn.plus(1) };
        psn.plus(entry.span(psn.since(entry.first)))
    }

    fn send_new<E: TransportOps>(
        &mut self,
        now: Time,
        most: u32,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> SendStep {
        let begun = self.started > 0 && self.next != self.queue[self.started - 1].end();
        if !begun {
            match self.begin(now, shared, ops) {
                Begin::Started => {}
                Begin::Finished => return SendStep::Sent(1),
                Begin::NotNow => return SendStep::Idle,
                Begin::Wait => return SendStep::Wait,
            }
        }
        if !self.cut(shared) {
            return SendStep::Idle;
        }
        let entry = self.queue[self.started - 1];
        let offset = self.next.since(entry.first);
        let span = entry.span(offset);
        if entry.awaits_response() && self.reads >= self.max_rd_atomic {
            return SendStep::Idle;
        }
        if self.waits_for_room(&entry, offset, shared) {
            return SendStep::Idle;
        }
        let count = self.burst(&entry, offset, shared).min(most).max(1);
        let packets = EntryPackets { entry: &entry, offset, span, count, again: false };
        let sent = match self.transmit(now, &packets, shared, ops) {
            SendStep::Sent(sent) => sent,
            other => return other,
        };
        self.next = self.next.plus(span * sent);
        if entry.awaits_response() {
            self.reads += 1;
        }
        SendStep::Sent(sent)
    }

    /// Says how long the next requests of the READ that is being sent are: hardly longer than the window, which
    /// their responses would overrun. What is asked for again keeps to the requests as they were: the
    /// responder may have executed one and not the next. So the length changes only while nothing is
    /// outstanding; false: wait for that.
    fn cut(&mut self, shared: &RcShared) -> bool {
        let entry = &mut self.queue[self.started - 1];
        if !matches!(entry.work.operation, WorkOperation::Read { .. }) {
            return true;
        }
        let longest = self.read_chunk;
        let wanted = if shared.link.lossless {
            longest
        } else if shared.greeting && !shared.fills_gaps() {
            // The peer may be a Pagewire that counts its READs, and cannot be told yet that requests are of one.
            limits::LOSSY_SPAN
        } else {
            let least = limits::LEAST_READ_CHUNK / shared.link.response_mtu.max(1);
            longest.min(self.window.packets().max(least))
        };
        let offset = self.next.since(entry.first);
        if offset == 0 || self.next == self.unacked {
            (entry.cut_at, entry.chunk) = (offset, wanted);
            return true;
        }
        wanted < 2 * entry.chunk
    }

    /// Starts the next work request, if its turn has come.
    fn begin<E: MemoryAccess + WorkQueues>(
        &mut self,
        now: Time,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> Begin {
        let Some(&RequestEntry { work, is_flushed, .. }) = self.queue.get(self.started) else {
            return Begin::NotNow;
        };
        if self.draining || self.blocked.is_some() {
            return Begin::NotNow;
        }
        let alone = self.started == 0;
        if is_flushed {
            return self.flush_linked(ops);
        }
        let packets = match work.operation {
            // What follows may depend on it: it is a barrier on both sides.
            WorkOperation::Local(local) if alone => {
                match ops.execute_local(work.id) {
                    Outcome::Done(()) => {
                        self.queue.pop_front();
                        ops.complete(work.id, Status::Success);
                        return Begin::Finished;
                    }
                    Outcome::Wait(_) => return Begin::Wait,
                    Outcome::Denied(_) => self.fail(local.refused(), shared, ops),
                }
                return Begin::NotNow;
            }
            WorkOperation::Failing { status } if alone => {
                self.fail(status, shared, ops);
                return Begin::NotNow;
            }
            WorkOperation::Local(_) | WorkOperation::Failing { .. } => return Begin::NotNow,
            WorkOperation::Send { .. } | WorkOperation::Write { .. } => {
                packets_for(work.length, shared.link.request_mtu)
            }
            WorkOperation::Read { .. } => packets_for(work.length, shared.link.response_mtu),
            WorkOperation::Atomic { .. }
            | WorkOperation::AtomicWrite { .. }
            | WorkOperation::Flush { .. } => 1,
        };
        if work.fence && self.reads > 0 {
            return Begin::NotNow;
        }
        let initiator_copy = matches!(
            work.operation,
            WorkOperation::Write { immediate: None, .. }
                | WorkOperation::Read { .. }
                | WorkOperation::Atomic { .. }
        );
        if alone && initiator_copy && shared.link.initiator_copy {
            match ops.initiator_copy(&work) {
                InitiatorCopy::Done => {
                    self.queue.pop_front();
                    shared.counters.initiator_copies += 1;
                    ops.complete(work.id, Status::Success);
                    return Begin::Finished;
                }
                InitiatorCopy::Wait => return Begin::Wait,
                InitiatorCopy::Unavailable => {}
            }
        }
        let entry = &mut self.queue[self.started];
        (entry.first, entry.packets) = (self.next, packets);
        // A standard peer, which counts messages and may check a whole range first, gets what standard requesters send. Immediate
        // data comes with the length of its whole WRITE.
        entry.write_only =
            shared.fills_gaps() && matches!(work.operation, WorkOperation::Write { immediate: None, .. });
        let entry = *entry;
        self.started += 1;
        if entry.awaits_response() && self.max_rd_atomic == 0 {
            self.block(now, (work.id, Status::LocalQpOperation), shared, ops);
            return Begin::NotNow;
        }
        Begin::Started
    }

    /// Ends the next work request, which is linked to one that has failed.
    #[cold]
    fn flush_linked<E: WorkQueues>(&mut self, ops: &mut E) -> Begin {
        debug_assert!(self.started == 0, "what it is linked to has ended");
        if let Some(entry) = self.queue.pop_front() {
            ops.end_request(entry.work.id, Status::Flushed, 0);
        }
        Begin::Finished
    }

    /// Whether `count` more PSNs may be under way.
    #[inline]
    fn fits(&self, count: u32, again: bool, shared: &RcShared) -> bool {
        let outstanding = self.next.since(self.unacked);
        if shared.link.lossless {
            return again || outstanding + count <= limits::MAX_OUTSTANDING_PSNS;
        }
        let in_flight = self.in_flight();
        let spans = again || outstanding == 0 || outstanding + count <= limits::LOSSY_SPAN;
        spans && (in_flight == 0 || in_flight + count <= self.window.packets())
    }

    /// PSNs that were sent and are neither known to have arrived nor given up.
    pub(super) fn in_flight(&self) -> u32 {
        match self.resend {
            Some(resend) => resend.since(self.unacked),
            None => self.next.since(self.unacked).saturating_sub(self.board.landed()),
        }
    }

    /// PSNs that were sent and are still on the link or in a socket: not those that wait at the peer for a page.
    pub(super) fn in_network(&self) -> u32 {
        self.in_flight().saturating_sub(self.waiting_there)
    }

    /// The peer waits for a page, with all that has been sent.
    pub(super) fn waits_there(&mut self) {
        self.waiting_there = self.in_flight();
        self.held_since_timeout = true;
    }

    /// Something is about to be put under way: of what was before no more can wait at the peer than there is.
    fn leaves(&mut self) {
        if self.waiting_there > 0 {
            self.waiting_there = self.waiting_there.min(self.in_flight());
        }
    }

    /// Sends packets of a work request, if window, pace and allowance permit.
    fn transmit<E: PacketSink + WorkQueues>(
        &mut self,
        now: Time,
        packets: &EntryPackets<'_>,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> SendStep {
        let EntryPackets { entry, offset, span, count, again } = *packets;
        if self.blocked.is_some_and(|(id, _)| entry.work.id >= id) || !self.fits(span, again, shared) {
            return SendStep::Idle;
        }
        if !shared.link.lossless && !self.pacer.permits(now) {
            return SendStep::Idle;
        }
        // Where nothing sent so far asks for an answer, one packet that does may always follow.
        if self.allowance == 0 && (self.unasked == 0 || self.in_flight() == 0) {
            self.held = true;
            return SendStep::Idle;
        }
        let (mut header, source) = request(entry, offset, span, shared);
        // No packet of a burst needs to ask; see `burst`.
        if count == 1 && !entry.awaits_response() {
            let last = offset + span == entry.packets;
            header.bth.acknowledge = self.ends(last, shared) || again || self.asks(shared);
        }
        let sent = match ops.transmit(&header, source, count) {
            Outcome::Done(sent) => sent,
            Outcome::Wait(reason) => {
                if again && reason == Reason::Page {
                    self.retry.lacks_page(now);
                }
                return SendStep::Wait;
            }
            Outcome::Denied(denial) => {
                self.block(now, (entry.work.id, denied_status(denial)), shared, ops);
                let has_ended = self.blocked.is_none() && shared.state == RcState::Alive;
                return if has_ended { SendStep::Again } else { SendStep::Idle };
            }
        };
        self.leaves();
        shared.counters.requests_sent += u64::from(sent);
        self.filling = true;
        self.pacer.sent(span * sent, now);
        self.allowance = self.allowance.saturating_sub(span * sent);
        // Responses acknowledge what was sent before their request.
        let asked = header.bth.acknowledge || entry.awaits_response();
        self.unasked = if asked { 0 } else { self.unasked + sent };
        self.retry.sent(now, pace(shared));
        if !again && asked {
            self.retry.measure(entry.first.plus(offset), now);
        }
        SendStep::Sent(sent)
    }

    /// Whether a packet in the middle of a message shall ask for an acknowledgement: often enough that
    /// neither window nor allowance end in silence.
    fn asks(&self, shared: &RcShared) -> bool {
        if shared.link.lossless {
            return false;
        }
        let window = self.window.packets();
        self.allowance <= 1
            || self.unasked + 1 >= self.longest_unasked(shared)
            || self.in_flight() + 1 >= window
            || self.next.since(self.unacked) + 1 >= limits::LOSSY_SPAN
    }

    fn block<E: WorkQueues>(
        &mut self,
        now: Time,
        (id, status): (WorkId, Status),
        shared: &mut RcShared,
        ops: &mut E,
    ) {
        self.blocked = Some((id, status));
        self.complete_blocked(now, shared, ops);
    }
}

enum Begin {
    Started,
    /// Done without a packet.
    Finished,
    NotNow,
    Wait,
}

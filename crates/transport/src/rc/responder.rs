//! The responder: takes requests in PSN order. [`duplicates`] answers those that come again, [`outputs`] sends what goes back to the
//! peer. Executing a request is `execute`'s.

mod duplicates;
mod outputs;
mod refusal;

use std::collections::VecDeque;

use pagewire_wire::{Nak, PacketHeader, Syndrome};

use super::execute::{AtomicResult, ExecutionStop, Reads, RequestAnswer, RequestExecutor};
use super::gap::Gap;
use super::{RcSettings, RcShared, RcState, RcUpdate, ReceivedData};
use crate::reorder_buffer::ReorderBuffer;
use crate::{Disposition, DropCause, MemoryAccess, Payload, Psn, Time, WorkQueues, limits, packets_for};
use outputs::{ExecutedRead, NO_CREDITS, ReadResponses, ResponderOutput, acknowledgement};
use refusal::Refused;

#[derive(Debug, Default)]
pub(super) struct Responder {
    executor: RequestExecutor,
    min_rnr_timer: u8,
    max_dest_rd_atomic: u8,
    expected: Psn,
    /// A NAK for `expected` is out: what comes behind is dropped in silence until it arrives.
    nak_sent: bool,
    /// That NAK was receiver-not-ready.
    not_ready: bool,
    /// A NAK is the last that has left. Soft-RoCE obeys no other sequence NAK before it has got an acknowledgement (`started_retry` of
    /// its completer): one goes ahead of the next NAK.
    after_nak: bool,
    /// Requests that were dropped because they arrived before a missing one.
    gap: Gap,
    outputs: VecDeque<ResponderOutput>,
    /// READs and atomics among them.
    reads: u8,
    /// The latest READs, the oldest first: as many as a peer may ask for again.
    executed_reads: VecDeque<ExecutedRead>,
    /// Read responses with PSNs before this one have left before, or were for no READ.
    answered: Psn,
    /// Answers to repeated READs and atomics; they go first, being older.
    replays: VecDeque<ResponderOutput>,
    /// Results of the latest atomics, for repetitions.
    atomics: VecDeque<(Psn, AtomicResult)>,
    /// Requests that arrived before a missing one.
    kept: ReorderBuffer,
    report_due: bool,
    hold_due: bool,
    /// A request was refused, and the requester has not gone on behind it.
    refused: Option<Refused>,
    /// Somebody has asked for that NAK again.
    refusal_due: bool,
    /// The response that is next waits, for a page or for the link.
    stalled: bool,
}

/// Where a request stands in the order of PSNs.
enum PsnOrder {
    Expected,
    /// It is the expected one, is here already and waits for a page.
    Waits,
    /// It was executed.
    Before,
    /// One before it is missing.
    Ahead,
}

impl Responder {
    pub(super) fn new(settings: &RcSettings) -> Responder {
        Responder {
            executor: RequestExecutor::new(settings.remote_rights),
            min_rnr_timer: settings.min_rnr_timer,
            max_dest_rd_atomic: settings.max_dest_rd_atomic,
            expected: Psn::new(settings.receive_psn),
            outputs: VecDeque::with_capacity(4),
            ..Responder::default()
        }
    }

    pub(super) fn update(&mut self, update: &RcUpdate) {
        self.min_rnr_timer = update.min_rnr_timer;
        self.max_dest_rd_atomic = update.max_dest_rd_atomic;
        self.executor.placer.rights = update.remote_rights;
    }

    /// From now on the RETH of a WRITE ONLY may tell of more than its packet: the peer is a Pagewire, or may be one.
    pub(super) fn take_remaining_lengths(&mut self) {
        self.executor.placer.takes_remaining_length = true;
    }

    /// The PSN of the next request.
    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    /// Whether all there is to send is one acknowledgement.
    pub(super) fn acknowledges_only(&self) -> bool {
        !self.report_due
            && self.refused.is_none()
            && self.replays.is_empty()
            && self.outputs.len() == 1
            && matches!(self.outputs.front(), Some(ResponderOutput::Ack { .. }))
    }

    /// Whether the last message is complete.
    pub(super) fn is_between_messages(&self) -> bool {
        self.executor.placer.is_between_messages()
    }

    /// Whether no packet waits to be executed, or asked for, later.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.kept.is_empty() && !self.hold_due && !self.gap.is_open()
    }

    /// Whether a request with this PSN is the next, and begins a message.
    pub(super) fn expects_message(&self, psn: Psn) -> bool {
        psn == self.expected
            && !self.nak_sent
            && self.refused.is_none()
            && self.executor.placer.is_between_messages()
    }

    /// Whether nothing is to be executed later, and nothing to be sent but one acknowledgement at most.
    pub(super) fn only_acknowledges(&self) -> bool {
        self.keeps_nothing()
            && !self.report_due
            && self.replays.is_empty()
            && (self.outputs.is_empty() || self.acknowledges_only())
    }

    /// Whether nothing is to be sent, or to be executed later.
    pub(super) fn is_idle(&self) -> bool {
        self.outputs.is_empty()
            && self.replays.is_empty()
            && self.kept.is_empty()
            && !self.report_due
            && !self.refusal_due
            && !self.hold_due
    }

    /// The expected request was a message of one packet, and somebody else has executed it; `owes`: and not acknowledged.
    pub(super) fn executed_fast(&mut self, owes: bool) {
        let psn = self.expected;
        self.expected = psn.plus(1);
        self.executor.finish_message();
        if owes {
            // What is owed waits for the answer, if the program answers.
            self.executor.placer.received.received = true;
            self.acknowledge(psn);
        }
    }

    /// What has come for the program since this was last asked.
    pub(super) fn take_received(&mut self) -> ReceivedData {
        std::mem::take(&mut self.executor.placer.received)
    }

    /// Whether a message has come.
    pub(super) fn has_received(&self) -> bool {
        self.executor.placer.received.received
    }

    /// The acknowledgement that is [all there is to send](Self::acknowledges_only), for the caller to send.
    pub(super) fn take_owed(&mut self, shared: &RcShared) -> PacketHeader {
        self.outputs.clear();
        acknowledgement(self.expected.previous(), NO_CREDITS, self.executor.message(), shared)
    }

    /// Takes back the acknowledgement of `psn` if that is all there is to send.
    pub(super) fn take_acknowledgement(&mut self, psn: Psn) -> bool {
        let own = self.acknowledges_only()
            && matches!(self.outputs.front(), Some(ResponderOutput::Ack { psn: last, .. }) if *last == psn);
        if own {
            self.outputs.clear();
        }
        own
    }

    /// Whether the response that is next waits, for a page or for the link.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Whether a request was repeated while this side waits for a page; asks once.
    pub(super) fn take_hold(&mut self) -> bool {
        std::mem::take(&mut self.hold_due)
    }

    /// Takes request packets: a burst as far as its packets go together, mostly one. They run through the states that the
    /// specification names (InfiniBand specification, volume 1, section 9.7.4.1), each a function:
    ///
    /// | state | function | section |
    /// |---|---|---|
    /// | PSN | [`check_psn`](Self::check_psn) | 9.7.1 |
    /// | executed before | [`duplicate`](Self::duplicate) | 9.7.5.1.5 |
    /// | ahead of a missing one | [`set_aside`](Self::set_aside) | 9.7.5.2 |
    /// | sequence of opcodes, length, key, receive, copy | [`Placer::place`](crate::placing::Placer::place), [`RequestExecutor`] | 9.7.4.1 |
    /// | acknowledgement or response | [`complete`](Self::complete) | 9.7.5.1.2 |
    /// | refusal | [`refuse`](Self::refuse), [`refuse_for_now`](Self::refuse_for_now) | 9.7.5.2 |
    pub(super) fn request<E: MemoryAccess + WorkQueues>(
        &mut self,
        header: &PacketHeader,
        payload: Payload<'_>,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> Disposition {
        if let Some(refused) = self.refused {
            return self.request_after_refusal(header, refused, shared, ops);
        }
        let psn = Psn::new(header.bth.psn);
        match self.check_psn(psn) {
            PsnOrder::Expected => {
                let disposition = self.execute(header, payload, shared, ops);
                if !disposition.is_held() {
                    // What was kept and has to wait is `progress`'s to repeat: this packet is done.
                    self.resume(shared, ops);
                }
                disposition
            }
            PsnOrder::Waits => {
                self.hold_due = true;
                Disposition::Duplicate
            }
            PsnOrder::Before => self.duplicate(header, psn, shared, ops),
            PsnOrder::Ahead => self.set_aside(header, psn, payload, shared),
        }
    }

    /// Where the PSN stands (section 9.7.1).
    fn check_psn(&self, psn: Psn) -> PsnOrder {
        match psn {
            _ if psn == self.expected && self.kept.has(0) => PsnOrder::Waits,
            _ if psn == self.expected => PsnOrder::Expected,
            _ if psn.is_before(self.expected) => PsnOrder::Before,
            _ => PsnOrder::Ahead,
        }
    }

    /// A request ahead of a missing one: kept for a peer that fills gaps, else dropped, and the missing one is asked for (section
    /// 9.7.5.2).
    fn set_aside(
        &mut self,
        header: &PacketHeader,
        psn: Psn,
        payload: Payload<'_>,
        shared: &RcShared,
    ) -> Disposition {
        if !shared.fills_gaps() {
            // A link that loses nothing keeps the order: the expected one was dropped here, and has been asked for, or this one is of the
            // peer's former life. To ask then would say of a request that is still to come that it could not be taken.
            if !shared.link.lossless {
                self.gap.drop_request(psn);
                self.ask_again(shared);
            }
            return Disposition::Dropped(DropCause::OutOfOrder);
        }
        // While a receive is missing the requester knows what it waits for.
        self.report_due |= !self.not_ready;
        // A stream has the order: behind a gap it has just broken, and what is missing comes again.
        let Payload::Bytes(burst) = payload else { return Disposition::Dropped(DropCause::OutOfOrder) };
        let bytes = burst.first().copied().unwrap_or_default();
        match self.kept.insert(psn.since(self.expected), header, bytes) {
            true => Disposition::Kept,
            false => Disposition::Dropped(DropCause::OutOfOrder),
        }
    }

    /// Asks for what was dropped and does not come again, once it is time.
    pub(super) fn expire(&mut self, now: Time, shared: &RcShared) {
        // What expired or went on before this may have ended the connection, or refused a request.
        if shared.state == RcState::Alive
            && self.refused.is_none()
            && self.gap.look(self.expected, self.nak_sent, now)
        {
            self.ask_for_repetition(shared);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.gap.deadline()
    }

    /// Asks for the expected request once more, unless the peer knows already.
    fn ask_again(&mut self, shared: &RcShared) {
        if !self.nak_sent {
            self.ask_for_repetition(shared);
        }
    }

    /// Asks for the expected request once more, which has come and could not be taken. The peer may have been asked before: it was
    /// this repetition that could not be taken.
    fn ask_for_repetition(&mut self, shared: &RcShared) {
        self.nak_sent = true;
        if !matches!(self.outputs.back(), Some(ResponderOutput::Retry { .. })) {
            self.retry(Syndrome::Nak(Nak::PsnSequence), shared);
        }
    }

    /// The expected request was dropped for want of a page: what comes behind it is kept or dropped in silence until it comes again.
    #[cold]
    pub(super) fn await_repetition(&mut self) {
        (self.nak_sent, self.not_ready) = (true, true);
    }

    /// Drops the expected request as [`await_repetition`](Self::await_repetition) does, and sends an RNR NAK for it.
    #[cold]
    pub(super) fn refuse_for_now(&mut self, shared: &RcShared) {
        self.await_repetition();
        self.retry(Syndrome::ReceiverNotReady { timer: self.min_rnr_timer }, shared);
    }

    /// How many requests are missing from the expected one on; 0: all behind it.
    pub(super) fn missing(&self) -> u32 {
        self.kept.iter().next().map_or(0, |(index, _)| index)
    }

    /// Goes on with requests that were kept; true: the transport operations say wait.
    pub(super) fn resume<E: MemoryAccess + WorkQueues>(
        &mut self,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> bool {
        while shared.state == RcState::Alive {
            let Some(kept) = self.kept.take_first() else { return false };
            match self.execute(&kept.header, Payload::Bytes(&[&kept.bytes]), shared, ops) {
                Disposition::Held { .. } => {
                    self.kept.put_back(kept);
                    return true;
                }
                Disposition::NotReady => return false,
                _ => self.report_due |= !self.kept.is_empty(),
            }
        }
        false
    }

    /// Executes the request with the expected PSN, and those of its burst that go with it.
    fn execute<E: MemoryAccess + WorkQueues>(
        &mut self,
        header: &PacketHeader,
        payload: Payload<'_>,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> Disposition {
        // A WRITE of one packet is a message by itself, of which the last bytes are to be visible last. Only a Pagewire says that more
        // follows.
        let alone = header.bth.opcode.is_only() && !shared.fills_gaps();
        let payload = if alone { payload.first(1) } else { payload };
        let reads = Reads { may_read: self.reads < self.max_dest_rd_atomic, to_come: self.read_to_come() };
        match self.executor.execute(header, payload, &shared.link, reads, ops) {
            Ok(answer) => Disposition::Executed(self.complete(answer, header.bth.acknowledge, shared)),
            Err(ExecutionStop::Wait(reason)) => Disposition::Held { reason, again: false },
            Err(ExecutionStop::NotReady) => {
                // What is kept stays: the requester has been told that it is here.
                self.refuse_for_now(shared);
                Disposition::NotReady
            }
            Err(ExecutionStop::Dropped(cause)) => {
                if cause == DropCause::SenderUnreadable {
                    // The peer finds out by itself what is wrong with its memory.
                    self.ask_for_repetition(shared);
                }
                Disposition::Dropped(cause)
            }
            Err(ExecutionStop::Refuse(nak, event)) => {
                self.refuse(self.expected, nak, event, shared);
                Disposition::Refused(nak)
            }
        }
    }

    /// Queues what executed requests ask for, and expects the one behind them; gives how many packets they are. Acknowledgements coalesce
    /// (section 9.7.5.1.2).
    fn complete(&mut self, answer: RequestAnswer, asked: bool, shared: &RcShared) -> u32 {
        // A NAK that has not gone out is out of date.
        let unsent = self.nak_sent && matches!(self.outputs.back(), Some(ResponderOutput::Retry { .. }));
        if unsent {
            self.outputs.pop_back();
        }
        (self.nak_sent, self.not_ready) = (false, false);
        let psn = self.expected;
        let message = self.executor.message();
        let (packets, psns) = match answer {
            RequestAnswer::Placed(packets) => {
                if asked {
                    self.acknowledge(psn.plus(packets - 1));
                }
                (packets, packets)
            }
            RequestAnswer::Read { remote, length, after, shared_queue } => {
                let packets = packets_for(length, shared.link.response_mtu);
                let of = self.note_read(psn, packets, (length, after));
                let responses =
                    ReadResponses { psn, packets, remote, shared_queue, length, first: true, message, of };
                self.outputs.push_back(ResponderOutput::Read(responses));
                self.reads += 1;
                (1, packets)
            }
            RequestAnswer::Atomic(result) => {
                self.remember(psn, result);
                self.outputs.push_back(ResponderOutput::Atomic { psn, result, message });
                self.reads += 1;
                (1, 1)
            }
            RequestAnswer::Flushed => {
                // A FLUSH whose response is missing is repeated.
                if self.outputs.len() < limits::LOSSY_SPAN as usize {
                    self.outputs.push_back(ResponderOutput::Flushed { psn, message });
                }
                (1, 1)
            }
        };
        self.expected = psn.plus(psns);
        self.kept.advance(psns);
        self.gap.advance(self.expected);
        if unsent && self.gap.is_open() {
            // The peer does not know yet that anything was dropped.
            self.ask_for_repetition(shared);
        }
        packets
    }

    /// Keeps which READ was executed: what the peer asks for again may be a piece of it. Twice as many are kept as may be outstanding, because a
    /// READ of which the rest goes out as a repetition is outstanding no more. A request may go on with the READ of the one before.
    fn note_read(&mut self, psn: Psn, packets: u32, (length, after): (u32, u32)) -> ExecutedRead {
        let goes_on = self.read_to_come() == length + after;
        if let Some(read) = self.executed_reads.back_mut().filter(|read| goes_on && read.to_come > 0) {
            (read.packets, read.to_come) = (read.packets + packets, after);
            return *read;
        }
        let unanswered = |output: &ResponderOutput| matches!(output, ResponderOutput::Read(_));
        if !self.outputs.iter().chain(&self.replays).any(unanswered) {
            // Half the PSNs further on it would count as the future.
            self.answered = psn;
        }
        if self.executed_reads.len() >= 2 * usize::from(self.max_dest_rd_atomic.max(1)) {
            self.executed_reads.pop_front();
        }
        let read = ExecutedRead { psn, packets, length: length + after, to_come: after };
        self.executed_reads.push_back(read);
        read
    }

    /// Bytes that the expected request and those behind it ask for if it goes on with a READ; 0: it does not.
    fn read_to_come(&self) -> u32 {
        let last = self.executed_reads.back().filter(|read| read.psn.plus(read.packets) == self.expected);
        last.map_or(0, |read| read.to_come)
    }

    /// Keeps the result of an atomic for repetitions, as many as the peer may have outstanding (section
    /// 9.4.5).
    fn remember(&mut self, psn: Psn, result: AtomicResult) {
        if self.atomics.len() >= usize::from(self.max_dest_rd_atomic.max(1)) {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, result));
    }

    /// The result of the latest atomic with this PSN: one from before the PSNs wrapped may still be kept.
    fn remembered(&self, psn: Psn) -> Option<AtomicResult> {
        self.atomics.iter().rev().find(|atomic| atomic.0 == psn).map(|atomic| atomic.1)
    }

    /// What was said of the requests that have come may be lost.
    pub(super) fn acknowledge_again(&mut self) {
        if self.kept.is_empty() {
            self.acknowledge(self.expected.previous());
        } else {
            self.report_due = true;
        }
    }

    /// Queues an acknowledgement of everything up to `psn`; it replaces one that has not gone out.
    fn acknowledge(&mut self, psn: Psn) {
        let ack = ResponderOutput::Ack { psn, message: self.executor.message() };
        match self.outputs.back_mut() {
            Some(last @ ResponderOutput::Ack { .. }) => *last = ack,
            _ => self.outputs.push_back(ack),
        }
    }

    /// Queues a NAK of the expected PSN.
    fn retry(&mut self, syndrome: Syndrome, shared: &RcShared) {
        debug_assert!(shared.state == RcState::Alive);
        let message = self.executor.message();
        self.queue_nak(ResponderOutput::Retry { psn: self.expected, syndrome, message });
    }

    /// Queues a NAK. It acknowledges what came before it as well.
    fn queue_nak(&mut self, nak: ResponderOutput) {
        if matches!(self.outputs.back(), Some(ResponderOutput::Ack { .. } | ResponderOutput::Retry { .. })) {
            self.outputs.pop_back();
        }
        self.outputs.push_back(nak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultHandling, Link, RefusalScope, RemoteRights};

    /// A READ that the requester has cut, and one behind it that asks for the same.
    #[test]
    fn requests_of_one_read_are_one() {
        let mut responder = Responder { max_dest_rd_atomic: 1, ..Responder::default() };
        let mut note = |packets, (length, after)| {
            let psn = responder.expected;
            let read = responder.note_read(psn, packets, (length, after));
            responder.expected = psn.plus(packets);
            (read.psn, read.packets, read.length, read.to_come)
        };
        let [first, next] = [Psn::new(0), Psn::new(12)];
        assert_eq!(note(4, (4096, 8192)), (first, 4, 12_288, 8192));
        assert_eq!(note(4, (4096, 4096)), (first, 8, 12_288, 4096));
        assert_eq!(note(4, (4096, 0)), (first, 12, 12_288, 0));
        assert_eq!(note(4, (4096, 0)), (next, 4, 4096, 0));
        assert!(responder.executed_read(Psn::new(6), 4).is_some_and(|read| read.psn == first));
        assert!(responder.executed_read(Psn::new(10), 4).is_none(), "they are of two");
    }

    #[test]
    fn a_repeated_atomic_gets_its_own_result_though_its_psn_is_used_again() {
        let mut responder = Responder::new(&RcSettings {
            link: Link {
                request_mtu: 1024,
                response_mtu: 1024,
                lossless: false,
                initiator_copy: false,
                is_stream: false,
            },
            destination: 1,
            partition: 0xffff,
            receive_psn: 0,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 0,
            remote_rights: RemoteRights::default(),
            fault_handling: FaultHandling::Stash,
            refusal: RefusalScope::Connection,
            is_xrc: false,
        });
        let (psn, found) = (Psn::new(7), AtomicResult::Original);
        responder.remember(psn, found(1));
        // 2^24 PSNs later, with no other atomic between.
        responder.remember(psn, found(2));
        assert_eq!(responder.remembered(psn), Some(found(2)));
        responder.remember(psn.plus(1), found(3));
        responder.remember(psn.plus(2), AtomicResult::Written);
        let expected = [None, Some(found(3)), Some(AtomicResult::Written)];
        assert_eq!([0, 1, 2].map(|n| responder.remembered(psn.plus(n))), expected);
    }
}

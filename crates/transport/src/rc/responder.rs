//! The responder: takes requests in PSN order. [`duplicates`] answers those that come again, [`outputs`] sends what goes back to the
//! peer. Executing a request is `execute`'s.

mod duplicates;
mod outputs;

use std::collections::VecDeque;

use pagewire_wire::{Header, Nak, Syndrome};

use super::execute::{Answer, Executor, Stop};
use super::gap::Gap;
use super::{RcSettings, RcUpdate, Shared, State};
use crate::stash::Stash;
use crate::{Event, Payload, Psn, Time, TransportOps, packets_for};
use outputs::{NO_CREDITS, Output, ReadResponses, acknowledgement};

#[derive(Debug)]
pub(super) struct Responder {
    executor: Executor,
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
    outputs: VecDeque<Output>,
    /// READs and atomics among them.
    reads: u8,
    /// Answers to repeated READs and atomics; they go first, being older.
    replays: VecDeque<Output>,
    /// Results of the latest atomics, for repetitions.
    atomics: VecDeque<(Psn, u64)>,
    /// Requests that arrived before a missing one.
    kept: Stash,
    report_due: bool,
    hold_due: bool,
    /// The response that is next waits, for a page or for the link.
    stalled: bool,
}

impl Responder {
    pub(super) fn new(settings: &RcSettings) -> Responder {
        Responder {
            executor: Executor::new(settings.remote_rights),
            min_rnr_timer: settings.min_rnr_timer,
            max_dest_rd_atomic: settings.max_dest_rd_atomic,
            expected: Psn::new(settings.receive_psn),
            nak_sent: false,
            not_ready: false,
            after_nak: false,
            gap: Gap::default(),
            outputs: VecDeque::with_capacity(4),
            reads: 0,
            replays: VecDeque::new(),
            atomics: VecDeque::new(),
            kept: Stash::default(),
            report_due: false,
            hold_due: false,
            stalled: false,
        }
    }

    pub(super) fn update(&mut self, update: &RcUpdate) {
        if let Some(code) = update.min_rnr_timer {
            self.min_rnr_timer = code;
        }
        if let Some(rights) = update.remote_rights {
            self.executor.set_rights(rights);
        }
        if let Some(count) = update.max_dest_rd_atomic {
            self.max_dest_rd_atomic = count;
        }
    }

    /// From now on the RETH of a WRITE ONLY may tell of more than its packet: the peer is a Pagewire, or may be one.
    pub(super) fn take_remaining_lengths(&mut self) {
        self.executor.take_remaining_lengths();
    }

    /// The PSN of the next request.
    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    /// Whether all there is to send is one acknowledgement.
    pub(super) fn acknowledges_only(&self) -> bool {
        !self.report_due
            && self.replays.is_empty()
            && self.outputs.len() == 1
            && matches!(self.outputs.front(), Some(Output::Ack { .. }))
    }

    /// Whether the last message is complete.
    pub(super) fn is_between_messages(&self) -> bool {
        self.executor.is_between_messages()
    }

    /// Whether no packet waits to be executed, or asked for, later.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.kept.is_empty() && !self.hold_due && !self.gap.is_open()
    }

    /// Whether a request with this PSN is the next, and begins a message.
    pub(super) fn expects_message(&self, psn: Psn) -> bool {
        psn == self.expected && !self.nak_sent && self.executor.is_between_messages()
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
            && !self.hold_due
    }

    /// The expected request was a message of one packet, and somebody else has executed it; `owes`: and not acknowledged.
    pub(super) fn executed_fast(&mut self, owes: bool) {
        let psn = self.expected;
        self.expected = psn.plus(1);
        self.executor.finish_message();
        if owes {
            self.acknowledge(psn);
        }
    }

    /// The acknowledgement that is [all there is to send](Self::acknowledges_only), for the caller to send.
    pub(super) fn take_owed(&mut self, shared: &Shared) -> Header {
        self.outputs.clear();
        acknowledgement(self.expected.previous(), NO_CREDITS, self.executor.message(), shared)
    }

    /// Takes back the acknowledgement of `psn` if that is all there is to send.
    pub(super) fn take_acknowledgement(&mut self, psn: Psn) -> bool {
        let own = self.acknowledges_only()
            && matches!(self.outputs.front(), Some(Output::Ack { psn: last, .. }) if *last == psn);
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

    /// A request packet; true: the transport operations say wait.
    pub(super) fn request<E: TransportOps>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        shared: &mut Shared,
        ops: &mut E,
    ) -> bool {
        let psn = Psn::new(header.bth.psn);
        if psn == self.expected {
            if self.kept.has(0) {
                // It is here already and waits for a page.
                shared.counters.duplicates += 1;
                self.hold_due = true;
                return false;
            }
            if self.execute(header, payload, shared, ops) {
                return true;
            }
            // What was kept and has to wait is `progress`'s to repeat: this packet is done.
            self.resume(shared, ops);
            return false;
        }
        if psn.is_before(self.expected) {
            shared.counters.duplicates += 1;
            self.hold_due |= self.kept.has(0) || self.stalled;
            return self.duplicate(header, psn, shared, ops);
        }
        shared.counters.out_of_order += 1;
        if shared.fills_gaps() {
            if let Payload::Bytes(bytes) = payload {
                self.kept.insert(psn.since(self.expected), header, bytes);
            }
            // While a receive is missing the requester knows what it waits for.
            self.report_due |= !self.not_ready;
        } else {
            // A link that loses nothing keeps the order: the repetition brings all.
            if !shared.link.lossless {
                self.gap.drop_request(psn);
            }
            self.ask_again(shared);
        }
        false
    }

    /// Asks for what was dropped and does not come again, once it is time.
    pub(super) fn expire(&mut self, now: Time, shared: &Shared) {
        // What expired or went on before this may have ended the connection, or refused a request.
        if shared.state == State::Alive && self.gap.look(self.expected, self.nak_sent, now) {
            self.ask_for_repetition(shared);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.gap.deadline()
    }

    /// Request packets that make a burst (see [`RcConnection::receive_burst`](super::RcConnection::receive_burst)), with the first
    /// one's header.
    /// Gives how many were executed: those behind it are to be given to [`request`](Self::request) one by one.
    pub(super) fn request_burst<E: TransportOps>(
        &mut self,
        header: &Header,
        burst: &[&[u8]],
        shared: &Shared,
        ops: &mut E,
    ) -> usize {
        let psn = Psn::new(header.bth.psn);
        let in_order = psn == self.expected && !self.nak_sent && !self.gap.is_open();
        if !in_order || !self.kept.is_empty() || header.bth.acknowledge {
            return 0;
        }
        // A WRITE of one packet is a message by itself, of which the last bytes are to be visible last. Only a Pagewire that asks
        // for no acknowledgement of it says that more follows.
        if header.bth.opcode.is_only() && !shared.fills_gaps() {
            return 0;
        }
        let executed = self.executor.execute_burst(header, burst, &shared.link, ops);
        self.expected = self.expected.plus(executed as u32);
        executed
    }

    /// Asks for the expected request once more, unless the peer knows already.
    fn ask_again(&mut self, shared: &Shared) {
        if !self.nak_sent {
            self.ask_for_repetition(shared);
        }
    }

    /// Asks for the expected request once more, which has come and could not be taken. The peer may have been asked before: it was
    /// this repetition that could not be taken.
    pub(super) fn ask_for_repetition(&mut self, shared: &Shared) {
        self.nak_sent = true;
        if !matches!(self.outputs.back(), Some(Output::Retry { .. })) {
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
    pub(super) fn refuse_for_now(&mut self, shared: &Shared) {
        self.await_repetition();
        self.retry(Syndrome::ReceiverNotReady { timer: self.min_rnr_timer }, shared);
    }

    /// How many requests are missing from the expected one on; 0: all behind it.
    pub(super) fn missing(&self) -> u32 {
        self.kept.iter().next().map_or(0, |(index, _)| index)
    }

    /// Goes on with requests that were kept; true: the transport operations say wait.
    pub(super) fn resume<E: TransportOps>(&mut self, shared: &mut Shared, ops: &mut E) -> bool {
        while shared.state == State::Alive {
            let Some(kept) = self.kept.take_first() else { return false };
            if self.execute(&kept.header, Payload::Bytes(&kept.bytes), shared, ops) {
                self.kept.put_back(kept);
                return true;
            }
            if self.not_ready {
                return false;
            }
            self.report_due |= !self.kept.is_empty();
        }
        false
    }

    /// Executes the request with the expected PSN; true: the transport operations say wait.
    fn execute<E: TransportOps>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        shared: &mut Shared,
        ops: &mut E,
    ) -> bool {
        let may_read = self.reads < self.max_dest_rd_atomic;
        match self.executor.execute(header, payload, &shared.link, may_read, ops) {
            Ok(answer) => {
                // A NAK that has not gone out is out of date.
                let unsent = self.nak_sent && matches!(self.outputs.back(), Some(Output::Retry { .. }));
                if unsent {
                    self.outputs.pop_back();
                }
                (self.nak_sent, self.not_ready) = (false, false);
                let psns = self.answer(answer, header.bth.acknowledge, shared);
                self.expected = self.expected.plus(psns);
                self.kept.advance(psns);
                self.gap.advance(self.expected);
                if unsent && self.gap.is_open() {
                    // The peer does not know yet that anything was dropped.
                    self.ask_for_repetition(shared);
                }
                false
            }
            Err(Stop::Wait) => true,
            Err(Stop::NotReady) => {
                // What is kept stays: the requester has been told that it is here.
                self.refuse_for_now(shared);
                false
            }
            Err(Stop::Refuse(nak, event)) => {
                self.refuse(self.expected, nak, event, shared);
                false
            }
        }
    }

    /// Queues what an executed request asks for; gives how many PSNs it has.
    fn answer(&mut self, answer: Answer, asked: bool, shared: &Shared) -> u32 {
        let psn = self.expected;
        let message = self.executor.message();
        match answer {
            Answer::Placed => {
                if asked {
                    self.acknowledge(psn);
                }
                1
            }
            Answer::Read { remote, length } => {
                let packets = packets_for(length, shared.link.response_mtu);
                let responses = ReadResponses { psn, packets, remote, length, first: true, message };
                self.outputs.push_back(Output::Read(responses));
                self.reads += 1;
                packets
            }
            Answer::Atomic { original } => {
                self.remember(psn, original);
                self.outputs.push_back(Output::Atomic { psn, original, message });
                self.reads += 1;
                1
            }
        }
    }

    /// Keeps the result of an atomic for repetitions, as many as the peer may have outstanding (section
    /// 9.4.5).
    fn remember(&mut self, psn: Psn, original: u64) {
        if self.atomics.len() >= usize::from(self.max_dest_rd_atomic.max(1)) {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, original));
    }

    /// The result of the latest atomic with this PSN: one from before the PSNs wrapped may still be kept.
    fn remembered(&self, psn: Psn) -> Option<u64> {
        self.atomics.iter().rev().find(|atomic| atomic.0 == psn).map(|atomic| atomic.1)
    }

    /// Queues an acknowledgement of everything up to `psn`; it replaces one that has not gone out.
    fn acknowledge(&mut self, psn: Psn) {
        let ack = Output::Ack { psn, message: self.executor.message() };
        match self.outputs.back_mut() {
            Some(last @ Output::Ack { .. }) => *last = ack,
            _ => self.outputs.push_back(ack),
        }
    }

    /// Queues a NAK of the expected PSN.
    fn retry(&mut self, syndrome: Syndrome, shared: &Shared) {
        debug_assert!(shared.state == State::Alive);
        let message = self.executor.message();
        let nak = Output::Retry { psn: self.expected, syndrome, message };
        match self.outputs.back_mut() {
            // The NAK acknowledges what came before it as well.
            Some(last @ (Output::Ack { .. } | Output::Retry { .. })) => *last = nak,
            _ => self.outputs.push_back(nak),
        }
    }

    /// Queues the last NAK. Nothing that arrives is looked at any more.
    fn refuse(&mut self, psn: Psn, nak: Nak, event: Event, shared: &mut Shared) {
        shared.state = State::Refusing;
        self.kept.clear();
        let message = self.executor.message();
        let refusal = Output::Refusal { psn, nak, message, event };
        match self.outputs.back_mut() {
            Some(last @ (Output::Ack { .. } | Output::Retry { .. })) => *last = refusal,
            _ => self.outputs.push_back(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultHandling, Link, RemoteRights};

    #[test]
    fn a_repeated_atomic_gets_its_own_result_though_its_psn_is_used_again() {
        let mut responder = Responder::new(&RcSettings {
            link: Link { request_mtu: 1024, response_mtu: 1024, lossless: false, initiator_copy: false },
            destination: 1,
            partition: 0xffff,
            receive_psn: 0,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 0,
            remote_rights: RemoteRights::default(),
            fault_handling: FaultHandling::Stash,
        });
        let psn = Psn::new(7);
        responder.remember(psn, 1);
        // 2^24 PSNs later, with no other atomic between.
        responder.remember(psn, 2);
        assert_eq!(responder.remembered(psn), Some(2));
        responder.remember(psn.plus(1), 3);
        responder.remember(psn.plus(2), 4);
        assert_eq!([0, 1, 2].map(|n| responder.remembered(psn.plus(n))), [None, Some(3), Some(4)]);
    }
}

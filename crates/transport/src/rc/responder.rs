//! The responder: PSN order, duplicates, and what goes back to the peer. Executing a request is
//! `execute`'s.

use std::collections::VecDeque;

use pagewire_wire::{Aeth, Header, Nak, Opcode, Operation as Code, Own, Received, SelectiveAck, Syndrome};

use super::execute::{Answer, Executor, Stop, refusal};
use super::gap::Gap;
use super::{RcSettings, RcUpdate, Shared, State, Step};
use crate::stash::Stash;
use crate::{
    Environment, Event, Outcome, Payload, Psn, RemoteAddress, Right, Source, Time, limits, packets_for,
};

/// The credit count that means: credits are not used (InfiniBand specification, volume 1, section
/// 9.7.7.2.1).
const NO_CREDITS: Syndrome = Syndrome::Ack { credits: 31 };

/// Something to send back. They go out in order of PSN.
#[derive(Debug, Clone, Copy)]
enum Output {
    Ack {
        psn: Psn,
        message: u32,
    },
    Read(ReadResponses),
    Atomic {
        psn: Psn,
        original: u64,
        message: u32,
    },
    /// A NAK after which the peer tries again.
    Retry {
        psn: Psn,
        syndrome: Syndrome,
        message: u32,
    },
    /// The last word of this connection.
    Refusal {
        psn: Psn,
        nak: Nak,
        message: u32,
        event: Event,
    },
}

/// The responses of one READ that have not been sent.
#[derive(Debug, Clone, Copy)]
struct ReadResponses {
    psn: Psn,
    /// PSNs left.
    packets: u32,
    remote: RemoteAddress,
    /// Bytes left.
    length: u32,
    first: bool,
    message: u32,
}

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
    pub(super) fn executed_at_once(&mut self, owes: bool) {
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

    /// A request packet; true: the environment says wait.
    pub(super) fn request<E: Environment>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        shared: &mut Shared,
        environment: &mut E,
    ) -> bool {
        let psn = Psn::new(header.bth.psn);
        if psn == self.expected {
            if self.kept.has(0) {
                // It is here already and waits for a page.
                shared.counters.duplicates += 1;
                self.hold_due = true;
                return false;
            }
            if self.execute(header, payload, shared, environment) {
                return true;
            }
            // What was kept and has to wait is `drive`'s to repeat: this packet is done.
            self.resume(shared, environment);
            return false;
        }
        if psn.is_before(self.expected) {
            shared.counters.duplicates += 1;
            self.hold_due |= self.kept.has(0) || self.stalled;
            return self.duplicate(header, psn, shared, environment);
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
        if self.gap.look(self.expected, self.nak_sent, now) {
            self.ask_for_repetition(shared);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.gap.deadline()
    }

    /// Request packets that make a row (see [`RcConnection::receive_row`](super::RcConnection::receive_row)), with the first
    /// one's header.
    /// Gives how many were executed: those behind it are to be given to [`request`](Self::request) one by one.
    pub(super) fn request_row<E: Environment>(
        &mut self,
        header: &Header,
        row: &[&[u8]],
        shared: &Shared,
        environment: &mut E,
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
        let executed = self.executor.execute_row(header, row, &shared.link, environment);
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

    /// The same, and the peer is asked to come again later.
    #[cold]
    pub(super) fn refuse_for_now(&mut self, shared: &Shared) {
        self.await_repetition();
        self.retry(Syndrome::ReceiverNotReady { timer: self.min_rnr_timer }, shared);
    }

    /// How many requests are missing from the expected one on; 0: all behind it.
    pub(super) fn missing(&self) -> u32 {
        self.kept.iter().next().map_or(0, |(index, _)| index)
    }

    /// Goes on with requests that were kept; true: the environment says wait.
    pub(super) fn resume<E: Environment>(&mut self, shared: &mut Shared, environment: &mut E) -> bool {
        while shared.state == State::Alive {
            let Some(kept) = self.kept.take_first() else { return false };
            if self.execute(&kept.header, Payload::Bytes(&kept.bytes), shared, environment) {
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

    /// Sends one packet, or a row of `most` packets at most.
    pub(super) fn step<E: Environment>(
        &mut self,
        most: u32,
        shared: &mut Shared,
        environment: &mut E,
    ) -> Step {
        if self.report_due && shared.state == State::Alive {
            return self.report(shared, environment);
        }
        let replay = !self.replays.is_empty();
        let queue = if replay { &mut self.replays } else { &mut self.outputs };
        let alone = queue.len() == 1 && !replay && !shared.link.lossless;
        let Some(mut output) = queue.front().copied() else { return Step::Idle };
        if let (true, Output::Ack { psn, message }) = (alone, &mut output) {
            // What was executed behind it is acknowledged, too.
            (*psn, *message) = (self.expected.previous(), self.executor.message());
        }
        if let (Output::Retry { psn, syndrome: Syndrome::Nak(_), message }, true) = (output, self.after_nak) {
            if let Outcome::Wait = acknowledge(psn.previous(), NO_CREDITS, message, shared, environment) {
                return Step::Wait;
            }
            self.after_nak = false;
            shared.counters.responses_sent += 1;
            return Step::Sent(1);
        }
        let outcome = match output {
            Output::Read(responses) => {
                self.after_nak = false;
                let step = self.respond(responses, replay, most, shared, environment);
                self.stalled = matches!(step, Step::Wait);
                return step;
            }
            Output::Ack { psn, message } => acknowledge(psn, NO_CREDITS, message, shared, environment),
            Output::Retry { psn, syndrome, message } => {
                acknowledge(psn, syndrome, message, shared, environment)
            }
            Output::Refusal { psn, nak, message, .. } => {
                acknowledge(psn, Syndrome::Nak(nak), message, shared, environment)
            }
            Output::Atomic { psn, original, message } => {
                let mut header = shared.header(Code::AtomicAcknowledge, psn);
                header.aeth = Some(Aeth { syndrome: NO_CREDITS, message });
                header.atomic_ack = Some(original);
                environment.transmit(&header, Source::None)
            }
        };
        match outcome {
            Outcome::Wait => return Step::Wait,
            // There are no bytes that could be refused.
            Outcome::Done(()) | Outcome::Denied(_) => {}
        }
        queue.pop_front();
        shared.counters.responses_sent += 1;
        self.after_nak = matches!(output, Output::Retry { .. }) && !shared.link.lossless;
        if self.after_nak {
            self.gap.nak_left();
        }
        match output {
            Output::Atomic { .. } if !replay => self.reads = self.reads.saturating_sub(1),
            Output::Retry { syndrome: Syndrome::Nak(_), .. } => shared.counters.sequence_naks_sent += 1,
            Output::Retry { .. } => shared.counters.rnr_naks_sent += 1,
            Output::Refusal { event, .. } => {
                shared.state = State::Dead;
                environment.event(event);
            }
            _ => {}
        }
        Step::Sent(1)
    }

    /// Executes the request with the expected PSN; true: the environment says wait.
    fn execute<E: Environment>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        shared: &mut Shared,
        environment: &mut E,
    ) -> bool {
        let may_read = self.reads < self.max_dest_rd_atomic;
        match self.executor.execute(header, payload, &shared.link, may_read, environment) {
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

    /// A request that was executed before (section 9.7.5.1.5).
    fn duplicate<E: Environment>(
        &mut self,
        header: &Header,
        psn: Psn,
        shared: &mut Shared,
        environment: &mut E,
    ) -> bool {
        match header.bth.opcode.operation() {
            Some(Code::ReadRequest) => self.duplicate_read(header, psn, shared, environment),
            Some(Code::CompareSwap | Code::FetchAdd) => {
                // Unknown: so old that the peer cannot have meant it; silence.
                if let Some(original) = self.remembered(psn) {
                    let waiting = self.outputs.iter().chain(&self.replays);
                    let queued = waiting
                        .into_iter()
                        .any(|output| matches!(output, Output::Atomic { psn: at, .. } if *at == psn));
                    if !queued {
                        let message = self.executor.message();
                        self.replay(Output::Atomic { psn, original, message }, shared);
                    }
                }
                false
            }
            _ => {
                if self.kept.is_empty() {
                    self.acknowledge(self.expected.previous());
                } else {
                    self.report_due = true;
                }
                false
            }
        }
    }

    fn duplicate_read<E: Environment>(
        &mut self,
        header: &Header,
        psn: Psn,
        shared: &mut Shared,
        environment: &mut E,
    ) -> bool {
        let Some(reth) = header.reth else { return false };
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        let packets = packets_for(reth.length, shared.link.response_mtu);
        let executed = self.expected.since(psn);
        if !self.executor.may_read() || reth.length > limits::MAX_MESSAGE || packets > executed {
            // Not a piece of what was executed.
            shared.counters.dropped += 1;
            return false;
        }
        let on_its_way = self.outputs.iter().chain(&self.replays).any(|output| match output {
            Output::Read(responses) => {
                let offset = psn.since(responses.psn);
                offset < responses.packets && packets <= responses.packets - offset
            }
            _ => false,
        });
        if on_its_way {
            return false;
        }
        if reth.length > 0 {
            match environment.check_remote(remote, reth.length, Right::RemoteRead) {
                Outcome::Done(()) => {}
                Outcome::Wait => return true,
                Outcome::Denied(_) => {
                    // A late copy of a READ that is long done: its region may have gone since. A NAK would
                    // end a connection that is well.
                    shared.counters.dropped += 1;
                    return false;
                }
            }
        }
        let message = self.executor.message();
        let responses = ReadResponses { psn, packets, remote, length: reth.length, first: true, message };
        if self.replay(Output::Read(responses), shared) {
            self.forget_rest(psn, packets);
        }
        false
    }

    /// What is left of a READ's first responses need not go out where a repetition brings all of it: the requester would
    /// have the READ before this side was done with it, and might ask for one more than there may be.
    fn forget_rest(&mut self, psn: Psn, packets: u32) {
        let covered = |output: &Output| match output {
            Output::Read(rest) => {
                let offset = rest.psn.since(psn);
                !rest.first && offset < packets && rest.packets <= packets - offset
            }
            _ => false,
        };
        if self.outputs.front().is_some_and(covered) {
            self.outputs.pop_front();
            self.reads = self.reads.saturating_sub(1);
        }
    }

    /// Queues the answer to a repeated request. False: there is no room; the peer will ask again.
    fn replay(&mut self, output: Output, shared: &Shared) -> bool {
        // A selective peer asks for every gap in the responses to one request by itself.
        let gaps = if shared.fills_gaps() { limits::LOSSY_SPAN as usize } else { 0 };
        let room = self.replays.len() <= usize::from(self.max_dest_rd_atomic).max(gaps);
        if room {
            self.replays.push_back(output);
        }
        room
    }

    /// Sends the next packet of a READ's responses, or a row of those between the first and the last.
    fn respond<E: Environment>(
        &mut self,
        responses: ReadResponses,
        replay: bool,
        most: u32,
        shared: &mut Shared,
        environment: &mut E,
    ) -> Step {
        let ReadResponses { psn, packets, remote, length, first, message } = responses;
        let last = packets == 1;
        let code = match (first, last) {
            (true, true) => Code::ReadResponseOnly,
            (true, false) => Code::ReadResponseFirst,
            (false, false) => Code::ReadResponseMiddle,
            (false, true) => Code::ReadResponseLast,
        };
        let mut header = shared.header(code, psn);
        if first || last {
            header.aeth = Some(Aeth { syndrome: NO_CREDITS, message });
        }
        let piece = length.min(shared.link.response_mtu);
        let source = if piece == 0 { Source::None } else { Source::Remote { remote, length: piece } };
        let row = if first || shared.link.lossless { 0 } else { (packets - 1).min(most) };
        if row > 1 {
            let sent = environment.transmit_row(&header, source, row).min(row);
            if sent > 0 {
                shared.counters.responses_sent += u64::from(sent);
                self.responded(&responses, sent, piece * sent, replay);
                return Step::Sent(sent);
            }
        }
        match environment.transmit(&header, source) {
            Outcome::Wait => return Step::Wait,
            Outcome::Denied(_) if replay => {
                // As in `duplicate_read`.
                self.replays.pop_front();
                shared.counters.dropped += 1;
                return Step::Sent(1);
            }
            Outcome::Denied(denial) => {
                // The region has gone since the request was checked: no response behind this one can be.
                self.outputs.clear();
                self.replays.clear();
                let (nak, event) = refusal(denial);
                self.refuse(psn, nak, event, shared);
                return Step::Sent(1);
            }
            Outcome::Done(()) => {}
        }
        shared.counters.responses_sent += 1;
        self.responded(&responses, 1, piece, replay);
        Step::Sent(1)
    }

    /// So many packets with so many bytes of the oldest responses have been sent.
    fn responded(&mut self, responses: &ReadResponses, packets: u32, bytes: u32, replay: bool) {
        let queue = if replay { &mut self.replays } else { &mut self.outputs };
        if packets == responses.packets {
            queue.pop_front();
            if !replay {
                self.reads = self.reads.saturating_sub(1);
            }
        } else if let Some(Output::Read(rest)) = queue.front_mut() {
            let address = responses.remote.address.wrapping_add(u64::from(bytes));
            *rest = ReadResponses {
                psn: responses.psn.plus(packets),
                packets: responses.packets - packets,
                remote: RemoteAddress { address, key: responses.remote.key },
                length: responses.length - bytes,
                first: false,
                message: responses.message,
            };
        }
    }

    /// Tells a Pagewire what has arrived beyond the gap.
    fn report<E: Environment>(&mut self, shared: &mut Shared, environment: &mut E) -> Step {
        let mut received = Received::new();
        for (index, kept) in self.kept.iter() {
            // A READ request stands for the PSNs of its responses. The expected one, where it waits
            // for a page, is not told: it has not been executed.
            let psns = match (kept.header.bth.opcode.operation(), kept.header.reth) {
                (Some(Code::ReadRequest), Some(reth)) => packets_for(reth.length, shared.link.response_mtu),
                _ => 1,
            };
            for psn in (index..index.saturating_add(psns)).filter(|&psn| psn > 0).take(Received::CAPACITY) {
                received.insert(psn as usize - 1);
            }
        }
        let message = self.executor.message();
        let report = SelectiveAck { expected: self.expected.value(), message, received };
        let header = shared.header_of(Opcode::SELECTIVE_ACK, self.expected);
        if let Outcome::Wait = environment.transmit_control(&header, &Own::SelectiveAck(report)) {
            return Step::Wait;
        }
        shared.counters.responses_sent += 1;
        self.report_due = false;
        Step::Sent(1)
    }
}

fn acknowledge<E: Environment>(
    psn: Psn,
    syndrome: Syndrome,
    message: u32,
    shared: &Shared,
    environment: &mut E,
) -> Outcome<()> {
    environment.transmit(&acknowledgement(psn, syndrome, message, shared), Source::None)
}

fn acknowledgement(psn: Psn, syndrome: Syndrome, message: u32, shared: &Shared) -> Header {
    Header { aeth: Some(Aeth { syndrome, message }), ..shared.header(Code::Acknowledge, psn) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultHandling, Link, RemoteRights};

    #[test]
    fn a_repeated_atomic_gets_its_own_result_though_its_psn_is_used_again() {
        let mut responder = Responder::new(&RcSettings {
            link: Link { request_mtu: 1024, response_mtu: 1024, lossless: false, direct: false },
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

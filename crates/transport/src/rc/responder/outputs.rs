//! What the responder sends back: acknowledgements, NAKs, results of atomics, responses to FLUSHes and to READs, in order of PSN.

use pagewire_wire::{
    Aeth, Nak, Opcode, PacketHeader, PacketOperation as Code, Received, SelectiveAck, Syndrome, VendorPacket,
};

use super::Responder;
use crate::rc::execute::{AtomicResult, refusal};
use crate::rc::{RcShared, RcState, RefusalScope, SendStep};
use crate::{
    Outcome, PacketSink, PayloadSource, Psn, QpEvent, ReadPart, RemoteAddress, WorkQueues, packets_for,
};

/// The credit count that means: credits are not used (InfiniBand specification, volume 1, section
/// 9.7.7.2.1).
pub(super) const NO_CREDITS: Syndrome = Syndrome::Ack { credits: 31 };

/// Something to send back. They go out in order of PSN.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResponderOutput {
    Ack {
        psn: Psn,
        message: u32,
    },
    Read(ReadResponses),
    Atomic {
        psn: Psn,
        result: AtomicResult,
        message: u32,
    },
    /// The response to a FLUSH.
    Flushed {
        psn: Psn,
        message: u32,
    },
    /// A NAK after which the peer tries again.
    Retry {
        psn: Psn,
        syndrome: Syndrome,
        message: u32,
    },
    /// What a READ that was executed before, and is asked for again, gets where its region has gone.
    Denied {
        psn: Psn,
        nak: Nak,
        message: u32,
    },
    /// The last word of this connection, or until the requester goes on.
    Refusal {
        psn: Psn,
        nak: Nak,
        message: u32,
        event: QpEvent,
    },
}

impl ResponderOutput {
    /// The first PSN that it answers.
    pub(super) fn psn(&self) -> Psn {
        match *self {
            ResponderOutput::Read(ReadResponses { psn, .. })
            | ResponderOutput::Ack { psn, .. }
            | ResponderOutput::Atomic { psn, .. }
            | ResponderOutput::Flushed { psn, .. }
            | ResponderOutput::Retry { psn, .. }
            | ResponderOutput::Denied { psn, .. }
            | ResponderOutput::Refusal { psn, .. } => psn,
        }
    }
}

/// The responses of one READ that have not been sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadResponses {
    pub(super) psn: Psn,
    /// PSNs left.
    pub(super) packets: u32,
    pub(super) remote: RemoteAddress,
    /// Of XRC: the shared receive queue that the READ names; else 0.
    pub(super) shared_queue: u32,
    /// Bytes left.
    pub(super) length: u32,
    pub(super) first: bool,
    pub(super) message: u32,
    /// The READ that they are responses to, or to a piece of which.
    pub(super) of: ExecutedRead,
}

/// A READ that was executed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutedRead {
    pub(super) psn: Psn,
    /// Of the requests that have come.
    pub(super) packets: u32,
    /// Bytes, of all its requests.
    pub(super) length: u32,
    /// Bytes that requests to come ask for.
    pub(super) to_come: u32,
}

impl ExecutedRead {
    /// Whether so many responses from `psn` on are all of this READ.
    pub(super) fn has(&self, psn: Psn, packets: u32) -> bool {
        let offset = psn.since(self.psn);
        offset < self.packets && packets <= self.packets - offset
    }
}

impl Responder {
    /// Sends a burst of `most` packets at most.
    pub(in crate::rc) fn step<E: PacketSink + WorkQueues>(
        &mut self,
        most: u32,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> SendStep {
        if self.report_due && shared.state == RcState::Alive {
            return self.report(shared, ops);
        }
        let replay = !self.replays.is_empty();
        if !replay && self.is_stopped() {
            return self.repeat_refusal(shared, ops);
        }
        let queue = if replay { &mut self.replays } else { &mut self.outputs };
        let alone = queue.len() == 1 && !replay && !shared.link.lossless;
        let Some(mut output) = queue.front().copied() else { return SendStep::Idle };
        if let (true, ResponderOutput::Ack { psn, message }) = (alone, &mut output) {
            // What was executed behind it is acknowledged, too.
            (*psn, *message) = (self.expected.previous(), self.executor.message());
        }
        if let (ResponderOutput::Retry { psn, syndrome: Syndrome::Nak(_), message }, true) =
            (output, self.after_nak)
        {
            if let Outcome::Wait(_) = acknowledge(psn.previous(), NO_CREDITS, message, shared, ops) {
                return SendStep::Wait;
            }
            self.after_nak = false;
            shared.counters.responses_sent += 1;
            return SendStep::Sent(1);
        }
        let outcome = match output {
            ResponderOutput::Read(responses) => {
                self.after_nak = false;
                let step = self.respond(responses, replay, most, shared, ops);
                self.stalled = matches!(step, SendStep::Wait);
                return step;
            }
            ResponderOutput::Ack { psn, message } => acknowledge(psn, NO_CREDITS, message, shared, ops),
            ResponderOutput::Retry { psn, syndrome, message } => {
                acknowledge(psn, syndrome, message, shared, ops)
            }
            ResponderOutput::Denied { psn, nak, message }
            | ResponderOutput::Refusal { psn, nak, message, .. } => {
                acknowledge(psn, Syndrome::Nak(nak), message, shared, ops)
            }
            ResponderOutput::Atomic { psn, result: AtomicResult::Original(original), message } => {
                let header = response(Code::AtomicAcknowledge, psn, message, shared);
                let header = PacketHeader { atomic_ack: Some(original), ..header };
                ops.transmit(&header, PayloadSource::None, 1)
            }
            // Annex A19: a response without bytes.
            ResponderOutput::Atomic { psn, result: AtomicResult::Written, message }
            | ResponderOutput::Flushed { psn, message } => {
                let header = response(Code::ReadResponseOnly, psn, message, shared);
                ops.transmit(&header, PayloadSource::None, 1)
            }
        };
        match outcome {
            Outcome::Wait(_) => return SendStep::Wait,
            // There are no bytes that could be refused.
            Outcome::Done(_) | Outcome::Denied(_) => {}
        }
        queue.pop_front();
        shared.counters.responses_sent += 1;
        self.after_nak = matches!(output, ResponderOutput::Retry { .. }) && !shared.link.lossless;
        if self.after_nak {
            self.gap.nak_left();
        }
        match output {
            ResponderOutput::Atomic { .. } if !replay => self.reads = self.reads.saturating_sub(1),
            ResponderOutput::Retry { syndrome: Syndrome::Nak(_), .. } => {
                shared.counters.sequence_naks_sent += 1
            }
            ResponderOutput::Retry { .. } => shared.counters.rnr_naks_sent += 1,
            ResponderOutput::Refusal { event, .. } => self.refusal_left(event, shared, ops),
            _ => {}
        }
        SendStep::Sent(1)
    }

    /// The refusal has left for the first time.
    #[cold]
    fn refusal_left<E: WorkQueues>(&mut self, event: QpEvent, shared: &mut RcShared, ops: &mut E) {
        if let Some(refused) = &mut self.refused {
            refused.is_sent = true;
        }
        if shared.refusal == RefusalScope::Connection {
            shared.state = RcState::Dead;
            ops.event(event);
        }
    }

    /// Sends the refusal again, if somebody has asked for it.
    #[cold]
    fn repeat_refusal<E: PacketSink>(&mut self, shared: &mut RcShared, ops: &mut E) -> SendStep {
        let Some(refused) = self.refusal_to_repeat() else { return SendStep::Idle };
        let message = self.executor.message();
        if let Outcome::Wait(_) = acknowledge(refused.psn, Syndrome::Nak(refused.nak), message, shared, ops) {
            return SendStep::Wait;
        }
        self.refusal_due = false;
        shared.counters.responses_sent += 1;
        SendStep::Sent(1)
    }

    /// Sends the next packets of a READ's responses: a burst of those between the first and the last, or one.
    fn respond<E: PacketSink>(
        &mut self,
        responses: ReadResponses,
        replay: bool,
        most: u32,
        shared: &mut RcShared,
        ops: &mut E,
    ) -> SendStep {
        let ReadResponses { psn, packets, remote, shared_queue, length, first, message, of } = responses;
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
        let source = if piece == 0 {
            PayloadSource::None
        } else {
            let before = psn.since(of.psn) * shared.link.response_mtu;
            let after = of.length.saturating_sub(before.saturating_add(piece));
            let repeated = psn.is_before(self.answered);
            PayloadSource::Remote {
                remote,
                length: piece,
                part: ReadPart { read: of.psn, before, after, repeated, shared_queue },
            }
        };
        let burst = if first || shared.link.lossless { 1 } else { (packets - 1).min(most).max(1) };
        let sent = match ops.transmit(&header, source, burst) {
            Outcome::Done(sent) => sent,
            Outcome::Wait(_) => return SendStep::Wait,
            Outcome::Denied(denial) if replay => {
                self.replays.pop_front();
                self.deny_again(psn, denial, shared);
                return SendStep::Sent(1);
            }
            Outcome::Denied(denial) => {
                // The region has gone since the request was checked: no response behind this one can be.
                let (nak, event) = refusal(denial);
                self.refuse_read(psn, nak, event, shared);
                return SendStep::Sent(1);
            }
        };
        shared.counters.responses_sent += u64::from(sent);
        self.answered = self.answered.later(psn.plus(sent));
        self.responded(&responses, sent, piece * sent, replay);
        SendStep::Sent(sent)
    }

    /// So many packets with so many bytes of the oldest responses have been sent.
    fn responded(&mut self, responses: &ReadResponses, packets: u32, bytes: u32, replay: bool) {
        let queue = if replay { &mut self.replays } else { &mut self.outputs };
        if packets == responses.packets {
            queue.pop_front();
            if !replay {
                self.reads = self.reads.saturating_sub(1);
            }
        } else if let Some(ResponderOutput::Read(rest)) = queue.front_mut() {
            let address = responses.remote.address.wrapping_add(u64::from(bytes));
            *rest = ReadResponses {
                psn: responses.psn.plus(packets),
                packets: responses.packets - packets,
                remote: RemoteAddress { address, key: responses.remote.key },
                shared_queue: responses.shared_queue,
                length: responses.length - bytes,
                first: false,
                message: responses.message,
                of: responses.of,
            };
        }
    }

    /// Tells a Pagewire what has arrived beyond the gap.
    fn report<E: PacketSink>(&mut self, shared: &mut RcShared, ops: &mut E) -> SendStep {
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
        if let Outcome::Wait(_) = ops.transmit_control(&header, &VendorPacket::SelectiveAck(report)) {
            return SendStep::Wait;
        }
        shared.counters.responses_sent += 1;
        self.report_due = false;
        SendStep::Sent(1)
    }
}

/// A response that acknowledges what was before it.
fn response(code: Code, psn: Psn, message: u32, shared: &RcShared) -> PacketHeader {
    PacketHeader { aeth: Some(Aeth { syndrome: NO_CREDITS, message }), ..shared.header(code, psn) }
}

fn acknowledge<E: PacketSink>(
    psn: Psn,
    syndrome: Syndrome,
    message: u32,
    shared: &RcShared,
    ops: &mut E,
) -> Outcome<u32> {
    ops.transmit(&acknowledgement(psn, syndrome, message, shared), PayloadSource::None, 1)
}

pub(super) fn acknowledgement(psn: Psn, syndrome: Syndrome, message: u32, shared: &RcShared) -> PacketHeader {
    PacketHeader { aeth: Some(Aeth { syndrome, message }), ..shared.header(Code::Acknowledge, psn) }
}

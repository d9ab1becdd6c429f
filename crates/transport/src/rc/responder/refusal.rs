//! What the responder does once it has refused a request: it executes nothing from there on, and repeats the refusal to whoever asks again.
//!
//! A refusal ends the connection (InfiniBand specification, volume 1, section 9.9.3), or one request, where both ends have agreed on that
//! ([`RefusalScope`]). Then the requester says by SKIP where the stream goes on. SKIP names the PSN at which this side has stopped: one that
//! is late, or comes twice, names another one and changes nothing.

use pagewire_wire::{Nak, PacketHeader, PacketOperation as Code, Skip, Syndrome};

use super::Responder;
use super::outputs::{ResponderOutput, acknowledgement};
use crate::rc::{RcShared, RcState, RefusalScope};
use crate::{Disposition, MemoryAccess, Psn, QpEvent, WorkQueues, limits};

/// A request that was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    pub(super) psn: Psn,
    pub(super) nak: Nak,
    /// The NAK has left once.
    pub(super) is_sent: bool,
}

impl Responder {
    /// Queues the NAK of a request that is not executed. What comes behind it is not executed either.
    #[cold]
    pub(super) fn refuse(&mut self, psn: Psn, nak: Nak, event: QpEvent, shared: &mut RcShared) {
        self.note_refusal(psn, nak, shared);
        let message = self.executor.message();
        self.queue_nak(ResponderOutput::Refusal { psn, nak, message, event });
    }

    /// Queues the NAK of a READ that was taken, and whose next response cannot be had, in the place of its responses. Requests behind it may
    /// have been executed: their answers wait for SKIP.
    #[cold]
    pub(super) fn refuse_read(&mut self, psn: Psn, nak: Nak, event: QpEvent, shared: &mut RcShared) {
        if shared.refusal == RefusalScope::Connection {
            self.replays.clear();
            self.outputs.clear();
            return self.refuse(psn, nak, event, shared);
        }
        self.outputs.pop_front();
        self.note_refusal(psn, nak, shared);
        let message = self.executor.message();
        self.outputs.push_front(ResponderOutput::Refusal { psn, nak, message, event });
    }

    fn note_refusal(&mut self, psn: Psn, nak: Nak, shared: &mut RcShared) {
        if shared.refusal == RefusalScope::Connection {
            shared.state = RcState::Refusing;
        }
        self.kept.clear();
        self.report_due = false;
        self.refused = Some(Refused { psn, nak, is_sent: false });
        self.refusal_due = false;
    }

    /// Whether a refusal has left, and nothing behind it is answered.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.refused.is_some_and(|refused| refused.is_sent)
    }

    /// Whether it has refused a request, and the requester has not gone on.
    #[inline]
    pub(in crate::rc) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// The PSN that it has refused, and why.
    pub(in crate::rc) fn refusal(&self) -> Option<(Psn, Nak)> {
        self.refused.map(|refused| (refused.psn, refused.nak))
    }

    /// The NAK of what it has refused.
    pub(in crate::rc) fn refusal_header(&self, shared: &RcShared) -> Option<PacketHeader> {
        let Refused { psn, nak, .. } = self.refused?;
        Some(acknowledgement(psn, Syndrome::Nak(nak), self.executor.message(), shared))
    }

    /// The refusal, if somebody has asked for it again.
    pub(super) fn refusal_to_repeat(&self) -> Option<Refused> {
        self.refused.filter(|_| self.refusal_due)
    }

    /// A request that comes while one is refused. READs and atomics before that one are answered again; all others ask for the refusal,
    /// which acknowledges what was before it.
    #[cold]
    pub(super) fn request_after_refusal<E: MemoryAccess + WorkQueues>(
        &mut self,
        header: &PacketHeader,
        refused: Refused,
        shared: &RcShared,
        ops: &mut E,
    ) -> Disposition {
        // The refusal may wait behind the response to a READ.
        self.hold_due |= self.stalled;
        let psn = Psn::new(header.bth.psn);
        let awaits_response = header.bth.opcode.operation().is_some_and(Code::has_responses);
        if awaits_response && psn.is_before(refused.psn) {
            return self.duplicate(header, psn, shared, ops);
        }
        // What was under way before the refusal could arrive does not ask for it. A link that loses nothing has not lost it.
        let asks = header.bth.acknowledge || awaits_response;
        self.refusal_due |= asks && refused.is_sent && !shared.link.lossless;
        Disposition::Duplicate
    }

    /// The requester goes on behind a request that was not executed. False: it means another one.
    pub(in crate::rc) fn skip(&mut self, skip: &Skip, shared: &RcShared) -> bool {
        let (from, to) = (Psn::new(skip.refused), Psn::new(skip.resume));
        let stop = self.refused.map_or(self.expected, |refused| refused.psn);
        let span = to.since(from);
        let permitted = 1..=limits::MAX_OUTSTANDING_PSNS;
        if shared.refusal == RefusalScope::Connection || from != stop || !permitted.contains(&span) {
            return false;
        }
        let is_skipped = |psn: Psn| psn.since(from) < span;
        // Responses to a READ that is over, in several requests.
        self.outputs.retain(|output| match output {
            ResponderOutput::Refusal { .. } => false,
            other => !is_skipped(other.psn()),
        });
        self.executed_reads.retain(|read| !is_skipped(read.psn));
        let answers = |output: &&ResponderOutput| {
            matches!(output, ResponderOutput::Read(_) | ResponderOutput::Atomic { .. })
        };
        self.reads = self.outputs.iter().filter(answers).count() as u8;
        if self.expected.is_before(to) {
            self.kept.advance(to.since(self.expected));
            self.expected = to;
            self.gap.advance(to);
            self.executor.placer.forget_message();
            (self.nak_sent, self.not_ready) = (false, false);
        }
        (self.refused, self.refusal_due) = (None, false);
        true
    }
}

//! SENDs of one packet where nothing is before them: the caller moves them itself, and tells the state machines only that they
//! were. What is between posting and executing otherwise, queues, windows and repetitions, has nothing to do there. Over a
//! link that loses packets SENDs leave so only while nothing else is under way; what is lost is repeated like anything else.
//!
//! At each end the caller gets a token, and uses it once it has moved the SEND. Without that nothing was done: it may always leave the
//! SEND to [`RcConnection::post`] and [`RcConnection::receive`], which come to the same.

use pagewire_wire::{Bth, Opcode, PacketHeader, PacketOperation as Code, Transport};

use super::{RcConnection, RcState};
use crate::{Psn, Time, WorkId, WorkOperation, WorkRequest, partitions_match, plain_bth};

/// All that the headers tell of a SEND of one packet that asks for an acknowledgement and invalidates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendOnlyRequest {
    /// The queue pair that it is for, 24 bits.
    pub destination: u32,
    /// 24 bits.
    pub psn: u32,
    /// P_Key.
    pub partition: u16,
    /// The receiver asks for an event.
    pub solicited: bool,
    /// Immediate data, as the big-endian value on the wire reads.
    pub immediate: Option<u32>,
}

impl SendOnlyRequest {
    /// That of a packet, if it is one.
    pub fn of(header: &PacketHeader) -> Option<Self> {
        let bth = &header.bth;
        let is_whole = bth.opcode.transport() == Transport::Rc
            && bth.acknowledge
            && matches!(bth.opcode.operation(), Some(Code::SendOnly | Code::SendOnlyImmediate));
        is_whole.then_some(SendOnlyRequest {
            destination: bth.destination,
            psn: bth.psn,
            partition: bth.partition,
            solicited: bth.solicited,
            immediate: header.immediate,
        })
    }

    /// The headers of the packet that it is.
    pub fn header(&self) -> PacketHeader {
        let code = if self.immediate.is_some() { Code::SendOnlyImmediate } else { Code::SendOnly };
        let psn = Psn::new(self.psn);
        let bth = plain_bth(Opcode::new(Transport::Rc, code), self.destination, self.partition, psn);
        let bth = Bth { acknowledge: true, solicited: self.solicited, ..bth };
        PacketHeader { immediate: self.immediate, ..PacketHeader::new(bth) }
    }
}

/// The one packet of a SEND may leave at its post.
#[must_use]
pub struct FastSend<'c>(&'c mut RcConnection);

impl FastSend<'_> {
    /// The acknowledgement that is owed, if nothing else is: over a link that loses packets it leaves behind the SEND.
    pub fn take_owed(&mut self, now: Time) -> Option<PacketHeader> {
        self.0.take_owed_with_answer(now)
    }

    /// The SEND has left. From now on it is as if it had been posted and driven. Gives when the connection wants to be driven.
    #[inline]
    pub fn sent(self, now: Time, work: &WorkRequest) -> Option<Time> {
        self.0.requester.sent_fast(now, work, &mut self.0.shared);
        self.0.deadline()
    }
}

/// A SEND may be executed as it is taken from the link.
#[must_use]
pub struct FastExecution<'c>(&'c mut RcConnection);

impl FastExecution<'_> {
    /// Its bytes are placed. True: its acknowledgement is owed, and sent by [`RcConnection::progress`] or behind a SEND. False: it is the
    /// caller's to tell.
    #[inline]
    pub fn executed(self) -> bool {
        let owes = !self.0.shared.link.lossless;
        self.0.shared.counters.packets_received += 1;
        self.0.shared.counters.responses_sent += u64::from(!owes);
        self.0.responder.executed_fast(owes);
        owes
    }
}

impl RcConnection {
    /// The one packet of a SEND that is posted now, if it may leave at once: all that was posted before it has left, and its
    /// turn has come.
    #[inline(always)] // Part of each short SEND.
    pub fn try_send_fast(&mut self, work: &WorkRequest) -> Option<(SendOnlyRequest, FastSend<'_>)> {
        let WorkOperation::Send { immediate, invalidate: None } = work.operation else { return None };
        let shared = &self.shared;
        let may = shared.state == RcState::Alive
            && (shared.link.initiator_copy
                || !shared.link.lossless && self.only_acknowledges() && !shared.request_stalled)
            && self.requester.may_send_fast(work, shared);
        let packet = may.then(|| SendOnlyRequest {
            destination: shared.destination,
            psn: self.requester.next.value(),
            partition: shared.partition,
            solicited: work.solicited,
            immediate,
        })?;
        Some((packet, FastSend(self)))
    }

    /// Nothing is to be sent but an acknowledgement, if that.
    fn only_acknowledges(&self) -> bool {
        !self.faults.are_pending() && self.responder.only_acknowledges()
    }

    /// The acknowledgement that is owed, if nothing else is: the caller sends it.
    pub fn take_owed(&mut self) -> Option<PacketHeader> {
        if !self.owes_acknowledgement() {
            return None;
        }
        let header = self.responder.take_owed(&self.shared);
        self.shared.counters.responses_sent += 1;
        Some(header)
    }

    /// Whether a SEND with so many bytes may be executed by the caller now: it is the next, nothing waits before it, and nothing is
    /// to be sent before its acknowledgement.
    #[inline(always)] // Part of each short SEND.
    pub fn try_execute_fast(&mut self, send: &SendOnlyRequest, length: u32) -> Option<FastExecution<'_>> {
        let shared = &self.shared;
        let free = match shared.link.lossless {
            true => shared.link.initiator_copy && self.responder.is_idle(),
            false => length <= shared.link.request_mtu && self.responder.only_acknowledges(),
        };
        let may = free
            && partitions_match(send.partition, shared.partition)
            && shared.state == RcState::Alive
            && !shared.request_stalled
            && self.established
            && self.responder.expects_message(Psn::new(send.psn));
        may.then_some(FastExecution(self))
    }

    /// The peer tells that it has executed the request with a PSN, by other means than a packet or by an acknowledgement that
    /// refuses nothing. The work that this completes, where it is the oldest request and one packet: from now on it is as if
    /// [`acknowledgement`](Self::acknowledgement) had been received. `None`: nothing was done.
    #[inline]
    pub fn acknowledged_fast(&mut self, now: Time, psn: u32) -> Option<WorkId> {
        let link = &self.shared.link;
        let may = self.shared.state == RcState::Alive && (link.initiator_copy || !link.lossless);
        let id = may.then(|| self.requester.acknowledged_fast(now, Psn::new(psn), &self.shared)).flatten()?;
        self.shared.counters.packets_received += 1;
        Some(id)
    }

    /// Gives the acknowledgement of the request with this PSN to the caller, who tells the peer by other means than a packet.
    /// False: it is not executed, or something else is to be sent before; [`progress`](Self::progress) sends what there is.
    pub fn take_acknowledgement(&mut self, psn: u32) -> bool {
        // What comes by other means is taken for an acknowledgement of RC.
        let taken = self.shared.state == RcState::Alive
            && !self.shared.is_xrc
            && self.responder.take_acknowledgement(Psn::new(psn));
        self.shared.counters.responses_sent += u64::from(taken);
        taken
    }

    /// The acknowledgement of the request with a PSN, for [`receive`](Self::receive) of the connection that sent it; see
    /// [`take_acknowledgement`](Self::take_acknowledgement). Unlike one that the peer has sent in a packet, which has an AETH,
    /// it may overtake responses to requests before it.
    pub fn acknowledgement(queue_pair: u32, psn: u32) -> PacketHeader {
        PacketHeader::new(Bth::new(Opcode::new(Transport::Rc, Code::Acknowledge), queue_pair, psn))
    }

    /// Whether [`progress`](Self::progress) has nothing to do before something is posted or received, or is due.
    pub fn is_idle(&self) -> bool {
        self.shared.state == RcState::Alive
            && !self.faults.are_pending()
            && self.requester.has_sent_everything()
            && self.responder.is_idle()
    }
}

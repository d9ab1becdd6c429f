//! Executing requests in order: what a SEND, WRITE, READ, atomic or FLUSH does at the responder, and why it
//! is refused (InfiniBand specification, volume 1, sections 9.7.4 and 9.7.5.2).

use pagewire_wire::{Nak, PacketHeader, PacketOperation as Code};

use super::RemoteRights;
use crate::message::{MessageKind, MessagePosition, part_of};
use crate::placing::{self, IncomingMessage, Placer, done};
use crate::{
    AtomicRequest, Denial, DropCause, ExecutedOperation, FlushRequest, Link, MemoryAccess, Outcome, Payload,
    QpEvent, Reason, RelayedMessage, RemoteAddress, Right, WorkQueues, limits,
};

/// What an executed request packet asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum RequestAnswer {
    /// The bytes of so many packets are in place: an acknowledgement, if it was asked for.
    Placed(u32),
    /// READ responses. Requests behind it ask for `after` bytes more of the same READ.
    /// `shared_queue`: of XRC, the shared receive queue that it names, which never has the number 0.
    Read { remote: RemoteAddress, length: u32, after: u32, shared_queue: u32 },
    /// An atomic response.
    Atomic(AtomicResult),
    /// A response without bytes, to a FLUSH.
    Flushed,
}

/// What is remembered of an atomic, and told to whoever repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtomicResult {
    /// The value that was there.
    Original(u64),
    /// Of an atomic WRITE: it was made.
    Written,
}

/// What an executor is told of READs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reads {
    /// Another READ or atomic may be outstanding.
    pub(super) may_read: bool,
    /// Bytes that a request has to ask for and to leave if it goes on with the READ of the one before.
    pub(super) to_come: u32,
}

/// Why a request packet was not executed.
#[derive(Debug, Clone, Copy)]
pub(super) enum ExecutionStop {
    /// The transport operations say wait; what was done so far is remembered.
    Wait(Reason),
    /// There is no receive.
    NotReady,
    /// Its bytes will never be there, because of its sender.
    Dropped(DropCause),
    /// The request is wrong: NAK, event, end.
    Refuse(Nak, QpEvent),
}

impl ExecutionStop {
    const INVALID: ExecutionStop = ExecutionStop::Refuse(Nak::InvalidRequest, QpEvent::RequestError);
}

impl From<placing::PlacementStop> for ExecutionStop {
    fn from(stop: placing::PlacementStop) -> ExecutionStop {
        match stop {
            placing::PlacementStop::Wait(reason) => ExecutionStop::Wait(reason),
            placing::PlacementStop::NotReady => ExecutionStop::NotReady,
            placing::PlacementStop::Invalid => ExecutionStop::INVALID,
            placing::PlacementStop::Denied(Denial::SenderGone) => {
                ExecutionStop::Dropped(DropCause::SenderGone)
            }
            placing::PlacementStop::Denied(Denial::SenderUnreadable) => {
                ExecutionStop::Dropped(DropCause::SenderUnreadable)
            }
            placing::PlacementStop::Denied(denial) | placing::PlacementStop::ReceiveFailed(denial) => {
                let (nak, event) = refusal(denial);
                ExecutionStop::Refuse(nak, event)
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct RequestExecutor {
    pub(super) placer: Placer,
    /// Messages completed, 24 bits (MSN, section 9.7.7.1).
    messages: u32,
}

impl RequestExecutor {
    pub(super) fn new(rights: RemoteRights) -> RequestExecutor {
        RequestExecutor { placer: Placer::new(rights), messages: 0 }
    }

    /// The message sequence number to acknowledge with.
    pub(super) fn message(&self) -> u32 {
        self.messages
    }

    /// Executes a packet, and those of its burst that go with it.
    pub(super) fn execute<E: MemoryAccess + WorkQueues>(
        &mut self,
        header: &PacketHeader,
        payload: Payload<'_>,
        link: &Link,
        reads: Reads,
        ops: &mut E,
    ) -> Result<RequestAnswer, ExecutionStop> {
        let Some(code) = header.bth.opcode.operation() else { return Err(ExecutionStop::INVALID) };
        if let Some(number) = header.xrc {
            done(ops.select_shared_queue(number))?;
        }
        match (part_of(code), code) {
            (Some(part), _) if header.xrc.is_some() => self.place_xrc(part, header, payload, link, ops),
            (Some(part), _) => {
                let placed = self.placer.place(part, header, payload, link, ops)?;
                self.count_messages(placed.messages);
                Ok(RequestAnswer::Placed(placed.packets))
            }
            (None, Code::ReadRequest) => self.read(header, payload, (reads, link), ops),
            (None, Code::CompareSwap | Code::FetchAdd) => {
                self.atomic(header, payload, code, reads.may_read, ops)
            }
            (None, Code::AtomicWrite) => self.atomic_write(header, payload, reads.may_read, ops),
            (None, Code::Flush) => self.flush(header, payload, ops),
            // Responses.
            (None, _) => Err(ExecutionStop::INVALID),
        }
    }

    /// Places a packet of a SEND or WRITE by XRC. At the end of the message another process may have to execute it.
    #[inline(never)] // What packets of RC are not to carry.
    fn place_xrc<E: MemoryAccess + WorkQueues>(
        &mut self,
        part: (MessageKind, MessagePosition),
        header: &PacketHeader,
        payload: Payload<'_>,
        link: &Link,
        ops: &mut E,
    ) -> Result<RequestAnswer, ExecutionStop> {
        let before = self.placer.position();
        let placed = self.placer.place(part, header, payload, link, ops)?;
        if placed.messages > 0 {
            let (remote, length) = match (before.message, header.reth) {
                (IncomingMessage::Write { remote, length, .. }, _) => (Some(remote), length),
                (IncomingMessage::Send { offset }, _) => (None, offset + payload.len() as u32),
                (IncomingMessage::None, Some(reth)) => {
                    (Some(RemoteAddress { address: reth.address, key: reth.key }), reth.length)
                }
                (IncomingMessage::None, None) => (None, payload.len() as u32),
            };
            let (immediate, solicited) = (header.immediate, header.bth.solicited);
            let outcome = ops.relay_message(&RelayedMessage { remote, length, immediate, solicited });
            if outcome != Outcome::Done(true) {
                self.placer.go_back_to(before);
                done(outcome)?;
                return Err(ExecutionStop::NotReady);
            }
        }
        self.count_messages(placed.messages);
        Ok(RequestAnswer::Placed(placed.packets))
    }

    fn read<E: MemoryAccess + WorkQueues>(
        &mut self,
        header: &PacketHeader,
        payload: Payload<'_>,
        (reads, link): (Reads, &Link),
        ops: &mut E,
    ) -> Result<RequestAnswer, ExecutionStop> {
        let (IncomingMessage::None, Some(reth)) = (self.placer.message, header.reth) else {
            return Err(ExecutionStop::INVALID);
        };
        let after = header.immediate.unwrap_or(0);
        let is_too_long = reth.length.checked_add(after).is_none_or(|all| all > limits::MAX_MESSAGE);
        // What more of a READ follows begins behind whole packets.
        let is_cut = after > 0 && (reth.length == 0 || reth.length % link.response_mtu != 0);
        if !payload.is_empty() || is_too_long || is_cut || !self.placer.rights.read || !reads.may_read {
            return Err(ExecutionStop::INVALID);
        }
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        if reth.length > 0 {
            // A READ is permitted or refused as a whole.
            let goes_on = reads.to_come > 0 && reads.to_come == reth.length + after;
            let checked = if goes_on { 0 } else { after };
            done(ops.check_remote(remote, reth.length + checked, Right::RemoteRead))?;
        }
        self.finish_message();
        ops.count_executed(ExecutedOperation::Read, u32::from(after == 0), reth.length);
        Ok(RequestAnswer::Read { remote, length: reth.length, after, shared_queue: header.xrc.unwrap_or(0) })
    }

    fn atomic<E: MemoryAccess>(
        &mut self,
        header: &PacketHeader,
        payload: Payload<'_>,
        code: Code,
        may_read: bool,
        ops: &mut E,
    ) -> Result<RequestAnswer, ExecutionStop> {
        let (IncomingMessage::None, Some(atomic)) = (self.placer.message, header.atomic) else {
            return Err(ExecutionStop::INVALID);
        };
        if !payload.is_empty() || !self.placer.rights.atomic || !may_read || atomic.address % 8 != 0 {
            return Err(ExecutionStop::INVALID);
        }
        let remote = RemoteAddress { address: atomic.address, key: atomic.key };
        let operation = if code == Code::CompareSwap {
            AtomicRequest::CompareSwap { compare: atomic.compare, swap: atomic.swap_or_add }
        } else {
            AtomicRequest::FetchAdd { add: atomic.swap_or_add }
        };
        done(ops.check_remote(remote, 8, Right::RemoteAtomic))?;
        let original = done(ops.atomic_remote(remote, operation))?;
        self.finish_message();
        Ok(RequestAnswer::Atomic(AtomicResult::Original(original)))
    }

    /// An atomic WRITE (annex A19): 8 bytes, which appear at once.
    fn atomic_write<E: MemoryAccess>(
        &mut self,
        header: &PacketHeader,
        payload: Payload<'_>,
        may_read: bool,
        ops: &mut E,
    ) -> Result<RequestAnswer, ExecutionStop> {
        let (IncomingMessage::None, Some(reth)) = (self.placer.message, header.reth) else {
            return Err(ExecutionStop::INVALID);
        };
        let is_word = (reth.length, payload.len()) == (8, 8) && reth.address % 8 == 0;
        if !is_word || !self.placer.rights.write || !may_read {
            return Err(ExecutionStop::INVALID);
        }
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        done(ops.check_remote(remote, 8, Right::RemoteWord))?;
        done(ops.write_remote(remote, payload.first(1), 0))?;
        self.finish_message();
        Ok(RequestAnswer::Atomic(AtomicResult::Written))
    }

    /// A FLUSH (annex A19). Any number may be outstanding: one that was executed needs no result to be answered again.
    fn flush<E: MemoryAccess>(
        &mut self,
        header: &PacketHeader,
        payload: Payload<'_>,
        ops: &mut E,
    ) -> Result<RequestAnswer, ExecutionStop> {
        let (IncomingMessage::None, Some(reth), Some(feth)) =
            (self.placer.message, header.reth, header.flush)
        else {
            return Err(ExecutionStop::INVALID);
        };
        let Some(flush) = FlushRequest::of_bits(feth.placement, feth.selectivity) else {
            return Err(ExecutionStop::INVALID);
        };
        let rights = self.placer.rights;
        let is_permitted =
            (rights.flush_global || !flush.global) && (rights.flush_persistent || !flush.persistent);
        let is_too_long = !flush.whole_region && reth.length > limits::MAX_MESSAGE;
        if !payload.is_empty() || !is_permitted || is_too_long {
            return Err(ExecutionStop::INVALID);
        }
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        done(ops.flush_remote(remote, reth.length, flush))?;
        self.finish_message();
        Ok(RequestAnswer::Flushed)
    }

    /// A message is complete.
    pub(super) fn finish_message(&mut self) {
        self.placer.forget_message();
        self.count_messages(1);
    }

    fn count_messages(&mut self, messages: u32) {
        self.messages = (self.messages + messages) & 0xff_ffff;
    }
}

/// The NAK and the event for a refusal.
pub(super) fn refusal(denial: Denial) -> (Nak, QpEvent) {
    match denial {
        Denial::RemoteAccess => (Nak::RemoteAccess, QpEvent::AccessError),
        Denial::InvalidRequest | Denial::LocalLength => (Nak::InvalidRequest, QpEvent::RequestError),
        Denial::Operational | Denial::LocalProtection | Denial::SenderGone | Denial::SenderUnreadable => {
            (Nak::RemoteOperational, QpEvent::RequestError)
        }
    }
}

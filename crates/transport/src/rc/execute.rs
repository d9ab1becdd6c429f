//! Executing requests in order: what a SEND, WRITE, READ or atomic does at the responder, and why it
//! is refused (InfiniBand specification, volume 1, sections 9.7.4 and 9.7.5.2).

use pagewire_wire::{Header, Nak, Operation as Code};

use super::RemoteRights;
use crate::message::{Kind, Place, part_of};
use crate::placing::{self, Message, Placer, done};
use crate::{Atomic, Denial, Event, Link, Outcome, Payload, RemoteAddress, Right, TransportOps, limits};

/// What an executed request packet asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// Its bytes are in place: an acknowledgement, if it was asked for.
    Placed,
    /// READ responses.
    Read { remote: RemoteAddress, length: u32 },
    /// An atomic response.
    Atomic { original: u64 },
}

/// Why a request packet was not executed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    /// The transport operations say wait; what was done so far is remembered.
    Wait,
    /// There is no receive.
    NotReady,
    /// The request is wrong: NAK, event, end.
    Refuse(Nak, Event),
}

impl Stop {
    const INVALID: Stop = Stop::Refuse(Nak::InvalidRequest, Event::RequestError);
}

impl From<placing::Stop> for Stop {
    fn from(stop: placing::Stop) -> Stop {
        match stop {
            placing::Stop::Wait => Stop::Wait,
            placing::Stop::NotReady => Stop::NotReady,
            placing::Stop::Invalid => Stop::INVALID,
            placing::Stop::Denied(denial) | placing::Stop::ReceiveFailed(denial) => {
                let (nak, event) = refusal(denial);
                Stop::Refuse(nak, event)
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Executor {
    placer: Placer,
    /// Messages completed, 24 bits (MSN, section 9.7.7.1).
    messages: u32,
}

impl Executor {
    pub(super) fn new(rights: RemoteRights) -> Executor {
        Executor { placer: Placer::new(rights), messages: 0 }
    }

    pub(super) fn set_rights(&mut self, rights: RemoteRights) {
        self.placer.rights = rights;
    }

    pub(super) fn take_remaining_lengths(&mut self) {
        self.placer.takes_remaining_length = true;
    }

    /// Whether the peer may read at all.
    pub(super) fn may_read(&self) -> bool {
        self.placer.rights.read
    }

    /// The message sequence number to acknowledge with.
    pub(super) fn message(&self) -> u32 {
        self.messages
    }

    /// Whether the last message is complete, and no receive is taken for the next.
    pub(super) fn is_between_messages(&self) -> bool {
        self.placer.is_between_messages()
    }

    /// Executes one packet. `may_read`: another READ or atomic may be outstanding.
    pub(super) fn execute<E: TransportOps>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        link: &Link,
        may_read: bool,
        ops: &mut E,
    ) -> Result<Answer, Stop> {
        let Some(code) = header.bth.opcode.operation() else { return Err(Stop::INVALID) };
        match (part_of(code), code) {
            (Some(part), _) => {
                if self.placer.place(part, header, payload, link, ops)? {
                    self.count_message();
                }
                Ok(Answer::Placed)
            }
            (None, Code::ReadRequest) => self.read(header, payload, may_read, ops),
            (None, Code::CompareSwap | Code::FetchAdd) => self.atomic(header, payload, code, may_read, ops),
            // Responses.
            (None, _) => Err(Stop::INVALID),
        }
    }

    /// Executes packets that make a burst (see [`RcConnection::receive_burst`](super::RcConnection::receive_burst)); gives how many.
    /// What is wrong with the next one, or in its way, is told where it is executed by itself.
    pub(super) fn execute_burst<E: TransportOps>(
        &mut self,
        header: &Header,
        burst: &[&[u8]],
        link: &Link,
        ops: &mut E,
    ) -> usize {
        let mtu = link.request_mtu;
        let part = header.bth.opcode.operation().and_then(part_of);
        if part == Some((Kind::Write, Place::Only)) {
            return self.execute_writes(header, burst, mtu, ops);
        }
        let (offset, most) = match (part, self.placer.message) {
            (Some((Kind::Send, Place::Middle)), Message::Send { offset }) if self.placer.has_receive() => {
                (offset, limits::MAX_MESSAGE)
            }
            (Some((Kind::Write, Place::Middle)), Message::Write { offset, length, .. })
                if self.placer.rights.write =>
            {
                // Something is left for the last one.
                (offset, length.saturating_sub(1))
            }
            _ => return 0,
        };
        let fit = (most.saturating_sub(offset) / mtu.max(1)) as usize;
        let full = burst.iter().take(fit).take_while(|bytes| bytes.len() == mtu as usize).count();
        let burst = &burst[..full];
        if burst.is_empty() {
            return 0;
        }
        let placed = match self.placer.message {
            Message::Write { remote, length, .. } => {
                let address = remote.address.wrapping_add(u64::from(offset));
                let rest = length - offset - burst.len() as u32 * mtu;
                ops.write_remote_burst(RemoteAddress { address, ..remote }, burst, rest)
            }
            _ => ops.place_receive_burst(offset.into(), burst),
        };
        let placed = placed.min(full);
        if let Message::Send { offset } | Message::Write { offset, .. } = &mut self.placer.message {
            *offset += placed as u32 * mtu;
        }
        placed
    }

    /// Executes WRITEs of one packet each, one behind the other in memory.
    fn execute_writes<E: TransportOps>(
        &mut self,
        header: &Header,
        burst: &[&[u8]],
        mtu: u32,
        ops: &mut E,
    ) -> usize {
        let (Some(reth), Some(first)) = (header.reth, burst.first()) else { return 0 };
        let length = first.len() as u32;
        if !(1..=mtu).contains(&length) || !self.placer.takes_remaining_length && reth.length != length {
            return 0;
        }
        if !self.is_between_messages() || !self.placer.rights.write || header.immediate.is_some() {
            return 0;
        }
        let left = (reth.length / length) as usize;
        let whole = burst.iter().take(left).take_while(|bytes| bytes.len() == length as usize).count();
        if whole == 0 {
            return 0;
        }
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        // Nothing is written of a WRITE that reaches beyond its region. Where a row ends a WRITE, the check of the row is enough.
        let rest = reth.length - whole as u32 * length;
        let is_checked =
            rest == 0 || ops.check_remote(remote, reth.length, Right::RemoteWrite) == Outcome::Done(());
        if !is_checked {
            return 0;
        }
        let written = ops.write_remote_burst(remote, &burst[..whole], rest).min(whole);
        self.messages = (self.messages + written as u32) & 0xff_ffff;
        written
    }

    fn read<E: TransportOps>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        may_read: bool,
        ops: &mut E,
    ) -> Result<Answer, Stop> {
        let (Message::None, Some(reth)) = (self.placer.message, header.reth) else {
            return Err(Stop::INVALID);
        };
        if !payload.is_empty() || reth.length > limits::MAX_MESSAGE || !self.placer.rights.read || !may_read {
            return Err(Stop::INVALID);
        }
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        if reth.length > 0 {
            done(ops.check_remote(remote, reth.length, Right::RemoteRead))?;
        }
        self.finish_message();
        Ok(Answer::Read { remote, length: reth.length })
    }

    fn atomic<E: TransportOps>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        code: Code,
        may_read: bool,
        ops: &mut E,
    ) -> Result<Answer, Stop> {
        let (Message::None, Some(atomic)) = (self.placer.message, header.atomic) else {
            return Err(Stop::INVALID);
        };
        if !payload.is_empty() || !self.placer.rights.atomic || !may_read || atomic.address % 8 != 0 {
            return Err(Stop::INVALID);
        }
        let remote = RemoteAddress { address: atomic.address, key: atomic.key };
        let operation = if code == Code::CompareSwap {
            Atomic::CompareSwap { compare: atomic.compare, swap: atomic.swap_or_add }
        } else {
            Atomic::FetchAdd { add: atomic.swap_or_add }
        };
        done(ops.check_remote(remote, 8, Right::RemoteAtomic))?;
        let original = done(ops.atomic_remote(remote, operation))?;
        self.finish_message();
        Ok(Answer::Atomic { original })
    }

    /// A message is complete.
    pub(super) fn finish_message(&mut self) {
        self.placer.forget_message();
        self.count_message();
    }

    fn count_message(&mut self) {
        self.messages = (self.messages + 1) & 0xff_ffff;
    }
}

/// The NAK and the event for a refusal.
pub(super) fn refusal(denial: Denial) -> (Nak, Event) {
    match denial {
        Denial::RemoteAccess => (Nak::RemoteAccess, Event::AccessError),
        Denial::InvalidRequest | Denial::LocalLength => (Nak::InvalidRequest, Event::RequestError),
        Denial::Operational | Denial::LocalProtection => (Nak::RemoteOperational, Event::RequestError),
    }
}

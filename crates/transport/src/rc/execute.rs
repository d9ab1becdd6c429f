//! Executing requests in order: what a SEND, WRITE, READ or atomic does at the responder, and why it
//! is refused (InfiniBand specification, volume 1, sections 9.7.4 and 9.7.5.2).

use pagewire_wire::{Header, Nak, Operation as Code};

use super::RemoteRights;
use crate::message::{Kind, Place, denied_status, part_of};
use crate::{
    Arrival, ArrivalKind, Atomic, Denial, Environment, Event, Link, Outcome, Payload, RemoteAddress, Right,
    Status, limits,
};

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
    /// The environment says wait; what was done so far is remembered.
    Wait,
    /// There is no receive.
    NotReady,
    /// The request is wrong: NAK, event, end.
    Refuse(Nak, Event),
}

impl Stop {
    const INVALID: Stop = Stop::Refuse(Nak::InvalidRequest, Event::RequestError);
}

/// The message that is coming in.
#[derive(Debug, Clone, Copy)]
enum Message {
    None,
    Send { offset: u32 },
    Write { remote: RemoteAddress, offset: u32, length: u32 },
}

#[derive(Debug)]
pub(super) struct Executor {
    rights: RemoteRights,
    message: Message,
    /// A receive was taken and neither completed nor failed.
    begun: bool,
    /// The last bytes of the message are in place, though its packet waits: the message's length.
    placed: Option<u32>,
    /// Messages completed, 24 bits (MSN, section 9.7.7.1).
    messages: u32,
}

impl Executor {
    pub(super) fn new(rights: RemoteRights) -> Executor {
        Executor { rights, message: Message::None, begun: false, placed: None, messages: 0 }
    }

    pub(super) fn set_rights(&mut self, rights: RemoteRights) {
        self.rights = rights;
    }

    /// Whether the peer may read at all.
    pub(super) fn may_read(&self) -> bool {
        self.rights.read
    }

    /// The message sequence number to acknowledge with.
    pub(super) fn message(&self) -> u32 {
        self.messages
    }

    /// Whether the last message is complete, and no receive is taken for the next.
    pub(super) fn is_between_messages(&self) -> bool {
        matches!(self.message, Message::None) && !self.begun && self.placed.is_none()
    }

    /// Executes one packet. `may_read`: another READ or atomic may be outstanding.
    pub(super) fn execute<E: Environment>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        link: &Link,
        may_read: bool,
        environment: &mut E,
    ) -> Result<Answer, Stop> {
        let Some(code) = header.bth.opcode.operation() else { return Err(Stop::INVALID) };
        match (part_of(code), code) {
            (Some((Kind::Send, place)), _) => self.send(header, payload, place, link, environment),
            (Some((Kind::Write, place)), _) => self.write(header, payload, place, link, environment),
            (None, Code::ReadRequest) => self.read(header, payload, may_read, environment),
            (None, Code::CompareSwap | Code::FetchAdd) => {
                self.atomic(header, payload, code, may_read, environment)
            }
            // Responses.
            (None, _) => Err(Stop::INVALID),
        }
    }

    /// Executes packets that make a row (see [`RcConnection::receive_row`](super::RcConnection::receive_row)); gives how many.
    /// What is wrong with the next one, or in its way, is told where it is executed by itself.
    pub(super) fn execute_row<E: Environment>(
        &mut self,
        header: &Header,
        row: &[&[u8]],
        link: &Link,
        environment: &mut E,
    ) -> usize {
        let mtu = link.request_mtu;
        let part = header.bth.opcode.operation().and_then(part_of);
        if part == Some((Kind::Write, Place::Only)) {
            return self.execute_writes(header, row, mtu, environment);
        }
        let (offset, most) = match (part, self.message) {
            (Some((Kind::Send, Place::Middle)), Message::Send { offset }) if self.begun => {
                (offset, limits::MAX_MESSAGE)
            }
            (Some((Kind::Write, Place::Middle)), Message::Write { offset, length, .. })
                if self.rights.write =>
            {
                // Something is left for the last one.
                (offset, length.saturating_sub(1))
            }
            _ => return 0,
        };
        let fit = (most.saturating_sub(offset) / mtu.max(1)) as usize;
        let full = row.iter().take(fit).take_while(|bytes| bytes.len() == mtu as usize).count();
        let row = &row[..full];
        if row.is_empty() {
            return 0;
        }
        let placed = match self.message {
            Message::Write { remote, .. } => {
                let address = remote.address.wrapping_add(u64::from(offset));
                environment.write_remote_row(RemoteAddress { address, ..remote }, row)
            }
            _ => environment.place_receive_row(offset.into(), row),
        };
        let placed = placed.min(full);
        if let Message::Send { offset } | Message::Write { offset, .. } = &mut self.message {
            *offset += placed as u32 * mtu;
        }
        placed
    }

    /// Executes WRITEs of one packet each, one behind the other in memory.
    fn execute_writes<E: Environment>(
        &mut self,
        header: &Header,
        row: &[&[u8]],
        mtu: u32,
        environment: &mut E,
    ) -> usize {
        let Some(reth) = header.reth.filter(|reth| (1..=mtu).contains(&reth.length)) else { return 0 };
        if !self.is_between_messages() || !self.rights.write || header.immediate.is_some() {
            return 0;
        }
        let whole = row.iter().take_while(|bytes| bytes.len() == reth.length as usize).count();
        if whole == 0 {
            return 0;
        }
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        let written = environment.write_remote_row(remote, &row[..whole]).min(whole);
        self.messages = (self.messages + written as u32) & 0xff_ffff;
        written
    }

    fn send<E: Environment>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        place: Place,
        link: &Link,
        environment: &mut E,
    ) -> Result<Answer, Stop> {
        let offset = match (place.is_start(), self.message) {
            (true, Message::None) => 0,
            (false, Message::Send { offset }) => offset,
            _ => return Err(Stop::INVALID),
        };
        let end = message_end(offset, payload, place, link)?;
        let end = self.placed.unwrap_or(end);
        self.begin_receive(environment)?;
        if !payload.is_empty() && self.placed.is_none() {
            match environment.place_receive(offset.into(), payload, place.is_end()) {
                Outcome::Done(()) => {}
                Outcome::Wait => return Err(Stop::Wait),
                Outcome::Denied(denial) => {
                    let status = denied_status(denial);
                    return Err(self.fail_receive(status, denial, environment));
                }
            }
        }
        if !place.is_end() {
            self.message = Message::Send { offset: end };
            return Ok(Answer::Placed);
        }
        if let Some(key) = header.invalidate {
            // Should it have to wait, the bytes are not placed a second time: they are visible.
            self.placed = Some(end);
            match environment.invalidate(key) {
                Outcome::Done(()) => {}
                Outcome::Wait => return Err(Stop::Wait),
                Outcome::Denied(denial) => {
                    return Err(self.fail_receive(Status::RemoteInvalidRequest, denial, environment));
                }
            }
        }
        self.begun = false;
        environment.finish_receive(Arrival {
            kind: ArrivalKind::Send,
            length: end,
            immediate: header.immediate,
            invalidated: header.invalidate,
            solicited: header.bth.solicited,
        });
        self.finish_message();
        Ok(Answer::Placed)
    }

    fn write<E: Environment>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        place: Place,
        link: &Link,
        environment: &mut E,
    ) -> Result<Answer, Stop> {
        let (remote, offset, length) = match (place.is_start(), self.message, header.reth) {
            (true, Message::None, Some(reth)) => {
                (RemoteAddress { address: reth.address, key: reth.key }, 0, reth.length)
            }
            (false, Message::Write { remote, offset, length }, _) => (remote, offset, length),
            _ => return Err(Stop::INVALID),
        };
        if length > limits::MAX_MESSAGE || !self.rights.write {
            return Err(Stop::INVALID);
        }
        let end = message_end(offset, payload, place, link)?;
        if place.is_end() != (end == length) || end > length {
            return Err(Stop::INVALID);
        }
        if place.is_start() && length > 0 {
            done(environment.check_remote(remote, length, Right::RemoteWrite))?;
        }
        if header.immediate.is_some() {
            self.begin_receive(environment)?;
        }
        if !payload.is_empty() {
            let address = remote.address.wrapping_add(u64::from(offset));
            let remote = RemoteAddress { address, key: remote.key };
            done(environment.write_remote(remote, payload, place.is_end()))?;
        }
        if !place.is_end() {
            self.message = Message::Write { remote, offset: end, length };
            return Ok(Answer::Placed);
        }
        if header.immediate.is_some() {
            self.begun = false;
            environment.finish_receive(Arrival {
                kind: ArrivalKind::WriteImmediate,
                length,
                immediate: header.immediate,
                invalidated: None,
                solicited: header.bth.solicited,
            });
        }
        self.finish_message();
        Ok(Answer::Placed)
    }

    fn read<E: Environment>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        may_read: bool,
        environment: &mut E,
    ) -> Result<Answer, Stop> {
        let (Message::None, Some(reth)) = (self.message, header.reth) else { return Err(Stop::INVALID) };
        if !payload.is_empty() || reth.length > limits::MAX_MESSAGE || !self.rights.read || !may_read {
            return Err(Stop::INVALID);
        }
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        if reth.length > 0 {
            done(environment.check_remote(remote, reth.length, Right::RemoteRead))?;
        }
        self.finish_message();
        Ok(Answer::Read { remote, length: reth.length })
    }

    fn atomic<E: Environment>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        code: Code,
        may_read: bool,
        environment: &mut E,
    ) -> Result<Answer, Stop> {
        let (Message::None, Some(atomic)) = (self.message, header.atomic) else { return Err(Stop::INVALID) };
        if !payload.is_empty() || !self.rights.atomic || !may_read || atomic.address % 8 != 0 {
            return Err(Stop::INVALID);
        }
        let remote = RemoteAddress { address: atomic.address, key: atomic.key };
        let operation = if code == Code::CompareSwap {
            Atomic::CompareSwap { compare: atomic.compare, swap: atomic.swap_or_add }
        } else {
            Atomic::FetchAdd { add: atomic.swap_or_add }
        };
        done(environment.check_remote(remote, 8, Right::RemoteAtomic))?;
        let original = done(environment.atomic_remote(remote, operation))?;
        self.finish_message();
        Ok(Answer::Atomic { original })
    }

    /// Takes a receive for the message, once.
    fn begin_receive<E: Environment>(&mut self, environment: &mut E) -> Result<(), Stop> {
        if !self.begun && !environment.begin_receive() {
            return Err(Stop::NotReady);
        }
        self.begun = true;
        Ok(())
    }

    fn fail_receive<E: Environment>(&mut self, status: Status, denial: Denial, environment: &mut E) -> Stop {
        environment.fail_receive(status);
        self.begun = false;
        let (nak, event) = refusal(denial);
        Stop::Refuse(nak, event)
    }

    pub(super) fn finish_message(&mut self) {
        self.message = Message::None;
        self.placed = None;
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

/// Where a message stands after a packet, whose length must suit its place.
fn message_end(offset: u32, payload: Payload<'_>, place: Place, link: &Link) -> Result<u32, Stop> {
    let end = u64::from(offset) + payload.len();
    if !place.suits(payload.len(), link.request_mtu) || end > u64::from(limits::MAX_MESSAGE) {
        return Err(Stop::INVALID);
    }
    Ok(end as u32)
}

fn done<T>(outcome: Outcome<T>) -> Result<T, Stop> {
    match outcome {
        Outcome::Done(value) => Ok(value),
        Outcome::Wait => Err(Stop::Wait),
        Outcome::Denied(denial) => {
            let (nak, event) = refusal(denial);
            Err(Stop::Refuse(nak, event))
        }
    }
}

//! Placing SENDs and WRITEs at a responder, packet by packet, as RC and UC share it. What a refusal means is theirs: a NAK, or
//! silence.

use pagewire_wire::Header;

use crate::message::{Kind, Place, denied_status};
use crate::{
    Arrival, ArrivalKind, Denial, Link, Outcome, Payload, RemoteAddress, RemoteRights, Right, Status,
    TransportOps, limits,
};

/// Why a packet was not placed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// The transport operations say wait; what was done so far is remembered.
    Wait,
    /// There is no receive.
    NotReady,
    /// It does not belong here, or may not be done.
    Invalid,
    /// The memory that the peer named refuses it.
    Denied(Denial),
    /// The receive refuses it, and has failed.
    ReceiveFailed(Denial),
}

/// The message that is coming in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    None,
    Send { offset: u32 },
    Write { remote: RemoteAddress, offset: u32, length: u32 },
}

/// How far the message that is coming in has been placed.
#[derive(Debug)]
pub(crate) struct Placer {
    pub(crate) rights: RemoteRights,
    pub(crate) message: Message,
    /// A receive was taken and neither completed nor failed. It stays for the next message, should its own be forgotten.
    begun: bool,
    /// The last bytes of the message are in place, though its packet waits: the message's length.
    placed: Option<u32>,
    /// The peer is a Pagewire, or may be one: in a WRITE ONLY the length is that of all that is left of the WRITE
    /// (`Capabilities::REMAINING_LENGTH`).
    pub(crate) takes_remaining_length: bool,
}

impl Placer {
    pub(crate) fn new(rights: RemoteRights) -> Placer {
        Placer { rights, message: Message::None, begun: false, placed: None, takes_remaining_length: false }
    }

    /// Whether no message is coming in, and no receive is taken for the next.
    pub(crate) fn is_between_messages(&self) -> bool {
        matches!(self.message, Message::None) && !self.begun && self.placed.is_none()
    }

    /// Whether a receive is taken for the message that is coming in.
    pub(crate) fn has_receive(&self) -> bool {
        self.begun
    }

    /// What was coming in is not gone on with, or has ended.
    pub(crate) fn forget_message(&mut self) {
        self.message = Message::None;
        self.placed = None;
    }

    /// Places one packet; true: its message is complete.
    pub(crate) fn place<E: TransportOps>(
        &mut self,
        (kind, place): (Kind, Place),
        header: &Header,
        payload: Payload<'_>,
        link: &Link,
        ops: &mut E,
    ) -> Result<bool, Stop> {
        match kind {
            Kind::Send => self.send(header, payload, place, link, ops)?,
            Kind::Write => self.write(header, payload, place, link, ops)?,
        }
        if place.is_end() {
            self.forget_message();
        }
        Ok(place.is_end())
    }

    fn send<E: TransportOps>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        place: Place,
        link: &Link,
        ops: &mut E,
    ) -> Result<(), Stop> {
        let offset = match (place.is_start(), self.message) {
            (true, Message::None) => 0,
            (false, Message::Send { offset }) => offset,
            _ => return Err(Stop::Invalid),
        };
        let end = message_end(offset, payload, place, link)?;
        let end = self.placed.unwrap_or(end);
        self.begin_receive(ops)?;
        if !payload.is_empty() && self.placed.is_none() {
            match ops.place_receive(offset.into(), payload, place.is_end()) {
                Outcome::Done(()) => {}
                Outcome::Wait => return Err(Stop::Wait),
                Outcome::Denied(denial) => {
                    return Err(self.fail_receive(denied_status(denial), denial, ops));
                }
            }
        }
        if !place.is_end() {
            self.message = Message::Send { offset: end };
            return Ok(());
        }
        if let Some(key) = header.invalidate {
            // Should it have to wait, the bytes are not placed a second time: they are visible.
            self.placed = Some(end);
            match ops.invalidate(key) {
                Outcome::Done(()) => {}
                Outcome::Wait => return Err(Stop::Wait),
                Outcome::Denied(denial) => {
                    return Err(self.fail_receive(Status::RemoteInvalidRequest, denial, ops));
                }
            }
        }
        self.finish_receive(ArrivalKind::Send, end, header, ops);
        Ok(())
    }

    fn write<E: TransportOps>(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        place: Place,
        link: &Link,
        ops: &mut E,
    ) -> Result<(), Stop> {
        let (remote, offset, length) = match (place.is_start(), self.message, header.reth) {
            (true, Message::None, Some(reth)) => {
                (RemoteAddress { address: reth.address, key: reth.key }, 0, reth.length)
            }
            (false, Message::Write { remote, offset, length }, _) => (remote, offset, length),
            _ => return Err(Stop::Invalid),
        };
        if length > limits::MAX_MESSAGE || !self.rights.write {
            return Err(Stop::Invalid);
        }
        let end = message_end(offset, payload, place, link)?;
        // More is left of the WRITE than this packet has: other packets bring it, each a WRITE ONLY by itself.
        let goes_on =
            place == Place::Only && end < length && self.takes_remaining_length && header.immediate.is_none();
        if !goes_on && (place.is_end() != (end == length) || end > length) {
            return Err(Stop::Invalid);
        }
        if place.is_start() && length > 0 {
            done(ops.check_remote(remote, length, Right::RemoteWrite))?;
        }
        if header.immediate.is_some() {
            self.begin_receive(ops)?;
        }
        if !payload.is_empty() {
            let address = remote.address.wrapping_add(u64::from(offset));
            let remote = RemoteAddress { address, key: remote.key };
            done(ops.write_remote(remote, payload, length - end))?;
        }
        if !place.is_end() {
            self.message = Message::Write { remote, offset: end, length };
        } else if header.immediate.is_some() {
            self.finish_receive(ArrivalKind::WriteImmediate, length, header, ops);
        }
        Ok(())
    }

    /// Takes a receive for the message, once.
    fn begin_receive<E: TransportOps>(&mut self, ops: &mut E) -> Result<(), Stop> {
        if !self.begun && !ops.begin_receive() {
            return Err(Stop::NotReady);
        }
        self.begun = true;
        Ok(())
    }

    fn fail_receive<E: TransportOps>(&mut self, status: Status, denial: Denial, ops: &mut E) -> Stop {
        ops.fail_receive(status);
        self.begun = false;
        Stop::ReceiveFailed(denial)
    }

    fn finish_receive<E: TransportOps>(
        &mut self,
        kind: ArrivalKind,
        length: u32,
        header: &Header,
        ops: &mut E,
    ) {
        self.begun = false;
        ops.finish_receive(Arrival {
            kind,
            length,
            immediate: header.immediate,
            invalidated: header.invalidate,
            solicited: header.bth.solicited,
        });
    }
}

/// Where a message stands after a packet, whose length must suit its place.
fn message_end(offset: u32, payload: Payload<'_>, place: Place, link: &Link) -> Result<u32, Stop> {
    let end = u64::from(offset) + payload.len();
    if !place.suits(payload.len(), link) || end > u64::from(limits::MAX_MESSAGE) {
        return Err(Stop::Invalid);
    }
    Ok(end as u32)
}

/// What an access to memory that the peer named came to.
pub(crate) fn done<T>(outcome: Outcome<T>) -> Result<T, Stop> {
    match outcome {
        Outcome::Done(value) => Ok(value),
        Outcome::Wait => Err(Stop::Wait),
        Outcome::Denied(denial) => Err(Stop::Denied(denial)),
    }
}

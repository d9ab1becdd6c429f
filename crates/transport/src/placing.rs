//! Placing SENDs and WRITEs at a responder, as RC and UC share it. Packets run through the states of [`Placer::place`]. What a refusal
//! means is RC's and UC's: a NAK, or silence.

use pagewire_wire::PacketHeader;

use crate::message::{MessageKind, MessagePosition, denied_status};
use crate::rc::ReceivedData;
use crate::{
    Arrival, ArrivalKind, Denial, ExecutedOperation, Link, MemoryAccess, Outcome, Payload, Reason,
    RemoteAddress, RemoteRights, Right, Status, WorkQueues, limits,
};

/// Why a packet was not placed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PlacementStop {
    /// The transport operations say wait; what was done so far is remembered.
    Wait(Reason),
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
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum IncomingMessage {
    #[default]
    None,
    Send {
        offset: u32,
    },
    Write {
        remote: RemoteAddress,
        offset: u32,
        length: u32,
    },
}

/// How far the message that is coming in has been placed.
#[derive(Debug, Default)]
pub(crate) struct Placer {
    pub(crate) rights: RemoteRights,
    pub(crate) message: IncomingMessage,
    /// A receive was taken and neither completed nor failed. It stays for the next message, should its own be forgotten.
    begun: bool,
    /// The last bytes of the SEND are in place, though its packet waits: so long it is.
    placed: Option<u32>,
    /// The peer is a Pagewire, or may be one: in a WRITE ONLY the length is that of all that is left of the WRITE
    /// (`Capabilities::REMAINING_LENGTH`).
    pub(crate) takes_remaining_length: bool,
    /// UC: a message that is longer than its receive is dropped, and nothing else is concerned.
    drops_long_messages: bool,
    /// What has come for the program.
    pub(crate) received: ReceivedData,
}

/// How far a [`Placer`] is, to be put back where what was placed turns out to be not executed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacerPosition {
    pub(crate) message: IncomingMessage,
    received: ReceivedData,
}

/// Packets that are being placed: a burst as far as its packets go together, mostly one.
struct Packets<'p> {
    header: &'p PacketHeader,
    place: MessagePosition,
    payload: Payload<'p>,
    /// Where their WRITE goes; `None`: they are of a SEND.
    remote: Option<RemoteAddress>,
    /// Bytes of the message before them.
    offset: u32,
    /// Bytes of the message up to their end.
    end: u32,
    /// Bytes of the message, at most.
    length: u32,
}

/// What was placed.
pub(crate) struct Placed {
    pub(crate) packets: u32,
    /// Messages that are complete.
    pub(crate) messages: u32,
}

impl Placer {
    pub(crate) fn new(rights: RemoteRights) -> Placer {
        Placer { rights, ..Placer::default() }
    }

    /// UC: a message that is longer than its receive is dropped.
    pub(crate) fn dropping_long_messages(self) -> Placer {
        Placer { drops_long_messages: true, ..self }
    }

    /// Whether no message is coming in, and no receive is taken for the next.
    pub(crate) fn is_between_messages(&self) -> bool {
        matches!(self.message, IncomingMessage::None) && !self.begun && self.placed.is_none()
    }

    /// How far it is.
    pub(crate) fn position(&self) -> PlacerPosition {
        PlacerPosition { message: self.message, received: self.received }
    }

    /// What was placed since comes again.
    pub(crate) fn go_back_to(&mut self, position: PlacerPosition) {
        (self.message, self.received, self.begun) = (position.message, position.received, false);
    }

    /// What was coming in is not gone on with, or has ended.
    pub(crate) fn forget_message(&mut self) {
        (self.message, self.placed) = (IncomingMessage::None, None);
    }

    /// Places the packets of a burst, from the first on, as far as they go together.
    pub(crate) fn place<E: MemoryAccess + WorkQueues>(
        &mut self,
        part: (MessageKind, MessagePosition),
        header: &PacketHeader,
        payload: Payload<'_>,
        link: &Link,
        ops: &mut E,
    ) -> Result<Placed, PlacementStop> {
        let mut packets = self.check_sequence(part, header, payload)?;
        self.check_length(&mut packets, link)?;
        self.check_key(&packets, ops)?;
        self.take_receive(&packets, ops)?;
        let placed = self.copy(&packets, ops)?;
        self.complete(&packets, placed, ops)
    }

    /// Whether the packet follows the one before it, and may do what it does (InfiniBand specification, volume 1, section 9.7.4.1).
    fn check_sequence<'p>(
        &self,
        (kind, place): (MessageKind, MessagePosition),
        header: &'p PacketHeader,
        payload: Payload<'p>,
    ) -> Result<Packets<'p>, PlacementStop> {
        let (remote, offset, length) = match (kind, place.is_start(), self.message, header.reth) {
            (MessageKind::Send, true, IncomingMessage::None, _) => (None, 0, limits::MAX_MESSAGE),
            (MessageKind::Send, false, IncomingMessage::Send { offset }, _) => {
                (None, offset, limits::MAX_MESSAGE)
            }
            (MessageKind::Write, true, IncomingMessage::None, Some(reth)) => {
                (Some(RemoteAddress { address: reth.address, key: reth.key }), 0, reth.length)
            }
            (MessageKind::Write, false, IncomingMessage::Write { remote, offset, length }, _) => {
                (Some(remote), offset, length)
            }
            _ => return Err(PlacementStop::Invalid),
        };
        if length > limits::MAX_MESSAGE || remote.is_some() && !self.rights.write {
            return Err(PlacementStop::Invalid);
        }
        Ok(Packets { header, place, payload, remote, offset, end: offset, length })
    }

    /// Whether the packet's length suits its place in the message (section 9.7.4.1.6); and which of those behind it go with it.
    fn check_length(&self, packets: &mut Packets<'_>, link: &Link) -> Result<(), PlacementStop> {
        let &mut Packets { place, offset, length, remote, .. } = packets;
        let first = packets.payload.first_len();
        if !place.suits(first, link) {
            return Err(PlacementStop::Invalid);
        }
        let has_immediate = packets.header.immediate.is_some();
        let left = length.saturating_sub(offset);
        let room = match place {
            // Something is left for the last one.
            MessagePosition::Middle => left.saturating_sub(1),
            // Each is a message, of which the RETH of the first covers all.
            MessagePosition::Only if remote.is_some() && !has_immediate => left,
            _ => 0,
        };
        packets.payload = packets.payload.alike(u64::from(room) / first.max(1));
        let end = u64::from(offset) + packets.payload.len();
        if end > u64::from(limits::MAX_MESSAGE) {
            return Err(PlacementStop::Invalid);
        }
        packets.end = self.placed.filter(|_| remote.is_none()).unwrap_or(end as u32);
        if remote.is_some() {
            let end = packets.end;
            // More is left of the WRITE than this packet has: other packets bring it, each a WRITE ONLY by itself.
            let goes_on = place == MessagePosition::Only
                && end < length
                && self.takes_remaining_length
                && !has_immediate;
            if !goes_on && (place.is_end() != (end == length) || end > length) {
                return Err(PlacementStop::Invalid);
            }
        }
        Ok(())
    }

    /// Whether key, bounds and rights permit the whole WRITE that the packet begins (section 9.7.4.1).
    fn check_key<E: MemoryAccess>(&self, packets: &Packets<'_>, ops: &mut E) -> Result<(), PlacementStop> {
        match packets.remote {
            Some(remote) if packets.place.is_start() && packets.length > 0 => {
                done(ops.check_remote(remote, packets.length, Right::RemoteWrite))
            }
            _ => Ok(()),
        }
    }

    /// Takes a receive for a message that needs one, once (section 9.7.5.2.8: there may be none).
    fn take_receive<E: WorkQueues>(
        &mut self,
        packets: &Packets<'_>,
        ops: &mut E,
    ) -> Result<(), PlacementStop> {
        if packets.remote.is_none() || packets.header.immediate.is_some() {
            if !self.begun && !ops.begin_receive() {
                return Err(PlacementStop::NotReady);
            }
            self.begun = true;
        }
        Ok(())
    }

    /// Copies the payloads; gives how many.
    fn copy<E: MemoryAccess + WorkQueues>(
        &mut self,
        packets: &Packets<'_>,
        ops: &mut E,
    ) -> Result<u32, PlacementStop> {
        let &Packets { payload, remote, offset, end, length, .. } = packets;
        if payload.is_empty() || remote.is_none() && self.placed.is_some() {
            return Ok(1);
        }
        let outcome = match remote {
            None => ops.place_receive(offset.into(), payload, packets.place.is_end()),
            Some(remote) => {
                let address = remote.address.wrapping_add(u64::from(offset));
                let outcome = ops.write_remote(RemoteAddress { address, ..remote }, payload, length - end);
                self.received.written |= matches!(outcome, Outcome::Done(_));
                outcome
            }
        };
        match outcome {
            Outcome::Denied(Denial::LocalLength) if remote.is_none() && self.drops_long_messages => {
                self.begun = ops.keep_short_receive();
                Err(PlacementStop::Denied(Denial::LocalLength))
            }
            Outcome::Denied(denial) if remote.is_none() && !denial.is_of_sender() => {
                Err(self.fail_receive(denied_status(denial), denial, ops))
            }
            outcome => done(outcome),
        }
    }

    /// Ends the message if these packets do.
    fn complete<E: MemoryAccess + WorkQueues>(
        &mut self,
        packets: &Packets<'_>,
        placed: u32,
        ops: &mut E,
    ) -> Result<Placed, PlacementStop> {
        let &Packets { header, place, payload, remote, offset, length, .. } = packets;
        if !place.is_end() {
            let offset = offset + payload.first(placed).len() as u32;
            self.message = match remote {
                None => IncomingMessage::Send { offset },
                Some(remote) => IncomingMessage::Write { remote, offset, length },
            };
            return Ok(Placed { packets: placed, messages: 0 });
        }
        if remote.is_none() {
            if let Some(key) = header.invalidate {
                // Should it have to wait, the bytes are not placed a second time: they are visible.
                self.placed = Some(packets.end);
                match ops.invalidate(key) {
                    Outcome::Denied(denial) => {
                        return Err(self.fail_receive(Status::RemoteInvalidRequest, denial, ops));
                    }
                    outcome => done(outcome)?,
                }
            }
            self.finish_receive(ArrivalKind::Send, packets.end, header, ops);
        } else {
            // Those of one that begins here are in these packets; of another one this is the last.
            let bytes = if place.is_start() { payload.first(placed).len() as u32 } else { length };
            ops.count_executed(ExecutedOperation::Write, u32::from(bytes == length), bytes);
        }
        if remote.is_some() && header.immediate.is_some() {
            self.finish_receive(ArrivalKind::WriteImmediate, length, header, ops);
        }
        self.forget_message();
        Ok(Placed { packets: placed, messages: placed })
    }

    fn fail_receive<E: WorkQueues>(&mut self, status: Status, denial: Denial, ops: &mut E) -> PlacementStop {
        ops.fail_receive(status);
        self.begun = false;
        PlacementStop::ReceiveFailed(denial)
    }

    fn finish_receive<E: WorkQueues>(
        &mut self,
        kind: ArrivalKind,
        length: u32,
        header: &PacketHeader,
        ops: &mut E,
    ) {
        (self.begun, self.received.received) = (false, true);
        ops.finish_receive(Arrival {
            kind,
            length,
            immediate: header.immediate,
            invalidated: header.invalidate,
            solicited: header.bth.solicited,
        });
    }
}

/// What an access to memory that the peer named came to.
pub(crate) fn done<T>(outcome: Outcome<T>) -> Result<T, PlacementStop> {
    match outcome {
        Outcome::Done(value) => Ok(value),
        Outcome::Wait(reason) => Err(PlacementStop::Wait(reason)),
        Outcome::Denied(denial) => Err(PlacementStop::Denied(denial)),
    }
}

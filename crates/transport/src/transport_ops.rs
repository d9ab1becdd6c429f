//! What a queue pair's protocol is given by its surroundings, and what it gives back.
//!
//! Transport holds no bytes, socket, clock or thread. It is handed packets, work requests and the
//! time, and it calls a [`TransportOps`] for everything else. Its methods never block:
//! one that cannot be done now (an absent page, a full link) answers [`Outcome::Wait`], changes
//! nothing, and the caller repeats the same call once the reason is gone.

use pagewire_wire::{Header, VendorPacket};

use crate::Psn;

/// Nanoseconds on a clock that never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(pub u64);

/// Names a work request of one queue pair's send queue: counts up from 0 with each post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);

/// How an access or a transmission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    Done(T),
    /// Not possible now; nothing was changed. Repeat the call later.
    Wait,
    Denied(Denial),
}

/// Why an access was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// A local key, bound or right (or memory that is not mapped) at this side.
    LocalProtection,
    /// The receive is shorter than the message.
    LocalLength,
    /// A remote key, bound or right.
    RemoteAccess,
    /// The request is malformed or of a kind that this queue pair does not serve.
    InvalidRequest,
    /// The memory behind a valid key could not be reached.
    Operational,
}

/// What is named by key, address and length in the responder's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress {
    pub address: u64,
    pub key: u32,
}

/// The right that a remote access needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

/// A send work request as the protocol sees it: its bytes are named by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub id: WorkId,
    pub operation: Operation,
    /// Bytes of the message, 0 to 2^31.
    pub length: u32,
    /// Wait for earlier READs and atomics first.
    pub fence: bool,
    pub solicited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Send {
        immediate: Option<u32>,
        invalidate: Option<u32>,
    },
    Write {
        remote: RemoteAddress,
        immediate: Option<u32>,
    },
    Read {
        remote: RemoteAddress,
    },
    Atomic {
        remote: RemoteAddress,
        atomic: Atomic,
    },
    /// Completes in order without touching the wire (local invalidate, bind: executed by the caller).
    Local,
}

/// Where the bytes of an outgoing packet come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    None,
    /// Bytes `offset .. offset + length` of a posted work request; `copied`: they are to travel themselves, as the peer cannot read
    /// them where they lie.
    Work {
        id: WorkId,
        offset: u32,
        length: u32,
        copied: bool,
    },
    /// A READ response: this side's memory, named by the peer's key and address.
    Remote {
        remote: RemoteAddress,
        length: u32,
    },
}

impl Source {
    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match self {
            Source::None => 0,
            Source::Work { length, .. } | Source::Remote { length, .. } => *length,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of packet `index` of a row whose first one has these.
    pub fn in_burst(self, index: u32) -> Source {
        match self {
            Source::None => Source::None,
            Source::Work { id, offset, length, copied } => {
                Source::Work { id, offset: offset + index * length, length, copied }
            }
            Source::Remote { remote, length } => {
                let skipped = u64::from(index) * u64::from(length);
                let address = remote.address.wrapping_add(skipped);
                Source::Remote { remote: RemoteAddress { address, ..remote }, length }
            }
        }
    }
}

/// The header of packet `index` of a burst of packets of `length` bytes whose first one has this: the PSN counts on, and a RETH
/// names what is left of the memory behind those before.
pub fn header_in_burst(first: &Header, length: u32, index: u32) -> Header {
    let mut header = *first;
    header.bth.psn = Psn::new(first.bth.psn).plus(index).value();
    if let Some(reth) = &mut header.reth {
        let skipped = u64::from(index) * u64::from(length);
        reth.address = reth.address.wrapping_add(skipped);
        reth.length = u64::from(reth.length).saturating_sub(skipped) as u32;
    }
    header
}

/// The bytes of a packet that arrived.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    Bytes(&'a [u8]),
    /// Bytes that still lie in the sending process: pieces of its memory, by its own local keys, and their
    /// lengths. Only on links inside one host; never kept beyond the call.
    Reference(&'a [(RemoteAddress, u32)]),
}

impl Payload<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::Reference(pieces) => pieces.iter().map(|piece| u64::from(piece.1)).sum(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a finished receive reports (becomes a receive completion).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    pub kind: ArrivalKind,
    /// Length of the message; for a WRITE with immediate the length of the WRITE.
    pub length: u32,
    pub immediate: Option<u32>,
    pub invalidated: Option<u32>,
    pub solicited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalKind {
    Send,
    WriteImmediate,
}

/// Why a work request ended (names of `enum ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Success,
    LocalLength,
    LocalQpOperation,
    LocalProtection,
    BadResponse,
    RemoteInvalidRequest,
    RemoteAccess,
    RemoteOperation,
    RetryExceeded,
    RnrRetryExceeded,
}

/// Asynchronous events of one queue pair (names of `enum ibv_event_type`), raised by the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// First packet in RTR.
    CommunicationEstablished,
    /// A malformed or unsupported request, or a failed local receive, came in: the queue pair goes to ERR.
    RequestError,
    /// A request without the right was refused: the queue pair goes to ERR.
    AccessError,
}

/// How a link that loses nothing stands with what was handed to it ([`TransportOps::link`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The peer has not yet taken everything, or holds it while a page comes in: silence means nothing.
    Pending,
    /// Everything was taken: silence is the peer's answer.
    Delivered,
    /// The peer's process has ended.
    Dead,
}

/// How the direct execution of a work request went ([`TransportOps::initiator_copy`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitiatorCopy {
    /// Done; the work request is complete.
    Done,
    /// Not now; repeat.
    Wait,
    /// Not by this way (no right, no mapping, peer not ready ...): send it as packets; the responder
    /// then says what became of it.
    Unavailable,
}

/// Memory, receives, completions and the link of one queue pair.
pub trait TransportOps {
    /// Sends one packet of this queue pair. `Wait`: the link is full. `Denied(LocalProtection)`: the bytes
    /// of a work request cannot be read; `Denied(RemoteAccess | Operational)`: those of a READ response cannot.
    fn transmit(&mut self, header: &Header, source: Source) -> Outcome<()>;

    /// Sends a row of `count` packets: the first has this header and source, each of the others what follows
    /// ([`header_in_burst`], [`Source::in_burst`]). Gives how many were sent, from the first on. What was in the way of the next
    /// one is told where it is sent by itself.
    fn transmit_burst(&mut self, header: &Header, source: Source, count: u32) -> u32 {
        for index in 0..count {
            if self.transmit(&header_in_burst(header, source.len(), index), source.in_burst(index))
                != Outcome::Done(())
            {
                return index;
            }
        }
        count
    }

    /// Whether what was transmitted last makes as much as leaves together: a good place to do other things before more is
    /// transmitted.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether the access to memory that last said `Wait` did so for want of a page: what becomes of its packet says
    /// [`FaultHandling`](crate::FaultHandling). Else it is possible again soon.
    fn lacks_page(&self) -> bool;

    /// Sends one of Pagewire's own packets: `header` is a BTH alone with the opcode of `body`. Only called
    /// towards a peer that answered HELLO. `Wait`: the link is full; it is offered again or given up.
    fn transmit_control(&mut self, header: &Header, body: &VendorPacket) -> Outcome<()>;

    /// Tries to execute a WRITE (without immediate) or READ at once in the peer's memory.
    /// Only called where [`Link::initiator_copy`](crate::Link::initiator_copy) is set and nothing is outstanding before it.
    fn initiator_copy(&mut self, work: &Work) -> InitiatorCopy;

    /// State of a lossless link; called when an acknowledgement is overdue, and before a UC connection that has sent
    /// packets goes direct again.
    fn link(&mut self) -> LinkState;

    // Responder.

    /// Takes the next receive from the receive queue or shared receive queue and makes it current.
    /// False: there is none (receiver not ready). Not called again before that receive is finished or
    /// failed: where UC drops a message, its receive stays current and is filled again from offset 0.
    /// One that is current when the connection dies is the caller's to flush.
    fn begin_receive(&mut self) -> bool;
    /// Places bytes of the current receive; `last` is set with the message's final bytes, whose last
    /// 8 bytes become visible last.
    fn place_receive(&mut self, offset: u64, payload: Payload<'_>, last: bool) -> Outcome<()>;
    /// As [`place_receive`](Self::place_receive) for the payloads of packets that follow each other, none of them the last
    /// of its message. Gives how many were placed, from the first on. What was in the way of the next one is told where it is
    /// placed by itself.
    fn place_receive_burst(&mut self, offset: u64, burst: &[&[u8]]) -> usize {
        let mut at = offset;
        let placed = burst.iter().take_while(|bytes| {
            let outcome = self.place_receive(at, Payload::Bytes(bytes), false);
            at += bytes.len() as u64;
            outcome == Outcome::Done(())
        });
        placed.count()
    }
    /// Completes the current receive, or takes and completes one for a WRITE with immediate
    /// (after `begin_receive`).
    fn finish_receive(&mut self, arrival: Arrival);
    /// Ends the current receive with an error.
    fn fail_receive(&mut self, status: Status);
    /// Checks the whole range of a request. Not called for zero length (key and address are then ignored).
    fn check_remote(&mut self, remote: RemoteAddress, length: u32, right: Right) -> Outcome<()>;
    /// Writes to memory that was checked; checks again (the region may have gone). `rest`: bytes of the WRITE that follow, 0 if
    /// these are its last.
    fn write_remote(&mut self, remote: RemoteAddress, payload: Payload<'_>, rest: u32) -> Outcome<()>;
    /// As [`write_remote`](Self::write_remote) for the payloads of packets that follow each other, `rest` bytes behind the last of them; gives how many were written, as
    /// [`place_receive_burst`](Self::place_receive_burst).
    fn write_remote_burst(&mut self, remote: RemoteAddress, burst: &[&[u8]], rest: u32) -> usize {
        let mut address = remote.address;
        let mut left = rest + burst.iter().map(|bytes| bytes.len() as u32).sum::<u32>();
        let written = burst.iter().take_while(|bytes| {
            let to = RemoteAddress { address, ..remote };
            address = address.wrapping_add(bytes.len() as u64);
            left -= bytes.len() as u32;
            self.write_remote(to, Payload::Bytes(bytes), left) == Outcome::Done(())
        });
        written.count()
    }
    /// Runs an atomic on 8 aligned bytes and gives their original value.
    fn atomic_remote(&mut self, remote: RemoteAddress, atomic: Atomic) -> Outcome<u64>;
    /// Invalidates a key for SEND with invalidate.
    fn invalidate(&mut self, key: u32) -> Outcome<()>;

    // Requester.

    /// Places bytes of a READ response into the work request's buffers.
    fn place_response(&mut self, work: WorkId, offset: u64, payload: Payload<'_>, last: bool) -> Outcome<()>;
    /// As [`place_response`](Self::place_response) for the payloads of packets that follow each other, none of them the last of
    /// its READ; gives how many were placed, as [`place_receive_burst`](Self::place_receive_burst).
    fn place_response_burst(&mut self, work: WorkId, offset: u64, burst: &[&[u8]]) -> usize {
        let mut at = offset;
        let placed = burst.iter().take_while(|bytes| {
            let outcome = self.place_response(work, at, Payload::Bytes(bytes), false);
            at += bytes.len() as u64;
            outcome == Outcome::Done(())
        });
        placed.count()
    }
    /// Places the original value of an atomic into the work request's buffers.
    fn place_atomic(&mut self, work: WorkId, value: u64) -> Outcome<()>;
    /// Reports work requests as complete: all up to and including `work`, in order; those before it
    /// succeeded. With a status other than `Success` the connection is dead and reports nothing more.
    fn complete(&mut self, work: WorkId, status: Status);

    /// Raises an asynchronous event. After `RequestError` and `AccessError` the connection is dead.
    fn event(&mut self, event: Event);
}

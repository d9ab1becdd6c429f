//! What a queue pair's protocol is given by its surroundings, and what it gives back.
//!
//! Transport holds no bytes, socket, clock or thread. It is handed packets, work requests and the
//! time, and it calls a [`TransportOps`] for everything else: a [`PacketSink`], [`MemoryAccess`] and [`WorkQueues`]. Their methods never block:
//! one that cannot be done now (an absent page, a full link) answers [`Outcome::Wait`], changes
//! nothing, and the caller repeats the same call once the reason is gone.
//!
//! How a packet that arrived ended is its [`Disposition`].

use crate::Psn;
use pagewire_wire::{Feth, Nak, PacketHeader, VendorPacket};

/// Nanoseconds on a clock that never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(pub u64);

/// Names a work request of one queue pair's send queue: counts up from 0 with each post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WorkId(pub u64);

/// How an access or a transmission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    Done(T),
    /// Not possible now; nothing was changed. Repeat the call later.
    Wait(Reason),
    Denied(Denial),
}

impl<T> Outcome<T> {
    /// What `Done` gives, changed.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Done(value) => Outcome::Done(change(value)),
            Outcome::Wait(reason) => Outcome::Wait(reason),
            Outcome::Denied(denial) => Outcome::Denied(denial),
        }
    }
}

/// Why something is not possible now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A page is absent and comes in: what becomes of its packet says [`FaultHandling`](crate::FaultHandling).
    Page,
    /// Too many accesses are in progress.
    NoClaim,
    /// The link has no space.
    LinkFull,
    /// The path to the peer is not known yet.
    Path,
    /// No receive is posted, and one may still come.
    Receive,
    /// An access log has no space for its record, or the place of one more source.
    LogFull,
    /// Handlers of accesses have not returned.
    Handlers,
    /// Another process executes the request. Its packet is kept, however page faults are handled.
    Relay,
}

impl Reason {
    /// Whether somebody runs the connection when the reason is gone. If nobody does, it has to be tried again.
    pub fn is_announced(self) -> bool {
        !matches!(self, Reason::NoClaim | Reason::LinkFull | Reason::LogFull | Reason::Handlers)
    }
}

/// How a packet that arrived ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// So many packets of the burst were executed, from the first on.
    Executed(u32),
    /// It came ahead of a missing one, and is kept until that comes.
    Kept,
    /// It was executed before, or waits already.
    Duplicate,
    /// It cannot be executed now: the caller offers it again before any other of its kind. `again`: that was said of it before.
    Held {
        reason: Reason,
        again: bool,
    },
    /// No receive is posted: it is dropped, and the peer sends it again.
    NotReady,
    Dropped(DropCause),
    /// The peer's request is wrong; the connection ends.
    Refused(Nak),
}

impl Disposition {
    /// Whether the caller keeps it, to offer it again.
    pub fn is_held(self) -> bool {
        matches!(self, Disposition::Held { .. })
    }

    /// How many packets of the burst ended so.
    pub fn packets(self) -> u32 {
        if let Disposition::Executed(packets) = self { packets } else { 1 }
    }
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// A page was absent. `resumes`: the source is asked for the packet when the page is there.
    AbsentPage {
        resumes: bool,
    },
    /// It came ahead of a missing one.
    OutOfOrder,
    /// There was no space to keep it.
    NoSpace,
    /// UC, UD: no receive is posted.
    NoReceive,
    /// The memory or the receive that it goes to refuses it.
    NoAccess,
    /// It belongs to nothing that is outstanding.
    Stale,
    /// It does not come from the peer.
    WrongSource,
    /// The queue pair does not receive, or no longer.
    WrongState,
    WrongPartition,
    /// UD: the Q_Key is not the queue pair's.
    WrongQKey,
    /// It is not of the queue pair's service, is too long, breaks the order of a message, or is a response that cannot be.
    Malformed,
    /// Its bytes lie in a process that has ended, or has ended its queue pair.
    SenderGone,
    /// Its bytes cannot be read where they lie: the peer is asked for the packet again.
    SenderUnreadable,
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
    /// The bytes of the packet lie in a process that has ended, or has ended its queue pair.
    SenderGone,
    /// The bytes of the packet cannot be read where they lie in their sender.
    SenderUnreadable,
}

impl Denial {
    /// Whether the sender of the packet cannot be read: nobody has done anything wrong.
    pub(crate) fn is_of_sender(self) -> bool {
        matches!(self, Denial::SenderGone | Denial::SenderUnreadable)
    }
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
    /// To write 8 bytes, which are aligned where they lie: else the access is `Denied(InvalidRequest)`.
    RemoteWord,
    RemoteAtomic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicRequest {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

/// What a FLUSH makes sure of, for what its queue pair placed before it (InfiniBand specification, volume 1, annex A19.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlushRequest {
    /// Every process sees it.
    pub global: bool,
    /// It outlives a loss of power.
    pub persistent: bool,
    /// Of the whole region, in place of the range.
    pub whole_region: bool,
}

impl FlushRequest {
    /// What these mean: values of `enum ibv_placement_type` and `enum ibv_selectivity_level`, which are those of the wire. `None`: nothing,
    /// or what nobody knows.
    pub fn of_bits(placement: u8, selectivity: u8) -> Option<FlushRequest> {
        let is_known = placement != 0
            && placement & !(Feth::GLOBAL | Feth::PERSISTENT) == 0
            && matches!(selectivity, Feth::RANGE | Feth::REGION);
        is_known.then_some(FlushRequest {
            global: placement & Feth::GLOBAL != 0,
            persistent: placement & Feth::PERSISTENT != 0,
            whole_region: selectivity == Feth::REGION,
        })
    }

    /// The header that asks for it.
    pub fn header(self) -> Feth {
        let global = if self.global { Feth::GLOBAL } else { 0 };
        let persistent = if self.persistent { Feth::PERSISTENT } else { 0 };
        let selectivity = if self.whole_region { Feth::REGION } else { Feth::RANGE };
        Feth { placement: global | persistent, selectivity }
    }
}

/// A send work request as the protocol sees it: its bytes are named by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkRequest {
    pub id: WorkId,
    pub operation: WorkOperation,
    /// Bytes of the message, 0 to 2^31.
    pub length: u32,
    /// Wait for earlier READs and atomics first.
    pub fence: bool,
    pub solicited: bool,
    /// It is not executed if the one posted before it is refused, where that does not end the connection.
    pub linked: bool,
    /// Of XRC: the number of the peer's shared receive queue.
    pub shared_queue: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkOperation {
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
        atomic: AtomicRequest,
    },
    /// Its 8 bytes appear at once, behind all that was requested before (InfiniBand specification, volume 1, annex A19).
    AtomicWrite {
        remote: RemoteAddress,
    },
    /// What was placed before it in this memory of the peer is made visible or persistent (annex A19). It has no bytes of its own.
    Flush {
        remote: RemoteAddress,
        length: u32,
        flush: FlushRequest,
    },
    /// Executed in order by the caller, without touching the wire.
    Local(LocalWork),
    /// Ends in order with this status, without touching the wire, as failures on demand want it.
    Failing {
        status: Status,
    },
}

impl Default for WorkOperation {
    fn default() -> Self {
        WorkOperation::Send { immediate: None, invalidate: None }
    }
}

/// Work that changes what peers may access (InfiniBand specification, volume 1, section 10.6.7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalWork {
    /// `IBV_WR_BIND_MW`, and what `ibv_bind_mw(3)` posts.
    Bind,
    /// `IBV_WR_LOCAL_INV`.
    Invalidate,
}

impl LocalWork {
    /// How it ends where it is refused.
    pub fn refused(self) -> Status {
        match self {
            LocalWork::Bind => Status::WindowBind,
            LocalWork::Invalidate => Status::LocalQpOperation,
        }
    }
}

/// Where the bytes of an outgoing packet come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadSource {
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
        part: ReadPart,
    },
}

/// Which part of a READ a response carries. A requester may ask for a READ again in pieces, so the opcode does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadPart {
    /// PSN of the READ's first response, which names the READ.
    pub read: Psn,
    /// Bytes of the READ before this response.
    pub before: u32,
    /// Bytes of the READ after this response.
    pub after: u32,
    /// A response with this PSN has left before.
    pub repeated: bool,
    /// Of XRC: the shared receive queue that the READ names; else 0.
    pub shared_queue: u32,
}

impl PayloadSource {
    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match self {
            PayloadSource::None => 0,
            PayloadSource::Work { length, .. } | PayloadSource::Remote { length, .. } => *length,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The bytes of packets that arrived.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Of each packet of a burst, mostly one: the first has the header that comes with them, each of the others one
    /// with the next PSN, and a RETH that names what is left of the memory behind those before. [`TransportOps`] gets packets of
    /// equal length. None: of one packet without bytes.
    Bytes(&'a [&'a [u8]]),
    /// Bytes that still lie in the sending process: pieces of its memory, by its own local keys, and their
    /// lengths. Only on links inside one host; never kept beyond the call.
    Reference(&'a [(RemoteAddress, u32)]),
    /// So many bytes of one packet, which the link has not read yet. [`MemoryAccess`] and [`WorkQueues`] have them read to where they belong.
    /// Of RC and UC, on links that keep the order.
    Deferred(u32),
}

impl<'a> Payload<'a> {
    /// Length in bytes of all packets, which are as long as the first.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Payload::Bytes(burst) => self.first_len() * burst.len() as u64,
            Payload::Reference(pieces) => pieces.iter().map(|piece| u64::from(piece.1)).sum(),
            Payload::Deferred(length) => u64::from(*length),
        }
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length in bytes of the first packet.
    #[inline]
    pub(crate) fn first_len(&self) -> u64 {
        match self {
            Payload::Bytes(burst) => burst.first().map_or(0, |bytes| bytes.len() as u64),
            Payload::Reference(_) | Payload::Deferred(_) => self.len(),
        }
    }

    /// Those of the first `packets`.
    #[inline]
    pub fn first(self, packets: u32) -> Payload<'a> {
        match self {
            Payload::Bytes(burst) => Payload::Bytes(&burst[..burst.len().min(packets as usize)]),
            Payload::Reference(_) | Payload::Deferred(_) => self,
        }
    }

    /// Those of the first packet and of the ones behind it that are as long, `most` at most, at least one.
    #[inline]
    pub(crate) fn alike(self, most: u64) -> Payload<'a> {
        let Payload::Bytes(burst @ [first, _, ..]) = self else { return self };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let alike = burst.iter().take(most).take_while(|bytes| bytes.len() == first.len()).count();
        Payload::Bytes(&burst[..alike.max(1)])
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

/// A SEND or WRITE by XRC whose bytes have all been handed over ([`WorkQueues::relay_message`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayedMessage {
    /// Where a WRITE goes; `None`: it is a SEND.
    pub remote: Option<RemoteAddress>,
    pub length: u32,
    pub immediate: Option<u32>,
    pub solicited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalKind {
    Send,
    WriteImmediate,
}

/// An operation of the peer in memory of this side, which makes no completion here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutedOperation {
    Read,
    Write,
}

/// How a work request ended (values of `enum ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    Success = 0,
    LocalLength = 1,
    LocalQpOperation = 2,
    LocalProtection = 4,
    /// The queue pair went to ERR before; the protocol itself never says so.
    Flushed = 5,
    WindowBind = 6,
    BadResponse = 7,
    RemoteInvalidRequest = 9,
    RemoteAccess = 10,
    RemoteOperation = 11,
    RetryExceeded = 12,
    RnrRetryExceeded = 13,
    /// The protocol itself never says this, nor the two below: a layer above ends requests so that it has kept.
    RemoteAborted = 16,
    ResponseTimeout = 20,
    General = 21,
}

/// Asynchronous events of one queue pair (names of `enum ibv_event_type`), raised by the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpEvent {
    /// First packet in RTR.
    CommunicationEstablished,
    /// A malformed or unsupported request, or a failed local receive, came in: the queue pair goes to ERR.
    RequestError,
    /// A request without the right was refused: the queue pair goes to ERR.
    AccessError,
}

/// How a link that loses nothing stands with what was handed to it ([`PacketSink::link`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The peer has not yet taken everything, or holds it while a page comes in: silence means nothing.
    Pending,
    /// Everything was taken: silence is the peer's answer.
    Delivered,
    /// The peer's process has ended.
    Dead,
}

/// How the direct execution of a work request went ([`MemoryAccess::initiator_copy`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitiatorCopy {
    /// Done; the work request is complete.
    Done,
    /// Not now; repeat.
    Wait,
    /// Not in the peer's memory (no right, no mapping, peer not ready ...): send it as packets; the responder
    /// then says what became of it.
    Unavailable,
}

/// The link of one queue pair, where packets leave.
pub trait PacketSink {
    /// Sends a burst of `count` packets of this queue pair, mostly one. The first has this header and source, each of the others
    /// what follows (see [`Payload::Bytes`]; the bytes follow each other, too). Gives how many were sent, from the first on, at least
    /// one. `Wait`: the link is full. `Denied(LocalProtection)`: the bytes of a work request cannot be read; `Denied(RemoteAccess |
    /// Operational)`: those of a READ response cannot.
    fn transmit(&mut self, header: &PacketHeader, source: PayloadSource, count: u32) -> Outcome<u32>;

    /// Whether what was transmitted last makes as much as leaves together: a good place to do other things before more is
    /// transmitted.
    fn is_full(&self) -> bool {
        false
    }

    /// Sends one of Pagewire's own packets: `header` is a BTH alone with the opcode of `body`. Only called
    /// towards a peer that answered HELLO. `Wait`: the link is full; it is offered again or given up.
    fn transmit_control(&mut self, header: &PacketHeader, body: &VendorPacket) -> Outcome<u32>;

    /// State of a lossless link; called when an acknowledgement is overdue, and before a UC connection that has sent
    /// packets goes direct again.
    fn link(&mut self) -> LinkState;

    /// Whether the peer's process may not have read what was transmitted, because it gets no processor: then its silence means nothing.
    /// Called when the peer would be given up; `again`: not for the first time in this silence.
    fn is_unread(&mut self, _again: bool) -> bool {
        false
    }
}

/// Memory that requests name, at the responder and at the requester.
pub trait MemoryAccess {
    /// Checks the whole range of a request. Not called for zero length (key and address are then ignored).
    fn check_remote(&mut self, remote: RemoteAddress, length: u32, right: Right) -> Outcome<()>;

    /// Writes to memory that was checked, from the first packet on; checks again (the region may have gone). `rest`: bytes of the
    /// WRITE that follow, 0 if these are its last. Gives how many packets were written. 8 aligned bytes appear at once.
    fn write_remote(&mut self, remote: RemoteAddress, payload: Payload<'_>, rest: u32) -> Outcome<u32>;

    /// Runs an atomic on 8 aligned bytes and gives their original value.
    fn atomic_remote(&mut self, remote: RemoteAddress, atomic: AtomicRequest) -> Outcome<u64>;

    /// Checks the memory that a FLUSH names and its rights, and executes it. Asked again where it said `Wait`.
    fn flush_remote(&mut self, remote: RemoteAddress, length: u32, flush: FlushRequest) -> Outcome<()>;

    /// Invalidates a key for SEND with invalidate. May be asked again for a key that it has invalidated, where it said `Wait`.
    fn invalidate(&mut self, key: u32) -> Outcome<()>;

    /// Executes a work request that touches no wire. Asked again where it said `Wait`.
    fn execute_local(&mut self, work: WorkId) -> Outcome<()>;

    /// Places bytes of READ responses into the work request's buffers, from the first packet on; gives how many packets were placed.
    fn place_response(&mut self, work: WorkId, offset: u64, payload: Payload<'_>, last: bool)
    -> Outcome<u32>;

    /// Places the original value of an atomic into the work request's buffers.
    fn place_atomic(&mut self, work: WorkId, value: u64) -> Outcome<()>;

    /// Tries to execute a WRITE (without immediate) or READ at once in the peer's memory.
    /// Only called where [`Link::initiator_copy`](crate::Link::initiator_copy) is set and nothing is outstanding before it.
    fn initiator_copy(&mut self, work: &WorkRequest) -> InitiatorCopy;
}

/// Receives, completions and events of one queue pair.
pub trait WorkQueues {
    /// Of XRC: the request that is executed next is for the shared receive queue with this number, whose protection domain its accesses belong
    /// to (InfiniBand specification, volume 1, annex A14).
    fn select_shared_queue(&mut self, number: u32) -> Outcome<()>;

    /// Takes the next receive from the receive queue or shared receive queue and makes it current.
    /// False: there is none (receiver not ready). Not called again before that receive is finished or
    /// failed: where UC drops a message, its receive stays current and is filled again from offset 0.
    /// One that is current when the connection dies is the caller's to flush.
    fn begin_receive(&mut self) -> bool;

    /// Places bytes of the current receive, from the first packet on; gives how many packets were placed. `last` is set with the
    /// message's final bytes, whose last 8 bytes become visible last.
    fn place_receive(&mut self, offset: u64, payload: Payload<'_>, last: bool) -> Outcome<u32>;

    /// Completes the current receive, or takes and completes one for a WRITE with immediate
    /// (after `begin_receive`).
    fn finish_receive(&mut self, arrival: Arrival);

    /// Of XRC, behind the last bytes of each SEND and WRITE: a message for a shared receive queue of another process is executed there, from
    /// the bytes that were handed over. `Done(false)`: there is no receive there. Asked again where it said `Wait`, with the bytes of the last
    /// packet handed over once more. Without such queues nothing is to be done.
    fn relay_message(&mut self, _message: &RelayedMessage) -> Outcome<bool> {
        Outcome::Done(true)
    }

    /// Ends the current receive with an error.
    fn fail_receive(&mut self, status: Status);

    /// A message of UC is longer than the current receive, and is dropped. True: the receive stays current, for the next message. False: it has
    /// ended with an error, as one of a shared receive queue does, which others wait for.
    fn keep_short_receive(&mut self) -> bool;

    /// Reports work requests as complete: all up to and including `work`, in order; those before it
    /// succeeded. With a status other than `Success` the connection is dead and reports nothing more.
    fn complete(&mut self, work: WorkId, status: Status);

    /// Reports the oldest work request as ended without success, and those before it as complete. The connection goes on. `landed`: bytes of
    /// its message, from the first on, that are known to be where they should be. Only called with
    /// [`RefusalScope::Request`](crate::RefusalScope::Request).
    fn end_request(&mut self, work: WorkId, status: Status, landed: u32);

    /// Tells that so many WRITEs or READs of the peer were executed, for the first time, with so many bytes. A message that the peer cuts counts
    /// with its last part.
    fn count_executed(&mut self, operation: ExecutedOperation, messages: u32, bytes: u32) {
        let _ = (operation, messages, bytes);
    }

    /// Raises an asynchronous event. After `RequestError` and `AccessError` the connection is dead.
    fn event(&mut self, event: QpEvent);
}

/// All that the protocol of one queue pair is given.
pub trait TransportOps: PacketSink + MemoryAccess + WorkQueues {}

impl<T: PacketSink + MemoryAccess + WorkQueues> TransportOps for T {}

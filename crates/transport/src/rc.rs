//! Reliable connection (InfiniBand specification, volume 1, chapter 9).
//!
//! An [`RcConnection`] is both halves of one queue pair: the requester, which turns work requests into
//! packets and waits for their acknowledgement, and the responder, which executes the peer's requests.
//! Packets arrive through [`RcConnection::receive`]; everything that leaves does so in
//! [`RcConnection::progress`], so that requests that arrive together share one acknowledgement.

mod congestion;
mod delayed_ack;
mod execute;
mod fast_path;
mod fault;
mod gap;
mod pacer;
mod requester;
mod responder;
mod response;
mod retry;
mod scoreboard;

use pagewire_wire::{Opcode, PacketHeader, PacketOperation as Code, Transport, VendorPacket};

use crate::{
    Disposition, DropCause, FaultHandling, Link, MemoryAccess, Payload, ProtocolCounters, Psn, QpEvent,
    Reason, Time, TransportOps, WorkQueues, WorkRequest, limits, partitions_match, plain_bth,
};
pub use delayed_ack::Occasion;
pub(crate) use delayed_ack::ReceivedData;
use delayed_ack::{AckWait, DelayedAck};
pub use fast_path::{FastExecution, FastSend, SendOnlyRequest};
use fault::Faults;
use requester::Requester;
use responder::Responder;

/// What the peer's requests may do, from `qp_access_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteRights {
    /// `IBV_ACCESS_REMOTE_READ`.
    pub read: bool,
    /// `IBV_ACCESS_REMOTE_WRITE`.
    pub write: bool,
    /// `IBV_ACCESS_REMOTE_ATOMIC`.
    pub atomic: bool,
    /// `IBV_ACCESS_FLUSH_GLOBAL`.
    pub flush_global: bool,
    /// `IBV_ACCESS_FLUSH_PERSISTENT`.
    pub flush_persistent: bool,
}

/// What a refused request ends: one whose NAK says that it will never be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RefusalScope {
    /// The connection, as the InfiniBand specification says (volume 1, section 9.9.3).
    #[default]
    Connection,
    /// That request and those [linked](Work::linked) to it. Both ends must have agreed on it.
    Request,
}

/// What a connection is told on its way to RTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcSettings {
    /// What it runs over.
    pub link: Link,
    /// The peer's queue pair number, 24 bits.
    pub destination: u32,
    /// Partition key.
    pub partition: u16,
    /// The first PSN that the peer will send (`rq_psn`).
    pub receive_psn: u32,
    /// READs and atomics that the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// 5-bit code of the time that the peer shall wait when there is no receive; see
    /// [`timers::rnr_delay`](crate::timers::rnr_delay).
    pub min_rnr_timer: u8,
    /// What the peer may do.
    pub remote_rights: RemoteRights,
    /// What becomes of packets that find a page absent.
    pub fault_handling: FaultHandling,
    /// What a refused request ends.
    pub refusal: RefusalScope,
    /// It is one of XRC: requests name a shared receive queue of the peer's.
    pub is_xrc: bool,
}

/// What a connection is told on its way to RTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequesterSettings {
    /// The first PSN to send (`sq_psn`).
    pub send_psn: u32,
    /// 5-bit code of the acknowledgement timeout; see
    /// [`timers::acknowledgement_timeout`](crate::timers::acknowledgement_timeout).
    pub timeout: u8,
    /// How often a request is sent again after a timeout or a sequence error, 0 to 7.
    pub retry_count: u8,
    /// How often a request is sent again after a receiver-not-ready, 0 to 6; 7: without end.
    pub rnr_retry: u8,
    /// READs and atomics that may be outstanding.
    pub max_rd_atomic: u8,
}

/// Attributes that may change while a connection runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcUpdate {
    /// See [`RcSettings::min_rnr_timer`].
    pub min_rnr_timer: u8,
    /// See [`RcSettings::remote_rights`].
    pub remote_rights: RemoteRights,
    /// See [`RcSettings::max_dest_rd_atomic`].
    pub max_dest_rd_atomic: u8,
    /// Those of the requester; its `send_psn` stays as it is.
    pub requester: RequesterSettings,
}

impl ProtocolCounters {
    /// Counts packets of RC that ended so. `again`: they had been held before.
    fn count_rc(&mut self, disposition: Disposition, again: bool) {
        self.packets_received += u64::from(disposition.packets()) - u64::from(again);
        match disposition {
            Disposition::Executed(_) | Disposition::NotReady | Disposition::Refused(_) => {}
            Disposition::Kept | Disposition::Dropped(DropCause::OutOfOrder) => self.out_of_order += 1,
            Disposition::Duplicate => self.duplicates += 1,
            Disposition::Held { reason, again } => {
                self.faults_stashed += u64::from(reason == Reason::Page && !again);
            }
            Disposition::Dropped(DropCause::AbsentPage { .. }) => self.faults_dropped += 1,
            Disposition::Dropped(_) => self.stale += 1,
        }
    }
}

/// What [`RcConnection::progress`] left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RcProgress {
    /// Nothing more to do until a packet, a work request or the deadline.
    Idle,
    /// A transport operation gave [`Outcome::Wait`](crate::Outcome::Wait): drive again once the reason is gone.
    Wait,
    /// It did its share, more is left: drive again soon.
    Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RcState {
    #[default]
    Alive,
    /// The responder refused a request and still has to say so.
    Refusing,
    Dead,
}

/// What both halves need.
#[derive(Debug, Default)]
struct RcShared {
    link: Link,
    destination: u32,
    partition: u16,
    selective: bool,
    /// It is not known yet whether the peer is a Pagewire.
    greeting: bool,
    /// A request that arrived waits at this side.
    request_stalled: bool,
    /// A response that arrived does; what is queued behind it may be the answer that the requester misses.
    response_stalled: bool,
    /// The last request could not be handed out at this side (an absent page, a full link, nothing under way for want of
    /// an allowance), and no other one is under way, or it is one that is to be repeated: no answer can be missing.
    requests_wait: bool,
    state: RcState,
    refusal: RefusalScope,
    is_xrc: bool,
    counters: ProtocolCounters,
}

impl RcShared {
    fn header(&self, code: Code, psn: crate::Psn) -> PacketHeader {
        self.header_of(Opcode::new(self.transport(), code), psn)
    }

    fn transport(&self) -> Transport {
        if self.is_xrc { Transport::Xrc } else { Transport::Rc }
    }

    fn header_of(&self, opcode: Opcode, psn: crate::Psn) -> PacketHeader {
        PacketHeader::new(plain_bth(opcode, self.destination, self.partition, psn))
    }

    /// Whether the peer is a Pagewire, and what is sent to it may be lost.
    fn may_lose(&self) -> bool {
        self.selective && !self.link.lossless
    }

    /// Whether gaps are told by selective acknowledgements and filled one by one.
    fn fills_gaps(&self) -> bool {
        // Pieces of a READ have an opcode of RC alone.
        self.may_lose() && !self.is_xrc
    }
}

/// What one attempt to send came to.
enum SendStep {
    /// So many packets.
    Sent(u32),
    /// Nothing, but a request has ended, and the next one may be sent.
    Again,
    Idle,
    Wait,
}

/// What a packet is to the two halves.
enum PacketKind {
    Request,
    /// Carries data for the requester.
    Response,
    Acknowledgement,
}

/// `None`: not one of this transport. A reserved opcode is that of a request which is refused (section 9.7.4.1).
fn kind_of(opcode: Opcode, transport: Transport) -> Option<PacketKind> {
    if opcode.transport() != transport {
        return None;
    }
    Some(match opcode.operation() {
        Some(Code::Acknowledge) => PacketKind::Acknowledgement,
        Some(
            Code::ReadResponseFirst
            | Code::ReadResponseMiddle
            | Code::ReadResponseLast
            | Code::ReadResponseOnly
            | Code::AtomicAcknowledge,
        ) => PacketKind::Response,
        _ => PacketKind::Request,
    })
}

/// Both halves of an RC queue pair.
#[derive(Debug)]
pub struct RcConnection {
    shared: RcShared,
    requester: Requester,
    responder: Responder,
    /// `CommunicationEstablished` was raised, or RTS was reached without.
    established: bool,
    faults: Faults,
    delayed_ack: DelayedAck,
    /// How long the acknowledgement waits that is owed.
    delay: AckWait,
    /// See [`set_alone`](Self::set_alone).
    alone: bool,
}

impl RcConnection {
    /// A connection in RTR: it answers requests and sends none.
    pub fn new(settings: RcSettings) -> RcConnection {
        RcConnection {
            requester: Requester::new(&settings.link),
            responder: Responder::new(&settings),
            shared: RcShared {
                link: settings.link,
                destination: settings.destination,
                partition: settings.partition,
                refusal: settings.refusal,
                is_xrc: settings.is_xrc,
                ..RcShared::default()
            },
            established: false,
            faults: Faults::new(settings.fault_handling),
            delayed_ack: DelayedAck::default(),
            delay: AckWait::No,
            alone: true,
        }
    }

    /// Goes to RTS: posted work is sent from now on.
    pub fn start_requester(&mut self, settings: RequesterSettings) {
        self.requester.start(settings);
        self.established = true;
    }

    /// Takes a work request; it is sent by [`progress`](Self::progress). The caller bounds how many there are
    /// and never posts more than [`MAX_MESSAGE`](limits::MAX_MESSAGE) bytes.
    pub fn post(&mut self, work: WorkRequest) {
        debug_assert!(work.length <= limits::MAX_MESSAGE);
        self.requester.post(work);
    }

    /// Takes packets of this connection: one, or a burst that [`Payload::Bytes`] describes, whose packets
    /// do not ask for an acknowledgement. Tells what became of the first one, and of how many more: the rest is to be given again, with
    /// its own header. A packet that is `Held` is offered again before others of its kind (requests, or responses).
    pub fn receive<E: TransportOps>(
        &mut self,
        now: Time,
        header: &PacketHeader,
        payload: Payload<'_>,
        ops: &mut E,
    ) -> Disposition {
        let kind = kind_of(header.bth.opcode, self.shared.transport());
        let again = match kind {
            Some(PacketKind::Request) => std::mem::take(&mut self.shared.request_stalled),
            Some(PacketKind::Response) => std::mem::take(&mut self.shared.response_stalled),
            Some(PacketKind::Acknowledgement) | None => false,
        };
        let disposition = match kind {
            Some(PacketKind::Request) if self.shared.state == RcState::Refusing => {
                self.ask_while_refusing(header, ops)
            }
            _ if self.shared.state != RcState::Alive => Disposition::Dropped(DropCause::WrongState),
            _ if header.bth.opcode == Opcode::CNP => {
                self.requester.reduce_window();
                Disposition::Executed(1)
            }
            None => Disposition::Dropped(DropCause::Malformed),
            // Section 10.9.3.
            Some(_) if !partitions_match(header.bth.partition, self.shared.partition) => {
                Disposition::Dropped(DropCause::WrongPartition)
            }
            Some(PacketKind::Acknowledgement) => {
                self.requester.acknowledgement(now, header, &mut self.shared, ops)
            }
            Some(PacketKind::Response) => {
                match self.requester.response(now, header, payload, &mut self.shared, ops) {
                    Disposition::Held { reason, .. } => self.response_waits(reason, again),
                    other => other,
                }
            }
            Some(PacketKind::Request) => {
                if !self.established {
                    self.established = true;
                    ops.event(QpEvent::CommunicationEstablished);
                }
                let disposition = self.responder.request(header, payload, &mut self.shared, ops);
                self.faults.hold_due |= self.responder.take_hold();
                match disposition {
                    Disposition::Held { reason, .. } => {
                        self.request_waits(now, Psn::new(header.bth.psn), (reason, again), ops)
                    }
                    other => other,
                }
            }
        };
        self.shared.counters.count_rc(disposition, again);
        disposition
    }

    /// Takes one of Pagewire's own packets of this connection, which must come from the peer. HELLO is
    /// not for a connection and is dropped.
    pub fn receive_control<E: WorkQueues>(&mut self, now: Time, body: &VendorPacket, ops: &mut E) {
        if self.shared.state != RcState::Alive {
            return;
        }
        match body {
            VendorPacket::SelectiveAck(report) => {
                self.requester.selective_acknowledgement(now, report, &mut self.shared, ops)
            }
            VendorPacket::Hold(hold) => self.requester.hold(now, hold, &mut self.shared),
            VendorPacket::Resume(resume) => self.requester.resume_from(now, resume, &mut self.shared, ops),
            VendorPacket::Skip(skip) => {
                let taken = self.responder.skip(skip, &self.shared);
                self.shared.counters.stale += u64::from(!taken);
            }
            VendorPacket::Hello(_) => self.shared.counters.stale += 1,
        }
    }

    /// Whether the connection has ended because it has refused a request of the peer, which may ask for the refusal again.
    pub fn repeats_refusal(&self) -> bool {
        self.shared.state == RcState::Dead && self.responder.has_refused()
    }

    /// The peer is this queue pair itself, and the refusal that has ended the connection is of a request of its own: that ends with its cause.
    #[cold]
    pub fn end_own_request<E: TransportOps>(&mut self, now: Time, ops: &mut E) {
        if let Some((psn, nak)) = self.responder.refusal() {
            self.requester.end_refused(now, psn, nak, &mut self.shared, ops);
        }
    }

    /// A request while the refusal of another one waits behind responses.
    #[cold]
    fn ask_while_refusing<E: MemoryAccess + WorkQueues>(
        &mut self,
        header: &PacketHeader,
        ops: &mut E,
    ) -> Disposition {
        if !partitions_match(header.bth.partition, self.shared.partition) {
            return Disposition::Dropped(DropCause::WrongPartition);
        }
        let disposition = self.responder.request(header, Payload::Bytes(&[]), &mut self.shared, ops);
        self.faults.hold_due |= self.responder.take_hold();
        // Nothing is kept any more: what has to wait is asked for again.
        if disposition.is_held() { Disposition::Duplicate } else { disposition }
    }

    /// The NAK that the connection repeats, if the peer is a Pagewire: for the caller to send to it when the connection is gone.
    pub fn refusal_to_keep(&self) -> Option<PacketHeader> {
        let keeps = self.repeats_refusal() && self.shared.may_lose();
        if keeps { self.responder.refusal_header(&self.shared) } else { None }
    }

    /// Takes a packet of the peer while the connection [repeats its refusal](Self::repeats_refusal), and answers it: READs and atomics that were
    /// executed before it, and the refusal, for its own PSN alone.
    #[cold]
    pub fn answer_after_refusal<E: TransportOps>(
        &mut self,
        header: &PacketHeader,
        ops: &mut E,
    ) -> Disposition {
        let is_request =
            matches!(kind_of(header.bth.opcode, self.shared.transport()), Some(PacketKind::Request));
        if !is_request || !partitions_match(header.bth.partition, self.shared.partition) {
            return Disposition::Dropped(DropCause::WrongState);
        }
        let disposition = self.responder.request(header, Payload::Bytes(&[]), &mut self.shared, ops);
        let mut left = limits::PROGRESS_PACKETS;
        while left > 0 {
            match self.responder.step(left, &mut self.shared, ops) {
                SendStep::Sent(packets) => left = left.saturating_sub(packets),
                // What waits is asked for again.
                SendStep::Again | SendStep::Idle | SendStep::Wait => break,
            }
        }
        disposition
    }

    /// Sends what may go (at most [`PROGRESS_PACKETS`](limits::PROGRESS_PACKETS) packets, or what
    /// [leaves together](PacketSink::is_full)), answers what arrived, and handles what is due at `now`.
    pub fn progress<E: TransportOps>(&mut self, now: Time, ops: &mut E) -> RcProgress {
        self.progress_as(now, false, ops)
    }

    /// As [`progress`](Self::progress), but an acknowledgement that would leave alone is kept: the caller expects a request to follow
    /// soon, with which it leaves, and calls [`progress`](Self::progress) in any case.
    pub fn progress_holding<E: TransportOps>(&mut self, now: Time, ops: &mut E) -> RcProgress {
        self.progress_as(now, true, ops)
    }

    /// Whether the response to a READ waits, for a page or for the link: then the peer waits, too.
    pub fn responds_late(&self) -> bool {
        self.responder.is_stalled()
    }

    /// Whether an acknowledgement is kept.
    pub fn owes_acknowledgement(&self) -> bool {
        self.shared.state == RcState::Alive && self.responder.acknowledges_only()
    }

    /// The acknowledgement that was owed when a request of this side's own ended the connection, for the caller to send.
    pub fn last_acknowledgement(&mut self) -> Option<PacketHeader> {
        let owed = self.shared.state == RcState::Dead && self.responder.acknowledges_only();
        owed.then(|| self.responder.take_owed(&self.shared))
    }

    /// Whether [`progress_holding`](Self::progress_holding) would do nothing but keep an acknowledgement.
    fn only_owes_acknowledgement(&self) -> bool {
        self.owes_acknowledgement()
            && !self.shared.link.lossless
            && !self.faults.are_pending()
            && self.requester.is_quiet()
            && self.responder.keeps_nothing()
            && self.responder.is_between_messages()
    }

    fn progress_as<E: TransportOps>(&mut self, now: Time, hold: bool, ops: &mut E) -> RcProgress {
        if self.shared.state == RcState::Dead {
            return RcProgress::Idle;
        }
        let mut waits = false;
        if self.shared.state == RcState::Alive {
            self.requester.expire(now, &mut self.shared, ops);
            waits |= self.requester.resume(now, &mut self.shared, ops);
            waits |= self.responder.resume(&mut self.shared, ops);
            self.responder.expire(now, &self.shared);
        }
        if self.faults.are_pending() {
            waits |= self.tell_faults(now, ops);
        }
        // One burst of each half after the other: neither requests nor responses starve. A half that waits
        // does not keep the other from going on.
        let (mut requests, mut responses) = (true, true);
        // A mere acknowledgement follows the requests: shorter than they are, it can leave with them in one send. But where a
        // request may be the answer that a program waits for, the program learns before that what it asked has arrived.
        let lossy = !self.shared.link.lossless;
        let behind = lossy && (hold || self.requester.in_flight() > 0);
        let hold = hold && lossy;
        let sent_before = self.shared.counters.requests_sent;
        self.shared.requests_wait = false;
        self.requester.begin_round();
        let mut left = limits::PROGRESS_PACKETS;
        while left > 0 {
            let mut sent = 1;
            if behind && responses && self.owes_acknowledgement() {
                responses = false;
            }
            if responses && self.shared.state != RcState::Dead {
                match self.responder.step(left, &mut self.shared, ops) {
                    SendStep::Sent(packets) => sent = sent.max(packets),
                    SendStep::Again => {}
                    SendStep::Idle => responses = false,
                    SendStep::Wait => (responses, waits) = (false, true),
                }
            }
            if requests && self.shared.state == RcState::Alive {
                match self.requester.step(now, left, &mut self.shared, ops) {
                    SendStep::Sent(packets) => sent = sent.max(packets),
                    SendStep::Again => {}
                    SendStep::Idle => {
                        requests = false;
                        self.shared.requests_wait =
                            self.requester.is_held() && self.requester.in_flight() == 0;
                    }
                    SendStep::Wait => {
                        (requests, waits) = (false, true);
                        // What is under way before a new request was sent: its answer may be missing.
                        self.shared.requests_wait = self.shared.link.lossless
                            || self.requester.in_flight() == 0
                            || self.requester.has_to_repeat(&self.shared);
                    }
                }
            }
            if self.shared.state == RcState::Dead {
                return RcProgress::Idle;
            }
            requests &= self.shared.state == RcState::Alive;
            if !requests && !responses {
                let alone = sent_before == self.shared.counters.requests_sent;
                if !(hold && alone) {
                    waits |= !self.acknowledge(ops);
                }
                return if waits { RcProgress::Wait } else { RcProgress::Idle };
            }
            left = if ops.is_full() { 0 } else { left.saturating_sub(sent) };
        }
        self.acknowledge(ops);
        RcProgress::Again
    }

    /// Sends the acknowledgement that was left behind the requests; false: the transport operations say wait.
    fn acknowledge<E: TransportOps>(&mut self, ops: &mut E) -> bool {
        !self.owes_acknowledgement()
            || !matches!(self.responder.step(1, &mut self.shared, ops), SendStep::Wait)
    }

    /// When [`progress`](Self::progress) must be called at the latest, even if nothing arrives.
    pub fn deadline(&self) -> Option<Time> {
        if self.shared.state != RcState::Alive {
            return None;
        }
        let requester = self.requester.deadline();
        match (self.faults.deadline(), self.responder.deadline(), self.delayed_until()) {
            (None, None, None) => requester,
            others => [requester, others.0, others.1, others.2].into_iter().flatten().min(),
        }
    }

    /// Whether the peer is a Pagewire that fills gaps one by one: call it once HELLO went both ways.
    /// Without effect on a link that loses nothing.
    pub fn set_selective(&mut self, on: bool) {
        self.shared.selective = on;
        if on {
            self.responder.take_remaining_lengths();
        }
        self.requester.policy_changed(&self.shared);
    }

    /// Whether the peer may still turn out to be a Pagewire: as long as it may, sequence errors use up no retries.
    pub fn set_greeting(&mut self, on: bool) {
        self.shared.greeting = on;
        if on {
            self.responder.take_remaining_lengths();
        }
    }

    /// Bounds how many PSNs are put under way from now on, besides the connection's own window: its part of what several
    /// connections share. `u32::MAX`, as it begins: no bound. A READ that spans more than is left may still be asked for.
    pub fn set_allowance(&mut self, packets: u32) {
        self.requester.set_allowance(packets);
    }

    /// Whether more would have been sent since [`set_allowance`](Self::set_allowance), had it allowed more.
    pub fn is_held(&self) -> bool {
        self.requester.is_held()
    }

    /// PSNs that were sent, or asked for by READs, and are neither known to have arrived nor taken for lost. Those that the peer
    /// has, and keeps until a page is there, have arrived.
    pub fn in_flight(&self) -> u32 {
        self.requester.in_network()
    }

    /// Stops (or lets go on) the start of further work requests: what has started is finished (SQD).
    pub fn set_draining(&mut self, on: bool) {
        self.requester.set_draining(on);
    }

    /// Nothing that has started is unfinished.
    pub fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }

    /// Work requests posted and not complete.
    pub fn outstanding(&self) -> usize {
        self.requester.outstanding()
    }

    /// Whether a request that is posted now would be the only one, and could be executed by
    /// [`MemoryAccess::initiator_copy`](crate::MemoryAccess::initiator_copy): the caller may do so by itself instead of posting it.
    pub fn is_quiet(&self) -> bool {
        self.shared.state == RcState::Alive && self.shared.link.initiator_copy && self.requester.is_quiet()
    }

    /// The connection completed a work request with an error or refused a request: it does nothing any
    /// more. What is posted and not complete, and a receive that was begun and not finished, is the
    /// caller's to flush.
    pub fn is_dead(&self) -> bool {
        self.shared.state == RcState::Dead
    }

    /// The link has lost what was on its way, in both directions, and carries packets again: requests that are not acknowledged are repeated
    /// at once, and the peer is told what has arrived here.
    pub fn link_restored(&mut self, now: Time) {
        if self.shared.state == RcState::Alive {
            self.requester.repeat_all(now, &self.shared);
            self.responder.acknowledge_again();
        }
    }

    /// Changes attributes of a connection that runs.
    pub fn update(&mut self, update: RcUpdate) {
        self.responder.update(&update);
        self.requester.update(&update.requester);
    }

    /// What it has seen so far.
    pub fn counters(&self) -> ProtocolCounters {
        self.shared.counters
    }
}

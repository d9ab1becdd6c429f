//! Unreliable connection (InfiniBand specification, volume 1, sections 9.8.1 and 9.8.2): SENDs and
//! WRITEs without acknowledgement. A message with a gap is dropped whole; the next one is taken again.

mod meter;

use std::collections::VecDeque;

use crate::reorder_buffer::ReorderBuffer;
use meter::Meter;
use pagewire_wire::{
    Opcode, PacketHeader, PacketOperation as Code, Received, SelectiveAck, Transport, VendorPacket,
};

use crate::message::{MessagePosition, denied_status, part_of, piece, send_code, write_code};
use crate::placing::{Placed, PlacementStop, Placer};
use crate::{
    Denial, Disposition, DropCause, Link, LinkState, MemoryAccess, Outcome, PacketSink, Payload,
    ProtocolCounters, Psn, QpEvent, RcProgress, Reason, RemoteRights, Status, Time, TransportOps,
    WorkOperation, WorkQueues, WorkRequest, limits, packets_for, partitions_match, plain_bth,
};

/// What a connection is told on its way to RTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UcSettings {
    /// What it runs over.
    pub link: Link,
    /// The peer's queue pair number, 24 bits.
    pub destination: u32,
    /// Partition key.
    pub partition: u16,
    /// The first PSN that the peer will send (`rq_psn`).
    pub receive_psn: u32,
    /// What the peer may do; of no meaning for reads and atomics, which UC does not have.
    pub remote_rights: RemoteRights,
}

impl ProtocolCounters {
    /// Counts a packet of UC that ended so.
    fn count_uc(&mut self, disposition: Disposition) {
        self.no_receive += u64::from(disposition == Disposition::Dropped(DropCause::NoReceive));
        self.stale += u64::from(matches!(disposition, Disposition::Dropped(_) | Disposition::Duplicate));
    }
}

/// Both halves of a UC queue pair.
#[derive(Debug, Default)]
pub struct UcConnection {
    link: Link,
    destination: u32,
    partition: u16,
    queue: VecDeque<WorkRequest>,
    /// Packets of the first work request in the queue that were sent.
    sent: u32,
    next: Psn,
    running: bool,
    draining: bool,
    /// The peer may still have to take packets of a link that loses nothing.
    undelivered: bool,
    expected: Psn,
    placer: Placer,
    waiting: bool,
    established: bool,
    dead: bool,
    meter: Meter,
    /// When the first packet came.
    first_packet_at: Option<Time>,
    /// Packets that came before one that is missing, and since when it is.
    kept: ReorderBuffer,
    gap_since: Option<Time>,
    counters: ProtocolCounters,
}

impl UcConnection {
    /// A connection in RTR: it receives and sends nothing.
    pub fn new(settings: UcSettings) -> UcConnection {
        UcConnection {
            link: settings.link,
            destination: settings.destination,
            partition: settings.partition,
            expected: Psn::new(settings.receive_psn),
            placer: Placer::new(settings.remote_rights).dropping_long_messages(),
            meter: Meter::new(settings.link.request_mtu),
            ..UcConnection::default()
        }
    }

    /// Whether the peer is another Pagewire, which reports what has arrived, or a standard one.
    pub fn set_reporting(&mut self, on: bool) {
        self.meter.set_reporting(on);
    }

    /// The peer has another connection with this one, whose first packet has the PSN `first`: what it sends
    /// is nothing that was sent before.
    pub fn peer_began_anew(&mut self, first: u32) {
        self.placer.forget_message();
        self.expected = Psn::new(first);
        self.gap_since = None;
        self.kept.clear();
    }

    /// Tells how many connections of this process share its sockets: they share what may be on the way, too.
    pub fn set_sharers(&mut self, sharers: u32) {
        self.meter.set_sharers(sharers);
    }

    /// Takes one of Pagewire's own packets of this connection, which must come from the peer.
    pub fn receive_control(&mut self, body: &VendorPacket) {
        match body {
            VendorPacket::SelectiveAck(report) => self.meter.report(Psn::new(report.expected), self.next),
            VendorPacket::Hello(_)
            | VendorPacket::Hold(_)
            | VendorPacket::Resume(_)
            | VendorPacket::Skip(_) => self.counters.stale += 1,
        }
    }

    /// Goes to RTS: posted work is sent from now on, the first packet with `send_psn`.
    pub fn start_requester(&mut self, send_psn: u32) {
        self.next = Psn::new(send_psn);
        self.meter.start(self.next);
        self.running = true;
        self.established = true;
    }

    /// Takes a work request: SEND without invalidate, WRITE, or local. The caller bounds how many there are.
    pub fn post(&mut self, work: WorkRequest) {
        self.queue.push_back(work);
    }

    /// Takes one packet of this connection. One that is `Held` is offered again before others.
    pub fn receive<E: MemoryAccess + WorkQueues>(
        &mut self,
        now: Time,
        header: &PacketHeader,
        payload: Payload<'_>,
        ops: &mut E,
    ) -> Disposition {
        let again = std::mem::take(&mut self.waiting);
        if !again {
            self.counters.packets_received += 1;
        }
        let opcode = header.bth.opcode;
        let code = opcode.operation().filter(|_| opcode.transport() == Transport::Uc);
        let disposition = match code {
            _ if self.dead => Disposition::Dropped(DropCause::WrongState),
            None => Disposition::Dropped(DropCause::Malformed),
            Some(_) if !partitions_match(header.bth.partition, self.partition) => {
                Disposition::Dropped(DropCause::WrongPartition)
            }
            Some(code) => self.receive_in_order(now, code, header, payload, ops),
        };
        self.counters.count_uc(disposition);
        match disposition {
            Disposition::Held { reason, .. } => Disposition::Held { reason, again },
            other => other,
        }
    }

    /// Takes a packet by its PSN (section 9.8.2.2.2).
    fn receive_in_order<E: MemoryAccess + WorkQueues>(
        &mut self,
        now: Time,
        code: Code,
        header: &PacketHeader,
        payload: Payload<'_>,
        ops: &mut E,
    ) -> Disposition {
        if !self.established {
            self.established = true;
            ops.event(QpEvent::CommunicationEstablished);
        }
        self.first_packet_at.get_or_insert(now);
        let psn = Psn::new(header.bth.psn);
        if psn != self.expected {
            if let Some(disposition) = self.set_aside(now, psn, header, payload) {
                return disposition;
            }
            // Whatever was coming in is incomplete.
            self.counters.out_of_order += 1;
            self.placer.forget_message();
            self.expected = psn;
            self.gap_since = None;
            self.kept.clear();
        }
        let disposition = self.take(code, header, payload, ops);
        if !disposition.is_held() {
            self.kept.advance(1);
            // A kept packet that has to wait is tried again by `progress`.
            self.drain(now, ops);
        }
        disposition
    }

    /// The packet that is `Held` will not be offered again: it is lost, and its message with it.
    #[cold]
    pub fn abandon(&mut self) {
        if std::mem::take(&mut self.waiting) {
            self.counters.faults_dropped += 1;
            self.placer.forget_message();
            self.expected = self.expected.plus(1);
            self.meter.received();
            self.kept.advance(1);
        }
    }

    /// Executes the packet that is expected.
    fn take<E: MemoryAccess + WorkQueues>(
        &mut self,
        code: Code,
        header: &PacketHeader,
        payload: Payload<'_>,
        ops: &mut E,
    ) -> Disposition {
        let disposition = match self.execute(code, header, payload.first(1), ops) {
            Ok(_) => Disposition::Executed(1),
            Err(PlacementStop::Wait(reason)) => {
                self.waiting = true;
                return Disposition::Held { reason, again: false };
            }
            Err(PlacementStop::ReceiveFailed(_)) => {
                self.dead = true;
                ops.event(QpEvent::RequestError);
                Disposition::Dropped(DropCause::NoAccess)
            }
            // In silence: UC has no NAK (section 9.8.2.2.5).
            Err(PlacementStop::NotReady) => Disposition::Dropped(DropCause::NoReceive),
            Err(PlacementStop::Invalid) => Disposition::Dropped(DropCause::Malformed),
            Err(PlacementStop::Denied(_)) => Disposition::Dropped(DropCause::NoAccess),
        };
        if matches!(disposition, Disposition::Dropped(_)) {
            self.placer.forget_message();
        }
        self.expected = self.expected.plus(1);
        self.meter.received();
        disposition
    }

    /// A packet that is not the expected one: kept for its turn, or dropped because its turn is over. `None`: what is missing before it is
    /// given up.
    fn set_aside(
        &mut self,
        now: Time,
        psn: Psn,
        header: &PacketHeader,
        payload: Payload<'_>,
    ) -> Option<Disposition> {
        let standard = self.meter.peer_is_standard() || self.has_not_greeted(now);
        // What was kept before that was known is not lost by it: its turn comes in time.
        if self.link.lossless || standard && self.kept.is_empty() {
            return None;
        }
        if self.expected.since(psn) <= limits::LOSSY_SPAN {
            return Some(Disposition::Dropped(DropCause::Stale));
        }
        let Payload::Bytes(burst) = payload else { return None };
        let (ahead, bytes) = (psn.since(self.expected), burst.first().copied().unwrap_or_default());
        if self.kept.has(ahead) {
            return Some(Disposition::Duplicate);
        }
        if !self.kept.insert(ahead, header, bytes) {
            return None;
        }
        self.gap_since.get_or_insert(now);
        Some(Disposition::Kept)
    }

    /// Whether the peer has not said what it is in so long a time that it is no Pagewire whose greetings were lost.
    fn has_not_greeted(&self, now: Time) -> bool {
        let since = self.first_packet_at.filter(|_| self.meter.peer_is_unknown());
        since.is_some_and(|since| now.0.saturating_sub(since.0) >= limits::LONGEST_GREETING)
    }

    /// Executes kept packets whose turn has come. True: one has to wait.
    fn drain<E: MemoryAccess + WorkQueues>(&mut self, now: Time, ops: &mut E) -> bool {
        while let Some(kept) = self.kept.take_first() {
            let Some(code) = kept.header.bth.opcode.operation().filter(|_| !self.dead) else { break };
            let disposition = self.take(code, &kept.header, Payload::Bytes(&[&kept.bytes]), ops);
            if disposition.is_held() {
                self.waiting = false;
                self.kept.put_back(kept);
                return true;
            }
            self.counters.count_uc(disposition);
            self.kept.advance(1);
        }
        self.gap_since = (!self.kept.is_empty()).then_some(now);
        false
    }

    /// Gives up on a packet that did not come in time.
    fn skip_gap<E: MemoryAccess + WorkQueues>(&mut self, now: Time, ops: &mut E) {
        let late = self.gap_since.is_some_and(|since| now.0.saturating_sub(since.0) >= limits::UC_REORDERING);
        let Some(missing) = self.kept.iter().next().map(|(index, _)| index).filter(|_| late) else { return };
        if missing > 0 {
            self.counters.out_of_order += 1;
            self.placer.forget_message();
            self.expected = self.expected.plus(missing);
            self.kept.advance(missing);
        }
        self.drain(now, ops);
    }

    /// Sends what may go, at most [`PROGRESS_PACKETS`](limits::PROGRESS_PACKETS) packets. A work request is
    /// complete when its last packet was handed out. One that fails ends the send queue alone (SQE): what was
    /// posted behind it is the caller's to flush, and what is posted later goes on with the next PSN.
    pub fn progress<E: TransportOps>(&mut self, now: Time, ops: &mut E) -> RcProgress {
        let kept_waits = self.drain_kept(now, ops);
        if self.meter.owes_report() && !self.link.lossless && !self.dead {
            self.report(ops);
        }
        let idle = if kept_waits { RcProgress::Wait } else { RcProgress::Idle };
        for _ in 0..limits::PROGRESS_PACKETS {
            let Some(&work) = self.queue.front() else { return idle };
            if !self.may_send() || !self.link.lossless && !self.meter.permits(self.next, now) {
                return idle;
            }
            if let WorkOperation::Failing { status } = work.operation {
                self.end_queue(&work, status, ops);
                return idle;
            }
            let outcome = match work.operation {
                WorkOperation::Local(_) => ops.execute_local(work.id).map(|()| true),
                WorkOperation::Write { immediate: None, .. }
                    if self.link.initiator_copy && self.sent == 0 =>
                {
                    self.initiator_copy(&work, ops)
                }
                WorkOperation::Send { .. } | WorkOperation::Write { .. } => self.send_packet(&work, ops),
                WorkOperation::Read { .. }
                | WorkOperation::Atomic { .. }
                | WorkOperation::AtomicWrite { .. }
                | WorkOperation::Flush { .. }
                | WorkOperation::Failing { .. } => Outcome::Denied(Denial::InvalidRequest),
            };
            match outcome {
                Outcome::Done(false) => {}
                Outcome::Done(true) => {
                    self.queue.pop_front();
                    self.sent = 0;
                    ops.complete(work.id, Status::Success);
                }
                Outcome::Wait(_) => return RcProgress::Wait,
                Outcome::Denied(denial) => {
                    let status = match work.operation {
                        WorkOperation::Local(local) => local.refused(),
                        _ => denied_status(denial),
                    };
                    self.end_queue(&work, status, ops);
                    return idle;
                }
            }
        }
        if self.queue.is_empty() { idle } else { RcProgress::Again }
    }

    /// The oldest work request ends with an error, and with it the send queue.
    fn end_queue<E: WorkQueues>(&mut self, work: &WorkRequest, status: Status, ops: &mut E) {
        self.queue.clear();
        self.sent = 0;
        ops.complete(work.id, status);
    }

    /// Kept packets, if there are any. True: one has to wait.
    fn drain_kept<E: MemoryAccess + WorkQueues>(&mut self, now: Time, ops: &mut E) -> bool {
        if self.kept.is_empty() || self.dead {
            return false;
        }
        self.skip_gap(now, ops);
        self.kept.has(0) && self.drain(now, ops)
    }

    fn report<E: PacketSink>(&mut self, ops: &mut E) {
        let report =
            SelectiveAck { expected: self.expected.value(), message: 0, received: Received::default() };
        let bth = plain_bth(Opcode::SELECTIVE_ACK, self.destination, self.partition, self.expected);
        // One that finds no room is made at the next turn.
        if let Outcome::Done(_) =
            ops.transmit_control(&PacketHeader::new(bth), &VendorPacket::SelectiveAck(report))
        {
            self.meter.reported();
        }
    }

    /// When to drive again though nothing comes: a report or a missing packet is overdue. `None` while that would
    /// do nothing.
    pub fn deadline(&self) -> Option<Time> {
        let report = self.meter.deadline().filter(|_| self.may_send() && !self.queue.is_empty());
        // A packet whose turn has come waits for something else.
        let gap = self.gap_since.filter(|_| !self.dead && !self.kept.has(0));
        let gap = gap.map(|since| Time(since.0 + limits::UC_REORDERING));
        report.into_iter().chain(gap).min()
    }

    fn may_send(&self) -> bool {
        self.running && !self.dead && !(self.draining && self.sent == 0)
    }

    /// Stops (or lets go on) the start of further work requests (SQD).
    pub fn set_draining(&mut self, on: bool) {
        self.draining = on;
    }

    /// No work request was sent in part.
    pub fn is_drained(&self) -> bool {
        self.sent == 0
    }

    /// Work requests posted and not complete.
    pub fn outstanding(&self) -> usize {
        self.queue.len()
    }

    /// The connection completed a receive with an error: it does nothing any more. What is posted and not
    /// complete is the caller's to flush.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Changes what the peer may do.
    pub fn set_remote_rights(&mut self, rights: RemoteRights) {
        self.placer.rights = rights;
    }

    /// What it has seen so far.
    pub fn counters(&self) -> ProtocolCounters {
        self.counters
    }

    /// Tries a WRITE without packets, unless it would overtake some; true: it is complete.
    fn initiator_copy<E: PacketSink + MemoryAccess>(
        &mut self,
        work: &WorkRequest,
        ops: &mut E,
    ) -> Outcome<bool> {
        self.undelivered = self.undelivered && ops.link() == LinkState::Pending;
        if self.undelivered {
            return self.send_packet(work, ops);
        }
        match ops.initiator_copy(work) {
            crate::InitiatorCopy::Done => {
                self.counters.initiator_copies += 1;
                Outcome::Done(true)
            }
            crate::InitiatorCopy::Wait => Outcome::Wait(Reason::Page),
            crate::InitiatorCopy::Unavailable => self.send_packet(work, ops),
        }
    }

    /// Sends the next packet of a work request; true: it was the last.
    fn send_packet<E: PacketSink>(&mut self, work: &WorkRequest, ops: &mut E) -> Outcome<bool> {
        let packets = packets_for(work.length, self.link.request_mtu);
        let place = MessagePosition::of(self.sent, packets);
        let (code, reth, immediate) = match work.operation {
            WorkOperation::Send { immediate, .. } => {
                (send_code(place, immediate.is_some(), false), None, immediate)
            }
            WorkOperation::Write { remote, immediate } => {
                let reth =
                    pagewire_wire::Reth { address: remote.address, key: remote.key, length: work.length };
                (write_code(place, immediate.is_some()), Some(reth), immediate)
            }
            WorkOperation::Read { .. }
            | WorkOperation::Atomic { .. }
            | WorkOperation::AtomicWrite { .. }
            | WorkOperation::Flush { .. }
            | WorkOperation::Local(_)
            | WorkOperation::Failing { .. } => {
                return Outcome::Denied(Denial::InvalidRequest);
            }
        };
        let opcode = Opcode::new(Transport::Uc, code);
        let mut header = PacketHeader::new(plain_bth(opcode, self.destination, self.partition, self.next));
        header.reth = reth.filter(|_| place.is_start());
        header.immediate = immediate.filter(|_| place.is_end());
        let reports = reth.is_none() || immediate.is_some();
        header.bth.solicited = place.is_end() && work.solicited && reports;
        match ops.transmit(&header, piece(work, self.sent, self.link.request_mtu, false), 1) {
            Outcome::Done(_) => {}
            Outcome::Wait(reason) => return Outcome::Wait(reason),
            Outcome::Denied(denial) => return Outcome::Denied(denial),
        }
        self.counters.requests_sent += 1;
        self.undelivered = self.link.lossless;
        self.next = self.next.plus(1);
        self.sent += 1;
        Outcome::Done(self.sent == packets)
    }

    fn execute<E: MemoryAccess + WorkQueues>(
        &mut self,
        code: Code,
        header: &PacketHeader,
        payload: Payload<'_>,
        ops: &mut E,
    ) -> Result<Placed, PlacementStop> {
        let Some(part) = part_of(code) else { return Err(PlacementStop::Invalid) };
        if part.1.is_start() {
            // Ends whatever was coming in before (section 9.8.2.2.3).
            self.placer.forget_message();
        }
        self.placer.place(part, header, payload, &self.link, ops)
    }
}

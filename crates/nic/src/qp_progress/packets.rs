//! What comes in for a queue pair: which packets are for it, and their way into the protocol.

use super::page_waits::Purpose;
use super::{Connection, QpContext};
use crate::access::AccessSession;
use crate::attributes::{Attributes, QueuePairType};
use crate::device::address_of_gid;
use crate::engine::Nic;
use crate::inbox::{Content, Half, Incoming, Origin};
use crate::path::Path;
use crate::pull::Lost;
use crate::queue_pair::QueuePair;
use crate::transport_ops::QpTransportOps;
use pagewire_fabric::Fabric;
use pagewire_paging::Fate;
use pagewire_transport::{FaultHandling, Outcome, RcConnection, SendOnlyRequest, Time};
use pagewire_wire::{Header, Opcode, Operation, Transport, VendorPacket};
use std::net::IpAddr;

/// What packets share that a thread takes in a row while it holds the queue pair.
pub(crate) struct Burst<'n> {
    /// When it began.
    now: Time,
    session: AccessSession<'n>,
}

impl<'n> Burst<'n> {
    /// A row that begins now, with the queue pair in hand: time does not go back for who had it before.
    pub(crate) fn begin<F: Fabric>(nic: &'n Nic<F>) -> Self {
        Burst { now: Time(nic.fabric().now()), session: AccessSession::new(nic) }
    }

    /// When it began.
    pub(crate) fn now(&self) -> Time {
        self.now
    }
}

impl<F: Fabric> QueuePair<F> {
    /// Whether its peer is at an address, given its attributes. Datagrams may come from everywhere.
    pub(crate) fn has_peer_at(&self, source: IpAddr, attributes: &Attributes) -> bool {
        self.kind == QueuePairType::Ud || address_of_gid(attributes.address.destination_gid) == source
    }

    /// Whether a packet is for this queue pair, if it comes from where it should: right type, right partition.
    pub(crate) fn accepts(&self, header: &Header, origin: &Origin<F>) -> bool {
        let kind = match header.bth.opcode.transport() {
            Transport::Rc | Transport::Cnp => self.kind == QueuePairType::Rc,
            Transport::Uc => self.kind == QueuePairType::Uc,
            Transport::Ud => self.kind == QueuePairType::Ud,
            // Rings lose nothing: there is nothing to say there but that the peer has begun.
            Transport::Manufacturer => {
                let said = matches!(origin, Origin::Network { .. }) || header.bth.opcode == Opcode::HELLO;
                self.kind != QueuePairType::Ud && said
            }
            _ => false,
        };
        kind && is_default_partition(header.bth.partition) && self.state().receives()
    }

    /// Whether a SEND over a ring is one for it.
    #[inline(always)] // Part of each short SEND.
    pub(crate) fn accepts_send(&self, send: &SendOnlyRequest) -> bool {
        self.kind == QueuePairType::Rc && is_default_partition(send.partition) && self.state().receives()
    }

    /// Whether what came over a ring comes from the process that holds the peer. `None`: not known yet.
    pub(crate) fn is_from_peer(&self, qpc: &QpContext<F>, origin: &Origin<F>) -> Option<bool> {
        let Origin::Local(theirs) = origin else { return Some(true) };
        match &qpc.path {
            Path::Local(ours) => Some(ours.channel.instance == theirs.channel.instance),
            Path::None | Path::Connecting { .. } => None,
            // Nothing could be answered, and what packets mean is not what it means to the peer.
            Path::Dead { .. } => Some(false),
            // This side would not have it, or could not: what the peer publishes has to do.
            Path::Udp { .. } => Some(theirs.place_of(qpc.attributes.destination).is_some()),
        }
    }

    /// Has one packet processed by the thread that drives. False: it has to wait.
    pub(crate) fn take_packet(
        &self,
        qpc: &mut QpContext<F>,
        packet: &Incoming<'_, F>,
        burst: &mut Burst<'_>,
    ) -> bool {
        self.take_or_hold(qpc, packet, burst, true)
    }

    /// Has one packet processed by the thread that drives. False: it has to wait. `tells`: its source does not know yet that it
    /// waits.
    fn take_or_hold(
        &self,
        qpc: &mut QpContext<F>,
        packet: &Incoming<'_, F>,
        burst: &mut Burst<'_>,
        tells: bool,
    ) -> bool {
        let Incoming { header, payload, global_route, origin } = packet;
        let (payload, origin) = (*payload, *origin);
        if !qpc.attributes.state.receives() {
            return true;
        }
        if qpc.wants_path() {
            let attributes = qpc.attributes;
            qpc.establish(self, &attributes);
        }
        let (now, session) = (burst.now, &mut burst.session);
        if self.kind != QueuePairType::Rc && self.waits_for_receive(qpc, header, now.0) {
            // A direct WRITE behind it may not overtake it.
            self.set_holding(qpc, self.kind == QueuePairType::Uc);
            return false;
        }
        if matches!(qpc.connection, Connection::Ud) {
            let global_route = global_route.as_ref();
            let drops = self.drops_faulting(origin);
            return self.take_datagram(qpc, header, payload, global_route, session, drops);
        }
        match self.is_from_peer(qpc, origin) {
            Some(true) => {}
            Some(false) => {
                self.counters.dropped.add(1);
                return true;
            }
            None => {
                self.set_holding(qpc, true);
                return false;
            }
        }
        if header.bth.opcode == Opcode::HELLO {
            self.establish_communication(qpc);
            return true;
        }
        let mut connection = std::mem::replace(&mut qpc.connection, Connection::None);
        let before = match &connection {
            Connection::Rc(rc) => rc.packets_at_absent_pages(),
            _ => (0, 0),
        };
        let mut ops = QpTransportOps::new(self, qpc, Some(origin), session);
        let outcome = match &mut connection {
            Connection::Rc(rc) => rc.receive(now, header, payload, &mut ops),
            Connection::Uc(uc) => uc.receive(now, header, payload, &mut ops),
            // Not known yet how to answer: the packet waits for the path.
            Connection::None | Connection::Ud => Outcome::Wait,
        };
        let half = Half::of(header);
        let waits = matches!(outcome, Outcome::Wait);
        if let (true, Half::Responder, Connection::Rc(rc)) = (waits && tells, half, &mut connection) {
            // A HOLD that finds no room is sent with the next one.
            let _ = rc.hold(now, &mut ops);
        }
        let ended = ops.finish();
        let (lost, lacks_page) = (ended.lost.filter(|_| waits), ended.lacks_page);
        if let (true, Connection::Rc(rc)) = (lacks_page, &connection) {
            self.note_fate(qpc, rc, half, before);
        }
        match (lost, &mut connection) {
            (Some(Lost::SenderGone), Connection::Rc(rc)) => rc.abandon_request(),
            (Some(Lost::Unreadable), Connection::Rc(rc)) => rc.ask_again(),
            _ => {}
        }
        let mut waits = waits && lost.is_none();
        if let (true, Connection::Uc(uc)) = (waits, &mut connection) {
            if lacks_page && self.drops_faulting(origin) {
                uc.abandon();
                qpc.forget_access(Purpose::Execute);
                waits = false;
            }
        }
        qpc.connection = connection;
        if half == Half::Responder {
            self.set_holding(qpc, waits);
        }
        self.apply_end(qpc, ended);
        !waits
    }

    /// Counts a packet that found a page absent. `before`: how many had, and were kept or dropped.
    #[cold]
    fn note_fate(&self, qpc: &QpContext<F>, rc: &RcConnection, half: Half, before: (u64, u64)) {
        let (stashed, dropped) = rc.packets_at_absent_pages();
        let purpose = match half {
            Half::Requester => Purpose::PlaceResponse,
            Half::Responder => Purpose::Execute,
        };
        let fate = match (stashed > before.0, dropped > before.1) {
            (true, _) => Fate::Stashed,
            (false, true) if rc.asks_for_dropped(half == Half::Requester) => Fate::Resumed,
            (false, true) => Fate::TimedOut,
            // It was counted when it came first.
            (false, false) => return,
        };
        self.nic.page_faults.note_packet(qpc.page_waits.region(purpose), fate);
    }

    /// What becomes of its packets that find a page absent.
    pub(super) fn fault_handling(&self) -> FaultHandling {
        self.nic.options().page_faults.of(&self.domain.context().device().name)
    }

    /// Whether a packet of UC or UD that waits for a page is dropped. Inside a host nothing is lost.
    fn drops_faulting(&self, origin: &Origin<F>) -> bool {
        self.fault_handling() != FaultHandling::Stash && matches!(origin, Origin::Network { .. })
    }

    /// Has packets processed that make a burst, with the header and origin of the first.
    /// Gives how many were: [`take_packet`](Self::take_packet) says what the next one waits for.
    pub(crate) fn take_burst(
        &self,
        qpc: &mut QpContext<F>,
        first: &Incoming<'_, F>,
        payloads: &[&[u8]],
        burst: &mut Burst<'_>,
    ) -> usize {
        if !qpc.attributes.state.receives() || qpc.wants_path() {
            return 0;
        }
        let Connection::Rc(mut rc) = std::mem::replace(&mut qpc.connection, Connection::None) else {
            return 0;
        };
        let mut ops = QpTransportOps::new(self, qpc, Some(first.origin), &mut burst.session);
        let taken = rc.receive_burst(burst.now, &first.header, payloads, &mut ops);
        let ended = ops.finish();
        qpc.connection = Connection::Rc(rc);
        self.apply_end(qpc, ended);
        taken
    }

    /// Whether an unreliable message that finds no receive is kept a little longer.
    fn waits_for_receive(&self, qpc: &mut QpContext<F>, header: &Header, now: u64) -> bool {
        let takes = matches!(
            header.bth.opcode.operation(),
            Some(
                Operation::SendFirst
                    | Operation::SendOnly
                    | Operation::SendOnlyImmediate
                    | Operation::WriteLastImmediate
                    | Operation::WriteOnlyImmediate
            )
        );
        if !takes {
            qpc.receive_wait.look_anew();
            return false;
        }
        if qpc.receive.is_some() || self.has_receive() {
            qpc.receive_wait.end();
            return false;
        }
        qpc.receive_wait.go_on(now, self.recv_cq.has_waiting())
    }

    /// Takes packets out of the inbox until one has to wait on.
    pub(super) fn take_waiting(&self, qpc: &mut QpContext<F>, half: Half) {
        if self.inbox.is_empty(half) {
            return;
        }
        let mut burst = Burst::begin(&self.nic);
        // A look at what waited before says nothing new; what comes after it has not waited yet.
        let mut tells = half == Half::Responder && self.inbox.take_arrival();
        loop {
            let Some(packet) = self.inbox.pop(half) else {
                if let (Half::Responder, true, Connection::Rc(rc)) =
                    (half, self.inbox.take_overflow(), &mut qpc.connection)
                {
                    rc.dropped_for_room();
                }
                return;
            };
            let taken = match &packet.content {
                Content::Packet { header, payload, global_route } => {
                    let (header, global_route) = (*header, *global_route);
                    let (payload, origin) = (payload.payload(), &packet.origin);
                    let packet = Incoming { header, payload, global_route, origin };
                    self.take_or_hold(qpc, &packet, &mut burst, tells)
                }
                Content::Vendor(own) => {
                    self.take_vendor_packet(qpc, own);
                    true
                }
            };
            if !taken {
                self.inbox.put_back(packet);
                return;
            }
            tells = true;
        }
    }

    /// A packet of Pagewire's own.
    fn take_vendor_packet(&self, qpc: &mut QpContext<F>, own: &VendorPacket) {
        let now = Time(self.nic.fabric().now());
        let answer = match own {
            VendorPacket::Hello(greeting) => qpc.take_hello(self, greeting),
            _ => None,
        };
        let mut connection = std::mem::replace(&mut qpc.connection, Connection::None);
        let mut session = AccessSession::new(&self.nic);
        let mut ops = QpTransportOps::new(self, qpc, None, &mut session);
        if let Some(answer) = answer {
            ops.transmit_hello(&answer);
        }
        match (&mut connection, own) {
            (_, VendorPacket::Hello(_)) | (Connection::None | Connection::Ud, _) => {}
            (Connection::Rc(rc), _) => rc.receive_control(now, own, &mut ops),
            (Connection::Uc(uc), _) => uc.receive_control(own),
        }
        let ended = ops.finish();
        qpc.connection = connection;
        self.apply_end(qpc, ended);
    }
}

/// Whether a P_Key is the one that every port has, full or limited.
fn is_default_partition(partition: u16) -> bool {
    partition & 0x7FFF == 0x7FFF
}

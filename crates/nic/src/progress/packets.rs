//! What comes in for a queue pair: which packets are for it, and their way into the protocol.

use crate::access::AccessSession;
use crate::access::fault_state::Purpose;
use crate::path::Path;
use crate::progress::transport_ops::QpTransportOps;
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::{Content, Incoming, KeptPayload, Origin};
use crate::queue_pair::qp_context::{Connection, QpContext};
use crate::services::Services;
use crate::types::attributes::{Attributes, QueuePairType};
use crate::types::gid::address_of_gid;
use crate::types::qp_role::QpRole;
use pagewire_fabric::Fabric;
use pagewire_paging::FaultCounts;
use pagewire_transport::{Disposition, DropCause, FaultHandling, Payload, Reason, SendOnlyRequest, Time};
use pagewire_wire::{Header, Opcode, Operation, Transport, VendorPacket};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// What packets share that a thread takes one after the other while it holds the queue pair.
pub(crate) struct Burst<'n, F: Fabric> {
    /// When it began.
    now: Time,
    session: AccessSession<'n, F>,
}

impl<'n, F: Fabric> Burst<'n, F> {
    /// Begins now, with the queue pair in hand: time does not go back for who had it before.
    pub(crate) fn begin(services: &'n Services<F>) -> Self {
        Burst { now: Time(services.fabric.now()), session: AccessSession::new(services) }
    }

    /// When it began.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The access to memory that its packets share.
    pub(crate) fn session(&mut self) -> &mut AccessSession<'n, F> {
        &mut self.session
    }
}

impl<F: Fabric> QueuePair<F> {
    /// Whether its peer is at an address, given its attributes. Datagrams may come from everywhere.
    pub(crate) fn has_peer_at(&self, source: IpAddr, attributes: &Attributes) -> bool {
        self.kind == QueuePairType::Ud || address_of_gid(attributes.address.destination_gid) == source
    }

    /// Whether a packet is for this queue pair, if it comes from where it should: right type, right partition.
    ///
    /// # Errors
    /// Why it is dropped.
    pub(crate) fn accepts(&self, header: &Header, origin: &Origin<F>) -> Result<(), DropCause> {
        let kind = match header.bth.opcode.transport() {
            Transport::Rc | Transport::Cnp => self.kind == QueuePairType::Rc,
            Transport::Uc => self.kind == QueuePairType::Uc,
            Transport::Ud => self.kind == QueuePairType::Ud,
            // Rings lose nothing: there is nothing to say there but that the peer has begun, or goes on behind a refusal.
            Transport::Manufacturer => {
                let said = matches!(origin, Origin::Network)
                    || matches!(header.bth.opcode, Opcode::HELLO | Opcode::SKIP);
                self.kind != QueuePairType::Ud && said
            }
            _ => false,
        };
        if !kind {
            return Err(DropCause::Malformed);
        }
        if !is_default_partition(header.bth.partition) {
            return Err(DropCause::WrongPartition);
        }
        if self.state().receives() { Ok(()) } else { Err(DropCause::WrongState) }
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

    /// Has a packet processed by the thread that drives, and those of its burst that go with it.
    pub(crate) fn take_packet(
        &self,
        qpc: &mut QpContext<F>,
        packet: &Incoming<'_, F>,
        burst: &mut Burst<'_, F>,
    ) -> Disposition {
        let &Incoming { ref header, payload, origin, .. } = packet;
        if !qpc.attributes.state.receives() {
            return self.drop_packet(DropCause::WrongState);
        }
        if qpc.wants_path() {
            let attributes = qpc.attributes;
            qpc.establish(self, &attributes);
        }
        if matches!(qpc.connection, Connection::Ud) {
            return self.take_datagram(qpc, packet, burst);
        }
        let (now, session) = (burst.now, &mut burst.session);
        if self.kind == QueuePairType::Uc && self.waits_for_receive(qpc, header, now) {
            // A direct WRITE behind it may not overtake it.
            self.set_holding(qpc, true);
            return Disposition::Held { reason: Reason::Receive, again: false };
        }
        match self.is_from_peer(qpc, origin) {
            Some(true) => {}
            Some(false) => return self.drop_packet(DropCause::WrongSource),
            None => {
                self.set_holding(qpc, true);
                return Disposition::Held { reason: Reason::Path, again: false };
            }
        }
        if header.bth.opcode == Opcode::HELLO {
            self.establish_communication(qpc);
            return Disposition::Executed(1);
        }
        if header.bth.opcode == Opcode::SKIP {
            return self.take_skip(qpc, payload);
        }
        let mut connection = std::mem::replace(&mut qpc.connection, Connection::None);
        let mut ops = QpTransportOps::new(self, qpc, Some(origin), session);
        let mut disposition = match &mut connection {
            Connection::Rc(rc) => rc.receive(now, header, payload, &mut ops),
            Connection::Uc(uc) => uc.receive(now, header, payload, &mut ops),
            // Not known yet how to answer: the packet waits for the path.
            Connection::None | Connection::Ud => Disposition::Held { reason: Reason::Path, again: false },
        };
        let ended = ops.finish();
        match (&mut connection, disposition) {
            (_, Disposition::Executed(_)) => {}
            (Connection::Rc(_), _) => self.note_fate(qpc, QpRole::of(header), disposition),
            (Connection::Uc(uc), Disposition::Held { reason: Reason::Page, .. })
                if self.drops_faulting(origin) =>
            {
                uc.abandon();
                qpc.forget_access(Purpose::Execute);
                disposition = Disposition::Dropped(DropCause::AbsentPage { resumes: false });
            }
            _ => {}
        }
        qpc.put_back(connection);
        if QpRole::of(header) == QpRole::Responder {
            self.set_holding(qpc, disposition.is_held());
        }
        self.apply_end(qpc, ended);
        disposition
    }

    /// Answers a peer that asks again for what the queue pair has refused, and has ended with. False: the packet asks for nothing of that.
    #[cold]
    pub(crate) fn repeat_refusal(&self, header: &Header, source: IpAddr) -> bool {
        if !self.repeats_refusal.load(Ordering::Acquire) || header.bth.opcode.transport() != Transport::Rc {
            return false;
        }
        // Whoever has it changes the state, or answers another packet: the peer asks again.
        let Some(mut qpc) = self.qpc.try_lock() else { return false };
        if !self.has_peer_at(source, &qpc.attributes) {
            return false;
        }
        let Some(mut refused) = qpc.refused.take() else { return false };
        let mut session = AccessSession::new(&self.services);
        let mut ops = QpTransportOps::new(self, &mut qpc, Some(&Origin::Network), &mut session);
        let disposition = refused.answer_after_refusal(header, &mut ops);
        ops.finish();
        qpc.refused = Some(refused);
        !matches!(disposition, Disposition::Dropped(_))
    }

    /// Counts a packet that is dropped before the protocol sees it.
    pub(crate) fn drop_packet(&self, cause: DropCause) -> Disposition {
        self.counters.dropped.add(1);
        Disposition::Dropped(cause)
    }

    /// Counts a packet that found a page absent.
    #[cold]
    fn note_fate(&self, qpc: &QpContext<F>, half: QpRole, disposition: Disposition) {
        let purpose = match half {
            QpRole::Requester => Purpose::PlaceResponse,
            QpRole::Responder => Purpose::Execute,
        };
        let none = FaultCounts::default();
        let counts = match disposition {
            Disposition::Held { reason: Reason::Page, again: false } => FaultCounts { stashed: 1, ..none },
            Disposition::Dropped(DropCause::AbsentPage { resumes: true }) => {
                FaultCounts { resumed: 1, ..none }
            }
            Disposition::Dropped(DropCause::AbsentPage { resumes: false }) => {
                FaultCounts { timed_out: 1, ..none }
            }
            _ => return,
        };
        self.services.page_faults.note_packet(qpc.page_waits.region(purpose), counts);
    }

    /// Whether a packet of UC or UD that waits for a page is dropped. Inside a host nothing is lost.
    pub(crate) fn drops_faulting(&self, origin: &Origin<F>) -> bool {
        self.fault_handling() != FaultHandling::Stash && matches!(origin, Origin::Network)
    }

    /// Whether an unreliable message that finds no receive is kept a little longer.
    pub(crate) fn waits_for_receive(&self, qpc: &mut QpContext<F>, header: &Header, now: Time) -> bool {
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
        qpc.receive_wait.go_on(now.0, self.recv_cq.waiting() > 0)
    }

    /// Takes packets out of the inbox until one has to wait on.
    pub(crate) fn take_waiting(&self, qpc: &mut QpContext<F>, half: QpRole) {
        if self.inbox.is_empty(half) {
            return;
        }
        let mut burst = Burst::begin(&self.services);
        let has_arrival = half == QpRole::Responder && self.inbox.take_arrival();
        while let Some(packet) = self.inbox.pop(half) {
            let disposition = match &packet.content {
                Content::Packet { header, payload, global_route } => {
                    let (header, global_route, origin) = (*header, *global_route, &packet.origin);
                    let bytes;
                    let payload = match payload {
                        KeptPayload::Bytes(kept) => {
                            bytes = [&kept[..]];
                            Payload::Bytes(&bytes)
                        }
                        KeptPayload::Reference(pieces) => Payload::Reference(pieces),
                    };
                    self.take_packet(qpc, &Incoming { header, payload, global_route, origin }, &mut burst)
                }
                Content::Vendor(own) => {
                    self.take_vendor_packet(qpc, own);
                    Disposition::Executed(1)
                }
            };
            if let Disposition::Held { again, .. } = disposition {
                self.inbox.put_back(packet);
                if let (true, true, Connection::Rc(rc)) = (again, has_arrival, &mut qpc.connection) {
                    rc.hold();
                }
                return;
            }
        }
        if let (QpRole::Responder, true, Connection::Rc(rc)) =
            (half, self.inbox.take_overflow(), &mut qpc.connection)
        {
            rc.note_overflow();
        }
    }

    /// A SKIP that came over a ring.
    #[cold]
    fn take_skip(&self, qpc: &mut QpContext<F>, payload: Payload<'_>) -> Disposition {
        let parsed = match payload {
            Payload::Bytes([bytes]) => VendorPacket::parse(Opcode::SKIP, bytes).ok(),
            _ => None,
        };
        let Some(own) = parsed else { return self.drop_packet(DropCause::Malformed) };
        self.take_vendor_packet(qpc, &own);
        Disposition::Executed(1)
    }

    /// A packet of Pagewire's own.
    fn take_vendor_packet(&self, qpc: &mut QpContext<F>, own: &VendorPacket) {
        let now = Time(self.services.fabric.now());
        let answer = match own {
            VendorPacket::Hello(greeting) => qpc.take_hello(self, greeting),
            _ => None,
        };
        let mut connection = std::mem::replace(&mut qpc.connection, Connection::None);
        let mut session = AccessSession::new(&self.services);
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
        qpc.put_back(connection);
        self.apply_end(qpc, ended);
    }
}

/// Whether a P_Key is the one that every port has, full or limited.
fn is_default_partition(partition: u16) -> bool {
    partition & 0x7FFF == 0x7FFF
}

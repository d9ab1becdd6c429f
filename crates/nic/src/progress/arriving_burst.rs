//! Packets that came for a queue pair, and their way into the protocol: from the network, from a ring, or from where they waited.

use crate::access::AccessSession;
use crate::access::fault_state::Purpose;
use crate::progress::transport_ops::QpTransportOps;
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::{Incoming, KeptPayload, PacketContent, PacketOrigin};
use crate::queue_pair::qp_context::{QpConnection, QpContext};
use crate::services::Services;
use crate::types::attributes::QueuePairType;
use crate::types::qp_role::QpRole;
use pagewire_fabric::Fabric;
use pagewire_paging::FaultCounts;
use pagewire_transport::{Disposition, DropCause, FaultHandling, Payload, Reason, Time};
use pagewire_wire::{Opcode, PacketHeader, PacketOperation, Transport, VendorPacket};

/// What packets share that a thread takes one after the other while it holds their queue pair.
pub(crate) struct BurstAccess<'n, F: Fabric> {
    /// When it began.
    now: Time,
    session: AccessSession<'n, F>,
}

impl<'n, F: Fabric> BurstAccess<'n, F> {
    /// Begins now, with the queue pair in hand: time does not go back for who had it before.
    pub(crate) fn begin(services: &'n Services<F>) -> Self {
        BurstAccess { now: Time(services.fabric.now()), session: AccessSession::new(services) }
    }

    /// When it began.
    pub(crate) fn now(&self) -> Time {
        self.now
    }
}

/// Packets that a thread hands to a queue pair whose QP context it holds.
pub(crate) struct ArrivingBurst<'b, 'n, F: Fabric> {
    pub(super) queue_pair: &'b QueuePair<F>,
    pub(super) qpc: &'b mut QpContext<F>,
    now: Time,
    /// The access to memory that they share.
    pub(super) session: &'b mut AccessSession<'n, F>,
}

impl<'b, 'n, F: Fabric> ArrivingBurst<'b, 'n, F> {
    /// The caller gives up `access` before the QP context: who gets that next must not wait for this thread's access.
    #[inline(always)] // Part of each packet.
    pub(crate) fn new(
        queue_pair: &'b QueuePair<F>,
        qpc: &'b mut QpContext<F>,
        access: &'b mut BurstAccess<'n, F>,
    ) -> Self {
        ArrivingBurst { queue_pair, qpc, now: access.now, session: &mut access.session }
    }

    /// Has a packet, and those of its burst that go with it, taken by this thread. One that others wait before, or that has to wait itself,
    /// goes to the inbox.
    pub(crate) fn hand_over(&mut self, packet: &Incoming<'_, F>) -> Disposition {
        let inbox = &self.queue_pair.inbox;
        if !inbox.is_empty(QpRole::of(&packet.header)) {
            return self.queue_pair.keep_copy(packet);
        }
        let disposition = self.take_packet(packet);
        if disposition.is_held() { self.hold(packet, disposition) } else { disposition }
    }

    /// Keeps a packet that has to wait, before all others.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    fn hold(&self, packet: &Incoming<'_, F>, disposition: Disposition) -> Disposition {
        let Some(kept) = packet.keep() else {
            return self.queue_pair.counters.drop_packet(DropCause::SenderUnreadable);
        };
        self.queue_pair.inbox.put_back(kept);
        disposition
    }

    /// Whether a packet answers requests, and none was sent yet. It must not wait: HELLO would wait behind it, without which none is sent.
    fn answers_nothing(&self, header: &PacketHeader) -> bool {
        matches!(self.qpc.connection, QpConnection::None)
            && header.bth.opcode.transport() != Transport::Manufacturer
            && QpRole::of(header) == QpRole::Requester
    }

    /// Has a packet processed by the thread that drives, and those of its burst that go with it.
    fn take_packet(&mut self, packet: &Incoming<'_, F>) -> Disposition {
        let &Incoming { ref header, payload, origin, .. } = packet;
        if !self.qpc.attributes.state.receives() {
            return self.queue_pair.counters.drop_packet(DropCause::WrongState);
        }
        if self.qpc.wants_path() {
            let is_plain = header.bth.opcode.transport() != Transport::Manufacturer;
            if is_plain && matches!(origin, PacketOrigin::Network) {
                self.qpc.end_connecting(self.queue_pair);
                self.qpc.cut_as_sent();
            }
            let attributes = self.qpc.attributes;
            self.qpc.establish(self.queue_pair, &attributes);
        }
        if matches!(self.qpc.connection, QpConnection::Ud) {
            return self.take_datagram(packet);
        }
        if self.queue_pair.properties.kind == QueuePairType::Uc && self.waits_for_receive(header) {
            // A direct WRITE behind it may not overtake it.
            self.queue_pair.set_holding(self.qpc, true);
            return Disposition::Held { reason: Reason::Receive, again: false };
        }
        if self.answers_nothing(header) {
            return self.queue_pair.counters.drop_packet(DropCause::Stale);
        }
        match self.qpc.is_from_peer(origin) {
            Some(true) => {}
            Some(false) => return self.queue_pair.counters.drop_packet(DropCause::WrongSource),
            None => {
                self.queue_pair.set_holding(self.qpc, true);
                return Disposition::Held { reason: Reason::Path, again: false };
            }
        }
        if header.bth.opcode == Opcode::HELLO {
            self.queue_pair.establish_communication(self.qpc);
            return Disposition::Executed(1);
        }
        if header.bth.opcode == Opcode::SKIP {
            return self.take_skip(payload);
        }
        let now = self.now;
        let mut connection = std::mem::replace(&mut self.qpc.connection, QpConnection::None);
        let mut ops = QpTransportOps::new(self.queue_pair, self.qpc, Some(origin), self.session);
        ops.defer(packet.deferred);
        let mut disposition = match &mut connection {
            QpConnection::Rc(rc) => rc.receive(now, header, payload, &mut ops),
            QpConnection::Uc(uc) => uc.receive(now, header, payload, &mut ops),
            // Not known yet how to answer: the packet waits for the path.
            QpConnection::None | QpConnection::Ud => Disposition::Held { reason: Reason::Path, again: false },
        };
        let ended = ops.finish();
        match (&mut connection, disposition) {
            (_, Disposition::Executed(_)) => {}
            (QpConnection::Rc(_), _) => self.note_fate(QpRole::of(header), disposition),
            (QpConnection::Uc(uc), Disposition::Held { reason: Reason::Page, .. })
                if self.drops_faulting(origin) =>
            {
                uc.abandon();
                self.qpc.forget_access(Purpose::Execute);
                disposition = Disposition::Dropped(DropCause::AbsentPage { resumes: false });
            }
            _ => {}
        }
        self.qpc.put_back(connection);
        if QpRole::of(header) == QpRole::Responder {
            self.queue_pair.set_holding(self.qpc, disposition.is_held());
        }
        ended.apply(self.queue_pair, self.qpc);
        disposition
    }

    /// Counts a packet that found a page absent.
    #[cold]
    fn note_fate(&self, half: QpRole, disposition: Disposition) {
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
        self.queue_pair.services.page_faults.note_packet(self.qpc.page_waits.region(purpose), counts);
    }

    /// Whether a packet of UC or UD that waits for a page is dropped. Inside a host nothing is lost.
    pub(super) fn drops_faulting(&self, origin: &PacketOrigin<F>) -> bool {
        self.queue_pair.fault_handling() != FaultHandling::Stash && matches!(origin, PacketOrigin::Network)
    }

    /// Whether an unreliable message that finds no receive is kept a little longer.
    pub(super) fn waits_for_receive(&mut self, header: &PacketHeader) -> bool {
        let takes = matches!(
            header.bth.opcode.operation(),
            Some(
                PacketOperation::SendFirst
                    | PacketOperation::SendOnly
                    | PacketOperation::SendOnlyImmediate
                    | PacketOperation::WriteLastImmediate
                    | PacketOperation::WriteOnlyImmediate
            )
        );
        if !takes {
            self.qpc.receive_wait.look_anew();
            return false;
        }
        if self.qpc.receive.is_some() || self.queue_pair.receives.has_any() {
            self.qpc.receive_wait.end();
            return false;
        }
        self.qpc.receive_wait.go_on(self.now.0, self.queue_pair.recv_cq.waiting() > 0)
    }

    /// Takes packets out of the inbox until one has to wait on.
    pub(crate) fn take_waiting(mut self, half: QpRole) {
        let has_arrival = half == QpRole::Responder && self.queue_pair.inbox.take_arrival();
        while let Some(packet) = self.queue_pair.inbox.pop(half) {
            let disposition = match &packet.content {
                PacketContent::Packet { header, payload, global_route } => {
                    let (header, global_route, origin) = (*header, *global_route, &packet.origin);
                    let bytes;
                    let payload = match payload {
                        KeptPayload::Bytes(kept) => {
                            bytes = [&kept[..]];
                            Payload::Bytes(&bytes)
                        }
                        KeptPayload::Reference(pieces) => Payload::Reference(pieces),
                    };
                    self.take_packet(&Incoming { header, payload, deferred: None, global_route, origin })
                }
                PacketContent::Vendor(own) => {
                    self.take_vendor_packet(own);
                    Disposition::Executed(1)
                }
            };
            if let Disposition::Held { again, .. } = disposition {
                self.queue_pair.inbox.put_back(packet);
                if let (true, true, QpConnection::Rc(rc)) = (again, has_arrival, &mut self.qpc.connection) {
                    rc.hold();
                }
                return;
            }
        }
        if let (QpRole::Responder, true, QpConnection::Rc(rc)) =
            (half, self.queue_pair.inbox.take_overflow(), &mut self.qpc.connection)
        {
            rc.note_overflow();
        }
    }

    /// A SKIP that came over a ring.
    #[cold]
    fn take_skip(&mut self, payload: Payload<'_>) -> Disposition {
        let parsed = match payload {
            Payload::Bytes([bytes]) => VendorPacket::parse(Opcode::SKIP, bytes).ok(),
            _ => None,
        };
        let Some(own) = parsed else { return self.queue_pair.counters.drop_packet(DropCause::Malformed) };
        self.take_vendor_packet(&own);
        Disposition::Executed(1)
    }

    /// A packet of Pagewire's own.
    fn take_vendor_packet(&mut self, own: &VendorPacket) {
        let now = self.now;
        let answer = match own {
            VendorPacket::Hello(greeting) => self.qpc.take_hello(self.queue_pair, greeting),
            _ => None,
        };
        let mut connection = std::mem::replace(&mut self.qpc.connection, QpConnection::None);
        let mut ops = QpTransportOps::new(self.queue_pair, self.qpc, None, self.session);
        if let Some(answer) = answer {
            ops.transmit_hello(&answer);
        }
        match (&mut connection, own) {
            (_, VendorPacket::Hello(_)) | (QpConnection::None | QpConnection::Ud, _) => {}
            (QpConnection::Rc(rc), _) => rc.receive_control(now, own, &mut ops),
            (QpConnection::Uc(uc), _) => uc.receive_control(own),
        }
        let ended = ops.finish();
        self.qpc.put_back(connection);
        ended.apply(self.queue_pair, self.qpc);
    }
}

//! Datagrams of one round. Those of a queue pair mostly follow each other: they are taken under one lock, one look at the clock
//! and one access to memory, as long as the region stays the same.

use crate::access::AccessSession;
use crate::progress::arriving_burst::{ArrivingBurst, BurstAccess};
use crate::progress::engine::{Nic, RoundInput, Touched};
use crate::progress::short_receive::ShortReceive;
use crate::progress::transport_ops::{QpTransportOps, append_packet};
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::{Incoming, PacketOrigin};
use crate::queue_pair::qp_context::QpContext;
use crate::services::ready::Occasion;
use crate::types::attributes::{Attributes, QpState, QueuePairType};
use crate::types::gid::address_of_gid;
use crate::types::limits;
use crate::types::qp_role::QpRole;
use pagewire_fabric::lock::{ArcLockGuard, Lock};
use pagewire_fabric::{DeferredPayload, Fabric, ReceivedDatagram};
use pagewire_transport::{Disposition, DropCause, Payload, ud};
use pagewire_wire::{Error, Opcode, PacketHeader, PacketOperation, Transport, bth, cm, reth};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Packets of a burst for which no memory is asked for. The kernel cuts one send into up to 64, which would take 1 KiB of a stack
/// that may have 16.
const BURST: usize = 32;

/// What has been taken in a round, and the queue pair that is at hand.
struct UdpRx<'n, F: Fabric> {
    nic: &'n Nic<F>,
    touched: Touched<F>,
    current: Option<Current<'n, F>>,
}

/// The queue pair that got the last datagram, held until one for another comes or there are no more.
struct Current<'n, F: Fabric> {
    // Given up in this order: who gets the lock must not wait for this thread's access.
    access: BurstAccess<'n, F>,
    qpc: ArcLockGuard<QpContext<F>>,
    queue_pair: Arc<QueuePair<F>>,
    source: IpAddr,
}

impl<F: Fabric> Nic<F> {
    /// Takes datagrams.
    pub(crate) fn poll_network(&self, occasion: Occasion) -> RoundInput {
        let mut udp_rx = UdpRx { nic: self, touched: Touched::default(), current: None };
        let taken = self.fabric().receive(limits::NETWORK_ROUND, &mut |datagrams| udp_rx.take(datagrams));
        let UdpRx { mut touched, current, .. } = udp_rx;
        drop(current);
        touched.run(occasion);
        match taken {
            0 => RoundInput::Nothing,
            taken if taken < limits::NETWORK_ROUND => RoundInput::All,
            _ => RoundInput::More,
        }
    }
}

impl<F: Fabric> Nic<F> {
    /// Repeats the refusal of a queue pair that the program has ended since. False: the packet does not ask for one.
    #[cold]
    fn answer_for_ended(&self, header: &PacketHeader, source: IpAddr) -> bool {
        let fabric = self.fabric();
        let Some((route, nak)) = self.services.tombstones.answer(header, source, fabric.now()) else {
            return false;
        };
        let mut batch = fabric.batch();
        let laid = append_packet(&mut batch, &route, &nak, 0, |_| Ok::<(), ()>(()));
        fabric.flush(batch);
        laid.is_some()
    }
}

impl<F: Fabric> UdpRx<'_, F> {
    fn take(&mut self, mut datagrams: &[ReceivedDatagram<'_>]) {
        if let Some((acknowledgement, requests)) = acknowledged_requests(datagrams) {
            self.take_burst(acknowledgement, &[]);
            datagrams = requests;
        }
        while let Some((first, behind)) = datagrams.split_first() {
            let burst = self.take_burst(first, behind);
            datagrams = &behind[burst..];
        }
    }

    /// Takes a datagram and those of the burst that it begins; gives how many of those behind it.
    fn take_burst(&mut self, datagram: &ReceivedDatagram<'_>, behind: &[ReceivedDatagram<'_>]) -> usize {
        let Ok((header, length)) = PacketHeader::parse(datagram.bytes) else { return self.drop_malformed() };
        let Some(end) = datagram.bytes.len().checked_sub(usize::from(header.bth.pad)) else {
            return self.drop_malformed();
        };
        let Some(payload) = datagram.bytes.get(length..end) else { return self.drop_malformed() };
        if let Some(deferred) = datagram.deferred {
            self.take_deferred(&header, datagram, deferred);
            return 0;
        }
        let global_route = (header.bth.opcode.transport() == Transport::Ud).then(|| {
            crate::types::gid::global_routing_header(
                datagram.source,
                datagram.destination,
                datagram.traffic_class,
                datagram.hop_limit,
                u16::try_from(datagram.bytes.len() + 4).unwrap_or(u16::MAX),
            )
        });
        let origin = PacketOrigin::Network;
        let mut burst = SmallVec::<[&[u8]; BURST]>::new();
        burst.push(payload);
        let destination = header.bth.destination;
        let current = self.current.as_mut().filter(|it| it.has_sent(destination, datagram.source));
        if current.is_some() {
            add_burst(&header, datagram, behind, length..end, &mut burst);
        }
        let packet = Incoming {
            header,
            payload: Payload::Bytes(&burst),
            deferred: None,
            global_route,
            origin: &origin,
        };
        match current {
            Some(current) => current.take(self.nic, &packet) - 1,
            None => {
                self.take_first(&packet, payload, datagram);
                0
            }
        }
    }

    /// Takes a packet of RC or UC whose payload is deferred.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    fn take_deferred(
        &mut self,
        header: &PacketHeader,
        datagram: &ReceivedDatagram<'_>,
        deferred: &dyn DeferredPayload,
    ) {
        let is_plain =
            matches!(header.bth.opcode.transport(), Transport::Rc | Transport::Uc | Transport::Xrc)
                && header.bth.pad == 0
                && header.len() == datagram.bytes.len();
        let Some(length) = u32::try_from(deferred.length()).ok().filter(|_| is_plain) else {
            self.drop_malformed();
            return;
        };
        let packet = Incoming {
            header: *header,
            payload: Payload::Deferred(length),
            deferred: Some(deferred),
            global_route: None,
            origin: &PacketOrigin::Network,
        };
        let destination = header.bth.destination;
        match self.current.as_mut().filter(|it| it.has_sent(destination, datagram.source)) {
            Some(current) => drop(current.take(self.nic, &packet)),
            None => self.take_first(&packet, &[], datagram),
        }
    }

    /// Drops a datagram whose headers do not parse, and takes none of those behind it.
    #[cold]
    fn drop_malformed(&self) -> usize {
        self.nic.fabric().count_bad_header();
        0
    }

    /// Takes a packet of another queue pair than the one before, or from somewhere else.
    fn take_first(&mut self, packet: &Incoming<'_, F>, payload: &[u8], datagram: &ReceivedDatagram<'_>) {
        let (source, destination) = (datagram.source, packet.header.bth.destination);
        if self.take_for(destination, packet, source) {
            return;
        }
        match destination {
            cm::QUEUE_PAIR => self.nic.receive_management(&packet.header, payload, datagram),
            ud::GROUP => self.take_for_group(packet, datagram),
            _ => {
                self.nic.answer_for_ended(&packet.header, source);
            }
        }
    }

    /// Takes a datagram to a multicast group: each queue pair that is attached gets a copy.
    #[cold]
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    fn take_for_group(&mut self, packet: &Incoming<'_, F>, datagram: &ReceivedDatagram<'_>) {
        for member in self.nic.services.groups.members(datagram.destination) {
            // One that has ended meanwhile gets none.
            let _is_there = self.take_for(member, packet, datagram.source);
        }
    }

    /// Takes a packet for the queue pair with this number. False: there is none.
    fn take_for(&mut self, number: u32, packet: &Incoming<'_, F>, source: IpAddr) -> bool {
        self.current = None;
        let Some((queue_pair, needs_progress)) = self.touched.get(&self.nic.queue_pairs, number) else {
            return false;
        };
        if let Err(cause) = packet.check_for(queue_pair.properties.kind, queue_pair.state()) {
            let repeated = repeat_refusal(queue_pair, &packet.header, source)
                || queue_pair.state() == QpState::Error && self.nic.answer_for_ended(&packet.header, source);
            if !repeated {
                queue_pair.counters.drop_packet(cause);
            }
            return true;
        }
        let queue_pair = queue_pair.clone();
        let locked = Lock::try_lock_arc(&queue_pair.qpc);
        let is_from_peer = match &locked {
            Some(qpc) => may_send_to(queue_pair.properties.kind, &qpc.attributes, source),
            None => may_send_to(queue_pair.properties.kind, &queue_pair.shown.attributes.lock(), source),
        };
        if !is_from_peer {
            queue_pair.counters.drop_packet(DropCause::WrongSource);
            drop(locked);
            *needs_progress |= queue_pair.is_wanted();
            return true;
        }
        *needs_progress = true;
        let Some(qpc) = locked else {
            queue_pair.counters.udp_packets_kept.add(1);
            if packet.is_vendor() {
                self.nic.deliver_vendor_packet(&queue_pair, packet);
            } else {
                queue_pair.keep_copy(packet);
            }
            return true;
        };
        let access = BurstAccess::begin(&self.nic.services);
        let current = self.current.insert(Current { access, qpc, queue_pair, source });
        current.take_kept_responses();
        current.take(self.nic, packet);
        true
    }
}

/// Answers a peer that asks again for what the queue pair has refused, and has ended with. False: the packet asks for nothing of that.
#[cold]
fn repeat_refusal<F: Fabric>(queue_pair: &QueuePair<F>, header: &PacketHeader, source: IpAddr) -> bool {
    if !queue_pair.notes.repeats_refusal.load(Ordering::Acquire)
        || !header.bth.opcode.transport().is_reliable()
    {
        return false;
    }
    // Whoever has it changes the state, or answers another packet: the peer asks again.
    let Some(mut qpc) = queue_pair.qpc.try_lock() else { return false };
    if !may_send_to(queue_pair.properties.kind, &qpc.attributes, source) {
        return false;
    }
    let Some(mut refused) = qpc.refused.take() else { return false };
    let mut session = AccessSession::new(&queue_pair.services);
    let mut ops = QpTransportOps::new(queue_pair, &mut qpc, Some(&PacketOrigin::Network), &mut session);
    let disposition = refused.answer_after_refusal(header, &mut ops);
    ops.finish();
    qpc.refused = Some(refused);
    !matches!(disposition, Disposition::Dropped(_))
}

/// Whether a queue pair may get packets from an address: from its peer, and datagrams from everywhere.
fn may_send_to(kind: QueuePairType, attributes: &Attributes, source: IpAddr) -> bool {
    kind == QueuePairType::Ud || address_of_gid(attributes.address.destination_gid) == source
}

/// That of an RC acknowledgement, NAKs among them.
pub(crate) const ACKNOWLEDGEMENT: Opcode = Opcode::new(Transport::Rc, PacketOperation::Acknowledge);

/// Requests that came together with an acknowledgement, which leaves behind them, as it is shorter. The program is to learn that
/// its own request is done before it gets what may be the answer: so it does with adapters, whose acknowledgements come first.
fn acknowledged_requests<'a, 'd>(
    datagrams: &'a [ReceivedDatagram<'d>],
) -> Option<(&'a ReceivedDatagram<'d>, &'a [ReceivedDatagram<'d>])> {
    let (last, before) = datagrams.split_last()?;
    let opcode = |datagram: &ReceivedDatagram<'_>| datagram.bytes.first().map(|code| Opcode(*code));
    let is_request =
        |datagram: &ReceivedDatagram<'_>| opcode(datagram).is_some_and(Opcode::may_follow_acknowledgement);
    let goes_first =
        !before.is_empty() && opcode(last) == Some(ACKNOWLEDGEMENT) && before.iter().all(is_request);
    goes_first.then_some((last, before))
}

/// Adds the payloads, at this place, of the datagrams that make a burst with one that has this header: they come from the same peer, are
/// as long, and are what [`RcConnection::receive`](pagewire_transport::RcConnection::receive) takes as a burst.
fn add_burst<'d>(
    header: &PacketHeader,
    first: &ReceivedDatagram<'d>,
    behind: &[ReceivedDatagram<'d>],
    payload: Range<usize>,
    burst: &mut SmallVec<[&'d [u8]; BURST]>,
) {
    let opcode = header.bth.opcode;
    let is_write_only = match opcode.operation() {
        Some(
            PacketOperation::SendMiddle | PacketOperation::WriteMiddle | PacketOperation::ReadResponseMiddle,
        ) => false,
        Some(PacketOperation::WriteOnly) => true,
        _ => return,
    };
    if opcode.transport() != Transport::Rc || header.bth.acknowledge {
        return;
    }
    let (mut before, length) = (first.bytes, first.bytes.len());
    for next in behind {
        let same = next.bytes.len() == length && next.source == first.source;
        if !same || !goes_on(before, next.bytes, is_write_only.then_some(payload.len())).unwrap_or(false) {
            break;
        }
        before = next.bytes;
        burst.push(&next.bytes[payload.clone()]);
    }
}

/// Whether the headers of a packet are what follows those of the one before. `write_only`: a RETH stands behind the BTH, and the
/// packet brings so many bytes.
fn goes_on(before: &[u8], next: &[u8], write_only: Option<usize>) -> Result<bool, Error> {
    if !bth::Packet::new(before)?.goes_on_with(&bth::Packet::new(next)?) {
        return Ok(false);
    }
    let Some(length) = write_only else { return Ok(true) };
    let (before, next) = (reth::Packet::new(&before[bth::LEN..])?, reth::Packet::new(&next[bth::LEN..])?);
    Ok(before.goes_on_with(&next, length as u32))
}

impl<F: Fabric> Current<'_, F> {
    /// Whether a packet is for this queue pair, and from where the last one came from.
    fn has_sent(&self, destination: u32, source: IpAddr) -> bool {
        self.queue_pair.properties.number == destination && self.source == source
    }

    /// Takes acknowledgements and responses that wait for a thread to hold the queue pair: what came before a request completes before it.
    fn take_kept_responses(&mut self) {
        if !self.queue_pair.inbox.is_empty(QpRole::Requester) {
            let Current { access, qpc, queue_pair, .. } = self;
            ArrivingBurst::new(queue_pair, qpc, access).take_waiting(QpRole::Requester);
        }
    }

    /// Takes a packet, and those of its burst that go with it; gives how many.
    fn take(&mut self, nic: &Nic<F>, packet: &Incoming<'_, F>) -> usize {
        let Current { access, qpc, queue_pair, .. } = self;
        if let Err(cause) = packet.check_for(queue_pair.properties.kind, queue_pair.state()) {
            // The burst may have begun before it refused one of its packets: what is repeated comes by itself.
            queue_pair.counters.drop_packet(cause);
            return 1;
        }
        let mut taken = 1;
        if packet.is_vendor() {
            nic.deliver_vendor_packet(queue_pair, packet);
            self.take_kept_responses();
            self.queue_pair.counters.udp_packets_received.add_alone(1);
            return 1;
        }
        if !ShortReceive::new(queue_pair, qpc).take(access.now(), packet) {
            // Whether it waits or not, the queue pair is driven at the end of the round.
            taken = ArrivingBurst::new(queue_pair, qpc, access).hand_over(packet).packets();
        }
        queue_pair.counters.udp_packets_received.add_alone(taken.into());
        taken as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, PathChoice};
    use pagewire_fabric::HostFabric;

    fn datagram(bytes: &[u8]) -> ReceivedDatagram<'_> {
        ReceivedDatagram {
            source: IpAddr::from([10, 0, 0, 1]),
            source_port: 4791,
            destination: IpAddr::from([10, 0, 0, 2]),
            traffic_class: 0,
            hop_limit: 64,
            by_stream: false,
            bytes,
            deferred: None,
        }
    }

    #[test]
    fn datagrams_whose_headers_do_not_parse_are_counted() {
        let nic =
            Nic::new(HostFabric::new().unwrap(), Options { path: PathChoice::Local, ..Options::default() });
        let packet = |operation, second: u8| {
            let mut bytes = [0; bth::LEN];
            bytes[..2].copy_from_slice(&[Opcode::new(Transport::Rc, operation).0, second]);
            bytes
        };
        let well_formed = packet(PacketOperation::SendOnly, 0);
        let malformed = [
            // The version is 1.
            packet(PacketOperation::SendOnly, 1),
            // There is no RETH.
            packet(PacketOperation::WriteOnly, 0),
            // Three bytes of padding, and no payload.
            packet(PacketOperation::SendOnly, 0x30),
        ];
        let mut udp_rx = UdpRx { nic: &nic, touched: Touched::default(), current: None };
        let counted = || nic.fabric().counters().bad_headers.get();
        udp_rx.take(&[datagram(&well_formed)]);
        assert_eq!(counted(), 0);
        udp_rx.take(&malformed.each_ref().map(|bytes| datagram(bytes)));
        assert_eq!(counted(), 3);
    }

    #[test]
    fn an_acknowledgement_goes_before_the_requests_that_it_came_with_alone() {
        use PacketOperation::{
            Acknowledge, AtomicAcknowledge, ReadResponseOnly, SendLast, SendOnly, WriteMiddle,
        };
        let goes_first = |operations: &[PacketOperation]| {
            let codes: Vec<[u8; 1]> =
                operations.iter().map(|operation| [Opcode::new(Transport::Rc, *operation).0]).collect();
            let datagrams: Vec<ReceivedDatagram<'_>> = codes.iter().map(|code| datagram(&code[..])).collect();
            acknowledged_requests(&datagrams).map(|(first, rest)| {
                assert_eq!(first.bytes, [Opcode::new(Transport::Rc, Acknowledge).0]);
                rest.len()
            })
        };
        assert_eq!(goes_first(&[SendOnly, Acknowledge]), Some(1));
        assert_eq!(goes_first(&[WriteMiddle, WriteMiddle, SendLast, Acknowledge]), Some(3));
        for others in [
            &[][..],
            &[Acknowledge],
            &[Acknowledge, SendOnly],
            &[Acknowledge, Acknowledge],
            &[ReadResponseOnly, Acknowledge],
            &[SendOnly, AtomicAcknowledge, Acknowledge],
            &[SendOnly, AtomicAcknowledge],
        ] {
            assert_eq!(goes_first(others), None, "{others:?}");
        }
    }
}

//! Datagrams of one round. Those of a queue pair mostly come in a row: they are taken under one lock, one look at the clock
//! and one access to memory, as long as the region stays the same.

use crate::drive::{Core, Occasion, Row};
use crate::engine::{Nic, Taken, Touched};
use crate::inbox::{Incoming, Origin};
use crate::limits;
use crate::queue_pair::QueuePair;
use pagewire_fabric::{Datagram, Fabric};
use pagewire_transport::Payload;
use pagewire_wire::{Header, Transport};
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use std::net::IpAddr;
use std::sync::Arc;

/// What has been taken in a round, and the queue pair that is at hand.
struct Arrivals<'n, F: Fabric> {
    nic: &'n Nic<F>,
    touched: Touched<F>,
    current: Option<Current<'n, F>>,
}

/// The queue pair that got the last datagram, held until one for another comes or there are no more.
struct Current<'n, F: Fabric> {
    // Given up in this order: who gets the lock must not wait for this thread's access.
    row: Row<'n>,
    core: ArcMutexGuard<RawMutex, Core<F>>,
    queue_pair: Arc<QueuePair<F>>,
    source: IpAddr,
}

impl<F: Fabric> Nic<F> {
    /// Takes datagrams.
    pub(crate) fn poll_network(&self, occasion: Occasion) -> Taken {
        let mut arrivals = Arrivals { nic: self, touched: Touched::default(), current: None };
        let taken = self.fabric().receive(limits::ROUND, &mut |datagram| arrivals.take(&datagram));
        let Arrivals { touched, current, .. } = arrivals;
        drop(current);
        touched.run(occasion);
        match taken {
            0 => Taken::Nothing,
            taken if taken < limits::ROUND => Taken::All,
            _ => Taken::More,
        }
    }
}

impl<F: Fabric> Arrivals<'_, F> {
    fn take(&mut self, datagram: &Datagram<'_>) {
        let Ok((header, length)) = Header::parse(datagram.bytes) else { return };
        let Some(end) = datagram.bytes.len().checked_sub(usize::from(header.bth.pad)) else { return };
        let Some(payload) = datagram.bytes.get(length..end) else { return };
        let global_route = (header.bth.opcode.transport() == Transport::Ud).then(|| {
            crate::device::global_routing_header(
                datagram.source,
                datagram.destination,
                datagram.traffic_class,
                datagram.hop_limit,
                datagram.bytes.len() as u16 + 4,
            )
        });
        let origin = Origin::Network { source: datagram.source };
        let packet = Incoming { header, payload: Payload::Bytes(payload), global_route, origin: &origin };
        match &mut self.current {
            Some(current) if current.has_sent(&packet, datagram.source) => current.take(self.nic, &packet),
            _ => self.take_first(&packet, datagram.source),
        }
    }

    /// Takes a packet of another queue pair than the one before, or from somewhere else.
    fn take_first(&mut self, packet: &Incoming<'_, F>, source: IpAddr) {
        self.current = None;
        let destination = packet.header.bth.destination;
        let Some((queue_pair, drive)) = self.touched.get(self.nic.queue_pairs(), destination) else { return };
        if !queue_pair.accepts(&packet.header, packet.origin) {
            queue_pair.counters.dropped.add(1);
            return;
        }
        *drive = true;
        let queue_pair = queue_pair.clone();
        let Some(core) = Mutex::try_lock_arc(&queue_pair.core) else {
            queue_pair.counters.udp_packets_received.add(1);
            if packet.is_own() {
                self.nic.deliver_own(&queue_pair, packet);
            } else {
                self.nic.keep(&queue_pair, packet.keep());
            }
            return;
        };
        let row = Row::begin(self.nic);
        let current = self.current.insert(Current { row, core, queue_pair, source });
        current.take(self.nic, packet);
    }
}

impl<F: Fabric> Current<'_, F> {
    /// Whether a packet is for this queue pair, and from where the last one came from.
    fn has_sent(&self, packet: &Incoming<'_, F>, source: IpAddr) -> bool {
        self.queue_pair.number == packet.header.bth.destination && self.source == source
    }

    fn take(&mut self, nic: &Nic<F>, packet: &Incoming<'_, F>) {
        let Current { row, core, queue_pair, .. } = self;
        if !queue_pair.accepts_kind(&packet.header, packet.origin) {
            queue_pair.counters.dropped.add(1);
            return;
        }
        queue_pair.counters.udp_packets_received.add(1);
        if packet.is_own() {
            nic.deliver_own(queue_pair, packet);
        } else {
            // Whether it waits or not, the queue pair is driven at the end of the round.
            nic.hand_over(queue_pair, core, row, packet);
        }
    }
}

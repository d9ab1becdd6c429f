//! Queue pair 1, which every port has (InfiniBand specification, volume 1, section 3.9.4): who asks it for a connection is refused,
//! since there is no connection manager yet. Silence would keep a peer asking for a minute.
//!
//! Nothing is remembered: each request is answered by one datagram of the same length, and refusals are never answered.

use crate::progress::engine::Nic;
use crate::progress::transport_ops::append_packet;
use pagewire_fabric::{Fabric, ROCE_PORT, ReceivedDatagram, Route};
use pagewire_transport::ud::{self, UdSettings};
use pagewire_transport::{Psn, ud::OutgoingDatagram as UdDatagram};
use pagewire_wire::PacketHeader;
use pagewire_wire::bth::DEFAULT_PARTITION;
use pagewire_wire::cm::{self, CmDatagram};

/// Queue pair 1, with the Q_Key that is its own.
const SETTINGS: UdSettings = UdSettings {
    number: cm::QUEUE_PAIR,
    partition: DEFAULT_PARTITION,
    queue_key: cm::QUEUE_KEY,
    mtu: cm::DATAGRAM_LEN as u32,
};

/// Hops that a refusal may take, as other datagrams of a kernel's connection manager.
const HOP_LIMIT: u8 = 64;

/// The refusal of what came to queue pair 1, with its header; `None`: it asks for nothing, or is not to be taken.
fn refusal(header: &PacketHeader, payload: &[u8]) -> Option<(PacketHeader, [u8; cm::DATAGRAM_LEN])> {
    let accepted = ud::accept(&SETTINGS, header, payload.len() as u64).ok()?;
    let refusal = CmDatagram::parse(payload)?.refusal()?;
    let datagram = UdDatagram {
        destination: accepted.source,
        queue_key: cm::QUEUE_KEY,
        immediate: None,
        solicited: false,
    };
    // Receivers do not look at the PSN; that of the request tells which one is answered.
    Some((ud::header(&SETTINGS, Psn::new(header.bth.psn), &datagram), refusal.emit()))
}

impl<F: Fabric> Nic<F> {
    /// Answers a datagram that came to queue pair 1.
    pub(crate) fn answer_management(
        &self,
        header: &PacketHeader,
        payload: &[u8],
        datagram: &ReceivedDatagram<'_>,
    ) {
        let Some((header, answer)) = refusal(header, payload) else { return };
        let route = Route {
            source: datagram.destination,
            interface: 0,
            source_port: ROCE_PORT,
            destination: datagram.source,
            port: ROCE_PORT,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
        };
        let mut batch = self.fabric().batch();
        let laid = append_packet(&mut batch, &route, &header, answer.len(), |into| {
            into.copy_from_slice(&answer);
            Ok::<(), ()>(())
        });
        if laid.is_some() {
            self.fabric().flush(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A REQ from queue pair 1 of a peer.
    fn request() -> (PacketHeader, [u8; cm::DATAGRAM_LEN]) {
        let datagram = UdDatagram {
            destination: cm::QUEUE_PAIR,
            queue_key: cm::QUEUE_KEY,
            immediate: None,
            solicited: false,
        };
        let mut bytes = [0; cm::DATAGRAM_LEN];
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[17] = 0x10;
        (ud::header(&SETTINGS, Psn::new(7), &datagram), bytes)
    }

    #[test]
    fn who_asks_for_a_connection_is_refused_from_queue_pair_1() {
        let (header, bytes) = request();
        let (answer, refused) = refusal(&header, &bytes).expect("an answer");
        assert_eq!((answer.bth.destination, answer.bth.psn, answer.bth.opcode), (1, 7, header.bth.opcode));
        let deth = answer.deth.expect("UD");
        assert_eq!((deth.source, deth.queue_key), (1, 0x8001_0000));
        assert_eq!(refused[16..18], [0, 0x12]);
        assert!(refusal(&answer, &refused).is_none(), "two of us would answer each other for ever");
    }

    #[test]
    fn what_is_not_for_queue_pair_1_is_dropped() {
        let (header, bytes) = request();
        let mut other_key = header;
        other_key.deth = header.deth.map(|deth| pagewire_wire::Deth { queue_key: 0x1111_1111, ..deth });
        let mut other_partition = header;
        other_partition.bth.partition = 0x8001;
        for wrong in [other_key, other_partition] {
            assert!(refusal(&wrong, &bytes).is_none(), "{wrong:?}");
        }
        assert!(refusal(&header, &bytes[..255]).is_none());
        assert!(refusal(&header, &[0; cm::DATAGRAM_LEN]).is_none());
    }
}

//! The packet that a datagram to queue pair 1 would be on the network. Inside a host it takes none, and a capture shows it all the same.

use crate::fabric::{ROCE_PORT, Route};
use crate::management::ManagementDatagram;
use crate::pcap::Capture;
use pagewire_wire::bth::{Bth, DEFAULT_PARTITION};
use pagewire_wire::cm::{DATAGRAM_LEN, QUEUE_KEY, QUEUE_PAIR};

use pagewire_wire::{Deth, Icrc, Opcode, PacketHeader, PacketOperation, Transport, packet};

/// Hop limit in a capture: none was sent.
const HOP_LIMIT: u8 = 64;

/// Puts a datagram that takes no network into a capture.
pub fn capture(capture: &Capture, datagram: &ManagementDatagram) {
    let Some(bytes) = packet_of(datagram) else { return };
    let route = Route {
        source_port: ROCE_PORT,
        hop_limit: HOP_LIMIT,
        ..Route::new(datagram.source, datagram.destination, ROCE_PORT)
    };
    capture.sent(&route, ROCE_PORT, 0, &bytes);
}

/// Headers, payload and ICRC; `None`: the addresses are of two families.
fn packet_of(datagram: &ManagementDatagram) -> Option<Vec<u8>> {
    let icrc = Icrc::between(datagram.source, datagram.destination, ROCE_PORT, ROCE_PORT)?;
    let opcode = Opcode::new(Transport::Ud, PacketOperation::SendOnly);
    let mut header =
        PacketHeader::new(Bth { partition: DEFAULT_PARTITION, ..Bth::new(opcode, QUEUE_PAIR, 0) });
    header.deth = Some(Deth { queue_key: QUEUE_KEY, source: QUEUE_PAIR });
    let mut bytes = vec![0; packet::len(&header, DATAGRAM_LEN)];
    bytes[header.len()..][..DATAGRAM_LEN].copy_from_slice(&datagram.payload);
    packet::emit(&header, DATAGRAM_LEN, &mut bytes);
    packet::seal(&icrc, 0, &mut bytes);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_is_that_of_the_network() {
        let datagram = ManagementDatagram {
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
            payload: std::array::from_fn(|at| at as u8),
        };
        let bytes = packet_of(&datagram).unwrap();
        let icrc = Icrc::between(datagram.source, datagram.destination, ROCE_PORT, ROCE_PORT).unwrap();
        assert!(icrc.verify(0, &bytes));
        let parsed = packet::Packet::parse(&bytes).unwrap();
        assert_eq!((parsed.header.bth.destination, parsed.payload), (1, &datagram.payload[..]));
        let deth = parsed.header.deth.unwrap();
        assert_eq!((deth.queue_key, deth.source), (0x8001_0000, 1));
        let mixed = ManagementDatagram { source: "2001:db8::1".parse().unwrap(), ..datagram };
        assert_eq!(packet_of(&mixed), None);
    }
}

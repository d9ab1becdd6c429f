//! Datagrams that reached the wrong process of several that share the port are handed on to the right one.
//!
//! One message: a header that says where the datagrams came from, then their payloads, cut as the kernel merged
//! them. (A UNIX socket queues few messages by default, however short they are.) Only processes of one user
//! can share a port, and one of them may change its user. So of another user only those messages are taken which it could have sent by
//! itself. Beyond that the contents are as untrusted as any datagram.

use crate::limits::FORWARD_HEADER;
use crate::udp::MessageInfo;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MAGIC: [u8; 4] = *b"pwf1";

/// The header in front of datagrams of `arrival.segment` bytes each, the last of which may be shorter.
pub fn header(arrival: &MessageInfo) -> [u8; FORWARD_HEADER] {
    let mut header = [0; FORWARD_HEADER];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = u8::from(arrival.source.is_ipv6());
    header[5] = arrival.traffic_class;
    header[6] = arrival.hop_limit;
    header[8..10].copy_from_slice(&arrival.source_port.to_be_bytes());
    header[10..12].copy_from_slice(&(arrival.segment as u16).to_be_bytes());
    header[16..32].copy_from_slice(&octets(arrival.source));
    header[32..48].copy_from_slice(&octets(arrival.destination));
    header
}

/// Reads a message. `None`: it is none.
pub fn parse(message: &[u8]) -> Option<(MessageInfo, &[u8])> {
    let (header, payload) = message.split_first_chunk::<FORWARD_HEADER>()?;
    if header[..4] != MAGIC || header[7] != 0 || header[12..16] != [0; 4] {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().ok()?;
        let address = Ipv6Addr::from(octets);
        match header[4] {
            0 => address.to_ipv4_mapped().map(IpAddr::V4),
            1 => Some(IpAddr::V6(address)),
            _ => None,
        }
    };
    let arrival = MessageInfo {
        source: address(16)?,
        source_port: u16::from_be_bytes([header[8], header[9]]),
        destination: address(32)?,
        traffic_class: header[5],
        hop_limit: header[6],
        segment: usize::from(u16::from_be_bytes([header[10], header[11]])).max(1),
        length: payload.len(),
    };
    Some((arrival, payload))
}

/// An address as 16 bytes; IPv4 is mapped into IPv6.
pub fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => Ipv4Addr::to_ipv6_mapped(&address).octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn round_trip(
            v4 in any::<bool>(), source in any::<[u8; 16]>(), destination in any::<[u8; 16]>(),
            source_port in any::<u16>(), traffic_class in any::<u8>(), hop_limit in any::<u8>(), length in 0usize..99,
        ) {
            let address = |octets: [u8; 16]| if v4 {
                IpAddr::from(<[u8; 4]>::try_from(&octets[..4]).unwrap())
            } else {
                IpAddr::from(octets)
            };
            let (source, destination) = (address(source), address(destination));
            let arrival =
                MessageInfo { source, source_port, destination, traffic_class, hop_limit, segment: length, length };
            let mut message = header(&arrival).to_vec();
            message.extend(std::iter::repeat_n(7, length));
            let (got, payload) = parse(&message).unwrap();
            prop_assert_eq!(payload, &vec![7; length][..]);
            prop_assert_eq!((got.source, got.destination), (source, destination));
            prop_assert_eq!((got.source_port, got.hop_limit), (source_port, hop_limit));
            prop_assert_eq!((got.traffic_class, got.length), (traffic_class, length));
            prop_assert_eq!(got.segment, length.max(1));
        }
    }
}

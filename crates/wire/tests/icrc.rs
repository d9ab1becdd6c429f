//! The ICRC against its definition, spelled out byte for byte, and against brute force.

mod common;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::vectors;
use etherparse::UdpHeader;
use pagewire_wire::datagram::{Datagram, NetworkHeader};
use pagewire_wire::icrc::{BurstIcrc, crc32};
use pagewire_wire::limits::MAX_PACKET_LEN;
use pagewire_wire::{Error, Icrc, Packet, packet};
use proptest::collection::vec;
use proptest::prelude::*;

/// Annex A17 by the letter: a copy of the datagram without its last 4 bytes, with every variant field
/// set to ones, behind 8 bytes of ones.
fn by_the_letter(datagram: &[u8]) -> u32 {
    let mut covered = vec![0xff; 8];
    covered.extend_from_slice(&datagram[..datagram.len() - 4]);
    let ip = &mut covered[8..];
    let udp = if ip[0] >> 4 == 4 {
        ip[1] = 0xff; // type of service
        ip[8] = 0xff; // time to live
        ip[10..12].fill(0xff); // header checksum
        20
    } else {
        ip[0] |= 0x0f; // traffic class and flow label
        ip[1..4].fill(0xff);
        ip[7] = 0xff; // hop limit
        40
    };
    ip[udp + 6..udp + 8].fill(0xff); // checksum
    ip[udp + 8 + 4] = 0xff; // FECN, BECN, reserved
    let mut register = !0u32;
    for &byte in &covered {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = register >> 1 ^ if register & 1 != 0 { 0xedb8_8320 } else { 0 };
        }
    }
    !register
}

prop_compose! {
    fn any_network()(
        four: bool, source: u128, destination: u128, identification: u16, dont_fragment: bool, small: [u8; 2],
        flow_label in 0u32..1 << 20,
    ) -> NetworkHeader {
        let [source, destination]: [IpAddr; 2] = [source, destination].map(|bits| {
            if four { Ipv4Addr::from_bits(bits as u32).into() } else { Ipv6Addr::from_bits(bits).into() }
        });
        let mut network = NetworkHeader::between(source, destination, small[0], small[1]).unwrap();
        match &mut network {
            NetworkHeader::Ipv4(ip) => (ip.identification, ip.dont_fragment) = (identification, dont_fragment),
            NetworkHeader::Ipv6(ip) => ip.flow_label = flow_label.try_into().unwrap(),
        }
        network
    }
}

/// A datagram around `body`, BTH to pad, with its ICRC.
fn sealed(network: &NetworkHeader, ports: [u16; 2], body: &[u8]) -> Vec<u8> {
    let at = network.header_len() + UdpHeader::LEN;
    let mut bytes = vec![0; at];
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&[0; 4]);
    network.emit(ports[0], ports[1], body.len() + 4, &mut bytes).unwrap();
    let datagram = Datagram::parse(&bytes).unwrap();
    let (icrc, identification) = (datagram.icrc(), datagram.identification());
    packet::seal(&icrc, identification, &mut bytes[at..]);
    bytes
}

proptest! {
    #[test]
    fn is_what_the_annex_says(network in any_network(), ports: [u16; 2], body in vec(any::<u8>(), 12..5000)) {
        let bytes = sealed(&network, ports, &body);
        prop_assert_eq!(bytes[bytes.len() - 4..].to_vec(), by_the_letter(&bytes).to_le_bytes());
    }

    /// The whole range of lengths, so that every entry of the tables for them is used.
    #[test]
    fn long_packets_too(network in any_network(), len in 12usize..65_000, byte: u8) {
        let bytes = sealed(&network, [1, packet::PORT], &vec![byte; len]);
        prop_assert_eq!(bytes[bytes.len() - 4..].to_vec(), by_the_letter(&bytes).to_le_bytes());
        let datagram = Datagram::parse(&bytes).unwrap();
        prop_assert_eq!(
            datagram.icrc().recover_identification(datagram.payload),
            Some(datagram.identification())
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The identification is found if and only if one of all 65,536 makes the packet intact. A random
    /// ICRC hardly ever is in the subspace, so that some are put there, or one bit beside it.
    #[test]
    fn unknown_identifications_are_solved_as_brute_force_does(
        dont_fragment: bool, addresses: [u32; 2], ports: [u16; 2], body in vec(any::<u8>(), 12..120),
        identification: u16, corrupted in 0u32..100, bit in 0u32..32, noise: u32, likely: u16,
    ) {
        let [source, destination] = addresses.map(Ipv4Addr::from_bits);
        let icrc = Icrc::ipv4(source, destination, ports[0], ports[1], dont_fragment);
        let right = icrc.compute(identification, &body);
        let sent = match corrupted {
            0..40 => right,
            40..70 => right ^ 1 << bit,
            _ => right ^ noise,
        };
        let mut bytes = body.clone();
        bytes.extend_from_slice(&sent.to_le_bytes());
        let solutions: Vec<u16> = (0..=u16::MAX).filter(|&id| icrc.compute(id, &body) == sent).collect();
        prop_assert!(solutions.len() <= 1);
        prop_assert_eq!(icrc.recover_identification(&bytes), solutions.first().copied());
        prop_assert_eq!(icrc.verify_unknown_identification(&bytes), !solutions.is_empty());
        for likely in [likely, identification, identification.wrapping_add(1)] {
            prop_assert_eq!(icrc.verify_likely_identification(likely, &bytes), !solutions.is_empty());
        }
        for id in solutions {
            prop_assert!(icrc.verify(id, &bytes));
        }
    }
}

/// Bits of a datagram, from the IP header on, that the ICRC leaves to routers and switches. A flip of any
/// other must be noticed.
fn is_masked(four: bool, byte: usize, bit: usize) -> bool {
    let udp = if four { 20 } else { 40 };
    let masked_in_ip = if four {
        // Type of service, time to live, header checksum.
        matches!(byte, 1 | 8 | 10 | 11)
    } else {
        // Traffic class and flow label share their first byte with the version; hop limit.
        (byte == 0 && bit < 4) || matches!(byte, 1..=3 | 7)
    };
    // UDP checksum; FECN, BECN and reserved bits of the BTH.
    masked_in_ip || byte == udp + 6 || byte == udp + 7 || byte == udp + 8 + 4
}

proptest! {
    /// Whatever the one before was like.
    #[test]
    fn a_packet_of_a_row_has_the_icrc_that_it_has_alone(
        network in any_network(),
        ports: (u16, u16),
        packets in vec((any::<u16>(), prop::sample::select(vec![12, 16, 300, 301, 1036]), any::<u8>()), 1..20),
    ) {
        let udp = UdpHeader { source_port: ports.0, destination_port: ports.1, ..UdpHeader::default() };
        let icrc = Datagram { network: network.clone(), udp, payload: &[] }.icrc();
        let mut row = BurstIcrc::new(icrc);
        for (identification, length, filling) in packets {
            let body = std::iter::repeat_n(filling, length).collect::<Vec<u8>>();
            let alone = icrc.compute(identification, &body);
            prop_assert_eq!(row.compute_with(crc32, identification, &body), alone);
            let whole = [&body[..], &alone.to_le_bytes()].concat();
            let found = row.find_identification_with(crc32, identification ^ 0x5A, &whole);
            let likely = matches!(network, NetworkHeader::Ipv4(_)).then_some(identification);
            prop_assert_eq!(found, likely.or(Some(identification ^ 0x5A)));
        }
    }
}

/// Every bit of every vector in turn. A receiver that sees the whole datagram (a raw socket, a capture)
/// drops it. So does one on a UDP socket, to which the kernel has given addresses and ports, for every bit
/// of the UDP payload, although it has to guess the identification.
#[test]
fn a_flipped_bit_is_noticed() {
    let mut flips = 0;
    for vector in vectors().iter().filter(|vector| vector.is_datagram()) {
        let intact = Datagram::parse(&vector.bytes).unwrap();
        let icrc = intact.icrc();
        let four = matches!(intact.network, NetworkHeader::Ipv4(_));
        let at = intact.network.header_len() + UdpHeader::LEN;
        let mut bytes = vector.bytes.clone();
        for byte in 0..bytes.len() {
            for bit in 0..8 {
                bytes[byte] ^= 1 << bit;
                let what = format!("{}: byte {byte}, bit {bit}", vector.name);
                let result = Datagram::parse(&bytes).and_then(|datagram| datagram.packet());
                if is_masked(four, byte, bit) {
                    // The IPv4 header checksum protects its header, but a kernel has checked it by then.
                    let noticed_by_ip = four && byte < 20;
                    assert!(result.is_ok() != noticed_by_ip, "{what}: {result:?}");
                } else {
                    assert!(result.is_err(), "{what}: {result:?}");
                }
                if byte >= at {
                    let payload = &bytes[at..];
                    let accepted =
                        Packet::parse(payload).is_ok() && icrc.verify_unknown_identification(payload);
                    assert_eq!(accepted, is_masked(four, byte, bit), "{what}, identification unknown");
                }
                bytes[byte] ^= 1 << bit;
                flips += 1;
            }
        }
    }
    assert!(flips > 100_000, "only {flips} flips");
}

/// Were the checksum of a changed IPv4 header mended on the way, the ICRC would notice it alone, but for
/// what it leaves out.
#[test]
fn a_flipped_bit_under_a_mended_checksum_is_noticed() {
    for vector in vectors().iter().filter(|vector| vector.bytes[0] >> 4 == 4 && vector.is_datagram()) {
        for byte in 0..20 {
            for bit in 0..8 {
                let mut bytes = vector.bytes.clone();
                bytes[byte] ^= 1 << bit;
                bytes[10..12].fill(0);
                let sum: u32 =
                    bytes[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
                let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
                let result = Datagram::parse(&bytes).and_then(|datagram| datagram.packet());
                assert_eq!(
                    result.is_ok(),
                    is_masked(true, byte, bit),
                    "{}: byte {byte}, bit {bit}: {result:?}",
                    vector.name
                );
            }
        }
    }
}

/// What stands next to the identification is not taken for a part of it: an ICRC made over other addresses,
/// lengths or ports is refused, whichever bit differs.
#[test]
fn only_the_identification_may_be_unknown() {
    for vector in vectors().iter().filter(|vector| vector.is_datagram()) {
        let intact = Datagram::parse(&vector.bytes).unwrap();
        let icrc = intact.icrc();
        let four = matches!(intact.network, NetworkHeader::Ipv4(_));
        let at = intact.network.header_len() + UdpHeader::LEN;
        for byte in 1..at {
            for bit in 0..8 {
                let mut bytes = vector.bytes.clone();
                bytes[byte] ^= 1 << bit;
                let foreign = by_the_letter(&bytes).to_le_bytes();
                let end = bytes.len() - 4;
                bytes[end..].copy_from_slice(&foreign);
                let unknown = four && matches!(byte, 4 | 5);
                assert_eq!(
                    icrc.verify_unknown_identification(&bytes[at..]),
                    unknown || is_masked(four, byte, bit),
                    "{}: byte {byte}, bit {bit}",
                    vector.name
                );
            }
        }
    }
}

/// No single flipped bit of a packet of any length up to the largest one lies in the subspace of unknown
/// identifications. Longer packets have such bits; the first is 26,766 bytes behind the IP identification.
#[test]
fn no_length_hides_a_flipped_bit_from_the_unknown_identification() {
    let icrc = Icrc::ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 50_000, packet::PORT, true);
    // CRCs are affine: whether a flip is noticed depends only on the bits behind it. So the longest packet
    // stands for all.
    let mut bytes = vec![0x5a; MAX_PACKET_LEN];
    packet::seal(&icrc, 7, &mut bytes);
    assert_eq!(icrc.recover_identification(&bytes), Some(7));
    for byte in (0..bytes.len()).filter(|&byte| byte != 4) {
        for bit in 0..8 {
            bytes[byte] ^= 1 << bit;
            assert!(!icrc.verify_unknown_identification(&bytes), "byte {byte}, bit {bit}");
            bytes[byte] ^= 1 << bit;
        }
    }
}

#[test]
fn a_wrong_icrc_has_an_error_of_its_own() {
    let vector = &vectors()[0];
    let mut bytes = vector.bytes.clone();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(Datagram::parse(&bytes).unwrap().packet(), Err(Error::Icrc));
}

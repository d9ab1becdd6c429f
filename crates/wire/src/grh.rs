//! The 40 bytes in front of a datagram in its receiver's memory.
//!
//! On InfiniBand they are the global route header (InfiniBand specification, volume 1, section 8.3),
//! which has the layout of an IPv6 header. On RoCEv2 they are the IPv6 header, or, with IPv4, 20 bytes
//! without meaning and then the IPv4 header (annex A17). Programs tell the two apart by the version in
//! the first byte and by the IPv4 header checksum, so that both are written with care here.

use core::net::{Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4Header, Ipv6Header, UdpHeader};

use crate::Error;
use crate::datagram::{NetworkHeader, parse_ipv4};

/// Bytes of either form.
pub const LEN: usize = 40;
/// Where the IPv4 header stands in its form.
const IPV4_AT: usize = LEN - Ipv4Header::MIN_LEN;

/// Reads whichever form it is: IPv4 where bytes 20 to 39 are an IPv4 header of 20 bytes with the
/// right checksum, as programs do it; else IPv6.
///
/// # Errors
/// [`Error::Truncated`] where there are fewer than 40 bytes; [`Error::Version`] where it is neither.
pub fn parse(bytes: &[u8]) -> Result<NetworkHeader, Error> {
    let have = bytes.len();
    let bytes = bytes.get(..LEN).ok_or(Error::Truncated { need: LEN, have })?;
    match parse_ipv4(&bytes[IPV4_AT..]) {
        Ok(header) => Ok(NetworkHeader::Ipv4(header.to_header())),
        Err(_) => Ok(NetworkHeader::Ipv6(Ipv6Header::from_slice(bytes)?.0)),
    }
}

/// Writes the IPv4 form: of a datagram that must not be fragmented, with identification 0 and the right checksum.
/// `udp_payload`: bytes behind the UDP header.
///
/// Every datagram that a UD queue pair receives has one, and [`Ipv4Header`] takes four times as long to write it.
#[inline]
pub fn emit_ipv4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    traffic_class: u8,
    hop_limit: u8,
    udp_payload: u16,
) -> [u8; LEN] {
    const HEADERS: u16 = Ipv4Header::MIN_LEN_U16 + UdpHeader::LEN_U16;
    const DONT_FRAGMENT: u8 = 0x40;
    let [high, low] = udp_payload.saturating_add(HEADERS).to_be_bytes();
    let first = [0x45, traffic_class, high, low, 0, 0, DONT_FRAGMENT, 0];
    let second = [hop_limit, IpNumber::UDP.0];
    let (source, destination) = (source.octets(), destination.octets());
    let sum = Sum16BitWords::new()
        .add_8bytes(first)
        .add_2bytes(second)
        .add_4bytes(source)
        .add_4bytes(destination)
        .ones_complement();
    let mut bytes = [0; LEN];
    let ip = &mut bytes[IPV4_AT..];
    ip[..8].copy_from_slice(&first);
    ip[8..10].copy_from_slice(&second);
    // etherparse adds words as they lie in memory.
    ip[10..12].copy_from_slice(&sum.to_ne_bytes());
    ip[12..16].copy_from_slice(&source);
    ip[16..].copy_from_slice(&destination);
    bytes
}

/// Writes the IPv6 form, with flow label 0. `udp_payload`: bytes behind the UDP header.
#[inline]
pub fn emit_ipv6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    traffic_class: u8,
    hop_limit: u8,
    udp_payload: u16,
) -> [u8; LEN] {
    let flow = 6 << 28 | u32::from(traffic_class) << 20;
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&flow.to_be_bytes());
    bytes[4..6].copy_from_slice(&udp_payload.saturating_add(UdpHeader::LEN_U16).to_be_bytes());
    bytes[6..8].copy_from_slice(&[IpNumber::UDP.0, hop_limit]);
    bytes[8..24].copy_from_slice(&source.octets());
    bytes[24..].copy_from_slice(&destination.octets());
    bytes
}

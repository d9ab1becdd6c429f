//! A whole IP datagram with a RoCEv2 packet: for captures, and whoever checks them. etherparse reads and writes its
//! IP and UDP headers; the rules of RoCEv2 stand here.

use core::net::IpAddr;

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpDscp, IpEcn, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6Header, UdpHeader};

use crate::{Error, Icrc};

/// The network header of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkHeader {
    /// IPv4 without options.
    Ipv4(Ipv4Header),
    /// IPv6 without extension headers.
    Ipv6(Ipv6Header),
}

/// A parsed datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Network header.
    pub network: NetworkHeader,
    /// UDP header. Its checksum is not checked: RoCEv2 relies on the ICRC.
    pub udp: UdpHeader,
    /// UDP payload.
    pub payload: &'a [u8],
}

impl NetworkHeader {
    /// The header of a UDP datagram that must not be fragmented, with identification and flow label 0.
    /// [`emit`](Self::emit) works out its length. `None`: the addresses are of different families.
    pub fn between(
        source: IpAddr,
        destination: IpAddr,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Option<NetworkHeader> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(NetworkHeader::Ipv4(Ipv4Header {
                dscp: IpDscp::try_new(traffic_class >> 2).expect("6 bits"),
                ecn: IpEcn::try_new(traffic_class & 3).expect("2 bits"),
                dont_fragment: true,
                time_to_live: hop_limit,
                protocol: IpNumber::UDP,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv4Header::default()
            })),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(NetworkHeader::Ipv6(Ipv6Header {
                traffic_class,
                hop_limit,
                next_header: IpNumber::UDP,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            })),
            _ => None,
        }
    }

    /// Bytes of the header.
    pub fn header_len(&self) -> usize {
        match self {
            NetworkHeader::Ipv4(header) => header.header_len(),
            NetworkHeader::Ipv6(header) => header.header_len(),
        }
    }

    /// Writes this header and a UDP header in front of `payload_len` bytes of UDP payload that stand in
    /// `buffer` already, behind [`header_len`](Self::header_len) and [`UdpHeader::LEN`] bytes. Gives the
    /// length of the datagram. The lengths in the header and the protocol are worked out here; so is
    /// the UDP checksum of IPv6, which must have one. IPv4 is sent without.
    ///
    /// # Errors
    /// [`Error::Length`] where the payload is longer than a datagram holds, and [`Error::Truncated`] where
    /// `buffer` is too short.
    pub fn emit(
        &self,
        source_port: u16,
        destination_port: u16,
        payload_len: usize,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        let at = self.header_len();
        let need = at + UdpHeader::LEN + payload_len;
        let have = buffer.len();
        let length = u16::try_from(UdpHeader::LEN + payload_len).map_err(|_| Error::Length)?;
        let buffer = buffer.get_mut(..need).ok_or(Error::Truncated { need, have })?;
        let (ip, rest) = buffer.split_at_mut(at);
        let (udp, payload) = rest.split_at_mut(UdpHeader::LEN);
        let mut udp_header = UdpHeader { source_port, destination_port, length, checksum: 0 };
        match self.clone() {
            NetworkHeader::Ipv4(mut header) => {
                header.protocol = IpNumber::UDP;
                header.set_payload_len(length.into()).map_err(|_| Error::Length)?;
                header.header_checksum = header.calc_header_checksum();
                ip.copy_from_slice(&header.to_bytes());
            }
            NetworkHeader::Ipv6(header) => {
                let header = Ipv6Header { payload_length: length, next_header: IpNumber::UDP, ..header };
                udp_header.checksum =
                    udp_header.calc_checksum_ipv6(&header, payload).map_err(|_| Error::Length)?;
                ip.copy_from_slice(&header.to_bytes());
            }
        }
        udp.copy_from_slice(&udp_header.to_bytes());
        Ok(need)
    }
}

/// Reads an IPv4 header with its options. The bytes behind it need not be there.
///
/// # Errors
/// [`Error::Version`] where it is not 4; [`Error::Truncated`] where bytes are missing;
/// [`Error::Length`] where the lengths are too small for the header; [`Error::Checksum`].
pub fn parse_ipv4(bytes: &[u8]) -> Result<Ipv4HeaderSlice<'_>, Error> {
    let header = Ipv4HeaderSlice::from_slice(bytes)?;
    if usize::from(header.total_len()) < header.slice().len() {
        return Err(Error::Length);
    }
    if Sum16BitWords::new().add_slice(header.slice()).ones_complement() != 0 {
        return Err(Error::Checksum);
    }
    Ok(header)
}

impl<'a> Datagram<'a> {
    /// Reads a datagram, from the first byte of its IP header on. Bytes behind its end are ignored, as
    /// there are on short Ethernet frames.
    ///
    /// # Errors
    /// As [`parse_ipv4`]; [`Error::Protocol`] where it is no UDP, a fragment, or has IPv4 options, which RoCEv2
    /// does not send; [`Error::Truncated`] where it is cut off; [`Error::Length`] where the lengths of IP
    /// and UDP differ; [`Error::Icrc`] where IPv4's reserved flag is set.
    pub fn parse(bytes: &'a [u8]) -> Result<Datagram<'a>, Error> {
        let (network, end) = if bytes.first().is_some_and(|first| first >> 4 == 6) {
            let (header, _) = Ipv6Header::from_slice(bytes)?;
            if header.next_header != IpNumber::UDP {
                return Err(Error::Protocol);
            }
            let end = Ipv6Header::LEN + usize::from(header.payload_length);
            (NetworkHeader::Ipv6(header), end)
        } else {
            let header = parse_ipv4(bytes)?;
            // The ICRC covers the reserved flag, which no plain value has: as good as a wrong ICRC.
            if header.slice()[6] & 0x80 != 0 {
                return Err(Error::Icrc);
            }
            let plain = header.options().is_empty() && !header.is_fragmenting_payload();
            if header.protocol() != IpNumber::UDP || !plain {
                return Err(Error::Protocol);
            }
            (NetworkHeader::Ipv4(header.to_header()), usize::from(header.total_len()))
        };
        let have = bytes.len();
        let inner = bytes.get(network.header_len()..end).ok_or(Error::Truncated { need: end, have })?;
        let (udp, payload) = UdpHeader::from_slice(inner)?;
        if usize::from(udp.length) != inner.len() {
            return Err(Error::Length);
        }
        Ok(Datagram { network, udp, payload })
    }

    /// What computes the ICRC of packets with these headers.
    pub fn icrc(&self) -> Icrc {
        let UdpHeader { source_port, destination_port, .. } = self.udp;
        match &self.network {
            NetworkHeader::Ipv4(ip) => Icrc::ipv4(
                ip.source.into(),
                ip.destination.into(),
                source_port,
                destination_port,
                ip.dont_fragment,
            ),
            NetworkHeader::Ipv6(ip) => {
                Icrc::ipv6(ip.source.into(), ip.destination.into(), source_port, destination_port)
            }
        }
    }

    /// IPv4 identification; 0 on IPv6, which has none.
    pub const fn identification(&self) -> u16 {
        match &self.network {
            NetworkHeader::Ipv4(ip) => ip.identification,
            NetworkHeader::Ipv6(_) => 0,
        }
    }

    /// Reads the RoCEv2 packet and checks its ICRC.
    ///
    /// # Errors
    /// As [`Packet::parse`](crate::Packet::parse), and [`Error::Icrc`].
    pub fn packet(&self) -> Result<crate::Packet<'a>, Error> {
        let packet = crate::Packet::parse(self.payload)?;
        if !self.icrc().verify(self.identification(), self.payload) {
            return Err(Error::Icrc);
        }
        Ok(packet)
    }
}

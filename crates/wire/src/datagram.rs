//! A whole IP datagram with a RoCEv2 packet: for raw sockets, captures, and whoever checks them.

use crate::checksum::Sum;
use crate::view::put;
use crate::{Error, Icrc, Ipv4, Ipv6, Udp, ipv4, ipv6, udp};

/// The network header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// IPv4 without options.
    Ipv4(Ipv4),
    /// IPv6 without extension headers.
    Ipv6(Ipv6),
}

/// A parsed datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Network header.
    pub network: Network,
    /// UDP header.
    pub udp: Udp,
    /// UDP payload.
    pub payload: &'a [u8],
}

impl Network {
    /// Bytes of the header.
    pub const fn header_len(&self) -> usize {
        match self {
            Network::Ipv4(_) => ipv4::LEN,
            Network::Ipv6(_) => ipv6::LEN,
        }
    }

    /// Writes this header and a UDP header in front of `payload_len` bytes of UDP payload that stand in
    /// `buffer` already, behind [`header_len`](Self::header_len) and [`udp::LEN`] bytes. Gives the
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
        let need = at + udp::LEN + payload_len;
        let have = buffer.len();
        let udp_len = u16::try_from(udp::LEN + payload_len).map_err(|_| Error::Length)?;
        let buffer = buffer.get_mut(..need).ok_or(Error::Truncated { need, have })?;
        let (ip, rest) = buffer.split_at_mut(at);
        let udp = Udp { source_port, destination_port, length: udp_len, checksum: 0 };
        udp.emit(&mut udp::Packet::new(&mut *rest)?);
        match *self {
            Network::Ipv4(header) => {
                let total_length = udp_len.checked_add(ipv4::LEN as u16).ok_or(Error::Length)?;
                Ipv4 { total_length, protocol: udp::PROTOCOL, ..header }.emit(&mut ipv4::Packet::new(ip)?);
            }
            Network::Ipv6(header) => {
                Ipv6 { payload_length: udp_len, next_header: udp::PROTOCOL, ..header }
                    .emit(&mut ipv6::Packet::new(ip)?);
                let pseudo = Sum::default()
                    .add(&header.source.octets())
                    .add(&header.destination.octets())
                    .add(&udp_len.to_be_bytes())
                    .add(&[0, udp::PROTOCOL]);
                // 0 would mean that there is none (RFC 768).
                let checksum = match pseudo.add(rest).finish() {
                    0 => u16::MAX,
                    sum => sum,
                };
                put(rest, udp::field::CHECKSUM, checksum.to_be_bytes());
            }
        }
        Ok(need)
    }
}

impl<'a> Datagram<'a> {
    /// Reads a datagram, from the first byte of its IP header on. Bytes behind its end are ignored, as
    /// there are on short Ethernet frames.
    ///
    /// # Errors
    /// As [`Ipv4::parse`], [`Ipv6::parse`] and [`Udp::parse`]; [`Error::Protocol`] where it is no UDP, a
    /// fragment, or has IPv4 options, which RoCEv2 does not send; [`Error::Length`] where the lengths of IP
    /// and UDP differ; [`Error::Icrc`] where IPv4's reserved flag is set.
    pub fn parse(bytes: &'a [u8]) -> Result<Datagram<'a>, Error> {
        let first = *bytes.first().ok_or(Error::Truncated { need: 1, have: 0 })?;
        let (network, end) = if first >> 4 == 6 {
            let header = Ipv6::parse(&ipv6::Packet::new(bytes)?)?;
            if header.next_header != udp::PROTOCOL {
                return Err(Error::Protocol);
            }
            (Network::Ipv6(header), ipv6::LEN + usize::from(header.payload_length))
        } else {
            let packet = ipv4::Packet::new(bytes)?;
            let header = Ipv4::parse(&packet)?;
            // The ICRC covers the reserved flag, which no plain value has: as good as a wrong ICRC.
            if packet.reserved_flag() {
                return Err(Error::Icrc);
            }
            let fragment = header.more_fragments || header.fragment_offset != 0;
            if header.protocol != udp::PROTOCOL || fragment || packet.header_len() != ipv4::LEN {
                return Err(Error::Protocol);
            }
            (Network::Ipv4(header), usize::from(header.total_length))
        };
        let have = bytes.len();
        let inner = bytes.get(network.header_len()..end).ok_or(Error::Truncated { need: end, have })?;
        let udp = Udp::parse(&udp::Packet::new(inner)?)?;
        if usize::from(udp.length) != inner.len() {
            return Err(Error::Length);
        }
        Ok(Datagram { network, udp, payload: &inner[udp::LEN..] })
    }

    /// What computes the ICRC of packets with these headers.
    pub fn icrc(&self) -> Icrc {
        let Udp { source_port, destination_port, .. } = self.udp;
        match self.network {
            Network::Ipv4(ip) => {
                Icrc::ipv4(ip.source, ip.destination, source_port, destination_port, ip.dont_fragment)
            }
            Network::Ipv6(ip) => Icrc::ipv6(ip.source, ip.destination, source_port, destination_port),
        }
    }

    /// IPv4 identification; 0 on IPv6, which has none.
    pub const fn identification(&self) -> u16 {
        match self.network {
            Network::Ipv4(ip) => ip.identification,
            Network::Ipv6(_) => 0,
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

//! The invariant CRC of RoCEv2 (InfiniBand specification, volume 1, section 7.8.1 and annex A17).
//!
//! It is the CRC-32 of Ethernet over eight bytes of ones (in place of an InfiniBand local route
//! header), the IP header, the UDP header, and the packet up to its ICRC, where every field that a
//! router or switch may change counts as all ones: ToS, TTL and header checksum of IPv4; traffic class,
//! flow label and hop limit of IPv6; the UDP checksum; and the byte of the BTH with FECN and BECN.
//!
//! Most of what stands in front of the BTH is the same for every packet of a connection. A CRC is
//! affine in the bits it covers, so [`Icrc`] holds the CRC register behind the headers as if lengths
//! and identification were zero, and adds what they contribute from tables; likewise the masked byte of
//! the BTH is undone by a change of the register in front of the BTH. What is left is one pass over
//! the packet as it lies in memory.

mod polynomial;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IpDscp, IpEcn, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, UdpHeader};

use crate::{bth, packet};
use polynomial::{contribution, divide_by_x, multiply, power_of_inverse};

/// Computes and checks the ICRC of packets between two UDP endpoints. 8 bytes; making one costs about
/// as much as the CRC of 50 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icrc {
    /// The CRC register behind IP and UDP header, with lengths and identification zero.
    register: u32,
    network: IpVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IpVersion {
    V4,
    V6,
}

/// Bytes of ones in front of the IP header.
const ONES: usize = 8;
/// Bytes of what the register covers.
const V4_LEN: usize = ONES + Ipv4Header::MIN_LEN + UdpHeader::LEN;
const V6_LEN: usize = ONES + Ipv6Header::LEN + UdpHeader::LEN;
/// Where the fields stand that differ from packet to packet.
const V4_TOTAL_LENGTH_AT: usize = ONES + 2;
const V4_IDENTIFICATION_AT: usize = ONES + 4;
const V6_PAYLOAD_LENGTH_AT: usize = ONES + 4;
const V4_UDP_LENGTH_AT: usize = ONES + Ipv4Header::MIN_LEN + 4;

/// What a 16-bit field contributes to a register: one table for each of its bytes.
type FieldTable = [[u32; 256]; 2];

const fn field_table(covered: usize, at: usize) -> FieldTable {
    [contribution(covered - at - 1), contribution(covered - at - 2)]
}

static V4_TOTAL_LENGTH: FieldTable = field_table(V4_LEN, V4_TOTAL_LENGTH_AT);
static V4_IDENTIFICATION: FieldTable = field_table(V4_LEN, V4_IDENTIFICATION_AT);
static V6_PAYLOAD_LENGTH: FieldTable = field_table(V6_LEN, V6_PAYLOAD_LENGTH_AT);
/// The UDP header is the last of both, so that one table serves both.
static UDP_LENGTH: FieldTable = field_table(V4_LEN, V4_UDP_LENGTH_AT);

/// What must be added to the register in front of the BTH so that its masked byte counts as one that
/// differs by the index: the contribution of that byte, taken back over the bytes up to it.
static MASK: [u32; 256] = {
    let mut table = contribution(0);
    let mut value = 0;
    while value < 256 {
        let mut bits = 8 * (bth::MASKED + 1);
        while bits > 0 {
            table[value] = divide_by_x(table[value]);
            bits -= 1;
        }
        value += 1;
    }
    table
};

/// Bytes between the IPv4 identification and the BTH.
const BEHIND_IDENTIFICATION: usize = V4_LEN - (V4_IDENTIFICATION_AT + 2);
/// x^-(8 (i + BEHIND_IDENTIFICATION) + 32) for i in 0..256: takes a syndrome back to where the
/// identification stood, over the low byte of the packet's length.
static BACK: [u32; 256] = power_of_inverse(8 * BEHIND_IDENTIFICATION + 32, 8);
/// x^-(8 * 256 i): the same over the high byte.
static BACK_256: [u32; 256] = power_of_inverse(0, 8 * 256);

/// The register of the CRC behind `bytes`, given the one in front of them; neither is inverted.
#[inline]
pub fn crc32(register: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!register);
    hasher.update(bytes);
    !hasher.finalize()
}

impl Icrc {
    /// For IPv4 without options. `dont_fragment` is the DF bit that the datagrams have.
    pub fn ipv4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        source_port: u16,
        destination_port: u16,
        dont_fragment: bool,
    ) -> Icrc {
        let header = Ipv4Header {
            dscp: IpDscp::MAX,
            ecn: IpEcn::THREE,
            total_len: 0,
            identification: 0,
            dont_fragment,
            time_to_live: u8::MAX,
            protocol: IpNumber::UDP,
            header_checksum: u16::MAX,
            source: source.octets(),
            destination: destination.octets(),
            ..Ipv4Header::default()
        };
        let register = register(&header.to_bytes(), source_port, destination_port);
        Icrc { register, network: IpVersion::V4 }
    }

    /// For what is sent with DF between two addresses; `None`: they are of different families.
    pub fn between(
        source: IpAddr,
        destination: IpAddr,
        source_port: u16,
        destination_port: u16,
    ) -> Option<Icrc> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Icrc::ipv4(source, destination, source_port, destination_port, true))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Icrc::ipv6(source, destination, source_port, destination_port))
            }
            _ => None,
        }
    }

    /// For IPv6 without extension headers.
    pub fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, source_port: u16, destination_port: u16) -> Icrc {
        let header = Ipv6Header {
            traffic_class: u8::MAX,
            flow_label: Ipv6FlowLabel::try_new(Ipv6FlowLabel::MAX_U32).expect("20 bits"),
            payload_length: 0,
            next_header: IpNumber::UDP,
            hop_limit: u8::MAX,
            source: source.octets(),
            destination: destination.octets(),
        };
        let register = register(&header.to_bytes(), source_port, destination_port);
        Icrc { register, network: IpVersion::V6 }
    }

    /// The ICRC of a packet whose BTH, extended headers, payload and pad are `body`, at most
    /// [`MAX_UDP_PAYLOAD`](crate::limits::MAX_UDP_PAYLOAD) less 4 bytes. `identification` is that of
    /// the IPv4 header; IPv6 has none, and ignores it.
    #[inline]
    pub fn compute(&self, identification: u16, body: &[u8]) -> u32 {
        BurstIcrc::new(*self).compute_with(crc32, identification, body)
    }

    /// The register in front of a body of so many bytes, with the IPv4 identification zero.
    #[inline]
    fn before(&self, body_len: usize) -> u32 {
        let udp_len = (body_len + packet::ICRC_LEN + UdpHeader::LEN) as u16;
        let network = match self.network {
            IpVersion::V4 => add(&V4_TOTAL_LENGTH, udp_len.wrapping_add(Ipv4Header::MIN_LEN_U16)),
            IpVersion::V6 => add(&V6_PAYLOAD_LENGTH, udp_len),
        };
        self.register ^ add(&UDP_LENGTH, udp_len) ^ network
    }

    /// Whether `udp_payload`, a packet with its ICRC, is intact, given its IPv4 identification.
    #[inline]
    pub fn verify(&self, identification: u16, udp_payload: &[u8]) -> bool {
        packet::read_icrc(udp_payload).is_some_and(|(body, icrc)| self.compute(identification, body) == icrc)
    }

    /// Whether there is an IPv4 identification with which `udp_payload` is intact. For receivers on a
    /// plain UDP socket, which do not see it.
    ///
    /// Costs 40 to 70 ns more than [`verify`](Self::verify), and nothing where the identification is 0. One
    /// of 65,536 random corruptions is missed. No single flipped bit of a packet of up to
    /// [`MAX_PACKET_LEN`](crate::limits::MAX_PACKET_LEN) is. On IPv6, which has no identification,
    /// nothing is given away: this is [`verify`](Self::verify).
    #[inline]
    pub fn verify_unknown_identification(&self, udp_payload: &[u8]) -> bool {
        self.verify_likely_identification(0, udp_payload)
    }

    /// As [`verify_unknown_identification`](Self::verify_unknown_identification), but nothing is to pay where the
    /// identification is the `likely` one instead.
    #[inline]
    pub fn verify_likely_identification(&self, likely: u16, udp_payload: &[u8]) -> bool {
        self.find_identification(likely, udp_payload).is_some()
    }

    /// The only IPv4 identification with which `udp_payload` is intact; `None` if there is none. Nothing is to pay where it
    /// is the `likely` one. On IPv6 the likely one stands for an intact packet.
    #[inline]
    pub fn find_identification(&self, likely: u16, udp_payload: &[u8]) -> Option<u16> {
        BurstIcrc::new(*self).find_identification_with(crc32, likely, udp_payload)
    }

    /// The only IPv4 identification with which `udp_payload` is intact; `None` if there is none. On
    /// IPv6, 0 stands for an intact packet.
    pub fn recover_identification(&self, udp_payload: &[u8]) -> Option<u16> {
        self.find_identification(0, udp_payload)
    }

    /// By which bits the identification differs from the likely one, where the packet is so long without its ICRC.
    ///
    /// With S, the syndrome, the difference of the ICRC received and the one computed for the likely identification, and I the
    /// difference of the identifications as a polynomial of degree below 16, intact means S = I x^k mod P, k being the bits
    /// behind it and the CRC's own 32. P has a constant term, so x has an inverse, and I = S x^-k mod P:
    /// there is a solution if and only if that has a degree below 16.
    fn difference_of_identification(&self, syndrome: u32, length: usize) -> Option<u16> {
        if syndrome == 0 {
            return Some(0);
        }
        if self.network == IpVersion::V6 || length > usize::from(u16::MAX) {
            return None;
        }
        let [high, low] = (length as u16).to_be_bytes();
        let mut solution = multiply(syndrome, BACK[usize::from(low)]);
        if high != 0 {
            solution = multiply(solution, BACK_256[usize::from(high)]);
        }
        // Degrees 0 to 15 are the upper half of a register, the first byte in its low bits.
        (solution & 0xffff == 0).then_some(((solution >> 16) as u16).swap_bytes())
    }
}

/// An [`Icrc`] for packets of which one is mostly as long as the one before: what lengths contribute is looked up only where
/// they differ.
#[derive(Debug, Clone, Copy)]
pub struct BurstIcrc {
    icrc: Icrc,
    /// Bytes of the last body, and the register in front of it, with the identification zero.
    before: Option<(usize, u32)>,
}

impl BurstIcrc {
    /// For packets of any length.
    #[inline]
    pub fn new(icrc: Icrc) -> BurstIcrc {
        BurstIcrc { icrc, before: None }
    }

    /// The ICRC of single packets.
    #[inline]
    pub fn icrc(&self) -> &Icrc {
        &self.icrc
    }

    /// As [`Icrc::compute`], by a function that gives what [`crc32`] does.
    #[inline]
    pub fn compute_with(&mut self, crc: impl Fn(u32, &[u8]) -> u32, identification: u16, body: &[u8]) -> u32 {
        let mut register = match self.before {
            Some((length, before)) if length == body.len() => before,
            _ => {
                let before = self.icrc.before(body.len());
                self.before = Some((body.len(), before));
                before
            }
        };
        if self.icrc.network == IpVersion::V4 {
            register ^= add(&V4_IDENTIFICATION, identification);
        }
        if let Some(&masked) = body.get(bth::MASKED) {
            register ^= MASK[usize::from(!masked)];
        }
        !crc(register, body)
    }

    /// As [`Icrc::find_identification`], by a function that gives what [`crc32`] does.
    #[inline]
    pub fn find_identification_with(
        &mut self,
        crc: impl Fn(u32, &[u8]) -> u32,
        likely: u16,
        udp_payload: &[u8],
    ) -> Option<u16> {
        let (body, icrc) = packet::read_icrc(udp_payload)?;
        let syndrome = self.compute_with(crc, likely, body) ^ icrc;
        self.icrc.difference_of_identification(syndrome, body.len()).map(|difference| likely ^ difference)
    }
}

/// The register behind eight bytes of ones, an IP header with ones in its variant fields, and the UDP header.
#[inline]
fn register(ip: &[u8], source_port: u16, destination_port: u16) -> u32 {
    let udp = UdpHeader { source_port, destination_port, length: 0, checksum: u16::MAX };
    let mut covered = [0xff; V6_LEN];
    let end = ONES + ip.len() + UdpHeader::LEN;
    covered[ONES..ONES + ip.len()].copy_from_slice(ip);
    covered[ONES + ip.len()..end].copy_from_slice(&udp.to_bytes());
    !crc32fast::hash(&covered[..end])
}

#[inline]
fn add(table: &FieldTable, value: u16) -> u32 {
    let [high, low] = value.to_be_bytes();
    table[0][usize::from(high)] ^ table[1][usize::from(low)]
}

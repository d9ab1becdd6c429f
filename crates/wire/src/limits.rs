//! The bounds of the formats. Nothing in this crate grows beyond them.

/// Payload bytes of the largest path MTU (InfiniBand specification, volume 1, section 7.7.8).
pub const MAX_MTU: usize = 4096;

/// Payload bytes of a packet in a stream between two Pagewires that have agreed on it.
pub const STREAM_MTU: usize = 65_536;

/// Bytes of the longest header that an opcode calls for: BTH, XRCETH and AtomicETH.
pub const MAX_HEADER_LEN: usize = crate::bth::LEN + crate::xrceth::LEN + crate::atomic_eth::LEN;

/// Bytes of the longest packet with an MTU's payload: header, payload, ICRC. Payloads of
/// [`MAX_MTU`] need no padding, and shorter ones never get longer by it.
pub const MAX_PACKET_LEN: usize = MAX_HEADER_LEN + MAX_MTU + crate::packet::ICRC_LEN;

/// Bytes of the longest packet in a stream, which has no ICRC there.
pub const MAX_STREAM_PACKET_LEN: usize = MAX_HEADER_LEN + STREAM_MTU;

/// Bytes of the longest UDP payload: what the 16-bit UDP length field leaves.
pub const MAX_UDP_PAYLOAD: usize = u16::MAX as usize - etherparse::UdpHeader::LEN;

/// Bits in the bitmap of a selective acknowledgement.
pub const MAX_SELECTIVE_BITS: usize = 256;

//! A whole RoCEv2 packet: what a UDP datagram to port 4791 carries.
//!
//! ```text
//! BTH, extended headers | payload | pad, 0 to 3 | ICRC, 4
//! ```
//!
//! The sender's order: gather the payload at `header.len()`, [`emit`] the headers and the pad around
//! it, and, once the IP addresses are known, [`seal`] it with the ICRC.

use crate::icrc::{BurstIcrc, crc32};
use crate::{Error, Icrc, PacketHeader};

/// UDP destination port of RoCEv2 (InfiniBand specification, volume 1, annex A17).
pub const PORT: u16 = 4791;

/// Direct ports: UDP ports at which a Pagewire without port 4791 takes packets. Each equals the upper 16 bits of the queue pair numbers that are
/// reached there, and of the communication IDs. The multicast number is none of them.
pub const DIRECT_PORTS: core::ops::Range<u16> = 0xF000..0xFFFF;
/// Bytes of the ICRC behind the pad.
pub const ICRC_LEN: usize = 4;

/// A parsed packet. The ICRC has been read, not checked: see [`Icrc`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// BTH and extended headers.
    pub header: PacketHeader,
    /// The payload, without pad and ICRC.
    pub payload: &'a [u8],
    /// The ICRC as it came.
    pub icrc: u32,
}

/// Bytes of padding that a payload of `len` bytes needs: 0 to 3.
#[inline]
pub const fn pad_for(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// Bytes of the whole packet.
#[inline]
pub fn len(header: &PacketHeader, payload_len: usize) -> usize {
    header.len() + payload_len + pad_for(payload_len) + ICRC_LEN
}

impl<'a> Packet<'a> {
    /// Reads a UDP payload.
    ///
    /// # Errors
    /// As [`PacketHeader::parse`]; [`Error::Padding`] where the packet is not a multiple of four bytes or the
    /// pad is longer than what follows the headers.
    #[inline]
    pub fn parse(udp_payload: &'a [u8]) -> Result<Packet<'a>, Error> {
        let (header, at) = PacketHeader::parse(udp_payload)?;
        let have = udp_payload.len();
        if have < at + ICRC_LEN {
            return Err(Error::Truncated { need: at + ICRC_LEN, have });
        }
        if have % 4 != 0 {
            return Err(Error::Padding);
        }
        let (body, icrc) = read_icrc(&udp_payload[at..]).ok_or(Error::Padding)?;
        let len = body.len().checked_sub(usize::from(header.bth.pad)).ok_or(Error::Padding)?;
        Ok(Packet { header, payload: &body[..len], icrc })
    }
}

/// Writes headers and pad around a payload of `payload_len` bytes that stands at `header.len()` in
/// `buffer` already, and gives the length of the packet with its ICRC, whose four bytes are left to
/// [`seal`]. The pad count is worked out here; that in `header.bth` is not used.
///
/// # Panics
/// Where `buffer` is shorter than [`len`].
#[inline]
pub fn emit(header: &PacketHeader, payload_len: usize, buffer: &mut [u8]) -> usize {
    let len = emit_without_icrc(header, payload_len, buffer) + ICRC_LEN;
    assert!(buffer.len() >= len, "the buffer is as long as packet::len says");
    len
}

/// As [`emit`], into a buffer that has no room for the ICRC; gives the length without it.
///
/// # Panics
/// Where `buffer` is shorter than [`len`] less the ICRC.
#[inline]
pub fn emit_without_icrc(header: &PacketHeader, payload_len: usize, buffer: &mut [u8]) -> usize {
    let pad = pad_for(payload_len);
    let mut header = *header;
    header.bth.pad = pad as u8;
    let at = header.emit(buffer) + payload_len;
    buffer[at..at + pad].fill(0);
    at + pad
}

/// Computes the ICRC over all but the last four bytes of `packet` and writes it there.
/// `identification` is the IP identification that the datagram will have; without meaning for IPv6.
///
/// # Panics
/// Where `packet` is shorter than a BTH and an ICRC.
#[inline]
pub fn seal(icrc: &Icrc, identification: u16, packet: &mut [u8]) {
    seal_with(crc32, &mut BurstIcrc::new(*icrc), identification, packet);
}

/// As [`seal`], for packets of a row, by a function that gives what [`crc32`] does.
///
/// # Panics
/// As [`seal`].
#[inline]
pub fn seal_with(
    crc: impl Fn(u32, &[u8]) -> u32,
    icrc: &mut BurstIcrc,
    identification: u16,
    packet: &mut [u8],
) {
    let (body, tail) = packet.split_last_chunk_mut::<ICRC_LEN>().expect("a packet ends in its ICRC");
    *tail = icrc.compute_with(crc, identification, body).to_le_bytes();
}

/// Splits off the ICRC, which is sent with its least significant byte first.
#[inline]
pub(crate) fn read_icrc(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let (body, tail) = bytes.split_last_chunk::<ICRC_LEN>()?;
    Some((body, u32::from_le_bytes(*tail)))
}

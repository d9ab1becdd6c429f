//! What a stream carries: a preface in each direction, then frames of packets.
//!
//! The receiver believes nothing of it: what does not parse ends the stream.

use crate::forward::octets;
use crate::limits::{SEGMENTS, STREAM_FRAME_BYTES, STREAM_PACKET_BYTES};
use pagewire_wire::bth;
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of a preface.
pub const PREFACE: usize = 64;
/// Bytes in front of the packets of a frame.
pub const FRAME_HEADER: usize = 12;

const MAGIC: [u8; 8] = *b"pagewire";
const VERSION: u8 = 1;
/// Bytes of the longest headers in front of the payload of a long packet.
pub const LONG_HEADERS: usize = 64;
/// What a frame holds: packets,
const PACKETS: u8 = 1;
/// or one packet whose payload is read straight to where it belongs.
const LONG_PACKET: u8 = 2;
/// A frame without packets asks whether everything before it has been read,
const QUESTION: u8 = 3;
/// or says that.
const ANSWER: u8 = 4;

/// What a preface says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefaceKind {
    /// The opening side asks for the process that leases a block.
    Ask,
    /// That process takes packets from now on.
    Accept,
    /// No process of this host leases the block, or it takes no more streams.
    Refuse,
    /// The opening side names itself by an address that the connection does not come from.
    RefuseSource,
    /// This process takes encrypted streams only.
    RefuseClear,
    /// This process has no keys for an encrypted stream.
    RefuseEncrypted,
    /// The opening side names itself by an address that its certificate is not for.
    RefuseName,
    /// This process has asked for the opening side itself, and that connection serves both directions.
    RefuseCrossed,
}

impl PrefaceKind {
    /// All of them, by their numbers.
    const ALL: [PrefaceKind; 8] = [
        PrefaceKind::Ask,
        PrefaceKind::Accept,
        PrefaceKind::Refuse,
        PrefaceKind::RefuseSource,
        PrefaceKind::RefuseClear,
        PrefaceKind::RefuseEncrypted,
        PrefaceKind::RefuseName,
        PrefaceKind::RefuseCrossed,
    ];
}

/// The first bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    pub kind: PrefaceKind,
    /// Whether TLS follows, where it asks.
    pub is_encrypted: bool,
    /// The block of queue pair numbers that is asked for.
    pub block: u16,
    /// The engine of the process that wrote this.
    pub instance: u64,
    /// A block that the opening side leases: who sends to that may do so by this connection. 0: nobody may.
    pub own_block: u16,
    /// The address of the opening side's GID, from which packets come. A network that translates addresses may show another one.
    pub source: IpAddr,
    /// The address of the other side's GID, to which they go.
    pub destination: IpAddr,
}

impl Preface {
    /// Its bytes.
    pub fn emit(self) -> [u8; PREFACE] {
        let mut bytes = [0; PREFACE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.kind as u8;
        bytes[10..12].copy_from_slice(&self.block.to_be_bytes());
        bytes[12] = u8::from(self.is_encrypted);
        bytes[16..24].copy_from_slice(&self.instance.to_be_bytes());
        bytes[24..26].copy_from_slice(&self.own_block.to_be_bytes());
        bytes[32..48].copy_from_slice(&octets(self.source));
        bytes[48..64].copy_from_slice(&octets(self.destination));
        bytes
    }

    /// `None`: it is none of this version.
    pub fn parse(bytes: &[u8; PREFACE]) -> Option<Self> {
        if bytes[..8] != MAGIC
            || bytes[8] != VERSION
            || bytes[12] > 1
            || bytes[13..16] != [0; 3]
            || bytes[26..32] != [0; 6]
        {
            return None;
        }
        let kind = *PrefaceKind::ALL.get(usize::from(bytes[9]))?;
        let is_encrypted = bytes[12] == 1;
        let block = u16::from_be_bytes([bytes[10], bytes[11]]);
        let instance = u64::from_be_bytes(bytes[16..24].try_into().ok()?);
        let own_block = u16::from_be_bytes([bytes[24], bytes[25]]);
        let address = |at: usize| {
            let octets = <[u8; 16]>::try_from(&bytes[at..at + 16]).ok()?;
            Some(Ipv6Addr::from(octets).to_canonical())
        };
        let (source, destination) = (address(32)?, address(48)?);
        Some(Preface { kind, is_encrypted, block, instance, own_block, source, destination })
    }
}

/// A frame by which one side learns that the process at the other has read what was sent before. It may get no processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Has everything before this been read? Questions of a connection are counted.
    Question(u32),
    /// Everything before the question of this number has been read.
    Answer(u32),
}

impl Mark {
    /// Its bytes.
    pub fn bytes(self) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        let (kind, number) = match self {
            Mark::Question(number) => (QUESTION, number),
            Mark::Answer(number) => (ANSWER, number),
        };
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// `None`: it is none.
    pub fn parse(bytes: &[u8; FRAME_HEADER]) -> Option<Self> {
        if bytes[1..4] != [0; 3] || bytes[8..] != [0; 4] {
            return None;
        }
        let number = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        match bytes[0] {
            QUESTION => Some(Mark::Question(number)),
            ANSWER => Some(Mark::Answer(number)),
            _ => None,
        }
    }
}

/// Packets that left together: all as long as the first, but the last may be shorter. They have no ICRC: TCP has a checksum of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of all packets.
    pub length: usize,
    /// Bytes of each.
    pub segment: usize,
    /// Bytes of the headers of a long packet, which is a frame of its own; else 0.
    pub headers: usize,
}

impl Frame {
    /// The bytes in front of the packets.
    pub fn header(self) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        bytes[0] = if self.headers > 0 { LONG_PACKET } else { PACKETS };
        bytes[1] = self.headers as u8;
        bytes[4..8].copy_from_slice(&(self.segment as u32).to_be_bytes());
        bytes[8..12].copy_from_slice(&(self.length as u32).to_be_bytes());
        bytes
    }

    /// `None`: it is none, or one that no sender makes.
    pub fn parse(bytes: &[u8; FRAME_HEADER]) -> Option<Self> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (segment, length) = (word(4) as usize, word(8) as usize);
        let shortest = bth::LEN;
        let headers = usize::from(bytes[1]);
        let known = match bytes[0] {
            PACKETS => headers == 0,
            LONG_PACKET => {
                (shortest..=LONG_HEADERS).contains(&headers) && headers < length && segment == length
            }
            _ => false,
        };
        let whole = (shortest..=STREAM_PACKET_BYTES).contains(&segment)
            && (segment..=STREAM_FRAME_BYTES).contains(&length);
        if !known || !whole || bytes[2..4] != [0; 2] {
            return None;
        }
        let last = length % segment;
        let sound = length.div_ceil(segment) <= SEGMENTS && (last == 0 || last >= shortest);
        sound.then_some(Frame { length, segment, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prefaces_of_any_bytes(bytes in any::<[u8; PREFACE]>(), right in any::<bool>()) {
            let mut bytes = bytes;
            if right {
                bytes[..9].copy_from_slice(b"pagewire\x01");
                bytes[9] %= 9;
                bytes[12] %= 3;
                bytes[13..16].fill(0);
                bytes[26..32].fill(0);
            }
            if let Some(preface) = Preface::parse(&bytes) {
                prop_assert_eq!(preface.emit(), bytes);
            }
        }

        #[test]
        fn frames_of_any_bytes(bytes in any::<[u8; FRAME_HEADER]>(), right in any::<bool>()) {
            let mut bytes = bytes;
            if right {
                bytes[0] %= 5;
                bytes[2..6].fill(0);
                bytes[8..10].fill(0);
                if bytes[0] == 1 {
                    bytes[1] = 0;
                } else {
                    bytes.copy_within(6..8, 10);
                }
            }
            if let Some(mark) = Mark::parse(&bytes) {
                prop_assert_eq!(mark.bytes(), bytes);
                prop_assert_eq!(Frame::parse(&bytes), None);
            }
            if let Some(frame) = Frame::parse(&bytes) {
                prop_assert_eq!(frame.header(), bytes);
                prop_assert!(frame.length <= STREAM_FRAME_BYTES && frame.segment <= frame.length);
                prop_assert!(frame.headers < frame.segment && frame.headers <= LONG_HEADERS);
            }
        }
    }

    #[test]
    fn frames_that_no_sender_makes_are_none() {
        let parsed = |length, segment| Frame::parse(&Frame { length, segment, headers: 0 }.header());
        let long = |length, headers| Frame::parse(&Frame { length, segment: length, headers }.header());
        assert!(long(60_000, 28).is_some() && long(13, 12).is_some());
        // Headers that are no BTH, longer than any, and without a payload.
        for (length, headers) in [(60_000, 11), (60_000, LONG_HEADERS + 1), (28, 28)] {
            assert_eq!(long(length, headers), None, "{headers} bytes of headers, {length} in all");
        }
        assert!(parsed(12, 12).is_some() && parsed(64 * 1000, 1000).is_some());
        // Too short for a BTH, the first and the last; longer than a packet or a frame; too many packets.
        for (length, segment) in
            [(11, 11), (111, 100), (STREAM_PACKET_BYTES + 1, STREAM_PACKET_BYTES + 1), (65 * 12, 12)]
        {
            assert_eq!(parsed(length, segment), None, "{length} bytes by {segment}");
        }
        assert_eq!(parsed(STREAM_FRAME_BYTES + 1, 4096), None);
    }
}

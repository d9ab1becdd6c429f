//! IPv4 header (RFC 791).

use core::net::Ipv4Addr;

use crate::Error;
use crate::checksum::Sum;
use crate::view::{array, get_u16, put, view};

/// Bytes of a header without options.
pub const LEN: usize = 20;

pub(crate) mod field {
    pub const VERSION_LENGTH: usize = 0;
    pub const TYPE_OF_SERVICE: usize = 1;
    pub const TOTAL_LENGTH: usize = 2;
    pub const IDENTIFICATION: usize = 4;
    /// Three flags and the 13-bit fragment offset.
    pub const FRAGMENT: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SOURCE: usize = 12;
    pub const DESTINATION: usize = 16;
}

/// An IPv4 header. Options are stepped over when parsed, and never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4 {
    /// Differentiated services and explicit congestion notification.
    pub type_of_service: u8,
    /// Bytes of header and payload.
    pub total_length: u16,
    /// Identification, which the ICRC covers.
    pub identification: u16,
    /// Do not fragment.
    pub dont_fragment: bool,
    /// This is a fragment and not the last one.
    pub more_fragments: bool,
    /// Where the fragment belongs, in units of 8 bytes, 13 bits.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

view! {
    /// A view over an IPv4 header, its options included.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// IP version; 4 if this is an IPv4 header at all.
    pub fn version(&self) -> u8 {
        self.bytes()[field::VERSION_LENGTH] >> 4
    }

    /// Bytes of the header with its options, unchecked: 0 to 60.
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes()[field::VERSION_LENGTH] & 15) * 4
    }

    /// Differentiated services and explicit congestion notification.
    pub fn type_of_service(&self) -> u8 {
        self.bytes()[field::TYPE_OF_SERVICE]
    }

    /// Bytes of header and payload, unchecked.
    pub fn total_length(&self) -> u16 {
        get_u16(self.bytes(), field::TOTAL_LENGTH)
    }

    /// Identification.
    pub fn identification(&self) -> u16 {
        get_u16(self.bytes(), field::IDENTIFICATION)
    }

    /// The reserved flag, which is 0 (RFC 791).
    pub fn reserved_flag(&self) -> bool {
        self.bytes()[field::FRAGMENT] & 0x80 != 0
    }

    /// Do not fragment.
    pub fn dont_fragment(&self) -> bool {
        self.bytes()[field::FRAGMENT] & 0x40 != 0
    }

    /// This is a fragment and not the last one.
    pub fn more_fragments(&self) -> bool {
        self.bytes()[field::FRAGMENT] & 0x20 != 0
    }

    /// Where the fragment belongs, in units of 8 bytes.
    pub fn fragment_offset(&self) -> u16 {
        get_u16(self.bytes(), field::FRAGMENT) & 0x1fff
    }

    /// Time to live, in hops.
    pub fn ttl(&self) -> u8 {
        self.bytes()[field::TTL]
    }

    /// Protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.bytes()[field::PROTOCOL]
    }

    /// Header checksum.
    pub fn checksum(&self) -> u16 {
        get_u16(self.bytes(), field::CHECKSUM)
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        array::<4>(self.bytes(), field::SOURCE).into()
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        array::<4>(self.bytes(), field::DESTINATION).into()
    }

    /// The options; empty where the header length claims more bytes than there are, or fewer than 20.
    pub fn options(&self) -> &[u8] {
        self.buffer.as_ref().get(LEN..self.header_len()).unwrap_or(&[])
    }

    /// Whether the checksum is right over header and options.
    pub fn checksum_is_right(&self) -> bool {
        Sum::default().add(self.bytes()).add(self.options()).finish() == 0
    }
}

impl Ipv4 {
    /// Reads every field. The bytes behind the header need not be there.
    ///
    /// # Errors
    /// [`Error::Version`] where it is not 4; [`Error::Truncated`] where options are cut off;
    /// [`Error::Length`] where the lengths are too small for the header; [`Error::Checksum`].
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Ipv4, Error> {
        if packet.version() != 4 {
            return Err(Error::Version(packet.version()));
        }
        let need = packet.header_len();
        let have = packet.buffer.as_ref().len();
        if need < LEN || usize::from(packet.total_length()) < need {
            return Err(Error::Length);
        }
        if have < need {
            return Err(Error::Truncated { need, have });
        }
        if !packet.checksum_is_right() {
            return Err(Error::Checksum);
        }
        Ok(Ipv4 {
            type_of_service: packet.type_of_service(),
            total_length: packet.total_length(),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
            ttl: packet.ttl(),
            protocol: packet.protocol(),
            source: packet.source(),
            destination: packet.destination(),
        })
    }

    /// Writes a header without options, with its checksum. `fragment_offset` has 13 bits.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        debug_assert!(self.fragment_offset <= 0x1fff, "{self:?}");
        let bytes = packet.bytes_mut();
        bytes[field::VERSION_LENGTH] = 4 << 4 | (LEN / 4) as u8;
        bytes[field::TYPE_OF_SERVICE] = self.type_of_service;
        put(bytes, field::TOTAL_LENGTH, self.total_length.to_be_bytes());
        put(bytes, field::IDENTIFICATION, self.identification.to_be_bytes());
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        put(bytes, field::FRAGMENT, (flags | self.fragment_offset & 0x1fff).to_be_bytes());
        bytes[field::TTL] = self.ttl;
        bytes[field::PROTOCOL] = self.protocol;
        put(bytes, field::CHECKSUM, [0; 2]);
        put(bytes, field::SOURCE, self.source.octets());
        put(bytes, field::DESTINATION, self.destination.octets());
        let checksum = Sum::default().add(bytes).finish();
        put(bytes, field::CHECKSUM, checksum.to_be_bytes());
    }
}

//! UDP header (RFC 768).

use crate::Error;
use crate::view::{get_u16, put, view};

/// Bytes of the header.
pub const LEN: usize = 8;
/// UDP's number as an IP protocol.
pub const PROTOCOL: u8 = 17;

pub(crate) mod field {
    pub const SOURCE_PORT: usize = 0;
    pub const DESTINATION_PORT: usize = 2;
    pub const LENGTH: usize = 4;
    pub const CHECKSUM: usize = 6;
}

/// A UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Udp {
    /// Source port: on RoCEv2 any, for the entropy of load balancing.
    pub source_port: u16,
    /// Destination port: on RoCEv2 [`PORT`](crate::packet::PORT).
    pub destination_port: u16,
    /// Bytes of header and payload.
    pub length: u16,
    /// Checksum over pseudo header, header and payload; 0 where there is none. Not checked here: RoCEv2
    /// relies on the ICRC.
    pub checksum: u16,
}

view! {
    /// A view over a UDP header.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Source port.
    pub fn source_port(&self) -> u16 {
        get_u16(self.bytes(), field::SOURCE_PORT)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        get_u16(self.bytes(), field::DESTINATION_PORT)
    }

    /// Bytes of header and payload, unchecked.
    pub fn length(&self) -> u16 {
        get_u16(self.bytes(), field::LENGTH)
    }

    /// Checksum; 0 where there is none.
    pub fn checksum(&self) -> u16 {
        get_u16(self.bytes(), field::CHECKSUM)
    }
}

impl Udp {
    /// Reads every field. The bytes behind the header need not be there.
    ///
    /// # Errors
    /// [`Error::Length`] where the length is too small for the header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Udp, Error> {
        if usize::from(packet.length()) < LEN {
            return Err(Error::Length);
        }
        Ok(Udp {
            source_port: packet.source_port(),
            destination_port: packet.destination_port(),
            length: packet.length(),
            checksum: packet.checksum(),
        })
    }

    /// Writes every field as it is.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let bytes = packet.bytes_mut();
        put(bytes, field::SOURCE_PORT, self.source_port.to_be_bytes());
        put(bytes, field::DESTINATION_PORT, self.destination_port.to_be_bytes());
        put(bytes, field::LENGTH, self.length.to_be_bytes());
        put(bytes, field::CHECKSUM, self.checksum.to_be_bytes());
    }
}

//! IPv6 header (RFC 8200), without extension headers.

use core::net::Ipv6Addr;

use crate::Error;
use crate::view::{array, get_u16, get_u32, put, view};

/// Bytes of the header.
pub const LEN: usize = 40;

pub(crate) mod field {
    /// Version, traffic class, flow label: 4, 8 and 20 bits.
    pub const FLOW: usize = 0;
    pub const PAYLOAD_LENGTH: usize = 4;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SOURCE: usize = 8;
    pub const DESTINATION: usize = 24;
}

/// An IPv6 header. The global route header of InfiniBand has the same layout, see [`Grh`](crate::Grh).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6 {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind the header.
    pub payload_length: u16,
    /// Protocol of what follows.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Source address, or GID.
    pub source: Ipv6Addr,
    /// Destination address, or GID.
    pub destination: Ipv6Addr,
}

view! {
    /// A view over an IPv6 header.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// IP version; 6 if this is an IPv6 header at all.
    pub fn version(&self) -> u8 {
        self.bytes()[field::FLOW] >> 4
    }

    /// Traffic class.
    pub fn traffic_class(&self) -> u8 {
        (get_u32(self.bytes(), field::FLOW) >> 20) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        get_u32(self.bytes(), field::FLOW) & 0xf_ffff
    }

    /// Bytes behind the header.
    pub fn payload_length(&self) -> u16 {
        get_u16(self.bytes(), field::PAYLOAD_LENGTH)
    }

    /// Protocol of what follows.
    pub fn next_header(&self) -> u8 {
        self.bytes()[field::NEXT_HEADER]
    }

    /// Hops left.
    pub fn hop_limit(&self) -> u8 {
        self.bytes()[field::HOP_LIMIT]
    }

    /// Source address.
    pub fn source(&self) -> Ipv6Addr {
        array::<16>(self.bytes(), field::SOURCE).into()
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv6Addr {
        array::<16>(self.bytes(), field::DESTINATION).into()
    }
}

impl Ipv6 {
    /// Reads every field. The bytes behind the header need not be there.
    ///
    /// # Errors
    /// [`Error::Version`] where it is not 6.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Ipv6, Error> {
        if packet.version() != 6 {
            return Err(Error::Version(packet.version()));
        }
        Ok(Ipv6 {
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            payload_length: packet.payload_length(),
            next_header: packet.next_header(),
            hop_limit: packet.hop_limit(),
            source: packet.source(),
            destination: packet.destination(),
        })
    }

    /// Writes every field. `flow_label` has 20 bits.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        debug_assert!(self.flow_label <= 0xf_ffff, "{self:?}");
        let bytes = packet.bytes_mut();
        let flow = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        put(bytes, field::FLOW, flow.to_be_bytes());
        put(bytes, field::PAYLOAD_LENGTH, self.payload_length.to_be_bytes());
        bytes[field::NEXT_HEADER] = self.next_header;
        bytes[field::HOP_LIMIT] = self.hop_limit;
        put(bytes, field::SOURCE, self.source.octets());
        put(bytes, field::DESTINATION, self.destination.octets());
    }
}

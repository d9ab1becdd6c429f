//! The 40 bytes in front of a datagram in its receiver's memory.
//!
//! On InfiniBand they are the global route header (InfiniBand specification, volume 1, section 8.3),
//! which has the layout of an IPv6 header. On RoCEv2 they are the IPv6 header, or, with IPv4, 20 bytes
//! without meaning and then the IPv4 header (annex A17). Programs tell the two apart by the version in
//! the first byte and by the IPv4 header checksum, so that both are written with care here.

use crate::{Error, Ipv4, Ipv6, ipv4, ipv6};

/// Bytes of either form.
pub const LEN: usize = 40;
/// Where the IPv4 header stands in its form.
const IPV4_AT: usize = LEN - ipv4::LEN;

/// What stands in front of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grh {
    /// An IPv4 header without options, in bytes 20 to 39.
    Ipv4(Ipv4),
    /// An IPv6 header or an InfiniBand global route header.
    Ipv6(Ipv6),
}

/// A view over the 40 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view over `buffer`, or [`Error::Truncated`] where it is shorter than 40 bytes.
    pub fn new(buffer: T) -> Result<Self, Error> {
        let have = buffer.as_ref().len();
        if have < LEN {
            return Err(Error::Truncated { need: LEN, have });
        }
        Ok(Packet { buffer })
    }

    /// The bytes that the view was made of.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// The bytes as an IPv6 header or global route header.
    pub fn ipv6(&self) -> ipv6::Packet<&[u8]> {
        ipv6::Packet::new(&self.buffer.as_ref()[..LEN]).expect("length was checked in new")
    }

    /// Bytes 20 to 39 as an IPv4 header.
    pub fn ipv4(&self) -> ipv4::Packet<&[u8]> {
        ipv4::Packet::new(&self.buffer.as_ref()[IPV4_AT..LEN]).expect("length was checked in new")
    }
}

impl Grh {
    /// Reads whichever form it is: IPv4 where bytes 20 to 39 are an IPv4 header of 20 bytes with the
    /// right checksum, as programs do it; else IPv6.
    ///
    /// # Errors
    /// [`Error::Version`] where it is neither.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Grh, Error> {
        match Ipv4::parse(&packet.ipv4()) {
            Ok(header) => Ok(Grh::Ipv4(header)),
            Err(_) => Ipv6::parse(&packet.ipv6()).map(Grh::Ipv6),
        }
    }

    /// Writes all 40 bytes; those that have no meaning as zero.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let bytes = &mut packet.buffer.as_mut()[..LEN];
        match self {
            Grh::Ipv4(header) => {
                let (meaningless, ip) = bytes.split_at_mut(IPV4_AT);
                meaningless.fill(0);
                header.emit(&mut ipv4::Packet::new(ip).expect("20 bytes are left"));
            }
            Grh::Ipv6(header) => header.emit(&mut ipv6::Packet::new(bytes).expect("40 bytes")),
        }
    }
}

//! RDMA extended transport header (InfiniBand specification, volume 1, section 9.3.3).

use crate::view::{get_u32, get_u64, put, view};

/// Bytes of a RETH.
pub const LEN: usize = 16;

mod field {
    pub const ADDRESS: usize = 0;
    pub const KEY: usize = 8;
    pub const LENGTH: usize = 12;
}

/// RDMA extended transport header: which memory of the responder a WRITE or READ is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Length of the whole message, in bytes; in a WRITE ONLY between two Pagewires, of what is left of it
    /// ([`Capabilities::REMAINING_LENGTH`](crate::Capabilities::REMAINING_LENGTH)).
    pub length: u32,
}

view! {
    /// A view over a RETH.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Virtual address of the first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        get_u64(self.bytes(), field::ADDRESS)
    }

    /// Remote key.
    #[inline]
    pub fn key(&self) -> u32 {
        get_u32(self.bytes(), field::KEY)
    }

    /// Length of the message, or of what is left of it, in bytes ([`Reth::length`]).
    #[inline]
    pub fn length(&self) -> u32 {
        get_u32(self.bytes(), field::LENGTH)
    }

    /// Whether `next` is about what is left behind the first `payload` bytes of this range, by the same key.
    #[inline]
    pub fn goes_on_with<U: AsRef<[u8]>>(&self, next: &Packet<U>, payload: u32) -> bool {
        self.key() == next.key()
            && self.length().checked_sub(payload) == Some(next.length())
            && next.address() == self.address().wrapping_add(payload.into())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes the address of the first byte.
    #[inline]
    pub fn set_address(&mut self, address: u64) {
        put(self.bytes_mut(), field::ADDRESS, address.to_be_bytes());
    }

    /// Writes the length.
    #[inline]
    pub fn set_length(&mut self, length: u32) {
        put(self.bytes_mut(), field::LENGTH, length.to_be_bytes());
    }
}

impl Reth {
    /// Reads every field; none has wrong values.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Reth {
        Reth { address: packet.address(), key: packet.key(), length: packet.length() }
    }

    /// Writes every field.
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let bytes = packet.bytes_mut();
        put(bytes, field::ADDRESS, self.address.to_be_bytes());
        put(bytes, field::KEY, self.key.to_be_bytes());
        put(bytes, field::LENGTH, self.length.to_be_bytes());
    }
}

//! Atomic extended transport header (InfiniBand specification, volume 1, section 9.3.4).

use crate::view::{get_u32, get_u64, put, view};

/// Bytes of an AtomicETH.
pub const LEN: usize = 28;

mod field {
    pub const ADDRESS: usize = 0;
    pub const KEY: usize = 8;
    pub const SWAP_OR_ADD: usize = 12;
    pub const COMPARE: usize = 20;
}

/// Atomic extended transport header: the word, and the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address of the 8-byte word.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// The value to swap in, or to add.
    pub swap_or_add: u64,
    /// The value to compare with; of no meaning for FetchAdd.
    pub compare: u64,
}

view! {
    /// A view over an AtomicETH.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Virtual address of the 8-byte word.
    #[inline]
    pub fn address(&self) -> u64 {
        get_u64(self.bytes(), field::ADDRESS)
    }

    /// Remote key.
    #[inline]
    pub fn key(&self) -> u32 {
        get_u32(self.bytes(), field::KEY)
    }

    /// The value to swap in, or to add.
    #[inline]
    pub fn swap_or_add(&self) -> u64 {
        get_u64(self.bytes(), field::SWAP_OR_ADD)
    }

    /// The value to compare with.
    #[inline]
    pub fn compare(&self) -> u64 {
        get_u64(self.bytes(), field::COMPARE)
    }
}

impl AtomicEth {
    /// Reads every field; none has wrong values.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> AtomicEth {
        AtomicEth {
            address: packet.address(),
            key: packet.key(),
            swap_or_add: packet.swap_or_add(),
            compare: packet.compare(),
        }
    }

    /// Writes every field.
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let bytes = packet.bytes_mut();
        put(bytes, field::ADDRESS, self.address.to_be_bytes());
        put(bytes, field::KEY, self.key.to_be_bytes());
        put(bytes, field::SWAP_OR_ADD, self.swap_or_add.to_be_bytes());
        put(bytes, field::COMPARE, self.compare.to_be_bytes());
    }
}

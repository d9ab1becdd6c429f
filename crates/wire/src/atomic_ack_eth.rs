//! Atomic acknowledge extended transport header (InfiniBand specification, volume 1, section 9.3.5.3).

use crate::view::{get_u64, put, view};

/// Bytes of an AtomicAckETH.
pub const LEN: usize = 8;

view! {
    /// A view over an AtomicAckETH. The plain value is the `u64` in it.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// The value of the word before the operation.
    #[inline]
    pub fn original(&self) -> u64 {
        get_u64(self.bytes(), 0)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets what [`original`](Self::original) reads.
    #[inline]
    pub fn set_original(&mut self, original: u64) {
        put(self.bytes_mut(), 0, original.to_be_bytes());
    }
}

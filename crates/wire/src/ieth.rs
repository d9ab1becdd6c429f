//! Invalidate extended transport header (InfiniBand specification, volume 1, section 9.3.7).

use crate::view::{get_u32, put, view};

/// Bytes of an IETH.
pub const LEN: usize = 4;

view! {
    /// A view over an IETH. The plain value is the `u32` in it.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// The remote key that the peer is asked to invalidate.
    #[inline]
    pub fn key(&self) -> u32 {
        get_u32(self.bytes(), 0)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets what [`key`](Self::key) reads.
    #[inline]
    pub fn set_key(&mut self, key: u32) {
        put(self.bytes_mut(), 0, key.to_be_bytes());
    }
}

//! Immediate data extended transport header (InfiniBand specification, volume 1, section 9.3.6).

use crate::view::{get_u32, put, view};

/// Bytes of an ImmDt.
pub const LEN: usize = 4;

view! {
    /// A view over an ImmDt. The plain value is the `u32` in it.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// The immediate data, read big-endian.
    #[inline]
    pub fn immediate(&self) -> u32 {
        get_u32(self.bytes(), 0)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets what [`immediate`](Self::immediate) reads.
    #[inline]
    pub fn set_immediate(&mut self, immediate: u32) {
        put(self.bytes_mut(), 0, immediate.to_be_bytes());
    }
}

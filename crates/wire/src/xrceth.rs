//! XRC extended transport header (InfiniBand specification, volume 1, annex A14).

use crate::view::{get_u24, put_u24, view};

/// Bytes of an XRCETH.
pub const LEN: usize = 4;

view! {
    /// A view over an XRCETH. The plain value is the `u32` in it.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// The shared receive queue that the packet is for, 24 bits.
    #[inline]
    pub fn shared_receive_queue(&self) -> u32 {
        get_u24(self.bytes(), 1)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets what [`shared_receive_queue`](Self::shared_receive_queue) reads, and the reserved byte to zero.
    #[inline]
    pub fn set_shared_receive_queue(&mut self, shared_receive_queue: u32) {
        let bytes = self.bytes_mut();
        bytes[0] = 0;
        put_u24(bytes, 1, shared_receive_queue);
    }
}

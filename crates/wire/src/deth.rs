//! Datagram extended transport header (InfiniBand specification, volume 1, section 9.3.2).

use crate::view::{get_u24, get_u32, put, put_u24, view};

/// Bytes of a DETH.
pub const LEN: usize = 8;

mod field {
    pub const QUEUE_KEY: usize = 0;
    pub const RESERVED: usize = 4;
    pub const SOURCE: usize = 5;
}

/// Datagram extended transport header: who sent it, and the key that admits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub queue_key: u32,
    /// Source queue pair, 24 bits.
    pub source: u32,
}

view! {
    /// A view over a DETH.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Queue key.
    #[inline]
    pub fn queue_key(&self) -> u32 {
        get_u32(self.bytes(), field::QUEUE_KEY)
    }

    /// Source queue pair, 24 bits.
    #[inline]
    pub fn source(&self) -> u32 {
        get_u24(self.bytes(), field::SOURCE)
    }
}

impl Deth {
    /// Reads every field; none has wrong values.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Deth {
        Deth { queue_key: packet.queue_key(), source: packet.source() }
    }

    /// Writes every field, the reserved byte as zero. `source` has 24 bits.
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let bytes = packet.bytes_mut();
        put(bytes, field::QUEUE_KEY, self.queue_key.to_be_bytes());
        bytes[field::RESERVED] = 0;
        put_u24(bytes, field::SOURCE, self.source);
    }
}

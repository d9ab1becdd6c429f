//! FLUSH extended transport header (InfiniBand specification, volume 1, annex A19.3).

use crate::view::{get_u32, put, view};

/// Bytes of a FETH.
pub const LEN: usize = 4;

const PLACEMENT_BITS: u32 = 0x0f;
const SELECTIVITY_BITS: u32 = 0x30;
const SELECTIVITY_SHIFT: u32 = 4;

/// FLUSH extended transport header: what a FLUSH does to the memory that the RETH names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feth {
    /// Placement type (PLT), 4 bits: [`GLOBAL`](Self::GLOBAL), [`PERSISTENT`](Self::PERSISTENT).
    pub placement: u8,
    /// Selectivity level (SEL), 2 bits: [`RANGE`](Self::RANGE), [`REGION`](Self::REGION).
    pub selectivity: u8,
}

impl Feth {
    /// Placement type: what was placed before is visible to every process.
    pub const GLOBAL: u8 = 1 << 0;
    /// Placement type: what was placed before outlives a loss of power.
    pub const PERSISTENT: u8 = 1 << 1;
    /// Selectivity level: the range that the RETH names.
    pub const RANGE: u8 = 0;
    /// Selectivity level: the whole region of the key.
    pub const REGION: u8 = 1;

    /// Reads both fields; the reserved bits are ignored.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Feth {
        let word = packet.word();
        Feth {
            placement: (word & PLACEMENT_BITS) as u8,
            selectivity: ((word & SELECTIVITY_BITS) >> SELECTIVITY_SHIFT) as u8,
        }
    }

    /// Writes both fields, and the reserved bits as zero.
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let selectivity = u32::from(self.selectivity) << SELECTIVITY_SHIFT & SELECTIVITY_BITS;
        packet.set_word(selectivity | u32::from(self.placement) & PLACEMENT_BITS);
    }
}

view! {
    /// A view over a FETH.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    #[inline]
    fn word(&self) -> u32 {
        get_u32(self.bytes(), 0)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    #[inline]
    fn set_word(&mut self, word: u32) {
        put(self.bytes_mut(), 0, word.to_be_bytes());
    }
}

//! The windows that UC queue pairs write to.
//!
//! A UC WRITE may be lost, and on a network that doubles packets it may land late. So each byte of a window has a
//! value of its own in each of four generations, and may at any time be any that was ever sent.

use super::party::WINDOW;
use super::space::Range;

const GAP: u64 = 8;

/// One window: the model of it.
pub struct Window {
    pub range: Range,
    salt: u64,
    cursor: u64,
    generation: u64,
    /// For each byte the generations that were sent.
    sent: Vec<u8>,
    /// What each byte is if nothing is lost.
    last: Vec<u8>,
}

impl Window {
    /// An empty one.
    pub fn new(range: Range, salt: u64) -> Self {
        let size = WINDOW as usize;
        Window { range, salt, cursor: GAP, generation: 0, sent: vec![0; size], last: vec![0; size] }
    }

    fn value(&self, offset: u64, generation: u64) -> u8 {
        let word = (self.salt ^ (offset / 8) ^ ((generation & 3) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (word ^ word >> 31).to_le_bytes()[(offset % 8) as usize]
    }

    /// Finds the place of the next WRITE and gives its address and bytes.
    pub fn place(&mut self, length: u64) -> (u64, Vec<u8>) {
        if self.cursor + length + GAP > self.range.length {
            (self.cursor, self.generation) = (GAP, self.generation + 1);
        }
        let from = self.cursor;
        self.cursor += length + GAP;
        let bytes: Vec<u8> =
            (from..from + length).map(|offset| self.value(offset, self.generation)).collect();
        for (offset, byte) in (from as usize..).zip(&bytes) {
            self.sent[offset] |= 1 << (self.generation & 3);
            self.last[offset] = *byte;
        }
        (self.range.address + from, bytes)
    }

    /// Checks the window's memory. `exact`: nothing was lost.
    pub fn check(&self, memory: &[u8], exact: bool) -> Result<(), String> {
        for (offset, byte) in memory.iter().enumerate() {
            let possible = (0..4).any(|generation| {
                self.sent[offset] & 1 << generation != 0 && self.value(offset as u64, generation) == *byte
            });
            if !possible && *byte != 0 || exact && *byte != self.last[offset] {
                let address = self.range.address + offset as u64;
                return Err(format!(
                    "byte {address:#x} of a UC window is {byte:#x}, which was not written there"
                ));
            }
        }
        Ok(())
    }

    /// Some WRITEs may not have arrived: what is there now counts.
    pub fn adopt(&mut self, memory: &[u8]) {
        self.last.copy_from_slice(memory);
    }
}

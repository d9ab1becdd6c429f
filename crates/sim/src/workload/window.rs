//! The windows that UC queue pairs write to.
//!
//! A UC WRITE may be lost, and on a network that doubles packets it may land late. So each byte of a window has a
//! value of its own in each of four generations, and may at any time be any that was ever sent.

use super::space::RequestRange;

/// Bytes of the window that one UC queue pair writes to.
pub const WINDOW: u64 = 64 << 10;
const GAP: u64 = 8;

/// One window: the model of it.
pub struct WindowModel {
    pub range: RequestRange,
    salt: u64,
    cursor: u64,
    generation: u64,
    /// For each byte the generations that were sent.
    sent: Vec<u8>,
    /// What each byte is if nothing is lost.
    last: Vec<u8>,
}

impl WindowModel {
    /// An empty one.
    pub fn new(range: RequestRange, salt: u64) -> Self {
        let size = WINDOW as usize;
        WindowModel { range, salt, cursor: GAP, generation: 0, sent: vec![0; size], last: vec![0; size] }
    }

    fn value(&self, offset: u64, generation: u64) -> u8 {
        let word = (self.salt ^ (offset / 8) ^ ((generation & 3) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (word ^ word >> 31).to_le_bytes()[(offset % 8) as usize]
    }

    /// Where the next WRITE goes, and its generation.
    fn next(&self, length: u64) -> (u64, u64) {
        let fits = self.cursor + length + GAP <= self.range.length;
        if fits { (self.cursor, self.generation) } else { (GAP, self.generation + 1) }
    }

    /// Finds the place of the next WRITE and gives its address and bytes. It counts once it is [posted](Self::posted).
    pub fn place(&self, length: u64) -> (u64, Vec<u8>) {
        let (from, generation) = self.next(length);
        let bytes = (from..from + length).map(|offset| self.value(offset, generation)).collect();
        (self.range.address + from, bytes)
    }

    /// The WRITE of so many bytes that was placed last is posted.
    pub fn posted(&mut self, length: u64) {
        let (from, generation) = self.next(length);
        (self.cursor, self.generation) = (from + length + GAP, generation);
        for offset in from..from + length {
            self.sent[offset as usize] |= 1 << (generation & 3);
            self.last[offset as usize] = self.value(offset, generation);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_posted_is_expected() {
        let mut window = WindowModel::new(RequestRange::fixed(1, 0x1000, WINDOW), 7);
        let mut memory = vec![0; WINDOW as usize];
        let mut write = |window: &mut WindowModel, length, posted: bool| {
            let (address, bytes) = window.place(length);
            if posted {
                window.posted(length);
                memory[(address - 0x1000) as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            window.check(&memory, true)
        };
        // Round and round.
        for at in 0..40 {
            assert_eq!(write(&mut window, WINDOW / 5, at % 3 > 0), Ok(()), "WRITE {at}");
        }
        window.place(100);
        window.posted(100);
        assert!(window.check(&memory, true).is_err() && window.check(&memory, false).is_ok());
    }
}

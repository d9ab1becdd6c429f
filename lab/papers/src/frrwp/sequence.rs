//! The buffers of many transfers, one after the other. All of it is assumed: the paper has no such sequence.

use fastrand::Rng;

/// One transfer: which buffer, of how many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The buffer's number.
    pub buffer: usize,
    /// Its pages, always the same.
    pub pages: u64,
}

/// How buffers follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// Four of five transfers use one of five buffers.
    Skewed,
    /// Each buffer is as likely as any other.
    Uniform,
    /// One after the other, and again.
    Cyclic,
}

/// Pages of a buffer: the sizes of the paper's measurements, 4 to 128 KB.
const PAGES: [u64; 6] = [1, 2, 4, 8, 16, 32];

impl Sequence {
    /// So many transfers over so many buffers, the same in each call.
    pub fn accesses(self, buffers: usize, transfers: usize) -> Vec<Access> {
        let mut numbers = Rng::with_seed(1);
        let often = (buffers / 5).max(1);
        let mut next = |turn: usize| match self {
            Sequence::Skewed if numbers.u8(..5) < 4 => numbers.usize(..often),
            Sequence::Skewed | Sequence::Uniform => numbers.usize(..buffers),
            Sequence::Cyclic => turn % buffers,
        };
        let access = |turn| {
            let buffer = next(turn);
            Access { buffer, pages: PAGES[buffer % PAGES.len()] }
        };
        (0..transfers).map(access).collect()
    }
}

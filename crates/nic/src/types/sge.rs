//! Scatter-gather lists.

use pagewire_memory::Segment;
use smallvec::SmallVec;

/// A piece of registered memory (layout of `struct ibv_sge`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ScatterGather {
    pub address: u64,
    pub length: u32,
    pub key: u32,
}

/// A few pieces without an allocation, many with one.
pub type ScatterGatherList = SmallVec<[ScatterGather; 4]>;

/// Something that is some bytes long and can be cut.
pub trait ByteSpan: Copy {
    /// Bytes.
    fn length(&self) -> u64;
    /// `length` bytes from `skip` on, which are there.
    fn part(&self, skip: u64, length: u64) -> Self;
}

impl ByteSpan for ScatterGather {
    fn length(&self) -> u64 {
        u64::from(self.length)
    }

    fn part(&self, skip: u64, length: u64) -> Self {
        ScatterGather { address: self.address.wrapping_add(skip), length: length as u32, key: self.key }
    }
}

impl ByteSpan for Segment {
    fn length(&self) -> u64 {
        self.length
    }

    fn part(&self, skip: u64, length: u64) -> Self {
        Segment::part(*self, skip, length)
    }
}

/// Cuts the bytes `offset .. offset + length` out of a list. Gives less where the list is shorter.
pub fn slice_of<P: ByteSpan>(list: &[P], offset: u64, length: u64) -> SmallVec<[P; 4]> {
    let (mut skip, mut left) = (offset, length);
    let mut cut = SmallVec::new();
    for piece in list {
        if left == 0 {
            break;
        }
        if skip >= piece.length() {
            skip -= piece.length();
            continue;
        }
        let take = (piece.length() - skip).min(left);
        cut.push(piece.part(skip, take));
        (skip, left) = (0, left - take);
    }
    cut
}

/// Bytes of a list together.
#[inline]
pub fn total_length(list: &[ScatterGather]) -> u64 {
    list.iter().map(|piece| u64::from(piece.length)).sum()
}

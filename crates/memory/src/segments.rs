//! Walks a list of segments as one string of bytes, and cuts it into the pieces that a system call takes.

use crate::limits::IO_VECTORS;
use crate::{MemoryError, Segment};
use arrayvec::ArrayVec;

/// Pieces for one system call.
pub struct IoVectors {
    vectors: ArrayVec<libc::iovec, IO_VECTORS>,
    /// Bytes of all.
    pub bytes: u64,
}

impl IoVectors {
    /// The pieces of `segments` that begin `position` bytes into them: at most [`IO_VECTORS`] pieces and `limit`
    /// bytes. No piece reaches over `boundary`, so that what lies behind it is copied separately, and later.
    pub fn cut(segments: &[Segment], position: u64, limit: u64, boundary: u64) -> Self {
        let mut cut = IoVectors { vectors: ArrayVec::new(), bytes: 0 };
        let mut start = 0;
        for segment in segments {
            let end = start + segment.length;
            while !cut.vectors.is_full() && cut.bytes < limit {
                let at = position + cut.bytes;
                if at >= end {
                    break;
                }
                let mut length = (end - at).min(limit - cut.bytes);
                if at < boundary {
                    length = length.min(boundary - at);
                }
                cut.vectors.push(libc::iovec {
                    iov_base: std::ptr::without_provenance_mut((segment.address + (at - start)) as usize),
                    iov_len: length as usize,
                });
                cut.bytes += length;
            }
            start = end;
        }
        cut
    }

    /// For the system call.
    pub fn as_slice(&self) -> &[libc::iovec] {
        &self.vectors
    }
}

/// Bytes `from .. from + length` of a list of segments, or as many as there are.
pub fn part_of(segments: &[Segment], from: u64, length: u64) -> Vec<Segment> {
    let (mut skip, mut left) = (from, length);
    let mut cut = Vec::with_capacity(segments.len());
    for segment in segments {
        let before = skip.min(segment.length);
        let take = (segment.length - before).min(left);
        if take > 0 {
            cut.push(Segment { address: segment.address + before, length: take });
        }
        (skip, left) = (skip - before, left - take);
    }
    cut
}

/// Bytes of all segments.
///
/// # Errors
/// `NotMapped` where one of them runs over the end of the address space.
pub fn total(segments: &[Segment]) -> Result<u64, MemoryError> {
    let mut total: u64 = 0;
    for segment in segments {
        let end = segment.address.checked_add(segment.length).ok_or(MemoryError::NotMapped)?;
        if end > isize::MAX as u64 {
            return Err(MemoryError::NotMapped);
        }
        total = total.checked_add(segment.length).ok_or(MemoryError::NotMapped)?;
    }
    Ok(total)
}

/// The address that lies `position` bytes into the segments.
pub fn address_at(segments: &[Segment], position: u64) -> Option<u64> {
    let mut start = 0;
    for segment in segments {
        if position - start < segment.length {
            return Some(segment.address + (position - start));
        }
        start += segment.length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Cut after cut gives every byte once and in order, and no piece reaches over the boundary.
        #[test]
        fn pieces_are_the_string(
            lengths in proptest::collection::vec(0u64..300, 0..200),
            limit in 1u64..400,
            boundary in 0u64..10_000,
        ) {
            let segments: Vec<Segment> = lengths.iter().enumerate()
                .map(|(index, length)| Segment { address: (index as u64 + 1) << 20, length: *length })
                .collect();
            let expected: Vec<u64> = segments.iter().flat_map(|s| s.address..s.address + s.length).collect();
            let mut got = Vec::new();
            while (got.len() as u64) < total(&segments).unwrap() {
                let cut = IoVectors::cut(&segments, got.len() as u64, limit, boundary);
                prop_assert!(cut.bytes > 0 && cut.bytes <= limit);
                for vector in cut.as_slice() {
                    let at = got.len() as u64;
                    prop_assert!(at >= boundary || at + vector.iov_len as u64 <= boundary);
                    prop_assert_eq!(address_at(&segments, at), Some(vector.iov_base as u64));
                    got.extend((0..vector.iov_len as u64).map(|offset| vector.iov_base as u64 + offset));
                }
            }
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn the_end_of_the_address_space() {
        let beyond = [Segment { address: u64::MAX - 3, length: 8 }];
        assert_eq!(total(&beyond), Err(MemoryError::NotMapped));
    }
}

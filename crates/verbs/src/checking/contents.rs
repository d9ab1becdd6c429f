//! The source bytes of requests (`--check=buffers`): sums over them, at post and at completion.

use super::places::CallPlace;
use crate::abi::*;
use crate::work_requests::elements_within;
use pagewire_checker::{Checker, Content};
use pagewire_memory::guard::Guard;

/// Bytes that are copied at once. A fault is mended only where the copy is the engine's own.
const PIECE: usize = 4096;

/// The sum of bytes of the program; `None`: they cannot be read, now or here.
pub fn sum_of(parts: &[(u64, u32)]) -> Option<u32> {
    let guard = Guard::enter()?;
    let mut hasher = crc32fast::Hasher::new();
    let mut piece = [0; PIECE];
    for &(address, length) in parts {
        let end = address.checked_add(u64::from(length))?;
        let mut place = address;
        while place < end {
            let bytes = &mut piece[..(end - place).min(PIECE as u64) as usize];
            guard.read(place, bytes).ok()?;
            hasher.update(bytes);
            place += bytes.len() as u64;
        }
    }
    Some(hasher.finalize())
}

/// The source bytes of a send request, as they are now. `None`: it has none, or they may change: what READs and atomics name is where their data
/// comes to, inline data was copied by the post, and lists of more than `most` elements are refused.
///
/// # Safety
/// The request is valid, and its list, if that has no more than `most` elements.
pub unsafe fn content_of(
    checker: &Checker<CallPlace>,
    wr: &ibv_send_wr,
    most: usize,
) -> Option<Box<Content<CallPlace>>> {
    let has_source = matches!(
        wr.opcode,
        IBV_WR_SEND
            | IBV_WR_SEND_WITH_IMM
            | IBV_WR_SEND_WITH_INV
            | IBV_WR_RDMA_WRITE
            | IBV_WR_RDMA_WRITE_WITH_IMM
            | IBV_WR_ATOMIC_WRITE
    );
    if !has_source || wr.send_flags & IBV_SEND_INLINE != 0 {
        return None;
    }
    // SAFETY: the caller promises a valid list of no more than `most` elements.
    let elements = unsafe { elements_within(wr.sg_list, wr.num_sge, most) };
    if elements.is_empty() {
        return None;
    }
    let filled = elements.iter().filter(|element| element.length > 0);
    let parts = filled.map(|element| {
        let address = checker.memory_of(element.lkey, element.addr, element.length)?;
        Some((address, element.length))
    });
    let parts = parts.collect::<Option<Vec<_>>>()?;
    let sum = sum_of(&parts)?;
    Some(Box::new(Content { parts, sum, place: CallPlace::here() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_depend_on_all_bytes() {
        let mut bytes = vec![7u8; 10_000];
        let address = bytes.as_ptr() as u64;
        let parts = [(address, 5000), (address + 5000, 5000)];
        let before = sum_of(&parts);
        assert!(before.is_some());
        assert_eq!(sum_of(&[(address, 10_000)]), before);
        bytes[9_999] ^= 1;
        assert_ne!(sum_of(&parts), before);
    }

    #[test]
    fn unreadable_bytes_have_no_sum() {
        assert_eq!(sum_of(&[(0, 1)]), None);
        assert_eq!(sum_of(&[(u64::MAX, 8)]), None);
    }
}

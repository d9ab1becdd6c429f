//! Memory of regions: zeroed at first, and accessed by peers at any time.

use crate::error::{Error, Result};
use pagewire_heap::HeapRef;
use std::alloc::Layout;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, Immutable};

/// Regions begin at a cache line of their own, so that no neighbour shares one.
const ALIGN: usize = 64;
/// Bytes of a word.
const WORD: usize = size_of::<AtomicU64>();

/// Memory of the registered heap that this process and its peers write.
pub(crate) struct Block {
    heap: &'static HeapRef,
    pointer: NonNull<u8>,
    layout: Layout,
    length: usize,
}

// SAFETY: it is owned memory. All accesses are atomic.
unsafe impl Send for Block {}
// SAFETY: all accesses to its bytes are atomic.
unsafe impl Sync for Block {}

impl Block {
    /// Zeroed memory.
    pub fn zeroed(heap: &'static HeapRef, length: usize) -> Result<Block> {
        let Ok(layout) = Layout::from_size_align(length.max(1), ALIGN) else {
            return Err(Error::NoMemory(length as u64));
        };
        let layout = layout.pad_to_align();
        let pointer = heap.allocate_zeroed(layout)?;
        Ok(Block { heap, pointer, layout, length })
    }

    pub fn address(&self) -> u64 {
        self.pointer.as_ptr() as u64
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// All of its words of 8 bytes, the last of which may have bytes behind its end.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory is owned, initialised and aligned to 64 bytes, its size is a multiple of that, and nobody has another kind of
        // reference to it.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.layout.size() / WORD) }
    }

    /// Its elements, for a block that nobody writes: that of a region of the kind `ReadOnly`, which gives no right to, after it was filled.
    pub fn read_only<T: FromBytes + Immutable>(&self) -> &[T] {
        const { assert!(align_of::<T>() <= ALIGN && size_of::<T>() > 0) };
        // SAFETY: the memory is owned, initialised and aligned for `T`, of which any bytes make one; nobody writes it.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.length / size_of::<T>()) }
    }

    /// Copies bytes out, word by word. What is written meanwhile is there in part.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        if let Some(words) = self.whole_words(offset, bytes.len()) {
            for (word, into) in words.iter().zip(bytes.chunks_exact_mut(WORD)) {
                into.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            return;
        }
        for (word, within, at) in self.pieces(offset, bytes.len()) {
            let from = word.load(Ordering::Relaxed).to_ne_bytes();
            bytes[at..at + within.len()].copy_from_slice(&from[within]);
        }
    }

    /// Copies bytes in, word by word. The other bytes of the first and the last word stay what they are, whoever writes them.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        if let Some(words) = self.whole_words(offset, bytes.len()) {
            for (word, from) in words.iter().zip(bytes.chunks_exact(WORD)) {
                word.store(u64::from_ne_bytes(from.try_into().unwrap_or_default()), Ordering::Relaxed);
            }
            return;
        }
        for (word, within, at) in self.pieces(offset, bytes.len()) {
            let piece = &bytes[at..at + within.len()];
            if let Ok(whole) = piece.try_into() {
                word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
                continue;
            }
            let mixed = |before: u64| {
                let mut mixed = before.to_ne_bytes();
                mixed[within.clone()].copy_from_slice(piece);
                Some(u64::from_ne_bytes(mixed))
            };
            // It gives a value for each one before, so it is always done.
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mixed);
        }
    }

    /// The words that `count` bytes from `offset` on are, if they cut none: long copies of these are quicker.
    fn whole_words(&self, offset: usize, count: usize) -> Option<&[AtomicU64]> {
        if offset % WORD != 0 || count % WORD != 0 || offset.checked_add(count)? > self.length {
            return None;
        }
        self.words().get(offset / WORD..(offset + count) / WORD)
    }

    /// The words that hold `count` bytes from `offset` on: each with the bytes of it that are meant, and where these are among the `count`.
    fn pieces(&self, offset: usize, count: usize) -> impl Iterator<Item = (&AtomicU64, Range<usize>, usize)> {
        let end = offset.checked_add(count).filter(|end| *end <= self.length);
        let end =
            end.unwrap_or_else(|| panic!("bytes {offset} and {count} more of a block of {}", self.length));
        let words = if count == 0 { 0..0 } else { offset / WORD..end.div_ceil(WORD) };
        words.map(move |index| {
            let (first, last) = (offset.max(index * WORD), end.min((index + 1) * WORD));
            (&self.words()[index], first - index * WORD..last - index * WORD, first - offset)
        })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and is not used any more: `Region` revokes what was exported of it first.
        unsafe { self.heap.deallocate(self.pointer, self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_heap::HeapOptions;
    use proptest::prelude::*;
    use std::sync::OnceLock;

    fn heap() -> &'static HeapRef {
        static HEAP: OnceLock<HeapRef> = OnceLock::new();
        HEAP.get_or_init(|| HeapRef::new(HeapOptions { range: 64 << 20, ..HeapOptions::default() }).unwrap())
    }

    proptest! {
        #[test]
        fn bytes_are_written_and_read_where_they_belong(
            length in 0usize..200,
            writes in prop::collection::vec((0usize..200, prop::collection::vec(any::<u8>(), 0..80)), 0..20),
        ) {
            let block = Block::zeroed(heap(), length).unwrap();
            let mut model = vec![0; length];
            for (offset, bytes) in writes {
                let offset = offset.min(length);
                let bytes = &bytes[..bytes.len().min(length - offset)];
                block.write(offset, bytes);
                model[offset..offset + bytes.len()].copy_from_slice(bytes);
                let mut part = vec![0; bytes.len()];
                block.read(offset, &mut part);
                prop_assert_eq!(&part, bytes);
            }
            let mut all = vec![0; length];
            block.read(0, &mut all);
            prop_assert_eq!(all, model);
        }
    }
}

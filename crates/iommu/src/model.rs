//! Words for model checking: every order that the memory model permits is tried (loom).
//!
//! Loads, stores and read-modify-writes are loom's. Of the bytes of one bulk copy only the first word is: it stands for the
//! others, which are ordered alike, and keeps the number of orders small.

use crate::words::{SharedWords, Site};
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Plain;

/// Words at some places of a large array; the others are not used.
#[derive(Clone)]
pub struct ModelWords(Arc<BTreeMap<usize, Word>>);

struct Word {
    word: AtomicU64,
    bulk: Plain,
}

impl ModelWords {
    /// Zero words at the places in use. To be called inside of a model, before its threads start.
    pub fn new(used: impl IntoIterator<Item = usize>) -> Self {
        let zero = || Word { word: AtomicU64::new(0), bulk: Plain::new(0) };
        ModelWords(Arc::new(used.into_iter().map(|index| (index, zero())).collect()))
    }

    fn at(&self, index: usize) -> &Word {
        self.0.get(&index).unwrap_or_else(|| panic!("word {index} is not used by this model"))
    }
}

impl SharedWords for ModelWords {
    fn len(&self) -> usize {
        self.0.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    fn load(&self, index: usize) -> u64 {
        self.at(index).word.load(Ordering::Acquire)
    }

    fn store(&self, _site: Site, index: usize, value: u64) {
        self.at(index).word.store(value, Ordering::Release);
    }

    fn compare_exchange(&self, _site: Site, index: usize, current: u64, value: u64) -> Result<u64, u64> {
        self.at(index).word.compare_exchange(current, value, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn write_bytes(&self, _site: Site, index: usize, bytes: &[u8]) {
        for (offset, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let (at, value) = (self.at(index + offset), u64::from_ne_bytes(word));
            at.bulk.store(value, Ordering::Relaxed);
            if offset == 0 {
                at.word.store(value, Ordering::Relaxed);
            }
        }
    }

    fn read_bytes(&self, index: usize, bytes: &mut [u8]) {
        for (offset, chunk) in bytes.chunks_mut(8).enumerate() {
            let at = self.at(index + offset);
            let value = match offset {
                0 => at.word.load(Ordering::Relaxed),
                _ => at.bulk.load(Ordering::Relaxed),
            };
            chunk.copy_from_slice(&value.to_ne_bytes()[..chunk.len()]);
        }
    }
}

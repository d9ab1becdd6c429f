//! Shared words that the world owns, and counts each store to.

use crate::limits::{ROW_BLOCKS, WORD_BLOCK};
use crate::process::VirtualProcess;
use pagewire_iommu::words::{SharedWords, Site};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

type WordBlock = [AtomicU64; WORD_BLOCK];

/// Blocks that follow each other.
type BlockRow = [OnceLock<Box<WordBlock>>; ROW_BLOCKS];

/// An array of words, of which only the blocks that were written exist, and the rows of blocks with one of these.
pub struct Array {
    rows: Vec<OnceLock<Box<BlockRow>>>,
    length: usize,
}

impl Array {
    /// `length` words of zero.
    pub fn new(length: usize) -> Arc<Self> {
        let mut rows = Vec::new();
        rows.resize_with(length.div_ceil(WORD_BLOCK * ROW_BLOCKS), OnceLock::new);
        Arc::new(Array { rows, length })
    }

    /// Number of words.
    pub fn length(&self) -> usize {
        self.length
    }

    fn load(&self, index: usize) -> u64 {
        assert!(index < self.length, "word {index} of {}", self.length);
        let block = index / WORD_BLOCK;
        let row = self.rows[block / ROW_BLOCKS].get();
        row.and_then(|row| row[block % ROW_BLOCKS].get())
            .map_or(0, |words| words[index % WORD_BLOCK].load(Ordering::Acquire))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.length, "word {index} of {}", self.length);
        let block = index / WORD_BLOCK;
        let row =
            self.rows[block / ROW_BLOCKS].get_or_init(|| Box::new([const { OnceLock::new() }; ROW_BLOCKS]));
        let words =
            row[block % ROW_BLOCKS].get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORD_BLOCK]));
        &words[index % WORD_BLOCK]
    }
}

/// Shared words as one process holds them: every store of a process that has ended is without effect.
#[derive(Clone)]
pub struct SimWords {
    array: Arc<Array>,
    holder: Arc<VirtualProcess>,
    writable: bool,
}

impl SimWords {
    /// Words that the holder may write.
    pub fn new(array: Arc<Array>, holder: Arc<VirtualProcess>) -> Self {
        SimWords { array, holder, writable: true }
    }

    /// Words that the holder may only read.
    pub fn read_only(array: Arc<Array>, holder: Arc<VirtualProcess>) -> Self {
        SimWords { array, holder, writable: false }
    }

    /// Counts a store; whether it takes place.
    fn may_store(&self, site: Site) -> bool {
        assert!(self.writable, "{} writes words that it may only read", site.0);
        self.holder.step(site)
    }
}

impl SharedWords for SimWords {
    fn len(&self) -> usize {
        self.array.length
    }

    fn load(&self, index: usize) -> u64 {
        self.array.load(index)
    }

    fn store(&self, site: Site, index: usize, value: u64) {
        if self.may_store(site) {
            self.array.word(index).store(value, Ordering::Release);
        }
    }

    // A process that has ended is told what lets its remaining instructions end soonest: success.
    fn compare_exchange(&self, site: Site, index: usize, current: u64, value: u64) -> Result<u64, u64> {
        if !self.may_store(site) {
            return Ok(current);
        }
        self.array.word(index).compare_exchange(current, value, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn fence(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    fn write_bytes(&self, site: Site, index: usize, bytes: &[u8]) {
        assert!(self.writable, "{} writes words that it may only read", site.0);
        let take_place = self.holder.steps(site, bytes.len().div_ceil(8) as u64);
        for (offset, chunk) in bytes.chunks(8).enumerate().take(take_place as usize) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.array.word(index + offset).store(u64::from_ne_bytes(word), Ordering::Release);
        }
    }

    fn read_bytes(&self, index: usize, bytes: &mut [u8]) {
        for (offset, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = self.load(index + offset).to_ne_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

//! Words of one process only, behind the same trait as shared ones.

use crate::words::{SharedWords, Site};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// An array of words on this process's heap.
#[derive(Clone)]
pub struct ProcessWords(Arc<[AtomicU64]>);

impl ProcessWords {
    /// `length` words of zero.
    pub fn new(length: usize) -> Self {
        ProcessWords((0..length).map(|_| AtomicU64::new(0)).collect())
    }
}

impl SharedWords for ProcessWords {
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, _site: Site, index: usize, value: u64) {
        self.0[index].store(value, Ordering::Release);
    }

    #[inline]
    fn compare_exchange(&self, _site: Site, index: usize, current: u64, value: u64) -> Result<u64, u64> {
        self.0[index].compare_exchange(current, value, Ordering::SeqCst, Ordering::SeqCst)
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[cfg(target_arch = "x86_64")]
    fn fence_behind_exchange(&self) {
        // An exchange is a locked instruction, which no load or store passes (AMD64 manual, volume 2, section 7.4.2).
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    fn write_bytes(&self, site: Site, index: usize, bytes: &[u8]) {
        for (offset, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.store(site, index + offset, u64::from_ne_bytes(word));
        }
    }

    fn read_bytes(&self, index: usize, bytes: &mut [u8]) {
        for (offset, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = self.load(index + offset).to_ne_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

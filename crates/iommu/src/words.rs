//! Words that processes share.
//!
//! Everything that two processes see at once is an array of 64-bit words behind [`SharedWords`]: the
//! published tables, the rings, the mailboxes. Real processes map one file; the simulator keeps the
//! array itself and can end a process between any two stores. A peer may die between any two stores
//! too, and may write anything at any time: whoever reads a word checks it.

use std::time::Duration;

/// Names one place in the code that stores to shared words, so that the simulator can tell at which
/// places a process has been ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site(pub &'static str);

/// An array of 64-bit words that several processes may read and write.
pub trait SharedWords: Clone + Send + Sync + 'static {
    /// Number of words.
    fn len(&self) -> usize;

    /// Whether there are no words.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads a word (acquire). An index out of range is a bug of the caller and panics.
    fn load(&self, index: usize) -> u64;

    /// Writes a word (release).
    fn store(&self, site: Site, index: usize, value: u64);

    /// Writes `value` if the word is `current`; gives the word's value before, in `Err` if it was another
    /// (sequentially consistent).
    fn compare_exchange(&self, site: Site, index: usize, current: u64, value: u64) -> Result<u64, u64>;

    /// Orders all earlier accesses of this thread before all later ones (sequentially consistent fence).
    fn fence(&self);

    /// A sequentially consistent fence right behind an exchange by this thread that succeeded. On some processors the exchange is
    /// such a fence by itself.
    fn fence_behind_exchange(&self) {
        self.fence();
    }

    /// Sleeps until somebody [wakes sleepers](Self::wake_sleepers) at the word, in whatever process, for so long at most; not at all if the
    /// word is another than `current`. It may return sooner. Words that nobody sleeps on let other threads run.
    fn sleep(&self, index: usize, current: u64, at_most: Duration) {
        let _ = (index, current, at_most);
        std::thread::yield_now();
    }

    /// Wakes who sleeps at a word.
    fn wake_sleepers(&self, index: usize) {
        let _ = index;
    }

    /// Copies bytes into the words, starting at word `index`; bytes are laid out as in memory. The last word
    /// is filled up with zeroes. Not atomic as a whole: publish it with a later `store`.
    fn write_bytes(&self, site: Site, index: usize, bytes: &[u8]);

    /// Copies bytes out of the words, starting at word `index`.
    fn read_bytes(&self, index: usize, bytes: &mut [u8]);
}

//! What chains work on.

use pagewire::{Atomic, Error, Region, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of 8 bytes that chains work on. Each of them changes as an atomic. Others have an index that is beyond the end: an error.
pub trait Words {
    /// How many there are.
    fn count(&self) -> u64;

    /// What a word is.
    ///
    /// # Errors
    /// `Range`; that the memory cannot be accessed.
    fn load(&self, index: u64) -> Result<u64>;

    /// Makes a word `new` if it is `current`, and gives what it was.
    ///
    /// # Errors
    /// As those of [`load`](Self::load).
    fn compare_swap(&self, index: u64, current: u64, new: u64) -> Result<u64>;

    /// Adds to a word, and gives what it was.
    ///
    /// # Errors
    /// As those of [`load`](Self::load).
    fn fetch_add(&self, index: u64, add: u64) -> Result<u64>;
}

impl Words for [AtomicU64] {
    fn count(&self) -> u64 {
        self.len() as u64
    }

    fn load(&self, index: u64) -> Result<u64> {
        Ok(word(self, index)?.load(Ordering::Acquire))
    }

    fn compare_swap(&self, index: u64, current: u64, new: u64) -> Result<u64> {
        let swapped = word(self, index)?.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        Ok(swapped.unwrap_or_else(|found| found))
    }

    fn fetch_add(&self, index: u64, add: u64) -> Result<u64> {
        Ok(word(self, index)?.fetch_add(add, Ordering::AcqRel))
    }
}

fn word(words: &[AtomicU64], index: u64) -> Result<&AtomicU64> {
    let found = usize::try_from(index).ok().and_then(|index| words.get(index));
    found.ok_or_else(|| out_of_bounds(words, index.saturating_mul(8), 8))
}

impl Words for Region<u64, Atomic> {
    fn count(&self) -> u64 {
        self.words().count()
    }

    fn load(&self, index: u64) -> Result<u64> {
        self.words().load(index)
    }

    fn compare_swap(&self, index: u64, current: u64, new: u64) -> Result<u64> {
        self.words().compare_swap(index, current, new)
    }

    fn fetch_add(&self, index: u64, add: u64) -> Result<u64> {
        self.words().fetch_add(index, add)
    }
}

/// The word at an offset in bytes.
pub(super) fn index(words: &(impl Words + ?Sized), offset: u64) -> Result<u64> {
    if offset % 8 != 0 {
        return Err(Error::Alignment { offset, align: 8 });
    }
    match offset / 8 < words.count() {
        true => Ok(offset / 8),
        false => Err(out_of_bounds(words, offset, 8)),
    }
}

/// Changes a word to what `new` makes of it, unless that is `None`. Gives what the word was, and whether it was changed.
pub(super) fn update(
    words: &(impl Words + ?Sized),
    index: u64,
    new: impl Fn(u64) -> Option<u64>,
) -> Result<(u64, bool)> {
    let mut current = words.load(index)?;
    loop {
        let Some(wanted) = new(current) else { return Ok((current, false)) };
        match words.compare_swap(index, current, wanted)? {
            found if found == current => return Ok((current, true)),
            found => current = found,
        }
    }
}

pub(super) fn out_of_bounds(words: &(impl Words + ?Sized), offset: u64, count: u64) -> Error {
    Error::Range { offset, count, length: words.count().saturating_mul(8) }
}

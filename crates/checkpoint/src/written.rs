//! Which pages of the regions of a checkpoint have changed since the last one: those that peers wrote, as others note them, and those of this
//! process by its page tables.

use crate::error::SaveError;
use crate::format::PAGE;
use crate::saver::{PeerWrites, SavedMemory};
use pagewire_memory::{DirtyMethod, DirtyPages, SharedRanges};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Result<T> = std::result::Result<T, SaveError>;

/// A bit for each page of a region.
struct DirtyBits {
    address: u64,
    bytes: u64,
    words: Vec<AtomicU64>,
}

impl DirtyBits {
    fn new(address: u64, bytes: u64) -> DirtyBits {
        let words = bytes.div_ceil(64 * PAGE as u64) as usize;
        DirtyBits { address, bytes, words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Marks the pages that have bytes of a range of addresses.
    fn mark(&self, address: u64, length: u64) {
        let end = address.saturating_add(length).min(self.address + self.bytes);
        let start = address.max(self.address);
        if start >= end {
            return;
        }
        let (first, last) = ((start - self.address) / PAGE as u64, (end - 1 - self.address) / PAGE as u64);
        for word in first / 64..=last / 64 {
            let low = if word == first / 64 { first % 64 } else { 0 };
            let high = if word == last / 64 { last % 64 } else { 63 };
            let bits = u64::MAX >> (63 - high) & u64::MAX << low;
            let bitmap = &self.words[word as usize];
            // Most pages are written more than once.
            if bitmap.load(Ordering::Relaxed) & bits != bits {
                bitmap.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    fn take(&self, into: &mut [u64]) {
        for (word, into) in self.words.iter().zip(into) {
            *into |= word.swap(0, Ordering::Relaxed);
        }
    }
}

/// Takes note of what peers write to the regions of a checkpoint.
#[derive(Clone, Default)]
pub struct WrittenPages(Arc<RwLock<Vec<DirtyBits>>>);

impl WrittenPages {
    /// A peer has written bytes, or may have. What lies in none of the regions is passed over.
    pub fn mark(&self, address: u64, length: u64) {
        self.0.read().iter().for_each(|region| region.mark(address, length));
    }
}

/// A region, as it is watched.
struct WatchedRegion {
    local: DirtyPages,
    /// Pages that have changed and were not saved.
    dirty: Vec<u64>,
    /// Other processes may write there, which nobody sees: each page counts as written.
    is_shared: bool,
}

/// Watches all regions of a checkpoint.
pub struct Tracker {
    written: WrittenPages,
    method: DirtyMethod,
    watched: Vec<WatchedRegion>,
}

impl Tracker {
    pub fn new(method: DirtyMethod) -> Tracker {
        Tracker { written: WrittenPages::default(), method, watched: Vec::new() }
    }

    pub fn written(&self) -> &WrittenPages {
        &self.written
    }

    pub fn method(&self) -> DirtyMethod {
        self.method
    }

    /// Whether these are the regions that are watched.
    pub fn watches(&self, regions: &[&dyn SavedMemory]) -> bool {
        let known = self.written.0.read();
        let is_same = |(bits, region): (&DirtyBits, &&dyn SavedMemory)| {
            (bits.address, bits.bytes) == (region.address(), region.bytes())
        };
        known.len() == regions.len() && known.iter().zip(regions).all(is_same)
    }

    /// Watches these regions, and no others any more. What was written before is not known.
    pub fn watch(&mut self, regions: &[&dyn SavedMemory], peers: &dyn PeerWrites) -> Result<()> {
        self.watched.clear();
        let bits = regions.iter().map(|region| DirtyBits::new(region.address(), region.bytes()));
        *self.written.0.write() = bits.collect();
        let shared = self.shared_ranges()?;
        for (index, region) in regions.iter().enumerate() {
            peers.begin(index, &self.written)?;
            let (address, bytes) = (region.address(), region.bytes());
            let watch = |why| SaveError::Watch { address, why };
            let is_shared = shared.touch(address, bytes);
            let method = if is_shared { DirtyMethod::None } else { self.method };
            let local = DirtyPages::watch(address, bytes, method).map_err(watch)?;
            let pages = bytes.div_ceil(64 * PAGE as u64) as usize;
            self.watched.push(WatchedRegion { local, dirty: vec![0; pages], is_shared });
        }
        // What was written before it was watched, or never was.
        self.look(peers)?;
        self.watched.iter_mut().for_each(|watched| watched.dirty.fill(0));
        Ok(())
    }

    /// Notes what has been written. Whatever had ended at a caller before this call is noted when it returns.
    pub fn look(&mut self, peers: &dyn PeerWrites) -> Result<()> {
        peers.note_all(&self.written);
        let shared = self.shared_ranges()?;
        let written = self.written.0.read();
        for (watched, bits) in self.watched.iter_mut().zip(written.iter()) {
            // It may have been mapped anew since.
            if !watched.is_shared && shared.touch(bits.address, bits.bytes) {
                let none = DirtyPages::watch(bits.address, bits.bytes, DirtyMethod::None);
                watched.local = none.map_err(|why| SaveError::Watch { address: bits.address, why })?;
                watched.is_shared = true;
            }
            let noted = watched.local.take(|range| bits.mark(range.start, range.end - range.start));
            if let Err(why) = noted {
                watched.dirty.fill(u64::MAX);
                return Err(SaveError::Watch { address: bits.address, why });
            }
            bits.take(&mut watched.dirty);
        }
        Ok(())
    }

    /// Where others may write unseen; none, where each page counts as written anyway.
    fn shared_ranges(&self) -> Result<SharedRanges> {
        let address = self.written.0.read().first().map_or(0, |bits| bits.address);
        match self.method {
            DirtyMethod::None => Ok(SharedRanges::default()),
            _ => SharedRanges::now().map_err(|why| SaveError::Watch { address, why }),
        }
    }

    /// Address and length of a region that other processes may write unseen.
    pub fn shared(&self) -> Option<(u64, u64)> {
        let written = self.written.0.read();
        let of = |(watched, bits): (&WatchedRegion, &DirtyBits)| {
            watched.is_shared.then_some((bits.address, bits.bytes))
        };
        self.watched.iter().zip(written.iter()).find_map(of)
    }

    /// What was written by the last looks, of a region: a bit for each page.
    pub fn dirty(&self, region: usize) -> &[u64] {
        &self.watched[region].dirty
    }

    /// What was written is saved.
    pub fn saved(&mut self) {
        self.watched.iter_mut().for_each(|watched| watched.dirty.fill(0));
    }
}

/// Runs of bits that are set, below `end`.
pub fn runs(words: &[u64], end: u64) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
    let next = move |from: u64, flip: u64| -> u64 {
        let mut at = from;
        while at < end {
            let word = (words[(at / 64) as usize] ^ flip) >> (at % 64);
            if word != 0 {
                return (at + u64::from(word.trailing_zeros())).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    };
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = next(at, 0);
        at = next(start, u64::MAX);
        (start < end).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_the_pages_that_were_marked(
            marks in prop::collection::vec((0u64..1 << 21, 1u64..1 << 20), 0..8),
            bytes in 1u64..3 << 20,
        ) {
            let (address, page) = (0x10_0040, PAGE as u64);
            let bits = DirtyBits::new(address, bytes);
            let pages = bytes.div_ceil(page);
            let mut model = vec![false; pages as usize];
            for (start, length) in marks {
                bits.mark(0xF_0000 + start, length);
                let (from, to) = (0xF_0000 + start, 0xF_0000 + start + length);
                for index in 0..pages {
                    let (first, end) = (address + index * page, (address + (index + 1) * page).min(address + bytes));
                    model[index as usize] |= from < end && to > first;
                }
            }
            let mut words = vec![0; bits.words.len()];
            bits.take(&mut words);
            let mut seen = vec![false; pages as usize];
            runs(&words, pages).for_each(|run| seen[run.start as usize..run.end as usize].fill(true));
            prop_assert_eq!(seen, model);
            bits.take(&mut words);
        }
    }
}

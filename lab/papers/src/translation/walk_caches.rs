//! Caches of the upper levels of page tables: a walk begins below what they know (PAPERS PART-3).

use super::{DomainId, PageId};
use std::ops::Range;

/// Bits of a page's number that one level of a table resolves (512 entries of 8 bytes in a table of 4 KiB).
pub(super) const LEVEL_BITS: u32 = 9;

/// One small fully associative cache for each level above the last one.
#[derive(Debug)]
pub(super) struct WalkCaches {
    /// That of the level `index`, counted from the root: tables that are known to exist, the one used last behind.
    levels: Vec<Vec<PageId>>,
    entries: usize,
}

impl WalkCaches {
    /// For tables of `levels` levels; `entries` in each cache, which may be 0: no caches.
    pub fn new(levels: u32, entries: usize) -> Self {
        let caches = levels.saturating_sub(1);
        WalkCaches { levels: (0..caches).map(|_| Vec::with_capacity(entries + 1)).collect(), entries }
    }

    /// The level at which a walk for `page` begins, counted from the root.
    pub fn start(&mut self, page: PageId) -> u32 {
        let levels = self.levels.len() as u32 + 1;
        for level in (0..levels - 1).rev() {
            let prefix = prefix(page, level, levels);
            let cache = &mut self.levels[level as usize];
            if let Some(index) = cache.iter().position(|&known| known == prefix) {
                cache[index..].rotate_left(1);
                return level + 1;
            }
        }
        0
    }

    /// The entry of `page` at `level`, not the last one, names a table.
    pub fn learn(&mut self, page: PageId, level: u32) {
        let levels = self.levels.len() as u32 + 1;
        let prefix = prefix(page, level, levels);
        let cache = &mut self.levels[level as usize];
        cache.retain(|&known| known != prefix);
        cache.push(prefix);
        if cache.len() > self.entries {
            cache.remove(0);
        }
    }

    /// Forgets all tables that pages of this range may be in.
    pub fn invalidate(&mut self, domain: DomainId, pages: &Range<u64>) {
        let levels = self.levels.len() as u32 + 1;
        for (level, cache) in (0..).zip(&mut self.levels) {
            let shift = shift(level, levels);
            cache.retain(|known| {
                let first = known.number << shift;
                let end = first.saturating_add(1 << shift);
                known.domain != domain || end <= pages.start || pages.end <= first
            });
        }
    }
}

/// Bits of a page's number below the entry at `level`.
fn shift(level: u32, levels: u32) -> u32 {
    (levels - 1 - level) * LEVEL_BITS
}

fn prefix(page: PageId, level: u32, levels: u32) -> PageId {
    PageId { number: page.number >> shift(level, levels), ..page }
}

//! What is remembered of the pages of other processes.
//!
//! Blocks of 2 MiB whose pages are all present are believed to be so for a tenth of a second: a page that has gone meanwhile costs a
//! wait. Of other blocks what was accessed is remembered for a tick.

use crate::limits::{BELIEVED_BITS, PEER_BLOCK, REMEMBERED_PAGES};
use crate::residency::{RecentNumbers, TIME_BITS};
use std::ops::Range;

/// Shared by all threads, for all peers.
pub struct PeerPages {
    /// Blocks of which all pages are present.
    whole: RecentNumbers,
    /// Blocks of which it is known that some are not.
    partial: RecentNumbers,
    pages: RecentNumbers,
    page_bits: u32,
}

impl PeerPages {
    /// Nothing is known.
    pub fn new() -> Self {
        let page_bits = (rustix::param::page_size() as u64).trailing_zeros();
        PeerPages {
            whole: RecentNumbers::new(),
            partial: RecentNumbers::new(),
            pages: RecentNumbers::new(),
            page_bits,
        }
    }

    /// Whether all of a range is remembered to be present; gives what is, from its beginning to its end at least.
    pub fn remembers(&self, pid: i32, range: Range<u64>, tick: u64) -> Option<Range<u64>> {
        let blocks = blocks_of(&range);
        let age = age_of(tick);
        if blocks.clone().all(|block| self.whole.has(block.wrapping_add(shift_of(pid)), age)) {
            return Some(blocks.start * PEER_BLOCK..blocks.end.saturating_mul(PEER_BLOCK));
        }
        let mut pages = self.pages_of(&range)?;
        let now = time_of(tick);
        pages.all(|page| self.pages.has(page.wrapping_add(shift_of(pid)), now)).then_some(range)
    }

    /// The block of a range that lies in one, if nothing is known of it.
    pub fn unknown_block(&self, pid: i32, range: Range<u64>, tick: u64) -> Option<Range<u64>> {
        let mut blocks = blocks_of(&range);
        let (Some(block), None) = (blocks.next(), blocks.next()) else { return None };
        let is_known = self.partial.has(block.wrapping_add(shift_of(pid)), age_of(tick));
        (!is_known).then(|| block * PEER_BLOCK..(block + 1).saturating_mul(PEER_BLOCK))
    }

    /// Remembers whether all pages of the block at an address are present.
    pub fn remember_block(&self, pid: i32, address: u64, present: bool, tick: u64) {
        let blocks = if present { &self.whole } else { &self.partial };
        blocks.add((address / PEER_BLOCK).wrapping_add(shift_of(pid)), age_of(tick));
    }

    /// Remembers that all pages of a range are present, unless they are too many.
    pub fn remember(&self, pid: i32, range: Range<u64>, tick: u64) {
        let now = time_of(tick);
        for page in self.pages_of(&range).into_iter().flatten() {
            self.pages.add(page.wrapping_add(shift_of(pid)), now);
        }
    }

    /// Some of a range turned out to have gone.
    pub fn forget(&self, pid: i32, range: Range<u64>, tick: u64) {
        for block in blocks_of(&range).take(REMEMBERED_PAGES) {
            let block = block.wrapping_add(shift_of(pid));
            self.whole.add(block, age_of(tick).wrapping_sub(1));
            self.partial.add(block, age_of(tick));
        }
    }

    /// The pages of a range. `None`: they would drive out everything else.
    fn pages_of(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let pages = range.start >> self.page_bits..((range.end.max(1) - 1) >> self.page_bits) + 1;
        (pages.end - pages.start <= PEER_BLOCK >> self.page_bits).then_some(pages)
    }
}

fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / PEER_BLOCK..(range.end.max(1) - 1) / PEER_BLOCK + 1
}

/// Pages of processes have other numbers here, most probably: the golden ratio spreads the processes' own numbers.
fn shift_of(pid: i32) -> u64 {
    (pid as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> TIME_BITS
}

fn age_of(tick: u64) -> u64 {
    tick >> BELIEVED_BITS
}

fn time_of(tick: u64) -> u64 {
    tick / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 77 << BELIEVED_BITS;
    const LATER: u64 = 78 << BELIEVED_BITS;

    #[test]
    fn what_has_gone_is_not_believed_to_be_there() {
        let peer_pages = PeerPages::new();
        for block in 5..8 {
            peer_pages.remember_block(7, block * PEER_BLOCK, true, NOW);
        }
        assert!(peer_pages.remembers(7, 5 * PEER_BLOCK..8 * PEER_BLOCK, NOW).is_some());
        peer_pages.forget(7, 6 * PEER_BLOCK + 100..6 * PEER_BLOCK + 200, NOW);
        let of = |blocks: Range<u64>| {
            peer_pages.remembers(7, blocks.start * PEER_BLOCK..blocks.end * PEER_BLOCK, NOW)
        };
        assert!([of(5..6), of(7..8)].iter().all(Option::is_some), "others are");
        assert!([of(6..7), of(5..8)].iter().all(Option::is_none));
        assert_eq!(peer_pages.unknown_block(7, 6 * PEER_BLOCK..6 * PEER_BLOCK + 1, NOW), None);
    }

    #[test]
    fn a_whole_block_is_believed_for_a_while() {
        let peer_pages = PeerPages::new();
        let part = 5 * PEER_BLOCK + 100..5 * PEER_BLOCK + 9000;
        assert_eq!(peer_pages.remembers(1, part.clone(), NOW), None);
        assert_eq!(peer_pages.unknown_block(1, part.clone(), NOW), Some(5 * PEER_BLOCK..6 * PEER_BLOCK));
        peer_pages.remember_block(1, 5 * PEER_BLOCK, true, NOW);
        assert_eq!(peer_pages.remembers(1, part.clone(), LATER - 1), Some(5 * PEER_BLOCK..6 * PEER_BLOCK));
        assert_eq!(peer_pages.remembers(1, part.clone(), LATER), None);
        assert_eq!(peer_pages.remembers(2, part, NOW), None, "of another process nothing is known");
        assert_eq!(peer_pages.remembers(1, 6 * PEER_BLOCK - 1..6 * PEER_BLOCK + 1, NOW), None);
    }

    #[test]
    fn of_a_block_with_gaps_what_was_accessed_is_known_for_a_tick() {
        let peer_pages = PeerPages::new();
        let part = 5 * PEER_BLOCK + 100..5 * PEER_BLOCK + 9000;
        peer_pages.remember_block(1, 5 * PEER_BLOCK, false, NOW);
        assert_eq!(peer_pages.unknown_block(1, part.clone(), NOW), None);
        assert_eq!(peer_pages.remembers(1, part.clone(), NOW), None);
        peer_pages.remember(1, part.clone(), NOW);
        assert_eq!(peer_pages.remembers(1, part.clone(), NOW), Some(part.clone()));
        assert_eq!(peer_pages.remembers(1, part.start..part.end + 4096, NOW), None);
        assert_eq!(peer_pages.remembers(1, part, NOW + 10_000_000), None);
    }

    #[test]
    fn long_ranges_have_no_room() {
        let peer_pages = PeerPages::new();
        let long = 0..PEER_BLOCK + 4096;
        assert_eq!(peer_pages.unknown_block(1, long.clone(), NOW), None);
        peer_pages.remember(1, long.clone(), NOW);
        assert_eq!(peer_pages.remembers(1, long.clone(), NOW), None);
        (0..2).for_each(|block| peer_pages.remember_block(1, block * PEER_BLOCK, true, NOW));
        assert_eq!(peer_pages.remembers(1, long, NOW), Some(0..2 * PEER_BLOCK));
    }
}

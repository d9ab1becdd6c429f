//! What is brought in beyond what is needed now.

use crate::PageIn;
use crate::limits::{BLOCK, FIRST_SECTION, LARGEST_SECTION};
use std::ops::Range;

/// One stream of accesses: those of the sending or of the receiving half of a connection. Addresses are of bytes; what it answers
/// begins and ends where a page does, or with the region.
#[derive(Debug, Clone, Default)]
pub struct Ahead {
    /// Where the last access that met an absent page ended.
    met: u64,
    /// Up to here pages were brought in, or are being brought in.
    until: u64,
    /// Bytes of the last section.
    section: u64,
}

impl Ahead {
    /// What else is to be brought in meanwhile, by somebody whom nobody waits for; `limit`: the end of the region; `known`: of the
    /// transfer, where that is known. Told of each access that met an absent page, and of those that come to the [mark](Self::mark).
    pub fn beyond(
        &mut self,
        strategy: PageIn,
        needed: Range<u64>,
        known: Option<u64>,
        limit: u64,
    ) -> Option<Range<u64>> {
        let follows = self.met != 0 && (self.met..=self.until.max(self.met)).contains(&needed.start);
        let section = match strategy {
            PageIn::Page | PageIn::Block => return None,
            PageIn::Transfer => LARGEST_SECTION,
            PageIn::Dynamic if known.is_some_and(|known| known > needed.end) => LARGEST_SECTION,
            PageIn::Dynamic if !follows => 0,
            PageIn::Dynamic => (2 * self.section).clamp(FIRST_SECTION, LARGEST_SECTION),
        };
        let from = if follows { self.until.max(needed.end) } else { needed.end };
        self.met = needed.end;
        self.section = section;
        let end = known.unwrap_or(u64::MAX).min(limit).min(from.saturating_add(section));
        self.until = end.max(from);
        (from < end).then_some(from..end)
    }

    /// Whether an access that ends here goes on in what was brought in ahead, and soon needs more: half of the last section is left.
    #[inline]
    pub fn is_past_mark(&self, end: u64) -> bool {
        self.section != 0 && (self.mark()..=self.until).contains(&end)
    }

    fn mark(&self) -> u64 {
        self.until.saturating_sub(self.section / 2)
    }

    /// Memory is short: what was brought in was gone again when it was accessed. Down to nothing beyond what is needed (JBMT-4:
    /// progress by a single page).
    pub fn shrink(&mut self) {
        self.section /= 4;
        if self.section < FIRST_SECTION / 4 {
            self.section = 0;
        }
        self.until = self.met;
    }
}

/// What is to be brought in where `needed` is accessed and a page of it is absent: all that the access waits for. Of the region's
/// memory, `region`.
pub fn needed(strategy: PageIn, needed: Range<u64>, region: Range<u64>) -> Range<u64> {
    match strategy {
        PageIn::Block => {
            let start = (needed.start / BLOCK * BLOCK).max(region.start);
            let end = needed.end.saturating_add(BLOCK - 1) / BLOCK * BLOCK;
            start.min(needed.start)..end.min(region.end).max(needed.end)
        }
        PageIn::Page | PageIn::Transfer | PageIn::Dynamic => needed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;
    const END: u64 = 1 << 40;

    fn access(ahead: &mut Ahead, from: u64, to: u64) -> Option<Range<u64>> {
        ahead.beyond(PageIn::Dynamic, from * PAGE..to * PAGE, None, END)
    }

    #[test]
    fn a_page_alone_brings_in_nothing_else() {
        for strategy in [PageIn::Page, PageIn::Block, PageIn::Dynamic] {
            let mut ahead = Ahead::default();
            for page in [10, 500] {
                let needed = page * PAGE..(page + 1) * PAGE;
                assert_eq!(ahead.beyond(strategy, needed, None, END), None, "{strategy}");
            }
        }
    }

    #[test]
    fn sections_double_while_accesses_follow_each_other() {
        let mut ahead = Ahead::default();
        assert_eq!(access(&mut ahead, 10, 11), None);
        assert_eq!(access(&mut ahead, 11, 12), Some(12 * PAGE..28 * PAGE));
        let mut at = 20;
        let mut longest = 0;
        for _ in 0..8 {
            let section = access(&mut ahead, at, at + 1).unwrap();
            longest = section.end - section.start;
            at = section.start / PAGE + longest / PAGE / 2;
        }
        assert_eq!(longest, LARGEST_SECTION);
        assert_eq!(access(&mut ahead, 1 << 20, (1 << 20) + 1), None, "it begins anew");
    }

    #[test]
    fn blocks_are_those_of_the_paper() {
        let access = 5 * PAGE + 100..5 * PAGE + 200;
        assert_eq!(needed(PageIn::Block, access.clone(), 0..END), 4 * PAGE..8 * PAGE);
        let region = 5 * PAGE + 50..6 * PAGE;
        assert_eq!(needed(PageIn::Block, access.clone(), region.clone()), region);
        assert_eq!(needed(PageIn::Page, access.clone(), 0..END), access);
    }

    #[test]
    fn of_a_transfer_whose_end_is_known_nothing_behind_it_comes_in() {
        let mut ahead = Ahead::default();
        let end = 10 * PAGE + 4 * LARGEST_SECTION;
        let mut have = 11 * PAGE;
        let mut needed = 10 * PAGE..11 * PAGE;
        while let Some(section) = ahead.beyond(PageIn::Transfer, needed, Some(end), END) {
            assert_eq!(section.start, have);
            assert!(section.end - section.start <= LARGEST_SECTION);
            have = section.end;
            let mark = ahead.mark();
            needed = mark..mark + PAGE;
        }
        assert_eq!(have, end);
    }

    #[test]
    fn where_memory_is_short_sections_shrink_to_nothing() {
        let mut ahead = Ahead::default();
        let mut at = 100;
        for _ in 0..8 {
            if let Some(section) = access(&mut ahead, at, at + 1) {
                at = section.start / PAGE;
            }
        }
        for _ in 0..6 {
            ahead.shrink();
        }
        assert_eq!(ahead.section, 0);
    }

    proptest! {
        #[test]
        fn what_comes_in_lies_behind_the_access_within_the_limit(
            strategy in 0usize..4,
            accesses in proptest::collection::vec((0u64..1000, 1u64..40, proptest::option::of(0u64..2000)), 1..40),
            limit in 900u64..1200,
        ) {
            let mut ahead = Ahead::default();
            for (from, pages, known) in accesses {
                let needed = from * PAGE..(from + pages) * PAGE;
                let known = known.map(|known| known * PAGE);
                let strategy = PageIn::ALL[strategy];
                if let Some(section) = ahead.beyond(strategy, needed.clone(), known, limit * PAGE) {
                    prop_assert!(section.start >= needed.end && section.start < section.end);
                    prop_assert!(section.end <= limit * PAGE && section.end <= known.unwrap_or(u64::MAX));
                    prop_assert!(section.end - section.start <= LARGEST_SECTION);
                }
                prop_assert!(ahead.mark() <= ahead.until);
            }
        }
    }
}

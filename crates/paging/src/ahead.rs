//! What is brought in beyond what is needed now.

use crate::PageIn;
use crate::limits::{
    BEFORE_ACCESS, BLOCK, FIRST_SECTION, LARGEST_SECTION, PAGE, SECTIONS_OF_PLENTY, SHORTAGES,
};
use std::ops::Range;

/// One stream of accesses: those of the sending or of the receiving half of a connection. Addresses are of bytes; what it answers
/// begins and ends where a page does, or with the region.
#[derive(Debug, Clone, Default)]
pub struct Ahead {
    /// Where the last access that met an absent page began.
    from: u64,
    /// And where it ended.
    faulted_to: u64,
    /// Up to here pages were brought in, or are being brought in.
    until: u64,
    /// Bytes of the last section.
    section: u64,
    /// How often memory was short lately: each time sections are at most a quarter as long.
    shortage: u32,
    /// Sections since then that were not followed by another shortage.
    plenty: u32,
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
        if needed.end == self.faulted_to {
            // This access waits, and is looked at again.
            return None;
        }
        let follows = self.follows(&needed);
        let section = match strategy {
            PageIn::Page | PageIn::Block => return None,
            PageIn::Transfer => LARGEST_SECTION,
            PageIn::Dynamic if known.is_some_and(|known| known > needed.end) => LARGEST_SECTION,
            PageIn::Dynamic if !follows => 0,
            PageIn::Dynamic => (2 * self.section).clamp(FIRST_SECTION, LARGEST_SECTION),
        };
        let section = section.min(self.longest());
        let from = if follows { self.until.max(needed.end) } else { needed.end };
        (self.from, self.faulted_to) = (needed.start, needed.end);
        self.recover();
        self.section = section;
        let end = known.unwrap_or(u64::MAX).min(limit).min(from.saturating_add(section));
        self.until = end.max(from);
        (from < end).then_some(from..end)
    }

    /// What is brought in before an access that meets an absent page is made: where accesses follow each other, or the transfer is known to
    /// go on, to the end of a piece of [`BEFORE_ACCESS`], with which one call, or one wait, does what else many would. Less where memory is
    /// short. `known` and `limit` as for [`beyond`](Self::beyond), which is told of the access behind this.
    pub fn before_access(
        &self,
        strategy: PageIn,
        needed: Range<u64>,
        known: Option<u64>,
        limit: u64,
    ) -> Range<u64> {
        let goes_on = self.follows(&needed) || known.is_some_and(|known| known > needed.end);
        if !goes_on || matches!(strategy, PageIn::Page | PageIn::Block) {
            return needed;
        }
        let whole = needed.end.checked_next_multiple_of(BEFORE_ACCESS).unwrap_or(needed.end);
        let end =
            whole.min(needed.end.saturating_add(self.longest())).min(known.unwrap_or(u64::MAX)).min(limit);
        needed.start..end.max(needed.end)
    }

    /// Whether an access goes on within the last one, which may have been cut into several, or in what came in for that one.
    fn follows(&self, needed: &Range<u64>) -> bool {
        let came = self.until.max(self.faulted_to);
        let end = came.checked_next_multiple_of(PAGE).unwrap_or(came);
        self.faulted_to != 0 && (self.from..=end).contains(&needed.start)
    }

    /// Whether an access that ends here goes on in what was brought in ahead, and soon needs more: half of the last section is left.
    #[inline]
    pub fn is_past_mark(&self, end: u64) -> bool {
        self.section != 0 && (self.mark()..=self.until).contains(&end)
    }

    fn mark(&self) -> u64 {
        self.until.saturating_sub(self.section / 2)
    }

    /// As [`beyond`](Self::beyond) where nothing else is brought in by others: what was has come up to `until`. Others may be on their way
    /// already, beyond that.
    pub fn alone(&mut self, needed: Range<u64>, until: u64) {
        let (follows, until) = (self.follows(&needed), until.max(needed.end));
        (self.from, self.faulted_to) = (needed.start, needed.end);
        if !follows || self.until < until {
            (self.until, self.section) = (until, 0);
        }
    }

    /// Memory is short: what was brought in for an access was gone again when it was tried. With each such time sections are shorter, down to
    /// nothing beyond what is needed (JBMT-4: progress by a single page), whatever the strategy; they grow again by and by.
    pub fn shrink(&mut self) {
        self.shortage = (self.shortage + 1).min(SHORTAGES);
        self.plenty = 0;
        self.section = self.section.min(self.longest());
        self.until = self.faulted_to;
    }

    /// Bytes of a section at most.
    fn longest(&self) -> u64 {
        if self.shortage == SHORTAGES { 0 } else { LARGEST_SECTION >> (2 * self.shortage) }
    }

    fn recover(&mut self) {
        self.plenty += 1;
        if self.plenty == SECTIONS_OF_PLENTY {
            (self.shortage, self.plenty) = (self.shortage.saturating_sub(1), 0);
        }
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
    fn accesses_shorter_than_a_page_follow_each_other_from_page_to_page() {
        let mut ahead = Ahead::default();
        let mut fault = |page: u64| {
            let needed = page * PAGE..page * PAGE + 1024;
            ahead.beyond(PageIn::Dynamic, needed, None, END).map(|section| section.end - section.start)
        };
        assert_eq!([10, 11].map(&mut fault), [None, Some(FIRST_SECTION)]);
        assert_eq!(fault(11 + 2 * FIRST_SECTION / PAGE), None, "elsewhere");
    }

    /// PART-5, PART-7.
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

    /// JBMT-4: down to a single page.
    #[test]
    fn where_memory_is_short_sections_shrink_to_nothing_and_grow_again_later() {
        for strategy in [PageIn::Dynamic, PageIn::Transfer] {
            let mut ahead = Ahead::default();
            let mut at = 100;
            let mut next = |ahead: &mut Ahead| {
                at += 1;
                let needed = at * PAGE..(at + 1) * PAGE;
                ahead
                    .beyond(strategy, needed, Some(END), END)
                    .map_or(0, |section| section.end - section.start)
            };
            assert_eq!(next(&mut ahead), LARGEST_SECTION);
            let mut longest = LARGEST_SECTION;
            for _ in 1..SHORTAGES {
                ahead.shrink();
                longest /= 4;
                assert_eq!(next(&mut ahead), longest, "{strategy}");
            }
            for _ in 0..3 {
                ahead.shrink();
                assert_eq!(next(&mut ahead), 0);
            }
            let later: Vec<u64> = (0..SHORTAGES * SECTIONS_OF_PLENTY).map(|_| next(&mut ahead)).collect();
            assert_eq!(later[0], 0, "more than one access is made without");
            assert_eq!(later.iter().max(), Some(&LARGEST_SECTION));
        }
    }

    #[test]
    fn who_finds_a_page_without_help_leaves_what_helpers_do() {
        let mut ahead = Ahead::default();
        let known = Some(10 * LARGEST_SECTION);
        let first = ahead.beyond(PageIn::Dynamic, PAGE..2 * PAGE, known, END).unwrap();
        ahead.alone(4 * PAGE..5 * PAGE, 5 * PAGE);
        let next = ahead.beyond(PageIn::Dynamic, 6 * PAGE..7 * PAGE, known, END).unwrap();
        assert_eq!(next.start, first.end, "nothing is asked for twice");
        ahead.alone(next.end..next.end + PAGE, next.end + 2 * PAGE);
        let last = ahead.beyond(PageIn::Dynamic, next.end + PAGE..next.end + 2 * PAGE, None, END);
        assert_eq!(last.unwrap().start, next.end + 2 * PAGE);
    }

    #[test]
    fn a_row_that_is_cut_asks_for_nothing_twice() {
        let mut ahead = Ahead::default();
        let known = Some(10 * LARGEST_SECTION);
        let row = ahead.beyond(PageIn::Dynamic, PAGE..20 * PAGE, known, END).unwrap();
        let part = ahead.beyond(PageIn::Dynamic, 5 * PAGE..5 * PAGE + 1024, known, END).unwrap();
        assert_eq!(part.start, row.end);
        assert_eq!(ahead.beyond(PageIn::Dynamic, 2 * PAGE..3 * PAGE, None, END), None, "it begins anew");
    }

    #[test]
    fn at_once_comes_a_piece_of_what_goes_on_unless_memory_is_short() {
        let mut ahead = Ahead::default();
        let needed = BEFORE_ACCESS + 1024..BEFORE_ACCESS + 2048;
        let whole = |ahead: &Ahead, known| ahead.before_access(PageIn::Dynamic, needed.clone(), known, END);
        assert_eq!(whole(&ahead, None), needed, "nothing says that it goes on");
        assert_eq!(whole(&ahead, Some(END)), needed.start..2 * BEFORE_ACCESS);
        assert_eq!(whole(&ahead, Some(BEFORE_ACCESS + 4096)), needed.start..BEFORE_ACCESS + 4096);
        (0..SHORTAGES).for_each(|_| ahead.shrink());
        assert_eq!(whole(&ahead, Some(END)), needed);
    }

    #[test]
    fn an_access_that_is_looked_at_again_changes_nothing() {
        let mut ahead = Ahead::default();
        access(&mut ahead, 10, 11);
        let section = access(&mut ahead, 11, 12).unwrap();
        for _ in 0..5 {
            assert_eq!(access(&mut ahead, 11, 12), None);
        }
        let next = section.end / PAGE;
        let longer = access(&mut ahead, next, next + 1).unwrap();
        assert_eq!(longer.end - longer.start, 2 * (section.end - section.start));
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

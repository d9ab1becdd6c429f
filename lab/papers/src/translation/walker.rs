//! The walker of page tables: many walks at once, each of 3 to 4 reads of memory one after the other (PAPERS PART-3).
//!
//! The time of a read is given; what it finds, a [`PageTable`] says at the time when the read ends. Accesses to a page that is
//! being walked join that walk. What finds no free walk waits in a line; beyond the bound of outstanding accesses it is refused.

use super::walk_caches::WalkCaches;
use super::{Access, DomainId, PageId};
use std::collections::VecDeque;
use std::ops::Range;

/// What an entry of a page table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<V> {
    /// Go on in a table one level below.
    Table,
    /// The page is here; at an upper level a large page.
    Page {
        /// What the translation buffers shall keep.
        value: V,
        /// Whether it may be written.
        writable: bool,
    },
    /// Nothing is mapped: a fault.
    Absent,
}

/// The page tables of all domains.
pub trait PageTable {
    /// What the translation buffers keep of a page.
    type Value: Copy;

    /// The entry that covers `page` at `level`, counted from the root; never [`Entry::Table`] at the last one.
    fn entry(&self, page: PageId, level: u32) -> Entry<Self::Value>;
}

/// Sizes and speed of a walker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkerLimits {
    /// Levels of the tables: 3 for addresses of 39 bits, 4 for 48.
    pub levels: u32,
    /// Walks at once.
    pub walks: usize,
    /// Accesses outstanding.
    pub accesses: usize,
    /// Entries of the cache of each upper level.
    pub cache_entries: usize,
    /// Nanoseconds that one read of an entry takes.
    pub read_time: u64,
}

impl Default for WalkerLimits {
    /// Those of the paper: 39 bits, 16 walks, 256 accesses (PART, section 4.3), 600 ns for all levels (section 2). How large
    /// the walk caches are it does not say; 8 is the length of a cache line of entries.
    fn default() -> Self {
        WalkerLimits { levels: 3, walks: 16, accesses: 256, cache_entries: 8, read_time: 200 }
    }
}

/// What became of an access that was given to the walker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an access that was refused will never end"]
pub enum Submitted {
    /// A walk was begun for it.
    Started,
    /// It joined the walk of another access to its page.
    Merged,
    /// It waits until a walk is free.
    Waiting,
    /// Too many accesses are outstanding; try again when one has ended.
    Refused,
}

/// The end of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked<V, T> {
    /// The page that was walked for.
    pub page: PageId,
    /// How the access that this is the end of wanted it.
    pub access: Access,
    /// As the caller gave it.
    pub token: T,
    /// When the walk ended, in nanoseconds.
    pub at: u64,
    /// What was found, and whether it may be written; `None`: the page is absent, or may not be accessed so.
    pub value: Option<(V, bool)>,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkerCounters {
    /// Walks begun.
    pub walks: u64,
    /// Reads of entries.
    pub reads: u64,
    /// Accesses that joined a walk.
    pub merged: u64,
    /// Accesses refused.
    pub refused: u64,
}

/// The walker. `T` names an access.
#[derive(Debug)]
pub struct Walker<T> {
    limits: WalkerLimits,
    caches: WalkCaches,
    walks: Vec<Walk>,
    /// Of accesses under way, oldest first.
    accesses: VecDeque<(PageId, Access, T)>,
    /// Pages whose walk has not begun.
    line: VecDeque<PageId>,
    counters: WalkerCounters,
}

#[derive(Clone, Copy, Debug)]
struct Walk {
    page: PageId,
    level: u32,
    /// When the read under way ends.
    due: u64,
}

impl<T> Walker<T> {
    /// An idle walker with empty caches.
    pub fn new(limits: WalkerLimits) -> Self {
        Walker {
            limits,
            caches: WalkCaches::new(limits.levels, limits.cache_entries),
            walks: Vec::with_capacity(limits.walks),
            accesses: VecDeque::with_capacity(limits.accesses),
            line: VecDeque::with_capacity(limits.accesses),
            counters: WalkerCounters::default(),
        }
    }

    /// Asks for `page` at `now`.
    pub fn submit(&mut self, now: u64, page: PageId, access: Access, token: T) -> Submitted {
        if self.accesses.len() >= self.limits.accesses {
            self.counters.refused += 1;
            return Submitted::Refused;
        }
        self.accesses.push_back((page, access, token));
        if self.walks.iter().any(|walk| walk.page == page) || self.line.contains(&page) {
            self.counters.merged += 1;
            Submitted::Merged
        } else if self.walks.len() < self.limits.walks {
            self.begin(now, page);
            Submitted::Started
        } else {
            self.line.push_back(page);
            Submitted::Waiting
        }
    }

    /// When the next read ends. `None`: nothing is under way.
    pub fn next_due(&self) -> Option<u64> {
        self.walks.iter().map(|walk| walk.due).min()
    }

    /// Ends all reads due by `now`, in the order of time, and hands each access that ends to `ended`, the oldest of a page first.
    pub fn advance<P: PageTable>(&mut self, now: u64, table: &P, mut ended: impl FnMut(Walked<P::Value, T>)) {
        while let Some(index) = self.earliest(now) {
            let Walk { page, level, due } = self.walks[index];
            match table.entry(page, level) {
                Entry::Table if level + 1 < self.limits.levels => {
                    self.caches.learn(page, level);
                    self.walks[index] = Walk { page, level: level + 1, due: due + self.limits.read_time };
                    self.counters.reads += 1;
                }
                found => {
                    self.walks.remove(index);
                    self.end(page, due, found, &mut ended);
                }
            }
        }
    }

    /// The tables of these pages have changed at `now`: the caches forget them, and walks under way begin anew, so that no access
    /// ends with what was true before.
    pub fn invalidate(&mut self, now: u64, domain: DomainId, pages: &Range<u64>) {
        self.caches.invalidate(domain, pages);
        for walk in &mut self.walks {
            if walk.page.domain == domain && pages.contains(&walk.page.number) {
                walk.level = self.caches.start(walk.page);
                walk.due = now + self.limits.read_time;
                self.counters.reads += 1;
            }
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> WalkerCounters {
        self.counters
    }

    /// Accesses under way.
    pub fn outstanding(&self) -> usize {
        self.accesses.len()
    }

    fn begin(&mut self, now: u64, page: PageId) {
        let level = self.caches.start(page);
        self.walks.push(Walk { page, level, due: now + self.limits.read_time });
        self.counters.walks += 1;
        self.counters.reads += 1;
    }

    fn earliest(&self, now: u64) -> Option<usize> {
        let due = |index: &usize| self.walks[*index].due;
        (0..self.walks.len()).filter(|index| due(index) <= now).min_by_key(due)
    }

    /// The walk for `page` is over: so are the accesses that wait for it.
    fn end<V: Copy>(&mut self, page: PageId, at: u64, found: Entry<V>, ended: &mut impl FnMut(Walked<V, T>)) {
        for _ in 0..self.accesses.len() {
            let Some((own, access, token)) = self.accesses.pop_front() else { break };
            if own != page {
                self.accesses.push_back((own, access, token));
                continue;
            }
            let value = match found {
                Entry::Page { value, writable } if writable || access == Access::Read => {
                    Some((value, writable))
                }
                _ => None,
            };
            ended(Walked { page, access, token, at, value });
        }
        while self.walks.len() < self.limits.walks {
            let Some(next) = self.line.pop_front() else { break };
            self.begin(at, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The pages that are present, whether they may be written; tables exist for 512 pages around each.
    struct Tables {
        present: BTreeMap<u64, bool>,
        levels: u32,
    }

    impl Tables {
        fn of_three_levels(present: impl IntoIterator<Item = (u64, bool)>) -> Self {
            Tables { present: present.into_iter().collect(), levels: 3 }
        }
    }

    impl PageTable for Tables {
        type Value = u64;

        fn entry(&self, page: PageId, level: u32) -> Entry<u64> {
            let last = self.levels - 1;
            if level == last {
                let frame = |&writable| Entry::Page { value: page.number + 1_000, writable };
                return self.present.get(&page.number).map_or(Entry::Absent, frame);
            }
            let shift = (last - level) * 9;
            let below = (page.number >> shift) << shift;
            let known = self.present.range(below..below + (1 << shift)).next().is_some();
            if known { Entry::Table } else { Entry::Absent }
        }
    }

    fn page(number: u64) -> PageId {
        PageId { domain: 1, number }
    }

    fn advance<T>(walker: &mut Walker<T>, now: u64, tables: &Tables) -> Vec<(T, u64, Option<u64>)> {
        let mut ended = Vec::new();
        walker.advance(now, tables, |walked| {
            ended.push((walked.token, walked.at, walked.value.map(|(value, _)| value)));
        });
        ended
    }

    /// PART, section 4.3: three levels, and fewer reads where the walk caches know the upper ones.
    #[test]
    fn part_3_a_walk_takes_three_reads_and_one_where_the_upper_levels_are_known() {
        let tables = Tables::of_three_levels((0..600).map(|number| (number, true)));
        let mut walker = Walker::new(WalkerLimits::default());
        assert_eq!(walker.submit(0, page(5), Access::Write, 'a'), Submitted::Started);
        assert_eq!(advance(&mut walker, 599, &tables), []);
        assert_eq!(advance(&mut walker, 600, &tables), [('a', 600, Some(1_005))]);
        assert_eq!(walker.submit(1_000, page(6), Access::Write, 'b'), Submitted::Started);
        assert_eq!(walker.submit(1_000, page(513), Access::Write, 'c'), Submitted::Started);
        assert_eq!(
            advance(&mut walker, 2_000, &tables),
            [('b', 1_200, Some(1_006)), ('c', 1_400, Some(1_513))]
        );
        assert_eq!(walker.counters(), WalkerCounters { walks: 3, reads: 6, ..WalkerCounters::default() });
    }

    /// PART, section 4.3: 16 walks in parallel, 256 outstanding accesses.
    #[test]
    fn part_3_sixteen_walks_at_once_and_256_accesses() {
        let tables = Tables::of_three_levels((0..600).map(|number| (number, true)));
        let mut walker = Walker::new(WalkerLimits { cache_entries: 0, ..WalkerLimits::default() });
        for number in 0..17 {
            let expected = if number < 16 { Submitted::Started } else { Submitted::Waiting };
            assert_eq!(walker.submit(0, page(number), Access::Read, number), expected);
        }
        for number in 17..256 {
            assert_eq!(walker.submit(0, page(3), Access::Read, number), Submitted::Merged);
        }
        assert_eq!(walker.submit(0, page(3), Access::Read, 256), Submitted::Refused);
        assert_eq!(advance(&mut walker, 600, &tables).len(), 255);
        assert_eq!(advance(&mut walker, 2_000, &tables), [(16, 1_200, Some(1_016))]);
        assert_eq!((walker.outstanding(), walker.next_due()), (0, None));
    }

    #[test]
    fn an_invalidation_lets_no_walk_end_with_what_was_true_before() {
        let tables = Tables::of_three_levels([(5, true)]);
        let mut walker = Walker::new(WalkerLimits::default());
        assert_eq!(walker.submit(0, page(5), Access::Read, 'a'), Submitted::Started);
        assert_eq!(advance(&mut walker, 400, &tables), []);
        let empty = Tables::of_three_levels([]);
        walker.invalidate(500, 1, &(0..8));
        assert_eq!(advance(&mut walker, 600, &empty), []);
        assert_eq!(advance(&mut walker, 700, &empty), [('a', 700, None)], "the root knows no table");
    }

    /// PART, section 4.3: addresses of 48 bits take four reads.
    #[test]
    fn part_3_a_walk_of_four_levels_takes_four_reads() {
        let far = 1 << 27;
        let present = [(5, true), (far, true)].into();
        let tables = Tables { present, levels: 4 };
        let mut walker = Walker::new(WalkerLimits { levels: 4, ..WalkerLimits::default() });
        assert_eq!(walker.submit(0, page(5), Access::Write, 'a'), Submitted::Started);
        assert_eq!(advance(&mut walker, 800, &tables), [('a', 800, Some(1_005))]);
        // Only the root is common to both.
        assert_eq!(walker.submit(1_000, page(far), Access::Write, 'b'), Submitted::Started);
        assert_eq!(advance(&mut walker, 1_800, &tables), [('b', 1_800, Some(far + 1_000))]);
    }

    proptest! {
        /// Each access that was taken ends once, with what the tables say; no more walks and accesses at once than there may be.
        #[test]
        fn every_access_ends_as_the_tables_say(
            levels in 3..=4_u32,
            present in prop::collection::btree_map(0..1_500_u64, any::<bool>(), 0..40),
            wanted in prop::collection::vec((0..1_500_u64, any::<bool>(), 0..300_u64), 1..120),
            walks in 1..5_usize,
            cache_entries in 0..4_usize,
        ) {
            // Pages of both halves of what the root of four levels covers.
            let spread = |number: u64| if levels == 4 && number % 2 == 1 { number << 26 } else { number };
            let present = present.into_iter().map(|(number, writable)| (spread(number), writable)).collect();
            let wanted: Vec<_> =
                wanted.into_iter().map(|(number, write, pause)| (spread(number), write, pause)).collect();
            let tables = Tables { present, levels };
            let limits = WalkerLimits { levels, walks, accesses: 20, cache_entries, ..WalkerLimits::default() };
            let mut walker = Walker::new(limits);
            let (mut now, mut taken, mut ended) = (0, BTreeSet::new(), BTreeSet::new());
            let mut results = Vec::new();
            for (token, &(number, write, pause)) in wanted.iter().enumerate() {
                now += pause;
                walker.advance(now, &tables, |walked| results.push(walked));
                let access = if write { Access::Write } else { Access::Read };
                if walker.submit(now, page(number), access, token) != Submitted::Refused {
                    taken.insert(token);
                }
                prop_assert!(walker.outstanding() <= 20 && walker.walks.len() <= walks);
            }
            while let Some(due) = walker.next_due() {
                walker.advance(due, &tables, |walked| results.push(walked));
            }
            for walked in results {
                let (number, write, _) = wanted[walked.token];
                prop_assert!(ended.insert(walked.token));
                let expected = tables.present.get(&number).filter(|&&writable| writable || !write);
                prop_assert_eq!(walked.value, expected.map(|&writable| (number + 1_000, writable)));
            }
            prop_assert_eq!(taken, ended);
            prop_assert_eq!(walker.outstanding(), 0);
        }
    }
}

//! Two levels of translation buffers, set-associative, with entries of any kind (PAPERS PART-3).
//!
//! A page found in the second level is copied into the first. What the first level evicts stays in the second as long as that
//! keeps it; what the first level answers is no use of the second's entry. An insertion writes both levels, so that they never hold
//! different values for a page. A look costs a comparison for each way of a set: hardware does 128 at once, a program should have few.

use super::{DomainId, PageId};
use std::ops::Range;

/// Which entry of a full set makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The one used longest ago.
    LeastRecentlyUsed,
    /// Any of them; the seed decides which, the same ones in each run.
    Random {
        /// Of the random numbers.
        seed: u64,
    },
}

/// Sizes of the two levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Entries of the first level.
    pub first_entries: usize,
    /// Entries of the first level that share a set; as many as there are entries: fully associative.
    pub first_ways: usize,
    /// Entries of the second level.
    pub second_entries: usize,
    /// Entries of the second level that share a set.
    pub second_ways: usize,
    /// In both levels.
    pub eviction: Eviction,
}

impl Default for Geometry {
    /// Those of the paper: 128 fully associative, 2,048 in sets of 4 (PART, section 4.3).
    fn default() -> Self {
        Geometry {
            first_entries: 128,
            first_ways: 128,
            second_entries: 2_048,
            second_ways: 4,
            eviction: Eviction::LeastRecentlyUsed,
        }
    }
}

/// Sizes that no buffer can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A level without entries or a set without ways.
    #[error("a level needs at least one entry and one way")]
    Empty,
    /// The entries cannot be divided into sets of so many ways.
    #[error("{entries} entries do not divide into sets of {ways}")]
    Ways {
        /// Of the level.
        entries: usize,
        /// Of a set.
        ways: usize,
    },
}

/// Where an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The small, fast one.
    First,
    /// The large one behind it.
    Second,
}

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<V> {
    /// What was inserted for the page.
    pub value: V,
    /// Where it was.
    pub level: Level,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IotlbCounters {
    /// Found in the first level.
    pub first_hits: u64,
    /// Found in the second level.
    pub second_hits: u64,
    /// Found nowhere.
    pub misses: u64,
    /// Entries that had to leave the second level for others.
    pub evictions: u64,
    /// Pages taken out by an invalidation.
    pub invalidated: u64,
}

/// The two levels. `V` is what an entry carries, such as a frame.
#[derive(Debug)]
pub struct Iotlb<V> {
    first: Sets<V>,
    second: Sets<V>,
    counters: IotlbCounters,
}

impl<V: Copy> Iotlb<V> {
    /// Empty buffers; all the memory they will ever have is taken now.
    ///
    /// # Errors
    /// If a level has no entries, or its sets do not come out even.
    pub fn new(geometry: Geometry) -> Result<Self, GeometryError> {
        let Geometry { first_entries, first_ways, second_entries, second_ways, eviction } = geometry;
        Ok(Iotlb {
            first: Sets::new(first_entries, first_ways, eviction)?,
            second: Sets::new(second_entries, second_ways, eviction)?,
            counters: IotlbCounters::default(),
        })
    }

    /// The entry of `page`, which counts as used by this.
    pub fn look_up(&mut self, page: PageId) -> Option<Hit<V>> {
        if let Some(value) = self.first.find(page) {
            self.counters.first_hits += 1;
            return Some(Hit { value, level: Level::First });
        }
        let Some(value) = self.second.find(page) else {
            self.counters.misses += 1;
            return None;
        };
        self.counters.second_hits += 1;
        self.first.insert(page, value);
        Some(Hit { value, level: Level::Second })
    }

    /// Makes `value` the entry of `page`.
    pub fn insert(&mut self, page: PageId, value: V) {
        self.first.insert(page, value);
        self.counters.evictions += u64::from(self.second.insert(page, value));
    }

    /// Forgets one page; gives whether there was something to forget.
    pub fn invalidate_page(&mut self, page: PageId) -> bool {
        let in_first = self.first.remove(page);
        let found = self.second.remove(page) || in_first;
        self.counters.invalidated += u64::from(found);
        found
    }

    /// Forgets the pages of `domain` whose numbers are in `pages`. Costs no more than a look at every entry, however long
    /// the range is.
    pub fn invalidate_range(&mut self, domain: DomainId, pages: Range<u64>) {
        let length = pages.end.saturating_sub(pages.start);
        if length <= self.second.ways() as u64 {
            for number in pages {
                self.invalidate_page(PageId { domain, number });
            }
        } else {
            self.forget(|page| page.domain == domain && pages.contains(&page.number));
        }
    }

    /// Forgets all pages of `domain`.
    pub fn invalidate_domain(&mut self, domain: DomainId) {
        self.forget(|page| page.domain == domain);
    }

    /// What has happened so far.
    pub fn counters(&self) -> IotlbCounters {
        self.counters
    }

    fn forget(&mut self, which: impl Fn(PageId) -> bool) {
        // A page may be in the first level alone, once the second had to give up its copy.
        let second = &self.second;
        let alone = self.first.entries().filter(|&page| which(page) && !second.holds(page)).count();
        self.first.retain(|page| !which(page));
        self.counters.invalidated += (alone + self.second.retain(|page| !which(page))) as u64;
    }
}

/// One level.
#[derive(Debug)]
struct Sets<V> {
    /// Set after set, each of `ways` places.
    places: Vec<Option<Place<V>>>,
    ways: usize,
    eviction: Chooser,
    /// Grows with each use.
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place<V> {
    page: PageId,
    value: V,
    used: u64,
}

#[derive(Debug)]
enum Chooser {
    LeastRecentlyUsed,
    Random(fastrand::Rng),
}

impl<V: Copy> Sets<V> {
    fn new(entries: usize, ways: usize, eviction: Eviction) -> Result<Self, GeometryError> {
        if entries == 0 || ways == 0 {
            return Err(GeometryError::Empty);
        }
        if entries % ways != 0 {
            return Err(GeometryError::Ways { entries, ways });
        }
        let eviction = match eviction {
            Eviction::LeastRecentlyUsed => Chooser::LeastRecentlyUsed,
            Eviction::Random { seed } => Chooser::Random(fastrand::Rng::with_seed(seed)),
        };
        Ok(Sets { places: vec![None; entries], ways, eviction, uses: 0 })
    }

    fn ways(&self) -> usize {
        self.ways
    }

    /// Neighbouring pages are in neighbouring sets; domains are spread, so that they do not all begin in the same set.
    fn set(&self, page: PageId) -> Range<usize> {
        let sets = (self.places.len() / self.ways) as u64;
        let spread = u64::from(page.domain).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let start = (page.number.wrapping_add(spread) % sets) as usize * self.ways;
        start..start + self.ways
    }

    fn find(&mut self, page: PageId) -> Option<V> {
        self.uses += 1;
        let set = self.set(page);
        let place = self.places[set].iter_mut().flatten().find(|place| place.page == page)?;
        place.used = self.uses;
        Some(place.value)
    }

    /// Gives whether another page had to go.
    fn insert(&mut self, page: PageId, value: V) -> bool {
        self.uses += 1;
        let set = self.set(page);
        let places = &mut self.places[set];
        let own = places.iter().position(|place| place.is_some_and(|place| place.page == page));
        let free = || places.iter().position(Option::is_none);
        let (index, evicted) = match own.or_else(free) {
            Some(index) => (index, false),
            None => (self.eviction.choose(places), true),
        };
        places[index] = Some(Place { page, value, used: self.uses });
        evicted
    }

    fn remove(&mut self, page: PageId) -> bool {
        let set = self.set(page);
        let place = self.places[set].iter_mut().find(|place| place.is_some_and(|place| place.page == page));
        place.map(|place| *place = None).is_some()
    }

    fn holds(&self, page: PageId) -> bool {
        self.places[self.set(page)].iter().flatten().any(|place| place.page == page)
    }

    fn entries(&self) -> impl Iterator<Item = PageId> {
        self.places.iter().flatten().map(|place| place.page)
    }

    /// Gives how many went.
    fn retain(&mut self, keep: impl Fn(PageId) -> bool) -> usize {
        let going = self.places.iter_mut().filter(|place| place.is_some_and(|place| !keep(place.page)));
        going.map(|place| *place = None).count()
    }
}

impl Chooser {
    /// An index into a full set.
    fn choose<V>(&mut self, places: &[Option<Place<V>>]) -> usize {
        match self {
            Chooser::Random(numbers) => numbers.usize(..places.len()),
            Chooser::LeastRecentlyUsed => {
                let used = |index: &usize| places[*index].as_ref().map_or(0, |place| place.used);
                (0..places.len()).min_by_key(used).unwrap_or(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn page(domain: DomainId, number: u64) -> PageId {
        PageId { domain, number }
    }

    /// PART, section 4.3: 128 entries, fully associative, before 2,048 in sets of 4.
    #[test]
    fn part_3_the_papers_buffers_hold_8_mib_and_the_first_level_half_a_mib() {
        let mut buffers = Iotlb::new(Geometry::default()).expect("valid");
        (0..2_048).for_each(|number| buffers.insert(page(1, number), number));
        assert_eq!(buffers.look_up(page(1, 2_047)), Some(Hit { value: 2_047, level: Level::First }));
        assert_eq!(buffers.look_up(page(1, 0)), Some(Hit { value: 0, level: Level::Second }));
        assert_eq!(buffers.look_up(page(1, 0)), Some(Hit { value: 0, level: Level::First }));
        assert_eq!(buffers.counters().evictions, 0);
        buffers.insert(page(1, 2_048), 2_048);
        assert_eq!(buffers.counters().evictions, 1, "the fifth page of a set of four");
    }

    #[test]
    fn of_a_full_set_the_page_used_longest_ago_goes() {
        let geometry = Geometry {
            first_entries: 1,
            first_ways: 1,
            second_entries: 2,
            second_ways: 2,
            ..Geometry::default()
        };
        let mut buffers = Iotlb::new(geometry).expect("valid");
        buffers.insert(page(1, 1), 'a');
        buffers.insert(page(1, 2), 'b');
        // The first level holds page 2 alone: this is a use of page 1 in the second.
        assert_eq!(buffers.look_up(page(1, 1)).map(|hit| hit.level), Some(Level::Second));
        buffers.insert(page(1, 3), 'c');
        assert_eq!(buffers.look_up(page(1, 2)), None);
        assert_eq!(buffers.look_up(page(1, 1)).map(|hit| hit.value), Some('a'));
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        let refused = |second_entries, second_ways| {
            Iotlb::<()>::new(Geometry { second_entries, second_ways, ..Geometry::default() }).err()
        };
        assert_eq!(refused(0, 1), Some(GeometryError::Empty));
        assert_eq!(refused(6, 4), Some(GeometryError::Ways { entries: 6, ways: 4 }));
    }

    #[derive(Clone, Debug)]
    enum TlbStep {
        LookUp(PageId),
        Insert(PageId, u32),
        Page(PageId),
        Range(DomainId, u64, u64),
        Domain(DomainId),
    }

    fn steps() -> impl Strategy<Value = Vec<TlbStep>> {
        let pages = || (0..3_u32, 0..40_u64).prop_map(|(domain, number)| page(domain, number));
        let step = prop_oneof![
            6 => pages().prop_map(TlbStep::LookUp),
            6 => (pages(), any::<u32>()).prop_map(|(page, value)| TlbStep::Insert(page, value)),
            2 => pages().prop_map(TlbStep::Page),
            1 => (0..3_u32, 0..40_u64, 0..40_u64).prop_map(|(domain, a, b)| TlbStep::Range(domain, a.min(b), a.max(b))),
            1 => (0..3_u32).prop_map(TlbStep::Domain),
        ];
        prop::collection::vec(step, 1..200)
    }

    fn geometry() -> impl Strategy<Value = Geometry> {
        let level = || (1..5_usize, prop_oneof![Just(1_usize), Just(2), Just(4), Just(8)]);
        let eviction = prop_oneof![
            Just(Eviction::LeastRecentlyUsed),
            any::<u64>().prop_map(|seed| Eviction::Random { seed })
        ];
        (level(), level(), eviction).prop_map(|((first, first_ways), (second, second_ways), eviction)| {
            Geometry {
                first_entries: first * first_ways,
                first_ways,
                second_entries: second * second_ways,
                second_ways,
                eviction,
            }
        })
    }

    proptest! {
        /// A cache may forget, but never tells what is no longer true; and it forgets nothing while there is room.
        #[test]
        fn a_hit_is_what_was_inserted_last_and_not_invalidated(geometry in geometry(), steps in steps()) {
            let mut buffers = Iotlb::new(geometry).expect("valid");
            let mut truth: BTreeMap<PageId, u32> = BTreeMap::new();
            let mut looks = 0;
            for step in steps {
                match step {
                    TlbStep::LookUp(page) => {
                        looks += 1;
                        let hit = buffers.look_up(page);
                        if let Some(hit) = hit {
                            prop_assert_eq!(Some(&hit.value), truth.get(&page));
                        } else if buffers.counters().evictions == 0 {
                            prop_assert_eq!(None, truth.get(&page));
                        }
                    }
                    TlbStep::Insert(page, value) => {
                        buffers.insert(page, value);
                        truth.insert(page, value);
                        prop_assert_eq!(buffers.look_up(page).map(|hit| hit.value), Some(value));
                        looks += 1;
                    }
                    TlbStep::Page(page) => {
                        let found = buffers.invalidate_page(page);
                        prop_assert!(!found || truth.contains_key(&page));
                        truth.remove(&page);
                    }
                    TlbStep::Range(domain, from, to) => {
                        buffers.invalidate_range(domain, from..to);
                        truth.retain(|page, _| page.domain != domain || !(from..to).contains(&page.number));
                    }
                    TlbStep::Domain(domain) => {
                        buffers.invalidate_domain(domain);
                        truth.retain(|page, _| page.domain != domain);
                    }
                }
            }
            let counters = buffers.counters();
            prop_assert_eq!(counters.first_hits + counters.second_hits + counters.misses, looks);
        }

        /// A level that is used alone behaves as a list of the last pages used.
        #[test]
        fn least_recently_used_is_a_list_of_the_last_uses(numbers in prop::collection::vec(0..12_u64, 1..200)) {
            let geometry = Geometry {
                first_entries: 1, first_ways: 1, second_entries: 6, second_ways: 6, ..Geometry::default()
            };
            let mut buffers = Iotlb::new(geometry).expect("valid");
            let mut list: Vec<u64> = Vec::new();
            let mut last = None;
            for number in numbers {
                let hit = buffers.look_up(page(0, number)).is_some();
                prop_assert_eq!(hit, list.contains(&number));
                if !hit {
                    buffers.insert(page(0, number), ());
                }
                // What the first level answers is no use of the second.
                if last != Some(number) {
                    list.retain(|&other| other != number);
                    list.push(number);
                    if list.len() > 6 {
                        list.remove(0);
                    }
                }
                last = Some(number);
            }
        }
    }
}

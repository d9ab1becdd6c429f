//! Buffers and walker together: what one access meets on its way to memory.

use super::{
    Access, DomainId, Geometry, GeometryError, Iotlb, IotlbCounters, PageId, PageTable, Submitted, Walked,
    Walker, WalkerCounters, WalkerLimits,
};
use std::collections::HashSet;
use std::ops::Range;

/// What becomes of an access at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an access that was not taken will never end"]
pub enum Answer<V> {
    /// Go on.
    Hit(V),
    /// A walk was begun or joined; [`TranslationUnit::advance`] tells its end.
    Walking,
    /// The page is known, and may not be written.
    Forbidden,
    /// An earlier fault of the domain is not resolved, and hits under faults are off: try again after [`TranslationUnit::resume`].
    Held,
    /// Too many accesses are outstanding: try again when one has ended.
    Busy,
}

/// The translation unit of one machine. `V` is what a page table says of a page, `T` names an access.
#[derive(Debug)]
pub struct TranslationUnit<V, T> {
    buffers: Iotlb<(V, bool)>,
    walker: Walker<T>,
    hit_under_fault: bool,
    faulting: HashSet<DomainId>,
}

impl<V: Copy, T> TranslationUnit<V, T> {
    /// An empty unit. With `hit_under_fault` (PAPERS PART-4) accesses that hit go on while faults of their domain are outstanding.
    ///
    /// # Errors
    /// If the sizes of the buffers make no sense.
    pub fn new(
        geometry: Geometry,
        limits: WalkerLimits,
        hit_under_fault: bool,
    ) -> Result<Self, GeometryError> {
        Ok(TranslationUnit {
            buffers: Iotlb::new(geometry)?,
            walker: Walker::new(limits),
            hit_under_fault,
            faulting: HashSet::new(),
        })
    }

    /// An access at `now`.
    pub fn translate(&mut self, now: u64, page: PageId, access: Access, token: T) -> Answer<V> {
        if !self.hit_under_fault && self.faulting.contains(&page.domain) {
            return Answer::Held;
        }
        match self.buffers.look_up(page).map(|hit| hit.value) {
            Some((value, writable)) if writable || access == Access::Read => Answer::Hit(value),
            Some(_) => Answer::Forbidden,
            None => match self.walker.submit(now, page, access, token) {
                Submitted::Refused => Answer::Busy,
                Submitted::Started | Submitted::Merged | Submitted::Waiting => Answer::Walking,
            },
        }
    }

    /// Ends what is due by `now`; `ended` gets each access whose walk is over, with no value where that is a fault.
    pub fn advance<P: PageTable<Value = V>>(
        &mut self,
        now: u64,
        table: &P,
        mut ended: impl FnMut(Walked<V, T>),
    ) {
        let (buffers, faulting) = (&mut self.buffers, &mut self.faulting);
        self.walker.advance(now, table, |walked| {
            match walked.value {
                Some(value) => buffers.insert(walked.page, value),
                None => {
                    faulting.insert(walked.page.domain);
                }
            }
            ended(walked);
        });
    }

    /// When [`Self::advance`] has something to do next.
    pub fn next_due(&self) -> Option<u64> {
        self.walker.next_due()
    }

    /// The faults of `domain` are resolved.
    pub fn resume(&mut self, domain: DomainId) {
        self.faulting.remove(&domain);
    }

    /// The page tables say something else of these pages since `now`.
    pub fn invalidate(&mut self, now: u64, domain: DomainId, pages: Range<u64>) {
        self.walker.invalidate(now, domain, &pages);
        self.buffers.invalidate_range(domain, pages);
    }

    /// What the buffers have counted.
    pub fn buffers(&self) -> IotlbCounters {
        self.buffers.counters()
    }

    /// What the walker has counted.
    pub fn walker(&self) -> WalkerCounters {
        self.walker.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Entry;
    use super::*;

    /// Even pages are present, those that four divides may be written.
    struct Tables;

    impl PageTable for Tables {
        type Value = u64;

        fn entry(&self, page: PageId, level: u32) -> Entry<u64> {
            match (level, page.number % 2) {
                (0 | 1, _) => Entry::Table,
                (_, 0) => Entry::Page { value: page.number, writable: page.number % 4 == 0 },
                _ => Entry::Absent,
            }
        }
    }

    fn unit(hit_under_fault: bool) -> TranslationUnit<u64, u32> {
        let (geometry, limits) = (Geometry::default(), WalkerLimits::default());
        TranslationUnit::new(geometry, limits, hit_under_fault).expect("valid")
    }

    fn page(domain: DomainId, number: u64) -> PageId {
        PageId { domain, number }
    }

    fn run_to_idle(unit: &mut TranslationUnit<u64, u32>) -> Vec<(u32, bool)> {
        let mut ended = Vec::new();
        unit.advance(u64::MAX / 2, &Tables, |walked| ended.push((walked.token, walked.value.is_some())));
        ended
    }

    /// PART, section 4.3: "to process all upcoming transactions regardless of other possible outstanding context faults".
    #[test]
    fn part_4_hits_go_on_while_a_fault_is_outstanding() {
        for on in [true, false] {
            let mut unit = unit(on);
            assert_eq!(unit.translate(0, page(1, 0), Access::Write, 1), Answer::Walking);
            assert_eq!(unit.translate(0, page(1, 1), Access::Write, 2), Answer::Walking);
            assert_eq!(unit.translate(0, page(2, 0), Access::Write, 3), Answer::Walking);
            assert_eq!(run_to_idle(&mut unit), [(1, true), (2, false), (3, true)]);
            let expected = if on { Answer::Hit(0) } else { Answer::Held };
            assert_eq!(unit.translate(1, page(1, 0), Access::Write, 4), expected);
            assert_eq!(unit.translate(1, page(2, 0), Access::Write, 5), Answer::Hit(0), "another domain");
            unit.resume(1);
            assert_eq!(unit.translate(2, page(1, 0), Access::Write, 6), Answer::Hit(0));
        }
    }

    #[test]
    fn a_page_that_may_only_be_read_is_known_as_such() {
        let mut unit = unit(true);
        assert_eq!(unit.translate(0, page(1, 2), Access::Read, 1), Answer::Walking);
        assert_eq!(unit.translate(0, page(1, 2), Access::Write, 2), Answer::Walking);
        assert_eq!(run_to_idle(&mut unit), [(1, true), (2, false)]);
        assert_eq!(unit.translate(1, page(1, 2), Access::Read, 3), Answer::Hit(2));
        assert_eq!(unit.translate(1, page(1, 2), Access::Write, 4), Answer::Forbidden);
        // The kernel has made it writable: until it is told, the unit knows what it knew.
        unit.invalidate(2, 1, 0..4);
        assert_eq!(unit.translate(3, page(1, 2), Access::Write, 5), Answer::Walking);
        assert_eq!(unit.buffers().invalidated, 1);
    }
}

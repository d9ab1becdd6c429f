//! A bounded queue of page faults, first in, first out; several failed accesses to one page are one fault (PAPERS PART-6).
//!
//! A fault is *waiting* until somebody takes it, then *in service* until it is resolved or withdrawn. An access that fails
//! meanwhile on the same page joins it, unless it wants to write and the page in service is brought in for reading only: that is a
//! fault of its own, which waits behind.

use super::{Access, DomainId, PageId};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// A page that is to be brought in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault<C> {
    /// Which one.
    pub page: PageId,
    /// For what: writing, if one of the accesses wants to write.
    pub access: Access,
    /// How many accesses failed on it until it was taken.
    pub accesses: u32,
    /// When the first of them did, in nanoseconds.
    pub since: u64,
    /// What the first of them was for, as the caller gave it, unless that changed it ([`FaultQueue::cause_mut`]).
    pub cause: C,
}

/// What became of a failed access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an access that overflowed waits for nothing"]
pub enum Reported {
    /// It is a new fault at the end of the queue.
    New,
    /// Its page is waiting or in service already.
    Merged,
    /// The queue is full; nothing was recorded, the access has to be tried again later.
    Overflow,
}

/// The queue. `C` is what the caller wants to find again in a fault.
#[derive(Debug)]
pub struct FaultQueue<C> {
    waiting: HashMap<PageId, Fault<C>>,
    /// The pages of `waiting`.
    order: VecDeque<PageId>,
    in_service: HashMap<PageId, Access>,
    bound: usize,
}

impl<C> FaultQueue<C> {
    /// A queue of at most `bound` faults, waiting and in service; all its memory is taken now.
    pub fn new(bound: usize) -> Self {
        FaultQueue {
            waiting: HashMap::with_capacity(bound),
            order: VecDeque::with_capacity(bound),
            in_service: HashMap::with_capacity(bound),
            bound,
        }
    }

    /// Records that an access to `page` failed at `now`.
    pub fn report(&mut self, now: u64, page: PageId, access: Access, cause: C) -> Reported {
        if self.in_service.get(&page).is_some_and(|own| own.covers(access)) {
            return Reported::Merged;
        }
        if let Some(fault) = self.waiting.get_mut(&page) {
            fault.access = fault.access.and(access);
            fault.accesses = fault.accesses.saturating_add(1);
            return Reported::Merged;
        }
        if self.len() >= self.bound {
            return Reported::Overflow;
        }
        self.waiting.insert(page, Fault { page, access, accesses: 1, since: now, cause });
        self.order.push_back(page);
        Reported::New
    }

    /// What the fault on `page` is for, if it waits: a later access may have to be remembered in the place of the first, or beside it.
    pub fn cause_mut(&mut self, page: PageId) -> Option<&mut C> {
        self.waiting.get_mut(&page).map(|fault| &mut fault.cause)
    }

    /// Takes the fault that waits longest into service. A page is in service once at a time: a fault behind one that is in
    /// service stays. `None`: nothing can be taken now.
    pub fn take(&mut self) -> Option<Fault<C>> {
        let free = |page: &PageId| !self.in_service.contains_key(page);
        let index = self.order.iter().position(free)?;
        let fault = self.waiting.remove(&self.order.remove(index)?)?;
        self.in_service.insert(fault.page, fault.access);
        Some(fault)
    }

    /// The service of `page` has ended, well or not; gives whether it was in service.
    pub fn resolve(&mut self, page: PageId) -> bool {
        self.in_service.remove(&page).is_some()
    }

    /// Takes the waiting faults of these pages out, because they are no longer mapped, and hands each to `gone`, oldest
    /// first. Those in service stay until whoever serves them resolves them.
    pub fn withdraw(&mut self, domain: DomainId, pages: &Range<u64>, mut gone: impl FnMut(Fault<C>)) {
        let waiting = &mut self.waiting;
        self.order.retain(|page| {
            let goes = page.domain == domain && pages.contains(&page.number);
            if goes {
                waiting.remove(page).into_iter().for_each(&mut gone);
            }
            !goes
        });
    }

    /// Faults waiting and in service.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.in_service.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Faults that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn page(number: u64) -> PageId {
        PageId { domain: 7, number }
    }

    /// PART, section 4.4: one page may correspond to many failed accesses.
    #[test]
    fn part_6_the_packets_of_a_page_are_one_fault() {
        let mut queue = FaultQueue::new(8);
        assert_eq!(queue.report(100, page(1), Access::Read, 'a'), Reported::New);
        for _ in 1..16 {
            assert_eq!(queue.report(200, page(1), Access::Write, 'b'), Reported::Merged);
        }
        let fault = queue.take().expect("one");
        assert_eq!(
            fault,
            Fault { page: page(1), access: Access::Write, accesses: 16, since: 100, cause: 'a' }
        );
        assert_eq!(queue.take(), None);
        assert_eq!(queue.report(300, page(1), Access::Read, 'c'), Reported::Merged, "still in service");
        assert!(queue.resolve(page(1)) && !queue.resolve(page(1)) && queue.is_empty());
    }

    #[test]
    fn writing_to_a_page_that_is_brought_in_for_reading_is_a_fault_of_its_own() {
        let mut queue = FaultQueue::new(8);
        assert_eq!(queue.report(0, page(1), Access::Read, ()), Reported::New);
        assert!(queue.take().is_some());
        assert_eq!(queue.report(1, page(1), Access::Write, ()), Reported::New);
        assert_eq!(queue.report(2, page(2), Access::Read, ()), Reported::New);
        assert_eq!(queue.take().map(|fault| fault.page), Some(page(2)), "page 1 is in service");
        assert_eq!(queue.take(), None);
        assert!(queue.resolve(page(1)));
        assert_eq!(queue.take().map(|fault| fault.access), Some(Access::Write));
    }

    #[test]
    fn a_later_access_can_be_remembered_until_the_fault_is_taken() {
        let mut queue = FaultQueue::new(8);
        assert_eq!(queue.report(0, page(1), Access::Read, vec!['a']), Reported::New);
        queue.cause_mut(page(1)).expect("waits").push('b');
        assert_eq!(queue.take().map(|fault| fault.cause), Some(vec!['a', 'b']));
        assert_eq!(queue.cause_mut(page(1)), None);
    }

    #[test]
    fn the_queue_is_bounded_and_says_so() {
        let mut queue = FaultQueue::new(2);
        assert_eq!(queue.report(0, page(1), Access::Read, ()), Reported::New);
        assert!(queue.take().is_some());
        assert_eq!(queue.report(0, page(2), Access::Read, ()), Reported::New);
        assert_eq!(queue.report(0, page(3), Access::Read, ()), Reported::Overflow);
        assert_eq!(queue.report(0, page(2), Access::Read, ()), Reported::Merged, "takes no room");
        assert!(queue.resolve(page(1)));
        assert_eq!(queue.report(0, page(3), Access::Read, ()), Reported::New);
    }

    #[derive(Clone, Debug)]
    enum QueueStep {
        Report(u64, bool),
        Take,
        Resolve(usize),
        Withdraw(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
        let step = prop_oneof![
            5 => (0..10_u64, any::<bool>()).prop_map(|(page, write)| QueueStep::Report(page, write)),
            3 => Just(QueueStep::Take),
            2 => (0..8_usize).prop_map(QueueStep::Resolve),
            1 => (0..10_u64, 0..10_u64).prop_map(|(a, b)| QueueStep::Withdraw(a.min(b), a.max(b))),
        ];
        prop::collection::vec(step, 1..150)
    }

    proptest! {
        /// Every access that was not refused is served by a fault that covers it, in the order of the first ones, once.
        #[test]
        fn no_fault_is_lost_or_served_twice(steps in steps(), bound in 1..6_usize) {
            let mut queue = FaultQueue::new(bound);
            // The reference: waiting pages in order, with access and count; pages in service.
            let mut waiting: Vec<(u64, Access, u32)> = Vec::new();
            let mut serving: BTreeMap<u64, Access> = BTreeMap::new();
            for (now, step) in (0..).zip(steps) {
                match step {
                    QueueStep::Report(number, write) => {
                        let access = if write { Access::Write } else { Access::Read };
                        let covered = serving.get(&number).is_some_and(|own| own.covers(access));
                        let full = waiting.len() + serving.len() >= bound;
                        let known = waiting.iter_mut().find(|(page, ..)| *page == number);
                        let expected = match known {
                            _ if covered => Reported::Merged,
                            Some((_, own, count)) => {
                                *own = own.and(access);
                                *count += 1;
                                Reported::Merged
                            }
                            None if full => Reported::Overflow,
                            None => {
                                waiting.push((number, access, 1));
                                Reported::New
                            }
                        };
                        prop_assert_eq!(queue.report(now, page(number), access, now), expected);
                    }
                    QueueStep::Take => {
                        let index = waiting.iter().position(|(page, ..)| !serving.contains_key(page));
                        let expected = index.map(|index| waiting.remove(index));
                        let taken = queue.take();
                        let got = taken.as_ref().map(|fault| (fault.page.number, fault.access, fault.accesses));
                        prop_assert_eq!(got, expected);
                        prop_assert!(taken.is_none_or(|fault| fault.since == fault.cause && fault.since < now));
                        serving.extend(expected.map(|(number, access, _)| (number, access)));
                    }
                    QueueStep::Resolve(which) => {
                        let number = serving.keys().nth(which).copied();
                        let resolved = number.is_some_and(|number| queue.resolve(page(number)));
                        prop_assert_eq!(resolved, number.is_some());
                        number.map(|number| serving.remove(&number));
                    }
                    QueueStep::Withdraw(from, to) => {
                        let mut gone = Vec::new();
                        queue.withdraw(7, &(from..to), |fault| gone.push(fault.page.number));
                        queue.withdraw(8, &(0..10), |_| panic!("another domain"));
                        let named = |&(number, ..): &(u64, Access, u32)| (from..to).contains(&number);
                        let expected: Vec<u64> = waiting.iter().filter(|w| named(w)).map(|w| w.0).collect();
                        waiting.retain(|fault| !named(fault));
                        prop_assert_eq!(gone, expected);
                    }
                }
                prop_assert_eq!((queue.len(), queue.waiting()), (waiting.len() + serving.len(), waiting.len()));
                prop_assert!(queue.len() <= bound);
            }
        }
    }
}

//! The order of atomics on one word, reconstructed from the values that they returned.
//!
//! Operands are random 64-bit numbers, so that each value of a word occurs once. Every atomic that took effect
//! is a step from the value it returned to the next; run twice, or not at all, it breaks the chain. Atomics
//! whose connection died may have run or not, in the order in which they were posted.

use std::collections::{BTreeSet, HashMap, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostedAtomic {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

impl PostedAtomic {
    fn apply(self, value: u64) -> u64 {
        match self {
            PostedAtomic::CompareSwap { compare, swap } if compare == value => swap,
            PostedAtomic::CompareSwap { .. } => value,
            PostedAtomic::FetchAdd { add } => value.wrapping_add(add),
        }
    }
}

/// What is known of one word since the last audit.
#[derive(Default)]
pub struct AtomicChain {
    start: u64,
    known: Vec<(PostedAtomic, u64)>,
    /// For each queue pair incarnation that died: its unanswered atomics, in order.
    doubtful: HashMap<u64, Vec<PostedAtomic>>,
    /// A value that the word had lately.
    pub recent: u64,
}

/// Orders of doubtful atomics that are tried.
const TRIES: usize = 100_000;

impl AtomicChain {
    /// The word holds `value`, and nothing is under way.
    pub fn new(value: u64) -> Self {
        AtomicChain { start: value, recent: value, ..AtomicChain::default() }
    }

    /// An atomic was answered.
    pub fn answered(&mut self, atomic: PostedAtomic, original: u64) {
        self.known.push((atomic, original));
        self.recent = atomic.apply(original);
    }

    /// An atomic was never answered.
    pub fn unanswered(&mut self, incarnation: u64, atomic: PostedAtomic) {
        self.doubtful.entry(incarnation).or_default().push(atomic);
    }

    /// Whether all answers fit one order that ends with `value`. Starts afresh from there and gives how many atomics it was.
    pub fn audit(&mut self, value: u64) -> Result<u64, String> {
        let mut steps: HashMap<u64, u64> = HashMap::new();
        // Values that were seen by atomics that changed nothing.
        let mut witnessed = BTreeSet::new();
        for (atomic, original) in &self.known {
            let next = atomic.apply(*original);
            if next == *original {
                witnessed.insert(*original);
            } else if steps.insert(*original, next).is_some() {
                return Err(format!("two atomics took effect on the same value {original:#x}"));
            }
        }
        let doubtful: Vec<Vec<PostedAtomic>> = self.doubtful.drain().map(|(_, atomics)| atomics).collect();
        let start = OrderPosition {
            at: self.start,
            doubtful: vec![0; doubtful.len()],
            steps: 0,
            unmet: witnessed.clone(),
        };
        let mut seen = HashSet::new();
        let mut open = vec![start];
        let mut failure = format!("no order of the atomics leads from {:#x} to {value:#x}", self.start);
        while let Some(mut place) = open.pop() {
            place.unmet.remove(&place.at);
            if !seen.insert(place.clone()) {
                continue;
            }
            if seen.len() > TRIES {
                return Err("the order of the atomics cannot be found: too many are doubtful".into());
            }
            if place.steps == steps.len() && place.at == value {
                // Doubtful ones that commute may reach it by other values, too.
                match place.unmet.first() {
                    Some(lost) => {
                        failure = format!("an atomic returned {lost:#x}, which the word never held")
                    }
                    None => {
                        let count = self.known.len() as u64;
                        *self = AtomicChain::new(value);
                        return Ok(count);
                    }
                }
            }
            for (which, atomics) in doubtful.iter().enumerate() {
                if let Some(atomic) = atomics.get(place.doubtful[which]) {
                    let mut next = place.clone();
                    next.doubtful[which] += 1;
                    next.at = atomic.apply(place.at);
                    open.push(next);
                }
            }
            // What is known comes first: pushed last.
            if let Some(next) = steps.get(&place.at) {
                open.push(OrderPosition { at: *next, steps: place.steps + 1, ..place });
            }
        }
        Err(failure)
    }
}

/// How far an order of the atomics has come.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OrderPosition {
    /// The word's value.
    at: u64,
    /// How many of each incarnation's doubtful atomics have run.
    doubtful: Vec<usize>,
    /// How many of the known ones that change the word.
    steps: usize,
    /// Values that an atomic returned and that the word has not held yet.
    unmet: BTreeSet<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_found_or_not() {
        let mut chain = AtomicChain::new(5);
        chain.answered(PostedAtomic::FetchAdd { add: 10 }, 5);
        chain.answered(PostedAtomic::CompareSwap { compare: 15, swap: 100 }, 15);
        chain.answered(PostedAtomic::CompareSwap { compare: 7, swap: 8 }, 100);
        assert_eq!(chain.audit(100), Ok(3));
        chain.answered(PostedAtomic::FetchAdd { add: 1 }, 100);
        assert!(chain.audit(102).is_err(), "run twice");
    }

    #[test]
    fn doubtful_ones_may_have_run_in_order() {
        for (end, fits) in [(0, true), (1, true), (3, true), (2, false), (7, true)] {
            let mut chain = AtomicChain::new(0);
            for add in [1, 2, 4] {
                chain.unanswered(9, PostedAtomic::FetchAdd { add });
            }
            assert_eq!(chain.audit(end).is_ok(), fits, "{end}");
        }
    }

    /// Two that were never answered commute; a third saw the word between them.
    #[test]
    fn the_order_of_doubtful_ones_is_what_a_witness_saw() {
        for seen in [10, 11, 12, 13] {
            let mut chain = AtomicChain::new(10);
            chain.unanswered(1, PostedAtomic::FetchAdd { add: 1 });
            chain.unanswered(2, PostedAtomic::FetchAdd { add: 2 });
            chain.answered(PostedAtomic::CompareSwap { compare: 99, swap: 7 }, seen);
            assert_eq!(chain.audit(13), Ok(1), "{seen}");
        }
        let mut chain = AtomicChain::new(10);
        chain.unanswered(1, PostedAtomic::FetchAdd { add: 1 });
        chain.answered(PostedAtomic::CompareSwap { compare: 99, swap: 7 }, 12);
        assert!(chain.audit(11).is_err(), "never held");
    }
}

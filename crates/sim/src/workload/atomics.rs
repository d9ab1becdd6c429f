//! The order of atomics on one word, reconstructed from the values that they returned.
//!
//! Operands are random 64-bit numbers, so that each value of a word occurs once. Every atomic that took effect
//! is a step from the value it returned to the next; run twice, or not at all, it breaks the chain. Atomics
//! whose connection died may have run or not, in the order in which they were posted.

use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

impl Atomic {
    fn apply(self, value: u64) -> u64 {
        match self {
            Atomic::CompareSwap { compare, swap } if compare == value => swap,
            Atomic::CompareSwap { .. } => value,
            Atomic::FetchAdd { add } => value.wrapping_add(add),
        }
    }
}

/// What is known of one word since the last audit.
#[derive(Default)]
pub struct Chain {
    start: u64,
    known: Vec<(Atomic, u64)>,
    /// For each queue pair incarnation that died: its unanswered atomics, in order.
    doubtful: HashMap<u64, Vec<Atomic>>,
    /// A value that the word had lately.
    pub recent: u64,
}

/// Orders of doubtful atomics that are tried.
const TRIES: usize = 100_000;

impl Chain {
    /// The word holds `value`, and nothing is under way.
    pub fn new(value: u64) -> Self {
        Chain { start: value, recent: value, ..Chain::default() }
    }

    /// An atomic was answered.
    pub fn answered(&mut self, atomic: Atomic, original: u64) {
        self.known.push((atomic, original));
        self.recent = atomic.apply(original);
    }

    /// An atomic was never answered.
    pub fn unanswered(&mut self, incarnation: u64, atomic: Atomic) {
        self.doubtful.entry(incarnation).or_default().push(atomic);
    }

    /// Whether all answers fit one order that ends with `value`. Starts afresh from there and gives how many atomics it was.
    pub fn audit(&mut self, value: u64) -> Result<u64, String> {
        let mut steps: HashMap<u64, (u64, usize)> = HashMap::new();
        let mut watchers = Vec::new();
        for (atomic, original) in &self.known {
            let next = atomic.apply(*original);
            if next == *original {
                watchers.push(*original);
            } else if let Some((_, count)) = steps.insert(*original, (next, 1)) {
                return Err(format!("{} atomics took effect on the same value {original:#x}", count + 1));
            }
        }
        let doubtful: Vec<Vec<Atomic>> = self.doubtful.drain().map(|(_, atomics)| atomics).collect();
        let mut tries = 0;
        let mut seen = HashSet::new();
        let mut open = vec![(self.start, vec![0; doubtful.len()], 0_usize, vec![self.start])];
        while let Some((at, places, used, passed)) = open.pop() {
            tries += 1;
            if tries > TRIES {
                return Err("the order of the atomics cannot be found: too many are doubtful".into());
            }
            if used == steps.len() && at == value {
                let passed: HashSet<u64> = passed.into_iter().collect();
                if let Some(lost) = watchers.iter().find(|watched| !passed.contains(watched)) {
                    return Err(format!("an atomic returned {lost:#x}, which the word never held"));
                }
                let count = self.known.len() as u64;
                *self = Chain::new(value);
                return Ok(count);
            }
            for (which, atomics) in doubtful.iter().enumerate() {
                if let Some(atomic) = atomics.get(places[which]) {
                    let mut places = places.clone();
                    places[which] += 1;
                    let next = atomic.apply(at);
                    if seen.insert((next, places.clone(), used)) {
                        let mut passed = passed.clone();
                        passed.push(next);
                        open.push((next, places, used, passed));
                    }
                }
            }
            // What is known comes first: pushed last.
            if let Some((next, _)) = steps.get(&at) {
                let mut passed = passed;
                passed.push(*next);
                open.push((*next, places, used + 1, passed));
            }
        }
        Err(format!("no order of the atomics leads from {:#x} to {value:#x}", self.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_found_or_not() {
        let mut chain = Chain::new(5);
        chain.answered(Atomic::FetchAdd { add: 10 }, 5);
        chain.answered(Atomic::CompareSwap { compare: 15, swap: 100 }, 15);
        chain.answered(Atomic::CompareSwap { compare: 7, swap: 8 }, 100);
        assert_eq!(chain.audit(100), Ok(3));
        chain.answered(Atomic::FetchAdd { add: 1 }, 100);
        assert!(chain.audit(102).is_err(), "run twice");
    }

    #[test]
    fn doubtful_ones_may_have_run_in_order() {
        for (end, fits) in [(0, true), (1, true), (3, true), (2, false), (7, true)] {
            let mut chain = Chain::new(0);
            for add in [1, 2, 4] {
                chain.unanswered(9, Atomic::FetchAdd { add });
            }
            assert_eq!(chain.audit(end).is_ok(), fits, "{end}");
        }
    }
}

//! What the requester knows of each PSN from the oldest unacknowledged one on.

use crate::{Psn, limits};

const WORDS: usize = limits::LOSSY_SPAN as usize / 64;

/// A set of PSNs by their distance from a base, below [`limits::LOSSY_SPAN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bits {
    words: [u64; WORDS],
    /// How many there are: asked for with each packet, while mostly there are none.
    count: u32,
}

impl Bits {
    fn get(&self, index: u32) -> bool {
        index < limits::LOSSY_SPAN && self.words[index as usize / 64] >> (index % 64) & 1 != 0
    }

    fn set(&mut self, index: u32, on: bool) {
        if index < limits::LOSSY_SPAN && self.get(index) != on {
            self.words[index as usize / 64] ^= 1 << (index % 64);
            self.count = if on { self.count + 1 } else { self.count - 1 };
        }
    }

    fn first(&self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let word = self.words.iter().position(|&word| word != 0)?;
        Some(word as u32 * 64 + self.words[word].trailing_zeros())
    }

    fn count(&self) -> u32 {
        self.count
    }

    /// Moves the base up by `count`.
    fn advance(&mut self, count: u32) {
        if self.count == 0 {
            return;
        }
        if count >= limits::LOSSY_SPAN {
            *self = Bits::default();
            return;
        }
        let (words, bits) = (count as usize / 64, count % 64);
        for i in 0..WORDS {
            let low = self.words.get(i + words).copied().unwrap_or(0);
            let high = self.words.get(i + words + 1).copied().unwrap_or(0);
            self.words[i] = if bits == 0 { low } else { low >> bits | high << (64 - bits) };
        }
        self.count = self.words.iter().map(|word| word.count_ones()).sum();
    }
}

/// Which outstanding PSNs have arrived beyond the oldest one, and which are to be sent again.
/// All indices are distances from the oldest unacknowledged PSN.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    arrived: Bits,
    lost: Bits,
    /// Requests before it that are missing have been sent again already since the last timeout.
    requests_marked: Psn,
    /// Responses before it that are missing have been asked for again already since the last timeout.
    responses_marked: Psn,
}

impl Scoreboard {
    pub(super) fn start(&mut self, psn: Psn) {
        (self.requests_marked, self.responses_marked) = (psn, psn);
    }

    /// The oldest unacknowledged PSN moved from `from` up by `count`.
    pub(super) fn advance(&mut self, from: Psn, count: u32) {
        self.arrived.advance(count);
        self.lost.advance(count);
        self.mark_requests(from.plus(count));
        self.mark_responses(from.plus(count));
    }

    /// PSNs that are no longer under way.
    pub(super) fn landed(&self) -> u32 {
        self.arrived.count() + self.lost.count()
    }

    pub(super) fn has_arrived(&self, index: u32) -> bool {
        self.arrived.get(index)
    }

    pub(super) fn arrive(&mut self, index: u32) {
        self.arrived.set(index, true);
        self.lost.set(index, false);
    }

    /// `index` is to be sent again.
    pub(super) fn lose(&mut self, index: u32) {
        self.arrived.set(index, false);
        self.lost.set(index, true);
    }

    pub(super) fn is_lost(&self, index: u32) -> bool {
        self.lost.get(index)
    }

    /// The first that is to be sent again.
    pub(super) fn first_lost(&self) -> Option<u32> {
        self.lost.first()
    }

    /// `count` PSNs from `index` on were sent again.
    pub(super) fn resent(&mut self, index: u32, count: u32) {
        for i in index..index + count {
            self.lost.set(i, false);
        }
    }

    /// How many PSNs from `base` on are not to be repeated before a timeout.
    pub(super) fn requests_marked_since(&self, base: Psn) -> u32 {
        if self.requests_marked.is_before(base) { 0 } else { self.requests_marked.since(base) }
    }

    /// How many PSNs from `base` on are not to be asked for again before a timeout.
    pub(super) fn responses_marked_since(&self, base: Psn) -> u32 {
        if self.responses_marked.is_before(base) { 0 } else { self.responses_marked.since(base) }
    }

    /// Every missing request before `psn` is being sent again.
    pub(super) fn mark_requests(&mut self, psn: Psn) {
        self.requests_marked = self.requests_marked.later(psn);
    }

    /// Every missing response before `psn` is being asked for again.
    pub(super) fn mark_responses(&mut self, psn: Psn) {
        self.responses_marked = self.responses_marked.later(psn);
    }

    /// Forgets what has arrived: the responder may have given it up.
    pub(super) fn doubt_all(&mut self) {
        self.arrived = Bits::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn bits_are_a_set(steps in prop::collection::vec((0u8..3, 0u32..300), 0..100)) {
            let mut bits = Bits::default();
            let mut model = BTreeSet::new();
            for (kind, n) in steps {
                match kind {
                    0 => {
                        bits.set(n, true);
                        if n < limits::LOSSY_SPAN {
                            model.insert(n);
                        }
                    }
                    1 => {
                        bits.set(n, false);
                        model.remove(&n);
                    }
                    _ => {
                        bits.advance(n);
                        model = model.into_iter().filter_map(|i: u32| i.checked_sub(n)).collect();
                    }
                }
                prop_assert_eq!(bits.first(), model.first().copied());
                prop_assert_eq!(bits.count() as usize, model.len());
                prop_assert!((0..limits::LOSSY_SPAN).all(|i| bits.get(i) == model.contains(&i)));
            }
        }
    }
}

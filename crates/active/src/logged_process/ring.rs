//! The logs for one peer, in words that the peer reads and trims by plain gets and puts.
//!
//! ```text
//! word 0   puts of the peer that reached this process
//! word 1   begin, word 2 end   of the log of puts to the peer, in words
//! word 3   begin, word 4 end   of the log of gets of the peer
//! word 5   the peer needs puts behind this number only     (the peer writes it)
//! word 6   the peer needs gets behind this number only     (the peer writes it)
//! word 7   the log of gets has lost one with this number (0: none)
//! word 8   gets of the peer before this process began               (the peer writes it)
//! word 9   the epoch of this process
//! ...      from word 16 on: ring of puts, ring of gets
//! ```

use crate::bytes::to_words;
use pagewire::{Atomic, Region};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words before the rings.
const HEAD: usize = 16;
/// Words of a record before its data.
pub const RECORD: usize = 5;

pub const PUTS_DONE: usize = 0;
pub const TRIM_PUTS: usize = 5;
pub const TRIM_GETS: usize = 6;
pub const LOST_GET: usize = 7;
pub const GETS_BEFORE: usize = 8;
pub const EPOCH: usize = 9;

/// Which of the two logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Puts,
    Gets,
}

/// A logged access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingEntry {
    /// From 1 on, by peer.
    pub number: u64,
    pub epoch: u64,
    /// When it began, in nanoseconds of CLOCK_MONOTONIC.
    pub stamp: u64,
    pub offset: u64,
    pub data: Vec<u8>,
}

/// Words that a record takes.
pub fn words_of(length: usize) -> u64 {
    (RECORD + length.div_ceil(8)) as u64
}

/// Words of each of the two logs in a region of so many.
pub fn ring_words(words: usize) -> usize {
    words.saturating_sub(HEAD) / 2
}

/// Words of a region for two logs of so many words each.
pub fn region_words(ring: usize) -> usize {
    HEAD + 2 * ring
}

/// The writing side of a log.
pub struct Ring {
    which: Which,
    ring: usize,
    /// Of what is there: the number of each record, and where it begins.
    records: VecDeque<(u64, u64)>,
    end: u64,
}

impl Ring {
    pub fn new(which: Which, ring: usize) -> Ring {
        Ring { which, ring, records: VecDeque::new(), end: 0 }
    }

    /// The words before the ring: its begin, its end, up to where the peer has trimmed; and where the ring begins.
    fn places(&self) -> (usize, usize, usize, usize) {
        match self.which {
            Which::Puts => (1, 2, TRIM_PUTS, HEAD),
            Which::Gets => (3, 4, TRIM_GETS, HEAD + self.ring),
        }
    }

    /// Forgets what the peer does not need any more; gives the free words.
    pub fn trim(&mut self, region: &Region<u64, Atomic>) -> u64 {
        let (begin, _, trim, _) = self.places();
        let trimmed = region.words()[trim].load(Ordering::Acquire);
        while self.records.front().is_some_and(|(number, _)| *number <= trimmed) {
            self.records.pop_front();
        }
        let first = self.records.front().map_or(self.end, |(_, begin)| *begin);
        region.words()[begin].store(first, Ordering::Release);
        self.ring as u64 - (self.end - first)
    }

    /// Appends a record. False: there is no space.
    pub fn append(&mut self, region: &Region<u64, Atomic>, entry: &RingEntry) -> bool {
        let needed = words_of(entry.data.len());
        if self.trim(region) < needed {
            return false;
        }
        let (_, end, _, start) = self.places();
        let length = entry.data.len() as u64;
        let head = [entry.number, entry.epoch, entry.stamp, entry.offset, length];
        let data = to_words(&entry.data);
        let ring: &[AtomicU64] = &region.words()[start..start + self.ring];
        for (word, at) in head.into_iter().chain(data).zip(self.end..) {
            ring[(at % self.ring as u64) as usize].store(word, Ordering::Relaxed);
        }
        self.records.push_back((entry.number, self.end));
        self.end += needed;
        // It is seen whole, or not.
        region.words()[end].store(self.end, Ordering::Release);
        true
    }

    /// What is there, behind a number.
    pub fn entries_behind(&self, region: &Region<u64, Atomic>, number: u64) -> Vec<RingEntry> {
        let words: Vec<u64> = region.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let mut entries = parse(&words, self.which).unwrap_or_default();
        entries.retain(|entry| entry.number > number);
        entries
    }
}

/// The records of a log in all words of a region, as they were read. `None`: they make no sense.
pub fn parse(words: &[u64], which: Which) -> Option<Vec<RingEntry>> {
    if words.len() < HEAD {
        return None;
    }
    let ring = ring_words(words.len());
    let (begin, end, start) = match which {
        Which::Puts => (words[1], words[2], HEAD),
        Which::Gets => (words[3], words[4], HEAD + ring),
    };
    let ring = words.get(start..start + ring).filter(|ring| !ring.is_empty())?;
    if end.checked_sub(begin)? > ring.len() as u64 {
        return None;
    }
    let word = |at: u64| ring[(at % ring.len() as u64) as usize];
    let (mut entries, mut at) = (Vec::new(), begin);
    while at < end {
        let [number, epoch, stamp, offset, length] = std::array::from_fn(|index| word(at + index as u64));
        let next =
            at.checked_add(RECORD as u64)?.checked_add(length.div_ceil(8)).filter(|next| *next <= end)?;
        let mut data: Vec<u8> = (at + RECORD as u64..next).flat_map(|at| word(at).to_le_bytes()).collect();
        data.truncate(length as usize);
        entries.push(RingEntry { number, epoch, stamp, offset, data });
        at = next;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire::Node;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn what_was_appended_and_not_trimmed_is_read(
            steps in prop::collection::vec((0usize..60, any::<bool>()), 1..60),
            is_puts in any::<bool>(),
        ) {
            let which = if is_puts { Which::Puts } else { Which::Gets };
            let node = Node::alone().unwrap();
            let region = node.words(region_words(64)).unwrap();
            let mut ring = Ring::new(which, 64);
            let mut model: VecDeque<RingEntry> = VecDeque::new();
            for (number, (length, trims)) in (1..).zip(steps) {
                let entry = RingEntry { number, epoch: 7, stamp: 9, offset: 11, data: vec![number as u8; length] };
                if trims {
                    let trim = if is_puts { TRIM_PUTS } else { TRIM_GETS };
                    region.words()[trim].store(number - 1, Ordering::Relaxed);
                    model.clear();
                }
                let used: u64 = model.iter().map(|entry| words_of(entry.data.len())).sum();
                let fits = used + words_of(length) <= 64;
                prop_assert_eq!(ring.append(&region, &entry), fits);
                if fits {
                    model.push_back(entry);
                }
                let words: Vec<u64> = region.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
                let entries = parse(&words, which).unwrap();
                prop_assert_eq!(&entries, &Vec::from(model.clone()));
            }
        }

        #[test]
        fn any_words_are_parsed_or_refused(words in prop::collection::vec(0u64..50, 0..80)) {
            let _ = parse(&words, Which::Puts);
            let _ = parse(&words, Which::Gets);
        }
    }
}

//! Freed ranges whose pages are still resident, oldest first. Pure: it knows offsets and times and touches no memory.

use crate::limits::FREED_RANGES;
use std::collections::{BTreeMap, BTreeSet};

/// A freed range: {offset, length} in bytes.
pub type FreedRange = (usize, usize);

/// Freed ranges that may hold old bytes. They never overlap.
#[derive(Debug, Default)]
pub struct FreedRanges {
    /// End and time of the free by first offset.
    by_offset: BTreeMap<usize, (usize, u64)>,
    /// {time, first offset} of the same ranges.
    by_age: BTreeSet<(u64, usize)>,
    bytes: usize,
}

impl FreedRanges {
    /// Bytes in all ranges.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is no place for one more range.
    pub fn is_full(&self) -> bool {
        self.by_offset.len() >= FREED_RANGES
    }

    /// Notes that `length` bytes at `offset` were freed at `now`. A neighbour on its left joins it, with the older of the two times.
    pub fn insert(&mut self, offset: usize, length: usize, now: u64) {
        self.take(offset, length, |_| ());
        let (mut start, mut time) = (offset, now);
        if let Some((&before, &(end, freed))) = self.by_offset.range(..offset).next_back() {
            if end == offset {
                self.remove(before);
                (start, time) = (before, freed.min(now));
            }
        }
        self.add(start, offset + length, time);
    }

    /// Forgets `length` bytes at `offset`, because somebody owns them again, and shows each part that was noted.
    pub fn take(&mut self, offset: usize, length: usize, mut part: impl FnMut(FreedRange)) {
        let end = offset + length;
        let before =
            self.by_offset.range(..offset).next_back().filter(|(_, range)| range.0 > offset).map(|r| *r.0);
        let first = before.or_else(|| self.by_offset.range(offset..end).next().map(|range| *range.0));
        let mut next = first;
        while let Some(start) = next {
            let (stop, time) = self.remove(start);
            self.add(start, start.max(offset), time);
            self.add(end.min(stop), stop, time);
            part((start.max(offset), stop.min(end) - start.max(offset)));
            next = self.by_offset.range(stop.min(end)..end).next().map(|range| *range.0);
        }
    }

    /// Takes the oldest range out, at most `most` bytes of it, if it was freed at `until` or before.
    pub fn take_oldest(&mut self, until: u64, most: usize) -> Option<FreedRange> {
        let &(time, start) = self.by_age.first().filter(|oldest| oldest.0 <= until)?;
        let (end, _) = self.remove(start);
        let length = most.min(end - start);
        self.add(start + length, end, time);
        Some((start, length))
    }

    fn add(&mut self, start: usize, end: usize, time: u64) {
        if start < end {
            self.by_offset.insert(start, (end, time));
            self.by_age.insert((time, start));
            self.bytes += end - start;
        }
    }

    fn remove(&mut self, start: usize) -> (usize, u64) {
        let (end, time) = self.by_offset.remove(&start).expect("the caller has found this range");
        self.by_age.remove(&(time, start));
        self.bytes -= end - start;
        (end, time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTH: usize = 512;

    proptest! {
        /// Against an array of bytes that says of each whether it was freed.
        #[test]
        fn ranges_are_what_was_freed_and_not_taken(
            steps in proptest::collection::vec((0u8..3, 0..LENGTH, 1..64usize), 1..200)
        ) {
            let mut ranges = FreedRanges::default();
            let mut freed = [false; LENGTH];
            for (time, (kind, offset, length)) in steps.into_iter().enumerate() {
                let end = LENGTH.min(offset + length);
                match kind {
                    0 => {
                        ranges.insert(offset, end - offset, time as u64);
                        freed[offset..end].fill(true);
                    }
                    1 => {
                        let mut shown = [false; LENGTH];
                        ranges.take(offset, end - offset, |(start, length)| shown[start..start + length].fill(true));
                        prop_assert_eq!(&shown[offset..end], &freed[offset..end]);
                        prop_assert!(!shown[..offset].contains(&true) && !shown[end..].contains(&true));
                        freed[offset..end].fill(false);
                    }
                    _ => {
                        if let Some((start, length)) = ranges.take_oldest(time as u64, length) {
                            prop_assert!(!freed[start..start + length].contains(&false));
                            freed[start..start + length].fill(false);
                        } else {
                            prop_assert!(!freed.contains(&true));
                        }
                    }
                }
                prop_assert_eq!(ranges.bytes(), freed.iter().filter(|freed| **freed).count());
                prop_assert_eq!(ranges.by_age.len(), ranges.by_offset.len());
            }
        }
    }

    #[test]
    fn the_oldest_goes_first_and_the_young_stay() {
        let mut ranges = FreedRanges::default();
        ranges.insert(300, 10, 5);
        ranges.insert(100, 10, 7);
        assert_eq!(ranges.take_oldest(4, 100), None);
        assert_eq!(ranges.take_oldest(6, 4), Some((300, 4)));
        assert_eq!(ranges.take_oldest(6, 100), Some((304, 6)));
        assert_eq!(ranges.take_oldest(6, 100), None);
        assert_eq!(ranges.bytes(), 10);
    }
}

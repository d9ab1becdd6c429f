//! Free runs of units: which parts of the range nobody owns. Pure: it knows offsets and touches no memory.
//!
//! A run goes to the smallest free run that fits, at its lowest offset that is aligned. Neighbours are joined when
//! they are freed, so two free runs never touch.

use std::collections::{BTreeMap, BTreeSet};

/// The free runs of a range.
#[derive(Debug, Default)]
pub struct FreeRuns {
    /// Length of each run by its first offset.
    by_offset: BTreeMap<usize, usize>,
    /// {length, offset} of the same runs.
    by_length: BTreeSet<(usize, usize)>,
}

impl FreeRuns {
    /// One free run of `length` bytes at offset 0.
    pub fn new(length: usize) -> Self {
        let mut runs = FreeRuns::default();
        runs.insert(0, length);
        runs
    }

    /// Takes `length` bytes whose address is a multiple of `alignment`, and returns their offset. `base` is the address of offset 0.
    /// `None`: no free run has them.
    pub fn allocate(&mut self, length: usize, alignment: usize, base: usize) -> Option<usize> {
        debug_assert!(length > 0 && alignment.is_power_of_two());
        let (run, run_length, start) =
            self.by_length.range((length, 0)..).find_map(|&(run_length, run)| {
                let start = (base + run).checked_next_multiple_of(alignment)? - base;
                (start - run <= run_length - length).then_some((run, run_length, start))
            })?;
        self.take(run, run_length, start, length);
        Some(start)
    }

    /// Takes exactly the `length` bytes at `offset`. False: they are not all free.
    pub fn allocate_at(&mut self, offset: usize, length: usize) -> bool {
        let Some((&run, &run_length)) = self.by_offset.range(..=offset).next_back() else { return false };
        if offset - run > run_length || run_length - (offset - run) < length {
            return false;
        }
        self.take(run, run_length, offset, length);
        true
    }

    /// Gives `length` bytes at `offset` back.
    ///
    /// # Panics
    /// If a part of them is free already: the caller freed something twice.
    pub fn free(&mut self, offset: usize, length: usize) {
        let (mut start, mut end) = (offset, offset + length);
        if let Some((&before, &before_length)) = self.by_offset.range(..offset).next_back() {
            assert!(before + before_length <= offset, "a run at offset {offset:#x} is freed twice");
            if before + before_length == offset {
                self.remove(before, before_length);
                start = before;
            }
        }
        if let Some((&after, &after_length)) = self.by_offset.range(offset..).next() {
            assert!(after >= end, "a run at offset {offset:#x} is freed twice");
            if after == end {
                self.remove(after, after_length);
                end += after_length;
            }
        }
        self.insert(start, end - start);
    }

    /// Offset behind which all of the range's `length` bytes are free.
    pub fn end_in_use(&self, length: usize) -> usize {
        match self.by_offset.last_key_value() {
            Some((&offset, &run)) if offset + run == length => offset,
            _ => length,
        }
    }

    /// {offset, length} of every free run, lowest first.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.by_offset.iter().map(|(&offset, &length)| (offset, length))
    }

    /// Cuts `length` bytes at `start` out of a run.
    fn take(&mut self, run: usize, run_length: usize, start: usize, length: usize) {
        self.remove(run, run_length);
        self.insert(run, start - run);
        self.insert(start + length, run + run_length - start - length);
    }

    fn insert(&mut self, offset: usize, length: usize) {
        if length > 0 {
            self.by_offset.insert(offset, length);
            self.by_length.insert((length, offset));
        }
    }

    fn remove(&mut self, offset: usize, length: usize) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(length, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTH: usize = 1 << 20;
    const BASE: usize = 0x7000_0001_0000;

    #[derive(Debug, Clone)]
    enum RunStep {
        Allocate { length: usize, alignment: usize },
        AllocateAt { offset: usize, length: usize },
        Free { which: usize },
        FreeTail { which: usize, keep: usize },
    }

    fn step() -> impl Strategy<Value = RunStep> {
        let length = 1usize..LENGTH / 8;
        prop_oneof![
            4 => (length.clone(), 0u32..18).prop_map(|(length, shift)| RunStep::Allocate { length, alignment: 1 << shift }),
            1 => (0..LENGTH, length).prop_map(|(offset, length)| RunStep::AllocateAt { offset, length }),
            3 => any::<usize>().prop_map(|which| RunStep::Free { which }),
            1 => (any::<usize>(), any::<usize>()).prop_map(|(which, keep)| RunStep::FreeTail { which, keep }),
        ]
    }

    /// Whether nobody owns any of these bytes.
    fn is_free(owned: &BTreeMap<usize, usize>, offset: usize, length: usize) -> bool {
        offset + length <= LENGTH && owned.iter().all(|(&o, &l)| o + l <= offset || offset + length <= o)
    }

    /// The free runs are exactly what nobody owns, joined.
    fn check(runs: &FreeRuns, owned: &BTreeMap<usize, usize>) {
        let mut expected = Vec::new();
        let mut end = 0;
        for (&offset, &length) in owned.iter().chain(std::iter::once((&LENGTH, &0))) {
            assert!(offset >= end, "two owners of offset {offset}");
            if offset > end {
                expected.push((end, offset - end));
            }
            end = offset + length;
        }
        assert_eq!(runs.iter().collect::<Vec<_>>(), expected);
        assert_eq!(runs.by_length.len(), runs.by_offset.len());
    }

    proptest! {
        #[test]
        fn runs_do_not_overlap_are_aligned_and_join(steps in proptest::collection::vec(step(), 1..200)) {
            let mut runs = FreeRuns::new(LENGTH);
            let mut owned = BTreeMap::new();
            for step in steps {
                match step {
                    RunStep::Allocate { length, alignment } => match runs.allocate(length, alignment, BASE) {
                        Some(offset) => {
                            prop_assert_eq!((BASE + offset) % alignment, 0);
                            prop_assert!(is_free(&owned, offset, length));
                            owned.insert(offset, length);
                        }
                        None => {
                            let fits = runs.iter().any(|(run, run_length)| {
                                let start = (BASE + run).next_multiple_of(alignment) - BASE;
                                start + length <= run + run_length
                            });
                            prop_assert!(!fits, "a run was there and not found");
                        }
                    },
                    RunStep::AllocateAt { offset, length } => {
                        let free = is_free(&owned, offset, length);
                        prop_assert_eq!(runs.allocate_at(offset, length), free);
                        if free {
                            owned.insert(offset, length);
                        }
                    }
                    RunStep::Free { which } => {
                        if let Some((&offset, _)) = owned.iter().nth(which % owned.len().max(1)) {
                            let length = owned.remove(&offset).unwrap();
                            runs.free(offset, length);
                        }
                    }
                    RunStep::FreeTail { which, keep } => {
                        let index = which % owned.len().max(1);
                        if let Some((&offset, length)) = owned.iter_mut().nth(index) {
                            let keep = 1 + keep % *length;
                            if keep < *length {
                                runs.free(offset + keep, *length - keep);
                                *length = keep;
                            }
                        }
                    }
                }
                check(&runs, &owned);
            }
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_second_free_is_noticed() {
        let mut runs = FreeRuns::new(LENGTH);
        let offset = runs.allocate(4096, 4096, BASE).unwrap();
        runs.free(offset, 4096);
        runs.free(offset, 4096);
    }
}

//! Where the results of a process begin and end in each sorted run.

/// What is asked of all runs: how many keys are below a value, or up to it.
pub trait Counts {
    type Error;
    /// Of each run: how many keys are below a value, or, with `or_equal`, up to it.
    fn below(&mut self, value: u64, or_equal: bool) -> Result<Vec<u64>, Self::Error>;
}

/// The places in all runs that have `position` keys before them, none of which is greater than a key behind them. Equal keys of earlier runs come first.
pub fn split<C: Counts>(counts: &mut C, position: u64) -> Result<Vec<u64>, C::Error> {
    // The least value up to which there are as many keys.
    let (mut low, mut high) = (0u64, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if counts.below(middle, true)?.iter().sum::<u64>() >= position {
            high = middle
        } else {
            low = middle + 1
        }
    }
    let (mut places, ends) = (counts.below(low, false)?, counts.below(low, true)?);
    let mut missing = position - places.iter().sum::<u64>().min(position);
    for (place, end) in places.iter_mut().zip(ends) {
        let more = missing.min(end - *place);
        *place += more;
        missing -= more;
    }
    Ok(places)
}

/// Merges sorted runs.
pub fn merge(runs: &[Vec<u64>]) -> Vec<u64> {
    let mut heads = vec![0; runs.len()];
    let mut merged = Vec::with_capacity(runs.iter().map(Vec::len).sum());
    loop {
        let left = (0..runs.len()).filter(|run| heads[*run] < runs[*run].len());
        let Some(least) = left.min_by_key(|run| runs[*run][heads[*run]]) else { return merged };
        merged.push(runs[least][heads[least]]);
        heads[least] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Slices(Vec<Vec<u64>>);

    impl Counts for Slices {
        type Error = std::convert::Infallible;

        fn below(&mut self, value: u64, or_equal: bool) -> Result<Vec<u64>, Self::Error> {
            let below = |key: &u64| *key < value || or_equal && *key == value;
            Ok(self.0.iter().map(|run| run.partition_point(below) as u64).collect())
        }
    }

    proptest! {
        /// Parts between splits, merged one after the other, are all keys in order.
        #[test]
        fn parts_make_the_whole(
            runs in proptest::collection::vec(proptest::collection::vec(prop_oneof![0u64..5, Just(u64::MAX), any::<u64>()], 0..20), 1..5),
            parts in 1usize..6,
        ) {
            let mut runs = runs;
            runs.iter_mut().for_each(|run| run.sort_unstable());
            let total: u64 = runs.iter().map(|run| run.len() as u64).sum();
            let mut counts = Slices(runs.clone());
            let mut all = Vec::new();
            for part in 0..parts as u64 {
                let from = split(&mut counts, total * part / parts as u64).unwrap();
                let to = split(&mut counts, total * (part + 1) / parts as u64).unwrap();
                prop_assert_eq!(to.iter().sum::<u64>(), total * (part + 1) / parts as u64);
                let cut = |run: usize| runs[run][from[run] as usize..to[run] as usize].to_vec();
                all.extend(merge(&(0..runs.len()).map(cut).collect::<Vec<_>>()));
            }
            let mut expected = runs.concat();
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
        }
    }
}

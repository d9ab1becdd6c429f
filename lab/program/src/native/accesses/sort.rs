//! The exchange of a parallel sort by gets that are logged (PAPERS AA-12, section 5.2.4): each process sorts its keys, samples of all give the bounds of
//! the parts, and each process gets its part of every other run. The exchange is what is measured.

use super::super::comparison::messages::mix;
use super::super::gathering::Gathering;
use super::super::processes::{Keys, compute};
use super::Load;
use super::logged_gets::{LoggedGets, verify_log};
use anyhow::{Context, Result, ensure};
use pagewire::Node;
use std::ops::Range;
use std::time::Instant;

/// Keys of each process that choose the bounds.
const SAMPLES: usize = 64;

/// Count, sum and mixed sum of keys: the same of what was sorted and of the result, whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fingerprint([u64; 3]);

impl Fingerprint {
    fn of(keys: &[u64]) -> Fingerprint {
        let add = |[count, sum, mixed]: [u64; 3], key: &u64| {
            [count + 1, sum.wrapping_add(*key), mixed.wrapping_add(mix(*key))]
        };
        Fingerprint(keys.iter().fold([0; 3], add))
    }

    fn and(self, other: Fingerprint) -> Fingerprint {
        let mut sums = self.0;
        sums.iter_mut().zip(other.0).for_each(|(sum, more)| *sum = sum.wrapping_add(more));
        Fingerprint(sums)
    }
}

/// The words of all processes, by rank.
fn gather(node: &Node, words: &[u64]) -> Result<Vec<Vec<u64>>> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let all = node.all_gather_bytes(&bytes)?;
    Ok(all.iter().map(|bytes| bytes.chunks_exact(8).map(word).collect()).collect())
}

/// Where the part of each process begins in a sorted run, and its end.
fn bounds(run: &[u64], splitters: &[u64]) -> Vec<u64> {
    let inner = splitters.iter().map(|splitter| run.partition_point(|key| key < splitter) as u64);
    std::iter::once(0).chain(inner).chain([run.len() as u64]).collect()
}

/// Keys that are bounds between the parts of so many processes, from the samples of all.
fn splitters(samples: Vec<Vec<u64>>, processes: usize) -> Vec<u64> {
    let mut all = samples.concat();
    all.sort_unstable();
    (1..processes).map(|part| all[part * all.len() / processes]).collect()
}

/// The part of a process in each run: the bounds of all.
fn part_of(bounds: &[Vec<u64>], rank: usize) -> Result<Vec<Range<usize>>> {
    let part = |own: &Vec<u64>| Some(*own.get(rank)? as usize..*own.get(rank + 1)? as usize);
    bounds.iter().map(part).collect::<Option<_>>().context("a process gave no bounds")
}

/// The gets of a part, of so many words each and a shorter one at the end: first word and count.
fn pieces(part: Range<usize>, words: usize) -> impl Iterator<Item = (usize, usize)> {
    part.clone().step_by(words).map(move |first| (first, words.min(part.end - first)))
}

/// Gives what makes a round: microseconds of the exchange.
pub(super) fn start<'j>(
    (node, gathering): (&'j Node, &'j Gathering),
    load: &'j Load,
) -> Result<impl FnMut(u32) -> Result<f64> + 'j> {
    let words = (load.size / 8) as usize;
    let keys = usize::try_from(load.times)?;
    // All keys of this process may go to others, and each part may end with a shorter get.
    let most_gets = keys.div_ceil(words) + node.size();
    let mut gets = LoggedGets::join(node, load, keys, most_gets as u64)?;
    Ok(move |round| {
        let mut run: Vec<u64> = Keys::of(node.rank(), round).take(keys).collect();
        let before = Fingerprint::of(&run);
        run.sort_unstable();
        gets.data.write(0, &run)?;
        let samples: Vec<u64> = run.iter().step_by((keys / SAMPLES).max(1)).copied().collect();
        let splitters = splitters(gather(node, &samples)?, node.size());
        let bounds = gather(node, &bounds(&run, &splitters))?;
        let parts = part_of(&bounds, node.rank())?;
        let mut result = vec![0; parts.iter().map(ExactSizeIterator::len).sum()];
        node.barrier()?;
        let start = Instant::now();
        exchange((node, gathering, &mut gets), load, &parts, &mut result)?;
        let elapsed = start.elapsed().as_secs_f64() * 1e6;
        let own = parts[node.rank()].clone();
        let place: usize = parts[..node.rank()].iter().map(ExactSizeIterator::len).sum();
        result[place..place + own.len()].copy_from_slice(&run[own]);
        // A merge sort, which finds the runs.
        result.sort();
        verify(node, &result, before)?;
        if let Some(logged) = gets.take_log()? {
            for (caller, logged) in logged.iter().enumerate().filter(|(caller, _)| *caller != node.rank()) {
                let part = part_of(&bounds, caller)?[node.rank()].clone();
                verify_log(&run, logged, pieces(part, words))?;
            }
        }
        Ok(elapsed)
    })
}

/// Gets the part of this process of all other runs, a piece of each in turn.
fn exchange(
    (node, gathering, gets): (&Node, &Gathering, &mut LoggedGets),
    load: &Load,
    parts: &[Range<usize>],
    result: &mut [u64],
) -> Result<()> {
    let mut place = 0;
    let mut sources = Vec::new();
    for (rank, part) in parts.iter().enumerate() {
        if rank != node.rank() {
            sources.push((rank, place, part.start, pieces(part.clone(), (load.size / 8) as usize)));
        }
        place += part.len();
    }
    let mut sink = |place: usize, got: &[u64]| {
        result[place..place + got.len()].copy_from_slice(got);
        Ok(())
    };
    loop {
        let mut is_done = true;
        for (rank, place, start, pieces) in &mut sources {
            if let Some((first, count)) = pieces.next() {
                compute(load.computation);
                gets.get((*rank, first, count), *place + first - *start, &mut sink)?;
                is_done = false;
            }
        }
        if is_done {
            return gets.finish(gathering, &mut sink);
        }
    }
}

/// The parts must be sorted, each behind the one before, and have all keys.
fn verify(node: &Node, result: &[u64], before: Fingerprint) -> Result<()> {
    let (first, last) = (result.first().copied(), result.last().copied());
    let Fingerprint(had) = before;
    let Fingerprint(has) = Fingerprint::of(result);
    let own = [&had[..], &has, &[first.unwrap_or(u64::MAX), last.unwrap_or(0)]].concat();
    let all = gather(node, &own)?;
    let (mut had, mut has, mut end) = (Fingerprint::default(), Fingerprint::default(), 0);
    for (rank, words) in all.iter().enumerate() {
        let [a, b, c, d, e, f, first, last] = words[..] else {
            anyhow::bail!("process {rank} says nothing of its part");
        };
        (had, has) = (had.and(Fingerprint([a, b, c])), has.and(Fingerprint([d, e, f])));
        ensure!(d == 0 || first >= end, "the part of process {rank} begins before the one before it ends");
        end = end.max(last);
    }
    ensure!(result.is_sorted(), "a part is not sorted");
    ensure!(had == has, "what was sorted and the result have other keys: {had:?}, {has:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_each_key_once_and_in_order() {
        for processes in 1..=5 {
            let runs: Vec<Vec<u64>> = (0..processes)
                .map(|rank| {
                    let mut run: Vec<u64> = Keys::of(rank, 1).take(40 * rank + 1).collect();
                    run.sort_unstable();
                    run
                })
                .collect();
            let samples = runs.iter().map(|run| run.iter().step_by(3).copied().collect()).collect();
            let splitters = splitters(samples, processes);
            let bounds: Vec<Vec<u64>> = runs.iter().map(|run| bounds(run, &splitters)).collect();
            let mut sorted: Vec<u64> = Vec::new();
            for rank in 0..processes {
                let mut part: Vec<u64> = Vec::new();
                for (run, range) in runs.iter().zip(part_of(&bounds, rank).unwrap()) {
                    for (first, count) in pieces(range, 7) {
                        assert!((1..=7).contains(&count));
                        part.extend(&run[first..first + count]);
                    }
                }
                part.sort_unstable();
                sorted.extend(part);
            }
            let mut all = runs.concat();
            all.sort_unstable();
            assert_eq!(sorted, all);
        }
    }

    #[test]
    fn fingerprints_are_those_of_the_keys_alone() {
        let keys: Vec<u64> = Keys::of(0, 0).take(100).collect();
        let reversed: Vec<u64> = keys.iter().rev().copied().collect();
        assert_eq!(Fingerprint::of(&keys), Fingerprint::of(&reversed));
        assert_eq!(Fingerprint::of(&keys[..40]).and(Fingerprint::of(&keys[40..])), Fingerprint::of(&keys));
        assert_ne!(Fingerprint::of(&keys[..99]), Fingerprint::of(&keys));
        assert_ne!(Fingerprint::of(&[1, 4]), Fingerprint::of(&[2, 3]));
    }
}

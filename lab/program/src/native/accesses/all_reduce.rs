//! Sums over all processes of a job, word by word: recursive doubling, as MPI libraries have it for short vectors. Processes beyond a power of two hand
//! their words to one below it first, and get the sums from it last.
//!
//! Each step has a slot of its own in the memory of who receives, for even and odd rounds. Who has sent in a round has received all of the round before,
//! so a slot is written again only when it was read. The last word of a slot is written last, and has the round.

use super::open_others;
use crate::limits::BENCH_RUN;
use anyhow::{Context, Result, ensure};
use pagewire::{Atomic, Node, Operation, Region, RemoteRegion, Rights};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Steps of recursive doubling at most, and the two before and behind them.
const STEPS: usize = 18;
const BEFORE: usize = 16;
const BEHIND: usize = 17;

pub(super) struct AllReduce {
    slots: Region<u64, Atomic>,
    remote: Vec<Option<RemoteRegion>>,
    rank: usize,
    /// Words of a vector.
    words: usize,
    round: u64,
    puts: VecDeque<Operation<Vec<u64>>>,
}

impl AllReduce {
    pub fn join(node: &Node, words: usize) -> Result<AllReduce> {
        ensure!(node.size() <= 1 << BEFORE, "{} processes are too many to sum up", node.size());
        let slots = node.words(2 * STEPS * (words + 1))?;
        let remote = open_others(node, &slots.export(Rights::all())?)?;
        Ok(AllReduce { slots, remote, rank: node.rank(), words, round: 0, puts: VecDeque::new() })
    }

    /// Puts the sums of all processes in the place of this one's words. Each process calls it as often.
    pub fn sum(&mut self, words: &mut [u64]) -> Result<()> {
        ensure!(words.len() == self.words, "{} words are to be summed up, not {}", self.words, words.len());
        self.round += 1;
        let (rank, size) = (self.rank, self.remote.len());
        let within = 1 << size.ilog2();
        if rank >= within {
            self.send(rank - within, BEFORE, words)?;
            return self.receive(BEHIND, |index, sum| words[index] = sum);
        }
        let add =
            |words: &mut [u64], index: usize, other: u64| words[index] = words[index].wrapping_add(other);
        let has_partner = rank + within < size;
        if has_partner {
            self.receive(BEFORE, |index, other| add(words, index, other))?;
        }
        for step in 0..size.ilog2() as usize {
            self.send(rank ^ 1 << step, step, words)?;
            self.receive(step, |index, other| add(words, index, other))?;
        }
        if has_partner {
            self.send(rank + within, BEHIND, words)?;
        }
        Ok(())
    }

    /// The first word of a slot.
    fn slot(&self, step: usize) -> usize {
        (2 * step + (self.round % 2) as usize) * (self.words + 1)
    }

    fn send(&mut self, to: usize, step: usize, words: &[u64]) -> Result<()> {
        let remote = self.remote[to].as_ref().context("a process sums up with others")?;
        let message = [words, &[self.round]].concat();
        self.puts.push_back(remote.put(8 * self.slot(step) as u64, message));
        while self.puts.front().is_some_and(Operation::is_done) {
            if let Some(put) = self.puts.pop_front() {
                put.wait()?;
            }
        }
        Ok(())
    }

    fn receive(&self, step: usize, mut take: impl FnMut(usize, u64)) -> Result<()> {
        let slot = &self.slots.words()[self.slot(step)..][..=self.words];
        let begun = Instant::now();
        while slot[self.words].load(Ordering::Acquire) != self.round {
            // A look at a put has those of this process that wait leave.
            if self.puts.back().is_some_and(|put| !put.is_done()) {
                std::hint::spin_loop();
            }
            std::thread::yield_now();
            ensure!(
                begun.elapsed() < BENCH_RUN,
                "another process has not summed up within {} s",
                BENCH_RUN.as_secs()
            );
        }
        slot[..self.words]
            .iter()
            .enumerate()
            .for_each(|(index, word)| take(index, word.load(Ordering::Relaxed)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Any number of processes, round after round: each has the sums of all.
    #[test]
    fn all_have_the_sums() {
        for size in [1_usize, 2, 3, 5, 6] {
            let nodes: Vec<Arc<Node>> = (0..size).map(|_| Arc::new(Node::alone().unwrap())).collect();
            let slots: Vec<_> = nodes.iter().map(|node| node.words(2 * STEPS * 4).unwrap()).collect();
            let tokens: Vec<_> = slots.iter().map(|slots| slots.export(Rights::all()).unwrap()).collect();
            let members = nodes.iter().zip(slots).enumerate().map(|(rank, (node, slots))| {
                let remote = tokens
                    .iter()
                    .enumerate()
                    .map(|(other, token)| (other != rank).then(|| node.open(token).unwrap()));
                let remote = remote.collect();
                AllReduce { slots, remote, rank, words: 3, round: 0, puts: VecDeque::new() }
            });
            std::thread::scope(|scope| {
                for mut member in members {
                    scope.spawn(move || {
                        for round in 1..=6_u64 {
                            let rank = member.rank as u64;
                            let mut words = [round, rank + 1, rank * round];
                            member.sum(&mut words).unwrap();
                            let ranks = (0..size as u64).sum::<u64>();
                            assert_eq!(words, [round * size as u64, ranks + size as u64, ranks * round]);
                        }
                    });
                }
            });
        }
    }
}

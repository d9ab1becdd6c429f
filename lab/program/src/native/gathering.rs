//! Processes that wait for each other, and serve each other meanwhile.

use crate::limits::BENCH_RUN;
use anyhow::{Result, ensure};
use pagewire::{Atomic, Node, Region, RemoteRegion, Rights};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A barrier in which processes go on with what others wait for.
pub(super) struct Gathering {
    words: Region<u64, Atomic>,
    others: Vec<RemoteRegion>,
    rank: usize,
    rounds: AtomicU64,
}

impl Gathering {
    pub fn make(node: &Node) -> Result<Gathering> {
        let words = node.words(node.size())?;
        let tokens = node.all_gather(&words.export(Rights::all())?)?;
        let others = tokens.iter().enumerate().filter(|(rank, _)| *rank != node.rank());
        let others = others.map(|(_, token)| node.open(token)).collect::<Result<_, _>>()?;
        Ok(Gathering { words, others, rank: node.rank(), rounds: AtomicU64::new(0) })
    }

    /// Waits until all are here.
    pub fn wait(&self, poll: impl Fn() -> Result<()>) -> Result<()> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        self.words.words()[self.rank].store(round, Ordering::Release);
        let puts: Vec<_> =
            self.others.iter().map(|other| other.put_value(8 * self.rank as u64, round)).collect();
        let start = Instant::now();
        while self.words.words().iter().any(|word| word.load(Ordering::Acquire) < round) {
            poll()?;
            ensure!(
                start.elapsed() < BENCH_RUN,
                "another process has not come within {} s",
                BENCH_RUN.as_secs()
            );
        }
        puts.into_iter().try_for_each(|put| put.wait().map(drop))?;
        Ok(())
    }
}

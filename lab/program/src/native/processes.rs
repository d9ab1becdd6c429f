//! What the processes of a benchmark have in common that a job of any number of them makes.

use anyhow::Result;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pagewire::Node;
use std::time::{Duration, Instant};

/// The path to the next process, as all have the same.
pub(super) fn path_to_next(node: &Node) -> Result<String> {
    let word = node.words(1)?;
    let tokens = node.all_gather(&word.export(pagewire::Rights::READ)?)?;
    let path = super::path_of(node, &tokens[(node.rank() + 1) % node.size()])?;
    node.barrier()?;
    Ok(path)
}

/// Random keys that are not 0: xorshift64*, whose period is 2^64 - 1, so that none comes twice. Each process and round is elsewhere in it.
pub(super) struct Keys(u64);

impl Keys {
    pub fn of(rank: usize, round: u32) -> Keys {
        let place = (rank as u64 + 1) << 32 | u64::from(round) + 1;
        Keys(place.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
}

impl Iterator for Keys {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        Some(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D))
    }
}

/// So that the scheduler does not move the processes while they are measured.
pub(super) fn stay_on_one_processor(rank: usize) -> Result<()> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let processors: Vec<usize> =
        (0..CpuSet::count()).filter(|number| allowed.is_set(*number).unwrap_or(false)).collect();
    let mut one = CpuSet::new();
    one.set(processors[rank % processors.len()])?;
    sched_setaffinity(Pid::from_raw(0), &one)?;
    Ok(())
}

/// Works for so long without any access, as an application computes.
pub(crate) fn compute(duration: Duration) {
    if duration.is_zero() {
        return;
    }
    let begun = Instant::now();
    while begun.elapsed() < duration {
        std::hint::spin_loop();
    }
}

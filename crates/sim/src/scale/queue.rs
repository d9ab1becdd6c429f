//! When each host runs next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The hosts that are to run, by time. Each is there once at most that counts.
pub struct RunQueue {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// When each host runs next; `u64::MAX`: when something comes.
    next: Vec<u64>,
    /// Until when each host's processor is busy.
    busy: Vec<u64>,
}

impl RunQueue {
    /// None of `hosts` hosts is to run.
    pub fn new(hosts: usize) -> Self {
        RunQueue { heap: BinaryHeap::new(), next: vec![u64::MAX; hosts], busy: vec![0; hosts] }
    }

    /// Has a host run at `time`, unless it runs before, or as soon as its processor is free.
    pub fn wake(&mut self, host: usize, time: u64) {
        let time = time.max(self.busy[host]);
        if time < self.next[host] {
            self.next[host] = time;
            self.heap.push(Reverse((time, host)));
        }
    }

    /// When the next host runs.
    pub fn earliest(&mut self) -> Option<u64> {
        while let Some(Reverse((time, host))) = self.heap.peek().copied() {
            if self.next[host] == time {
                return Some(time);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes a host that is to run by `time`.
    pub fn take(&mut self, time: u64) -> Option<usize> {
        self.earliest().filter(|earliest| *earliest <= time)?;
        let Reverse((_, host)) = self.heap.pop()?;
        self.next[host] = u64::MAX;
        Some(host)
    }

    /// Until when a host's processor is busy.
    pub fn busy_until(&self, host: usize) -> u64 {
        self.busy[host]
    }

    /// When the last of the processors is free.
    pub fn all_free(&self) -> u64 {
        self.busy.iter().copied().max().unwrap_or(0)
    }

    /// A host's processor has worked until `time`.
    pub fn worked(&mut self, host: usize, time: u64) {
        self.busy[host] = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_of_a_host_counts() {
        let mut queue = RunQueue::new(3);
        queue.wake(0, 50);
        queue.wake(1, 20);
        queue.wake(0, 10);
        assert_eq!((queue.earliest(), queue.take(9), queue.take(10)), (Some(10), None, Some(0)));
        assert_eq!((queue.take(100), queue.take(100), queue.earliest()), (Some(1), None, None));
    }

    #[test]
    fn a_busy_host_runs_later() {
        let mut queue = RunQueue::new(1);
        queue.worked(0, 30);
        queue.wake(0, 10);
        assert_eq!((queue.take(29), queue.take(30)), (None, Some(0)));
    }
}

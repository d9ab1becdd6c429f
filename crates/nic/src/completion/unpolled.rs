//! Completions of send requests that the program has not polled: each holds a slot of its send queue.
//!
//! A signaled request's slot is free again when its completion is polled, as with adapters, so that a program which polls only when
//! its send queue is full does not overrun its completion queue. An unsignaled request's slot is free when the request completes.
//!
//! Mostly all that waits in a completion queue is fewer than a send queue's slots: then nothing is counted. A completion queue counts
//! by queue pair from the first post on that needs to know it, until it is empty.

use crate::completion::Completion;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// How many such completions wait in a completion queue, by queue pair number.
#[derive(Default)]
pub struct UnpolledSends {
    /// Whether the counts are kept: else nothing need be told of completions.
    pub counts: bool,
    /// They are kept at all times: another one has to be told of each completion, too.
    pub always_counts: bool,
    by_queue_pair: HashMap<u32, usize, BuildHasherDefault<NumberHasher>>,
}

impl UnpolledSends {
    /// None, of which counts are kept at all times or not.
    pub fn always(always_counts: bool) -> Self {
        UnpolledSends { counts: always_counts, always_counts, ..UnpolledSends::default() }
    }

    /// Those of a queue pair among all that wait.
    pub fn of(&mut self, queue_pair: u32, waiting: &VecDeque<Completion>) -> usize {
        if !self.counts && !waiting.is_empty() {
            self.counts = true;
            waiting.iter().for_each(|completion| self.add(completion));
        }
        self.by_queue_pair.get(&queue_pair).copied().unwrap_or(0)
    }

    /// One more completion waits.
    #[cold]
    pub fn add(&mut self, completion: &Completion) {
        if completion.holds_slot {
            *self.by_queue_pair.entry(completion.queue_pair).or_default() += 1;
        }
    }

    /// A completion is polled or dropped, and so many are left.
    pub fn remove(&mut self, completion: &Completion, left: usize) {
        if left == 0 {
            self.counts = self.always_counts;
            self.by_queue_pair.clear();
        } else if let Some(count) = self.by_queue_pair.get_mut(&completion.queue_pair) {
            *count -= usize::from(completion.holds_slot);
        }
    }

    /// The completions of a queue pair hold no slot any more.
    pub fn forget(&mut self, queue_pair: u32) {
        self.by_queue_pair.remove(&queue_pair);
    }
}

/// Spreads queue pair numbers, which nobody chooses to collide.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        // 2^64 divided by the golden ratio.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

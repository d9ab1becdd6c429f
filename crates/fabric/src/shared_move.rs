//! Long transfers between two processes whose pages are not all there, moved by several threads: the kernel brings pages in for one
//! while another one copies.

use crate::fabric::Direction;
use crate::limits::{MOVED_AT_ONCE, MOVERS};
use pagewire_memory::{ApplicationMemory, HostMemory, HostProcess, MemoryError, Segment, part_of};
use parking_lot::{Condvar, Mutex};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that become visible last.
const TAIL: u64 = 8;

/// One transfer. Whoever has begun it waits until nobody is at work on it any more.
#[derive(Debug)]
pub struct SharedMove {
    direction: Direction,
    process: HostProcess,
    ours: Vec<Segment>,
    theirs: Vec<Segment>,
    /// Without what is moved last.
    length: u64,
    /// Where the next part begins.
    next: AtomicU64,
    state: Mutex<State>,
    rests: Condvar,
}

#[derive(Debug, Default)]
struct State {
    at_work: usize,
    failed: Option<MemoryError>,
}

impl SharedMove {
    /// Of so many bytes, to be moved by [`work`](Self::work).
    fn new(
        direction: Direction,
        process: &HostProcess,
        ours: &[Segment],
        theirs: &[Segment],
        length: u64,
    ) -> Arc<Self> {
        Arc::new(SharedMove {
            direction,
            process: process.clone(),
            ours: ours.to_vec(),
            theirs: theirs.to_vec(),
            length,
            next: AtomicU64::new(0),
            state: Mutex::default(),
            rests: Condvar::new(),
        })
    }

    /// Moves parts until none is left, or one could not be moved.
    pub fn work(&self, memory: &HostMemory) {
        self.state.lock().at_work += 1;
        let mut failed = None;
        loop {
            let from = self.next.fetch_add(MOVED_AT_ONCE, Ordering::AcqRel);
            if from >= self.length {
                break;
            }
            let length = MOVED_AT_ONCE.min(self.length - from);
            let (ours, theirs) = (part_of(&self.ours, from, length), part_of(&self.theirs, from, length));
            if let Err(error) = transfer(memory, self.direction, &self.process, &ours, &theirs, false) {
                self.next.store(u64::MAX / 2, Ordering::Release);
                failed = Some(error);
                break;
            }
        }
        let mut state = self.state.lock();
        state.failed = state.failed.or(failed);
        state.at_work -= 1;
        if state.at_work == 0 {
            self.rests.notify_all();
        }
    }

    /// Waits until nobody is at work.
    fn rest(&self) -> Result<(), MemoryError> {
        let mut state = self.state.lock();
        while state.at_work > 0 {
            self.rests.wait(&mut state);
        }
        state.failed.map_or(Ok(()), Err)
    }
}

impl PartialEq for SharedMove {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SharedMove {}

impl Hash for SharedMove {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

/// Moves all of it, with the help of threads that `hire` calls for the same work. They come when they come: who calls does all that
/// is left.
pub fn move_together(
    memory: &HostMemory,
    direction: Direction,
    process: &HostProcess,
    (ours, theirs): (&[Segment], &[Segment]),
    tail_last: bool,
    hire: impl Fn(Arc<SharedMove>),
) -> Result<(), MemoryError> {
    let bytes = |segments: &[Segment]| segments.iter().map(|segment| segment.length).sum::<u64>();
    let length = bytes(ours).min(bytes(theirs));
    let body = if tail_last { length.saturating_sub(TAIL) } else { length };
    let shared = SharedMove::new(direction, process, ours, theirs, body);
    let parts = body.div_ceil(MOVED_AT_ONCE);
    (1..parts.min(MOVERS)).for_each(|_| hire(shared.clone()));
    shared.work(memory);
    shared.rest()?;
    let (ours, theirs) = (part_of(ours, body, length - body), part_of(theirs, body, length - body));
    transfer(memory, direction, process, &ours, &theirs, tail_last)
}

#[inline(never)] // Its callers are others' hot paths.
fn transfer(
    memory: &HostMemory,
    direction: Direction,
    process: &HostProcess,
    ours: &[Segment],
    theirs: &[Segment],
    tail_last: bool,
) -> Result<(), MemoryError> {
    match direction {
        Direction::Pull => memory.pull(process, theirs, ours, tail_last),
        Direction::Push => memory.push(process, ours, theirs, tail_last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(bytes: &[u8]) -> Segment {
        Segment { address: bytes.as_ptr() as u64, length: bytes.len() as u64 }
    }

    fn moved(direction: Direction, threads: bool, length: usize) {
        let memory = HostMemory::new();
        let own = HostProcess::current();
        let from: Vec<u8> = (0..length).map(|at| (at * 7 / 3) as u8).collect();
        let into = vec![0u8; length];
        let middle = length / 3;
        let (sources, targets) = ([segment(&from[..middle]), segment(&from[middle..])], [segment(&into)]);
        let (ours, theirs) = match direction {
            Direction::Push => (&sources[..], &targets[..]),
            Direction::Pull => (&targets[..], &sources[..]),
        };
        std::thread::scope(|scope| {
            let hire = |shared: Arc<SharedMove>| {
                if threads {
                    let memory = &memory;
                    scope.spawn(move || shared.work(memory));
                }
            };
            move_together(&memory, direction, &own, (ours, theirs), true, hire).unwrap();
        });
        assert!(std::hint::black_box(&into) == &from);
    }

    #[test]
    fn all_bytes_are_moved_with_helpers_or_without() {
        for length in [5, 9, 100_000, 3 * MOVED_AT_ONCE as usize + 11, 20 * MOVED_AT_ONCE as usize] {
            for direction in [Direction::Pull, Direction::Push] {
                moved(direction, false, length);
                moved(direction, true, length);
            }
        }
    }

    #[test]
    fn what_is_not_mapped_ends_it() {
        let memory = HostMemory::new();
        let own = HostProcess::current();
        let from = vec![1u8; 6 * MOVED_AT_ONCE as usize];
        let nowhere = [Segment { address: 4096, length: from.len() as u64 }];
        let shares = (&[segment(&from)][..], &nowhere[..]);
        let outcome = move_together(&memory, Direction::Push, &own, shares, true, |_| {});
        assert!(outcome.is_err());
    }

    proptest! {
        #[test]
        fn parts_follow_each_other(lengths in proptest::collection::vec(0u64..50, 1..6), cut in 1u64..40) {
            let mut at = 0;
            let segments: Vec<Segment> = lengths
                .iter()
                .map(|length| {
                    at += 1000;
                    Segment { address: at, length: *length }
                })
                .collect();
            let all: Vec<u64> =
                segments.iter().flat_map(|segment| segment.address..segment.address + segment.length).collect();
            let total = all.len() as u64;
            let cuts = (0..total).step_by(cut as usize).flat_map(|from| part_of(&segments, from, cut));
            let again: Vec<u64> =
                cuts.flat_map(|segment| segment.address..segment.address + segment.length).collect();
            prop_assert_eq!(again, all);
        }
    }
}

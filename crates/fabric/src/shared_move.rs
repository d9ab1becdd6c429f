//! Long transfers between two processes whose pages are not all there, moved by two threads: the kernel brings pages in for one
//! while the other one copies.
//!
//! One goes from the beginning on, the other from the end back, so that they meet once: while they are far apart they change
//! different page tables, which the kernel locks by 2 MiB each. Side by side they took a third longer.

use crate::fabric::Direction;
use crate::limits::MOVED_AT_ONCE;
use pagewire_memory::limits::TAIL;
use pagewire_memory::{ApplicationMemory, HostMemory, HostProcess, MemoryError, Segment, part_of};
use pagewire_paging::{PieceOrder, Stretch};
use parking_lot::Mutex;
use std::sync::Arc;

/// One transfer. Whoever has begun it waits until nobody is at work on it any more.
#[derive(Debug)]
pub struct SharedMove {
    direction: Direction,
    process: HostProcess,
    ours: Vec<Segment>,
    theirs: Vec<Segment>,
    /// By the places of the bytes in the transfer; without what is moved last.
    parts: Arc<Stretch>,
    failed: Mutex<Option<MemoryError>>,
}

impl SharedMove {
    /// Moves parts, of those that are left the last one each time, until none is, or one could not be moved.
    pub fn help(&self, memory: &HostMemory) {
        self.work(memory, PieceOrder::Back);
    }

    /// Moves parts from one end on.
    fn work(&self, memory: &HostMemory, order: PieceOrder) {
        while let Some(part) = self.parts.take_from(order, MOVED_AT_ONCE) {
            let (from, length) = (part.memory().start, part.memory().end - part.memory().start);
            let segments = (&*part_of(&self.ours, from, length), &*part_of(&self.theirs, from, length));
            if let Err(error) = transfer(memory, self.direction, &self.process, segments, false) {
                self.parts.abandon();
                *self.failed.lock() = Some(error);
            }
        }
    }
}

/// Moves all of it, with the help of a thread that `hire` calls for the same work. It comes when it comes: who calls does all that
/// is left.
pub fn move_together(
    memory: &HostMemory,
    direction: Direction,
    process: &HostProcess,
    (ours, theirs): (&[Segment], &[Segment]),
    tail_last: bool,
    hire: impl Fn(Arc<SharedMove>),
) -> Result<(), MemoryError> {
    let length = length_of(ours).min(length_of(theirs));
    let body = if tail_last { length.saturating_sub(TAIL) } else { length };
    let shared = Arc::new(SharedMove {
        direction,
        process: process.clone(),
        ours: ours.to_vec(),
        theirs: theirs.to_vec(),
        parts: Stretch::new(0..body, PieceOrder::Back),
        failed: Mutex::default(),
    });
    if body > MOVED_AT_ONCE {
        hire(shared.clone());
        // The kernel mostly wakes a thread where its waker runs, and moves it when that ends: now it sees that it is to be elsewhere
        // (`Placed`). Without this 4 MiB took 1.0 ms in one run and 2.0 in the next.
        std::thread::yield_now();
    }
    shared.work(memory, PieceOrder::Forth);
    shared.parts.rest();
    if let Some(error) = *shared.failed.lock() {
        return Err(error);
    }
    let rest = (&*part_of(ours, body, length - body), &*part_of(theirs, body, length - body));
    transfer(memory, direction, process, rest, tail_last)
}

/// Moves all of it piece by piece, cut where the peer's memory has whole ones: who brings in no more than a page or a block at once.
pub fn move_by_pieces(
    memory: &HostMemory,
    direction: Direction,
    process: &HostProcess,
    (ours, theirs): (&[Segment], &[Segment]),
    tail_last: bool,
    piece: u64,
) -> Result<(), MemoryError> {
    let length = length_of(ours).min(length_of(theirs));
    let into = theirs.first().map_or(0, |first| first.address % piece);
    let mut at = 0;
    while at < length {
        let rest = length - at;
        // The tail stays with what it ends.
        let part = (piece - (into + at) % piece).min(rest);
        let part = if rest - part < TAIL { rest } else { part };
        let segments = (&*part_of(ours, at, part), &*part_of(theirs, at, part));
        transfer(memory, direction, process, segments, tail_last && part == rest)?;
        at += part;
    }
    Ok(())
}

fn length_of(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| segment.length).sum()
}

#[inline(never)] // Its callers are others' hot paths.
fn transfer(
    memory: &HostMemory,
    direction: Direction,
    process: &HostProcess,
    (ours, theirs): (&[Segment], &[Segment]),
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

    fn moved(direction: Direction, threads: bool, piece: Option<u64>, length: usize) {
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
        if let Some(piece) = piece {
            move_by_pieces(&memory, direction, &own, (ours, theirs), true, piece).unwrap();
            assert!(std::hint::black_box(&into) == &from);
            return;
        }
        std::thread::scope(|scope| {
            let hire = |shared: Arc<SharedMove>| {
                if threads {
                    let memory = &memory;
                    scope.spawn(move || shared.help(memory));
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
                moved(direction, false, None, length);
                moved(direction, true, None, length);
                for piece in [4096, 16_384] {
                    moved(direction, false, Some(piece), length);
                }
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

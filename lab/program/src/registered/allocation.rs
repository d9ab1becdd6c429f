//! Registration, and acquiring registered memory, by one process.

use super::{HELD, TRIALS, allocated, lock, median_of, microseconds, print, registered};
use anyhow::Result;
use pagewire::Node;
use pagewire_heap::{HeapOptions, HeapRef};
use std::hint::black_box;
use std::time::Instant;

/// Bytes of addresses of a heap for new memory.
const FRESH: usize = 1 << 30;

/// One size: `lock` and `unlock` of memory that is present; `new` (with `new_least` and `new_most`, a tenth of the trials from either end) and
/// `by_hand`, where nothing is freed until the last trial; `reused` and `again_by_hand`, where each is freed before the next.
pub(super) fn measure(node: &Node, size: usize) -> Result<()> {
    let heap = node.heap()?;
    let (locked, unlocked) = registration(size)?;
    let held = (HELD / size).clamp(1, *TRIALS.end());
    // A heap of its own, in which no page is present yet.
    let fresh = HeapRef::new(HeapOptions { range: FRESH, retain: 0, ..HeapOptions::default() })?;
    let mut kept = Vec::new();
    let mut times = Vec::new();
    let new = median_of(held, || {
        let start = Instant::now();
        kept.push(black_box(registered(&fresh, size)));
        times.push(microseconds(start));
        Ok(times.last().copied())
    })?;
    drop(kept);
    drop(fresh);
    times.sort_by(f64::total_cmp);
    let (least, most) = (times[times.len() / 10], times[times.len() - 1 - times.len() / 10]);
    let mut kept = Vec::new();
    let by_hand = median_of(lockable(held, size), || {
        Ok(acquire(size).map(|(memory, time)| {
            kept.push(memory);
            time
        }))
    })?;
    drop(kept);
    let reused = median_of(*TRIALS.end(), || {
        let start = Instant::now();
        let memory = black_box(registered(&heap, size));
        let time = microseconds(start);
        drop(memory);
        Ok(Some(time))
    })?;
    let again = median_of(*TRIALS.end(), || Ok(acquire(size).map(|(_, time)| time)))?;
    let by_kib = |time: Option<f64>| time.map(|time| time * 1024.0 / size as f64);
    print(
        size,
        [
            ("lock", locked),
            ("unlock", unlocked),
            ("lock_kib", by_kib(locked)),
            ("unlock_kib", by_kib(unlocked)),
            ("new", new),
            ("new_least", Some(least)),
            ("new_most", Some(most)),
            ("by_hand", by_hand),
            ("reused", reused),
            ("again_by_hand", again),
        ],
    )
}

/// malloc, touch and mlock. The guard goes first, so that no unlocked page of another owner is meant.
fn acquire(size: usize) -> Option<((region::LockGuard, Vec<u8>), f64)> {
    let start = Instant::now();
    let memory = black_box(allocated(size));
    let guard = lock(&memory, size)?;
    let time = microseconds(start);
    Some(((guard, memory), time))
}

fn registration(size: usize) -> Result<(Option<f64>, Option<f64>)> {
    let memory = allocated(size);
    let locked = median_of(*TRIALS.end(), || {
        let start = Instant::now();
        Ok(lock(&memory, size).map(|_guard| microseconds(start)))
    })?;
    let unlocked = median_of(*TRIALS.end(), || {
        Ok(lock(&memory, size).map(|guard| {
            let start = Instant::now();
            drop(guard);
            microseconds(start)
        }))
    })?;
    Ok((locked, unlocked))
}

/// How many buffers of `size` the user may lock at once, one at least, `most` at most. Half of the limit is left to others of this user.
fn lockable(most: usize, size: usize) -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    if nix::unistd::geteuid().is_root() {
        return most;
    }
    // A buffer that begins within a page locks one page more.
    let each = size.div_ceil(super::PAGE) * super::PAGE + super::PAGE;
    getrlimit(Resource::RLIMIT_MEMLOCK).map_or(1, |(soft, _)| (soft as usize / 2 / each).clamp(1, most))
}

//! The two ways to link a colliding element, compared: by a compare-swap at the end of its chain, as volumes do, and by the value that a swap of
//! the chain's last pointer returned (FAO; listing 2 of the paper, mended). For tests alone.

use super::volume::{CELL, Shape, Written, hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A volume that links by swaps: cells of `key | value | next`, spare ones behind them, and the last cell of each chain.
struct Swapped {
    words: Vec<AtomicU64>,
    last: Vec<AtomicU64>,
    next_spare: AtomicU64,
    cells: usize,
}

/// Where a process is killed in an insert.
#[derive(PartialEq)]
enum Killed {
    No,
    BetweenSwapAndLink,
}

impl Swapped {
    fn new(cells: usize, spare: usize) -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let (words, last) = (zeros((cells + spare) * CELL), zeros(cells));
        Swapped { words, last, next_spare: AtomicU64::new(cells as u64), cells }
    }

    /// Adds an element, which is new.
    fn insert(&self, key: u64, value: u64, killed: &Killed) {
        let cell = (u128::from(hash(key)) * self.cells as u128 >> 64) as usize;
        let words = &self.words;
        if words[cell * CELL].compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return words[cell * CELL + 1].store(value, Ordering::Release);
        }
        let own = self.next_spare.fetch_add(1, Ordering::AcqRel);
        let at = own as usize * CELL;
        words[at].store(key, Ordering::Release);
        words[at + 1].store(value, Ordering::Release);
        // 0: the cell of the table itself.
        let before = match self.last[cell].swap(own, Ordering::AcqRel) {
            0 => cell,
            before => before as usize,
        };
        if *killed == Killed::No {
            words[before * CELL + 2].store(own, Ordering::Release);
        }
    }

    fn has(&self, key: u64) -> bool {
        let mut at = (u128::from(hash(key)) * self.cells as u128 >> 64) as usize;
        loop {
            if self.words[at * CELL].load(Ordering::Acquire) == key {
                return true;
            }
            match self.words[at * CELL + 2].load(Ordering::Acquire) {
                0 => return false,
                next => at = next as usize,
            }
        }
    }
}

fn volume(shape: &Shape) -> Vec<AtomicU64> {
    let words: Vec<_> = (0..shape.words().unwrap()).map(|_| AtomicU64::new(0)).collect();
    shape.begin(&words).unwrap();
    words
}

/// What other processes insert behind a death between the swap and the link is never found. A compare-swap has no such moment.
#[test]
fn a_death_between_swap_and_link_loses_elements_of_others() {
    let swapped = Swapped::new(1, 10);
    swapped.insert(1, 1, &Killed::No);
    swapped.insert(2, 1, &Killed::BetweenSwapAndLink);
    swapped.insert(3, 1, &Killed::No);
    assert!(swapped.has(1) && !swapped.has(3), "the chain ends where the process died");
}

/// Nanoseconds of an insert by both, with 5 % and 25 % collisions, by one thread and by two at once (medians of eleven rounds).
///
/// `cargo test --release -p pagewire-active --lib linking -- --ignored --nocapture`
#[test]
#[ignore = "it measures"]
fn cost_of_linking() {
    const CELLS: usize = 1 << 20;
    for (percent, inserts) in [(5, 107_000), (25, 600_000)] {
        for threads in [1, 2] {
            let (mut chains, mut swaps, mut collisions) = (Vec::new(), Vec::new(), 0);
            for round in 0..11u64 {
                let keys = |thread: u64| {
                    (1..=inserts / threads).map(move |index| (round << 40 | thread << 32) + index)
                };
                let shape = Shape { cells: CELLS, spare: CELLS, value_words: 0 };
                let (words, swapped) = (volume(&shape), Swapped::new(CELLS, CELLS));
                chains.push(time(threads, |thread| {
                    keys(thread).for_each(|key| {
                        assert_eq!(shape.insert(&words[..], key, &[]).unwrap(), Written::Done);
                    });
                }));
                swaps.push(time(threads, |thread| {
                    keys(thread).for_each(|key| swapped.insert(key, 1 << 56, &Killed::No))
                }));
                collisions = shape.spare_taken(&words).unwrap();
                assert!((0..threads).flat_map(keys).all(|key| swapped.has(key)));
            }
            let share = collisions as f64 * 100.0 / inserts as f64;
            let each = |times: &mut Vec<f64>| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2] / inserts as f64
            };
            let (chain, swap) = (each(&mut chains), each(&mut swaps));
            println!(
                "{percent} % ({share:.1} %), {threads} threads: compare-swap {chain:.1} ns, swap {swap:.1} ns"
            );
        }
    }
}

/// Nanoseconds that all threads together take.
fn time(threads: u64, work: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    start.elapsed().as_nanos() as f64
}

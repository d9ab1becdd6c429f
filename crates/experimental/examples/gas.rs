//! A global address space (experimental): every process of the job adds to counters that lie in the memory of process 0.
//!
//! `PAGEWIRE_JOB_FILE=$(mktemp -d) PAGEWIRE_SIZE=2` in the environment of two of these make a job. One alone works, too.

use pagewire::Node;
use pagewire_experimental::gas::GlobalMemory;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Pages of each process.
const PAGES: usize = 64;

fn main() -> pagewire::Result<()> {
    let node = Node::from_env()?;
    let memory = GlobalMemory::new(&node, PAGES)?;
    let words = memory.words();

    // Stores to own memory, then loads of what lies in the next process.
    memory.own_words().for_each(|at| words[at].store(at as u64, Relaxed));
    node.barrier()?;
    let start = Instant::now();
    let next = memory.words_of((node.rank() + 1) % node.size());
    let sum: u64 = next.map(|at| words[at].load(Relaxed)).sum();
    let took = start.elapsed() / PAGES as u32;
    println!("process {}: the words of the next one make {sum}, {took:?} a page", node.rank());

    // A counter of all processes: a read-modify-write of one word.
    node.barrier()?;
    let counter = &words[memory.words_of(0).start];
    (0..1000).for_each(|_| _ = counter.fetch_add(1, Relaxed));
    node.barrier()?;
    println!("process {}: {} and {:?}", node.rank(), counter.load(Relaxed), memory.statistics());
    memory.leave(&node)
}

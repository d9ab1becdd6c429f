//! A global address space between processes: its memory model, programs of plain loads and stores, and what is left when a process dies.

use crate::not_checked::tell;
use crate::other::{Job, read_line, role, say};
use pagewire::Node;
use pagewire_active::UserfaultMemory;
use pagewire_experimental::gas::GlobalMemory;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::time::{Duration, Instant};

/// Words of a page.
const PAGE: usize = 512;
/// A fault may wait for other processes, which may have no processor.
const PATIENCE: Duration = Duration::from_secs(60);

/// 2 processes, and 4 with `PAGEWIRE_ACTIVE_PROCESSES=4`.
fn processes() -> usize {
    std::env::var("PAGEWIRE_ACTIVE_PROCESSES").map_or(2, |count| count.parse().unwrap())
}

/// Whether there is such memory here; says why not.
fn has_memory() -> bool {
    UserfaultMemory::new(1).map_err(|why| tell(format_args!("{why}"))).is_ok()
}

/// Runs `body` in all processes of a job, on a path.
fn in_a_job(test: &str, size: usize, path: &str, body: impl Fn(&Node) -> GlobalMemory) {
    if role().is_some() {
        let node = Node::from_env().unwrap();
        body(&node).leave(&node).unwrap();
        return say("well done");
    }
    if !has_memory() {
        return;
    }
    let mut job = Job::start(test, size, path);
    job.members.iter_mut().for_each(|member| _ = member.expect("well done"));
}

fn until(mut wished: impl FnMut() -> bool) {
    let start = Instant::now();
    while !wished() {
        assert!(start.elapsed() < PATIENCE, "it does not come");
        std::hint::spin_loop();
    }
}

#[test]
fn all_processes_give_the_same_number_of_pages() {
    in_a_job("gas::all_processes_give_the_same_number_of_pages", 2, "local", |node| {
        let refused = GlobalMemory::new(node, 1 + node.rank());
        let sentence = refused.err().expect("different numbers").to_string();
        let [own, other] = [1 + node.rank(), 2 - node.rank()];
        let expected = format!("makes it of {other} pages each, and this one of {own}");
        assert!(sentence.contains(&expected), "{sentence}");
        GlobalMemory::new(node, 1).unwrap()
    });
}

/// Message passing: who sees the flag sees what was stored before it, whether both lie in one page, or have different homes.
#[test]
fn message_passing() {
    const ROUNDS: u64 = 300;
    in_a_job("gas::message_passing", 2, "local", |node| {
        let memory = GlobalMemory::new(node, 2).unwrap();
        let words = memory.words();
        let near = [memory.words_of(0).start, memory.words_of(1).start];
        // The value and the flag.
        for (value, flag) in
            [(near[0], near[0] + 8), (near[0] + PAGE, near[1] + PAGE), (near[1], near[1] + PAGE + 1)]
        {
            if node.rank() == 0 {
                for round in 1..=ROUNDS {
                    words[value].store(round, Relaxed);
                    words[flag].store(round, Release); // A plain store on x86-64.
                }
            } else {
                until(|| {
                    let first = words[flag].load(Acquire);
                    let second = words[value].load(Acquire);
                    assert!(second >= first, "flag {first}, value {second}");
                    first == ROUNDS
                });
            }
            node.barrier().unwrap();
        }
        memory
    });
}

/// Coherence: all processes see the stores to one word in one order.
#[test]
fn coherence() {
    const ROUNDS: u64 = 400;
    in_a_job("gas::coherence", 2, "local", |node| {
        let memory = GlobalMemory::new(node, 1).unwrap();
        let word = &memory.words()[memory.words_of(1).start + 7];
        // One writer: values never go back.
        if node.rank() == 0 {
            (1..=ROUNDS).for_each(|value| word.store(value, Release));
        } else {
            let last = AtomicU64::new(0);
            until(|| {
                let value = word.load(Acquire);
                assert!(value >= last.swap(value, Relaxed));
                value == ROUNDS
            });
        }
        node.barrier().unwrap();
        // Two writers: a store that was seen to be overwritten never comes back.
        let own = 1000 * (1 + node.rank() as u64);
        let mut overwritten = Vec::new();
        let mut before = 0;
        for round in 0..ROUNDS {
            if round % 4 == 0 {
                word.store(own + round, Release);
            }
            let value = word.load(Acquire);
            assert!(!overwritten.contains(&value), "{value} came back");
            if value != before {
                overwritten.push(before);
                before = value;
            }
        }
        node.barrier().unwrap();
        if node.rank() == 0 {
            word.store(0, SeqCst);
        }
        node.barrier().unwrap();
        // Read-modify-writes are atomic.
        (0..ROUNDS).for_each(|_| _ = word.fetch_add(1, Relaxed));
        node.barrier().unwrap();
        assert_eq!(word.load(Acquire), 2 * ROUNDS);
        memory
    });
}

/// Store buffering: with a fence between a store and a load, one of two processes sees the other's store.
#[test]
fn store_buffering() {
    in_a_job("gas::store_buffering", 2, "local", |node| {
        let memory = GlobalMemory::new(node, 2).unwrap();
        let (words, rank) = (memory.words(), node.rank());
        let at = |rank: usize, page: usize| memory.words_of(rank).start + page * PAGE;
        let (own, others, seen) = (at(rank, 0), at(1 - rank, 0), at(rank, 1));
        node.barrier().unwrap();
        for round in 0..PAGE {
            words[own + round].store(1, Relaxed);
            fence(SeqCst);
            words[seen + round].store(2 + words[others + round].load(Relaxed), Relaxed);
        }
        node.barrier().unwrap();
        for round in 0..PAGE {
            let both = [0, 1].map(|rank| words[at(rank, 1) + round].load(Relaxed));
            assert!(both.contains(&3) && !both.contains(&0), "round {round}: {both:?}");
        }
        memory
    });
}

/// Independent reads of independent writes: two readers agree on the order of two writers' stores (`PAGEWIRE_ACTIVE_PROCESSES=4`).
#[test]
fn independent_reads_of_independent_writes() {
    if processes() < 4 && role().is_none() {
        return;
    }
    const ROUNDS: u64 = 200;
    in_a_job("gas::independent_reads_of_independent_writes", 4, "local", |node| {
        let memory = GlobalMemory::new(node, 4).unwrap();
        let (words, rank) = (memory.words(), node.rank());
        let at = |rank: usize| memory.words_of(rank).start;
        let mut pairs = Vec::new();
        node.barrier().unwrap();
        if rank < 2 {
            (1..=ROUNDS).for_each(|value| words[at(rank)].store(value, Release));
        } else {
            let (first, second) = if rank == 2 { (at(0), at(1)) } else { (at(1), at(0)) };
            until(|| {
                let pair = [words[first].load(Acquire), words[second].load(Acquire)];
                pairs.push(if rank == 2 { pair } else { [pair[1], pair[0]] });
                pair == [ROUNDS; 2]
            });
        }
        // What each reader saw, for the other one: reader 2 read x first, reader 3 read y first.
        let count = pairs.len().min(PAGE);
        for (index, pair) in pairs.iter().take(count).enumerate() {
            words[at(rank) + PAGE + index].store(pair[0], Relaxed);
            words[at(rank) + 2 * PAGE + index].store(pair[1], Relaxed);
        }
        words[at(rank) + 3 * PAGE].store(count as u64, Relaxed);
        node.barrier().unwrap();
        let of = |rank: usize| -> Vec<[u64; 2]> {
            let count = words[at(rank) + 3 * PAGE].load(Relaxed) as usize;
            let word = |page: usize, index: usize| words[at(rank) + page * PAGE + index].load(Relaxed);
            (0..count).map(|index| [word(1, index), word(2, index)]).collect()
        };
        // x then y of one, y then x of the other: x was there before y, and y before x.
        for [x, y] in of(2) {
            for [other_x, other_y] in of(3) {
                assert!(!(x > other_x && other_y > y), "({x}, {y}) and ({other_x}, {other_y})");
            }
        }
        memory
    });
}

/// Sorts words in place, by loads and stores: heapsort.
fn sort(words: &[AtomicU64]) {
    let get = |at: usize| words[at].load(Relaxed);
    let swap = |a: usize, b: usize| {
        let (first, second) = (get(a), get(b));
        words[a].store(second, Relaxed);
        words[b].store(first, Relaxed);
    };
    let sift = |mut at: usize, end: usize| {
        while 2 * at + 1 < end {
            let left = 2 * at + 1;
            let child = if left + 1 < end && get(left) < get(left + 1) { left + 1 } else { left };
            if get(at) >= get(child) {
                return;
            }
            swap(at, child);
            at = child;
        }
    };
    (0..words.len() / 2).rev().for_each(|at| sift(at, words.len()));
    for end in (1..words.len()).rev() {
        swap(0, end);
        sift(0, end);
    }
}

fn number(index: usize) -> u64 {
    (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5555
}

/// Each process sorts its part in place; then each merges a part of the result from all.
#[test]
fn a_sort_of_plain_loads_and_stores() {
    const PAGES: usize = 16;
    let run = |path: &str| {
        in_a_job("gas::a_sort_of_plain_loads_and_stores", processes(), path, |node| {
            let memory = GlobalMemory::new(node, 2 * PAGES).unwrap();
            let (words, rank, size) = (memory.words(), node.rank(), node.size());
            let count = PAGES * PAGE;
            let run = |rank: usize| &words[memory.words_of(rank).start..][..count];
            let result = |at: usize| &words[memory.words_of(at / count).start + count + at % count];
            (0..count).for_each(|index| run(rank)[index].store(number(rank * count + index), Relaxed));
            sort(run(rank));
            node.barrier().unwrap();
            // Values below this one are the results of processes before: numbers are evenly spread, and all different.
            let below = |value: u64| -> Vec<usize> {
                (0..size).map(|rank| run(rank).partition_point(|word| word.load(Relaxed) < value)).collect()
            };
            let step = u64::MAX / size as u64;
            let limit =
                |rank: usize| if rank == size { vec![count; size] } else { below(step * rank as u64) };
            let (mut heads, ends) = (limit(rank), limit(rank + 1));
            for at in heads.iter().sum::<usize>()..ends.iter().sum() {
                let left = (0..size).filter(|rank| heads[*rank] < ends[*rank]);
                let least = left.min_by_key(|rank| run(*rank)[heads[*rank]].load(Relaxed)).unwrap();
                result(at).store(run(least)[heads[least]].load(Relaxed), Relaxed);
                heads[least] += 1;
            }
            node.barrier().unwrap();
            let mut expected: Vec<u64> = (0..size * count).map(number).collect();
            expected.sort_unstable();
            assert!((0..size * count).all(|at| result(at).load(Relaxed) == expected[at]));
            memory
        });
    };
    if role().is_some() {
        return run("");
    }
    ["local", "udp"].into_iter().for_each(run);
}

/// Ranks of a random graph, in double buffers; each process has a part of the vertices and reads those of all.
#[test]
fn page_rank_of_plain_loads_and_stores() {
    const VERTICES: usize = 2 * PAGE;
    const EDGES: usize = 6;
    const ROUNDS: usize = 6;
    in_a_job("gas::page_rank_of_plain_loads_and_stores", processes(), "local", |node| {
        let memory = GlobalMemory::new(node, 4).unwrap();
        let (words, size) = (memory.words(), node.size());
        let all = size * VERTICES;
        let sources =
            |vertex: usize| (0..EDGES).map(move |edge| number(vertex * EDGES + edge) as usize % all);
        let mut degrees = vec![0u32; all];
        (0..all).flat_map(sources).for_each(|source| degrees[source] += 1);
        let place = |buffer: usize, vertex: usize| {
            &words[memory.words_of(vertex / VERTICES).start + buffer * VERTICES + vertex % VERTICES]
        };
        let new_rank = |vertex: usize, get: &dyn Fn(usize) -> f64| {
            let sum: f64 = sources(vertex).map(|source| get(source) / f64::from(degrees[source])).sum();
            0.15 / all as f64 + 0.85 * sum
        };
        let own = node.rank() * VERTICES..(node.rank() + 1) * VERTICES;
        own.clone().for_each(|vertex| place(0, vertex).store((1.0 / all as f64).to_bits(), Relaxed));
        for round in 0..ROUNDS {
            node.barrier().unwrap();
            let get = |vertex: usize| f64::from_bits(place(round % 2, vertex).load(Relaxed));
            own.clone().for_each(|vertex| {
                place(1 - round % 2, vertex).store(new_rank(vertex, &get).to_bits(), Relaxed);
            });
        }
        node.barrier().unwrap();
        let mut expected = vec![1.0 / all as f64; all];
        for _ in 0..ROUNDS {
            expected = (0..all).map(|vertex| new_rank(vertex, &|source| expected[source])).collect();
        }
        for (vertex, rank) in expected.iter().enumerate() {
            assert_eq!(place(ROUNDS % 2, vertex).load(Relaxed), rank.to_bits(), "vertex {vertex}");
        }
        memory
    });
}

/// Handlers at the home fill pages as they are first touched, and see who touches them; dirty bits tell of stores.
#[test]
fn handlers_see_accesses_and_dirty_bits_stores() {
    in_a_job("gas::handlers_see_accesses_and_dirty_bits_stores", 2, "local", |node| {
        let memory = GlobalMemory::new(node, 4).unwrap();
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let notes = seen.clone();
        memory.on_access(move |access| {
            let first = access.words.start as u64;
            notes.lock().unwrap().push((access.by, access.is_store, access.words.start));
            if let Some(content) = access.content_mut().filter(|content| content[0] == 0) {
                content.iter_mut().zip(first + 1..).for_each(|(word, value)| *word = value);
            }
        });
        node.barrier().unwrap();
        let base = memory.words_of(0).start;
        if node.rank() == 1 {
            for at in [base, base + 511, base + 2 * PAGE + 3] {
                assert_eq!(memory.words()[at].load(Relaxed), at as u64 + 1, "filled by the handler");
            }
            memory.words()[base + 5].store(99, Relaxed);
        }
        node.barrier().unwrap();
        if node.rank() == 0 {
            let expected = [(1, false, base), (1, false, base + 2 * PAGE), (1, true, base)];
            assert_eq!(*seen.lock().unwrap(), expected);
            assert_eq!(memory.take_dirty(), [base]);
            assert_eq!(memory.words()[base + 5].load(Relaxed), 99, "it is taken back from who stored it");
            assert_eq!((memory.take_dirty(), memory.take_dirty()), (vec![base], vec![]));
        }
        memory
    });
}

/// A process is killed: stores that it did not give back are lost, its own pages give a signal, and the rest goes on.
#[test]
fn what_a_killed_process_leaves() {
    const TEST: &str = "gas::what_a_killed_process_leaves";
    if role().is_some() {
        let node = Node::from_env().unwrap();
        let memory = GlobalMemory::new(&node, 1).unwrap();
        let words = memory.words();
        let (mine, other) = (memory.own_words().start, memory.words_of(1 - node.rank()).start);
        if node.rank() == 1 {
            read_line();
            words[other].store(5, Relaxed);
            words[other + 1].store(6, Relaxed);
            say("stored");
            read_line();
            return;
        }
        words[mine + 2].store(7, Relaxed);
        say("ready");
        read_line();
        // The page was with the victim. What is left is what it was when it left.
        assert_eq!((words[mine].load(Relaxed), words[mine + 2].load(Relaxed)), (0, 7));
        words[mine].store(8, Relaxed);
        assert_eq!((memory.statistics().lost_stores, memory.lost()), (1, vec![1]));
        say("goes on");
        read_line();
        let value = words[other].load(Relaxed);
        say(&format!("read {value}"));
        return;
    }
    if !has_memory() {
        return;
    }
    let mut job = Job::start(TEST, 2, "local");
    job.members[0].expect("ready");
    job.members[1].tell("store");
    job.members[1].expect("stored");
    assert!(job.members[1].kill());
    job.members[0].tell("go on");
    job.members[0].expect("goes on");
    job.members[0].tell("touch");
    let status = job.members[0].wait();
    assert_eq!(status.signal(), Some(11), "{status:?}");
}

/// A process that stores to a page of another home is killed at any instant: the home goes on, with a page that was whole at some time
/// (`PAGEWIRE_ACTIVE_KILLS`: how often).
#[test]
fn a_home_goes_on_when_a_process_that_stores_is_killed() {
    const TEST: &str = "gas::a_home_goes_on_when_a_process_that_stores_is_killed";
    if role().is_some() {
        let node = Node::from_env().unwrap();
        let memory = GlobalMemory::new(&node, 2).unwrap();
        let words = &memory.words()[memory.words_of(0).start..];
        say("begun");
        if node.rank() == 1 {
            for value in 1.. {
                words[1].store(value, Relaxed);
                words[0].store(value, Release);
                words[PAGE].fetch_add(1, Relaxed);
            }
        }
        let look = || {
            let first = words[0].load(Acquire);
            let second = words[1].load(Acquire);
            assert!(second >= first, "{first} and {second}");
            words[PAGE].fetch_add(1, Relaxed);
        };
        until(|| {
            look();
            !memory.lost().is_empty()
        });
        (0..100).for_each(|_| look());
        words[0].store(u64::MAX - 1, Relaxed);
        words[1].store(u64::MAX, Relaxed);
        look();
        return say("survived");
    }
    if !has_memory() {
        return;
    }
    let kills = std::env::var("PAGEWIRE_ACTIVE_KILLS").map_or(4, |kills| kills.parse().unwrap());
    let mut random = 11u64;
    for round in 0..kills {
        let mut job = Job::start(TEST, 2, ["local", "udp"][round % 2]);
        job.members.iter_mut().for_each(|member| _ = member.expect("begun"));
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        std::thread::sleep(Duration::from_micros((random >> 33) % 50_000));
        assert!(job.members[1].kill());
        job.members[0].expect("survived");
    }
}

#[test]
fn memory_of_no_pages_is_refused() {
    let node = Node::alone().unwrap();
    assert!(GlobalMemory::new(&node, 0).is_err());
    assert!(GlobalMemory::new(&node, usize::MAX).is_err());
    if !has_memory() {
        return;
    }
    // One process alone has such memory, too.
    let memory = GlobalMemory::new(&node, 2).unwrap();
    memory.words()[700].store(3, Relaxed);
    assert_eq!((memory.words()[700].load(Relaxed), memory.own_words()), (3, 0..1024));
}

//! Both processes of a figure of the native interface, which the bench starts as `pagewire-lab probe native NAME SIZE TIMES [STRATEGY]`.
//!
//! Rank 1 of the job of two measures and prints; rank 0 has the memory. Of a ping-pong both do the same.

pub mod accesses;
mod active;
mod batch;
pub(crate) mod checkpoint;
mod comparison;
mod gathering;
pub mod hash_table;
mod processes;
mod rendezvous;
pub mod scheme_names;
mod strategy;

pub(crate) use processes::compute;
pub use strategy::Strategy;

use allocator_api2::vec::Vec as VecIn;
use anyhow::{Context, Result, bail, ensure};
use pagewire::{Node, Operation, Region, RemoteRegion, Rights, Token};
use pagewire_cli::median;
use pagewire_heap::Ordinary;
use rendezvous::Measurement;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

/// Operations that are under way at once where a rate is measured, as of perftest's READs and of UCX.
const WINDOW: u64 = 16;

/// Allocations between two looks at the clock, which takes as long as one of them.
const BATCH: u64 = 64;

/// What a run gives.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Microseconds, or 10^6 bytes a second.
    pub(crate) value: f64,
    /// The path, and why it is no better one; empty where none is involved.
    pub(crate) path: String,
    /// What others need for it that the same process measures.
    #[serde(default)]
    pub(crate) beside: Vec<f64>,
}

/// Measures one benchmark; `None` at the process that only has the memory.
///
/// # Errors
/// With what went wrong.
pub(crate) fn measure(
    name: &str,
    size: u64,
    times: u64,
    strategy: Option<Strategy>,
) -> Result<Option<Figure>> {
    ensure!(size > 0 && size % 8 == 0 && size <= 1 << 30 && times >= 10, "these are no sizes to measure");
    if name == "heap" {
        return heap(size, times).map(Some);
    }
    let node = Node::from_env()?;
    ensure!(node.size() == 2, "it takes a job of two processes");
    if let Some(what) = Measurement::by_name(name) {
        return rendezvous::measure(&node, what, (size, times), strategy);
    }
    // Behind the data, a word for signals, or as many bytes once more.
    let table = node.zeroed::<u64>(2 * size as usize / 8)?;
    let tokens = node.all_gather(&table.export(Rights::all())?)?;
    let token = tokens[1 - node.rank()];
    let remote = node.open(&token)?;
    let pair = Pair { node: &node, token, remote, table, size, is_caller: node.rank() == 1 };
    let owner = active::start(&pair, name, times)?;
    let batched = batch::start(&pair, name)?;
    node.barrier()?;
    let value = match &batched {
        Some(batched) => batched.measure(&pair, name, times)?,
        None => pair.measure(name, times)?,
    };
    let path = path_of(&node, &token)?;
    node.barrier()?;
    owner.map_or(Ok(()), active::Owner::end)?;
    batched.map_or(Ok(()), |batched| batched.end(name, times))?;
    Ok(pair.is_caller.then_some(Figure { value, path, beside: Vec::new() }))
}

/// The path to the memory of a token, and why it is no better one.
fn path_of(node: &Node, token: &Token) -> Result<String> {
    let path = node.explain(token)?;
    Ok(path.split_once(": ").map_or(path.clone(), |(_, path)| path.to_owned()))
}

/// What both processes have.
struct Pair<'a> {
    node: &'a Node,
    table: Region<u64>,
    /// Of the other one's memory.
    token: Token,
    remote: RemoteRegion,
    size: u64,
    /// Whether it measures.
    is_caller: bool,
}

impl Pair<'_> {
    fn measure(&self, name: &str, times: u64) -> Result<f64> {
        let warm_up = times / 10;
        match name {
            "put" | "signal" => {
                let first = self.ping_pong(name == "signal", 1..=warm_up)?;
                drop(first);
                half(self.ping_pong(name == "signal", warm_up + 1..=warm_up + times)?)
            }
            // The other process waits.
            _ if !self.is_caller => Ok(0.0),
            "get" => {
                let mut buffer = self.buffer();
                self.latency(times, || {
                    buffer = self.remote.get_into(0, std::mem::take(&mut buffer)).wait()?;
                    Ok(())
                })
            }
            "fetch_add" => self.latency(times, || {
                black_box(self.remote.fetch_add(0, 1).wait()?);
                Ok(())
            }),
            "compare_swap" => {
                let mut value = 0;
                self.latency(times, || {
                    let found = self.remote.compare_swap(0, value, value + 1).wait()?;
                    ensure!(found == value, "the word is {found} in place of {value}");
                    value += 1;
                    Ok(())
                })
            }
            "view" => self.view(times, None),
            "view_copied" => self.view(times, Some(self.buffer())),
            // The owner of the second one has another region, with attributes.
            "put_bw" | "put_bw_beside" => self.rate(times, |buffer| self.remote.put(0, buffer)),
            "get_bw" => self.rate(times, |buffer| self.remote.get_into(0, buffer)),
            _ => match active::measure(self, name, times) {
                Some(measured) => measured,
                None => bail!("no benchmark has the name {name}"),
            },
        }
    }

    fn buffer(&self) -> Vec<u64> {
        vec![0; self.size as usize / 8]
    }

    /// Puts to and fro, each when the one before has come; the microseconds of each round.
    ///
    /// A plain put shows itself by its last word, which is written last; one with a signal by that.
    fn ping_pong(&self, has_signal: bool, rounds: std::ops::RangeInclusive<u64>) -> Result<Vec<f64>> {
        let watched = if has_signal { self.size } else { self.size - 8 };
        let comes = self.table.signal(watched)?;
        let last = self.size as usize / 8 - 1;
        let mut buffer = self.buffer();
        let mut rows = Vec::with_capacity(rounds.clone().count());
        for round in rounds {
            let begun = Instant::now();
            if !self.is_caller {
                comes.wait_until(|value| value >= round)?;
            }
            buffer[last] = round;
            let own = std::mem::take(&mut buffer);
            let put = if has_signal {
                self.remote.put_signal(0, own, self.remote.signal(self.size).add(1))
            } else {
                self.remote.put(0, own)
            };
            if self.is_caller {
                comes.wait_until(|value| value >= round)?;
            }
            rows.push(begun.elapsed().as_secs_f64() * 1e6);
            buffer = put.wait()?;
        }
        Ok(rows)
    }

    /// The median of the microseconds that an operation takes.
    fn latency(&self, times: u64, mut operation: impl FnMut() -> Result<()>) -> Result<f64> {
        for _ in 0..times / 10 {
            operation()?;
        }
        let mut row = || {
            let begun = Instant::now();
            operation()?;
            Ok(begun.elapsed().as_secs_f64() * 1e6)
        };
        let mut rows = (0..times).map(|_| row()).collect::<Result<Vec<f64>>>()?;
        median(&mut rows).context("nothing was measured")
    }

    /// The median of the microseconds that a put of registered memory takes; of one with a copy of ordinary memory into it before.
    fn view(&self, times: u64, ordinary: Option<Vec<u64>>) -> Result<f64> {
        let heap = self.node.heap()?;
        let mut registered = VecIn::<u64, _>::new_in(heap.clone());
        registered.resize(self.size as usize / 8, 0);
        self.latency(times, || {
            let mut buffer = std::mem::replace(&mut registered, VecIn::new_in(heap.clone()));
            if let Some(ordinary) = &ordinary {
                buffer.copy_from_slice(black_box(ordinary));
            }
            registered = self.remote.put(0, black_box(buffer)).wait()?;
            Ok(())
        })
    }

    /// 10^6 bytes a second, with several operations under way.
    fn rate(&self, times: u64, start: impl Fn(Vec<u64>) -> Operation<Vec<u64>>) -> Result<f64> {
        let mut spare: Vec<Vec<u64>> = (0..WINDOW).map(|_| self.buffer()).collect();
        let mut in_flight = VecDeque::new();
        let mut begun = Instant::now();
        for round in 0..times + times / 10 {
            if round == times / 10 {
                begun = Instant::now();
            }
            let buffer = match spare.pop() {
                Some(buffer) => buffer,
                None => in_flight.pop_front().map_or_else(|| Ok(self.buffer()), Operation::wait)?,
            };
            in_flight.push_back(start(buffer));
        }
        for operation in in_flight {
            operation.wait()?;
        }
        Ok((times * self.size) as f64 / begun.elapsed().as_secs_f64() / 1e6)
    }
}

/// Half of the median of rounds.
fn half(mut rows: Vec<f64>) -> Result<f64> {
    Ok(median(&mut rows).context("nothing was measured")? / 2.0)
}

/// Microseconds that memory of the registered heap takes to be had and given back; of the same allocator's plain memory, and of the C library's.
fn heap(size: u64, times: u64) -> Result<Figure> {
    let node = Node::alone()?;
    let (heap, plain) = (node.heap()?, Ordinary::new()?);
    let size = size as usize;
    let value = batches(times, || drop(black_box(VecIn::<u64, _>::with_capacity_in(size / 8, &heap))));
    let same = batches(times, || drop(black_box(VecIn::<u64, _>::with_capacity_in(size / 8, plain))));
    let system = batches(times, || drop(black_box(Vec::<u64>::with_capacity(size / 8))));
    Ok(Figure { value: value?, path: String::new(), beside: vec![same?, system?] })
}

fn batches(times: u64, once: impl Fn()) -> Result<f64> {
    let batch = || {
        let begun = Instant::now();
        (0..BATCH).for_each(|_| once());
        begun.elapsed().as_secs_f64() * 1e6 / BATCH as f64
    };
    batch();
    let mut rows: Vec<f64> = (0..(times / BATCH).max(3)).map(|_| batch()).collect();
    median(&mut rows).context("nothing was measured")
}

//! A process of a benchmark of the hash table, which the bench starts as `pagewire probe hashtable OPERATION SCHEME CELLS INSERTS ROUNDS`.
//!
//! Each process inserts so many elements with random keys into a table of so many cells a process, and all walk their chains: each element must be
//! there. Rank 0 prints the median of the rounds.

mod gathering;
mod scheme;

pub use self::scheme::TableScheme;

use self::gathering::Gathering;
use self::scheme::Table;
use super::Figure;
use crate::figures::median;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pagewire::Node;
use std::sync::Arc;
use std::time::Instant;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    Insert,
    InsertBatch,
    Lookup,
}

/// A size to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) operation: Operation,
    pub(crate) scheme: TableScheme,
    /// Cells of each process.
    pub(crate) cells: usize,
    /// Elements that each process inserts.
    pub(crate) inserts: u64,
    pub(crate) rounds: u32,
}

impl Load {
    /// By the operands of a probe.
    pub(crate) fn parse(operands: &[String]) -> Result<Load> {
        let operand = |index: usize| operands.get(index).context("an operand is missing");
        let operation = Operation::from_str(operand(0)?, false).map_err(anyhow::Error::msg)?;
        let scheme = TableScheme::from_str(operand(1)?, false).map_err(anyhow::Error::msg)?;
        let (cells, inserts) = (operand(2)?.parse()?, operand(3)?.parse()?);
        Ok(Load { operation, scheme, cells, inserts, rounds: operand(4)?.parse()? })
    }

    /// The operands of a probe.
    pub(crate) fn operands(&self) -> Vec<String> {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let Load { operation, scheme, cells, inserts, rounds } = self;
        let numbers = [cells.to_string(), inserts.to_string(), rounds.to_string()];
        [name(operation.to_possible_value()), name(scheme.to_possible_value())]
            .into_iter()
            .chain(numbers)
            .collect()
    }
}

/// Measures as a member of a job. `None`: another one tells the figure.
///
/// # Errors
/// With what went wrong; an element that was lost is one.
pub(crate) fn measure(load: Load) -> Result<Option<Figure>> {
    ensure!(
        load.cells > 0 && load.inserts > 0 && load.rounds > 0,
        "there is nothing to insert, or nothing to insert into"
    );
    let node = Arc::new(Node::from_env()?);
    stay_on_one_processor(node.rank())?;
    let (table, gathering) = (Table::join(&node, &load)?, Gathering::make(&node)?);
    // The first round finds pages that nobody has touched, and does not count.
    let mut rates = (0..=load.rounds)
        .map(|round| measure_once((&node, &gathering), &table, &load, round))
        .collect::<Result<Vec<_>>>()?;
    rates.remove(0);
    let value = median(&mut rates).context("no round")?;
    let path = path_to_next(&node)?;
    node.barrier()?;
    Ok((node.rank() == 0).then_some(Figure { value, path, beside: Vec::new() }))
}

/// The path to the next process, as all have the same.
fn path_to_next(node: &Node) -> Result<String> {
    let word = node.words(1)?;
    let tokens = node.all_gather(&word.export(pagewire::Rights::READ)?)?;
    let path = super::path_of(node, &tokens[(node.rank() + 1) % node.size()])?;
    node.barrier()?;
    Ok(path)
}

/// Operations a second of all processes together.
fn measure_once(
    (node, gathering): (&Node, &Gathering),
    table: &Table,
    load: &Load,
    round: u32,
) -> Result<f64> {
    table.clear();
    node.barrier()?;
    let keys = || Keys::of(node.rank(), round).take(load.inserts as usize);
    if load.operation == Operation::Lookup {
        table.insert_batch(keys())?;
        table.flush()?;
    }
    gathering.wait(|| table.poll())?;
    let start = Instant::now();
    match load.operation {
        Operation::Insert => {
            keys().try_for_each(|key| table.insert(key))?;
            table.flush()?;
        }
        Operation::InsertBatch => {
            table.insert_batch(keys())?;
            table.flush()?;
        }
        Operation::Lookup => {
            for key in keys() {
                ensure!(table.has(key)?, "the element {key} was inserted, and is not found");
            }
        }
    }
    gathering.wait(|| table.poll())?;
    let elapsed = start.elapsed().as_secs_f64();
    verify(node, table, load)?;
    Ok(load.inserts as f64 * node.size() as f64 / elapsed)
}

/// Walks all chains: each element must be there once.
fn verify(node: &Node, table: &Table, load: &Load) -> Result<()> {
    let own = table.elements()?;
    let all = node.all_gather_bytes(&own.to_le_bytes())?;
    let all: u64 = all.iter().filter_map(|bytes| Some(u64::from_le_bytes(bytes[..].try_into().ok()?))).sum();
    let expected = load.inserts * node.size() as u64;
    ensure!(all == expected, "{expected} elements were inserted, and the chains have {all}");
    Ok(())
}

/// Random keys that are not 0: xorshift64*, whose period is 2^64 - 1, so that none comes twice. Each process and round is elsewhere in it.
struct Keys(u64);

impl Keys {
    fn of(rank: usize, round: u32) -> Keys {
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
fn stay_on_one_processor(rank: usize) -> Result<()> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let processors: Vec<usize> =
        (0..CpuSet::count()).filter(|number| allowed.is_set(*number).unwrap_or(false)).collect();
    let mut one = CpuSet::new();
    one.set(processors[rank % processors.len()])?;
    sched_setaffinity(Pid::from_raw(0), &one)?;
    Ok(())
}

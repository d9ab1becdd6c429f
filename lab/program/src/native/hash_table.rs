//! A process of a benchmark of the hash table, which the bench starts as `pagewire-lab probe hashtable OPERATION SCHEME CELLS INSERTS ROUNDS
//! [COMPUTATION [INTERVAL [HANDLERS]]]`.
//!
//! Each process inserts so many elements with random keys into a table of so many cells a process, and all walk their chains: each element must be
//! there. Rank 0 prints the median of the rounds.

mod scheme;

pub use self::scheme::TableScheme;

use self::scheme::Table;
use super::gathering::Gathering;
use super::processes::{Keys, compute, path_to_next, stay_on_one_processor};
use super::{Figure, comparison};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use pagewire::Node;
use pagewire_cli::median;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// How long each process computes between two inserts.
    pub(crate) computation: Duration,
    /// Own inserts between two looks for messages, of the schemes that look between them.
    pub(crate) interval: u32,
    /// Processes that own the elements and insert none, where not all do both (AM-Onload by cores); 0: all do both.
    pub(crate) handlers: usize,
}

impl Load {
    /// By the operands of a probe.
    pub(crate) fn parse(operands: &[String]) -> Result<Load> {
        let operand = |index: usize| operands.get(index).context("an operand is missing");
        let operation = Operation::from_str(operand(0)?, false).map_err(anyhow::Error::msg)?;
        let scheme = TableScheme::from_str(operand(1)?, false).map_err(anyhow::Error::msg)?;
        let optional = |index: usize, default: u64| -> Result<u64> {
            operands.get(index).map_or(Ok(default), |text| Ok(text.parse()?))
        };
        Ok(Load {
            computation: Duration::from_nanos(optional(5, 0)?),
            interval: optional(6, comparison::INTERVAL.into())?.try_into()?,
            handlers: optional(7, 0)?.try_into()?,
            ..Load::plain(operation, scheme, operand(2)?.parse()?, operand(3)?.parse()?, operand(4)?.parse()?)
        })
    }

    /// Inserts one after the other by all processes.
    pub(crate) fn plain(
        operation: Operation,
        scheme: TableScheme,
        cells: usize,
        inserts: u64,
        rounds: u32,
    ) -> Load {
        let interval = comparison::INTERVAL;
        Load { operation, scheme, cells, inserts, rounds, computation: Duration::ZERO, interval, handlers: 0 }
    }

    /// Elements that all processes insert.
    fn all(&self, node: &Node) -> u64 {
        self.inserts * (node.size() - self.handlers) as u64
    }

    /// The operands of a probe.
    pub(crate) fn operands(&self) -> Vec<String> {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let Load { operation, scheme, cells, inserts, rounds, computation, interval, handlers } = self;
        let numbers = [
            cells.to_string(),
            inserts.to_string(),
            rounds.to_string(),
            computation.as_nanos().to_string(),
            interval.to_string(),
            handlers.to_string(),
        ];
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
        load.cells > 0 && load.inserts > 0 && load.rounds > 0 && load.interval > 0,
        "there is nothing to insert, or nothing to insert into"
    );
    let node = Arc::new(Node::from_env()?);
    ensure!(
        load.handlers == 0 || load.handlers < node.size(),
        "of {} processes {} are to handle alone: at least one is to insert",
        node.size(),
        load.handlers
    );
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

/// Operations a second of all processes together.
fn measure_once(
    (node, gathering): (&Node, &Gathering),
    table: &Table,
    load: &Load,
    round: u32,
) -> Result<f64> {
    table.clear()?;
    node.barrier()?;
    let inserts = if node.rank() < load.handlers { 0 } else { load.inserts };
    let keys = || Keys::of(node.rank(), round).take(inserts as usize);
    if load.operation == Operation::Lookup {
        table.insert_batch(keys())?;
        table.flush()?;
    }
    gathering.wait(|| table.poll())?;
    let start = Instant::now();
    match load.operation {
        Operation::Insert => {
            keys().try_for_each(|key| {
                compute(load.computation);
                table.insert(key)
            })?;
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
    Ok(load.all(node) as f64 / elapsed)
}

/// Walks all chains: each element must be there once.
fn verify(node: &Node, table: &Table, load: &Load) -> Result<()> {
    let own = table.elements()?;
    let all = node.all_gather_bytes(&own.to_le_bytes())?;
    let all: u64 = all.iter().filter_map(|bytes| Some(u64::from_le_bytes(bytes[..].try_into().ok()?))).sum();
    let expected = load.all(node);
    ensure!(all == expected, "{expected} elements were inserted, and the chains have {all}");
    Ok(())
}

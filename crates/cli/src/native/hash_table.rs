//! A process of a benchmark of the hash table, which the bench starts as `pagewire probe hashtable OPERATION SCHEME CELLS INSERTS ROUNDS`.
//!
//! Each process inserts so many elements with random keys into a table of so many cells a process, and all walk their chains: each element must be
//! there. Rank 0 prints the median of the rounds.

use super::Figure;
use super::comparison::{self, Looks};
use crate::figures::median;
use crate::limits::BENCH_RUN;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pagewire::{Atomic, Node, Region, RemoteRegion, Rights};
use pagewire_active::hash_table::{Scheme, Service};
use pagewire_active::{Events, HashTable, TableOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    Insert,
    InsertBatch,
    Lookup,
}

/// Who changes the volume of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableScheme {
    /// The caller where the memory is mapped, else the owner's handler
    Nearest,
    /// The owner's handler: one put an element
    Handler,
    /// The caller, by gets, puts and atomics
    Operations,
    /// Active puts: an event wakes a thread of the owner (as handler)
    AaInt,
    /// Active puts: the owner looks at its log between its own inserts
    AaPoll,
    /// Active puts: a thread of the owner looks at its log and never sleeps
    AaSp,
    /// For comparison: the caller, by atomics and puts as in listing 2 of the paper, mended
    Rma,
    /// For comparison: a message for each element, which the owner handles between its own inserts
    Am,
    /// For comparison: as am, but the owner looks half as often each time there was no message
    AmExp,
    /// For comparison: as am, but a thread of the owner handles messages and never sleeps
    AmOnload,
    /// For comparison: as am, but each message wakes a thread of the owner
    AmInts,
    /// For comparison: messages of 63 elements each
    AmAggregated,
}

/// How a scheme is made.
enum Made {
    Product(Scheme, Service),
    Compared(comparison::Scheme),
}

impl TableScheme {
    fn made(self) -> Made {
        let events = Service::Events(Events::default());
        match self {
            TableScheme::Nearest => Made::Product(Scheme::Nearest, events),
            TableScheme::Handler | TableScheme::AaInt => Made::Product(Scheme::Handler, events),
            TableScheme::Operations => Made::Product(Scheme::Operations, events),
            TableScheme::AaPoll => Made::Product(Scheme::Handler, Service::Owner),
            TableScheme::AaSp => Made::Product(Scheme::Handler, Service::Polling),
            TableScheme::Rma => Made::Compared(comparison::Scheme::Rma),
            TableScheme::Am => Made::Compared(comparison::Scheme::Am(Looks::Regularly)),
            TableScheme::AmExp => Made::Compared(comparison::Scheme::Am(Looks::BacksOff)),
            TableScheme::AmOnload => Made::Compared(comparison::Scheme::Am(Looks::Thread)),
            TableScheme::AmInts => Made::Compared(comparison::Scheme::Am(Looks::Events)),
            TableScheme::AmAggregated => Made::Compared(comparison::Scheme::Aggregated),
        }
    }
}

/// A table, by whichever scheme.
enum Table {
    Product(HashTable),
    Compared { table: comparison::Table, processes: usize },
}

impl Table {
    fn join(node: &Arc<Node>, load: &Load) -> Result<Table> {
        let spare = usize::try_from(load.inserts)?.saturating_mul(2).saturating_add(1);
        match load.scheme.made() {
            Made::Product(scheme, service) => {
                let options = TableOptions { cells: load.cells, spare, value_bytes: 0, scheme };
                Ok(Table::Product(HashTable::join_served(node, &options, service)?))
            }
            Made::Compared(scheme) => {
                ensure!(
                    load.operation == Operation::Insert,
                    "a scheme for comparison has inserts alone: measure hashtable with it, or take another scheme for the other rows"
                );
                // All elements may have one owner.
                let spare = spare.saturating_mul(node.size());
                let table = comparison::Table::join(node, scheme, load.cells, spare)?;
                Ok(Table::Compared { table, processes: node.size() })
            }
        }
    }

    fn insert(&self, key: u64) -> Result<()> {
        match self {
            Table::Product(table) => {
                table.insert(key, &[])?;
                table.poll();
                Ok(())
            }
            // Keys are random.
            Table::Compared { table, processes } => table.insert((key % *processes as u64) as usize, key),
        }
    }

    fn insert_batch(&self, keys: impl Iterator<Item = u64>) -> Result<()> {
        match self {
            Table::Product(table) => Ok(table.insert_batch(keys.map(|key| (key, &[][..])))?),
            Table::Compared { .. } => bail!("a scheme for comparison has no batches"),
        }
    }

    fn has(&self, key: u64) -> Result<bool> {
        match self {
            Table::Product(table) => Ok(table.lookup(key)?.is_some()),
            Table::Compared { .. } => bail!("a scheme for comparison has no lookups"),
        }
    }

    fn flush(&self) -> Result<()> {
        match self {
            Table::Product(table) => Ok(table.flush()?),
            Table::Compared { table, .. } => table.flush(),
        }
    }

    /// Handles what others have sent here, if no thread does.
    fn poll(&self) -> Result<()> {
        match self {
            Table::Product(table) => {
                if table.poll() == 0 {
                    std::thread::yield_now();
                }
                Ok(())
            }
            Table::Compared { table, .. } => table.poll(true),
        }
    }

    fn clear(&self) {
        match self {
            Table::Product(table) => table.clear(),
            Table::Compared { table, .. } => table.clear(),
        }
    }

    fn elements(&self) -> Result<u64> {
        match self {
            Table::Product(table) => Ok(table.statistics()?.elements as u64),
            Table::Compared { table, .. } => table.elements(),
        }
    }
}

/// A barrier in which processes go on with what others wait for.
struct Gathering {
    words: Region<u64, Atomic>,
    others: Vec<RemoteRegion>,
    rank: usize,
    rounds: AtomicU64,
}

impl Gathering {
    fn make(node: &Node) -> Result<Gathering> {
        let words = node.words(node.size())?;
        let tokens = node.all_gather(&words.export(Rights::all())?)?;
        let others = tokens.iter().enumerate().filter(|(rank, _)| *rank != node.rank());
        let others = others.map(|(_, token)| node.open(token)).collect::<Result<_, _>>()?;
        Ok(Gathering { words, others, rank: node.rank(), rounds: AtomicU64::new(0) })
    }

    /// Waits until all are here.
    fn wait(&self, poll: impl Fn() -> Result<()>) -> Result<()> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        self.words.words()[self.rank].store(round, Ordering::Release);
        let puts: Vec<_> =
            self.others.iter().map(|other| other.put_value(8 * self.rank as u64, round)).collect();
        let start = Instant::now();
        while self.words.words().iter().any(|word| word.load(Ordering::Acquire) < round) {
            poll()?;
            ensure!(
                start.elapsed() < BENCH_RUN,
                "another process has not come within {} s",
                BENCH_RUN.as_secs()
            );
        }
        puts.into_iter().try_for_each(|put| put.wait().map(drop))?;
        Ok(())
    }
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

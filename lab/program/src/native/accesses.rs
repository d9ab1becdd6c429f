//! A process of a benchmark of counted accesses, of logged gets, or of the sort, by scheme (PAPERS AA-10, AA-12). The bench starts it as
//! `pagewire-lab probe accesses WORKLOAD SCHEME SIZE TIMES ROUNDS [COMPUTATION [EACH]]`.
//!
//! Each process accesses the memory of random other ones, which do the same. What was counted, logged or sorted is verified behind each round, against
//! the sequences of all processes, which each can make anew. Rank 0 prints the median of the rounds.
//!
//! `counter` has the schemes that count, `all_reduce` the collective operation of one of them. `logged_gets` has the schemes that log gets, which `gets`
//! and `sort` use. None but the active puts and gets is a part of the product.

mod all_reduce;
mod counter;
mod gets;
mod logged_gets;
mod sort;

use super::Figure;
use super::gathering::Gathering;
use super::processes::{path_to_next, stay_on_one_processor};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use pagewire::{Node, RemoteRegion, Token};
use pagewire_cli::median;
use std::time::Duration;

/// Operations of a process that are under way at once.
const WINDOW: usize = 16;

/// Accesses between two looks at the log or for messages, and between two sums of all processes: where nothing else is said.
const LOOKS: u64 = 8;
const SUMS: u64 = 16;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Puts that are counted, by page.
    Counter,
    /// Gets whose data are logged at their owner.
    #[value(name = "get_logged")]
    GetLogged,
    /// The exchange of a sort, by gets whose data are logged.
    Sort,
}

/// Who counts accesses, or logs what gets return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessScheme {
    /// get_logged, sort: the owner's pages log what gets return
    Aa,
    /// counter: the owner's pages log accesses, and the owner counts records between its own
    AaPoll,
    /// counter, get_logged, sort: the caller, by atomics and puts
    Rma,
    /// counter: each access is a message to the owner's key-value store
    AKv,
    /// counter: each caller counts its own, and all sum up by a collective operation
    Allreduce,
    /// get_logged, sort: the caller sends data back in a message
    Am,
    /// counter, get_logged, sort: nobody counts or logs
    None,
}

impl Workload {
    /// The schemes that it has: active accesses first, no service at all last.
    pub(crate) const fn schemes(self) -> &'static [AccessScheme] {
        use AccessScheme::{AKv, Aa, AaPoll, Allreduce, Am, None, Rma};
        match self {
            Workload::Counter => &[AaPoll, Rma, AKv, Allreduce, None],
            Workload::GetLogged | Workload::Sort => &[Aa, Rma, Am, None],
        }
    }
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) workload: Workload,
    pub(crate) scheme: AccessScheme,
    /// Bytes of an access.
    pub(crate) size: u64,
    /// Accesses of each process; of the sort: keys.
    pub(crate) times: u64,
    pub(crate) rounds: u32,
    /// How long each process computes between two accesses.
    pub(crate) computation: Duration,
    /// Accesses between two looks, or two sums; 0: as many as [`LOOKS`] or [`SUMS`] says.
    pub(crate) each: u64,
}

impl Load {
    /// Without computation.
    pub(crate) fn plain(
        workload: Workload,
        scheme: AccessScheme,
        size: u64,
        times: u64,
        rounds: u32,
    ) -> Load {
        Load { workload, scheme, size, times, rounds, computation: Duration::ZERO, each: 0 }
    }

    /// By the operands of a probe.
    pub(crate) fn parse(operands: &[String]) -> Result<Load> {
        let operand = |index: usize| operands.get(index).context("an operand is missing");
        let optional =
            |index: usize| -> Result<u64> { operands.get(index).map_or(Ok(0), |text| Ok(text.parse()?)) };
        let load = Load {
            workload: Workload::from_str(operand(0)?, false).map_err(anyhow::Error::msg)?,
            scheme: AccessScheme::from_str(operand(1)?, false).map_err(anyhow::Error::msg)?,
            size: operand(2)?.parse()?,
            times: operand(3)?.parse()?,
            rounds: operand(4)?.parse()?,
            computation: Duration::from_nanos(optional(5)?),
            each: optional(6)?,
        };
        let Load { workload, scheme, size, times, rounds, .. } = load;
        ensure!(times > 0 && rounds > 0, "there is nothing to access");
        ensure!(workload.schemes().contains(&scheme), "{scheme:?} is no scheme of {workload:?}");
        ensure!(
            size > 0 && size % 8 == 0 && size <= gets::MOST_BYTES,
            "an access has 8 to {} bytes, in words of 8",
            gets::MOST_BYTES
        );
        ensure!(workload != Workload::Counter || size == 8, "a put that is counted has 8 bytes");
        Ok(load)
    }

    /// The operands of a probe.
    pub(crate) fn operands(&self) -> Vec<String> {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let Load { workload, scheme, size, times, rounds, computation, each } = self;
        let names = [name(workload.to_possible_value()), name(scheme.to_possible_value())];
        let numbers = [*size, *times, u64::from(*rounds), computation.as_nanos() as u64, *each];
        names.into_iter().chain(numbers.map(|number| number.to_string())).collect()
    }

    /// What [`Load::each`] says, or else this.
    const fn each_or(&self, default: u64) -> u64 {
        if self.each == 0 { default } else { self.each }
    }
}

/// Measures as a member of a job. `None`: another one tells the figure. It is in accesses a second of all processes together, or of the sort in
/// microseconds.
///
/// # Errors
/// With what went wrong; an access that was not counted or logged is one, as is a key that is not in its place.
pub(crate) fn measure(load: Load) -> Result<Option<Figure>> {
    let node = Node::from_env()?;
    ensure!(node.size() > 1, "it takes a job of two processes at least");
    stay_on_one_processor(node.rank())?;
    let gathering = Gathering::make(&node)?;
    let mut once: Box<dyn FnMut(u32) -> Result<f64> + '_> = match load.workload {
        Workload::Counter => {
            let mut counter = counter::Counter::join(&node, &load)?;
            let (gathering, load) = (&gathering, &load);
            Box::new(move |round| counter.measure(gathering, load, round))
        }
        Workload::GetLogged => Box::new(gets::start((&node, &gathering), &load)?),
        Workload::Sort => Box::new(sort::start((&node, &gathering), &load)?),
    };
    // The first round finds pages that nobody has touched, and does not count.
    let mut values = (0..=load.rounds).map(&mut once).collect::<Result<Vec<_>>>()?;
    values.remove(0);
    let value = median(&mut values).context("no round")?;
    let path = path_to_next(&node)?;
    node.barrier()?;
    Ok((node.rank() == 0).then_some(Figure { value, path, beside: Vec::new() }))
}

/// Opens what each other process has exported; `None`: this process.
fn open_others(node: &Node, token: &Token) -> Result<Vec<Option<RemoteRegion>>> {
    let tokens = node.all_gather(token)?;
    let open = |(rank, token): (usize, &Token)| -> Result<Option<RemoteRegion>> {
        Ok(if rank == node.rank() { None } else { Some(node.open(token)?) })
    };
    tokens.iter().enumerate().map(open).collect()
}

/// Another process than `rank`, of so many: which one, a random number says.
fn other_than(rank: usize, processes: usize, random: u64) -> usize {
    (rank + 1 + (random % (processes as u64 - 1)) as usize) % processes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Load> {
        Load::parse(&words.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn operands_are_what_was_parsed() {
        for workload in Workload::value_variants() {
            for &scheme in workload.schemes() {
                let computation = Duration::from_nanos(70);
                let load = Load { computation, each: 4, ..Load::plain(*workload, scheme, 8, 100, 2) };
                let again = Load::parse(&load.operands()).unwrap();
                assert_eq!(format!("{load:?}"), format!("{again:?}"));
            }
        }
    }

    #[test]
    fn what_cannot_be_measured_is_an_error() {
        for words in [
            "counter aa 8 10 1",
            "sort aa-poll 8 10 1",
            "get_logged allreduce 8 10 1",
            "counter rma 16 10 1",
            "get_logged rma 7 10 1",
            "get_logged rma 0 10 1",
            "get_logged rma 1000000000 10 1",
            "sort none 8 0 1",
            "sort none 8 1 0",
            "sort none 8 1",
            "nonsense none 8 1 1",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        assert!(parse("sort none 8 1 1").is_ok());
    }

    #[test]
    fn others_are_all_but_oneself() {
        for processes in 2..6 {
            for rank in 0..processes {
                let others: std::collections::BTreeSet<usize> =
                    (0..20).map(|random| other_than(rank, processes, random)).collect();
                assert_eq!(others.len(), processes - 1);
                assert!(!others.contains(&rank));
            }
        }
    }
}

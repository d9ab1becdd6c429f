//! Counted accesses, logged gets and the exchange of a sort, by scheme, and puts beside a region with attributes. The processes are those of `pagewire
//! bench counter --scheme`, `get_logged --scheme`, `sort` and `put_bw` ([`crate::native`]), on this host.

use super::jobs::{Measured, job_of, number, numbers, run_figure};
use crate::helper::Point;
use crate::native::accesses::{AccessScheme, Load, Workload};
use crate::probe::Kind;
use anyhow::{Context, Result};
use clap::ValueEnum;
use pagewire_nic::PathChoice;
use std::collections::BTreeMap;

/// The names by which a run asks for this in place of a helper program.
pub(super) const NAME: &str = "accesses";
pub(super) const SORT: &str = "sort";
pub(super) const STREAM: &str = "stream";

/// Accesses of each process.
const TIMES: u64 = 20_000;
/// Keys that each process sorts.
const KEYS: u64 = 32_768;
/// Bytes of a get of the access counter and of logged gets (5.2.3).
const SIZE: u64 = 8;
/// Puts of a stream.
const PUTS: &str = "20000";

/// One job: its processes, what is along the axis, and what each process does.
struct Job {
    processes: u64,
    x: u64,
    load: Load,
}

/// Runs a workload (the first word) by a scheme (the second) with each count of processes (the third). The fourth is how many accesses lie between two
/// looks, or two sums; 0: as many as usual.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run(path: PathChoice, words: &[String]) -> Result<Measured> {
    run_jobs(path, jobs_of_accesses(words)?, 1.0)
}

fn jobs_of_accesses(words: &[String]) -> Result<Vec<Job>> {
    let ((workload, scheme), each) = (workload_and_scheme(words)?, number(words, 3, "EACH")?);
    let load = Load { each, ..Load::plain(workload, scheme, SIZE, TIMES, 1) };
    let job = |processes| Job { processes, x: processes, load };
    Ok(numbers(words, 2, "PROCESSES")?.into_iter().map(job).collect())
}

/// Runs the sort (the first word) by a scheme (the second), with so many processes (the third) and gets of each size (the fourth). Its values are
/// seconds.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run_sort(path: PathChoice, words: &[String]) -> Result<Measured> {
    run_jobs(path, jobs_of_sort(words)?, 1e-6)
}

fn jobs_of_sort(words: &[String]) -> Result<Vec<Job>> {
    let ((workload, scheme), processes) = (workload_and_scheme(words)?, number(words, 2, "PROCESSES")?);
    let job = |size| Job { processes, x: size, load: Load::plain(workload, scheme, size, KEYS, 1) };
    Ok(numbers(words, 3, "SIZES")?.into_iter().map(job).collect())
}

/// What each job printed, times `unit`.
fn run_jobs(path: PathChoice, jobs: Vec<Job>, unit: f64) -> Result<Measured> {
    let mut points = Vec::new();
    for Job { processes, x, load } in jobs {
        match run_figure((Kind::Accesses, &load.operands()), job_of(path, processes)?)? {
            Ok(value) => points.push(point(x, value * unit)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(Ok(points))
}

/// Runs puts one behind the other, by their name as a probe (the first word), of each size (the second).
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run_stream(path: PathChoice, words: &[String]) -> Result<Measured> {
    let name = words.first().context("NAME")?;
    let mut points = Vec::new();
    for size in numbers(words, 1, "SIZES")? {
        let operands = [name.clone(), size.to_string(), PUTS.to_owned()];
        match run_figure((Kind::Native, &operands), job_of(path, 2)?)? {
            Ok(rate) => points.push(point(size, rate)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(Ok(points))
}

fn workload_and_scheme(words: &[String]) -> Result<(Workload, AccessScheme)> {
    let workload = Workload::from_str(words.first().context("WORKLOAD")?, false);
    let scheme = AccessScheme::from_str(words.get(1).context("SCHEME")?, false);
    Ok((workload.map_err(anyhow::Error::msg)?, scheme.map_err(anyhow::Error::msg)?))
}

fn point(size: u64, value: f64) -> Point {
    Point { size, percent: 0, values: BTreeMap::from([("rate".to_owned(), Some(value))]) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whether each job of these words is one that a process takes.
    pub(in crate::reproduce::live) fn are_jobs(name: &str, words: &[String]) -> bool {
        let jobs = if name == SORT { jobs_of_sort(words) } else { jobs_of_accesses(words) };
        jobs.is_ok_and(|jobs| {
            !jobs.is_empty() && jobs.iter().all(|job| Load::parse(&job.load.operands()).is_ok())
        })
    }

    #[test]
    fn words_that_are_none_are_errors() {
        for words in [
            "sort aa 2",
            "sort aa x 8",
            "sort none 2 8,x",
            "counter rma 2",
            "counter rma x 0",
            "none rma 2 0",
            "",
        ] {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert!(
                !are_jobs(if words.first().is_some_and(|word| word == "sort") { SORT } else { NAME }, &words),
                "{words:?}"
            );
        }
        assert!(!are_jobs(NAME, &["counter", "am", "2", "0"].map(str::to_owned)));
    }
}

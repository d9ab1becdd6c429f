//! Counted accesses, logged gets and the exchange of a sort, by scheme, and puts beside a region with attributes. The processes are those of `pagewire
//! bench counter --scheme`, `get_logged --scheme`, `sort` and `put_bw` ([`crate::native`]), on this host.

use super::jobs::{Measured, number, numbers, run_figure};
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
pub(super) const KEYS: u64 = 65_536;
/// Bytes of a get of the access counter and of logged gets (5.2.3).
const SIZE: u64 = 8;
/// Puts of a stream.
const PUTS: &str = "20000";

/// Runs a workload (the first word) by a scheme (the second) with each count of processes (the third). The fourth is how many accesses lie between two
/// looks, or two sums; 0: as many as usual.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run(path: PathChoice, words: &[String]) -> Result<Measured> {
    let (workload, scheme) = named(words)?;
    let each = number(words, 3, "EACH")?;
    let mut points = Vec::new();
    for processes in numbers(words, 2, "PROCESSES")? {
        let load = Load { each, ..Load::plain(workload, scheme, SIZE, TIMES, 1) };
        match run_figure((Kind::Accesses, &load.operands()), path, processes)? {
            Ok(rate) => points.push(point(processes, "rate", rate)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(Ok(points))
}

/// Runs the sort (the first word) by a scheme (the second), with so many processes (the third) and gets of each size (the fourth).
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run_sort(path: PathChoice, words: &[String]) -> Result<Measured> {
    let (workload, scheme) = named(words)?;
    let processes = number(words, 2, "PROCESSES")?;
    let mut points = Vec::new();
    for size in numbers(words, 3, "SIZES")? {
        let load = Load::plain(workload, scheme, size, KEYS, 1);
        match run_figure((Kind::Accesses, &load.operands()), path, processes)? {
            Ok(microseconds) => points.push(point(size, "rate", microseconds / 1e6)),
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
        match run_figure((Kind::Native, &operands), path, 2)? {
            Ok(rate) => points.push(point(size, "rate", rate)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(Ok(points))
}

fn named(words: &[String]) -> Result<(Workload, AccessScheme)> {
    let workload = Workload::from_str(words.first().context("WORKLOAD")?, false);
    let scheme = AccessScheme::from_str(words.get(1).context("SCHEME")?, false);
    Ok((workload.map_err(anyhow::Error::msg)?, scheme.map_err(anyhow::Error::msg)?))
}

fn point(size: u64, name: &str, value: f64) -> Point {
    Point { size, percent: 0, values: BTreeMap::from([(name.to_owned(), Some(value))]) }
}

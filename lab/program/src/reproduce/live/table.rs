//! The hash table of the processes of this host, by scheme, and by part of inserts that collide, by computation, by network delay, or by processes
//! that handle alone. The processes are those of `pagewire bench hashtable` ([`crate::native::hash_table`]).

use super::jobs::{Measured, job_of, number, numbers, run_figure};
use crate::helper::Point;
use crate::native::hash_table::{Load, Operation, TableScheme};
use crate::probe::Kind;
use anyhow::{Context, Result};
use clap::ValueEnum;
use pagewire_nic::PathChoice;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The names by which a run asks for this in place of a helper program.
pub(super) const NAME: &str = "hashtable";
pub(super) const COMPUTATION: &str = "hashtable by computation";
pub(super) const HANDLERS: &str = "hashtable by handlers";
pub(super) const DELAYED: &str = "hashtable by delay";

/// Elements that each process inserts, and with computation between two of them.
const INSERTS: u64 = 20_000;
const COMPUTED_INSERTS: u64 = 5_000;
/// Inserts of each process where packets are delayed: of RMA each operation waits for two delays.
const DELAYED_INSERTS: u64 = 5_000;
const DELAYED_RMA_INSERTS: u64 = 500;

/// Runs a scheme (the first word) with each part of collisions (the second, in percent) and each count of processes (the third). The fourth is how many
/// own inserts lie between two looks of the schemes that look between them.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run(path: PathChoice, words: &[String]) -> Result<Measured> {
    let (scheme, interval) = (scheme(words)?, number(words, 3, "INTERVAL")?);
    let mut points = Vec::new();
    for percent in numbers(words, 1, "COLLISIONS")? {
        for processes in numbers(words, 2, "PROCESSES")? {
            let load = Load { interval: interval.try_into()?, ..load(scheme, percent, INSERTS) };
            match once(path, &load, processes)? {
                Ok(rate) => points.push(point(processes, percent, rate)),
                Err(failure) => return Ok(Err(failure)),
            }
        }
    }
    Ok(Ok(points))
}

/// Runs a scheme (the first word) with computation between two inserts, for each ratio (the second, in percent) and each count of processes (the
/// third). The computation is that which is such a part of the run time of AA-Poll, for all schemes alike.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run_computing(path: PathChoice, words: &[String]) -> Result<Measured> {
    let scheme = scheme(words)?;
    let mut points = Vec::new();
    for processes in numbers(words, 2, "PROCESSES")? {
        let insert = match insert_of_active(path, processes)? {
            Ok(insert) => insert,
            Err(failure) => return Ok(Err(failure)),
        };
        for percent in numbers(words, 1, "RATIOS")? {
            let plain = load(scheme, COLLIDING, COMPUTED_INSERTS);
            match once(path, &Load { computation: computation(insert, percent)?, ..plain }, processes)? {
                Ok(rate) => points.push(point(processes, percent, rate)),
                Err(failure) => return Ok(Err(failure)),
            }
        }
    }
    Ok(Ok(points))
}

/// Runs so many processes (the first word), of which each number but all handles messages alone, and the others insert.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run_handling(path: PathChoice, words: &[String]) -> Result<Measured> {
    let processes = number(words, 0, "PROCESSES")?;
    let mut points = Vec::new();
    for handlers in 1..processes {
        let load = Load { handlers: handlers.try_into()?, ..load(TableScheme::Am, COLLIDING, INSERTS) };
        match once(path, &load, processes)? {
            Ok(rate) => points.push(point(handlers, COLLIDING, rate)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(Ok(points))
}

/// Runs a scheme (the first word) with a part of collisions (the second, in percent), inserts between two looks (the third) and so many processes (the
/// fourth), over networks that are longer by each delay (the fifth, in microseconds). A point's size is its delay.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run_delayed(path: PathChoice, words: &[String]) -> Result<Measured> {
    let (scheme, percent) = (scheme(words)?, number(words, 1, "COLLISIONS")?);
    let interval = number(words, 2, "INTERVAL")?.try_into()?;
    let inserts = if scheme == TableScheme::Rma { DELAYED_RMA_INSERTS } else { DELAYED_INSERTS };
    let load = Load { interval, ..load(scheme, percent, inserts) };
    let job = job_of(path, number(words, 3, "PROCESSES")?)?;
    let mut points = Vec::new();
    for delay in numbers(words, 4, "DELAYS")? {
        match run_figure((Kind::HashTable, &load.operands()), job.delayed(delay))? {
            Ok(rate) => points.push(point(delay, percent, rate)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(Ok(points))
}

/// Percent of inserts that collide, where that is not varied.
const COLLIDING: u64 = 5;

fn scheme(words: &[String]) -> Result<TableScheme> {
    TableScheme::from_str(words.first().context("SCHEME")?, false).map_err(anyhow::Error::msg)
}

fn load(scheme: TableScheme, percent: u64, inserts: u64) -> Load {
    Load::plain(Operation::Insert, scheme, cells(percent as f64 / 100.0, inserts), inserts, 1)
}

fn once(path: PathChoice, load: &Load, processes: u64) -> Result<Result<f64, crate::helper::Failure>> {
    run_figure((Kind::HashTable, &load.operands()), job_of(path, processes)?)
}

fn point(processes: u64, percent: u64, rate: f64) -> Point {
    Point { size: processes, percent, values: BTreeMap::from([("rate".to_owned(), Some(rate))]) }
}

/// Nanoseconds between two inserts of a process by AA-Poll without computation. They are measured once in this program: all ratios are of the same.
fn insert_of_active(path: PathChoice, processes: u64) -> Result<Result<f64, crate::helper::Failure>> {
    static KNOWN: Mutex<BTreeMap<(&str, u64), f64>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(insert) = known.get(&(path.name(), processes)) {
        return Ok(Ok(*insert));
    }
    let rate = once(path, &load(TableScheme::AaPoll, COLLIDING, INSERTS), processes)?;
    Ok(rate.map(|rate| {
        let insert = processes as f64 * 1e9 / rate;
        known.insert((path.name(), processes), insert);
        insert
    }))
}

/// What is so many percent of the run time, where an insert takes so many nanoseconds.
fn computation(insert: f64, percent: u64) -> Result<Duration> {
    let rest = 100_u64.checked_sub(percent).filter(|rest| *rest > 0).context("RATIOS: below 100 percent")?;
    Ok(Duration::from_nanos((insert * percent as f64 / rest as f64) as u64))
}

/// Cells of a volume such that this part of so many inserts finds its cell taken, if hashes are random: of a elements a cell, 1 - (1 - e^-a) / a do.
fn cells(collisions: f64, inserts: u64) -> usize {
    let part = |load: f64| 1.0 - (1.0 - (-load).exp()) / load;
    let (mut least, mut most) = (1e-6, 1e3);
    for _ in 0..60 {
        let middle = (least + most) / 2.0;
        if part(middle) < collisions { least = middle } else { most = middle }
    }
    (inserts as f64 / most).round().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if each element went to a random cell.
    #[test]
    fn so_many_cells_let_so_many_elements_collide() {
        let mut state = 1_u64;
        for percent in [5, 25, 50, 75] {
            let cells = cells(percent as f64 / 100.0, INSERTS);
            let mut taken = vec![false; cells];
            let mut collided = 0;
            for _ in 0..INSERTS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let cell = ((state >> 33) as usize * cells) >> 31;
                collided += u64::from(std::mem::replace(&mut taken[cell], true));
            }
            let found = collided as f64 / INSERTS as f64 * 100.0;
            assert!((found - percent as f64).abs() < 2.0, "{percent}: {found} of {cells}");
        }
    }

    #[test]
    fn words_that_are_none_are_errors() {
        for words in ["none 5 2 8", "rma x 2 8", "rma 5 x 8", "rma 5 2 x", "rma 5 2", "rma 5", "rma", ""] {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert!(run(PathChoice::Local, &words).is_err(), "{words:?}");
        }
        for words in ["none 5 8 2 0", "rma x 8 2 0", "rma 5 x 2 0", "rma 5 8 x 0", "rma 5 8 2 x", "rma 5 8 2"]
        {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert!(run_delayed(PathChoice::Udp, &words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_ratio_is_of_the_run_time() {
        assert_eq!(computation(300.0, 0).unwrap(), Duration::ZERO);
        assert_eq!(computation(300.0, 50).unwrap(), Duration::from_nanos(300));
        assert_eq!(computation(300.0, 75).unwrap(), Duration::from_nanos(900));
        assert!(computation(300.0, 100).is_err() && computation(300.0, 101).is_err());
    }
}

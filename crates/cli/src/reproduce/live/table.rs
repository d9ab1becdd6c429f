//! The hash table of two processes, by scheme and by part of inserts that collide: the processes are those of `pagewire bench hashtable`
//! ([`crate::native::hash_table`]), on this host.

use crate::helper::{Failure, Point};
use crate::native::Figure;
use crate::native::hash_table::{Load, Operation, TableScheme};
use crate::probe::Kind;
use crate::registered::run_job;
use anyhow::{Context, Result};
use clap::ValueEnum;
use pagewire_nic::PathChoice;
use std::collections::BTreeMap;

/// The name by which a run asks for this in place of a helper program.
pub(super) const NAME: &str = "hashtable";

/// Processes.
pub(super) const PROCESSES: u64 = 2;

/// Elements that each process inserts.
const INSERTS: u64 = 20_000;

/// Runs a scheme (the first word) with each part of collisions (the second, in percent); the inner error says what went wrong.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run(path: PathChoice, words: &[String]) -> Result<Result<Vec<Point>, Failure>> {
    let scheme =
        TableScheme::from_str(words.first().context("SCHEME")?, false).map_err(anyhow::Error::msg)?;
    let mut points = Vec::new();
    for percent in words.get(1).context("COLLISIONS")?.split(',') {
        let percent: u64 = percent.parse().context("COLLISIONS")?;
        let cells = cells(percent as f64 / 100.0);
        let load = Load { operation: Operation::Insert, scheme, cells, inserts: INSERTS, rounds: 1 };
        let output = match run_job(Kind::HashTable, path, &load.operands())? {
            Ok(output) => output,
            Err(failure) => return Ok(Err(failure)),
        };
        let failure = |text| Ok(Err(Failure { text, not_here: false }));
        match serde_json::from_str::<Figure>(output.trim()) {
            Ok(figure) if figure.path.starts_with(path.name()) => {
                let values = BTreeMap::from([("rate".to_owned(), Some(figure.value))]);
                points.push(Point { size: PROCESSES, percent, values });
            }
            Ok(figure) => return failure(format!("took the path {}", figure.path)),
            Err(error) => return failure(format!("{error}: {output}")),
        }
    }
    Ok(Ok(points))
}

/// Cells of a volume such that this part of [`INSERTS`] finds its cell taken, if hashes are random: of a elements a cell, 1 - (1 - e^-a) / a do.
fn cells(collisions: f64) -> usize {
    let part = |load: f64| 1.0 - (1.0 - (-load).exp()) / load;
    let (mut least, mut most) = (1e-6, 1e3);
    for _ in 0..60 {
        let middle = (least + most) / 2.0;
        if part(middle) < collisions { least = middle } else { most = middle }
    }
    (INSERTS as f64 / most).round().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if each element went to a random cell.
    #[test]
    fn so_many_cells_let_so_many_elements_collide() {
        let mut state = 1_u64;
        for percent in [5, 25, 50, 75] {
            let cells = cells(percent as f64 / 100.0);
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
        for words in [&["none", "5"][..], &["rma", "x"], &["rma"], &[]] {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            assert!(run(PathChoice::Local, &words).is_err(), "{words:?}");
        }
    }
}

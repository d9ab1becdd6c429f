//! Counted puts and logged gets, one process at the memory of another one: the processes are those of `pagewire bench counter` and `get_logged`
//! ([`crate::native`]), on this host.

use crate::helper::{Failure, Point};
use crate::native::Figure;
use crate::probe::Kind;
use crate::registered::run_job;
use anyhow::{Context, Result};
use pagewire_nic::PathChoice;
use std::collections::BTreeMap;

/// The name by which a run asks for this in place of a helper program.
pub(super) const NAME: &str = "accesses";

/// Processes that access.
pub(super) const CALLERS: u64 = 1;

/// Bytes of an access (5.2.3), and accesses.
const SIZE: &str = "8";
const TIMES: &str = "20000";

/// Runs one measurement of [`crate::native`], by its name; the inner error says what went wrong.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run(path: PathChoice, words: &[String]) -> Result<Result<Vec<Point>, Failure>> {
    let name = words.first().context("NAME")?;
    let output = match run_job(Kind::Native, path, &[name.clone(), SIZE.to_owned(), TIMES.to_owned()])? {
        Ok(output) => output,
        Err(failure) => return Ok(Err(failure)),
    };
    let failure = |text| Ok(Err(Failure { text, not_here: false }));
    match serde_json::from_str::<Figure>(output.trim()) {
        Ok(figure) if figure.path.starts_with(path.name()) && figure.value > 0.0 => {
            // The figure is in microseconds.
            let values = BTreeMap::from([("rate".to_owned(), Some(1e6 / figure.value))]);
            Ok(Ok(vec![Point { size: CALLERS, percent: 0, values }]))
        }
        Ok(figure) => failure(format!("{} us by the path {}", figure.value, figure.path)),
        Err(error) => failure(format!("{error}: {output}")),
    }
}

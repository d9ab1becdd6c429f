//! Figures of jobs of several processes of this program, on this host.

use crate::helper::{Failure, Point};
use crate::native::Figure;
use crate::probe::Kind;
use crate::registered::run_job;
use anyhow::{Context, Result};
use pagewire_nic::PathChoice;

/// What a run gave, or what went wrong with it.
pub(super) type Measured = Result<Vec<Point>, Failure>;

/// The value that a job of so many processes prints, if it took the path; the inner error says what went wrong.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run_figure(
    (kind, operands): (Kind, &[String]),
    path: PathChoice,
    processes: u64,
) -> Result<Result<f64, Failure>> {
    let output = match run_job(kind, path, operands, usize::try_from(processes)?)? {
        Ok(output) => output,
        Err(failure) => return Ok(Err(failure)),
    };
    let failure = |text| Ok(Err(Failure { text, not_here: false }));
    match serde_json::from_str::<Figure>(output.trim()) {
        Ok(figure) if figure.path.starts_with(path.name()) && figure.value > 0.0 => Ok(Ok(figure.value)),
        Ok(figure) => failure(format!("{} by the path {}", figure.value, figure.path)),
        Err(error) => failure(format!("{error}: {output}")),
    }
}

/// Numbers of a word, separated by commas.
pub(super) fn numbers(words: &[String], index: usize, name: &'static str) -> Result<Vec<u64>> {
    words.get(index).context(name)?.split(',').map(|number| number.parse().context(name)).collect()
}

/// One number.
pub(super) fn number(words: &[String], index: usize, name: &'static str) -> Result<u64> {
    words.get(index).context(name)?.parse().context(name)
}

//! Figures of jobs of several processes of this program, on this host.

use crate::helper::{Failure, Point};
use crate::native::Figure;
use crate::probe::Kind;
use crate::registered::{ProbeJob, run_job};
use anyhow::{Context, Result};
use pagewire_nic::PathChoice;

/// What a run gave, or what went wrong with it.
pub(super) type Measured = Result<Vec<Point>, Failure>;

/// The value that a job prints, if it took its path; the inner error says what went wrong.
///
/// # Errors
/// If the processes cannot be started.
pub(super) fn run_figure((kind, operands): (Kind, &[String]), job: ProbeJob) -> Result<Result<f64, Failure>> {
    let output = match run_job(kind, operands, job)? {
        Ok(output) => output,
        Err(failure) => return Ok(Err(failure)),
    };
    let failure = |text| Ok(Err(Failure { text, not_here: false }));
    match serde_json::from_str::<Figure>(output.trim()) {
        Ok(figure) if figure.path.starts_with(job.path.name()) && figure.value > 0.0 => Ok(Ok(figure.value)),
        Ok(figure) => failure(format!("{} by the path {}", figure.value, figure.path)),
        Err(error) => failure(format!("{error}: {output}")),
    }
}

/// A job of so many processes.
///
/// # Errors
/// If there cannot be so many.
pub(super) fn job_of(path: PathChoice, processes: u64) -> Result<ProbeJob> {
    Ok(ProbeJob::new(path, usize::try_from(processes)?))
}

/// Numbers of a word, separated by commas.
pub(super) fn numbers(words: &[String], index: usize, name: &'static str) -> Result<Vec<u64>> {
    words.get(index).context(name)?.split(',').map(|number| number.parse().context(name)).collect()
}

/// One number.
pub(super) fn number(words: &[String], index: usize, name: &'static str) -> Result<u64> {
    words.get(index).context(name)?.parse().context(name)
}

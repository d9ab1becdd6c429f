//! Views of Kokkos that are sent to another process (REUSE-5), by the helper program `views` (lab/helpers/views.cpp). It is built where Kokkos is.

use super::{ProbeJob, run_processes};
use crate::helper::{Failure, Point, points};
use anyhow::Result;
use pagewire_cli::install::Installation;
use pagewire_nic::PathChoice;
use std::process::Command;

/// The name by which a run asks for this in place of a helper program.
pub(crate) const NAME: &str = "views";

/// Runs both processes over a path, with these sizes; the inner error says what went wrong, or that there is no Kokkos.
///
/// # Errors
/// If they cannot be started.
pub(crate) fn run(path: PathChoice, words: &[String]) -> Result<Result<Vec<Point>, Failure>> {
    let installation = match Installation::of_helper() {
        Ok(installation) => installation,
        Err(error) => {
            let text =
                format!("the program that sends Views is part of an installation (make build): {error:#}");
            return Ok(Err(Failure { text, not_here: true }));
        }
    };
    let program = installation.helpers.join(NAME);
    if !program.is_file() {
        let text = format!(
            "Kokkos is not installed: {} is built where it is (Debian package libtrilinos-kokkos-dev)",
            program.display()
        );
        return Ok(Err(Failure { text, not_here: true }));
    }
    let command = || {
        let mut command = Command::new(&program);
        command.args(words).env("LD_LIBRARY_PATH", &installation.library);
        Ok(command)
    };
    Ok(run_processes(command, ProbeJob::new(path, 2))?.and_then(|output| points(&output)))
}

//! The command line of `pagewire fail-each`.

use super::{PathChoice, path_choice};
use clap::{ArgGroup, Args, ValueHint};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `pagewire fail-each`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("subject").required(true).args(["scenario", "program"]))]
#[command(after_help = "Examples:\n  \
    pagewire fail-each -- ./selftest                one process, failed at each call\n  \
    pagewire fail-each pingpong.toml                the roles that a scenario file names\n  \
    pagewire fail-each --junit report.xml pingpong.toml\n  \
    pagewire fail-each --list pingpong.toml         what would be run\n  \
    pagewire fail-each --only client:ibv_reg_mr pingpong.toml\n\n\
    Exit status: 0 if nothing was found, 1 if a failure shows a fault, 2 if the scenario does\n\
    not work without failures, or for a wrong command line.")]
pub struct FailEachArguments {
    /// The scenario: roles, how each is known to be ready, a verifier (TOML; pagewire-fail-each(1) has the keys)
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub scenario: Option<PathBuf>,
    /// Only the failures whose name contains TEXT, as --list prints them; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Print the failures that would be run, and run only the scenario without them
    #[arg(long)]
    pub list: bool,
    /// Runs at the same time (default: the number of processors); 1 where the kernel gives runs no network namespaces
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Seconds that one run may take before it hangs (default: that of the scenario, else 5, or ten times the first run)
    #[arg(long, value_name = "SECONDS", value_parser = limit)]
    pub limit: Option<Duration>,
    /// How connections travel; where it is not given, as the scenario says, else auto
    #[arg(long, value_parser = path_choice())]
    pub path: Option<PathChoice>,
    /// Write the results to FILE as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    /// One JSON object for each failure, instead of text
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments, in place of a scenario
    #[arg(last = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// The time limit of a run.
fn limit(seconds: &str) -> Result<Duration, String> {
    let allowed = crate::limits::FAIL_EACH_LIMIT;
    match seconds.parse() {
        Ok(seconds) if allowed.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(format!("it is to be {} to {} seconds", allowed.start(), allowed.end())),
        Err(_) => Err("this is no number".to_owned()),
    }
}

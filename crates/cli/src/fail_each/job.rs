//! What the command and the supervisor of a run tell each other: one JSON line each.

use super::scenario::Readiness;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One run, for its supervisor.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunJob {
    /// The processes, in the order in which they start.
    pub processes: Vec<Process>,
    /// Says whether the run did what it should.
    pub verifier: Option<Vec<String>>,
    /// Where the commands run.
    pub directory: PathBuf,
    /// Whether the run has a network namespace of its own.
    pub own_network: bool,
    /// What still runs after this time is killed.
    pub limit: Duration,
    /// How long others may go on when a process has given up.
    pub grace: Duration,
}

/// A process of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Process {
    /// Its role.
    pub role: String,
    /// The program and its arguments, `pagewire run` in front.
    pub words: Vec<String>,
    /// Further variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// How it is known to be ready.
    pub ready: Option<Readiness>,
    /// Whether it is stopped when the others have ended.
    pub serves: bool,
    /// Whether a call of it fails: the run waits for it, and not for its peers once it has given up.
    pub fails: bool,
}

/// What became of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunOutcome {
    /// The processes, as in the job.
    pub processes: Vec<ProcessOutcome>,
    /// The verifier, if it ran.
    pub verifier: Option<ProcessOutcome>,
    /// How long all took.
    pub elapsed: Duration,
}

/// What became of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProcessOutcome {
    /// Its role.
    pub role: String,
    /// How it ended.
    pub end: End,
    /// The last of what it printed.
    pub output: String,
}

/// How a process ended.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum End {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It ran at the time limit, and was killed.
    Limit,
    /// It was stopped: it serves, or a peer had given up.
    Stopped,
    /// It never started, because an earlier one was not ready.
    NotStarted,
}

impl End {
    /// In words, after the name of the process.
    pub fn words(&self) -> String {
        match self {
            End::Exit(status) => format!("exit status {status}"),
            End::Signal(number) => match nix::sys::signal::Signal::try_from(*number) {
                Ok(signal) => format!("killed by {signal}"),
                Err(_) => format!("killed by signal {number}"),
            },
            End::Limit => "still ran at the time limit".to_owned(),
            End::Stopped => "was stopped".to_owned(),
            End::NotStarted => "was not started".to_owned(),
        }
    }
}

/// What the supervisor answers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum RunAnswer {
    /// The run took place.
    Done(RunOutcome),
    /// It could not, for this reason.
    Refused(String),
}

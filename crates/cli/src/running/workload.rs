//! One verbs program at both ends of a connection: the server on one host, the client on another or the same.

use crate::output::report::{self, ProcessReport};
use crate::running::hosts::Host;
use crate::running::pair::{Pair, run_pair};
use crate::running::stage::Stage;
use anyhow::{Context, Result};
use pagewire_nic::PathChoice;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// What to run, and where.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// The program; it takes `-p PORT`, and the server's address as its last argument at the client.
    pub program: &'a str,
    /// The arguments of both ends.
    pub arguments: &'a [&'a str],
    /// Where the server runs.
    pub server: &'a Host,
    /// Where the client runs.
    pub client: &'a Host,
    /// The path asked for.
    pub path: PathChoice,
    /// More options of `pagewire run` for both.
    pub options: &'a [&'a str],
    /// More environment variables for both.
    pub environment: &'a [(&'a str, &'a str)],
    /// What still runs after this time is killed.
    pub limit: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct WorkloadOutcome {
    /// How both ended and what they said.
    pub pair: Pair,
    /// The counters that the server's engine left.
    pub server: Vec<ProcessReport>,
    /// The counters that the client's engine left.
    pub client: Vec<ProcessReport>,
}

impl WorkloadOutcome {
    /// The paths that bytes took, by the counters of both ends, each once.
    pub fn paths(&self) -> Vec<&'static str> {
        let mut paths: Vec<&str> =
            self.server.iter().chain(&self.client).flat_map(ProcessReport::paths).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}

/// TCP ports for the programs' own exchange, below the range from which the kernel picks.
static PORT: AtomicU16 = AtomicU16::new(0);
static RUN: AtomicU64 = AtomicU64::new(0);

/// The next of these ports.
pub fn next_port() -> u16 {
    // Offset by the PID: two runs of tests beside each other on one host seldom meet.
    let offset = (std::process::id() % 97) as u16 * 100;
    18_600 + (PORT.fetch_add(1, Ordering::Relaxed) + offset) % 10_000
}

impl Workload<'_> {
    /// Runs both ends.
    ///
    /// # Errors
    /// If one cannot be started, or left counters that are not in the format. That it failed is no error here.
    pub fn run(&self, stage: &Stage) -> Result<WorkloadOutcome> {
        let run = RUN.fetch_add(1, Ordering::Relaxed);
        let port = next_port();
        let file = |end: &str| stage.writable_file(&format!("{run}-{end}.jsonl"));
        let files = [file("server")?, file("client")?];
        let end = |host: &Host, file| -> Command {
            let mut command = host.command(&stage.command);
            command.args(["run", "--path", self.path.name()]).args(self.options);
            command.args(["--", self.program, "-p", &port.to_string()]);
            command.args(self.arguments).env("PAGEWIRE_STATS", file);
            command.envs(self.environment.iter().copied());
            command
        };
        let server = end(self.server, &files[0]);
        let mut client = end(self.client, &files[1]);
        client.arg(self.server.address.to_string());
        let pair = run_pair(server, client, port, self.limit)?;
        let [server, client] = files.map(|file| {
            let reports = report::read_file(&file);
            fs::remove_file(&file).with_context(|| file.display().to_string())?;
            reports
        });
        Ok(WorkloadOutcome { pair, server: server?, client: client? })
    }
}

//! Processes that die or are stopped, and processes that live on: `death/*.c`, compiled and run on the first host.
//!
//! The program says itself what is wrong and how to see it again.

use crate::compile;
use crate::ground::Ground;
use anyhow::{Context, Result, ensure};
use pagewire_cli::arguments::PathChoice;
use pagewire_cli::install::Installation;
use pagewire_cli::pair::{Finished, Running};
use pagewire_cli::report::{self, ProcessReport};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The operations of which single instructions are looked at, as the program calls them. Those that begin with `take` are the
/// survivor's, and the victim answers.
pub const OPERATIONS: [&str; 12] = [
    "send",
    "send-long",
    "write",
    "write-long",
    "write-immediate",
    "read",
    "read-long",
    "fetch-add",
    "take-send",
    "take-send-long",
    "take-write-immediate",
    "take-fetch-add",
];

/// What happens to the victim at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// SIGKILL.
    Killed,
    /// It stands there while the survivor deregisters and destroys, goes on a little, and is killed.
    Stopped,
}

impl Fate {
    const fn word(self) -> &'static str {
        match self {
            Fate::Killed => "kill",
            Fate::Stopped => "stop",
        }
    }
}

/// Instructions of an operation at which a victim ends: every `stride`th from `first` to `last`, or the operation's end.
#[derive(Clone, Copy, Debug)]
pub struct Instants {
    /// Instructions executed by the first victim.
    pub first: u64,
    /// How many more by each that follows.
    pub stride: u64,
    /// The most.
    pub last: u64,
}

/// The program, compiled.
#[derive(Debug)]
pub struct Program<'a> {
    ground: &'a Ground,
    file: PathBuf,
}

/// A run of it that has been started.
#[derive(Debug)]
pub struct Run {
    running: Running,
    path: PathChoice,
    statistics: PathBuf,
}

impl Program<'_> {
    /// Compiles the program against the installed library, once for each ground.
    ///
    /// # Errors
    /// Without a C compiler and libibverbs' headers.
    pub fn compile(ground: &Ground) -> Result<Program<'_>> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("death");
        let library = Installation::of(&ground.stage.command)?.library.join("libibverbs.so.1");
        let file = ground.stage.file("death");
        let names = ["main", "kill", "step", "tracer", "route", "companion", "parties", "traffic", "leaks"];
        let sources = names.map(|name| sources.join(name).with_extension("c"));
        compile::once(&file, || compile::c(sources, &file, &[library]))?;
        Ok(Program { ground, file })
    }

    fn start(&self, path: PathChoice, name: &str, words: &[String]) -> Result<Run> {
        let statistics = self.ground.stage.writable_file(&format!("death-{name}.jsonl"))?;
        let mut command = self.ground.hosts.first.command(&self.ground.stage.command);
        command.args(["run", "--path", path.name(), "--"]).arg(&self.file).args(words);
        command.env("PAGEWIRE_STATS", &statistics);
        Ok(Run { running: Running::start(command)?, path, statistics })
    }

    /// Starts `rounds` rounds, the first one with number `first`, in each of which a victim is killed at an instant that
    /// `seed` and the round's number choose.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn kill(&self, path: PathChoice, rounds: u64, seed: u64, first: u64) -> Result<Run> {
        let words = ["kill".to_owned(), rounds.to_string(), seed.to_string(), first.to_string()];
        self.start(path, &format!("kill-{}-{seed}-{first}", path.name()), &words)
    }

    /// Starts with victims that end at single instructions of an operation; their survivor rests for `pause` between two looks.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn single_step(
        &self,
        path: PathChoice,
        operation: &str,
        fate: Fate,
        instants: Instants,
        pause: Duration,
    ) -> Result<Run> {
        let Instants { first, stride, last } = instants;
        let numbers = [stride, first, last].map(|number| number.to_string());
        let mut words = vec!["single-step".to_owned(), operation.to_owned()];
        words.extend(numbers);
        words.extend([fate.word().to_owned(), pause.as_micros().to_string()]);
        self.start(path, &format!("{operation}-{}-{}-{first}", path.name(), fate.word()), &words)
    }
}

impl Run {
    /// Waits for its end, for `limit` at most; gives what it said.
    ///
    /// # Errors
    /// If something was wrong, or it did not use the path asked for.
    pub fn finish(self, limit: Duration) -> Result<String> {
        let Run { running, path, statistics } = self;
        let finished: Finished = running.wait_until(Instant::now() + limit);
        let asked = path.name();
        ensure!(finished.success(), "path {asked}: {}\n{}", finished.verdict(), finished.output);
        let reports = report::read_file(&statistics)?;
        std::fs::remove_file(&statistics).with_context(|| statistics.display().to_string())?;
        let mut paths: Vec<_> = reports.iter().flat_map(ProcessReport::paths).collect();
        paths.sort_unstable();
        paths.dedup();
        ensure!(paths == [asked], "asked for the path {asked}, bytes took {paths:?}\n{}", finished.output);
        Ok(finished.output)
    }
}

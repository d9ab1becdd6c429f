//! How much later a program begins that `pagewire run` starts.

use crate::figures::{Figures, Line};
use anyhow::{Context, Result};
use pagewire_cli::hosts::Host;
use pagewire_cli::stage::Stage;
use pagewire_cli::{interrupt, median};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The benchmark, as its row is named.
pub(super) const NAME: &str = "start";

/// A program that ends at once.
const PROGRAM: &str = "true";

/// Starts in a round, of which the median counts.
const STARTS: usize = 50;

/// Measures a program with and without, one after the other.
pub(super) fn measure(stage: &Stage, rounds: u32) -> Result<Vec<Line>> {
    let mut added = Figures::default();
    for _ in 0..rounds {
        let [mut with, mut without] = [Vec::new(), Vec::new()];
        for _ in 0..STARTS {
            let mut command = Host::here().command(&stage.command);
            command.args(["run", "--", PROGRAM]);
            with.push(time(command)?);
            without.push(time(Host::here().command(PROGRAM))?);
            interrupt::check()?;
        }
        let [with, without] = [with, without].map(|mut times| median(&mut times));
        added.add(with.zip(without).map(|(with, without)| with - without).ok_or_else(String::new));
    }
    Ok(vec![Line::new((NAME, 0, "-", "us"), added.median(NAME), (None, None))])
}

/// From the start of a program to its end, in microseconds.
fn time(mut command: Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status().with_context(|| format!("{:?}", command.get_program()))?;
    anyhow::ensure!(status.success(), "{:?}: {status}", command.get_program());
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

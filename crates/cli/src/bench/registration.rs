//! What registering and deregistering memory costs, at 4 KB and at 1 TiB, with a connected peer that is idle.
//!
//! The work is done by the helper program `registration` (benches/registration.c), a plain verbs program.

use super::{Line, median};
use crate::hosts::Host;
use crate::interrupt;
use crate::limits::BENCH_RUN;
use crate::pair::Running;
use crate::stage::Stage;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::time::Instant;

/// The benchmark's name.
pub(super) const NAME: &str = "registration";

#[derive(Deserialize)]
struct Figure {
    bench: String,
    size: u64,
    microseconds: f64,
}

/// What is measured, and the figure published for JBMT (onloaded dynamic pinning) on other hardware.
const MEASURED: [(&str, u64, f64); 4] = [
    ("reg_mr", 4096, 1.32),
    ("dereg_mr", 4096, 0.25),
    ("reg_mr", 1 << 40, 1.32),
    ("dereg_mr", 1 << 40, 0.25),
];

/// Measures; lines without a value where the helper is missing or fails.
pub(super) fn measure(stage: &Stage, rounds: u32) -> Result<Vec<Line>> {
    let helper = stage.helpers.join("registration");
    let mut figures: Vec<Figure> = Vec::new();
    if !helper.is_file() {
        crate::tell!("{NAME}: {} is missing (built where libibverbs-dev is installed)", helper.display());
    } else {
        for _ in 0..rounds {
            let mut command = Host::here().command(&stage.command);
            command.args(["run", "--"]).arg(&helper);
            let finished = Running::start(command)?.wait_until(Instant::now() + BENCH_RUN);
            interrupt::check()?;
            if !finished.success() {
                crate::tell!("{NAME}: {}\n{}", finished.verdict(), finished.output.trim());
                continue;
            }
            for line in finished.output.lines() {
                figures.push(serde_json::from_str(line).with_context(|| format!("{NAME}: {line}"))?);
            }
        }
    }
    Ok(MEASURED
        .iter()
        .map(|&(bench, size, published)| {
            let wanted = figures.iter().filter(|figure| figure.bench == bench && figure.size == size);
            let mut values: Vec<f64> = wanted.map(|figure| figure.microseconds).collect();
            Line::new(
                (bench, size, "-", "us"),
                median(&mut values),
                (Some("JBMT (published)".to_owned()), Some(published)),
            )
        })
        .collect())
}

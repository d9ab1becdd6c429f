//! What registering and deregistering memory costs, at 4 KB and at 1 TiB, with a connected peer that is idle.
//!
//! The work is done by the helper program `registration` (lab/helpers/registration.c), a plain verbs program.

use crate::figures::{Line, PUBLISHED};
use crate::helper::{Helper, Point, Rights, points};
use anyhow::Result;
use pagewire_cli::stage::Stage;
use pagewire_cli::{interrupt, median};

/// The helper program.
const HELPER: &str = "registration";

/// The benchmarks, as their rows are named; one run of the helper measures both.
pub(super) const NAMES: [&str; 2] = ["reg_mr", "dereg_mr"];

/// The paper (onloaded dynamic pinning), and its machine (section 4).
const JBMT: &str = "JBMT, two 3 GHz Xeon";

/// What is measured, and the figure published for JBMT on its machine.
const MEASURED: [(&str, u64, f64); 4] = [
    ("reg_mr", 4096, 1.32),
    ("dereg_mr", 4096, 0.25),
    ("reg_mr", 1 << 40, 1.32),
    ("dereg_mr", 1 << 40, 0.25),
];

/// Measures those of [`NAMES`] that are wanted; lines without a value where the helper is missing or fails.
pub(super) fn measure(stage: &Stage, wanted: &[&'static str], rounds: u32) -> Result<Vec<Line>> {
    let mut figures: Vec<Point> = Vec::new();
    match Helper::find(stage, HELPER) {
        Err(failure) => pagewire_cli::tell!("{HELPER}: {failure}"),
        Ok(helper) => {
            let sizes = [4096_u64, 1 << 40].map(|size| size.to_string());
            for _ in 0..rounds {
                let output = helper.run(Rights::User, &[], &sizes)?;
                interrupt::check()?;
                match output.and_then(|output| points(&output)) {
                    Ok(new) => figures.extend(new),
                    Err(failure) => pagewire_cli::tell!("{HELPER}: {failure}"),
                }
            }
        }
    }
    Ok(MEASURED
        .iter()
        .filter(|(bench, ..)| wanted.contains(bench))
        .map(|&(bench, size, published)| {
            let of_size = figures.iter().filter(|figure| figure.size == size);
            let mut values: Vec<f64> =
                of_size.filter_map(|figure| figure.values.get(bench).copied().flatten()).collect();
            Line::new(
                (bench, size, "-", "us"),
                median(&mut values),
                (Some(format!("{PUBLISHED}{JBMT}")), Some(published)),
            )
        })
        .collect())
}

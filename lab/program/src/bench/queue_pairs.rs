//! What a queue pair costs to create, and an operation on one drawn at random, where a process has many: beside 64 of them.
//!
//! The work is done by the helper program `queue_pairs` (lab/helpers/queue_pairs.c), a plain verbs program.

use crate::figures::{Figures, Line};
use crate::helper::{Helper, Rights};
use anyhow::Result;
use pagewire_cli::interrupt;
use pagewire_cli::stage::Stage;
use pagewire_nic::PathChoice;
use serde::Deserialize;

/// The helper program.
const HELPER: &str = "queue_pairs";

/// The benchmarks, as their rows are named; one run of the helper measures all.
pub(super) const NAMES: [&str; 3] = ["create_qp", "many_qps_write", "many_qps_send"];

/// Numbers of queue pairs; the first is what the others are compared with.
const FEW: u64 = 64;
const MANY: [u64; 2] = [4096, 32_768];

/// What the helper prints, in microseconds.
#[derive(Clone, Copy, Deserialize)]
struct Figure {
    create: f64,
    write: f64,
    send: f64,
}

impl Figure {
    /// In the order of [`NAMES`].
    fn values(self) -> [f64; NAMES.len()] {
        [self.create, self.write, self.send]
    }
}

/// Measures those of [`NAMES`] that are wanted on one path. The size of a line is the number of queue pairs.
pub(super) fn measure(
    stage: &Stage,
    wanted: &[&'static str],
    path: PathChoice,
    rounds: u32,
) -> Result<Vec<Line>> {
    let counts = [FEW].into_iter().chain(MANY);
    let mut of_counts: Vec<_> = counts.map(|count| (count, <[Figures; NAMES.len()]>::default())).collect();
    for _ in 0..rounds {
        for (count, figures) in &mut of_counts {
            let measured = run(stage, path, *count)?.map(Figure::values);
            interrupt::check()?;
            for (index, figures) in figures.iter_mut().enumerate() {
                figures.add(measured.as_ref().map(|values| values[index]).map_err(Clone::clone));
            }
        }
    }
    let medians = of_counts.into_iter().map(|(count, figures)| {
        let title = format!("{HELPER} {count} {}", path.name());
        (count, figures.map(|figures| figures.median(&title)))
    });
    let medians: Vec<(u64, [Option<f64>; NAMES.len()])> = medians.collect();
    let Some(((_, few), many)) = medians.split_first() else { return Ok(Vec::new()) };
    let line = |index: usize, count, value| {
        let peer = (Some(format!("Pagewire with {FEW} queue pairs")), few[index]);
        Line::new((NAMES[index], count, path.name(), "us"), value, peer)
    };
    let indexes = (0..NAMES.len()).filter(|&index| wanted.contains(&NAMES[index]));
    Ok(indexes
        .flat_map(|index| many.iter().map(move |(count, values)| line(index, *count, values[index])))
        .collect())
}

/// One run; the inner error says what went wrong with it.
fn run(stage: &Stage, path: PathChoice, count: u64) -> Result<Result<Figure, String>> {
    let helper = match Helper::find(stage, HELPER) {
        Ok(helper) => helper,
        Err(failure) => return Ok(Err(failure.text)),
    };
    let output = helper.run(Rights::User, &["--path", path.name()], &[count.to_string(), "1".to_owned()])?;
    Ok(output
        .map_err(|failure| failure.text)
        .and_then(|output| serde_json::from_str(output.trim()).map_err(|error| format!("{error}: {output}"))))
}

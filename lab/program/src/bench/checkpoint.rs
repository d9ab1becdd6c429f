//! An incremental checkpoint of memory of which a hundredth has changed, beside a full copy (PAPERS AA-11).
//!
//! Half of the changes are puts, and half are writes of the process itself. Both lie on the disk when their time ends. One process measures
//! both: `pagewire-lab probe checkpoint`.

use crate::figures::{Figures, Line};
use crate::limits::BENCH_RUN;
use crate::probe::{self, Kind};
use anyhow::Result;
use pagewire_cli::interrupt;
use pagewire_cli::pair::Running;
use std::time::Instant;

/// The benchmark, as its row is named.
pub(super) const NAME: &str = "checkpoint";

/// Bytes of the memory.
const SIZES: [u64; 2] = [64 << 20, 512 << 20];

/// Measures both, in each round in a new process.
pub(super) fn measure(rounds: u32) -> Result<Vec<Line>> {
    let mut of_sizes = SIZES.map(|size| (size, <[Figures; 2]>::default()));
    for _ in 0..rounds {
        for (size, figures) in &mut of_sizes {
            let command = probe::command(Kind::Checkpoint, &[size.to_string()])?;
            let ended = Running::start(command)?.wait_until(Instant::now() + BENCH_RUN);
            interrupt::check()?;
            let measured: Result<[f64; 2], String> = match ended.success() {
                true => serde_json::from_str(ended.output.trim())
                    .map_err(|error| format!("{error}: {}", ended.output)),
                false => Err(ended.output.trim().to_owned()),
            };
            for (index, figures) in figures.iter_mut().enumerate() {
                figures.add(measured.as_ref().map(|values| values[index]).map_err(Clone::clone));
            }
        }
    }
    let lines = of_sizes.into_iter().map(|(size, [own, copy])| {
        let title = format!("{NAME} {size} B");
        let peer = (Some("a full copy".to_owned()), copy.median(&title));
        Line::new((NAME, size, "-", "us"), own.median(&title), peer)
    });
    Ok(lines.collect())
}

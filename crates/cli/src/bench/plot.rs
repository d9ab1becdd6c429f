//! The figures as pictures: one SVG file for each benchmark, both axes logarithmic.

use super::Line;
use crate::chart::{self, Axis, Curve};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Draws all benchmarks of more than one size into `directory`, which exists; gives the files.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn draw(lines: &[Line], directory: &Path) -> Result<Vec<PathBuf>> {
    let mut benches: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        benches.entry(line.bench).or_default().push(line);
    }
    let mut files = Vec::new();
    for (bench, lines) in benches {
        let file = directory.join(format!("{bench}.svg"));
        let curves = curves(&lines);
        if curves.values().any(|points| points.len() > 1) {
            let unit = lines[0].unit;
            let axes = ["bytes", unit].map(|label| Axis { label, logarithmic: true });
            let curves: Vec<Curve> = curves.into_iter().collect();
            chart::draw(&file, &format!("{bench} ({unit})"), axes.into(), &curves)?;
            files.push(file);
        }
    }
    Ok(files)
}

/// The points of each curve, by its name.
fn curves(lines: &[&Line]) -> BTreeMap<String, Vec<(f64, f64)>> {
    let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for line in lines {
        let own = (format!("Pagewire {}", line.path), line.value);
        for (name, value) in [own, (line.peer.clone().unwrap_or_default(), line.peer_value)] {
            let Some(value) = value.filter(|value| *value > 0.0) else { continue };
            let points = curves.entry(name).or_default();
            // Pagewire's figure stands beside each peer's.
            if !points.contains(&(line.size as f64, value)) {
                points.push((line.size as f64, value));
            }
        }
    }
    curves
}

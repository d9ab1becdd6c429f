//! The figures as pictures: one SVG file for each benchmark, both axes logarithmic.

use super::Line;
use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes sure that files can be made in `directory`; makes it if it does not exist.
///
/// # Errors
/// If not; the error names the directory.
pub(super) fn prepare(directory: &Path) -> Result<()> {
    let refused = || format!("--plot {}: no files can be made there", directory.display());
    fs::create_dir_all(directory).with_context(refused)?;
    tempfile::tempfile_in(directory).map(drop).with_context(refused)
}

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
            // Its errors borrow the drawing.
            chart(&file, bench, lines[0].unit, &curves)
                .map_err(|error| anyhow!("{}: {error}", file.display()))?;
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

type DrawError = Box<dyn std::error::Error>;

fn chart(
    file: &Path,
    bench: &str,
    unit: &str,
    curves: &BTreeMap<String, Vec<(f64, f64)>>,
) -> Result<(), DrawError> {
    let points = || curves.values().flatten();
    let low = |axis: fn(&(f64, f64)) -> f64| points().map(axis).fold(f64::INFINITY, f64::min);
    let high = |axis: fn(&(f64, f64)) -> f64| points().map(axis).fold(0.0, f64::max);
    let (x, y) = (low(|p| p.0)..high(|p| p.0) * 1.1, low(|p| p.1) / 2.0..high(|p| p.1) * 2.0);

    let root = SVGBackend::new(file, (800, 500)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("{bench} ({unit})"), ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    chart.configure_mesh().x_desc("bytes").y_desc(unit).draw()?;
    for (index, (name, points)) in curves.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

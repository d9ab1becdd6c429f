//! Curves as pictures: SVG files, each axis linear or logarithmic.

use anyhow::{Context, Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::fs;
use std::path::Path;

/// What one axis shows.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// Beside it.
    pub label: &'a str,
    /// A logarithmic axis leaves out what is not above 0.
    pub logarithmic: bool,
}

/// Pixels: the plot's width, the height of all, and what a curve's name needs besides its letters.
const PLOT: u32 = 800;
const HEIGHT: u32 = 500;
const LEGEND_MARK: u32 = 32;

/// A row of points under a name.
pub type Curve = (String, Vec<(f64, f64)>);

/// Makes sure that files can be made in `directory`; makes it if it does not exist.
///
/// # Errors
/// If not; the error names the option that gave it, and the directory.
pub fn prepare(option: &str, directory: &Path) -> Result<()> {
    let refused = || format!("{option} {}: no files can be made there", directory.display());
    fs::create_dir_all(directory).with_context(refused)?;
    tempfile::tempfile_in(directory).map(drop).with_context(refused)
}

/// Draws `curves` into `file`; nothing is drawn where no point can be.
///
/// # Errors
/// If it cannot be written.
pub fn draw(file: &Path, caption: &str, (x, y): (Axis, Axis), curves: &[Curve]) -> Result<()> {
    let shown = |&(a, b): &(f64, f64)| (!x.logarithmic || a > 0.0) && (!y.logarithmic || b > 0.0);
    let curves: Vec<Curve> = curves
        .iter()
        .map(|(name, points)| (name.clone(), points.iter().copied().filter(shown).collect()))
        .filter(|(_, points): &Curve| !points.is_empty())
        .collect();
    if curves.is_empty() {
        return Ok(());
    }
    let points = || curves.iter().flat_map(|(_, points)| points);
    let ends = |axis: fn(&(f64, f64)) -> f64| {
        let low = points().map(axis).fold(f64::INFINITY, f64::min);
        (low, points().map(axis).fold(f64::NEG_INFINITY, f64::max))
    };
    let ((left, right), (low, high)) = (ends(|point| point.0), ends(|point| point.1));
    let along = if x.logarithmic { left..right * 1.1 } else { left - 0.5..right + 0.5 };
    let upwards = if y.logarithmic { low / 2.0..high * 2.0 } else { low.min(0.0)..high * 1.1 + 0.1 };
    let chart = Chart { file, caption, labels: (x.label, y.label), curves: &curves };
    let drawn = match (x.logarithmic, y.logarithmic) {
        (true, true) => chart.draw(along.log_scale(), upwards.log_scale()),
        (true, false) => chart.draw(along.log_scale(), upwards),
        (false, true) => chart.draw(along, upwards.log_scale()),
        (false, false) => chart.draw(along, upwards),
    };
    // Its errors borrow the drawing.
    drawn.map_err(|error| anyhow!("{}: {error}", file.display()))
}

struct Chart<'a> {
    file: &'a Path,
    caption: &'a str,
    labels: (&'a str, &'a str),
    curves: &'a [Curve],
}

impl Chart<'_> {
    fn draw<X, Y>(&self, x: X, y: Y) -> Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        // The names stand beside the plot: above it they would hide its right end.
        let longest = self.curves.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) as u32;
        let root = SVGBackend::new(self.file, (PLOT + LEGEND_MARK + 7 * longest, HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        let (plot, legend) = root.split_horizontally(PLOT);
        let mut chart = ChartBuilder::on(&plot)
            .caption(self.caption, ("sans-serif", 20))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(x, y)?;
        chart.configure_mesh().x_desc(self.labels.0).y_desc(self.labels.1).draw()?;
        for (index, (name, points)) in self.curves.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?;
            let height = 50 + 17 * index as i32;
            legend.draw(&PathElement::new([(0, height), (16, height)], colour.stroke_width(2)))?;
            legend.draw(&Text::new(name.as_str(), (22, height - 6), ("sans-serif", 12)))?;
        }
        root.present()?;
        Ok(())
    }
}

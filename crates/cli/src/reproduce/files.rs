//! Figures as files: the points as CSV, the picture as SVG.

use crate::chart::{self, Axis, Curve};
use anyhow::{Context, Result};
use pagewire_papers::Figure;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes `PAPER-figure-N.csv` and `.svg`, or `PAPER-table-N`, into `directory`, which exists; gives the files.
///
/// # Errors
/// If one cannot be written.
pub(super) fn write(paper: &str, figures: &[Figure], directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for figure in figures {
        let stem = format!("{paper}-{}", figure.place.to_string().replace(' ', "-"));
        let csv = directory.join(format!("{stem}.csv"));
        fs::write(&csv, as_csv(figure)).with_context(|| csv.display().to_string())?;
        files.push(csv);
        let svg = directory.join(format!("{stem}.svg"));
        let axis = |axis: pagewire_papers::Axis| Axis { label: axis.label, logarithmic: axis.logarithmic };
        let curves: Vec<Curve> =
            figure.curves.iter().map(|curve| (curve.name.clone(), curve.points.clone())).collect();
        let caption = format!("{paper}, {}: model", figure.place);
        chart::draw(&svg, &caption, (axis(figure.x), axis(figure.y)), &curves)?;
        files.push(svg);
    }
    Ok(files)
}

/// A line for each point (RFC 4180; no name has a quotation mark).
fn as_csv(figure: &Figure) -> String {
    let mut text = format!("curve,{},{}\r\n", figure.x.label, figure.y.label);
    for curve in &figure.curves {
        for (x, y) in &curve.points {
            text += &format!("\"{}\",{x},{y}\r\n", curve.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_papers::Paper;

    #[test]
    fn each_figure_becomes_a_table_and_a_picture_of_all_its_curves() {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, paper) in [("part", Paper::Part), ("jbmt", Paper::Jbmt)] {
            let figures = pagewire_papers::figures(paper);
            let files = write(name, &figures, directory.path()).expect("written");
            assert_eq!(files.len(), 2 * figures.len());
            for (figure, files) in figures.iter().zip(files.chunks(2)) {
                let read = |file: &PathBuf| fs::read_to_string(file).expect("text");
                let (csv, svg) = (read(&files[0]), read(&files[1]));
                let points: usize = figure.curves.iter().map(|curve| curve.points.len()).sum();
                assert_eq!(csv.lines().count(), points + 1, "{}", figure.place);
                assert!(!csv.contains("\"\""));
                for curve in &figure.curves {
                    assert!(svg.contains(&curve.name) && csv.contains(&curve.name), "{}", curve.name);
                }
            }
        }
    }
}

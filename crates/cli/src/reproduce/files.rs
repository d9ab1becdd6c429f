//! Figures as files: the points as CSV, the picture as SVG.

use super::live::{Live, Pages};
use crate::chart::{self, Axis, Curve};
use anyhow::{Context, Result};
use pagewire_papers::Figure;
use std::fs;
use std::path::{Path, PathBuf};

/// Of so many curves in one picture each can still be told from the others.
const CURVES: usize = 18;

/// Curves of one origin: the model, or this machine.
struct Origin {
    /// What follows the name of a file of its own.
    suffix: &'static str,
    title: &'static str,
    curves: Vec<Curve>,
}

/// Writes `PAPER-figure-N.csv` and `.svg`, or `PAPER-table-N`, into `directory`, which exists; gives the files.
///
/// # Errors
/// If one cannot be written.
pub(super) fn write(
    paper: &str,
    figures: &[Figure],
    live: Option<&Live>,
    directory: &Path,
) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for figure in figures {
        let stem = format!("{paper}-{}", figure.place.to_string().replace(' ', "-"));
        let origins = origins(figure, live);
        let csv = directory.join(format!("{stem}.csv"));
        fs::write(&csv, as_csv(figure, &origins)).with_context(|| csv.display().to_string())?;
        files.push(csv);
        let together = origins.iter().map(|origin| origin.curves.len()).sum::<usize>() <= CURVES;
        let pictures: Vec<&[Origin]> = if together { vec![&origins] } else { origins.chunks(1).collect() };
        for shown in pictures {
            let svg = directory.join(format!("{stem}{}.svg", shown[0].suffix));
            let titles: Vec<&str> = shown.iter().map(|origin| origin.title).collect();
            let caption = format!("{paper}, {}: {}", figure.place, titles.join("; "));
            let curves: Vec<Curve> = shown.iter().flat_map(|origin| &origin.curves).cloned().collect();
            let axis =
                |axis: pagewire_papers::Axis| Axis { label: axis.label, logarithmic: axis.logarithmic };
            chart::draw(&svg, &caption, (axis(figure.x), axis(figure.y)), &curves)?;
            files.push(svg);
        }
    }
    Ok(files)
}

/// The model's curves, and those of this machine under names that say so.
fn origins(figure: &Figure, live: Option<&Live>) -> Vec<Origin> {
    let model = figure.curves.iter().map(|curve| (curve.name.clone(), curve.points.clone())).collect();
    let mut origins = vec![Origin { suffix: "", title: "model", curves: model }];
    for (pages, suffix) in [(Pages::Zero, "-live"), (Pages::Pager, "-live-pager")] {
        let measured = live.map(|live| live.curves(figure.place, pages)).unwrap_or_default();
        if !measured.is_empty() {
            let named =
                |curve: pagewire_papers::Curve| (format!("{}, {}", curve.name, pages.title()), curve.points);
            let curves = measured.into_iter().map(named).collect();
            origins.push(Origin { suffix, title: pages.title(), curves });
        }
    }
    origins
}

/// A line for each point (RFC 4180; no name has a quotation mark).
fn as_csv(figure: &Figure, origins: &[Origin]) -> String {
    let mut text = format!("curve,{},{}\r\n", figure.x.label, figure.y.label);
    for (name, points) in origins.iter().flat_map(|origin| &origin.curves) {
        for (x, y) in points {
            text += &format!("\"{name}\",{x},{y}\r\n");
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
            let files = write(name, &figures, None, directory.path()).expect("written");
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

    /// What is measured is in the model's picture, or beside it where there would be too much in one; it is in the table in any case.
    #[test]
    fn this_machine_stands_beside_the_model() {
        let directory = tempfile::tempdir().expect("a directory");
        let live = super::super::live::tests::invented(Paper::Part, crate::arguments::PathChoice::Udp);
        let figures = pagewire_papers::figures(Paper::Part);
        let files = write("part", &figures, Some(&live), directory.path()).expect("written");
        assert!(files.iter().all(|file| file.is_file()));
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).expect(name);
        let names = ["PIO", "PIO, this machine", "PIO, this machine, pages of a pager"];
        for name in names {
            assert!(read("part-figure-12.csv").contains(&format!("\"{name}\",4096,")), "{name}");
            assert!(read("part-figure-12.svg").contains(name), "{name}");
        }
        assert!(!read("part-figure-14.svg").contains("this machine"));
        assert!(read("part-figure-14-live.svg").contains("PIO 4 KiB, this machine"));
        assert!(read("part-figure-14-live-pager.svg").contains("PIO 4 KiB, this machine, pages of a pager"));
        assert!(read("part-figure-14.csv").contains("\"PIA 4 MiB, this machine, pages of a pager\",100,3"));
    }
}

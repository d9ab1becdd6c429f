//! Numbers as CSV, and figures as files: the points as CSV, the pictures as SVG.

use super::comparison::Comparison;
use super::json;
use super::live::{Live, Pages};
use super::marks::{Mark, marks};
use super::pictures::{Drawn, Origin, picture, row};
use super::rows::Rows;
use super::words;
use crate::chart::{Drawing, Panel, Sheet};
use anyhow::{Context, Result};
use pagewire_papers::{Claim, Curve, Figure, Place};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes `PAPER-numbers.csv` (where only one `place` was asked for: `PAPER-PLACE-numbers.csv`), and `PAPER-figure-N.csv` and `.svg`, or
/// `PAPER-table-N`, into `directory`, which exists; gives the files.
///
/// # Errors
/// If one cannot be written.
pub(super) fn write(
    paper: &str,
    rows: &Rows,
    figures: &[Figure],
    live: Option<&Live>,
    place: Option<Place>,
    directory: &Path,
) -> Result<Vec<PathBuf>> {
    let claims = rows.claims();
    let mut files = Vec::new();
    let stem = |place: Place| format!("{paper}-{}", place.to_string().replace(' ', "-"));
    if !claims.is_empty() {
        let name = place.map_or(paper.to_owned(), stem) + "-numbers.csv";
        files.push(table(directory, &name, &numbers(paper, claims, live))?);
    }
    for figure in figures {
        let right = figure.right.map_or_else(String::new, |right| format!("-{}", right.name()));
        let stem = stem(figure.place) + &right;
        let (origins, marks) = (origins(figure, live), marks(figure, claims));
        files.push(table(directory, &format!("{stem}.csv"), &points(figure, &origins, &marks))?);
        let svg = directory.join(format!("{stem}.svg"));
        let mut picture = picture(paper, figure, &origins, &marks);
        picture.panels.extend(Comparison::of(figure, live).map(conclusion));
        if picture.draw(&svg)? {
            files.push(svg);
        }
    }
    // All figures of a paper on one sheet, if there are several.
    let are_of_paper = figures.iter().all(|figure| !figure.curves.is_empty());
    if figures.len() > 1 && place.is_none() && are_of_paper {
        let [svg, png] = ["svg", "png"].map(|kind| directory.join(format!("{paper}-sheet.{kind}")));
        sheet(paper, claims, figures, live).draw(&svg, &png)?;
        files.extend([svg, png]);
    }
    Ok(files)
}

/// Where active puts have the paper's factor, as lines beside the curves.
fn conclusion(comparison: Comparison) -> Panel {
    Panel { heading: "verdict".to_owned(), drawing: Drawing::Lines(comparison.conclusions()) }
}

/// What the paper states beside the model beside this machine, a row for each figure.
fn sheet(paper: &str, claims: &[Claim], figures: &[Figure], live: Option<&Live>) -> Sheet {
    let of = |figure: &Figure| {
        let stated = (marks(figure, claims), numbers_of(figure, claims));
        row(figure, &origins(figure, live), (&stated.0, stated.1), live.is_some())
    };
    let title = format!("{}: paper, model, this machine", paper.to_uppercase());
    let lines = live.map(Live::first_lines).unwrap_or_default();
    Sheet { title, lines, rows: figures.iter().map(of).collect() }
}

/// What the text states of a figure, a line each.
fn numbers_of(figure: &Figure, claims: &[Claim]) -> Vec<String> {
    let here = claims.iter().filter(|claim| claim.place == figure.place);
    here.map(|claim| format!("{}: {}", claim.what, words::stated(claim))).collect()
}

fn table(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let file = directory.join(name);
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    Ok(file)
}

/// The figure's own curves, and those of this machine under names that say so.
fn origins(figure: &Figure, live: Option<&Live>) -> Vec<Origin> {
    let drawn = |curve: &Curve, name: String| Drawn {
        base: curve.name.clone(),
        name,
        points: curve.points.clone(),
        intervals: curve.intervals.clone(),
        provenance: curve.provenance,
    };
    let model: Vec<Drawn> = figure.curves.iter().map(|curve| drawn(curve, curve.name.clone())).collect();
    let mut origins = Vec::new();
    if !model.is_empty() {
        origins.push(Origin { title: figure.basis, curves: model });
    }
    for pages in Pages::ALL {
        let measured = live.map(|live| live.curves_of(figure, pages)).unwrap_or_default();
        if !measured.is_empty() {
            let named = |curve: &Curve| drawn(curve, format!("{}, {}", curve.name, pages.title()));
            let curves = measured.iter().map(named).collect();
            origins.push(Origin { title: pages.title(), curves });
        }
    }
    origins
}

/// A line for each number (RFC 4180), under the names that it has in JSON.
fn numbers(paper: &str, claims: &[Claim], live: Option<&Live>) -> String {
    let mut columns = vec![
        "place",
        "what",
        "unit",
        "stated_least",
        "stated_most",
        "bound_by_us",
        "kind",
        "verdict",
        "inputs",
        "predicted_least",
        "predicted_most",
        "varied_least",
        "varied_most",
        "varied_by",
        "deviation_percent",
        "other_link_least",
        "other_link_most",
        "other_link_deviation_percent",
        "reason",
    ];
    columns.extend(live.into_iter().flat_map(|_| ["this_machine", "measured_as"]));
    let mut text = columns.join(",") + "\r\n";
    for claim in claims {
        let line = json::of_claim(paper, claim, live);
        let cells: Vec<String> = columns.iter().map(|&column| csv_cell(&line[column])).collect();
        text += &(cells.join(",") + "\r\n");
    }
    text
}

/// A cell of a line (RFC 4180).
pub(super) fn csv_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Array(all) => {
            let names: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            if names.is_empty() { String::new() } else { quoted(&names.join("; ")) }
        }
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A line for each point, and for each number of the paper that is one: its interval if it has one, where it comes from, and what it is computed
/// from.
fn points(figure: &Figure, origins: &[Origin], marks: &[Mark]) -> String {
    let mut text = format!("curve,{},{},least,most,provenance,inputs\r\n", figure.x.label, figure.y.label);
    for curve in origins.iter().flat_map(|origin| &origin.curves) {
        let inputs = json::names(curve.provenance.inputs()).join("; ");
        let inputs = if inputs.is_empty() { inputs } else { quoted(&inputs) };
        for &(x, y) in &curve.points {
            let interval = curve.intervals.iter().find(|interval| interval.0 == x);
            let ends = interval.map_or_else(|| ",".to_owned(), |(_, least, most)| format!("{least},{most}"));
            let provenance = curve.provenance.name();
            text += &format!("{},{x},{y},{ends},{provenance},{inputs}\r\n", quoted(&curve.name));
        }
    }
    for mark in marks {
        text += &format!("{},{},{},,,stated,\r\n", quoted(&format!("{}, paper", mark.curve)), mark.x, mark.y);
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
        for (name, paper) in [
            ("part", Paper::Part),
            ("jbmt", Paper::Jbmt),
            ("frrwp", Paper::Frrwp),
            ("reuse", Paper::Reuse),
            ("active", Paper::Active),
        ] {
            let figures = pagewire_papers::figures(paper);
            let claims = pagewire_papers::claims(paper);
            let rows = Rows::of(claims.clone()).expect("none is refused");
            let files = write(name, &rows, &figures, None, None, directory.path()).expect("written");
            assert_eq!(files.iter().collect::<std::collections::BTreeSet<_>>().len(), files.len());
            let read = |file: &Path| fs::read_to_string(file).expect("text");
            for figure in &figures {
                let right = figure.right.map_or_else(String::new, |right| format!("-{}", right.name()));
                let stem = format!("{name}-{}{right}", figure.place.to_string().replace(' ', "-"));
                let csv = read(&directory.path().join(format!("{stem}.csv")));
                let svg = read(&directory.path().join(format!("{stem}.svg")));
                let points: usize = figure.curves.iter().map(|curve| curve.points.len()).sum();
                let marks = marks(figure, &claims);
                assert_eq!(csv.lines().count(), points + marks.len() + 1, "{}", figure.place);
                assert_eq!(svg.contains("stated in the paper"), !marks.is_empty(), "{stem}");
                for mark in marks {
                    assert!(
                        csv.contains(&format!(
                            "\"{}, paper\",{},{},,,stated,\r\n",
                            mark.curve, mark.x, mark.y
                        ))
                    );
                }
                assert!(csv.starts_with("curve,") && csv.contains(",least,most,provenance,inputs\r\n"));
                for curve in &figure.curves {
                    let line = format!("\"{}\",", curve.name);
                    let lines = csv.lines().filter(|text| text.starts_with(&line));
                    let is_computed = curve.provenance.name() == "computed";
                    assert!(
                        lines.clone().count() > 0
                            && lines.clone().all(|line| is_computed == line.contains(",computed,\""))
                    );
                    // The sum of all parts is the height of the bars.
                    assert!(svg.contains(&curve.name) || curve.name == "all parts", "{}", curve.name);
                    assert!(csv.contains(&curve.name), "{}", curve.name);
                }
            }
        }
    }

    /// As a program reads them: quotation marks within a cell are doubled, what is not there is empty.
    #[test]
    fn the_numbers_are_a_table_of_their_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let claims: Vec<Claim> = pagewire_papers::claims(Paper::Part);
        let rows = Rows::of(claims.clone()).expect("none is refused");
        let files = write("part", &rows, &[], None, None, directory.path()).expect("written");
        assert_eq!(files, [directory.path().join("part-numbers.csv")]);
        let text = fs::read_to_string(&files[0]).expect("text");
        assert_eq!(text.lines().count(), claims.len() + 1);
        assert!(text.lines().next().expect("a heading").ends_with(",reason"));
        assert!(text.contains("\"the text says \"\"nearly doubling\"\", without the sizes"));
        assert!(text.contains(
            "\"pinning an absent page adds\",\"us\",6.0,6.0,false,\"given\",\"given\",,,,,,,,,,,\r\n"
        ));
        let live = super::super::live::tests::invented(Paper::Part, pagewire_nic::PathChoice::Udp);
        let text = numbers("part", &claims, Some(&live));
        assert!(text.contains(
            "\"pinning an absent page adds\",\"us\",6.0,6.0,false,\"given\",\"given\",,,,,,,,,,,,1.0,\r\n"
        ));
        let files =
            write("part", &rows, &[], None, Some(Place::Table(5)), directory.path()).expect("written");
        assert_eq!(files, [directory.path().join("part-table-5-numbers.csv")]);
        let none = Rows::of(Vec::new()).expect("none");
        assert!(write("part", &none, &[], None, None, directory.path()).expect("nothing").is_empty());
    }

    /// What is measured is in a panel beside the model, in the figure's one file, and on the sheet.
    #[test]
    fn this_machine_stands_beside_the_model() {
        let directory = tempfile::tempdir().expect("a directory");
        let live = super::super::live::tests::invented(Paper::Part, pagewire_nic::PathChoice::Udp);
        let figures = pagewire_papers::figures(Paper::Part);
        let rows = Rows::of(pagewire_papers::claims(Paper::Part)).expect("none is refused");
        let files = write("part", &rows, &figures, Some(&live), None, directory.path()).expect("written");
        assert!(files.iter().all(|file| file.is_file()));
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).expect(name);
        for name in ["PIO", "PIO, this machine", "PIO, this machine, pages of a pager"] {
            assert!(read("part-figure-12.csv").contains(&format!("\"{name}\",4096,")), "{name}");
            assert!(read("part-figure-12.svg").contains(name), "{name}");
        }
        assert!(read("part-figure-12.csv").contains(",measured,"));
        assert!(
            read("part-figure-15-speed-up.csv")
                .contains("speed-up of TO 131 us over NTO, early ERR, this machine")
        );
        assert!(read("part-figure-14-slowdown.csv").contains("slowdown of PIO 4 KiB, this machine"));
        assert!(read("part-figure-14.svg").contains("PIO 4 KiB, this machine, pages of a pager"));
        assert!(read("part-figure-14.csv").contains("\"PIA 4 MiB, this machine, pages of a pager\",100,3"));
        let sheet = read("part-sheet.svg");
        let titles = |figure: &Figure| sheet.contains(&format!("{}: ", figure.place));
        assert!(figures.iter().all(titles) && sheet.contains(">paper</text>"));
        assert!(files.contains(&directory.path().join("part-sheet.png")));
    }
}

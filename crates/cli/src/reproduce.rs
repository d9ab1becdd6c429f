//! `pagewire reproduce`: the numbers that a paper states, beside what a model of its machine predicts from unit costs.

mod files;

use crate::arguments::{ReproduceArguments, ReproducedPaper};
use crate::table::{Table, bad, good, heading, warning};
use anyhow::{Result, bail};
use pagewire_papers::{Claim, Figure, Paper, Place, Prediction};
use serde_json::json;
use std::io::Write;

/// Prints the numbers, and writes the figures if files are asked for; gives the exit status.
///
/// # Errors
/// If the paper has no such figure or table, or something cannot be written.
pub fn reproduce(arguments: &ReproduceArguments) -> Result<u8> {
    let (name, paper) = match arguments.paper {
        ReproducedPaper::Part => ("part", Paper::Part),
        ReproducedPaper::Jbmt => ("jbmt", Paper::Jbmt),
    };
    if let Some(directory) = &arguments.out {
        crate::chart::prepare("--out", directory)?;
    }
    let wanted = arguments.figure.map(Place::Figure).or(arguments.table.map(Place::Table));
    let chosen = |place: Place| wanted.is_none_or(|wanted| wanted == place);
    let mut claims = pagewire_papers::claims(paper);
    let mut figures = pagewire_papers::figures(paper);
    if let Some(wanted) = wanted.filter(|&wanted| !known(&claims, &figures).contains(&wanted)) {
        let known: Vec<String> = known(&claims, &figures).iter().map(Place::to_string).collect();
        bail!("{name} has no {wanted} that is reproduced: there are {}", known.join(", "));
    }
    claims.retain(|claim| chosen(claim.place));
    figures.retain(|figure| chosen(figure.place));

    let mut out = anstream::stdout().lock();
    if arguments.json {
        for claim in &claims {
            writeln!(out, "{}", claim_as_json(name, claim))?;
        }
        for figure in &figures {
            writeln!(out, "{}", figure_as_json(name, figure))?;
        }
    } else {
        print(&mut out, &claims, &figures)?;
    }
    if let Some(directory) = &arguments.out {
        for file in files::write(name, &figures, directory)? {
            crate::tell!("written: {}", file.display());
        }
    }
    Ok(0)
}

/// What there are numbers or curves of.
fn known(claims: &[Claim], figures: &[Figure]) -> std::collections::BTreeSet<Place> {
    claims.iter().map(|claim| claim.place).chain(figures.iter().map(|figure| figure.place)).collect()
}

fn print(out: &mut impl Write, claims: &[Claim], figures: &[Figure]) -> Result<()> {
    let mut table = Table::new(&["where", "what", "paper", "model", "deviation"]);
    let (mut near, mut off, mut rest) = (0, 0, 0);
    for claim in claims {
        let (model, deviation) = match (claim.predicted, claim.deviation()) {
            (Prediction::Value(value), Some(deviation)) => {
                let style = if claim.needs_reason() { warning() } else { good() };
                *(if claim.needs_reason() { &mut off } else { &mut near }) += 1;
                // Of a number that is but bounded, the distance from the bounds says nothing.
                let within = claim.stated.0 < claim.stated.1 && deviation == 0.0;
                let text = if within { "within".to_owned() } else { format!("{:+.1} %", deviation * 100.0) };
                (with_unit(&number(value), claim.unit), format!("{style}{text}{style:#}"))
            }
            (Prediction::Given, _) => {
                rest += 1;
                ("given".to_owned(), String::new())
            }
            _ => {
                rest += 1;
                let style = bad();
                (format!("{style}none{style:#}"), String::new())
            }
        };
        table.row(vec![
            claim.place.to_string(),
            claim.what.to_owned(),
            with_unit(&stated(claim), claim.unit),
            model,
            deviation,
        ]);
        table.note(claim.reason.unwrap_or_default().to_owned());
    }
    if !claims.is_empty() {
        table.write(out, "")?;
        writeln!(
            out,
            "\nOf {} numbers {near} are predicted within a tenth, {off} are not, and {rest} are given or cannot be modelled.\n",
            claims.len()
        )?;
    }
    for figure in figures {
        let style = heading();
        writeln!(out, "{style}{}: {}{style:#}", figure.place, figure.title)?;
        curves(figure).write(out, "  ")?;
        writeln!(out)?;
    }
    Ok(())
}

/// A row for each x, a column for each curve.
fn curves(figure: &Figure) -> Table {
    let names = figure.curves.iter().map(|curve| curve.name.as_str());
    let x = figure.x.label;
    let head: Vec<String> =
        [x.to_owned()].into_iter().chain(names.map(|name| format!("{name} ({})", figure.y.label))).collect();
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    let mut values: Vec<f64> =
        figure.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    for value in values {
        let cell = |points: &[(f64, f64)]| {
            let here = points.iter().filter(|point| point.0 == value).map(|point| number(point.1));
            here.collect::<Vec<_>>().join(" to ")
        };
        let cells = figure.curves.iter().map(|curve| cell(&curve.points));
        table.row([format!("{value}")].into_iter().chain(cells).collect());
    }
    table
}

/// Three digits that count, as the papers state them.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn stated(claim: &Claim) -> String {
    let (least, most) = claim.stated;
    if least == most {
        format!("{most}")
    } else if least == 0.0 {
        format!("<= {most}")
    } else {
        format!("{least} to {most}")
    }
}

fn with_unit(number: &str, unit: &str) -> String {
    format!("{number} {unit}").trim_end().to_owned()
}

fn claim_as_json(paper: &str, claim: &Claim) -> serde_json::Value {
    let (kind, value) = match claim.predicted {
        Prediction::Value(value) => ("predicted", Some(value)),
        Prediction::Given => ("given", None),
        Prediction::NotModelled => ("not modelled", None),
    };
    json!({
        "paper": paper,
        "place": claim.place.to_string(),
        "what": claim.what,
        "unit": claim.unit,
        "stated_least": claim.stated.0,
        "stated_most": claim.stated.1,
        "kind": kind,
        "predicted": value,
        "deviation_percent": claim.deviation().map(|deviation| deviation * 100.0),
        "reason": claim.reason,
    })
}

fn figure_as_json(paper: &str, figure: &Figure) -> serde_json::Value {
    let curves: serde_json::Map<_, _> =
        figure.curves.iter().map(|curve| (curve.name.clone(), json!(curve.points))).collect();
    json!({
        "paper": paper,
        "place": figure.place.to_string(),
        "title": figure.title,
        "x": figure.x.label,
        "y": figure.y.label,
        "curves": curves,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        assert_eq!(
            [24058.06, 35.808, 1.4743, 0.0539, 0.0].map(number),
            ["24058", "35.8", "1.47", "0.054", "0.00"]
        );
    }

    /// Whoever reads the table finds each number of the paper in it, and a reason below each that is off.
    #[test]
    fn the_table_has_every_number_and_every_reason() {
        for paper in [Paper::Part, Paper::Jbmt] {
            let (claims, figures) = (pagewire_papers::claims(paper), pagewire_papers::figures(paper));
            let mut out = Vec::new();
            print(&mut out, &claims, &figures).expect("memory");
            let text = String::from_utf8(out).expect("UTF-8");
            for claim in &claims {
                assert!(text.contains(claim.what) && text.contains(&with_unit(&stated(claim), claim.unit)));
                assert!(claim.reason.is_none_or(|reason| text.contains(reason)));
            }
            assert!(figures.iter().all(|figure| text.contains(figure.title)));
        }
    }

    #[test]
    fn json_says_what_was_predicted_and_what_was_not() {
        let claims = pagewire_papers::claims(Paper::Jbmt);
        let lines: Vec<_> = claims.iter().map(|claim| claim_as_json("jbmt", claim)).collect();
        let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
        assert_eq!(of("given"), 4);
        assert!(of("predicted") >= 3);
        for line in lines {
            assert_eq!(line["kind"] == "predicted", line["predicted"].is_number(), "{line}");
        }
    }
}

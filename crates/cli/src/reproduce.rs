//! `pagewire reproduce`: the numbers that a paper states, beside what a model of its machine predicts from unit costs and, if that
//! is asked for, beside what is measured on this machine.

mod files;
mod live;

use self::live::{Live, Pages};
use crate::arguments::{PathChoice, ReproduceArguments, ReproducedPaper};
use crate::table::{Table, bad, good, heading, warning};
use anyhow::{Result, bail};
use pagewire_papers::{Claim, Curve, Figure, Paper, Place, Prediction};
use serde_json::json;
use std::io::Write;

/// Prints the numbers, and writes the figures if files are asked for; gives the exit status.
///
/// # Errors
/// If the paper has no such figure or table, something cannot be written, or the engine that is to be measured is not installed.
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
    let live = if arguments.live {
        let places: Vec<Place> = known(&claims, &figures).into_iter().collect();
        Some(Live::measure(paper, &places, arguments.path.unwrap_or(PathChoice::Udp))?)
    } else {
        None
    };
    let live = live.as_ref();

    let mut out = anstream::stdout().lock();
    if arguments.json {
        for claim in &claims {
            writeln!(out, "{}", claim_as_json(name, claim, live))?;
        }
        for figure in &figures {
            writeln!(out, "{}", figure_as_json(name, figure, live))?;
        }
        for (place, live) in without_figure(&claims, &figures, live) {
            let line = json!({ "paper": name, "place": place.to_string(), "this_machine": live_as_json(place, live) });
            writeln!(out, "{line}")?;
        }
    } else {
        print(&mut out, &claims, &figures, live)?;
    }
    if let Some(directory) = &arguments.out {
        for file in files::write(name, &figures, live, directory)? {
            crate::tell!("written: {}", file.display());
        }
    }
    Ok(u8::from(live.is_some_and(Live::has_failed)))
}

/// Places of which there are numbers but no curves, where this machine is measured, too.
fn without_figure<'a>(
    claims: &[Claim],
    figures: &[Figure],
    live: Option<&'a Live>,
) -> Vec<(Place, &'a Live)> {
    let mut places = known(claims, &[]);
    places.retain(|place| figures.iter().all(|figure| figure.place != *place));
    places.into_iter().filter_map(|place| Some((place, live?))).collect()
}

/// What there are numbers or curves of.
fn known(claims: &[Claim], figures: &[Figure]) -> std::collections::BTreeSet<Place> {
    claims.iter().map(|claim| claim.place).chain(figures.iter().map(|figure| figure.place)).collect()
}

fn print(out: &mut impl Write, claims: &[Claim], figures: &[Figure], live: Option<&Live>) -> Result<()> {
    let mut head = vec!["where", "what", "paper", "model", "deviation"];
    head.extend(live.map(|_| Pages::Zero.title()));
    let mut table = Table::new(&head);
    let (mut near, mut off, mut sums, mut rest) = (0, 0, 0, 0);
    for claim in claims {
        match claim.predicted {
            Prediction::Value(_) if claim.needs_reason() => off += 1,
            Prediction::Value(_) => near += 1,
            Prediction::Sum(..) => sums += 1,
            Prediction::Given | Prediction::NotModelled => rest += 1,
        }
        let (model, deviation) = match (claim.predicted, claim.predicted.range(), claim.deviation()) {
            (predicted, Some((least, most)), Some(deviation)) => {
                let style = if claim.needs_reason() { warning() } else { good() };
                // Of numbers that are but bounded, the distance from the bounds says nothing.
                let within = (claim.stated.0 < claim.stated.1 || least < most) && deviation == 0.0;
                let text = if within { "within".to_owned() } else { format!("{:+.1} %", deviation * 100.0) };
                let range = if least < most {
                    format!("{} to {}", number(least), number(most))
                } else {
                    number(most)
                };
                let sum = if matches!(predicted, Prediction::Sum(..)) { "sum: " } else { "" };
                (format!("{sum}{}", with_unit(&range, claim.unit)), format!("{style}{text}{style:#}"))
            }
            (Prediction::Given, ..) => ("given".to_owned(), String::new()),
            _ => {
                let style = bad();
                (format!("{style}none{style:#}"), String::new())
            }
        };
        let mut row = vec![
            claim.place.to_string(),
            claim.what.to_owned(),
            with_unit(&stated(claim), claim.unit),
            model,
            deviation,
        ];
        row.extend(live.map(|live| {
            live.number(claim).map_or_else(String::new, |value| with_unit(&number(value), claim.unit))
        }));
        table.row(row);
        table.note(claim.reason.unwrap_or_default().to_owned());
    }
    if !claims.is_empty() {
        table.write(out, "")?;
        writeln!(
            out,
            "\nOf {} numbers {near} are predicted within a tenth, {off} are not, {sums} are sums or ratios of what is given, and {rest} are \
             given or cannot be modelled.\n",
            claims.len()
        )?;
    }
    for figure in figures {
        let style = heading();
        writeln!(out, "{style}{}: {}{style:#}", figure.place, figure.title)?;
        curves(figure, &figure.curves).write(out, "  ")?;
        if let Some(live) = live {
            for pages in Pages::ALL {
                let measured = live.curves(figure.place, pages);
                if !measured.is_empty() {
                    writeln!(out, "\n  {style}{}, path {}:{style:#}", pages.title(), live.path().name())?;
                    curves(figure, &measured).write(out, "  ")?;
                }
            }
            for note in live.notes(figure.place) {
                writeln!(out, "  {note}")?;
            }
        }
        writeln!(out)?;
    }
    for (place, live) in without_figure(claims, figures, live) {
        for note in live.notes(place) {
            writeln!(out, "{place}, {}: {note}", Pages::Zero.title())?;
        }
    }
    Ok(())
}

/// A row for each x, a column for each of these curves of a figure.
fn curves(figure: &Figure, curves: &[Curve]) -> Table {
    let names = curves.iter().map(|curve| curve.name.as_str());
    let x = figure.x.label;
    let head: Vec<String> =
        [x.to_owned()].into_iter().chain(names.map(|name| format!("{name} ({})", figure.y.label))).collect();
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    let mut values: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|point| point.0).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    for value in values {
        let cell = |points: &[(f64, f64)]| {
            let here = points.iter().filter(|point| point.0 == value).map(|point| number(point.1));
            here.collect::<Vec<_>>().join(" to ")
        };
        let cells = curves.iter().map(|curve| cell(&curve.points));
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

fn claim_as_json(paper: &str, claim: &Claim, live: Option<&Live>) -> serde_json::Value {
    let kind = match claim.predicted {
        Prediction::Value(_) => "predicted",
        Prediction::Sum(..) => "sum",
        Prediction::Given => "given",
        Prediction::NotModelled => "not modelled",
    };
    let range = claim.predicted.range();
    let mut line = json!({
        "paper": paper,
        "place": claim.place.to_string(),
        "what": claim.what,
        "unit": claim.unit,
        "stated_least": claim.stated.0,
        "stated_most": claim.stated.1,
        "kind": kind,
        "predicted_least": range.map(|(least, _)| least),
        "predicted_most": range.map(|(_, most)| most),
        "deviation_percent": claim.deviation().map(|deviation| deviation * 100.0),
        "reason": claim.reason,
    });
    if let Some(live) = live {
        line["this_machine"] = json!(live.number(claim));
    }
    line
}

fn figure_as_json(paper: &str, figure: &Figure, live: Option<&Live>) -> serde_json::Value {
    let mut line = json!({
        "paper": paper,
        "place": figure.place.to_string(),
        "title": figure.title,
        "x": figure.x.label,
        "y": figure.y.label,
        "curves": curves_as_json(&figure.curves),
    });
    if let Some(live) = live {
        line["this_machine"] = live_as_json(figure.place, live);
    }
    line
}

fn curves_as_json(curves: &[Curve]) -> serde_json::Value {
    curves.iter().map(|curve| (curve.name.clone(), json!(curve.points))).collect()
}

fn live_as_json(place: Place, live: &Live) -> serde_json::Value {
    json!({
        "path": live.path().name(),
        "curves": curves_as_json(&live.curves(place, Pages::Zero)),
        "curves_pager": curves_as_json(&live.curves(place, Pages::Pager)),
        "notes": live.notes(place),
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
            print(&mut out, &claims, &figures, None).expect("memory");
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
        let lines: Vec<_> = claims.iter().map(|claim| claim_as_json("jbmt", claim, None)).collect();
        let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
        assert_eq!(of("given"), 4);
        assert!(of("predicted") >= 3);
        for line in lines {
            let is_predicted = line["kind"] == "predicted" || line["kind"] == "sum";
            for bound in ["predicted_least", "predicted_most"] {
                assert_eq!(is_predicted, line[bound].is_number(), "{line}");
            }
        }
    }
}

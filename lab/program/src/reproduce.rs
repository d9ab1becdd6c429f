//! `pagewire reproduce`: the numbers that a paper states, beside what a model of its machine predicts from unit costs and, if that
//! is asked for, beside what is measured on this machine.

mod files;
mod json;
mod live;
mod marks;
mod pictures;
mod words;

use self::live::{Live, Pages};
use self::words::{number, with_unit};
use crate::arguments::{FigureNumber, ReproduceArguments, ReproducedPaper};
use anyhow::{Result, bail};
use pagewire_cli::table::{Table, bad, good, heading, warning};
use pagewire_nic::PathChoice;
use pagewire_papers::unit_costs::PartCosts;
use pagewire_papers::{Claim, Curve, Figure, Paper, Place, Prediction};
use std::io::Write;

/// Prints the numbers, and writes them and the figures if files are asked for; gives the exit status.
///
/// # Errors
/// If the paper has no such figure or table, something cannot be written, or the engine that is to be measured is not installed.
pub fn reproduce(arguments: &ReproduceArguments) -> Result<u8> {
    let (name, paper) = name_and_paper(arguments.paper);
    if arguments.processes != [PAIR] && paper != Paper::Active {
        pagewire_cli::tell!("pagewire: --processes is for active: the runs of {name} have two processes");
        return Ok(2);
    }
    if let Some(directory) = &arguments.out {
        crate::chart::prepare("--out", directory)?;
    }
    let wanted = arguments.figure.map(of_figure).or(arguments.table.map(Place::Table));
    let chosen = |place: Place| wanted.is_none_or(|wanted| has(wanted, place));
    let mut claims = pagewire_papers::claims(paper);
    let mut figures = pagewire_papers::figures(paper);
    if let Some(wanted) =
        wanted.filter(|&wanted| !known(&claims, &figures).iter().any(|&place| has(wanted, place)))
    {
        let places = known(&claims, &figures);
        let choosable = places.iter().filter(|place| !matches!(place, Place::Section(_)));
        let known: Vec<String> = choosable.map(Place::to_string).collect();
        bail!("{name} has no {wanted} that is reproduced: there are {}", known.join(", "));
    }
    claims.retain(|claim| chosen(claim.place));
    figures.retain(|figure| chosen(figure.place));
    let live = if arguments.live {
        let places: Vec<Place> = known(&claims, &figures).into_iter().collect();
        Some(Live::measure(paper, &places, arguments.path.unwrap_or(PathChoice::Udp), &arguments.processes)?)
    } else {
        None
    };
    let live = live.as_ref();

    let mut out = anstream::stdout().lock();
    if arguments.json {
        for claim in &claims {
            writeln!(out, "{}", json::of_claim(name, claim, live))?;
        }
        for figure in &figures {
            writeln!(out, "{}", json::of_figure(name, figure, &claims, live))?;
        }
        for (place, live) in without_figure(&claims, &figures, live) {
            writeln!(out, "{}", json::of_place(name, place, live))?;
        }
    } else {
        print(&mut out, &claims, &figures, live)?;
    }
    if let Some(directory) = &arguments.out {
        for file in files::write(name, &claims, &figures, live, wanted, directory)? {
            pagewire_cli::tell!("written: {}", file.display());
        }
    }
    Ok(u8::from(live.is_some_and(Live::has_failed)))
}

/// Processes of a run, where nothing else is asked for.
const PAIR: u64 = 2;

const fn of_figure(figure: FigureNumber) -> Place {
    match figure.letter {
        Some(letter) => Place::Panel(figure.number, letter),
        None => Place::Figure(figure.number),
    }
}

/// Whether a place is what was asked for, or a part of it.
fn has(wanted: Place, place: Place) -> bool {
    wanted == place
        || matches!((wanted, place), (Place::Figure(whole), Place::Panel(number, _)) if whole == number)
}

/// A paper, and its name in files.
const fn name_and_paper(paper: ReproducedPaper) -> (&'static str, Paper) {
    match paper {
        ReproducedPaper::Part => ("part", Paper::Part),
        ReproducedPaper::Jbmt => ("jbmt", Paper::Jbmt),
        ReproducedPaper::Frrwp => ("frrwp", Paper::Frrwp),
        ReproducedPaper::Reuse => ("reuse", Paper::Reuse),
        ReproducedPaper::Active => ("active", Paper::Active),
    }
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
    if !claims.is_empty() {
        numbers(claims, live).write(out, "")?;
        writeln!(out, "\n{}\n", summary(claims))?;
    }
    for figure in figures {
        let style = heading();
        writeln!(out, "{style}{}: {}{style:#}", figure.place, figure.title)?;
        curves(figure, &figure.curves).write(out, "  ")?;
        for note in figure.notes {
            writeln!(out, "  {note}")?;
        }
        if let Some(live) = live {
            for pages in Pages::ALL {
                let measured = live.curves_of(figure, pages);
                if !measured.is_empty() {
                    writeln!(out, "\n  {style}{}, path {}:{style:#}", pages.title(), live.path().name())?;
                    curves(figure, &measured).write(out, "  ")?;
                }
            }
            // The right-hand axis is of the figure before.
            for note in live.notes(figure.place).into_iter().filter(|_| figure.right.is_none()) {
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

/// A row for each number, and where there is a reason that below, once for several in a row.
fn numbers(claims: &[Claim], live: Option<&Live>) -> Table {
    let has_other_link = claims.iter().any(|claim| claim.at_other_link.is_some());
    let other_link = format!("at {}", other_link());
    let mut head = vec!["where", "what", "paper", "model", "deviation"];
    head.extend(has_other_link.then_some(other_link.as_str()));
    head.extend(live.map(|_| Pages::Zero.title()));
    let mut table = Table::new(&head);
    for (index, claim) in claims.iter().enumerate() {
        let none = || format!("{0}none{0:#}", bad());
        let mut row = vec![
            claim.place.to_string(),
            claim.what.to_owned(),
            words::stated(claim),
            words::predicted(claim, claim.predicted).unwrap_or_else(none),
            words::deviation(claim).map_or_else(String::new, |text| {
                let style = if claim.needs_reason() { warning() } else { good() };
                format!("{style}{text}{style:#}")
            }),
        ];
        row.extend(has_other_link.then(|| at_other_link(claim)));
        row.extend(live.map(|live| {
            live.number(claim).map_or_else(String::new, |value| with_unit(&number(value), claim.unit))
        }));
        table.row(row);
        let reason =
            claim.reason.filter(|_| claims.get(index + 1).is_none_or(|next| next.reason != claim.reason));
        table.note(reason.unwrap_or_default().to_owned());
    }
    table
}

/// What is predicted on the other link, and whether that is near where the prediction is not.
fn at_other_link(claim: &Claim) -> String {
    let text = claim.at_other_link.and_then(|other| words::predicted(claim, other)).unwrap_or_default();
    let is_near = claim.deviation_at_other_link().is_some_and(Claim::is_near);
    if is_near && claim.needs_reason() {
        let style = good();
        return format!("{style}{text}, within a tenth{style:#}");
    }
    text
}

fn other_link() -> String {
    format!("{} Gb/s", PartCosts::BOARD_LINK / 1_000)
}

/// How many numbers are near, in a sentence or two.
fn summary(claims: &[Claim]) -> String {
    let of = |wanted: fn(&Prediction) -> bool| claims.iter().filter(|claim| wanted(&claim.predicted)).count();
    let predicted = of(|predicted| matches!(predicted, Prediction::Value(_)));
    let sums = of(|predicted| matches!(predicted, Prediction::Sum(..)));
    let estimates = of(|predicted| matches!(predicted, Prediction::Estimate(_)));
    let near = near_at_links(claims);
    let here = near.iter().filter(|(here, _)| *here).count();
    let is_off = |claim: &&Claim| matches!(claim.predicted, Prediction::Sum(..)) && claim.needs_reason();
    let estimated = match estimates {
        0 => String::new(),
        _ => format!(" Estimated from what the paper counted: {estimates}."),
    };
    let mut text = format!(
        "Numbers: {}. Predicted within a tenth: {here}; not: {}. Sums or ratios of what is given: {sums}, of them off by more than a \
         tenth: {}.{estimated} Given, or not modelled: {}.",
        claims.len(),
        predicted - here,
        claims.iter().filter(is_off).count(),
        claims.len() - predicted - sums - estimates,
    );
    if predicted > 0 && claims.iter().any(|claim| claim.at_other_link.is_some()) {
        text += &format!(
            " On a link of {}, which the text has, too: predicted within a tenth {} of {predicted}; on one of both links {}.",
            other_link(),
            near.iter().filter(|(_, there)| *there).count(),
            near.iter().filter(|(here, there)| *here || *there).count(),
        );
    }
    text
}

/// Of each number that is predicted whether it is near, and whether it is on the other link.
fn near_at_links(claims: &[Claim]) -> Vec<(bool, bool)> {
    let is_predicted = |claim: &&Claim| matches!(claim.predicted, Prediction::Value(_));
    let is_near = |deviation: Option<f64>| deviation.is_some_and(Claim::is_near);
    let near = |claim: &Claim| (is_near(claim.deviation()), is_near(claim.deviation_at_other_link()));
    claims.iter().filter(is_predicted).map(near).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads the table finds each number of the paper in it, and a reason below each that is off.
    #[test]
    fn the_table_has_every_number_and_every_reason() {
        for paper in Paper::ALL {
            let (claims, figures) = (pagewire_papers::claims(paper), pagewire_papers::figures(paper));
            let mut out = Vec::new();
            print(&mut out, &claims, &figures, None).expect("memory");
            let text = String::from_utf8(out).expect("UTF-8");
            for claim in &claims {
                assert!(text.contains(claim.what) && text.contains(&words::stated(claim)));
                assert!(claim.reason.is_none_or(|reason| text.contains(reason)));
            }
            assert!(figures.iter().all(|figure| text.contains(figure.title)));
            assert!(figures.iter().flat_map(|figure| figure.notes).all(|note| text.contains(note)));
            assert_eq!(text.contains("at 17 Gb/s"), paper == Paper::Part);
        }
    }

    #[test]
    fn the_summary_counts_every_number_once() {
        let claims = pagewire_papers::claims(Paper::Part);
        let predicted = |near: f64, far: f64, both: bool| Claim {
            stated: (1.0, 1.0),
            predicted: Prediction::Value(near),
            at_other_link: both.then_some(Prediction::Value(far)),
            ..claims[0].clone()
        };
        let other = |predicted| Claim { predicted, ..claims[0].clone() };
        let numbers = [
            predicted(1.0, 2.0, true),
            predicted(2.0, 1.0, true),
            predicted(2.0, 2.0, true),
            other(Prediction::Sum(1.0, 1.0)),
            other(Prediction::Estimate(1.0)),
            other(Prediction::Given),
            other(Prediction::NotModelled),
        ];
        let text = summary(&numbers);
        for part in [
            "Numbers: 7. Predicted within a tenth: 1; not: 2.",
            "given: 1, of them off by more than a tenth: 1.",
            "counted: 1.",
            "not modelled: 2.",
            "within a tenth 1 of 3; on one of both links 2.",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!summary(&[predicted(1.0, 1.0, false)]).contains("link"));
        assert!(!summary(&[other(Prediction::Given)]).contains("link"));
    }

    #[test]
    fn what_is_near_on_the_other_link_alone_says_so() {
        let claims = pagewire_papers::claims(Paper::Part);
        let nto = claims.iter().find(|claim| claim.what == "4 MB: NTO").expect("figure 15");
        let text = anstream::adapter::strip_str(&at_other_link(nto)).to_string();
        assert!(nto.needs_reason() && text.ends_with(" ms, within a tenth"), "{text}");
        let near =
            claims.iter().find(|claim| claim.what == "smallest WRITE, all in memory").expect("figure 9");
        assert!(!at_other_link(near).contains("tenth"));
    }
}

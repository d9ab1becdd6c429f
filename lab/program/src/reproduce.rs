//! `pagewire reproduce`: the numbers that a paper states, beside what a model of its machine predicts from unit costs and, if that
//! is asked for, beside what is measured on this machine.

mod all;
mod applications;
mod comparison;
mod crossings;
mod delayed;
mod files;
mod json;
mod live;
mod load;
mod marks;
mod pictures;
mod rows;
mod words;

use self::comparison::Comparison;
use self::live::{Conditions, Live, Pages};
use self::rows::{Rows, letter};
use self::words::{number, with_unit};
use crate::arguments::{FigureNumber, ReproduceArguments, ReproducedPaper};
use anyhow::{Result, bail};
use pagewire_cli::table::{Table, bad, good, heading, warning};
use pagewire_nic::PathChoice;
use pagewire_papers::unit_costs::PartCosts;
use pagewire_papers::{Claim, Curve, Figure, Paper, Place, Prediction, Verdict};
use std::io::Write;

/// Prints the numbers, and writes them and the figures if files are asked for; gives the exit status.
///
/// # Errors
/// If the paper has no such figure or table, something cannot be written, or the engine that is to be measured is not installed.
pub fn reproduce(arguments: &ReproduceArguments) -> Result<u8> {
    if arguments.applications {
        return applications::reproduce(arguments);
    }
    if let Some(refusal) = delayed::refusal(arguments) {
        pagewire_cli::tell!("pagewire: {refusal}");
        return Ok(2);
    }
    if arguments.path == Some(PathChoice::Tcp) && arguments.delay.is_empty() {
        pagewire_cli::tell!(
            "pagewire: --live measures over local and udp, only --applications and --delay over tcp"
        );
        return Ok(2);
    }
    if matches!(arguments.paper, ReproducedPaper::All) {
        return all::reproduce(arguments);
    }
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
    let (mut claims, mut figures) = numbers_and_figures(paper, arguments);
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
        let mut delays = arguments.delay.clone();
        delays.sort_unstable();
        delays.dedup();
        let conditions = Conditions {
            path: arguments.path.unwrap_or(PathChoice::Udp),
            processes: &arguments.processes,
            rounds: arguments.rounds,
            delays: &delays,
        };
        Some(Live::measure(paper, &places, conditions)?)
    } else {
        None
    };
    let live = live.as_ref();
    let rows = Rows::of(claims)?;

    let mut out = anstream::stdout().lock();
    if arguments.json {
        for line in json::of_all(name, &rows, &figures, live) {
            writeln!(out, "{line}")?;
        }
    } else {
        print(&mut out, &rows, &figures, live)?;
    }
    if let Some(directory) = &arguments.out {
        for file in files::write(name, &rows, &figures, live, wanted, directory)? {
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

/// The numbers and figures of a paper, or those by network delay where delays are asked for.
fn numbers_and_figures(paper: Paper, arguments: &ReproduceArguments) -> (Vec<Claim>, Vec<Figure>) {
    if arguments.delay.is_empty() {
        return (pagewire_papers::claims(paper), pagewire_papers::figures(paper));
    }
    (Vec::new(), delayed::figures())
}

/// Whether a place is what was asked for, or a part of it.
fn has(wanted: Place, place: Place) -> bool {
    let place = match place {
        Place::Delayed(number, letter) => Place::Panel(number, letter),
        place => place,
    };
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
        // All are told apart before.
        ReproducedPaper::Active | ReproducedPaper::All => ("active", Paper::Active),
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

fn print(out: &mut impl Write, rows: &Rows, figures: &[Figure], live: Option<&Live>) -> Result<()> {
    let claims = rows.claims();
    for line in live.iter().flat_map(|live| live.first_lines()) {
        writeln!(out, "{line}")?;
    }
    if !claims.is_empty() {
        numbers(rows, live).write(out, "")?;
        writeln!(out, "\n{}\n", summary(claims))?;
        writeln!(out, "Computed from:")?;
        inputs(rows).write(out, "  ")?;
        writeln!(out)?;
    }
    for figure in figures {
        let style = heading();
        writeln!(out, "{style}{}: {}{style:#}", figure.place, figure.title)?;
        if !figure.curves.is_empty() {
            curves(figure, &figure.curves).write(out, "  ")?;
        }
        for note in figure.notes {
            writeln!(out, "  {note}")?;
        }
        if let Some(table) = crossings::table(figure, live) {
            writeln!(out)?;
            table.write(out, "  ")?;
        }
        if let Some(live) = live {
            for pages in Pages::ALL {
                let measured = live.curves_of(figure, pages);
                if !measured.is_empty() {
                    writeln!(out, "\n  {style}{}, path {}:{style:#}", pages.title(), live.path().name())?;
                    curves(figure, &measured).write(out, "  ")?;
                }
            }
            if let Some(comparison) = Comparison::of(figure, Some(live)) {
                compare(out, figure, &comparison)?;
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

/// Active puts beside every other scheme, and where they have the paper's factor.
fn compare(out: &mut impl Write, figure: &Figure, comparison: &Comparison) -> Result<()> {
    for table in comparison.tables(figure.y.label) {
        writeln!(out)?;
        table.write(out, "  ")?;
    }
    writeln!(out)?;
    for conclusion in comparison.conclusions() {
        writeln!(out, "  {conclusion}")?;
    }
    Ok(())
}

/// A row for each number, with the letters of what it is computed from. Where there is a range or a reason it stands below, a reason once for
/// several in a row.
fn numbers(rows: &Rows, live: Option<&Live>) -> Table {
    let claims = rows.claims();
    let has_other_link = claims.iter().any(|claim| claim.at_other_link.is_some());
    let other_link = format!("at {}", other_link());
    let mut head = vec!["where", "what", "paper", "model", "from", "verdict"];
    head.extend(has_other_link.then_some(other_link.as_str()));
    head.extend(live.map(|_| Pages::Zero.title()));
    let mut table = Table::new(&head);
    for (index, claim) in claims.iter().enumerate() {
        let none = || format!("{0}none{0:#}", bad());
        let style =
            if claim.needs_reason() || claim.verdict() == Verdict::Undecided { warning() } else { good() };
        let mut row = vec![
            claim.place.to_string(),
            claim.what.to_owned(),
            words::stated(claim),
            words::predicted(claim, claim.predicted).unwrap_or_else(none),
            rows.letters(claim),
            format!("{style}{}{style:#}", words::outcome_text(claim)),
        ];
        row.extend(has_other_link.then(|| at_other_link(claim)));
        row.extend(live.map(|live| measured(live, claim)));
        table.row(row);
        let is_last = claims.get(index + 1).is_none_or(|next| next.reason != claim.reason);
        let reason = claim.reason.filter(|_| is_last).map(str::to_owned);
        let notes: Vec<String> = words::spread(claim).into_iter().chain(reason).collect();
        table.note(notes.join("; "));
    }
    table
}

/// What this machine has in place of a number, and what it is of if that is something else.
fn measured(live: &Live, claim: &Claim) -> String {
    let of = live.measured_as(claim).map_or_else(String::new, |of| format!(" ({of})"));
    live.number(claim).map_or_else(String::new, |value| with_unit(&number(value), claim.unit) + &of)
}

/// A row for each input of these numbers, under its letter.
fn inputs(rows: &Rows) -> Table {
    let mut table = Table::new(&["", "input", "value", "source"]);
    for (index, input) in rows.inputs().into_iter().enumerate() {
        let values: Vec<String> = input.values.iter().map(f64::to_string).collect();
        table.row(vec![
            letter(index),
            input.name.to_owned(),
            with_unit(&values.join(", "), input.unit),
            input.source.to_string(),
        ]);
    }
    table
}

/// What is predicted on the other link, and whether that is near where the prediction is not.
fn at_other_link(claim: &Claim) -> String {
    let text = claim.at_other_link.and_then(|other| words::predicted(claim, other)).unwrap_or_default();
    let is_near = claim.deviation_at_other_link().is_some_and(|off| claim.is_near(off));
    if is_near && claim.needs_reason() {
        let style = good();
        return format!("{style}{text}, within a tenth{style:#}");
    }
    text
}

fn other_link() -> String {
    format!("{} Gb/s", PartCosts::BOARD_LINK / 1_000)
}

/// How many numbers have which verdict, and how many are near on each link, in a sentence or two.
fn summary(claims: &[Claim]) -> String {
    let counts = Verdict::count(claims).map(|(verdict, count)| format!("{} {count}", verdict.name()));
    let mut text = format!("Of {} numbers: {}.", claims.len(), counts.join(", "));
    let near = near_at_links(claims);
    if !near.is_empty() && claims.iter().any(|claim| claim.at_other_link.is_some()) {
        text += &format!(
            " Of {} that a run predicts {} are met with the link of {} Gb/s, {} with that of {}, which the text has, too, and {} with one of both.",
            near.len(),
            near.iter().filter(|(here, _)| *here).count(),
            PartCosts::PAPER.link / 1_000,
            near.iter().filter(|(_, there)| *there).count(),
            other_link(),
            near.iter().filter(|(here, there)| *here || *there).count(),
        );
    }
    text
}

/// Of each number that a run predicts whether it is near, and whether it is on the other link.
fn near_at_links(claims: &[Claim]) -> Vec<(bool, bool)> {
    let is_predicted = |claim: &&Claim| matches!(claim.predicted, Prediction::Value(_));
    let near = |claim: &Claim| {
        let is_near = |deviation: Option<f64>| deviation.is_some_and(|off| claim.is_near(off));
        (is_near(claim.deviation()), is_near(claim.deviation_at_other_link()))
    };
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
    use pagewire_papers::Computed;

    fn rows_of(paper: Paper) -> Rows {
        Rows::of(pagewire_papers::claims(paper)).expect("none is refused")
    }

    /// Whoever reads the table finds each number of the paper in it, and a reason below each that is off.
    #[test]
    fn the_table_has_every_number_and_every_reason() {
        for paper in Paper::ALL {
            let (rows, figures) = (rows_of(paper), pagewire_papers::figures(paper));
            let mut out = Vec::new();
            print(&mut out, &rows, &figures, None).expect("memory");
            let text = String::from_utf8(out).expect("UTF-8");
            assert!(rows.inputs().iter().all(|input| text.contains(&input.source.to_string())));
            for claim in rows.claims() {
                assert!(text.contains(claim.what) && text.contains(&words::stated(claim)));
                assert!(claim.reason.is_none_or(|reason| text.contains(reason)));
            }
            assert!(figures.iter().all(|figure| text.contains(figure.title)));
            assert!(figures.iter().flat_map(|figure| figure.notes).all(|note| text.contains(note)));
            assert_eq!(text.contains("at 17 Gb/s"), paper == Paper::Part);
        }
    }

    #[test]
    fn summary_counts_every_number_once() {
        let claims = pagewire_papers::claims(Paper::Part);
        let inputs = claims[0].predicted.inputs();
        let number = |value| Computed { value, inputs };
        let predicted = |near: f64, far: f64, both: bool| Claim {
            stated: (1.0, 1.0),
            predicted: Prediction::Value(number(near)),
            at_other_link: both.then_some(Prediction::Value(number(far))),
            ..claims[0].clone()
        };
        let other = |predicted| Claim { predicted, stated: (1.0, 1.0), ..claims[0].clone() };
        let numbers = [
            predicted(1.0, 2.0, true),
            predicted(2.0, 1.0, true),
            predicted(2.0, 2.0, true),
            Claim { bound_by_us: true, ..predicted(1.0, 1.0, false) },
            other(Prediction::Sum(number(1.0), number(1.0))),
            other(Prediction::Sum(number(0.1), number(9.0))),
            other(Prediction::Estimate(number(1.0))),
            other(Prediction::Given),
            other(Prediction::NotModelled),
        ];
        let text = summary(&numbers);
        for part in [
            "Of 9 numbers: predicted 1, sum 1, estimated 1, bound by us 1, undecided 1, given 1, missed 2, not modelled 1.",
            "Of 4 that a run predicts 2 are met with the link of 10 Gb/s, 1 with that of 17 Gb/s",
            "3 with one of both.",
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

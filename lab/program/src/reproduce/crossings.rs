//! From which size on something is saved: where a curve of the right-hand axis crosses 0 for the last time.

use super::live::{Live, Pages};
use crate::chart::size;
use pagewire_cli::table::Table;
use pagewire_papers::{Curve, Figure, RightAxis};
use serde_json::{Value, json};

/// Sizes of a curve, and where its crossing is among them.
#[derive(Clone, Debug, PartialEq)]
struct Crossing {
    /// The least and the largest size that was computed or measured.
    sizes: (f64, f64),
    /// The least size from which on all values are above 0; `None`: the last one is not.
    from: Option<f64>,
    /// As `from`, the least and the most of the single rounds: a round without one counts as beyond the largest size.
    rounds: Option<(Option<f64>, Option<f64>)>,
}

/// The least x from which on all values are above 0. The points are in the order of x.
fn crossing(points: &[(f64, f64)]) -> Option<f64> {
    let above = points.iter().rev().take_while(|point| point.1 > 0.0);
    above.last().map(|point| point.0)
}

impl Crossing {
    fn of(curve: &Curve, rounds: &[Vec<(f64, f64)>]) -> Option<Crossing> {
        let sizes = (curve.points.first()?.0, curve.points.last()?.0);
        let mut ends: Vec<Option<f64>> = rounds.iter().map(|points| crossing(points)).collect();
        ends.sort_by(|one, other| one.unwrap_or(f64::INFINITY).total_cmp(&other.unwrap_or(f64::INFINITY)));
        let rounds = ends.first().copied().zip(ends.last().copied());
        Some(Crossing { sizes, from: crossing(&curve.points), rounds })
    }

    fn text(&self, from: Option<f64>) -> String {
        let (least, largest) = self.sizes;
        match from {
            None => format!("none up to {}", size(largest)),
            Some(from) if from == least => format!("each size from {}", size(least)),
            Some(from) => size(from),
        }
    }

    /// The ends of the single rounds.
    fn rounds_text(&self) -> String {
        match self.rounds {
            None => String::new(),
            Some((least, most)) if least == most => self.text(least),
            Some((least, most)) => format!("{} to {}", self.text(least), self.text(most)),
        }
    }
}

/// What is compared: the name of a curve without what it shows.
fn registration(curve: &Curve) -> &str {
    curve.name.strip_suffix(": saved").unwrap_or(&curve.name)
}

/// The crossings that the model has and that were measured, by what is compared; none of a figure that shows something else.
fn crossings(figure: &Figure, live: Option<&Live>) -> Vec<(String, [Option<Crossing>; 2])> {
    if figure.right != Some(RightAxis::Saved) {
        return Vec::new();
    }
    let measured = live.map(|live| live.curves_of(figure, Pages::Zero)).unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    for curve in measured.iter().chain(&figure.curves) {
        if !names.contains(&registration(curve)) {
            names.push(registration(curve));
        }
    }
    let find =
        |curves: &[Curve], name: &str| curves.iter().find(|curve| registration(curve) == name).cloned();
    let of = |name: &str| {
        let model = find(&figure.curves, name).and_then(|curve| Crossing::of(&curve, &[]));
        let here = find(&measured, name).and_then(|curve| {
            let rounds = live.map(|live| live.rounds_of(figure.place, &curve.name)).unwrap_or_default();
            Crossing::of(&curve, &rounds)
        });
        (name.to_owned(), [model, here])
    };
    names.into_iter().map(of).collect()
}

/// A row for each; `None` where the figure has no crossings.
pub(super) fn table(figure: &Figure, live: Option<&Live>) -> Option<Table> {
    let all = crossings(figure, live);
    if all.is_empty() {
        return None;
    }
    let mut head = vec!["something is saved from", "model"];
    head.extend(live.into_iter().flat_map(|_| ["this machine, measured", "measured in single rounds"]));
    let mut table = Table::new(&head);
    for (name, [model, here]) in &all {
        let text = |crossing: &Option<Crossing>| {
            crossing.as_ref().map_or_else(String::new, |crossing| crossing.text(crossing.from))
        };
        let mut row = vec![name.clone(), text(model)];
        if live.is_some() {
            row.extend([text(here), here.as_ref().map_or_else(String::new, Crossing::rounds_text)]);
        }
        table.row(row);
    }
    Some(table)
}

/// What was measured: an object for each curve that has points.
pub(super) fn of_live(figure: &Figure, live: &Live) -> Value {
    let object = |(name, [_, here]): (String, [Option<Crossing>; 2])| {
        let here = here?;
        let (rounds_least, rounds_most) = here.rounds.unwrap_or_default();
        Some(json!({
            "registration": name,
            "provenance": "measured",
            "from_bytes": here.from,
            "rounds_least": rounds_least,
            "rounds_most": rounds_most,
            "least_bytes": here.sizes.0,
            "largest_bytes": here.sizes.1,
        }))
    };
    crossings(figure, Some(live)).into_iter().filter_map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_papers::Paper;

    #[test]
    fn crossing_is_the_last_one() {
        let points = |values: [f64; 4]| [4096.0, 8192.0, 16384.0, 32768.0].into_iter().zip(values).collect();
        let of = |values, rounds: &[[f64; 4]]| {
            let rounds: Vec<Vec<(f64, f64)>> = rounds.iter().map(|values| points(*values)).collect();
            let crossing =
                Crossing::of(&Curve::measured("A: saved", points(values)), &rounds).expect("points");
            (crossing.text(crossing.from), crossing.rounds_text())
        };
        let some = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let late = [-9.0, 1.0, -1.0, 2.0];
        assert_eq!(of(late, &[]), some("32 KiB", ""));
        assert_eq!(
            of([1.0; 4], &[[1.0; 4], late]),
            some("each size from 4 KiB", "each size from 4 KiB to 32 KiB")
        );
        let never = [1.0, 1.0, 1.0, -1.0];
        assert_eq!(of(never, &[late, never]), some("none up to 32 KiB", "32 KiB to none up to 32 KiB"));
        assert_eq!(of([-1.0, 0.0, 1.0, 1.0], &[late, late]), some("16 KiB", "32 KiB"));
    }

    /// The model has its crossings without a measurement, and this machine has one for each registration.
    #[test]
    fn each_registration_has_a_row() {
        let live = super::super::live::tests::invented(Paper::Frrwp, pagewire_nic::PathChoice::Udp);
        let figures = pagewire_papers::figures(Paper::Frrwp);
        let with: Vec<&Figure> = figures.iter().filter(|figure| table(figure, None).is_some()).collect();
        let [figure] = with[..] else { panic!("{} figures have crossings", with.len()) };
        let names: Vec<String> = crossings(figure, Some(&live)).into_iter().map(|row| row.0).collect();
        assert_eq!(names, ["no registration", "mlock(2)", "T = 0.77 p + 7.42 us", "ordinary registration"]);
        let objects = of_live(figure, &live);
        assert_eq!(objects.as_array().map(Vec::len), Some(3));
        assert!(
            objects[0]["from_bytes"] == 4096.0 && objects[0]["largest_bytes"] == 16_777_216.0,
            "{objects}"
        );
    }
}

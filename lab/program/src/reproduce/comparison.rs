//! Active puts beside every other scheme of a hash table: whether the factor of two that the paper states over the best of them (AA, figures 7a and 7b)
//! holds here. Nothing is left out: each curve has a row, with the least and the most of its rounds.

use super::live::{Live, Pages};
use super::words::number;
use pagewire_cli::table::Table;
use pagewire_papers::{Curve, Figure, Place};
use serde_json::{Value, json};

/// Schemes with active puts, the one that the paper compares first.
const ACTIVE: [&str; 3] = ["AA-Poll", "AA-SP", "AA-Int"];
/// The scheme that the paper has not: messages of many inserts.
const OURS: &str = "AM-Aggregated";
/// The factor that the paper states.
const FACTOR: f64 = 2.0;
const BEST_OF_PAPER: &str = "the best of the paper's others";
const BEST_OF_ALL: &str = "the best of all others";

fn is_active(name: &str) -> bool {
    ACTIVE.contains(&name)
}

/// Whether a curve is of one of the paper's schemes without active puts, with whatever interval of looks.
pub(super) fn is_other_of_paper(name: &str) -> bool {
    !is_active(name) && name != OURS
}

/// A median of rounds between the least and the most, or a ratio of two such.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    median: f64,
    least: f64,
    most: f64,
}

impl Span {
    /// Of a curve at a value of x.
    fn at(curve: &Curve, x: f64) -> Option<Span> {
        let median = curve.points.iter().find(|point| point.0 == x)?.1;
        let interval = curve.intervals.iter().find(|interval| interval.0 == x);
        let (least, most) = interval.map_or((median, median), |&(_, least, most)| (least, most));
        Some(Span { median, least, most })
    }

    /// The ratio to another one; its interval has every ratio of two rounds.
    fn to(self, other: Span) -> Span {
        Span {
            median: self.median / other.median,
            least: self.least / other.most,
            most: self.most / other.least,
        }
    }

    /// The best of several: each of its values is the greatest.
    fn best(all: impl Iterator<Item = Span>) -> Option<Span> {
        all.reduce(|one, other| Span {
            median: one.median.max(other.median),
            least: one.least.max(other.least),
            most: one.most.max(other.most),
        })
    }

    fn text(self) -> String {
        format!("{} ({} to {})", number(self.median), number(self.least), number(self.most))
    }
}

/// Whether a ratio is the paper's factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FactorOutcome {
    /// With every pair of rounds.
    Holds,
    /// With some, and not with others; or with every one of too few rounds.
    Open,
    /// With none.
    Fails,
}

impl FactorOutcome {
    fn of(ratio: Span, is_certain: bool) -> FactorOutcome {
        match ratio {
            Span { least, .. } if least >= FACTOR && is_certain => FactorOutcome::Holds,
            Span { most, .. } if most >= FACTOR => FactorOutcome::Open,
            _ => FactorOutcome::Fails,
        }
    }
}

/// A scheme with active puts to another one or to the best of several, for each value of x where both were measured.
struct RatioRow {
    active: &'static str,
    other: String,
    ratios: Vec<(f64, Span)>,
}

/// What was measured of a figure.
pub(super) struct Comparison {
    /// The unit of x.
    unit: &'static str,
    xs: Vec<f64>,
    /// Those that were not measured have no points.
    curves: Vec<Curve>,
    /// There were enough rounds for the least and the most to hold the median.
    is_certain: bool,
}

impl Comparison {
    /// That of a figure; `None`: it has no active puts beside other schemes, or was not measured.
    pub(super) fn of(figure: &Figure, live: Option<&Live>) -> Option<Comparison> {
        let unit = match figure.place {
            Place::Panel(7, 'a' | 'b') => "processes",
            Place::Delayed(7, 'a' | 'b') => "us",
            _ => return None,
        };
        let live = live?;
        let mut curves = live.curves_of(figure, Pages::Zero);
        if curves.is_empty() {
            return None;
        }
        for name in live.planned_names(figure.place, Pages::Zero) {
            if curves.iter().all(|curve| curve.name != name) {
                curves.push(Curve::measured(name, Vec::new()));
            }
        }
        Some(Comparison::new(unit, curves, live.has_enough_rounds()))
    }

    fn new(unit: &'static str, curves: Vec<Curve>, is_certain: bool) -> Comparison {
        let mut xs: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|point| point.0).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        Comparison { unit, xs, curves, is_certain }
    }

    fn at(&self, x: f64) -> String {
        format!("{x} {}", self.unit)
    }

    fn curve(&self, name: &str) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.name == name)
    }

    /// The best at a value of x, of the curves whose names are such. `None` where one of them is missing: the best could be that one.
    fn best(&self, x: f64, is_one: fn(&str) -> bool) -> Option<Span> {
        let curves = self.curves.iter().filter(|curve| is_one(&curve.name));
        let all: Option<Vec<Span>> = curves.map(|curve| Span::at(curve, x)).collect();
        Span::best(all?.into_iter())
    }

    fn row(&self, active: &'static str, other: &str, at: impl Fn(f64) -> Option<Span>) -> Option<RatioRow> {
        let curve = self.curve(active)?;
        let ratio = |&x: &f64| Some((x, Span::at(curve, x)?.to(at(x)?)));
        Some(RatioRow { active, other: other.to_owned(), ratios: self.xs.iter().filter_map(ratio).collect() })
    }

    /// To the best of the paper's others, and of all others.
    fn best_rows(&self, active: &'static str) -> Vec<RatioRow> {
        let of_paper = self.row(active, BEST_OF_PAPER, |x| self.best(x, is_other_of_paper));
        let of_all = self.row(active, BEST_OF_ALL, |x| self.best(x, |name| !is_active(name)));
        of_paper.into_iter().chain(of_all).collect()
    }

    /// To each other scheme, and to the best.
    fn rows(&self, active: &'static str) -> Vec<RatioRow> {
        let others = self.curves.iter().filter(|curve| !is_active(&curve.name));
        let row = |curve: &Curve| self.row(active, &curve.name, |x| Span::at(curve, x));
        others.filter_map(row).chain(self.best_rows(active)).collect()
    }

    /// The rates of all curves, and the ratios of each scheme with active puts to every other one.
    pub(super) fn tables(&self, rate: &str) -> Vec<Table> {
        let head = |first: String| -> Vec<String> {
            std::iter::once(first).chain(self.xs.iter().map(|&x| self.at(x))).collect()
        };
        let rates = |curve: &Curve| {
            let cell = |&x: &f64| Span::at(curve, x).map_or_else(String::new, Span::text);
            std::iter::once(curve.name.clone()).chain(self.xs.iter().map(cell)).collect()
        };
        let mut tables =
            vec![table(&head(format!("{rate}, median (least to most)")), self.curves.iter().map(rates))];
        for active in ACTIVE {
            let cells = |row: RatioRow| {
                let at = |x: &f64| row.ratios.iter().find(|ratio| ratio.0 == *x);
                let cell = |x: &f64| at(x).map_or_else(String::new, |ratio| ratio.1.text());
                std::iter::once(row.other.clone()).chain(self.xs.iter().map(cell)).collect()
            };
            tables.push(table(&head(format!("{active} to")), self.rows(active).into_iter().map(cells)));
        }
        tables
    }

    /// Where the factor holds, a sentence for each scheme with active puts and each best.
    pub(super) fn conclusions(&self) -> Vec<String> {
        let rows = ACTIVE.into_iter().flat_map(|active| self.best_rows(active));
        rows.map(|row| self.conclusion(&row)).collect()
    }

    fn conclusion(&self, row: &RatioRow) -> String {
        let of = |outcome: FactorOutcome| {
            row.ratios.iter().filter(move |ratio| FactorOutcome::of(ratio.1, self.is_certain) == outcome)
        };
        let places = |outcome: FactorOutcome| {
            let place = |ratio: &(f64, Span)| format!("{} ({})", self.at(ratio.0), interval_text(ratio.1));
            of(outcome).map(place).collect::<Vec<_>>().join(", ")
        };
        let what = format!("{}: {FACTOR}x over {}", row.active, row.other);
        let Some(most) = row.ratios.iter().max_by(|one, other| one.1.median.total_cmp(&other.1.median))
        else {
            return format!("{what}: not measured.");
        };
        let (holds, open, fails) =
            (places(FactorOutcome::Holds), places(FactorOutcome::Open), places(FactorOutcome::Fails));
        let open = if open.is_empty() { open } else { format!("; open at {open}") };
        let is_known = |x: &f64| row.ratios.iter().any(|ratio| ratio.0 == *x);
        let unknown: Vec<String> = self.xs.iter().filter(|x| !is_known(x)).map(|&x| self.at(x)).collect();
        let open =
            if unknown.is_empty() { open } else { format!("{open}; not known at {}", unknown.join(", ")) };
        if holds.is_empty() {
            let most = format!("{}, at {}", most.1.text(), self.at(most.0));
            return format!("{what} holds nowhere{open}. The highest ratio is {most}.");
        }
        let fails = if fails.is_empty() { fails } else { format!("; not at {fails}") };
        format!("{what} holds at {holds}{open}{fails}.")
    }

    /// All of it: an object for each ratio, and the sentences.
    pub(super) fn json(&self) -> Value {
        let rows = ACTIVE.into_iter().flat_map(|active| self.rows(active));
        let object = |row: RatioRow| {
            let of = |&(x, ratio): &(f64, Span)| {
                json!({
                    "scheme": row.active,
                    "other": row.other,
                    "x": x,
                    "ratio": ratio.median,
                    "least": ratio.least,
                    "most": ratio.most,
                    "is_factor": FactorOutcome::of(ratio, self.is_certain) == FactorOutcome::Holds,
                })
            };
            row.ratios.iter().map(of).collect::<Vec<_>>()
        };
        json!({ "ratios": rows.flat_map(object).collect::<Vec<_>>(), "verdicts": self.conclusions() })
    }
}

/// An interval within brackets.
fn interval_text(ratio: Span) -> String {
    format!("{}, {} to {}", number(ratio.median), number(ratio.least), number(ratio.most))
}

fn table(head: &[String], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    rows.for_each(|row| table.row(row));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve at 0 and 50 us, each with its least and most.
    fn curve(name: &str, values: [(f64, f64, f64); 2]) -> Curve {
        let with_x = || [0.0, 50.0].into_iter().zip(values);
        Curve {
            intervals: with_x().map(|(x, (least, _, most))| (x, least, most)).collect(),
            ..Curve::measured(name, with_x().map(|(x, (_, median, _))| (x, median)).collect())
        }
    }

    /// AA-Poll makes as many inserts as this says; other schemes make 100 and 50 with an interval of 10 %.
    fn invented(active: [(f64, f64, f64); 2]) -> Comparison {
        let curves = vec![
            curve("AA-Poll", active),
            curve("RMA", [(9.0, 10.0, 11.0), (4.0, 5.0, 6.0)]),
            curve("AM", [(70.0, 80.0, 90.0), (45.0, 50.0, 55.0)]),
            curve("AM, looks each 16", [(90.0, 100.0, 110.0), (20.0, 25.0, 30.0)]),
            curve(OURS, [(900.0, 1000.0, 1100.0), (900.0, 1000.0, 1100.0)]),
        ];
        Comparison::new("us", curves, true)
    }

    #[test]
    fn factor_holds_where_every_pair_of_rounds_has_it() {
        let conclusions = invented([(110.0, 120.0, 130.0), (120.0, 130.0, 140.0)]).conclusions();
        assert_eq!(
            conclusions[0],
            "AA-Poll: 2x over the best of the paper's others holds at 50 us (2.60, 2.18 to 3.11); not at 0 us (1.20, 1.00 to 1.44)."
        );
        assert_eq!(
            conclusions[1],
            "AA-Poll: 2x over the best of all others holds nowhere. The highest ratio is 0.13 (0.11 to 0.16), at 50 us."
        );
        // The others were not measured.
        assert_eq!(conclusions.len(), 2);
    }

    #[test]
    fn factor_of_some_rounds_is_none() {
        let conclusions = invented([(110.0, 120.0, 130.0), (90.0, 100.0, 110.0)]).conclusions();
        assert_eq!(
            conclusions[0],
            "AA-Poll: 2x over the best of the paper's others holds nowhere; open at 50 us (2.00, 1.64 to 2.44). The highest ratio is 2.00 (1.64 to 2.44), at 50 us."
        );
    }

    /// The best is not known where one is missing.
    #[test]
    fn missing_curve_leaves_best_open() {
        let mut comparison = invented([(110.0, 120.0, 130.0), (120.0, 130.0, 140.0)]);
        comparison.curves[1].points.pop();
        assert_eq!(
            comparison.conclusions()[0],
            "AA-Poll: 2x over the best of the paper's others holds nowhere; not known at 50 us. The highest ratio is 1.20 (1.00 to 1.44), at 0 us."
        );
        comparison.curves[1].points.clear();
        assert_eq!(
            comparison.conclusions()[0],
            "AA-Poll: 2x over the best of the paper's others: not measured."
        );
    }

    /// With few rounds the least and the most say nothing.
    #[test]
    fn too_few_rounds_leave_factor_open() {
        let comparison = invented([(110.0, 120.0, 130.0), (120.0, 130.0, 140.0)]);
        let comparison = Comparison { is_certain: false, ..comparison };
        let conclusion = &comparison.conclusions()[0];
        assert!(conclusion.contains("holds nowhere; open at 50 us (2.60, "), "{conclusion}");
    }

    #[test]
    fn every_other_curve_has_a_row() {
        let comparison = invented([(110.0, 120.0, 130.0), (120.0, 130.0, 140.0)]);
        let names: Vec<String> = comparison.rows("AA-Poll").into_iter().map(|row| row.other).collect();
        assert_eq!(names, ["RMA", "AM", "AM, looks each 16", OURS, BEST_OF_PAPER, BEST_OF_ALL]);
        let mut text = Vec::new();
        for table in comparison.tables("inserts/s") {
            table.write(&mut text, "").expect("memory");
        }
        let text = String::from_utf8(text).expect("UTF-8");
        for part in
            ["AA-Poll to", "80.0 (70.0 to 90.0)", "1.50 (1.22 to 1.86)", "12.0 (10.0 to 14.4)", "50 us"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = comparison.json();
        assert_eq!(json["ratios"].as_array().map(Vec::len), Some(12));
        assert_eq!(json["ratios"][1]["ratio"], 26.0);
    }
}

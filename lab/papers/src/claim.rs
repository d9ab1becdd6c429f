//! A number that a paper states, beside what the model predicts for it.

use crate::computed::{Computed, InputSet};
use crate::figure::Place;
use crate::unit_costs::Input;

/// What the model says of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Prediction {
    /// The model's run with the unit costs leads to it.
    Value(Computed),
    /// It is a sum of unit costs, or a product or ratio of such, at least and at most; both the same where each unit cost is one
    /// number.
    Sum(Computed, Computed),
    /// It is estimated: from what the model says and from what the paper counted, which is a result of the paper.
    Estimate(Computed),
    /// It is one of the unit costs, or what the model has by its making.
    Given,
    /// No unit cost that the text gives leads to it.
    NotModelled,
}

impl Prediction {
    /// The least and the most that is predicted, if anything is.
    pub const fn range(&self) -> Option<(f64, f64)> {
        match *self {
            Prediction::Value(number) | Prediction::Estimate(number) => Some((number.value, number.value)),
            Prediction::Sum(least, most) => Some((least.value, most.value)),
            Prediction::Given | Prediction::NotModelled => None,
        }
    }

    /// What it was computed from; empty where nothing was.
    pub const fn inputs(&self) -> InputSet {
        match *self {
            Prediction::Value(number) | Prediction::Estimate(number) => number.inputs,
            Prediction::Sum(least, most) => least.inputs.with(most.inputs),
            Prediction::Given | Prediction::NotModelled => InputSet::EMPTY,
        }
    }
}

/// What is to be thought of a number. Each has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A run of the model leads to it, and it is the text's own.
    Predicted,
    /// It is a sum or ratio of unit costs, and right.
    Sum,
    /// An estimate from what the paper counted is right.
    Estimated,
    /// What is predicted lies within bounds that are ours.
    BoundByUs,
    /// It is met with some of the assumed inputs and not with others.
    Undecided,
    /// It is an input, or the model has it by its making.
    Given,
    /// What is predicted is off.
    Missed,
    /// Nothing is predicted.
    NotModelled,
}

impl Verdict {
    /// All, in the order in which they are counted.
    pub const ALL: [Verdict; 8] = [
        Verdict::Predicted,
        Verdict::Sum,
        Verdict::Estimated,
        Verdict::BoundByUs,
        Verdict::Undecided,
        Verdict::Given,
        Verdict::Missed,
        Verdict::NotModelled,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Predicted => "predicted",
            Verdict::Sum => "sum",
            Verdict::Estimated => "estimated",
            Verdict::BoundByUs => "bound by us",
            Verdict::Undecided => "undecided",
            Verdict::Given => "given",
            Verdict::Missed => "missed",
            Verdict::NotModelled => "not modelled",
        }
    }

    /// How many of these numbers have each verdict.
    pub fn count(claims: &[Claim]) -> [(Verdict, usize); 8] {
        Verdict::ALL
            .map(|verdict| (verdict, claims.iter().filter(|claim| claim.verdict() == verdict).count()))
    }
}

/// A number that a paper states in its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The figure, table or section that it belongs to.
    pub place: Place,
    /// What it is the number of.
    pub what: &'static str,
    /// Its unit; "x" for a ratio.
    pub unit: &'static str,
    /// The least and the most that the text allows; both the same where it states one number, infinite where it states no most.
    pub stated: (f64, f64),
    /// Whether the text has but words for it, such as "similar": the number is what we take them to mean.
    pub bound_by_us: bool,
    /// What the model says.
    pub predicted: Prediction,
    /// What it says on the other link that the text has, if there is one.
    pub at_other_link: Option<Prediction>,
    /// The least and the most that the model says while inputs that no text gives, or that it only bounds, take other values.
    pub varied: Option<(f64, f64)>,
    /// Those of these inputs that, each by itself, change the prediction by more than a tenth.
    pub varied_by: InputSet,
    /// The point of a figure's curve that it is, by the curve's name and the value along the axis.
    pub point: Option<(&'static str, f64)>,
    /// Where the prediction is off, or there is none: what the paper's machine does that the model does not. Where it is given: by what.
    pub reason: Option<&'static str>,
}

impl Claim {
    /// The largest deviation from a number that needs no reason. Bounds have no tolerance: what is a little worse is not better.
    pub const TOLERANCE: f64 = 0.1;

    pub(crate) const fn new(
        place: Place,
        what: &'static str,
        unit: &'static str,
        stated: (f64, f64),
        predicted: Prediction,
    ) -> Claim {
        Claim {
            place,
            what,
            unit,
            stated,
            bound_by_us: false,
            predicted,
            at_other_link: None,
            varied: None,
            varied_by: InputSet::EMPTY,
            point: None,
            reason: None,
        }
    }

    pub(crate) const fn bound_by_us(self) -> Claim {
        Claim { bound_by_us: true, ..self }
    }

    pub(crate) const fn at(self, curve: &'static str, x: f64) -> Claim {
        Claim { point: Some((curve, x)), ..self }
    }

    pub(crate) const fn because(self, reason: &'static str) -> Claim {
        Claim { reason: Some(reason), ..self }
    }

    pub(crate) const fn varied(self, least: f64, most: f64, by: InputSet) -> Claim {
        Claim { varied: Some((least, most)), varied_by: by, ..self }
    }

    /// What the model says with other values of inputs: the input of that number, and what is predicted then.
    pub(crate) fn over(self, others: impl IntoIterator<Item = (u32, f64)>) -> Claim {
        let Some((mut least, mut most)) = self.predicted.range() else { return self };
        let (plain, mut by) = (least, self.varied_by);
        (least, most) = self.varied.unwrap_or((least, most));
        for (number, value) in others {
            (least, most) = (least.min(value), most.max(value));
            if (value - plain).abs() > Claim::TOLERANCE * plain.abs() {
                by = by.with(InputSet::of(number));
            }
        }
        if least < most { self.varied(least, most, by) } else { self }
    }

    /// By what part of the stated number the prediction is above (or, negative, below) it; 0 where the ranges of both meet. `None`
    /// where nothing is predicted.
    pub fn deviation(&self) -> Option<f64> {
        Some(self.deviation_of(self.predicted.range()?))
    }

    /// The deviation ([`Self::deviation`]) of what is predicted on the other link.
    pub fn deviation_at_other_link(&self) -> Option<f64> {
        Some(self.deviation_of(self.at_other_link?.range()?))
    }

    fn deviation_of(&self, (lower, upper): (f64, f64)) -> f64 {
        let (least, most) = self.stated;
        if upper < least {
            upper / least - 1.0
        } else if lower > most {
            lower / most - 1.0
        } else {
            0.0
        }
    }

    /// Whether a deviation needs no reason.
    pub fn is_near(&self, deviation: f64) -> bool {
        let is_number = self.stated.0 == self.stated.1;
        deviation.abs() <= if is_number { Claim::TOLERANCE } else { 0.0 }
    }

    /// Whether a reason has to be given.
    pub fn needs_reason(&self) -> bool {
        matches!(self.verdict(), Verdict::Missed | Verdict::NotModelled)
    }

    /// What is to be thought of it.
    pub fn verdict(&self) -> Verdict {
        let is_near = |deviation: f64| self.is_near(deviation);
        match self.predicted {
            Prediction::Given => Verdict::Given,
            Prediction::NotModelled => Verdict::NotModelled,
            _ if !self.deviation().is_some_and(is_near) => Verdict::Missed,
            _ if !self.ends().iter().all(|&end| is_near(self.deviation_of((end, end)))) => Verdict::Undecided,
            _ if self.bound_by_us => Verdict::BoundByUs,
            Prediction::Value(_) => Verdict::Predicted,
            Prediction::Sum(..) => Verdict::Sum,
            Prediction::Estimate(_) => Verdict::Estimated,
        }
    }

    /// The least and the most that is predicted, with all values of the inputs.
    fn ends(&self) -> Vec<f64> {
        let ranges = self.predicted.range().into_iter().chain(self.varied);
        ranges.flat_map(|(least, most)| [least, most]).collect()
    }

    /// Why it must not be called a prediction, if so: it was computed from nothing that has a source, or from itself.
    pub fn refusal(&self) -> Option<String> {
        let (least, most) = self.predicted.range()?;
        let inputs = self.predicted.inputs();
        let what = format!("{}, \"{}\"", self.place, self.what);
        if inputs == InputSet::EMPTY {
            return Some(format!("{what} is computed from no input"));
        }
        let is_own = |input: &&'static Input| {
            let is_echo = |value: f64| {
                [least, most].contains(&value) && (self.stated.0 == value || self.stated.1 == value)
            };
            input.states.contains(&(self.place, self.what)) || self.in_own_unit(input).any(is_echo)
        };
        let own = inputs.inputs().find(is_own)?;
        Some(format!("{what} is computed from the paper's own value of it: {} ({})", own.name, own.source))
    }

    /// The values of an input in the unit of this number, if it has that.
    fn in_own_unit(&self, input: &'static Input) -> impl Iterator<Item = f64> {
        let scale = match (scale_of(input.unit), scale_of(self.unit)) {
            (Some((one, from)), Some((other, to))) if one == other => Some(from / to),
            _ if input.unit == self.unit && !input.unit.is_empty() => Some(1.0),
            _ => None,
        };
        input.values.iter().filter_map(move |value| Some(value * scale?))
    }
}

/// What a unit measures, and how much of it it is.
fn scale_of(unit: &str) -> Option<(&'static str, f64)> {
    Some(match unit {
        "ns" => ("time", 1e-3),
        "us" => ("time", 1.0),
        "ms" => ("time", 1e3),
        "s" => ("time", 1e6),
        "bytes" => ("bytes", 1.0),
        "KB" => ("bytes", 1024.0),
        "MiB" => ("bytes", 1024.0 * 1024.0),
        _ => return None,
    })
}

/// One number.
pub(crate) const fn is(number: f64) -> (f64, f64) {
    (number, number)
}

/// What the text calls larger or better, without a number for the most.
pub(crate) const fn at_least(number: f64) -> (f64, f64) {
    (number, f64::INFINITY)
}

/// What is but arithmetic on unit costs.
pub(crate) const fn sum(value: Computed) -> Prediction {
    Prediction::Sum(value, value)
}

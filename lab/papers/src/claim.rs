//! A number that a paper states, beside what the model predicts for it.

use crate::figure::Place;

/// What the model says of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Prediction {
    /// The model's run with the unit costs leads to it.
    Value(f64),
    /// It is a sum of unit costs, or a product or ratio of such, at least and at most; both the same where each unit cost is one
    /// number.
    Sum(f64, f64),
    /// It is estimated: from what the model says and from what the paper counted, which is a result of the paper.
    Estimate(f64),
    /// It is one of the unit costs.
    Given,
    /// No unit cost that the text gives leads to it.
    NotModelled,
}

impl Prediction {
    /// The least and the most that is predicted, if anything is.
    pub const fn range(&self) -> Option<(f64, f64)> {
        match *self {
            Prediction::Value(value) | Prediction::Estimate(value) => Some((value, value)),
            Prediction::Sum(least, most) => Some((least, most)),
            Prediction::Given | Prediction::NotModelled => None,
        }
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
    /// The least and the most that the model says while each assumed input is halved and doubled, where it depends on any.
    pub varied: Option<(f64, f64)>,
    /// The point of a figure's curve that it is, by the curve's name and the value along the axis.
    pub point: Option<(&'static str, f64)>,
    /// Where the prediction is off by more than a tenth, or there is none: what the paper's machine does that the model does not.
    pub reason: Option<&'static str>,
}

impl Claim {
    /// The largest deviation that needs no reason.
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

    pub(crate) const fn varied(self, least: f64, most: f64) -> Claim {
        Claim { varied: Some((least, most)), ..self }
    }

    /// By what part of the stated number the prediction is above (or, negative, below) it; 0 where the ranges of both meet. `None`
    /// where nothing is predicted.
    pub fn deviation(&self) -> Option<f64> {
        self.deviation_of(self.predicted)
    }

    /// The deviation ([`Self::deviation`]) of what is predicted on the other link.
    pub fn deviation_at_other_link(&self) -> Option<f64> {
        self.deviation_of(self.at_other_link?)
    }

    fn deviation_of(&self, predicted: Prediction) -> Option<f64> {
        let (lower, upper) = predicted.range()?;
        let (least, most) = self.stated;
        Some(if upper < least {
            upper / least - 1.0
        } else if lower > most {
            lower / most - 1.0
        } else {
            0.0
        })
    }

    /// Whether a deviation needs no reason.
    pub fn is_near(deviation: f64) -> bool {
        deviation.abs() <= Claim::TOLERANCE
    }

    /// Whether a reason has to be given.
    pub fn needs_reason(&self) -> bool {
        match self.predicted {
            Prediction::Given => false,
            _ => !self.deviation().is_some_and(Claim::is_near),
        }
    }
}

/// One number.
pub(crate) const fn is(number: f64) -> (f64, f64) {
    (number, number)
}

/// What is but arithmetic on unit costs.
pub(crate) const fn sum(value: f64) -> Prediction {
    Prediction::Sum(value, value)
}

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
    /// It is one of the unit costs.
    Given,
    /// No unit cost that the text gives leads to it.
    NotModelled,
}

impl Prediction {
    /// The least and the most that is predicted, if anything is.
    pub const fn range(&self) -> Option<(f64, f64)> {
        match *self {
            Prediction::Value(value) => Some((value, value)),
            Prediction::Sum(least, most) => Some((least, most)),
            Prediction::Given | Prediction::NotModelled => None,
        }
    }
}

/// A number that a paper states in its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The figure or table that it belongs to.
    pub place: Place,
    /// What it is the number of.
    pub what: &'static str,
    /// Its unit; "x" for a ratio.
    pub unit: &'static str,
    /// The least and the most that the text allows; both the same where it states one number.
    pub stated: (f64, f64),
    /// What the model says.
    pub predicted: Prediction,
    /// Where the prediction is off by more than a tenth, or there is none: what the paper's machine does that the model does not.
    pub reason: Option<&'static str>,
}

impl Claim {
    /// The largest deviation that needs no reason.
    pub const TOLERANCE: f64 = 0.1;

    /// By what part of the stated number the prediction is above (or, negative, below) it; 0 where the ranges of both meet. `None`
    /// where nothing is predicted.
    pub fn deviation(&self) -> Option<f64> {
        let (lower, upper) = self.predicted.range()?;
        let (least, most) = self.stated;
        Some(if upper < least {
            upper / least - 1.0
        } else if lower > most {
            lower / most - 1.0
        } else {
            0.0
        })
    }

    /// Whether a reason has to be given.
    pub fn needs_reason(&self) -> bool {
        match self.predicted {
            Prediction::Value(_) | Prediction::Sum(..) => {
                self.deviation().is_none_or(|off| off.abs() > Claim::TOLERANCE)
            }
            Prediction::NotModelled => true,
            Prediction::Given => false,
        }
    }
}

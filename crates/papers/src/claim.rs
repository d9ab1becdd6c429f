//! A number that a paper states, beside what the model predicts for it.

use crate::figure::Place;

/// What the model says of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Prediction {
    /// It follows from the unit costs.
    Value(f64),
    /// It is one of the unit costs.
    Given,
    /// No unit cost that the text gives leads to it.
    NotModelled,
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

    /// By what part of the stated number the prediction is above (or, negative, below) it; 0 within what the text allows. `None`
    /// where nothing is predicted.
    pub fn deviation(&self) -> Option<f64> {
        let Prediction::Value(value) = self.predicted else { return None };
        let (least, most) = self.stated;
        Some(if value < least {
            value / least - 1.0
        } else if value > most {
            value / most - 1.0
        } else {
            0.0
        })
    }

    /// Whether a reason has to be given.
    pub fn needs_reason(&self) -> bool {
        match self.predicted {
            Prediction::Value(_) => self.deviation().is_none_or(|off| off.abs() > Claim::TOLERANCE),
            Prediction::NotModelled => true,
            Prediction::Given => false,
        }
    }
}

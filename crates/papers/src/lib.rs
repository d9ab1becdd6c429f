//! The machines of the papers that Pagewire implements, as models in virtual time, and what the papers measured on them.
//!
//! The inputs are [`unit_costs`], each with its source. Whatever else comes out is predicted and never fitted; [`Claim`] puts it
//! beside the paper's number, and where the two differ by more than a tenth says what the paper's machine does that the model does
//! not. Pagewire itself does not run here: `pagewire-sim` is for that.
#![forbid(unsafe_code)]

mod claim;
mod event_queue;
mod figure;
pub mod jbmt;
pub mod part;
pub mod unit_costs;

pub use claim::{Claim, Prediction};
pub use figure::{Axis, Curve, Figure, Paper, Place};

/// The figures of a paper that have data, in their order.
pub fn figures(paper: Paper) -> Vec<Figure> {
    match paper {
        Paper::Part => part::figures(&unit_costs::PartCosts::PAPER),
        Paper::Jbmt => jbmt::figures(&unit_costs::JbmtCosts::PAPER),
    }
}

/// The numbers that a paper states in its text, in the order of its figures and tables.
pub fn claims(paper: Paper) -> Vec<Claim> {
    match paper {
        Paper::Part => part::claims(&unit_costs::PartCosts::PAPER),
        Paper::Jbmt => jbmt::claims(&unit_costs::JbmtCosts::PAPER),
    }
}

//! The machines of the papers that Pagewire implements, as models in virtual time, and what the papers measured on them.
//!
//! The inputs of the models are [`unit_costs`], each with its source. Whatever else comes out is predicted and never fitted;
//! [`Claim`] puts it beside the paper's number, and where the two differ by more than a tenth says what the paper's machine does that
//! the model does not. Applications do not run here: what is estimated of them with counts of the paper says so
//! ([`Prediction::Estimate`]). Pagewire itself does not run here: `pagewire-sim` is for that.
#![forbid(unsafe_code)]

pub mod active;
mod claim;
mod event_queue;
mod figure;
pub mod frrwp;
pub mod jbmt;
pub mod part;
pub mod reuse;
mod right_axis;
pub mod translation;
pub mod unit_costs;

pub use claim::{Claim, Prediction};
pub use figure::{Axis, Curve, Figure, Paper, Place, Shape};
pub use right_axis::RightAxis;

use unit_costs::{FrrwpCosts, JbmtCosts, PartCosts, ReuseCosts};

/// The figures of a paper that have data, in their order.
pub fn figures(paper: Paper) -> Vec<Figure> {
    match paper {
        Paper::Part => part::figures(&PartCosts::PAPER),
        Paper::Jbmt => jbmt::figures(&JbmtCosts::PAPER),
        Paper::Frrwp => frrwp::figures(&FrrwpCosts::PAPER),
        Paper::Reuse => reuse::figures(&[ReuseCosts::MUTRINO, ReuseCosts::STRIA]),
        Paper::Active => active::figures(),
    }
}

/// The numbers that a paper states in its text, in the order of its figures and tables. PART's text has two links: what is predicted is
/// so with that of which it computes, and with the other one beside it.
pub fn claims(paper: Paper) -> Vec<Claim> {
    match paper {
        Paper::Part => {
            let mut claims = part::claims(&PartCosts::PAPER);
            let others = part::claims(&PartCosts { link: PartCosts::BOARD_LINK, ..PartCosts::PAPER });
            for (claim, other) in claims.iter_mut().zip(others) {
                claim.at_other_link = Some(other.predicted);
            }
            claims
        }
        Paper::Jbmt => jbmt::claims(&JbmtCosts::PAPER),
        Paper::Frrwp => frrwp::claims(&FrrwpCosts::PAPER),
        Paper::Reuse => reuse::claims(&[ReuseCosts::MUTRINO, ReuseCosts::STRIA]),
        Paper::Active => active::claims(),
    }
}

//! The machines of the papers that Pagewire implements, as models in virtual time, and what the papers measured on them.
//!
//! The inputs of the models are [`unit_costs`], each with its source. Whatever else comes out is predicted and never fitted, and names the inputs
//! that it was computed from ([`Computed`]). [`Claim`] puts it beside the paper's number, and where the two differ by more than a tenth says what
//! the paper's machine does that the model does not. Applications do not run here: what is estimated of them with counts of the paper says so
//! ([`Prediction::Estimate`]). Pagewire itself does not run here: `pagewire-sim` is for that.
#![forbid(unsafe_code)]

pub mod active;
mod claim;
mod computed;
mod event_queue;
mod figure;
pub mod frrwp;
pub mod jbmt;
pub mod part;
pub mod reuse;
mod right_axis;
pub mod translation;
pub mod unit_costs;

pub use claim::{Claim, Prediction, Verdict};
pub use computed::{Computed, InputSet};
pub use figure::{Axis, Curve, Figure, Interval, Paper, Place, Provenance, Shape};
pub use right_axis::RightAxis;

use std::sync::OnceLock;
use unit_costs::{ActiveCosts, FrrwpCosts, JbmtCosts, PartCosts, ReuseCosts};

/// The figures of a paper that have data, in their order. They are computed once.
pub fn figures(paper: Paper) -> Vec<Figure> {
    static ALL: [OnceLock<Vec<Figure>>; 5] = [const { OnceLock::new() }; 5];
    ALL[paper as usize].get_or_init(|| computed::strictly(|| figures_of(paper))).clone()
}

fn figures_of(paper: Paper) -> Vec<Figure> {
    match paper {
        Paper::Part => part::figures(&PartCosts::PAPER),
        Paper::Jbmt => jbmt::figures(&JbmtCosts::PAPER),
        Paper::Frrwp => frrwp::figures(&FrrwpCosts::PAPER),
        Paper::Reuse => reuse::figures(&[ReuseCosts::MUTRINO, ReuseCosts::STRIA]),
        Paper::Active => active::figures(&ActiveCosts::PAPER),
    }
}

/// The numbers that a paper states in its text, in the order of its figures and tables. PART's text has two links: what is predicted is
/// so with that of which it computes, and with the other one beside it. They are computed once.
pub fn claims(paper: Paper) -> Vec<Claim> {
    static ALL: [OnceLock<Vec<Claim>>; 5] = [const { OnceLock::new() }; 5];
    ALL[paper as usize].get_or_init(|| computed::strictly(|| claims_of(paper))).clone()
}

fn claims_of(paper: Paper) -> Vec<Claim> {
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
        Paper::Active => active::claims(&ActiveCosts::PAPER),
    }
}

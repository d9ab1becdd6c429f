//! The numbers that JBMT's text states, beside the model's.

use super::figures::{bandwidth, latency};
use crate::claim::{Claim, Prediction};
use crate::figure::Place;
use crate::unit_costs::JbmtCosts;

/// All of them, by figure.
pub fn claims(costs: &JbmtCosts) -> Vec<Claim> {
    let claim = |place, what, unit, stated, predicted, reason| Claim {
        place,
        what,
        unit,
        stated: (stated, stated),
        predicted,
        reason,
    };
    let peak = bandwidth(costs, 16 << 20);
    let link = f64::from(u32::try_from(costs.link).unwrap_or(u32::MAX)) / 8.0;
    vec![
        claim(
            Place::Figure(4),
            "get of 1 byte",
            "us",
            19.0,
            Prediction::Value(latency(costs, 1)),
            Some(
                "the text times the processing (3 us) and the control message (7 us), which leaves 9 us for the data; the model takes a \
                 short data message to cost what a control message costs, and lacks the switch from the application to the helper \
                 thread, which section 4.4 lists as small, without a number",
            ),
        ),
        claim(Place::Figure(4), "get of 1 byte: processing", "us", 3.0, Prediction::Given, None),
        claim(Place::Figure(4), "get of 1 byte: control message", "us", 7.0, Prediction::Given, None),
        claim(Place::Figure(5), "peak bandwidth", "MB/s", 112.0, Prediction::Value(peak), None),
        claim(
            Place::Figure(5),
            "peak bandwidth, of the link's",
            "%",
            90.0,
            Prediction::Value(peak / link * 100.0),
            None,
        ),
        claim(Place::Table(1), "registration, any size", "us", 1.32, Prediction::Given, None),
        claim(Place::Table(1), "deregistration, any size", "us", 0.25, Prediction::Given, None),
    ]
}

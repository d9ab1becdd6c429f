//! The numbers that JBMT's text states, beside the model's.

use super::figures::{bandwidth, latency};
use crate::claim::{Claim, Prediction, is};
use crate::computed::computed;
use crate::figure::Place;
use crate::unit_costs::JbmtCosts;

/// All of them, by figure.
pub fn claims(costs: &JbmtCosts) -> Vec<Claim> {
    let largest = 16 << 20;
    let peak = computed(|| bandwidth(costs, largest));
    let link = computed(|| costs.link() as f64 / 8.0);
    let given = |place, what, stated: f64| Claim::new(place, what, "us", is(stated), Prediction::Given);
    let (latencies, bandwidths, registrations) = (Place::Figure(4), Place::Figure(5), Place::Table(1));
    vec![
        Claim::new(latencies, "get of 1 byte", "us", is(19.0), Prediction::Value(computed(|| latency(costs, 1))))
            .at("get", 1.0)
            .because(
                "the text times the processing (3 us) and the control message (7 us), which leaves 9 us for the data; the model takes a \
                 short data message to cost what a control message costs, and lacks the switch from the application to the helper \
                 thread, which section 4.4 lists as small, without a number",
            ),
        given(latencies, "get of 1 byte: processing", 3.0)
            .at("JBMT processing (pinning: cost of another testbed)", 1.0),
        given(latencies, "get of 1 byte: control message", 7.0).at("VNIC control message", 1.0),
        Claim::new(bandwidths, "peak bandwidth", "MB/s", is(112.0), Prediction::Value(peak))
            .at("get", largest as f64),
        Claim::new(
            bandwidths,
            "peak bandwidth, of the link's (\"almost saturating\")",
            "%",
            (90.0, 100.0),
            Prediction::Value(peak / link * 100.0),
        )
        .bound_by_us(),
        given(registrations, "registration, any size", 1.32).at("registration", 1.0),
        given(registrations, "deregistration, any size", 0.25).at("deregistration", 1.0),
        Claim::new(
            registrations,
            "either of them, less than (section 4.3)",
            "us",
            (0.0, 2.0),
            Prediction::Given,
        )
        .because("both are inputs, and neither is computed from another one"),
    ]
}

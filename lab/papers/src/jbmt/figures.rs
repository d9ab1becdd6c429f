//! JBMT's figures and its table, as the model predicts them.

use super::machine::{Get, run};
use crate::figure::{Axis, Figure, Place, Shape};
use crate::unit_costs::{JbmtCosts, JbmtLimits, PAGE};

const SHORT: [u64; 7] = [1, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10];
const ALL: [u64; 12] =
    [1, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

const ASSUMED: &str = "assumed: half of the 3 us of processing is each side's, half of the initiator's before the request; pinning \
    the first page is within it; a short data message takes 7 us, as a control message does";
const STAND_IN: &str =
    "gets of more than one page hold a stand-in for pinning: what another paper cites of another testbed";
const NO_SWITCH: &str = "the switch to the helper thread is not modelled: the text has no time for it";

/// Figures 4 to 7 and table 1.
pub fn figures(costs: &JbmtCosts) -> Vec<Figure> {
    let sizes = (Axis::BYTES, Axis::MICROSECONDS);
    let pins = |bytes: u64| us(2 * (bytes.div_ceil(PAGE) - 1) * costs.pin_page());
    let transfer = |bytes| us(costs.data(bytes));
    vec![
        Figure::of(
            Place::Figure(4),
            "latency of a get, and its parts",
            sizes,
            &SHORT,
            vec![
                ("get", &|bytes| latency(costs, bytes)),
                ("JBMT processing (pinning: cost of another testbed)", &|bytes| {
                    us(costs.processing()) + pins(bytes)
                }),
                ("VNIC control message", &|_| us(costs.message())),
                ("VNIC data transfer", &transfer),
            ],
        )
        .noted(&[ASSUMED, STAND_IN, NO_SWITCH]),
        Figure::of(
            Place::Figure(5),
            "bandwidth of a window of 16 gets",
            (Axis::BYTES, Axis { label: "MB/s", logarithmic: true }),
            &ALL,
            vec![("get", &|bytes| bandwidth(costs, bytes))],
        )
        .noted(&[STAND_IN]),
        Figure::course(Place::Figure(6), "course of a 4 KiB get: start and end of each part", || {
            serial_parts(costs, PAGE)
        })
        .noted(&[ASSUMED, NO_SWITCH]),
        Figure::of(
            Place::Figure(7),
            "parts of a get",
            sizes,
            &ALL[..10],
            vec![
                ("request and completion processing", &|_| us(costs.processing() / 2)),
                ("remote processing", &|_| us(costs.processing() / 2)),
                ("VNIC control message", &|_| us(costs.message())),
                ("pinning and release beyond the first page (cost of another testbed)", &pins),
                ("VNIC-VNIC data transfer", &transfer),
            ],
        )
        .shaped(Shape::Parts(5))
        .noted(&[ASSUMED, NO_SWITCH]),
        Figure::of(
            Place::Table(1),
            "cost of registration, any size (given)",
            sizes,
            &ALL,
            vec![
                ("registration", &|_| us(costs.register())),
                ("deregistration", &|_| us(costs.deregister())),
            ],
        ),
    ]
}

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

/// Microseconds of each part of a get of one section, all pages in memory.
pub fn serial_parts(costs: &JbmtCosts, bytes: u64) -> [(&'static str, f64); 5] {
    let pins = (bytes.div_ceil(PAGE) - 1) * costs.pin_page();
    [
        ("request processing", costs.processing() / 4 + pins),
        ("VNIC control message", costs.message()),
        ("remote processing", costs.processing() / 2 + pins),
        ("VNIC-VNIC data transfer", costs.data(bytes)),
        ("completion processing", costs.processing() / 4),
    ]
    .map(|(name, nanoseconds)| (name, us(nanoseconds)))
}

/// Microseconds of one get of pages in memory.
pub(super) fn latency(costs: &JbmtCosts, bytes: u64) -> f64 {
    let finished = run(costs, &JbmtLimits::PLENTY, &[Get::resident(bytes)]);
    us(finished.gets[0].1)
}

/// Megabytes a second of many gets of pages in memory.
pub(super) fn bandwidth(costs: &JbmtCosts, bytes: u64) -> f64 {
    let gets = vec![Get::resident(bytes); 64];
    let finished = run(costs, &JbmtLimits::PLENTY, &gets);
    let end = finished.gets.iter().map(|(_, end)| *end).max().unwrap_or(0);
    (bytes * 64) as f64 * 1_000.0 / end as f64
}

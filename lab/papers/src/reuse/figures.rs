//! REUSE's figures 1 to 7, as the model predicts them for both systems.

use super::{View, acquire_new, transfer};
use crate::figure::{Axis, Curve, Figure, Place};
use crate::right_axis::RightAxis;
use crate::unit_costs::ReuseCosts;

/// 2^k bytes, 7 <= k <= 21 (VI.A).
pub(super) fn sizes() -> impl Iterator<Item = u64> + Clone {
    (7..=21).map(|bits| 1 << bits)
}

const GIVEN: &str = "given: registration of 2 MiB, and how much dearer that is than 128 B; between both T = a p + b is assumed; the paper's curves are \
    pictures";
const DEREGISTRATION: &str =
    "assumed: deregistration takes half of registration, or a tenth; the text says that it takes less";
const FIRST: &str = "the several milliseconds of the first trial of each size on Mutrino are not modelled: the text takes them for initialisation";
const ALLOCATE: &str = "given: a request takes less than 1 us (Mutrino) and 2.5 us (Stria) where the allocator has registered memory; assumed: at least 50 \
    ns";
const PUT: &str = "assumed: a put takes 2 us and moves 10 GB/s; the numbers are predicted for 1 to 20 us and 5 to 12.5 GB/s; the text has no time of a put";
const COPY: &str = "assumed: a View is copied at 5 GB/s; the numbers are predicted for 1 to 10 GB/s";

type Systems = [ReuseCosts; 2];

/// All of them; behind figures 4 to 7 what they have on the right-hand axis.
pub fn figures(systems: &Systems) -> Vec<Figure> {
    let mut figures = vec![registration(systems), per_byte(systems), trials(systems)];
    for (left, title) in [
        (acquire(systems), "acquiring new registered memory: by how much sooner"),
        (reuse(systems), "reusing registered memory: by how much sooner"),
        (put(systems), "acquiring and putting: by how much sooner"),
        (views(systems), "transfer of a View: by how much sooner"),
    ] {
        let right = left.right(RightAxis::Faster, title);
        figures.extend([left, right]);
    }
    figures
}

/// One curve of each system, under its name.
fn both(systems: &Systems, name: &str, value: impl Fn(&ReuseCosts, u64) -> f64) -> Vec<Curve> {
    let points = |costs: &ReuseCosts| sizes().map(|bytes| (bytes as f64, value(costs, bytes))).collect();
    let curve = |costs: &ReuseCosts| Curve::computed(format!("{}: {name}", costs.name), || points(costs));
    systems.iter().map(curve).collect()
}

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

fn figure(number: u32, title: &'static str, curves: Vec<Vec<Curve>>) -> Figure {
    Figure::drawn(Place::Figure(number), title, (Axis::BYTES, Axis::MICROSECONDS), curves.concat())
}

fn registration(systems: &Systems) -> Figure {
    let quick = |costs: &ReuseCosts| ReuseCosts { deregister_percent: 10, ..*costs };
    figure(
        1,
        "registration and deregistration",
        vec![
            both(systems, "registration", |costs, bytes| us(costs.register(bytes))),
            both(systems, "deregistration", |costs, bytes| us(costs.deregister(bytes))),
            both(systems, "deregistration, a tenth", |costs, bytes| us(quick(costs).deregister(bytes))),
        ],
    )
    .noted(&[GIVEN, DEREGISTRATION, FIRST])
}

fn per_byte(systems: &Systems) -> Figure {
    let by_kib = |nanoseconds: u64, bytes: u64| us(nanoseconds) * 1_024.0 / bytes as f64;
    let figure = figure(
        2,
        "registration and deregistration of each KiB",
        vec![
            both(systems, "registration", |costs, bytes| by_kib(costs.register(bytes), bytes)),
            both(systems, "deregistration", |costs, bytes| by_kib(costs.deregister(bytes), bytes)),
        ],
    );
    figure.noted(&[GIVEN, DEREGISTRATION])
}

fn by_hand(systems: &Systems) -> Vec<Curve> {
    both(systems, "by hand", |costs, bytes| us(costs.register(bytes)))
}

/// Single trials: those of registered memory, and those that register a slab.
fn trials(systems: &Systems) -> Figure {
    let points = |costs: &ReuseCosts| {
        let has_fast = |bytes: &u64| acquire_new(costs, *bytes, ReuseCosts::TRIALS).fast > 0;
        sizes().filter(has_fast).map(|bytes| (bytes as f64, us(costs.allocate()))).collect()
    };
    let fast = |costs: &ReuseCosts| Curve::computed(format!("{}: from a slab", costs.name), || points(costs));
    figure(
        3,
        "acquiring new registered memory, single trials",
        vec![
            systems.iter().map(fast).collect(),
            both(systems, "with a new slab", |costs, bytes| us(acquire_new(costs, bytes, 1).total)),
            by_hand(systems),
        ],
    )
    .noted(&[GIVEN, ALLOCATE])
}

fn acquire(systems: &Systems) -> Figure {
    let mean = |costs: &ReuseCosts, bytes| acquire_new(costs, bytes, ReuseCosts::TRIALS).mean();
    let quick = |costs: &ReuseCosts| ReuseCosts { allocate: ReuseCosts::LEAST_ALLOCATE, ..*costs };
    figure(
        4,
        "acquiring new registered memory",
        vec![
            both(systems, "slabs", mean),
            both(systems, "slabs, a request takes 50 ns", |costs, bytes| mean(&quick(costs), bytes)),
            by_hand(systems),
        ],
    )
    .noted(&[GIVEN, ALLOCATE, FIRST])
}

fn reuse(systems: &Systems) -> Figure {
    figure(
        5,
        "reusing registered memory",
        vec![
            both(systems, "reused, at most", |costs, _| us(costs.allocate())),
            both(systems, "reused, at least", |costs, _| {
                us(ReuseCosts { allocate: ReuseCosts::LEAST_ALLOCATE, ..*costs }.allocate())
            }),
            by_hand(systems),
        ],
    )
    .noted(&[GIVEN, ALLOCATE])
}

fn moved(systems: &Systems, name: &str, view: View) -> Vec<Curve> {
    both(systems, name, |costs, bytes| us(transfer(costs, view, bytes)))
}

fn put(systems: &Systems) -> Figure {
    figure(
        6,
        "acquiring and putting",
        vec![moved(systems, "reused", View::Registered), moved(systems, "by hand", View::ByHand)],
    )
    .noted(&[GIVEN, ALLOCATE, PUT])
}

fn views(systems: &Systems) -> Figure {
    figure(
        7,
        "transfer of a View",
        vec![
            moved(systems, "registered space", View::Registered),
            moved(systems, "by hand", View::ByHand),
            moved(systems, "copied", View::Copied),
        ],
    )
    .noted(&[GIVEN, ALLOCATE, PUT, COPY])
}

//! The numbers that FRRWP's text states, beside the model's.

use super::exchange::Direction;
use super::figures::saving;
use crate::claim::Prediction::{Given, NotModelled, Sum, Value};
use crate::claim::{Claim, at_least, is, sum};
use crate::computed::computed;
use crate::figure::Place;
use crate::unit_costs::{FAST_REGISTRATION_TABLE, FrrwpCosts, PAGE};

const KIB: u64 = 1 << 10;
const FAST: [&str; 6] = [
    "4 KB: fast registration",
    "8 KB: fast registration",
    "16 KB: fast registration",
    "32 KB: fast registration",
    "64 KB: fast registration",
    "128 KB: fast registration",
];
const ORDINARY: [&str; 6] = [
    "4 KB: ordinary registration",
    "8 KB: ordinary registration",
    "16 KB: ordinary registration",
    "32 KB: ordinary registration",
    "64 KB: ordinary registration",
    "128 KB: ordinary registration",
];

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

/// A number with each assumed input halved and doubled that decides one of the text.
fn with_assumed(costs: &FrrwpCosts, value: impl Fn(&FrrwpCosts) -> f64) -> Vec<(u32, f64)> {
    let mut others = Vec::new();
    for percent in [50, 200] {
        let separate = FrrwpCosts { separate: costs.separate * percent / 100, ..*costs };
        let latency = FrrwpCosts { latency: costs.latency * percent / 100, ..*costs };
        for (number, other) in [(FrrwpCosts::SEPARATE, separate), (FrrwpCosts::LATENCY, latency)] {
            others.push((number, computed(|| value(&other)).value));
        }
    }
    others
}

/// All of them, by figure.
pub fn claims(costs: &FrrwpCosts) -> Vec<Claim> {
    [by_size(costs), table(), cited(costs), savings(costs), vec![fast_of_others(costs)]].concat()
}

/// Figures 1 and 2, and what figure 5 spares.
fn by_size(costs: &FrrwpCosts) -> Vec<Claim> {
    let given = |place, what, stated: f64| Claim::new(place, what, "us", is(stated), Given);
    let growth = |costs: &FrrwpCosts| costs.ordinary(128 * KIB) as f64 / costs.ordinary(32 * KIB) as f64;
    let to_write = |costs: &FrrwpCosts| costs.ordinary(4 * KIB) as f64 / costs.write(4 * KIB) as f64;
    let (first, second, fifth) = (Place::Figure(1), Place::Figure(2), Place::Figure(5));
    vec![
        Claim::new(first, "4 KB: registration to RDMA write (\"much higher\")", "x", at_least(1.0), Value(computed(|| to_write(costs))))
            .over(with_assumed(costs, to_write))
            .bound_by_us(),
        Claim::new(second, "kernel space less than user space, below 32 KB", "us", is(40.0), Given)
            .because("it is the input of what user space adds"),
        Claim::new(second, "part of mapping, pinning and crossings (\"about half\")", "%", is(50.0), Given)
            .bound_by_us()
            .because("the input of what user space adds is half by these words"),
        Claim::new(second, "largest size of one cost in user space", "KB", is(32.0), Given)
            .because("it is the input of what malloc gives in one piece"),
        Claim::new(second, "128 KB to 32 KB, user space (\"increases dramatically\")", "x", at_least(2.0), sum(computed(|| growth(costs))))
            .over(with_assumed(costs, growth))
            .bound_by_us()
            .because(
                "the text has no cost of a separate page on its own testbed: with the 0.77 us of another one 24 further pages add 18 us \
                 to 80; doubling takes 3.3 us a page, as ordinary registration pins and tells the card of each region",
            ),
        given(fifth, "T1: completion", 4.0),
        given(fifth, "T2 and T3, each: switch between driver and application", 5.0),
        Claim::new(fifth, "T1 + T2 + T3", "us", is(14.0), sum(computed(|| us(costs.conditional())))),
    ]
}

fn table() -> Vec<Claim> {
    let place = Place::Table(1);
    let mut claims = Vec::new();
    for (what, &(size, fast, _)) in FAST.into_iter().zip(&FAST_REGISTRATION_TABLE) {
        claims.push(
            Claim::new(place, what, "us", is(fast), NotModelled)
                .at("fast MR (paper)", (size * KIB) as f64)
                .because(
                    "the text has neither the time of an entry of the pre-allocated table nor that of the call, and this column alone \
                     would give them",
                ),
        );
    }
    for (what, &(size, _, ordinary)) in ORDINARY.into_iter().zip(&FAST_REGISTRATION_TABLE) {
        claims.push(
            Claim::new(place, what, "us", is(ordinary), Given)
                .at("ordinary MR (paper)", (size * KIB) as f64)
                .because("the input of the card's part, about 40 us, is what the text makes of this column"),
        );
    }
    claims
}

/// Sections 2.1 and 2.3.
fn cited(costs: &FrrwpCosts) -> Vec<Claim> {
    let model = Place::Section("2.3");
    vec![
        Claim::new(Place::Section("2.1"), "a page, 2.4 GHz Xeon", "us", is(7.0), sum(computed(|| us(costs.fast(1))))).because(
            "the text cites the same testbed with 0.77 + 7.42 us for registration and deregistration together, and does not say how much of \
             7.42 is the latter",
        ),
        Claim::new(model, "cost of each page (a)", "us", is(0.77), Given),
        Claim::new(model, "cost of each operation (b)", "us", is(7.42), Given),
        Claim::new(
            model,
            "part of the crossing in b (\"main part\")",
            "%",
            (50.0, 100.0),
            sum(computed(|| us(costs.crossing()) / us(costs.operation()) * 100.0)),
        )
        .bound_by_us(),
    ]
}

/// Section 4.
fn savings(costs: &FrrwpCosts) -> Vec<Claim> {
    let place = Place::Section("4");
    let at_least_22 = |what, value: fn(&FrrwpCosts) -> f64| {
        let predicted = Value(computed(|| value(costs)));
        Claim::new(place, what, "us", at_least(22.0), predicted).over(with_assumed(costs, value))
    };
    let constant = computed(|| us(costs.operation() + costs.conditional()));
    let whole = |costs: &FrrwpCosts| {
        saving(costs, Direction::Write, costs.fast(1_024), 0) / us(costs.fast(1_024) + costs.conditional())
    };
    vec![
        Claim::new(place, "saving without its pages: 21.42 + 0.77 p", "us", is(21.42), sum(constant)),
        at_least_22("a page, WRITE", |costs| saving(costs, Direction::Write, costs.fast(1), costs.fast(1))).at("WRITE", 1.0),
        at_least_22("a page, READ", |costs| saving(costs, Direction::Read, costs.fast(1), costs.fast(1))).at("READ", 1.0).because(
            "with READ the server writes: it takes the opening, registers and posts while the client registers, so its T1 to T3 lie in the \
             overlap and are not saved again; the paper adds Tr and Tc for either direction",
        ),
        at_least_22("a page, WRITE, client is registered", |costs| saving(costs, Direction::Write, 0, costs.fast(1)))
            .at("WRITE, client is registered", 1.0)
            .because(
                "the paper's Tr is saved only where both register; without a registration of the client nothing overlaps, and Tc = 14 us \
                 is left",
            ),
        Claim::new(
            place,
            "1,024 pages, WRITE, server is registered, to 21.42 + 0.77 p",
            "x",
            is(1.0),
            Value(computed(|| whole(costs))),
        )
        .over(with_assumed(costs, whole))
        .bound_by_us()
        .because(
            "the paper takes the two registrations to overlap whole; the client's hides only what goes on beside it: the server's and the \
             round trip, which no text gives, and of which 4 us a message are assumed",
        ),
    ]
}

/// Section 5, of another testbed.
fn fast_of_others(costs: &FrrwpCosts) -> Claim {
    let less = |pages| computed(|| us(costs.ordinary(pages * PAGE) - costs.fast(pages)));
    let less = Sum(less(32), less(1));
    Claim::new(Place::Section("5"), "fast registration sooner than ordinary by", "us", is(50.0), less).because(
        "the text cites it of another testbed, without a size, and has ordinary registration in user space of this one only; the difference \
         is taken between both",
    )
}

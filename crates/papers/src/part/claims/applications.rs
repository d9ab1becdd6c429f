//! Asynchronous sends and applications (figure 16, tables 2 to 4, section 6.2).
//!
//! Of table 5, calls and bytes of each application, the text has no numbers.

use super::super::machine::run;
use super::super::strategies::{all_absent, touched};
use super::super::transfer::{PageIn, Transfer};
use super::{KIB, MIB};
use crate::claim::Prediction::{Estimate, NotModelled, Sum, Value};
use crate::claim::{Claim, is};
use crate::figure::Place;
use crate::unit_costs::{APPLICATIONS, LAMMPS_SECONDS, PartCosts};

/// Seconds of table 2.
const LOOP_TIMES: [(&str, f64); 10] = [
    ("LAMMPS, 1 process: loop time without page faults", 76.47),
    ("LAMMPS, 2 processes: loop time without page faults", 79.37),
    ("LAMMPS, 4 processes: loop time without page faults", 84.74),
    ("LAMMPS, 8 processes: loop time without page faults", 90.21),
    ("LAMMPS, 16 processes: loop time without page faults", LAMMPS_SECONDS),
    ("LAMMPS, 1 process: loop time with page faults", 76.44),
    ("LAMMPS, 2 processes: loop time with page faults", 79.21),
    ("LAMMPS, 4 processes: loop time with page faults", 84.55),
    ("LAMMPS, 8 processes: loop time with page faults", 90.43),
    ("LAMMPS, 16 processes: loop time with page faults", 99.95),
];

pub(super) fn all(costs: &PartCosts) -> Vec<Claim> {
    let mut claims = vec![asynchronous_sends(costs)];
    claims.extend(slower(costs));
    claims.extend(counts());
    claims.extend(runs_for_each_err(costs));
    claims
}

fn asynchronous_sends(costs: &PartCosts) -> Claim {
    Claim::new(
        Place::Figure(16),
        "touching first holds up a send of 1 to 4 MB by (\"many 10s\" of us)",
        "us",
        (20.0, 100.0),
        Sum(touched(costs, MIB).0, touched(costs, 4 * MIB).1),
    )
    .bound_by_us()
}

/// Run times, and how much longer they are with page faults. Each handler run that the paper counted at the cost of one fault, none
/// overlapped, is an estimate for a run. It is no bound: of interrupts that coalesce one handler run serves several faults, whose
/// number the paper could not measure (section 6.2.2).
fn slower(costs: &PartCosts) -> Vec<Claim> {
    let fault = all_absent(costs, 4 * KIB, PageIn::One) / 1e6;
    let [lammps, ..] = APPLICATIONS;
    let time = |(what, seconds)| {
        Claim::new(Place::Table(2), what, "s", is(seconds), NotModelled).because(
            "the model runs no application, and the text does not say what this one computes and sends",
        )
    };
    let untimed = |place, what, most| {
        Claim::new(place, what, "%", (0.0, most), NotModelled)
            .because("the text has run times of LAMMPS alone (table 2), and the model runs no application")
    };
    let mut claims = LOOP_TIMES.map(time).to_vec();
    claims.extend([
        Claim::new(
            Place::Table(2),
            "LAMMPS, 16 processes: slower by at most (a fault a counted handler run)",
            "%",
            (0.0, 1.1),
            Estimate(lammps.handler_runs * fault / LAMMPS_SECONDS * 100.0),
        ),
        untimed(Place::Table(3), "HPL: slower by at most", 2.9),
        untimed(Place::Table(4), "HPCG: slower by at most", 2.9),
        untimed(Place::Section("6.2"), "all applications: slower by less than (section 6.2.3)", 1.0),
    ]);
    claims
}

/// What the paper counted on 16 nodes.
fn counts() -> impl Iterator<Item = Claim> {
    let counted = |what, count| {
        Claim::new(Place::Section("6.2"), what, "", is(count), NotModelled).because(
            "which buffers the application sends, how long they are and which pages of them are new is not in the text; it counts what \
             happened",
        )
    };
    let names = [
        ("LAMMPS: handler runs", "LAMMPS: ERRs"),
        ("HPL: handler runs", "HPL: ERRs"),
        ("HPCG: handler runs", "HPCG: ERRs"),
    ];
    APPLICATIONS.into_iter().zip(names).flat_map(move |(application, (runs, errs))| {
        [counted(runs, application.handler_runs), counted(errs, application.errs)]
    })
}

/// Handler runs to ERRs, of the counts, against those of the fault of one page.
fn runs_for_each_err(costs: &PartCosts) -> [Claim; 3] {
    let fault = run(costs, &Transfer::absent(costs, 4 * KIB, PageIn::One));
    let predicted = Value(fault.handler_runs as f64 / fault.errs as f64);
    [
        ("LAMMPS: handler runs for each ERR (1489 / 239)", 6.2),
        ("HPL: handler runs for each ERR (1497 / 220)", 6.8),
        ("HPCG: handler runs for each ERR (318 / 48)", 6.6),
    ]
    .map(|(what, ratio)| {
        Claim::new(Place::Section("6.2"), what, "", is(ratio), predicted).because(
            "in the model the packets of a page follow each other as fast as the link is, five while the handler runs; where several \
             transfers share a link they come further apart, and at a fifth of its rate each of the 16 has a run of its own; how the \
             applications share links is not in the text",
        )
    })
}

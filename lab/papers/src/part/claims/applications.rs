//! Asynchronous sends and applications (figure 16, tables 2 to 5, section 6.2).
//!
//! Of the calls and bytes of each application in table 5 the text has no numbers; what it counts of handler runs and ERRs beside that
//! table stands for it.

use super::super::applications::{runs_for_each_err, seconds_of_faults};
use super::super::strategies::touched;
use super::MIB;
use crate::claim::Prediction::{Estimate, NotModelled, Sum, Value};
use crate::claim::{Claim, is};
use crate::computed::computed;
use crate::figure::Place;
use crate::unit_costs::{APPLICATIONS, LAMMPS_SECONDS, PartCosts, lammps_seconds};

/// What table 2 has, in its order: [`LAMMPS_SECONDS`] without page faults, then with them.
const LOOP_TIMES: [&str; 10] = [
    "LAMMPS, 1 process: loop time without page faults",
    "LAMMPS, 2 processes: loop time without page faults",
    "LAMMPS, 4 processes: loop time without page faults",
    "LAMMPS, 8 processes: loop time without page faults",
    "LAMMPS, 16 processes: loop time without page faults",
    "LAMMPS, 1 process: loop time with page faults",
    "LAMMPS, 2 processes: loop time with page faults",
    "LAMMPS, 4 processes: loop time with page faults",
    "LAMMPS, 8 processes: loop time with page faults",
    "LAMMPS, 16 processes: loop time with page faults",
];

pub(super) fn all(costs: &PartCosts) -> Vec<Claim> {
    let mut claims = vec![asynchronous_sends(costs)];
    claims.extend(slower(costs));
    claims.extend(counts());
    claims.extend(runs_of_an_err(costs));
    claims.push(super::sensitivity::errors(costs));
    claims.push(
        Claim::new(
            Place::Section("6.2"),
            "all applications: slower by less than (section 6.2.3)",
            "%",
            (0.0, 1.0),
            NotModelled,
        )
        .because(
            "the text has run times of LAMMPS alone, and the model runs no application; elsewhere it says at most 1.1 % of LAMMPS and 2.9 \
             % of the others",
        ),
    );
    claims
}

fn asynchronous_sends(costs: &PartCosts) -> Claim {
    let (least, most) = (computed(|| touched(costs, MIB).0), computed(|| touched(costs, 4 * MIB).1));
    Claim::new(
        Place::Figure(16),
        "touching first holds up a send of 1 to 4 MB by (\"many 10s\" of us)",
        "us",
        (20.0, 100.0),
        Sum(least, most),
    )
    .varied(least.value, most.value, least.inputs)
    .bound_by_us()
}

/// Run times, and how much longer they are with page faults.
fn slower(costs: &PartCosts) -> Vec<Claim> {
    let [lammps, ..] = &APPLICATIONS;
    let time = |(what, seconds)| {
        Claim::new(Place::Table(2), what, "s", is(seconds), NotModelled).because(
            "the model runs no application, and the text does not say what this one computes and sends",
        )
    };
    let untimed = |place, what, most| {
        Claim::new(place, what, "%", (0.0, most), NotModelled)
            .because("the text has run times of LAMMPS alone (table 2), and the model runs no application")
    };
    let (without, with) = (LAMMPS_SECONDS.map(|row| row.1), LAMMPS_SECONDS.map(|row| row.2));
    let mut claims: Vec<Claim> =
        LOOP_TIMES.into_iter().zip(without.into_iter().chain(with)).map(time).collect();
    claims.extend([
        Claim::new(
            Place::Table(2),
            "LAMMPS, 16 processes: slower by at most (a fault a counted handler run)",
            "%",
            (0.0, 1.1),
            Estimate(computed(|| seconds_of_faults(costs, lammps) / lammps_seconds() * 100.0)),
        ),
        untimed(Place::Table(3), "HPL: slower by at most", 2.9),
        untimed(Place::Table(4), "HPCG: slower by at most", 2.9),
    ]);
    claims
}

/// What the paper counted on 16 nodes.
fn counts() -> impl Iterator<Item = Claim> {
    let counted = |what, count| {
        Claim::new(Place::Table(5), what, "", is(count), NotModelled).because(
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
fn runs_of_an_err(costs: &PartCosts) -> [Claim; 3] {
    let predicted = Value(computed(|| runs_for_each_err(costs)));
    [
        ("LAMMPS: handler runs for each ERR (1489 / 239)", 6.2),
        ("HPL: handler runs for each ERR (1497 / 220)", 6.8),
        ("HPCG: handler runs for each ERR (318 / 48)", 6.6),
    ]
    .map(|(what, ratio)| {
        Claim::new(Place::Table(5), what, "", is(ratio), predicted).because(
            "in the model the packets of a page follow each other as fast as the link is, five while the handler runs; where several \
             transfers share a link they come further apart, and at a fifth of its rate each of the 16 has a run of its own; how the \
             applications share links is not in the text",
        )
    })
}

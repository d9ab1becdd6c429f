//! Applications, which the models do not run (tables 2 to 5): what the paper measured and counted of them, and two estimates from that.

use super::machine::run;
use super::strategies::{Before, all_absent, with_preparation};
use super::transfer::{PageIn, Transfer};
use crate::figure::{Axis, Curve, Figure, Place, Shape};
use crate::unit_costs::{APPLICATIONS, Application, LAMMPS_SECONDS, PAGE, PartCosts, lammps_seconds};

const PROCESSES: Axis = Axis { label: "processes", logarithmic: true };
const COUNTED: f64 = 16.0;
const BASIS: &str = "paper, and estimates from its counts";

/// Seconds that page faults add to a run on 16 nodes, if each handler run that the paper counted is a fault of its own and none
/// overlaps with anything. It is no bound: of interrupts that coalesce one handler run serves several faults, whose number the paper
/// could not measure (section 6.2.2), and in the model one fault has [several runs](runs_for_each_err).
pub(super) fn seconds_of_faults(costs: &PartCosts, application: &Application) -> f64 {
    let one = all_absent(costs, PAGE, PageIn::One) - with_preparation(costs, PAGE, Before::Nothing);
    application.handler_runs() * one / 1e6
}

/// Handler runs of the fault of one page for each ERR that follows.
pub(super) fn runs_for_each_err(costs: &PartCosts) -> f64 {
    let fault = run(costs, &Transfer::absent(costs, PAGE, PageIn::One));
    fault.handler_runs as f64 / fault.errs as f64
}

/// Tables 2 to 5.
pub(super) fn tables(costs: &PartCosts) -> [Figure; 4] {
    let [lammps, hpl, hpcg] = &APPLICATIONS;
    [
        slowdown(costs, lammps),
        added(costs, Place::Table(3), "HPL: what page faults add to a run", hpl),
        added(costs, Place::Table(4), "HPCG: what page faults add to a run", hpcg),
        counts(costs),
    ]
}

fn slowdown(costs: &PartCosts, lammps: &Application) -> Figure {
    let percent = |longer: f64| longer * 100.0;
    let paper =
        LAMMPS_SECONDS.map(|(processes, without, with)| (processes as f64, percent(with / without - 1.0)));
    let estimate = || vec![(COUNTED, percent(seconds_of_faults(costs, lammps) / lammps_seconds()))];
    let figure = Figure::drawn(
        Place::Table(2),
        "LAMMPS: by how much its loop takes longer with page faults",
        (PROCESSES, Axis { label: "%", logarithmic: false }),
        vec![
            Curve::stated("paper", paper.to_vec()),
            Curve::computed("a fault for each handler run that was counted (estimate)", estimate),
        ],
    );
    let notes = &[
        "the text counts handler runs of 16 processes only; its loop times there, 98.88 and 99.95 s, have standard deviations of 3.45 and \
         4.14 s",
    ];
    Figure { notes, basis: BASIS, ..figure }
}

fn added(costs: &PartCosts, place: Place, title: &'static str, application: &Application) -> Figure {
    let estimate = || vec![(COUNTED, seconds_of_faults(costs, application) * 1e3)];
    let figure = Figure::drawn(
        place,
        title,
        (PROCESSES, Axis { label: "ms", logarithmic: false }),
        vec![Curve::computed("a fault for each handler run that was counted (estimate)", estimate)],
    )
    .shaped(Shape::Groups(&["16 processes"]));
    let notes = &["the text has no run time of it, and counts handler runs of 16 processes only"];
    Figure { notes, basis: BASIS, ..figure }
}

fn counts(costs: &PartCosts) -> Figure {
    let of = |count: &dyn Fn(&Application) -> f64| {
        (1..).zip(&APPLICATIONS).map(|(row, application)| (f64::from(row), count(application))).collect()
    };
    let figure = Figure::drawn(
        Place::Table(5),
        "handler runs and ERRs of LAMMPS (1), HPL (2) and HPCG (3), 16 processes",
        (Axis { label: "application", logarithmic: false }, Axis { label: "count", logarithmic: true }),
        vec![
            Curve::stated("handler runs (paper)", of(&|application| application.handler_runs)),
            Curve::stated("ERRs (paper)", of(&|application| application.errs)),
            Curve::computed("ERRs of so many handler runs (estimate)", || {
                of(&|application| application.handler_runs() / runs_for_each_err(costs))
            }),
        ],
    )
    .shaped(Shape::Groups(&["LAMMPS", "HPL", "HPCG"]));
    let notes = &[
        "the counts stand in sections 6.2.2 and 6.2.3; of the calls and bytes that table 5 itself has the text has no numbers",
    ];
    Figure { notes, basis: BASIS, ..figure }
}

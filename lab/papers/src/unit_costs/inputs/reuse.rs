//! What the model of REUSE reads.

use super::Source::{Assumption, Text};
use super::{Input, table};
use crate::figure::Place::Figure;
use crate::unit_costs::ReuseCosts;

const MUTRINO: ReuseCosts = ReuseCosts::MUTRINO;
const STRIA: ReuseCosts = ReuseCosts::STRIA;

const fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

#[rustfmt::skip]
table! { ReuseCosts from 72:
    0 largest: u64 = Input::new("registration of 2 MiB (Mutrino, Stria)", &[us(MUTRINO.largest), us(STRIA.largest)], "us", Text("VI.D"),
        &[(Figure(5), "Mutrino: malloc and registration, at most"), (Figure(5), "Stria: malloc and registration, at most")]);
    1 tenths: u64 = Input::new("2 MiB to 128 B (Mutrino, Stria)", &[MUTRINO.tenths as f64 / 10.0, STRIA.tenths as f64 / 10.0], "x", Text("VI.B"),
        &[(Figure(1), "Mutrino: registration of 2 MiB to 128 B"), (Figure(1), "Stria: registration of 2 MiB to 128 B")]);
    2 allocate: u64 = Input::new("request from a slab, less than (Mutrino, Stria)", &[us(MUTRINO.allocate), us(STRIA.allocate)], "us", Text("VI.D"),
        &[(Figure(5), "Mutrino: reuse, less than"), (Figure(5), "Stria: reuse, less than")]);
    3 latency: u64 = Input::new("short put", &[us(MUTRINO.latency)], "us", Assumption, &[]);
    4 link: u64 = Input::new("link", &[MUTRINO.link as f64 / 1_000.0], "GB/s", Assumption, &[]);
    5 copy: u64 = Input::new("copy of a View", &[MUTRINO.copy as f64 / 1_000.0], "GB/s", Assumption, &[]);
    6 deregister_percent: u64 = Input::new("deregistration of registration", &[MUTRINO.deregister_percent as f64], "%", Assumption, &[]);
    7 slab: u64 = Input::new("slab, at least", &[MUTRINO.slab as f64], "bytes", Text("III"), &[(Figure(4), "least size without a gain")]);
    8 unit: u64 = Input::new("unit of larger slabs", &[MUTRINO.unit as f64], "bytes", Text("VI.C"), &[]);
}

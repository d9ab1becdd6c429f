//! Those of Active Access: what two processes of this machine insert into the hash table, and how long one accesses the other's memory.

use super::{Formula, Measured, ratio};
use crate::reproduce::live::accesses::CALLERS;
use crate::reproduce::live::table::PROCESSES;
use pagewire_papers::Place;

/// The paper's schemes without active puts.
const OTHERS: [&str; 5] = ["RMA", "AM", "AM-Exp", "AM-Onload", "AM-Ints"];

fn to_the_best(measured: &Measured) -> Option<f64> {
    let others = OTHERS.iter().filter_map(|name| measured.at(name, PROCESSES));
    ratio(measured.at("AA-Poll", PROCESSES), others.max_by(f64::total_cmp))
}

fn to_each_other(measured: &Measured, one: &str, other: &str) -> Option<f64> {
    ratio(measured.at(one, PROCESSES), measured.at(other, PROCESSES))
}

/// By place and name of the claim.
#[rustfmt::skip]
pub(super) const ALL: &[(Place, &str, Formula)] = &[
    (Place::Panel(6, 'c'), "25 % collisions: AA to RMA", |m| ratio(m.at("AA", 25), m.at("RMA", 25))),
    (Place::Panel(7, 'a'), "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints", to_the_best),
    (Place::Panel(7, 'a'), "AA-SP more than AA-Poll", |m| Some((to_each_other(m, "AA-SP", "AA-Poll")? - 1.0) * 100.0)),
    (Place::Panel(7, 'a'), "AA-Int to AM-Ints (\"comparable\")", |m| to_each_other(m, "AA-Int", "AM-Ints")),
    (Place::Panel(7, 'b'), "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints (25 %)", to_the_best),
    (Place::Panel(7, 'd'), "AA-Poll to RMA (\"outperforms\")", |m| ratio(m.at("AA-Poll", CALLERS), m.at("RMA", CALLERS))),
    (Place::Panel(9, 'a'), "a get that is logged, longer by (section 8, of run times)", |m| Some((ratio(m.at("No-FT", CALLERS), m.at("AA", CALLERS))? - 1.0) * 100.0)),
];

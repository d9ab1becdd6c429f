//! Those of Active Access: what the processes of this machine insert into the hash table, count, log and sort.

use super::{Formula, Measured, ratio};
use crate::reproduce::comparison;
use pagewire_papers::Place;

/// Bytes of a get of which the paper's numbers of the sort are taken to be, as in the model.
const PIECE: u64 = 4_096;
/// Bytes of packets and messages, the nearest to those of the numbers.
const PACKET: u64 = 512;
const MESSAGE: u64 = 64;
const LONG: u64 = 65_536;

/// AA-Poll to the best of the paper's schemes without active puts, those that look for messages with each interval.
fn to_the_best(measured: &Measured) -> Option<f64> {
    let others = measured.names().filter(|name| comparison::is_other_of_paper(name));
    // Where one was not measured, the best could be that one.
    let others: Option<Vec<f64>> = others.map(|name| measured.of_processes(name)).collect();
    ratio(measured.of_processes("AA-Poll"), others?.into_iter().max_by(f64::total_cmp))
}

fn to_each_other(measured: &Measured, one: &str, other: &str) -> Option<f64> {
    ratio(measured.of_processes(one), measured.of_processes(other))
}

/// By how many percent one is less than another one.
fn less(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some((1.0 - ratio(one, other)?) * 100.0)
}

fn slower(measured: &Measured, prefix: &str, size: u64) -> Option<f64> {
    let at = |name: &str| measured.at(&format!("{prefix}{name}"), size);
    less(at("e-iommu"), at("no-iommu"))
}

const EACH_INTERVAL: &str = "AM and AM-Exp with looks after each 4, 8 and 16 own inserts";

/// AA-Poll to RMA at the most computation, to the same at none.
fn differences(measured: &Measured) -> Option<f64> {
    let at = |percent| ratio(measured.at("AA-Poll", percent), measured.at("RMA", percent));
    ratio(at(95), at(0))
}

/// Where other accesses stand for those of the paper: by place and name of the claim.
pub(super) const MEASURED_AS: &[(Place, &str, &str)] = &[
    (
        Place::Panel(6, 'a'),
        "packets, of 512 bytes by assumption: e-iommu slower by",
        "puts of 512 bytes beside a region with attributes",
    ),
    (
        Place::Panel(6, 'b'),
        "TCP stream, full frames: e-iommu slower by",
        "puts of 64 KiB beside a region with attributes",
    ),
    (
        Place::Panel(6, 'b'),
        "UDP stream, messages of 64 bytes by assumption: e-iommu slower by",
        "puts of 64 bytes beside a region with attributes",
    ),
    (Place::Panel(7, 'a'), "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints", EACH_INTERVAL),
    (
        Place::Panel(7, 'b'),
        "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints (25 %)",
        EACH_INTERVAL,
    ),
];

/// By place and name of the claim.
#[rustfmt::skip]
pub(super) const ALL: &[(Place, &str, Formula)] = &[
    (Place::Panel(6, 'a'), "packets, of 512 bytes by assumption: e-iommu slower by", |m| slower(m, "", PACKET)),
    (Place::Panel(6, 'b'), "TCP stream, full frames: e-iommu slower by", |m| slower(m, "puts, ", LONG)),
    (Place::Panel(6, 'b'), "UDP stream, messages of 64 bytes by assumption: e-iommu slower by", |m| slower(m, "puts, ", MESSAGE)),
    (Place::Panel(6, 'c'), "25 % collisions: AA to RMA", |m| ratio(m.at("AA", 25), m.at("RMA", 25))),
    (Place::Panel(7, 'a'), "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints", to_the_best),
    (Place::Panel(7, 'a'), "AA-SP more than AA-Poll", |m| Some((to_each_other(m, "AA-SP", "AA-Poll")? - 1.0) * 100.0)),
    (Place::Panel(7, 'a'), "AA-Int to AM-Ints (\"comparable\")", |m| to_each_other(m, "AA-Int", "AM-Ints")),
    (Place::Panel(7, 'b'), "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints (25 %)", to_the_best),
    (Place::Panel(7, 'd'), "AA-Poll to RMA (\"outperforms\")", |m| to_each_other(m, "AA-Poll", "RMA")),
    (Place::Panel(7, 'd'), "AA-Poll to A-KV (\"outperforms\")", |m| to_each_other(m, "AA-Poll", "A-KV")),
    (Place::Panel(7, 'd'), "AA-Poll to Allreduce (\"outperforms\")", |m| to_each_other(m, "AA-Poll", "Allreduce")),
    (Place::Panel(9, 'a'), "a get that is logged, longer by (section 8, of run times)", |m| Some((to_each_other(m, "No-FT", "AA")? - 1.0) * 100.0)),
    (Place::Panel(9, 'b'), "AA longer than No-FT, less than", |m| Some((ratio(m.at("AA", PIECE), m.at("No-FT", PIECE))? - 1.0) * 100.0)),
    (Place::Panel(9, 'b'), "AA less than AM", |m| less(m.at("AA", PIECE), m.at("AM", PIECE))),
    (Place::Panel(9, 'b'), "AA less than RMA", |m| less(m.at("AA", PIECE), m.at("RMA", PIECE))),
    (Place::Section("5.2.1"), "AA-Poll to RMA, 95 % computation to none (differences \"smaller\")", differences),
];

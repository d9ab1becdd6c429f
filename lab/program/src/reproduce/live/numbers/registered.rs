//! Those of FRRWP and REUSE, with mlock(2) in place of registration. What REUSE states of its two systems stands beside this one.

use super::super::plans::{PLAIN, VIEW};
use super::{Formula, KIB, MIB, Measured, ratio};
use pagewire_papers::{Claim, Place};

const LEAST: u64 = 128;
const MOST: u64 = 2 * MIB;

/// The most of one curve to another, over the sizes that are meant.
fn most(measured: &Measured, one: &str, other: &str, is_meant: fn(f64) -> bool) -> Option<f64> {
    let points = measured.points(one, None)?.into_iter().filter(|point| is_meant(point.0));
    let ratios = points.filter_map(|(x, y)| ratio(Some(y), measured.at(other, x as u64)));
    ratios.max_by(f64::total_cmp)
}

fn any(_: f64) -> bool {
    true
}

fn is_small(size: f64) -> bool {
    size <= (2 * KIB) as f64
}

fn is_large(size: f64) -> bool {
    !is_small(size)
}

fn percent(ratio: Option<f64>) -> Option<f64> {
    Some((ratio? - 1.0) * 100.0)
}

fn grows(m: &Measured) -> Option<f64> {
    ratio(m.at("registration", MOST), m.at("registration", LEAST))
}

fn sooner(m: &Measured) -> Option<f64> {
    ratio(m.at("by hand", LEAST), m.at("heap", LEAST))
}

fn saved(m: &Measured) -> Option<f64> {
    Some(m.at("by hand", MOST)? - m.at("reused", MOST)?)
}

fn longest(m: &Measured, curve: &str) -> Option<f64> {
    m.all(curve).into_iter().max_by(f64::total_cmp)
}

/// The most of one way of a View to one in registered memory: of Views of Kokkos, or of plain buffers where there is none.
fn most_of_views(measured: &Measured, way: &str, is_meant: fn(f64) -> bool) -> Option<f64> {
    let of = |buffers: &str| {
        most(measured, &format!("{buffers}: {way}"), &format!("{buffers}: registered space"), is_meant)
    };
    of(VIEW).or_else(|| of(PLAIN))
}

/// What was measured in place of what the paper measured, if that is not the like.
pub(super) fn measured_as(claim: &Claim, measured: &Measured) -> Option<&'static str> {
    let is_of_views = claim.place == Place::Figure(7)
        && ALL.iter().any(|(place, what, _)| *place == claim.place && *what == claim.what);
    let has_views = || !measured.all(&format!("{VIEW}: registered space")).is_empty();
    (is_of_views && !has_views()).then_some("plain buffers, not Views")
}

/// By place and name of the claim.
#[rustfmt::skip]
pub(super) const ALL: &[(Place, &str, Formula)] = &[
    (Place::Figure(1), "4 KB: registration to RDMA write (\"much higher\")", |m| ratio(m.at("registration", 4 * KIB), m.at("RDMA write", 4 * KIB))),
    (Place::Figure(1), "Mutrino: registration of 2 MiB to 128 B", grows),
    (Place::Figure(1), "Stria: registration of 2 MiB to 128 B", grows),
    (Place::Figure(2), "Mutrino: a byte of 2 MiB to one of 128 KiB (\"plateaus\")", |m| ratio(m.at("registration", MOST), m.at("registration", 128 * KIB))),
    (Place::Figure(4), "128 B, Stria: slabs sooner than by hand", sooner),
    (Place::Figure(4), "128 B, Mutrino: slabs sooner than by hand", sooner),
    (Place::Figure(4), "1 MiB, Stria: slabs later than by hand", |m| percent(ratio(m.at("heap", MIB), m.at("by hand", MIB)))),
    (Place::Figure(5), "Mutrino: reuse, less than", |m| longest(m, "reused")),
    (Place::Figure(5), "Stria: reuse, less than", |m| longest(m, "reused")),
    (Place::Figure(5), "Mutrino: malloc and registration, at most", |m| longest(m, "by hand")),
    (Place::Figure(5), "Stria: malloc and registration, at most", |m| longest(m, "by hand")),
    (Place::Figure(5), "Mutrino: reuse saves up to", saved),
    (Place::Figure(5), "Stria: reuse saves up to", saved),
    (Place::Figure(5), "Mutrino: reuse sooner, up to", |m| most(m, "by hand", "reused", any)),
    (Place::Figure(5), "Stria: reuse sooner, up to", |m| most(m, "by hand", "reused", any)),
    (Place::Figure(6), "Mutrino: put of reused memory sooner, up to", |m| most(m, "by hand", "reused", any)),
    (Place::Figure(6), "Stria: put of reused memory sooner, up to", |m| percent(most(m, "by hand", "reused", any))),
    (Place::Figure(7), "Mutrino, up to 2 KiB: registered space sooner than by hand", |m| percent(most_of_views(m, "by hand", is_small))),
    (Place::Figure(7), "Stria, up to 2 KiB: registered space sooner than by hand", |m| percent(most_of_views(m, "by hand", is_small))),
    (Place::Figure(7), "Mutrino: registered space sooner than copied, up to", |m| most_of_views(m, "copied", any)),
    (Place::Figure(7), "Stria: registered space sooner than copied, up to", |m| most_of_views(m, "copied", any)),
    (Place::Figure(7), "Mutrino: registered space sooner than by hand, up to", |m| most_of_views(m, "by hand", is_large)),
    (Place::Figure(7), "Stria: registered space sooner than by hand, up to", |m| percent(most_of_views(m, "by hand", is_large))),
];

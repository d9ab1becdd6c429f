//! What this machine has in place of the numbers that the papers state. Of the part of a timeout in the latency (figure 11) it has nothing: between
//! two Pagewires the timer is no acknowledgement timeout.

mod active;
mod registered;

use super::Measured;
use super::plans::NTO;
use pagewire_cli::median;
use pagewire_papers::{Claim, Place};

type Formula = fn(&Measured) -> Option<f64>;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SHORTEST: u64 = 64;

/// How the number of a claim comes about; `None` where no measurement on this machine leads to it.
pub(super) fn formula(claim: &Claim) -> Option<Formula> {
    let mine = all().find(|(place, what, _)| *place == claim.place && *what == claim.what);
    mine.map(|(_, _, formula)| *formula)
}

/// What was measured in place of what the paper measured; `None` where it is the like.
pub(super) fn measured_as(claim: &Claim, measured: &Measured) -> Option<&'static str> {
    let mut rows = active::MEASURED_AS.iter();
    let row = rows.find(|(place, what, _)| *place == claim.place && *what == claim.what).map(|row| row.2);
    row.or_else(|| registered::measured_as(claim, measured))
}

/// Those of all papers.
pub(super) fn all() -> impl Iterator<Item = &'static (Place, &'static str, Formula)> {
    ALL.iter().chain(registered::ALL).chain(active::ALL)
}

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

/// One curve of a figure to another at the same place.
fn curves(measured: &Measured, one: &str, other: &str, x: u64) -> Option<f64> {
    ratio(measured.at(one, x), measured.at(other, x))
}

/// PIA to touching first, the least of all sizes below one.
fn least_below(measured: &Measured, end: u64) -> Option<f64> {
    let sizes = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB].into_iter().filter(|&size| size < end);
    let ratios: Option<Vec<f64>> =
        sizes.map(|size| curves(measured, "PIA", "Touch-NoPres-Pg(s)", size)).collect();
    ratios?.into_iter().min_by(f64::total_cmp)
}

/// A curve with all pages absent to itself with none.
fn slowdown(measured: &Measured, curve: &str) -> Option<f64> {
    ratio(measured.at(curve, 100), measured.at(curve, 0))
}

/// A curve to itself at a quarter of the size.
fn growth(measured: &Measured, from: u64) -> Option<f64> {
    ratio(measured.at(NTO, 4 * from), measured.at(NTO, from))
}

/// Page-in and transfer one after the other, in microseconds.
fn one_after_the_other(measured: &Measured) -> Option<f64> {
    Some(measured.at("page-in by the kernel, in one call", 4 * MIB)? + measured.at("transfer", 4 * MIB)?)
}

/// By place and name of the claim.
#[rustfmt::skip]
const ALL: &[(Place, &str, Formula)] = &[
    (Place::Figure(9), "smallest WRITE, all in memory", |m| m.at("Transfer-Only", SHORTEST)),
    (Place::Figure(9), "pinning an absent page adds", |m| m.before("Pin-NoPres-Pg(s)", SHORTEST)),
    (Place::Figure(9), "pinning an absent page and a WRITE to it", |m| m.at("Pin-NoPres-Pg(s)", SHORTEST)),
    (Place::Figure(9), "pinning a page that is in memory adds", |m| m.before("Pin-Pres-Pg(s)", SHORTEST)),
    (Place::Figure(9), "touching an absent page adds", |m| m.before("Touch-NoPres-Pg(s)", SHORTEST)),
    (Place::Figure(9), "touching a page in memory adds", |m| m.before("Touch-Pres-Pg(s)", SHORTEST)),
    (Place::Figure(9), "64 KB: touching pages in memory first, to transfer only (\"negligible\")", |m| curves(m, "Touch-Pres-Pg(s)", "Transfer-Only", 64 * KIB)),
    (Place::Figure(9), "touching pages in memory, 1 MB, adds", |m| m.before("Touch-Pres-Pg(s)", MIB)),
    (Place::Figure(9), "touching pages in memory, 4 MB, adds", |m| m.before("Touch-Pres-Pg(s)", 4 * MIB)),
    (Place::Figure(11), "4 KB WRITE to an absent page, ERR", |m| m.at("Fast Re-Xmit", 4 * KIB)),
    (Place::Figure(11), "WRITE to an absent page, ERR: 4 KB to the smallest (\"similar\")", |m| ratio(m.at("Fast Re-Xmit", 4 * KIB), m.at("Fast Re-Xmit", SHORTEST))),
    (Place::Figure(12), "16 KB: PIA to PIO (\"the same latency\")", |m| curves(m, "PIA", "PIO", 16 * KIB)),
    (Place::Figure(12), "all sizes up to 1 MB: PIA to touching first, at least (\"worse\")", |m| least_below(m, 4 * MIB)),
    (Place::Figure(12), "below 64 KB: PIA to touching first, at least (section 5.4: \"beneficial\")", |m| least_below(m, 64 * KIB)),
    (Place::Figure(12), "below 256 KB: PIA to touching first, at least (section 5.4: \"beneficial\")", |m| least_below(m, 256 * KIB)),
    (Place::Figure(12), "4 MB: PIA better than touching first", |m| curves(m, "Touch-NoPres-Pg(s)", "PIA", 4 * MIB)),
    (Place::Figure(12), "4 MB: PIA better than pinning first", |m| curves(m, "Pin-NoPres-Pg(s)", "PIA", 4 * MIB)),
    (Place::Figure(12), "1 MB: PIA to transfer only", |m| curves(m, "PIA", "Transfer-Only", MIB)),
    (Place::Figure(12), "1 MB: touching first to transfer only", |m| curves(m, "Touch-NoPres-Pg(s)", "Transfer-Only", MIB)),
    (Place::Figure(12), "1 MB: PIA to touching first", |m| curves(m, "PIA", "Touch-NoPres-Pg(s)", MIB)),
    (Place::Figure(12), "64 KB: PIA to touching first", |m| curves(m, "PIA", "Touch-NoPres-Pg(s)", 64 * KIB)),
    (Place::Figure(12), "256 KB: PIA to transfer only (section 5.4)", |m| curves(m, "PIA", "Transfer-Only", 256 * KIB)),
    (Place::Figure(13), "4 MB: parts one after the other", |m| Some(one_after_the_other(m)? / 1_000.0)),
    (Place::Figure(13), "4 MB: PIA as measured", |m| Some(m.at("PIA, with overlap", 4 * MIB)? / 1_000.0)),
    (Place::Figure(13), "4 MB: gain of the overlap", |m| ratio(one_after_the_other(m), m.at("PIA, with overlap", 4 * MIB))),
    (Place::Figure(14), "4 KB: 80 % to no page faults (\"virtually identical\")", |m| ratio(m.at("PIO 4 KiB", 80), m.at("PIO 4 KiB", 0))),
    (Place::Figure(14), "one page fault", |m| m.at("PIO 4 KiB", 100)),
    (Place::Figure(14), "4 MB: PIO to transfer only", |m| slowdown(m, "PIO 4 MiB")),
    (Place::Figure(14), "4 MB: PIA better than PIO", |m| curves(m, "PIO 4 MiB", "PIA 4 MiB", 100)),
    (Place::Figure(14), "4 MB: PIA to transfer only", |m| slowdown(m, "PIA 4 MiB")),
    (Place::Figure(14), "1 MB: PIA to transfer only", |m| slowdown(m, "PIA 1 MiB")),
    (Place::Figure(14), "64 KB: PIA to transfer only", |m| slowdown(m, "PIA 64 KiB")),
    (Place::Figure(14), "4 MB: PIA, 100 % to 80 % (\"negligible difference\")", |m| ratio(m.at("PIA 4 MiB", 100), m.at("PIA 4 MiB", 80))),
    (Place::Figure(14), "4 KB: PIA slower than PIO by", |m| Some(m.at("PIA 4 KiB", 100)? - m.at("PIO 4 KiB", 100)?)),
    (Place::Figure(15), "1 MB: timeout of 100 us better than NTO", |m| curves(m, NTO, "TO 131 us", MIB)),
    (Place::Figure(15), "4 MB: timeout of 100 us better than NTO", |m| curves(m, NTO, "TO 131 us", 4 * MIB)),
    (Place::Figure(15), "16 KB: ends before the least timeout", |m| m.at(NTO, 16 * KIB)),
    (Place::Figure(15), "4 MB: timeout of 500 us to 100 us (\"similar\")", |m| curves(m, "TO 524 us", "TO 131 us", 4 * MIB)),
    (Place::Figure(15), "4 MB: timeout of 1 ms to 100 us (\"outperform\")", |m| curves(m, "TO 1.05 ms", "TO 131 us", 4 * MIB)),
    (Place::Figure(15), "4 MB: timeout of 1 ms to 500 us (\"outperform\")", |m| curves(m, "TO 1.05 ms", "TO 524 us", 4 * MIB)),
    (Place::Figure(15), "4 MB: NTO", |m| Some(m.at(NTO, 4 * MIB)? / 1_000.0)),
    (Place::Figure(15), "NTO, from 4 KB to 16 KB", |m| growth(m, 4 * KIB)),
    (Place::Figure(15), "NTO, from 16 KB to 64 KB", |m| growth(m, 16 * KIB)),
    (Place::Figure(15), "NTO, from 64 KB to 256 KB", |m| growth(m, 64 * KIB)),
    (Place::Figure(15), "NTO, from 256 KB to 1 MB", |m| growth(m, 256 * KIB)),
    (Place::Figure(15), "NTO, from 1 MB to 4 MB", |m| growth(m, MIB)),
    (Place::Figure(4), "get of 1 byte", |m| m.at("get", 1)),
    (Place::Figure(5), "peak bandwidth", |m| m.all("get").into_iter().max_by(f64::total_cmp)),
    (Place::Table(1), "registration, any size", |m| median(&mut m.all("registration"))),
    (Place::Table(1), "deregistration, any size", |m| median(&mut m.all("deregistration"))),
];

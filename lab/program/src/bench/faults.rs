//! RDMA to and from memory that is absent, beside the parts of which that can be made: the bound is what is left when the
//! longer of page-in and transfer hides the shorter.
//!
//! The work is done by the helper programs `absent`, `slow_page` and `hostile` (lab/helpers/*.c), with the rights of who measures.

use super::ground::Ground;
use crate::figures::{Figures, Line, Measure, What, beside};
use crate::helper::{Helper, Rights};
use anyhow::{Context, Result};
use pagewire_cli::interrupt;
use pagewire_cli::swap::Swap;
use pagewire_nic::PathChoice;
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
const WHOLE: u64 = 4 << 20;
/// Seconds of one run with and without a slow page.
const SLOW_SECONDS: &str = "2";
/// Room for what is swapped out, on compressed memory.
const ZRAM_BYTES: u64 = 64 << 20;

/// A benchmark of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// What a WRITE to a page that was never touched takes longer.
    ZeroFill,
    /// A WRITE of which every page is absent at the target.
    Whole,
    /// A WRITE of which every page is absent at the target: all at once against page by page.
    AllAtOnce,
    /// A WRITE of which every page is swapped out at the source.
    Swapped,
    /// The 99th percentile while another connection meets a page of 10 ms at the target.
    SlowPageAtTarget,
    /// The 99th percentile while another connection of the poster meets a page of 10 ms of the poster's own.
    SlowPageAtPoster,
    /// The median while 512 WRITEs of another process wait for pages of the same target that never come.
    Hostile,
    /// The 99th percentile while 512 WRITEs of another process wait for pages of the same target that never come.
    HostileTail,
    /// What each WRITE takes where 32 are under way, while 512 WRITEs of another process wait for pages that never come.
    HostileRate,
}

/// All of them.
pub(super) const ALL: [Absent; 9] = [
    Absent::ZeroFill,
    Absent::Whole,
    Absent::AllAtOnce,
    Absent::Swapped,
    Absent::SlowPageAtTarget,
    Absent::SlowPageAtPoster,
    Absent::Hostile,
    Absent::HostileTail,
    Absent::HostileRate,
];

/// What a helper prints: microseconds by name; none of what is not permitted.
type Printed = BTreeMap<String, Option<f64>>;

/// A figure made of what was printed in one run.
type Formula = fn(&Printed) -> Option<f64>;

fn get(printed: &Printed, name: &str) -> Option<f64> {
    printed.get(name).copied().flatten()
}

fn sum(printed: &Printed, names: &[&str]) -> Option<f64> {
    names.iter().map(|name| get(printed, name)).sum()
}

/// The time when page-in and transfer hide each other wholly.
fn overlapped(printed: &Printed) -> Option<f64> {
    Some(get(printed, "populate")?.max(get(printed, "resident")?))
}

const OVERLAP: (&str, Formula) = ("bound: the longer of page-in and transfer", overlapped);
const PAGE_IN: (&str, Formula) = ("page-in alone (populate)", |p| get(p, "populate"));
const TRANSFER: (&str, Formula) = ("transfer alone (resident)", |p| get(p, "resident"));

impl Absent {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Absent::ZeroFill => "zero_fill_write",
            Absent::Whole => "absent_write",
            Absent::AllAtOnce => "absent_write_pia",
            Absent::Swapped => "swapped_write",
            Absent::SlowPageAtTarget => "slow_page_target",
            Absent::SlowPageAtPoster => "slow_page_poster",
            Absent::Hostile => "hostile_faults",
            Absent::HostileTail => "hostile_faults_p99",
            Absent::HostileRate => "hostile_faults_rate",
        }
    }

    pub(super) const fn sizes(self) -> &'static [u64] {
        match self {
            Absent::ZeroFill => &[PAGE],
            Absent::Whole | Absent::AllAtOnce | Absent::Swapped => &[WHOLE],
            Absent::SlowPageAtTarget
            | Absent::SlowPageAtPoster
            | Absent::Hostile
            | Absent::HostileTail
            | Absent::HostileRate => &[8, 65_536],
        }
    }

    /// The helper, and its arguments.
    fn words(self, size: u64) -> Vec<String> {
        let slow = |at| {
            ["slow_page", at, "other", "write", &size.to_string(), SLOW_SECONDS].map(str::to_owned).to_vec()
        };
        let absent = |what: &str| vec!["absent".to_owned(), what.to_owned()];
        match self {
            Absent::ZeroFill => absent("page"),
            Absent::Whole | Absent::AllAtOnce => absent("whole"),
            Absent::Swapped => absent("swapped"),
            Absent::SlowPageAtTarget => slow("target"),
            Absent::SlowPageAtPoster => slow("poster"),
            Absent::Hostile | Absent::HostileTail | Absent::HostileRate => {
                ["hostile", &size.to_string(), SLOW_SECONDS].map(str::to_owned).to_vec()
            }
        }
    }

    /// The figure.
    fn own(self) -> Formula {
        match self {
            Absent::ZeroFill => |p| Some(get(p, "absent")? - get(p, "resident")?),
            Absent::Whole | Absent::AllAtOnce | Absent::Swapped => |p| get(p, "absent"),
            Absent::SlowPageAtTarget | Absent::SlowPageAtPoster | Absent::HostileTail => {
                |p| get(p, "p99_with")
            }
            Absent::Hostile => |p| get(p, "median_with"),
            Absent::HostileRate => |p| get(p, "each_with"),
        }
    }

    /// What it is compared with, out of the same run.
    fn beside(self) -> Vec<(&'static str, Formula)> {
        match self {
            Absent::ZeroFill => vec![
                ("first touch of a zero-fill page", |p| get(p, "touch")),
                ("published: PART, 1.2 GHz ARM A53 with an FPGA", |_| Some(38.0)),
                ("published: ODP, x86 with a Mellanox NIC", |_| Some(220.0)),
            ],
            Absent::Whole => vec![
                OVERLAP,
                ("touching first, then WRITE", |p| sum(p, &["touch", "resident"])),
                ("mlock, WRITE, munlock", |p| sum(p, &["mlock", "resident", "munlock"])),
                PAGE_IN,
                TRANSFER,
            ],
            Absent::Swapped => vec![
                OVERLAP,
                ("touching first, then WRITE", |p| sum(p, &["touch", "resident"])),
                PAGE_IN,
                TRANSFER,
            ],
            Absent::SlowPageAtTarget | Absent::SlowPageAtPoster => {
                vec![("without the slow page", |p| get(p, "p99_without"))]
            }
            Absent::Hostile => vec![("without those", |p| get(p, "median_without"))],
            Absent::HostileTail => vec![("without those", |p| get(p, "p99_without"))],
            Absent::HostileRate => vec![("without those", |p| get(p, "each_without"))],
            // Of another run.
            Absent::AllAtOnce => Vec::new(),
        }
    }

    /// Measures; nothing, with the reason told, where this machine or this user cannot do it.
    pub(super) fn measure(
        self,
        ground: &Ground,
        path: PathChoice,
        size: u64,
        rounds: u32,
    ) -> Result<Vec<Line>> {
        let _swap = match (self == Absent::Swapped).then(|| Swap::zram(ZRAM_BYTES)).transpose() {
            Ok(swap) => swap,
            Err(error) => {
                pagewire_cli::tell!(
                    "pagewire: {} is left out, it needs root and zram: {error:#}",
                    self.name()
                );
                return Ok(Vec::new());
            }
        };
        let what: What = (self.name(), size, path.name(), "us");
        if self == Absent::AllAtOnce {
            let strategy = |strategy: &'static str| -> Measure<'_> {
                Box::new(move || {
                    let printed = self.run(ground, path, size, Some(strategy))?;
                    Ok(printed.and_then(|printed| figure(self.own(), &printed)))
                })
            };
            return beside(
                what,
                &strategy("pia"),
                vec![Some(("page by page (PIO)".to_owned(), strategy("pio")))],
                rounds,
            );
        }
        let beside = self.beside();
        let mut own = Figures::default();
        let mut others: Vec<Figures> = beside.iter().map(|_| Figures::default()).collect();
        for _ in 0..rounds {
            match self.run(ground, path, size, None)? {
                Ok(printed) => {
                    own.add(figure(self.own(), &printed));
                    for ((_, formula), figures) in beside.iter().zip(&mut others) {
                        figures.add(figure(*formula, &printed));
                    }
                }
                Err(complaint) => own.add(Err(complaint)),
            }
            interrupt::check()?;
        }
        let title = format!("{} {size} B {}", self.name(), path.name());
        let value = own.median(&title);
        let lines = beside.into_iter().zip(others).map(|((peer, _), figures)| {
            Line::new(what, value, (Some(peer.to_owned()), figures.median(&format!("{title}: {peer}"))))
        });
        Ok(lines.collect())
    }

    /// One run of the helper; the inner error says what went wrong with it.
    fn run(
        self,
        ground: &Ground,
        path: PathChoice,
        size: u64,
        page_in: Option<&str>,
    ) -> Result<Result<Printed, String>> {
        let words = self.words(size);
        let helper = match Helper::find(&ground.stage, &words[0]) {
            Ok(helper) => helper,
            Err(failure) => return Ok(Err(failure.text)),
        };
        let mut options = vec!["--path", path.name()];
        options.extend(page_in.into_iter().flat_map(|strategy| ["--page-in", strategy]));
        let output = match helper.run(Rights::Caller, &options, &words[1..])? {
            Ok(output) => output,
            Err(failure) => return Ok(Err(failure.text)),
        };
        let printed = serde_json::from_str(output.trim());
        Ok(Ok(printed.with_context(|| format!("{}: {output}", self.name()))?))
    }
}

fn figure(formula: Formula, printed: &Printed) -> Result<f64, String> {
    formula(printed).ok_or_else(|| {
        let refused = printed.iter().filter(|(_, figure)| figure.is_none()).map(|(name, _)| name.as_str());
        match refused.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "not measured: the helper printed no such figure".to_owned(),
            refused => format!("not measured: this user may not ({refused})"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Printed {
        serde_json::from_str(text).expect("an object of numbers")
    }

    #[test]
    fn what_is_not_permitted_gives_no_figure() {
        let printed = printed(r#"{"absent":3.0,"resident":1.0,"touch":2.0,"populate":1.5,"mlock":null}"#);
        assert_eq!(sum(&printed, &["touch", "resident"]), Some(3.0));
        assert_eq!(sum(&printed, &["mlock", "resident", "munlock"]), None);
        let told = figure(|p| get(p, "mlock"), &printed).unwrap_err();
        assert_eq!(told, "not measured: this user may not (mlock)");
        let told = figure(|p| get(p, "mlock"), &self::printed(r#"{"absent":3.0}"#)).unwrap_err();
        assert!(told.contains("no such figure"), "{told}");
    }

    #[test]
    fn the_bound_is_the_longer_part() {
        assert_eq!(overlapped(&printed(r#"{"populate":4.0,"resident":7.0}"#)), Some(7.0));
        assert_eq!(overlapped(&printed(r#"{"populate":8.0,"resident":7.0}"#)), Some(8.0));
        assert_eq!(overlapped(&printed(r#"{"populate":8.0}"#)), None);
    }

    #[test]
    fn published_figures_have_that_name() {
        let beside = Absent::ZeroFill.beside();
        let constant = |formula: &Formula| formula(&Printed::new()).is_some();
        for (name, formula) in beside {
            assert_eq!(constant(&formula), name.starts_with(crate::figures::PUBLISHED), "{name}");
        }
    }

    #[test]
    fn names_differ() {
        let mut names: Vec<&str> = ALL.iter().map(|absent| absent.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}

//! Counted accesses, logged gets and the exchange of a sort, by scheme. The measuring processes are this program itself ([`crate::native::accesses`]).

use super::ground::Ground;
use super::hash_table::run_job;
use crate::arguments::TableArguments;
use crate::figures::{Line, Measure, Peer, beside};
use crate::native::accesses::{AccessScheme, Load, Workload};
use crate::probe::Kind;
use anyhow::{Context, Result};
use clap::ValueEnum;
use pagewire_nic::PathChoice;

/// The row that has no other form; the other two have one of one caller.
pub(super) const SORT: &str = "sort";

/// Rows by scheme.
pub(super) const ALL: [(&str, Workload); 3] =
    [("counter", Workload::Counter), ("get_logged", Workload::GetLogged), (SORT, Workload::Sort)];

/// Bytes of what is accessed in a round by each process, about, and how many accesses that is at most and at least.
const ROUND: u64 = 16 << 20;
const TIMES: std::ops::RangeInclusive<u64> = 500..=100_000;
/// Keys that each process sorts.
const KEYS: u64 = 1 << 16;

/// Bytes of an access.
pub(super) fn sizes(workload: Workload) -> &'static [u64] {
    match workload {
        Workload::Counter => &[8],
        Workload::GetLogged | Workload::Sort => &[8, 4_096],
    }
}

/// The scheme that is asked for, if one is.
///
/// # Errors
/// If this benchmark does not have it.
pub(super) fn scheme(arguments: &TableArguments, workload: Workload) -> Result<Option<AccessScheme>> {
    let Some(name) = &arguments.scheme else { return Ok(None) };
    let known = AccessScheme::from_str(name, false).ok().filter(|scheme| workload.schemes().contains(scheme));
    known.map(Some).with_context(|| {
        let names: Vec<String> = workload.schemes().iter().map(name_of).collect();
        let row = workload.to_possible_value();
        let row = row.as_ref().map_or("", |value| value.get_name());
        format!("{row} has no scheme {name}: take one of {}", names.join(", "))
    })
}

fn name_of(scheme: &AccessScheme) -> String {
    scheme.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// One row: by the scheme that is asked for or, where none is, the active accesses beside all others.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) workload: Workload,
    pub(super) size: u64,
}

impl Row {
    fn unit(&self) -> &'static str {
        match self.workload {
            Workload::Counter => "accesses/s",
            Workload::GetLogged => "gets/s",
            Workload::Sort => "us",
        }
    }

    /// Measures it.
    pub(super) fn measure(
        &self,
        ground: &Ground,
        path: PathChoice,
        (arguments, rounds): (&TableArguments, u32),
    ) -> Result<Vec<Line>> {
        let times = arguments.accesses.unwrap_or(match self.workload {
            Workload::Sort => KEYS,
            Workload::Counter | Workload::GetLogged => {
                (ROUND / self.size).clamp(*TIMES.start(), *TIMES.end())
            }
        });
        let measure = |scheme: AccessScheme| -> Measure<'_> {
            let load = Load::plain(self.workload, scheme, self.size, times, 1);
            let operands = load.operands();
            Box::new(move || {
                run_job(ground, (Kind::Accesses, &operands), path, (arguments.processes, 1, times))
            })
        };
        let what = (self.name, self.size, path.name(), self.unit());
        let (own, others) = match scheme(arguments, self.workload)? {
            Some(scheme) => (scheme, &[][..]),
            None => match self.workload.schemes() {
                [first, others @ ..] => (*first, others),
                [] => anyhow::bail!("{} has no scheme", self.name),
            },
        };
        let named = |scheme: &AccessScheme| -> Peer<'_> { Some((name_of(scheme), measure(*scheme))) };
        let others: Vec<Peer<'_>> =
            if others.is_empty() { vec![None] } else { others.iter().map(named).collect() };
        beside(what, &measure(own), others, rounds)
    }
}

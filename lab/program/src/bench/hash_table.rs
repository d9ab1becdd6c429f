//! The hash table of the processes of a job. The measuring processes are this program itself ([`crate::native::hash_table`]).

use super::ground::Ground;
use crate::arguments::TableArguments;
use crate::figures::{Figures, Line};
use crate::limits::{BENCH_RUN, JOB_OPERATION};
use crate::native::Figure;
use crate::native::hash_table::{Load, Operation, TableScheme};
use crate::probe::Kind;
use anyhow::{Context, Result};
use clap::ValueEnum;
use pagewire_cli::hosts::Host;
use pagewire_cli::interrupt;
use pagewire_cli::pair::Running;
use pagewire_cli::workload::next_port;
use pagewire_nic::PathChoice;
use std::time::Instant;

/// The rows, by operation.
pub(super) const ALL: [(&str, Operation); 3] = [
    ("hashtable", Operation::Insert),
    ("hashtable_batch", Operation::InsertBatch),
    ("hashtable_lookup", Operation::Lookup),
];

/// Cells and inserts of a process, such that 5 % of the inserts collide.
const CELLS: usize = 1_000_000;
const INSERTS: u64 = 100_000;

/// Measures one row.
pub(super) fn measure(
    ground: &Ground,
    (name, operation): (&'static str, Operation),
    path: PathChoice,
    (arguments, rounds): (&TableArguments, u32),
) -> Result<Vec<Line>> {
    let cells = arguments.cells.unwrap_or(CELLS);
    let inserts = arguments.inserts.unwrap_or(INSERTS);
    let scheme = scheme(arguments)?;
    let load = Load::plain(operation, scheme, cells, inserts, rounds);
    let unit = if operation == Operation::Lookup { "lookups/s" } else { "inserts/s" };
    let mut own = Figures::default();
    let operands = load.operands();
    own.add(run_job(ground, (Kind::HashTable, &operands), path, (arguments.processes, rounds, inserts))?);
    let title = format!("{name} {cells} cells {}", path.name());
    Ok(vec![Line::new((name, cells as u64, path.name(), unit), own.median(&title), (None, None))])
}

/// The scheme that is asked for.
///
/// # Errors
/// If it is none of a hash table.
pub(super) fn scheme(arguments: &TableArguments) -> Result<TableScheme> {
    let named = |name: &String| TableScheme::from_str(name, false).ok();
    let scheme = arguments.scheme.as_ref().map_or(Some(TableScheme::Nearest), named);
    scheme.with_context(|| {
        let names = TableScheme::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        format!(
            "a hash table has no scheme {}: take one of {}",
            arguments.scheme.as_deref().unwrap_or_default(),
            names.join(", ")
        )
    })
}

/// One run of all processes of a probe, each of which makes all rounds, with so many operations each.
pub(super) fn run_job(
    ground: &Ground,
    (kind, operands): (Kind, &[String]),
    path: PathChoice,
    (processes, rounds, each): (usize, u32, u64),
) -> Result<Result<f64, String>> {
    let (first, second) = ground.ends(path)?;
    let port = next_port();
    let start = |rank: usize| -> Result<Running> {
        let host: &Host = if rank % 2 == 0 { first } else { second };
        let mut command = host.command(&ground.program);
        command.args(["probe", kind.name()]).args(operands);
        for variable in ["PMIX_NAMESPACE", "PAGEWIRE_JOB_FILE", "PAGEWIRE_ADDRESS"] {
            command.env_remove(variable);
        }
        command
            .env("PAGEWIRE_PATH", path.name())
            .env("PAGEWIRE_RENDEZVOUS", format!("{}:{port}", first.address))
            .env("PAGEWIRE_JOB", format!("pagewire-bench-{port}"))
            .env("PAGEWIRE_RANK", rank.to_string())
            .env("PAGEWIRE_SIZE", processes.to_string());
        if path == PathChoice::Udp {
            command.env("PAGEWIRE_ADDRESS", host.address.to_string());
        }
        Running::start(command)
    };
    let running = (0..processes).map(start).collect::<Result<Vec<_>>>()?;
    // The first round does not count, and is made all the same.
    let operations = each.saturating_mul(processes as u64).saturating_mul(u64::from(rounds) + 1);
    let patience = BENCH_RUN * rounds + JOB_OPERATION.saturating_mul(operations.min(1 << 31) as u32);
    let deadline = Instant::now() + patience;
    let ended: Vec<_> = running.into_iter().map(|running| running.wait_until(deadline)).collect();
    interrupt::check()?;
    if let Some(failed) = ended.iter().find(|ended| !ended.success()) {
        return Ok(Err(format!("{}: {}", failed.verdict(), failed.output)));
    }
    let figure: Result<Figure, _> = serde_json::from_str(ended[0].output.trim());
    Ok(figure.map_err(|error| format!("{error}: {}", ended[0].output)).and_then(|figure| {
        let is_asked = processes == 1 || figure.path.starts_with(path.name());
        if is_asked { Ok(figure.value) } else { Err(format!("took the path {}", figure.path)) }
    }))
}

//! The applications of PART's tables 2 to 5 on this machine: `pagewire reproduce part --applications`.
//!
//! LAMMPS, HPL and HPCG run by mpirun over UCX: on each path of Pagewire, and on UCX's own transports. A run with a wrong result, or
//! whose bytes took another path, gives no figure. Nothing is taken from the paper or the model but what stands beside as theirs.
//!
//! A reader starts with `cells`, which says what is measured and in which order.

mod cells;
mod launcher;
mod programs;
mod record;
mod report;
mod run;
mod summary;

use self::cells::{Cell, Group};
use self::programs::Application;
use self::record::{FinishedRun, Record};
use self::report::Report;
use self::run::{RENDEZVOUS, Runner};
use super::load::Load;
use crate::arguments::{ReproduceArguments, ReproducedPaper};
use crate::limits::{BUSY_PERCENT, HOSTS_MTU};
use crate::progress::Progress;
use anyhow::{Context, Result};
use pagewire_cli::install::{Installation, in_path};
use pagewire_cli::interrupt;
use pagewire_cli::pair::Running;
use pagewire_cli::stage::Stage;
use pagewire_nic::PathChoice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a run is expected to take before there was one.
const FIRST_GUESS: f64 = 4.0;

/// Measures what the budget allows, prints all that is known, and writes it into the folder of `--out`; gives the exit status.
///
/// # Errors
/// If MPI or the engine is not installed, the folder has runs of another machine, or something cannot be written.
pub(super) fn reproduce(arguments: &ReproduceArguments) -> Result<u8> {
    let Some(wanted) = wanted(arguments) else { return Ok(2) };
    let directory = arguments.out.as_deref().context("--applications needs --out")?;
    crate::chart::prepare("--out", directory)?;
    interrupt::watch()?;
    let stage = Stage::prepare(&Installation::of_helper()?)?;
    let (mut runner, notes) = Runner::prepare(&stage, directory, arguments.hpcg.as_deref(), &wanted)?;
    if arguments.hosts == 2 {
        runner.make_hosts().context("--hosts 2")?;
    }
    let groups = cells::groups(&runner.applications(), arguments.path, arguments.hosts);
    let mut record = Record::open(directory, provenance()?)?;
    let left = measure(arguments, &runner, &groups, &mut record)?;

    let report = Report::of(&groups, &record);
    let mut out = anstream::stdout().lock();
    if arguments.json {
        for line in report.json() {
            writeln!(out, "{line}")?;
        }
    } else {
        for line in first_lines(arguments, &record, left).into_iter().chain(notes) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        report.print(&mut out)?;
    }
    let file = directory.join("part-applications.csv");
    fs::write(&file, report.csv()).with_context(|| file.display().to_string())?;
    pagewire_cli::tell!("written: {}", file.display());
    Ok(u8::from(report.has_failed()))
}

/// The applications that are asked for; none after a complaint about the command line.
fn wanted(arguments: &ReproduceArguments) -> Option<Vec<Application>> {
    if !matches!(arguments.paper, ReproducedPaper::Part) {
        pagewire_cli::tell!("pagewire: --applications is for part: the other papers have none");
        return None;
    }
    if arguments.hosts > 1 && arguments.path == Some(PathChoice::Local) {
        pagewire_cli::tell!("pagewire: the path local is inside one host: --hosts 2 has udp and tcp");
        return None;
    }
    let all = Application::ALL.to_vec();
    match arguments.table {
        None | Some(5) => Some(all),
        Some(table) => {
            let chosen: Vec<Application> =
                all.into_iter().filter(|application| application.table() == table).collect();
            if chosen.is_empty() {
                pagewire_cli::tell!("pagewire: --applications has tables 2 to 5");
            }
            (!chosen.is_empty()).then_some(chosen)
        }
    }
}

/// A run that is to be made.
struct Step<'a> {
    cell: &'a Cell,
    pair: u32,
    /// Whether it is the first of its pair.
    is_first: bool,
}

/// All runs in order: the cells of a group in turn, every other time backwards, so that none always follows the same one.
fn steps(groups: &[Group], pairs: u32) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for group in groups {
        for pair in 0..pairs {
            let mut cells: Vec<&Cell> = group.cells.iter().collect();
            if pair % 2 == 1 {
                cells.reverse();
            }
            let of_pair = cells.into_iter().enumerate();
            steps.extend(of_pair.map(|(index, cell)| Step { cell, pair, is_first: index == 0 }));
        }
    }
    steps
}

/// Makes runs that are not there yet until the budget is used, one at least; gives how many are left.
fn measure(
    arguments: &ReproduceArguments,
    runner: &Runner,
    groups: &[Group],
    record: &mut Record,
) -> Result<usize> {
    let mut steps = steps(groups, arguments.pairs);
    steps.retain(|step| !record.has(&step.cell.key(), step.pair));
    let budget = Duration::from_secs_f64(arguments.budget * 60.0);
    let (started, mut load) = (Instant::now(), Load::default());
    let progress = Progress::new(steps.len() as u64);
    let mut made = 0;
    for (index, step) in steps.iter().enumerate() {
        if index > 0 && started.elapsed() >= budget {
            break;
        }
        if step.is_first || index == 0 {
            load.look();
        }
        let rest = minutes(expected(&steps[index..], record));
        progress.start(&format!(
            "{}, pair {} of {}; all in about {rest}, budget {} min",
            step.cell.key(),
            step.pair + 1,
            arguments.pairs,
            arguments.budget
        ));
        let began = Instant::now();
        let outcome = runner.run(step.cell, step.pair)?;
        interrupt::check()?;
        let (measured, failure) = match outcome {
            Ok(measured) => (Some(measured), None),
            Err(why) => (None, Some(why)),
        };
        record.add(FinishedRun {
            cell: step.cell.key(),
            pair: step.pair,
            unix_time: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
            busy_percent: load.percents.last().copied(),
            wall_seconds: began.elapsed().as_secs_f64(),
            measured,
            failure,
        })?;
        progress.step();
        made = index + 1;
    }
    progress.finish();
    Ok(steps.len() - made)
}

/// Seconds that these runs are expected to take, from those that were made.
fn expected(steps: &[Step], record: &Record) -> f64 {
    let mut counts: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    for step in steps {
        *counts.entry((step.cell.application.name(), step.cell.processes)).or_default() += 1;
    }
    let of = |((application, processes), count): ((&str, u32), usize)| {
        let mean = record.mean_seconds(&format!("{application}, {processes},"));
        let mean = mean.or_else(|| record.mean_seconds(&format!("{application},")));
        mean.unwrap_or(FIRST_GUESS) * count as f64
    };
    counts.into_iter().map(of).sum()
}

fn minutes(seconds: f64) -> String {
    format!("{:.0} min", (seconds / 60.0).ceil())
}

/// What is to be said before the tables.
fn first_lines(arguments: &ReproduceArguments, record: &Record, left: usize) -> Vec<String> {
    let provenance = record.provenance.as_object().into_iter().flatten();
    let of = provenance.map(|(name, value)| format!("{name}: {}", value.as_str().unwrap_or("not known")));
    let mut lines: Vec<String> = of.collect();
    let busy = record.runs.iter().filter(|run| run.is_busy()).count();
    lines.push(format!(
        "{} runs are done, {left} are left. {busy} began while others used more than {BUSY_PERCENT} % of the processors.",
        record.runs.len()
    ));
    lines.push(match arguments.hosts {
        1 => "All processes are on this host: over udp and tcp each packet goes through the kernel's sockets."
            .to_owned(),
        _ => format!(
            "Half of the processes are on each of two hosts: network namespaces that a veth pair of MTU {HOSTS_MTU} joins. They share the processors."
        ),
    });
    lines
}

/// What the runs are of: none of another origin stand beside them.
fn provenance() -> Result<Value> {
    let line = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let processors = line("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = std::thread::available_parallelism()?;
    let inputs =
        Application::ALL.map(|application| (application.name().to_owned(), json!(application.input())));
    let mut provenance = json!({
        "Pagewire": env!("CARGO_PKG_VERSION"),
        "machine": format!("{count} x {}", model.map_or("unknown processor", |(_, name)| name)),
        "kernel": line("/proc/sys/kernel/osrelease").trim(),
        "MPI": version("mpirun", "--version")?,
        "UCX": version("ucx_info", "-v")?,
        "zero copy from": format!("{RENDEZVOUS} bytes (UCX_RNDV_THRESH, over Pagewire)"),
    });
    if let Some(fields) = provenance.as_object_mut() {
        fields.extend(inputs);
    }
    Ok(provenance)
}

/// The first line that a program prints of itself; null if it is not installed.
fn version(program: &str, option: &str) -> Result<Option<String>> {
    let Some(file) = in_path(program) else { return Ok(None) };
    let mut command = Command::new(file);
    command.arg(option);
    let finished = Running::start(command)?.wait_until(Instant::now() + Duration::from_secs(10));
    let first = finished.output.lines().find(|line| !line.trim().is_empty());
    Ok(first.map(|line| line.trim_start_matches('#').trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_pair_follow_each_other_every_other_time_backwards() {
        let groups = cells::groups(&[Application::Lammps], None, 1);
        let steps = steps(&groups[..1], 2);
        let keys: Vec<String> = steps.iter().map(|step| step.cell.key()).collect();
        let (forth, mut back) = (keys[..4].to_vec(), keys[4..].to_vec());
        back.reverse();
        assert_eq!(forth, back);
        assert_eq!(steps.iter().filter(|step| step.is_first).count(), 2);
    }

    #[test]
    fn time_is_guessed_before_there_are_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let record = Record::open(directory.path(), json!({})).expect("begun");
        let groups = cells::groups(&[Application::Hpl], None, 1);
        assert_eq!(expected(&steps(&groups[..1], 2), &record), 8.0 * FIRST_GUESS);
        assert_eq!(minutes(61.0), "2 min");
    }
}

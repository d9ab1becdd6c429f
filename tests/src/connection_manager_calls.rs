//! The connection manager as programs see it, by C programs of `tests/rdmacm`: each call of librdmacm in each state of an ID (`calls.c`, with
//! the answers of a kernel in `calls.tsv`), traps in which programs were caught (`traps.c`, `traps.tsv`), descriptors (`channels.c`), commands that no
//! library writes (`hostile.c`).

use crate::compile;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Context, Result, bail, ensure};
use pagewire_cli::pair::{Finished, Running};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rdmacm");
/// What a kernel answers.
const ANSWERS: &str = include_str!("../rdmacm/calls.tsv");
/// What Pagewire answers instead, and why.
const DEVIATIONS: &str = include_str!("../rdmacm/deviations.tsv");
/// Which traps are checked, and how.
const TRAPS: &str = include_str!("../rdmacm/traps.tsv");
/// Traps are numbered from 1 to this.
const LAST_TRAP: u8 = 25;
/// Commands of `hostile.c`.
const HOSTILE_COMMANDS: u32 = 100_000;
/// Tests of `channels.c`.
pub const CHANNELS: [&str; 12] = [
    "duplicated",
    "forked",
    "executed",
    "sent",
    "closed",
    "reused",
    "wrong-bytes",
    "cancelled",
    "closed-meanwhile",
    "replaced-meanwhile",
    "untold",
    "own-sockets",
];
/// In the place of an answer: nothing is tried.
const UNTRIED: &str = "-";
/// In the place of a state: all of them.
const ANY: &str = "*";

/// Port space, state and call.
type Cell<'a> = (&'a str, &'a str, &'a str);

/// Compiles one of the programs and runs it with the address of the first host and further words; after `limit` it counts as hanging.
///
/// # Errors
/// If it does not compile or start.
pub fn run(
    ground: &Ground,
    setting: Setting,
    name: &str,
    words: &[&str],
    limit: Duration,
) -> Result<Finished> {
    let program = compiled(ground, name)?;
    let host = ground.ends(setting).0;
    let mut command = host.command(&ground.stage.command);
    command.args(["run", "--path", setting.path().name(), "--"]).arg(&program);
    command.arg(host.address.to_string()).args(words);
    Ok(Running::start(command)?.wait_until(Instant::now() + limit))
}

/// Compiles one of the programs, unless that is done.
///
/// # Errors
/// With what the compiler says.
pub fn compiled(ground: &Ground, name: &str) -> Result<PathBuf> {
    let program = ground.stage.file(&format!("rdmacm-{name}"));
    let further = (name == "traps").then_some("traps_with_data");
    let sources = [Some(name), further].into_iter().flatten();
    let sources = sources.map(|source| Path::new(DIRECTORY).join(source).with_extension("c"));
    compile::once(&program, || compile::c(sources, &program, &["-lrdmacm", "-libverbs"]))?;
    Ok(program)
}

/// Each call answers in each state what the table says.
///
/// # Errors
/// With the calls that answer something else.
pub fn answers_are_the_kernels(ground: &Ground, setting: Setting) -> Result<()> {
    let finished = run(ground, setting, "calls", &[], RUN)?;
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    let wanted = expected()?;
    let mut found = BTreeMap::new();
    for line in finished.output.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [space, state, call, answer] = words[..] else { bail!("no answer: {line}") };
        found.insert((space, state, call), answer);
    }
    let all: BTreeSet<_> = wanted.keys().chain(found.keys()).copied().collect();
    let differences: Vec<String> = all
        .into_iter()
        .filter(|cell| wanted.get(cell) != found.get(cell))
        .map(|cell| format!("{cell:?}: {:?}, not {:?}", found.get(&cell), wanted.get(&cell)))
        .collect();
    ensure!(differences.is_empty(), "{} of {}:\n{}", differences.len(), wanted.len(), differences.join("\n"));
    Ok(())
}

/// The numbers of the traps that `traps.c` checks.
///
/// # Errors
/// If the table does not name each trap once.
pub fn traps() -> Result<Vec<u8>> {
    let mut known = BTreeMap::new();
    for line in lines(TRAPS) {
        let words: Vec<&str> = line.split('\t').collect();
        let [number, how, _what] = words[..] else { bail!("no trap: {line}") };
        ensure!(["traps", "elsewhere", "none"].contains(&how), "{line}");
        ensure!(known.insert(number.parse::<u8>()?, how).is_none(), "twice: {line}");
    }
    ensure!(known.keys().copied().eq(1..=LAST_TRAP), "traps are missing: {:?}", known.keys());
    Ok(known.into_iter().filter(|(_, how)| *how == "traps").map(|(number, _)| number).collect())
}

/// A program is not caught in a trap. Random choices begin with `seed`.
///
/// # Errors
/// With what the program says.
pub fn trap_is_avoided(ground: &Ground, setting: Setting, number: u8, seed: u64) -> Result<()> {
    let finished = run(ground, setting, "traps", &[&number.to_string(), &seed.to_string()], RUN)?;
    ensure!(finished.success(), "trap {number}, seed {seed}: {}\n{}", finished.verdict(), finished.output);
    Ok(())
}

/// A test of descriptors of channels.
///
/// # Errors
/// With what the program says.
pub fn channels_behave(ground: &Ground, setting: Setting, name: &str) -> Result<()> {
    let finished = run(ground, setting, "channels", &[name], RUN)?;
    ensure!(finished.success(), "{name}: {}\n{}", finished.verdict(), finished.output);
    Ok(())
}

/// Hostile commands do no harm. `PAGEWIRE_CM_COMMANDS` says how many.
///
/// # Errors
/// With what the program says, and the seed.
pub fn hostile_commands_end(ground: &Ground, setting: Setting, seed: u64) -> Result<()> {
    let count: u32 = match std::env::var("PAGEWIRE_CM_COMMANDS") {
        Ok(count) => count.parse().with_context(|| count)?,
        Err(_) => HOSTILE_COMMANDS,
    };
    let words = [&*seed.to_string(), &*count.to_string()];
    let finished = run(ground, setting, "hostile", &words, RUN * (1 + count / HOSTILE_COMMANDS / 10))?;
    ensure!(finished.success(), "seed {seed}: {}\n{}", finished.verdict(), finished.output);
    Ok(())
}

/// The kernel's answers, with those that Pagewire gives instead.
fn expected() -> Result<BTreeMap<Cell<'static>, &'static str>> {
    let mut answers = answers()?;
    for line in lines(DEVIATIONS) {
        let words: Vec<&str> = line.split('\t').collect();
        let [space, states, call, answer, _reason] = words[..] else { bail!("no deviation: {line}") };
        let is_meant = |state: &str| states == ANY || states.split(' ').any(|one| one == state);
        let mut count = 0;
        for ((_, state, _), expected) in
            answers.iter_mut().filter(|(cell, _)| (cell.0, cell.2) == (space, call))
        {
            if is_meant(state) && ![answer, UNTRIED].contains(expected) {
                *expected = answer;
                count += 1;
            }
        }
        let least = if states == ANY { 1 } else { states.split(' ').count() };
        ensure!(count >= least, "it deviates from nothing: {line}");
    }
    Ok(answers)
}

fn answers() -> Result<BTreeMap<Cell<'static>, &'static str>> {
    let mut answers = BTreeMap::new();
    let mut columns: Option<(&str, Vec<&str>)> = None;
    for line in lines(ANSWERS) {
        let (first, rest) = line.split_once('\t').with_context(|| line.to_owned())?;
        let rest: Vec<&str> = rest.split('\t').collect();
        if ["TCP", "UDP"].contains(&first) {
            columns = Some((first, rest));
            continue;
        }
        let (space, states) = columns.as_ref().context("a line before the states")?;
        ensure!(states.len() == rest.len(), "{} answers for {} states: {line}", rest.len(), states.len());
        for (state, answer) in states.iter().zip(rest) {
            ensure!(answers.insert((*space, *state, first), answer).is_none(), "twice: {line}");
        }
    }
    Ok(answers)
}

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

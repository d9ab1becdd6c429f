//! `pagewire fail-each`: runs a scenario once to see which verbs its roles call, then again for each of these calls, which then fails, and
//! says what the roles did about it.
//!
//! What is run stands in [`scenario`], which failures in [`plan`], one run in [`supervisor`] (a process of its own), what it shows in
//! [`verdict`]. It must leave no process behind.

mod calls;
mod evidence;
mod job;
mod loopback;
mod place;
mod plan;
mod report;
mod runner;
mod scenario;
pub mod supervisor;
mod verdict;

use crate::arguments::FailEachArguments;
use crate::limits::{FAIL_EACH_DEFAULT_LIMIT, FAIL_EACH_FIRST_LIMIT, FAIL_EACH_SECOND_LIMIT};
use crate::output::symbols::Symbols;
use crate::running::install::Installation;
use crate::running::interrupt;
use anyhow::{Context, Result, bail};
use evidence::FindingCounts;
use indicatif::{ProgressBar, ProgressStyle};
use job::End;
use place::CallPlace;
use plan::Injection;
use report::TrialResult;
use runner::{CompletedRun, Purpose, Runner};
use scenario::Scenario;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use verdict::Verdict;

/// The exit status if a fault was found.
const FOUND: u8 = 1;

/// The exit status if nothing could be found out.
pub const FAILURE: u8 = 2;

/// Runs the failures, and prints what they show; the exit status is 1 if there is a fault.
///
/// # Errors
/// If the scenario is none, or does not work without failures.
pub fn fail_each(arguments: &FailEachArguments) -> Result<u8> {
    interrupt::watch()?;
    let scenario = match &arguments.scenario {
        Some(file) => Scenario::read(file)?,
        None => Scenario::of_program(&arguments.program)?,
    };
    let command = Installation::find()?.command;
    let obstacle = runner::network_obstacle(&command)?;
    if let Some(why) = &obstacle {
        crate::tell!("pagewire: one run after the other, in the network of this host: {why}");
    }
    let path = arguments.path.map(|path| path.name().to_owned()).or_else(|| scenario.path.clone());
    let runner = Runner { scenario, command, path, own_network: obstacle.is_none() };

    let first = first_run(&runner, arguments)?;
    let (plan, left) = plan_of(&runner, &first)?;
    let chosen: Vec<Injection> = plan.into_iter().filter(|one| is_chosen(one, &arguments.only)).collect();
    if chosen.is_empty() {
        bail!(
            "no call that could fail{}",
            if arguments.only.is_empty() { "" } else { ": --only leaves none" }
        );
    }
    if arguments.list {
        let mut output = std::io::stdout().lock();
        chosen.iter().try_for_each(|one| writeln!(output, "{}", one.name()))?;
        return Ok(0);
    }
    let jobs = if runner.own_network { arguments.jobs.unwrap_or_else(processors) } else { NonZeroUsize::MIN };
    let limit = limit(&runner, arguments, &first);
    let (times, of_first) = FAIL_EACH_SECOND_LIMIT;
    let second_limit = (limit * times).max(first.outcome.elapsed * of_first);
    let trial = Trial { runner: &runner, arguments, limit, second_limit, left };
    let results = trial.run_all(&chosen, jobs)?;
    if results.len() < chosen.len() {
        crate::tell!("pagewire: interrupted: {} of {} failures were run", results.len(), chosen.len());
    }
    if results.is_empty() {
        interrupt::check()?;
    }
    let status = conclude(arguments, &results)?;
    interrupt::check()?;
    Ok(status)
}

fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn is_chosen(injection: &Injection, only: &[String]) -> bool {
    let name = injection.name();
    only.is_empty() || only.iter().any(|text| name.contains(text.as_str()))
}

/// The scenario without failures, which has to work.
fn first_run(runner: &Runner, arguments: &FailEachArguments) -> Result<CompletedRun> {
    // However little time the others get: what is slow once only is no hang.
    let limit = asked_limit(runner, arguments).unwrap_or_default().max(FAIL_EACH_FIRST_LIMIT);
    let run = runner.run(Purpose::Calls, limit)?;
    if let Some(obstacle) = verdict::obstacle(&run.job, &run.outcome) {
        bail!("the scenario does not work without failures: {obstacle}");
    }
    Ok(run)
}

/// The limit that was said.
fn asked_limit(runner: &Runner, arguments: &FailEachArguments) -> Option<Duration> {
    arguments.limit.or_else(|| runner.scenario.limit.map(Duration::from_secs_f64))
}

fn limit(runner: &Runner, arguments: &FailEachArguments, first: &CompletedRun) -> Duration {
    let (least, times) = FAIL_EACH_DEFAULT_LIMIT;
    asked_limit(runner, arguments).unwrap_or_else(|| least.max(first.outcome.elapsed * times))
}

/// The failures of all roles, and what each role leaves without one.
fn plan_of(
    runner: &Runner,
    first: &CompletedRun,
) -> Result<(Vec<Injection>, BTreeMap<String, FindingCounts>)> {
    let mut symbols = Symbols::default();
    let (mut plan, mut left) = (Vec::new(), BTreeMap::new());
    for role in runner.scenario.failing() {
        let calls = first.calls(&role.name)?;
        if calls.is_empty() {
            crate::tell!(
                "pagewire: role {} called no verbs: it is no program of verbs, or does not run on Pagewire (is it linked statically?)",
                role.name
            );
        }
        plan.extend(plan::plan(&role.name, &calls, |calls| CallPlace {
            frames: symbols.stack(&calls.frames),
        }));
        left.insert(role.name.clone(), evidence::findings(first.findings(&role.name)?));
    }
    Ok((plan, left))
}

/// Runs with failures.
struct Trial<'a> {
    runner: &'a Runner,
    arguments: &'a FailEachArguments,
    limit: Duration,
    /// That of a run which has reached the limit before.
    second_limit: Duration,
    left: BTreeMap<String, FindingCounts>,
}

impl Trial<'_> {
    /// Runs each failure, `jobs` at the same time. Fewer results than failures: an interrupt has come.
    fn run_all(&self, chosen: &[Injection], jobs: NonZeroUsize) -> Result<Vec<TrialResult>> {
        let bar = bar(chosen.len());
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<(usize, Result<TrialResult>)>> = Mutex::default();
        let work = || {
            while !interrupt::has_come() {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(injection) = chosen.get(index) else { return };
                bar.set_message(injection.name());
                let result = self.run(injection);
                if interrupt::has_come() {
                    // It may have ended the programs, too.
                    return;
                }
                let failed = result.is_err();
                lock(&results).push((index, result));
                bar.inc(1);
                if failed {
                    // The others would fail, too.
                    next.store(chosen.len(), Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..jobs.get().min(chosen.len()) {
                scope.spawn(work);
            }
            work();
        });
        bar.finish_and_clear();
        let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Runs one failure. What reaches its limit is run again with more time, so that a busy machine hangs no program.
    fn run(&self, injection: &Injection) -> Result<TrialResult> {
        let (mut run, mut verdict) = self.judge(injection, self.limit)?;
        if run.outcome.processes.iter().any(|seen| seen.end == End::Limit) {
            (run, verdict) = self.judge(injection, self.second_limit)?;
        }
        Ok(TrialResult {
            injection: injection.clone(),
            verdict,
            elapsed: run.outcome.elapsed,
            seen: report::seen(&run.outcome),
            repeat: self.repeat(injection),
        })
    }

    fn judge(&self, injection: &Injection, limit: Duration) -> Result<(CompletedRun, Verdict)> {
        let Injection { role, rule, .. } = injection;
        let run =
            self.runner.run(Purpose::Failure { role, rule }, limit).with_context(|| injection.name())?;
        let without = self.left.get(role).cloned().unwrap_or_default();
        let evidence = evidence::of(&run, role, &without)?;
        let verdict = verdict::judge(&run.job, &run.outcome, &evidence, self.runner.scenario.leaks);
        Ok((run, verdict))
    }

    /// The command line that repeats a failure.
    fn repeat(&self, injection: &Injection) -> String {
        match &self.arguments.scenario {
            Some(file) => format!(
                "pagewire fail-each --only {} {}",
                quoted(&injection.name()),
                quoted(&file.to_string_lossy())
            ),
            None => {
                let words = self.runner.scenario.roles[0].command.iter().map(|word| quoted(word));
                let words: Vec<String> = words.collect();
                format!("pagewire run --fail {} -- {}", quoted(&injection.rule), words.join(" "))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A bar of so many runs, on a terminal.
fn bar(runs: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() || !crate::threads_can_be_had() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(runs as u64);
    // The template is a constant and valid; the plain bar would do as well.
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {eta} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// Prints and writes the results.
///
/// # Errors
/// If none of the calls failed: then nothing is known of the program.
fn conclude(arguments: &FailEachArguments, results: &[TrialResult]) -> Result<u8> {
    if results.iter().all(|one| one.verdict == Verdict::NotReached) {
        bail!("none of the calls failed: the scenario makes other calls in each run");
    }
    let faults = report::faults(results);
    let mut output = std::io::stdout().lock();
    if arguments.json {
        results.iter().try_for_each(|one| writeln!(output, "{}", report::json(one)))?;
    } else {
        for fault in &faults {
            writeln!(output, "{}", report::describe(fault))?;
        }
        writeln!(output, "{}", report::summary(results, faults.len()))?;
    }
    if let Some(file) = &arguments.junit {
        let subject = match &arguments.scenario {
            Some(scenario) => scenario.display().to_string(),
            None => arguments.program[0].to_string_lossy().into_owned(),
        };
        let text = report::junit(&subject, results).context("the results as XML")?;
        std::fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    Ok(if faults.is_empty() { 0 } else { FOUND })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("./a-b_c=1"), "./a-b_c=1");
        assert_eq!(quoted("verb=x nth=1"), "'verb=x nth=1'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}

//! Programs that are checked: `pagewire run --check`. `checked/misuse.c` has one misuse for each name, and the line of it a comment; other people's programs
//! have none, or what docs/guide/check.md says of them.

use crate::compile;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::{Finished, Running};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A misuse of `checked/misuse.c`, and the rules that it breaks, each as often as it has findings.
struct Misuse {
    name: &'static str,
    rules: &'static [&'static str],
    /// The rule whose place is the line with the comment.
    planted: Option<&'static str>,
}

const fn one(name: &'static str, rules: &'static [&'static str]) -> Misuse {
    Misuse { name, rules, planted: Some(rules[0]) }
}

const fn unplaced(name: &'static str, rules: &'static [&'static str]) -> Misuse {
    Misuse { name, rules, planted: None }
}

/// What a program leaves that ends nothing of `open_all`.
const LEFT: [&str; 7] = ["left-object"; 7];

const MISUSES: [Misuse; 17] = [
    unplaced("nothing", &[]),
    unplaced("late-end", &[]),
    unplaced("left-objects", &LEFT),
    one("left-region", &["left-object", "left-object", "left-object"]),
    unplaced(
        "unpolled",
        &[
            "unpolled-completions",
            "left-object",
            "left-object",
            "left-object",
            "left-object",
            "left-object",
            "left-object",
            "left-object",
        ],
    ),
    one(
        "unacknowledged",
        &[
            "unacknowledged-events",
            "left-object",
            "left-object",
            "left-object",
            "left-object",
            "left-object",
            "left-object",
            "left-object",
        ],
    ),
    one("deregistered-key", &["deregistered-key"]),
    one("deregistered-remote-key", &["deregistered-remote-key"]),
    one("send-in-init", &["wrong-state"]),
    one("receive-in-reset", &["wrong-state"]),
    one("small-queue", &["small-completion-queue", "completion-queue-overrun"]),
    one("busy-region", &["busy-region"]),
    one("busy-receive", &["busy-region"]),
    one("unsignaled", &["unsignaled-queue"]),
    one("ended-object", &["ended-object"]),
    one("ended-queue-pair", &["ended-object"]),
    one("forked", &["left-object"]),
];

/// The program of the misuses, built with debug information.
fn program(ground: &Ground) -> Result<PathBuf> {
    let program = ground.stage.file("misuse");
    compile::once(&program, || compile::c([source()], &program, &["-g", "-libverbs"]))?;
    Ok(program)
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("checked/misuse.c")
}

/// Runs a program with a misuse, checked; gives its end and the findings.
fn check(ground: &Ground, options: &[&str], name: &str) -> Result<(Finished, Vec<Value>)> {
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command
        .args(["run", "--path", "local"])
        .args(options)
        .args(options.first().filter(|option| option.starts_with("--check")).map(|_| "--json"))
        .arg("--")
        .arg(program(ground)?)
        .arg(name);
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    let lines = finished.output.lines().filter(|line| line.starts_with("{\"pid\""));
    let findings = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok((finished, findings))
}

fn status(finished: &Finished) -> Option<i32> {
    finished.status.and_then(|status| status.code())
}

/// Whether a place of a finding is a line of the program with the comment PLANTED.
fn is_planted(finding: &Value, source: &str) -> bool {
    let frames = finding["place"].as_array().into_iter().flatten();
    let own = frames.filter(|frame| frame["file"].as_str().is_some_and(|file| file.ends_with("misuse.c")));
    let mut lines = own.filter_map(|frame| source.lines().nth(frame["line"].as_u64()? as usize - 1));
    lines.any(|line| line.contains("/* PLANTED */"))
}

/// Each planted misuse is found, by its rule and at its line, and nothing else; the exit status says so.
///
/// # Errors
/// If not.
pub fn misuses_are_found(ground: &Ground) -> Result<()> {
    let source = fs::read_to_string(source())?;
    for misuse in &MISUSES {
        let (finished, findings) = check(ground, &["--check"], misuse.name)?;
        let output = &finished.output;
        let mut rules: Vec<_> = findings.iter().filter_map(|finding| finding["rule"].as_str()).collect();
        let mut expected = misuse.rules.to_vec();
        rules.sort_unstable();
        expected.sort_unstable();
        ensure!(rules == expected, "{}: {rules:?}, not {expected:?}:\n{output}", misuse.name);
        let code = if expected.is_empty() { 0 } else { 23 };
        ensure!(status(&finished) == Some(code), "{}: {:?}:\n{output}", misuse.name, finished.status);
        if let Some(planted) = misuse.planted {
            let found =
                findings.iter().any(|finding| finding["rule"] == planted && is_planted(finding, &source));
            ensure!(found, "{}: no place is the planted one:\n{output}", misuse.name);
        }
    }
    Ok(())
}

/// The exit status is as asked for, and people see the rule and the line.
///
/// # Errors
/// If not.
pub fn findings_are_shown(ground: &Ground) -> Result<()> {
    let (finished, _) = check(ground, &["--check", "--check-exit", "0"], "send-in-init")?;
    ensure!(finished.success(), "{:?}:\n{}", finished.status, finished.output);
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command
        .args(["run", "--path", "local", "--check", "--stats", "--"])
        .arg(program(ground)?)
        .arg("send-in-init");
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(status(&finished) == Some(23), "{:?}:\n{}", finished.status, finished.output);
    for said in [
        "wrong-state: queue pair",
        "is in INIT",
        "in send_in_init (",
        "misuse.c:",
        "1 process checked: 1 finding",
    ] {
        ensure!(finished.output.contains(said), "{said} is not in:\n{}", finished.output);
    }
    let counters = finished.output.contains("send requests");
    ensure!(counters, "--stats prints nothing beside --check:\n{}", finished.output);
    Ok(())
}

/// A buffer that changes before its completion is found where it was posted, with `--check=buffers` alone.
///
/// # Errors
/// If not.
pub fn changed_buffers_are_found(ground: &Ground) -> Result<()> {
    let source = fs::read_to_string(source())?;
    for (option, expected) in [("--check=buffers", &["changed-buffer"][..]), ("--check", &[])] {
        let (finished, findings) = check(ground, &[option], "changed-buffer")?;
        let rules: Vec<_> = findings.iter().filter_map(|finding| finding["rule"].as_str()).collect();
        ensure!(rules == expected, "{option}: {rules:?}:\n{}", finished.output);
        let placed = findings.iter().all(|finding| is_planted(finding, &source));
        ensure!(placed, "{option}: the place is not the post:\n{}", finished.output);
    }
    let (_, findings) = check(ground, &["--check=buffers"], "nothing")?;
    ensure!(findings.is_empty(), "{findings:?}");
    Ok(())
}

/// A list of more elements than a queue takes, and one of requests without an end, are refused and not read further: with no observer, with
/// the check, and where receives fail on demand.
///
/// # Errors
/// If the program crashes, or something is found.
pub fn long_lists_are_refused_unread(ground: &Ground) -> Result<()> {
    for options in [
        &[][..],
        &["--check"],
        &["--check=buffers"],
        &["--fail", "opcode=RECV status=IBV_WC_LOC_PROT_ERR"],
        &["--fail", "opcode=RECV status=IBV_WC_LOC_LEN_ERR"],
    ] {
        let (finished, findings) = check(ground, options, "long-lists")?;
        ensure!(finished.success(), "{options:?}: {:?}:\n{}", finished.status, finished.output);
        ensure!(findings.is_empty(), "{options:?}: {findings:?}");
    }
    Ok(())
}

/// Other people's programs that misuse nothing.
pub const CLEAN: [(&str, &[&str]); 6] = [
    ("ibv_rc_pingpong", &["-g", "0", "-n", "200"]),
    ("ibv_ud_pingpong", &["-g", "0", "-n", "200"]),
    ("ibv_srq_pingpong", &["-g", "0", "-n", "200"]),
    ("ib_write_bw", &["-F", "-n", "500"]),
    ("ib_send_lat", &["-F", "-n", "200"]),
    ("ib_read_lat", &["-F", "-n", "200"]),
];

/// A program that misuses nothing has no finding on either side.
///
/// # Errors
/// If one is found.
pub fn clean_program_has_no_findings(
    ground: &Ground,
    setting: Setting,
    program: &str,
    arguments: &[&str],
) -> Result<()> {
    let outcome = ground.must_run_with(&["--check"], setting, program, arguments)?;
    let client = outcome.pair.client.context("no client ran")?;
    for side in [&client, &outcome.pair.server] {
        ensure!(side.output.contains("1 process checked: no findings"), "{program}:\n{}", side.output);
    }
    Ok(())
}

//! Many processes, each connected to each other one, on few processors: `tests/crowd/main.c`.
//!
//! PAGEWIRE_CROWD_ROUNDS says how often whole crowds run; without it a small one does, once.

use crate::compile;
use crate::ground::Ground;
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use pagewire_cli::hosts::Host;
use pagewire_cli::pair::Running;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;

/// One crowd.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    path: &'static str,
    /// Half of its processes are on another host.
    on_two_hosts: bool,
    /// How many files each process may have open.
    descriptors: usize,
    processes: usize,
    round: usize,
}

/// The processes of a small crowd, and of a whole one.
const FEW: usize = 48;
const MANY: usize = 256;

/// The timeout of its queue pairs: of a small crowd, which has the processors of this machine together with other tests, 17 seconds with seven
/// retries; of a whole one, which has them alone, 4.
const TIMEOUT: u8 = 19;
const TIMEOUT_ALONE: u8 = 17;

/// Descriptors with which every process can have channels to all others, though far fewer files than channels need may be on their way
/// at a time: the kernel allows a user as many as one process may have descriptors.
const DESCRIPTORS: usize = 256;
const MANY_DESCRIPTORS: usize = 20_000;

/// Descriptors that do not suffice for channels to all others.
const TOO_FEW: usize = 64;

/// Each, and whether half of the crowd is on another host.
const PATHS: [(&str, bool); 6] =
    [("local", false), ("auto", false), ("udp", false), ("tcp", false), ("auto", true), ("tcp", true)];

/// The crowds to try.
///
/// # Errors
/// If PAGEWIRE_CROWD_ROUNDS is no number, or 0.
pub fn runs() -> Result<Vec<Run>> {
    let (rounds, descriptors, processes) = match std::env::var("PAGEWIRE_CROWD_ROUNDS") {
        Ok(rounds) => {
            let rounds: NonZeroUsize = rounds.parse().context("PAGEWIRE_CROWD_ROUNDS")?;
            (rounds.get(), MANY_DESCRIPTORS, MANY)
        }
        Err(_) => (1, DESCRIPTORS, FEW),
    };
    let of_round = |round| {
        let scarce = (round == 1).then_some((("auto", false), TOO_FEW));
        // TCP has 28,000 ports between two addresses: too few for 256 processes of one.
        let fits = |(path, on_two_hosts): &(&str, bool)| processes == FEW || *on_two_hosts || *path != "tcp";
        let paths = PATHS.into_iter().filter(fits).map(|path| (path, descriptors)).chain(scarce);
        paths.map(move |((path, on_two_hosts), descriptors)| Run {
            path,
            on_two_hosts,
            descriptors,
            processes,
            round,
        })
    };
    Ok((1..=rounds).flat_map(of_round).collect())
}

/// The name of the test.
pub fn title(run: &Run) -> String {
    let Run { path, on_two_hosts, descriptors, processes, round } = run;
    let hosts = if *on_two_hosts { " hosts" } else { "" };
    format!("crowd::{path}{hosts} {processes} processes {descriptors} descriptors {round}")
}

/// Each process of a crowd sends one WRITE to each other one; none fails, and every word is right. Where descriptors are too few for
/// channels to all, some connections are on the udp path and say why.
///
/// # Errors
/// With what the program says.
pub fn every_word_arrives(ground: &Ground, run: &Run) -> Result<()> {
    let program = ground.stage.file("crowd");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/crowd/main.c");
    compile::once(&program, || compile::c([source], &program, &["-libverbs"]))?;
    let folder = tempfile::tempdir()?;
    // Its users may be others than this one.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))?;
    let board = folder.path().join("board");
    let half = (run.processes / 2).to_string();
    let parts = match run.on_two_hosts {
        false => vec![(&ground.hosts.first, None)],
        true => vec![(&ground.hosts.first, Some("0")), (&ground.hosts.second, Some(&*half))],
    };
    let mut running = Vec::new();
    for (host, first) in parts {
        let mut command = begin(ground, host, run);
        if let Some(first) = first {
            command.arg(&board).args([first, &half]);
        }
        running.push(Running::start(command)?);
    }
    let until = Instant::now() + RUN;
    for running in running {
        let finished = running.wait_until(until);
        ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
        if run.descriptors == TOO_FEW {
            let says_why = |line: &str| line.contains(" udp ") && line.contains("Too many open files");
            ensure!(
                finished.output.lines().any(says_why),
                "no reason for the udp path in:\n{}",
                finished.output
            );
        }
    }
    Ok(())
}

/// The crowd's program on a host.
fn begin(ground: &Ground, host: &Host, run: &Run) -> Command {
    let mut command = host.command("sh");
    let script = format!("ulimit -n {} && exec \"$@\"", run.descriptors);
    command.args(["-c", &script, "sh"]).arg(&ground.stage.command).args(["run", "--path", run.path]);
    if run.descriptors == TOO_FEW {
        command.arg("--stats");
    }
    let timeout = if run.processes == FEW { TIMEOUT } else { TIMEOUT_ALONE };
    command.arg("--").arg(ground.stage.file("crowd")).args([run.processes.to_string(), timeout.to_string()]);
    command
}

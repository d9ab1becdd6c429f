//! Many processes, each connected to each other one, on few processors: `tests/crowd/main.c`.

use crate::compile;
use crate::ground::Ground;
use crate::limits::RUN;
use anyhow::{Result, ensure};
use pagewire_cli::pair::Running;
use std::ffi::OsString;
use std::time::Instant;

/// Processes of a crowd in these tests (256 by hand: `pagewire run -- crowd 256`).
const PROCESSES: usize = 48;

/// Descriptors with which every process can have channels to all others, though far fewer files than channels need may be on their way
/// at a time: the kernel allows a user as many as one process may have descriptors.
const DESCRIPTORS: usize = 256;

/// Descriptors that do not suffice for channels to all others.
const TOO_FEW: usize = 64;

/// A path, and the limit of descriptors.
pub const RUNS: [(&str, usize); 4] =
    [("local", DESCRIPTORS), ("auto", DESCRIPTORS), ("udp", DESCRIPTORS), ("auto", TOO_FEW)];

/// Each process of a crowd sends one WRITE to each other one; none fails, and every word is right.
///
/// # Errors
/// With what the program says.
pub fn every_word_arrives(ground: &Ground, path: &str, descriptors: usize) -> Result<()> {
    let program = ground.stage.file(&format!("crowd-{path}-{descriptors}"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/crowd/main.c");
    compile::c([source], &program, &["-libverbs"])?;
    let mut command = ground.hosts.first.command("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(&ground.stage.command);
    let count = OsString::from(PROCESSES.to_string());
    command.args(["run", "--path", path, "--"]).arg(&program).arg(count);
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    Ok(())
}

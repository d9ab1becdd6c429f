//! Compiling the programs that the tests bring along.

mod command;

use crate::limits::COMPILE;
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::Running;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Has `compile` make `program`, unless it is there already. One program at a time: no test runs one that is not complete.
///
/// # Errors
/// Those of `compile`.
pub fn once(program: &Path, compile: impl FnOnce() -> Result<()>) -> Result<()> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if program.exists() { Ok(()) } else { compile() }
}

/// Compiles C sources against rdma-core's headers; `options` say at least what to link with.
///
/// # Errors
/// With what the compiler says.
pub fn c(
    sources: impl IntoIterator<Item = impl AsRef<Path>>,
    program: &Path,
    options: &[impl AsRef<OsStr>],
) -> Result<()> {
    let mut command = command::command(sources, program);
    command.arg("-I").arg(headers()).args(options);
    build(command)?;
    // Programs run as another user.
    fs::set_permissions(program, Permissions::from_mode(0o755)).context("the test's program")
}

/// Runs a compiler.
///
/// # Errors
/// With what it says.
pub fn build(command: Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let finished = Running::start(command)?.wait_until(Instant::now() + COMPILE);
    ensure!(finished.success(), "{name} does not build the test's program:\n{}", finished.output);
    Ok(())
}

/// What the C programs of all tests share.
pub fn headers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/verbs/tests/c")
}

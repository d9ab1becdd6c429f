//! Memory in motion: system calls that change registered memory under traffic (`tests/motion/`, C programs).
//!
//! A run draws a seed and prints it first, so that a failure's output says how to see it again. PAGEWIRE_MOTION_SEED sets it,
//! PAGEWIRE_MOTION_ROUNDS the number of moves.

use crate::ground::{Ground, Setting};
use crate::limits::{COMPILE, MOTION};
use anyhow::{Context, Result, bail, ensure};
use pagewire_cli::pair::Running;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What the moving end does to its memory, as `moves.c` calls it.
pub const MOVES: [&str; 19] = [
    "nothing",
    "munmap",
    "mremap",
    "ftruncate-memfd",
    "ftruncate-file",
    "mprotect",
    "dontneed",
    "free",
    "pageout",
    "pageout-file",
    "punch",
    "hugepages",
    "fork",
    "userfaultfd",
    "map-fixed",
    "brk",
    "shm",
    "dereg",
    "any",
];

/// What the program does about SIGSEGV and SIGBUS itself, as `handlers.c` calls it.
pub const HANDLERS: [&str; 8] = [
    "before",
    "before-signal",
    "before-jump",
    "before-nodefer",
    "before-reset",
    "before-ignored",
    "blocked",
    "masked",
];

/// Where the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// In two processes.
    Apart,
    /// In one.
    Together,
}

/// The status by which the program says that this kernel cannot do a move at all.
const NOT_HERE: i32 = 77;

/// The sources beside `main.c`.
const SOURCES: [&str; 5] = ["motion.c", "traffic.c", "moves.c", "renewal.c", "handlers.c"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("motion")
}

/// Compiles the program, once.
fn program(ground: &Ground) -> Result<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = PROGRAM.get_or_init(|| {
        let program = ground.stage.file("motion");
        let mut sources = vec!["main.c"];
        sources.extend(SOURCES);
        compile(&sources, &program, &[]).map(|()| program).map_err(|error| format!("{error:#}"))
    });
    made.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

/// Compiles sources of `tests/motion` against rdma-core's headers.
fn compile(sources: &[&str], into: &Path, options: &[&str]) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args([
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-missing-field-initializers",
        "-O2",
        "-g",
    ]);
    command.arg("-I").arg(folder().join("../../crates/verbs/tests/c")).args(options);
    command.arg("-o").arg(into).args(sources.iter().map(|source| folder().join(source)));
    command.args(["-libverbs", "-lpthread"]);
    let finished = Running::start(command)?.wait_until(Instant::now() + COMPILE);
    ensure!(finished.success(), "the test's program does not compile:\n{}", finished.output);
    // Programs run as another user.
    fs::set_permissions(into, Permissions::from_mode(0o755)).context("the test's program")
}

fn seed() -> Result<u64> {
    match std::env::var("PAGEWIRE_MOTION_SEED") {
        Ok(seed) => seed.parse().context("PAGEWIRE_MOTION_SEED is no number"),
        Err(_) => Ok(u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos())),
    }
}

/// Both ends with a move in a setting, in a program that handles signals in its own manner: no crash, no hang, no wrong byte.
///
/// # Errors
/// With what the program said, and how to run it again.
pub fn check(ground: &Ground, setting: Setting, ends: Ends, name: &str, handlers: &str) -> Result<()> {
    let rounds = std::env::var("PAGEWIRE_MOTION_ROUNDS").unwrap_or_else(|_| "100".to_owned());
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["run", "--path", setting.path().name(), "--"]).arg(program(ground)?);
    command.args(["--move", name, "--handlers", handlers]);
    command.args(["--seed", &seed()?.to_string(), "--rounds", &rounds]);
    if ends == Ends::Together {
        command.arg("--together");
    }
    let finished = Running::start(command)?.wait_until(Instant::now() + MOTION);
    match finished.status.and_then(|status| status.code()) {
        Some(0) => Ok(()),
        Some(NOT_HERE) => {
            eprintln!("motion {name} was not checked: {}", finished.output);
            Ok(())
        }
        _ => bail!("{}\n{}", finished.verdict(), finished.output),
    }
}

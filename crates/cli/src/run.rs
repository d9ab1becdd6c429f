//! `pagewire run`: starts a program with the engine in place of libibverbs.

use crate::arguments::RunArguments;
use crate::install::{Installation, find_program};
use crate::launch::Launch;
use crate::report;
use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// Exit status if Pagewire itself failed.
pub const FAILURE: u8 = 125;

/// Runs the program; gives its exit status, or 126 or 127 as a shell does.
///
/// Without `--stats` the program replaces this process, so that its PID, its signals and its exit status are its
/// own; with it, this process waits.
///
/// # Errors
/// If the engine is not found, or the counters cannot be read.
pub fn run(arguments: &RunArguments) -> Result<u8> {
    let installation = Installation::find()?;
    let mut launch = Launch::new(&installation, arguments.path);
    // A program may change its directory before the engine opens the file.
    launch.pcap = arguments.pcap.as_ref().map(std::path::absolute).transpose()?;

    let (program, operands) = arguments.program.split_first().context("no program is named")?;
    let mut command = Command::new(program);
    command.args(operands);
    if !arguments.stats {
        launch.apply(&mut command);
        return Ok(refusal(program, &command.exec()));
    }

    let directory = tempfile::Builder::new().prefix("pagewire-stats-").tempdir()?;
    let file = directory.path().join("stats.jsonl");
    launch.stats = Some(file.clone());
    launch.apply(&mut command);
    let status = match wait_forwarding_signals(&mut command)? {
        Ok(status) => status,
        Err(error) => return Ok(refusal(program, &error)),
    };
    report::print_summary(&report::read_file(&file)?)?;
    Ok(code(status))
}

/// Says why `program` could not be started; gives the exit status that a shell would.
fn refusal(program: &OsStr, error: &io::Error) -> u8 {
    let name = program.to_string_lossy();
    // A directory in PATH that is closed to this user makes the kernel's answer "permission denied".
    let nowhere = !name.contains('/') && find_program(&name).is_none();
    if nowhere || error.kind() == io::ErrorKind::NotFound {
        anstream::eprintln!("pagewire: {name}: not found");
        return 127;
    }
    anstream::eprintln!("pagewire: {name}: {error}");
    126
}

/// Starts `command` and waits for it; the inner error says that it could not be started.
fn wait_forwarding_signals(command: &mut Command) -> Result<io::Result<ExitStatus>> {
    // Registered before the start: a signal between the two must not end this process and orphan the program.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let handle = signals.handle();
    let forwarder = std::thread::spawn(move || {
        for signal in signals.forever() {
            // The terminal sends these two to the whole foreground group, the program included.
            if signal == SIGINT || signal == SIGQUIT {
                continue;
            }
            if let Ok(signal) = Signal::try_from(signal) {
                // The program may have ended just now; then there is nobody left to tell.
                let _ended = nix::sys::signal::kill(pid, signal);
            }
        }
    });
    let status = child.wait()?;
    handle.close();
    forwarder.join().ok();
    Ok(Ok(status))
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

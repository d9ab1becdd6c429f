//! Real tries that need a second process: this command starts itself once more, as `pagewire probe KIND`.

use crate::limits::PROBE_PATIENCE;
use crate::running::connection_probe;
use crate::running::install::Installation;
use crate::running::launch::Launch;
use crate::running::pair::Running;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::sched::CloneFlags;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use pagewire_nic::PathChoice;
use std::io::IoSliceMut;
use std::process::Command;
use std::time::Instant;

/// What the second process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `reader PID ADDRESS`: prints the 8 bytes at ADDRESS of the process PID
    Reader,
    /// Makes a network namespace, in a user namespace where that is needed
    Namespaces,
    /// Connects to itself by rdma_cm
    Connection,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Reader => "reader",
            Kind::Namespaces => "namespaces",
            Kind::Connection => "connection",
        }
    }
}

/// Plays the second process.
///
/// # Errors
/// With what the kernel answered, if it refuses.
pub fn serve(kind: Kind, operands: &[String]) -> Result<()> {
    let operand = |index: usize| operands.get(index).context("an operand is missing");
    match kind {
        Kind::Reader => {
            let pid = Pid::from_raw(operand(0)?.parse()?);
            let base = operand(1)?.parse()?;
            let mut bytes = [0; 8];
            process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &[RemoteIoVec { base, len: 8 }])?;
            println!("{}", u64::from_ne_bytes(bytes));
        }
        Kind::Namespaces => {
            let with_user = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
            // Root needs no user namespace, if it has its capabilities.
            let direct =
                nix::unistd::geteuid().is_root() && nix::sched::unshare(CloneFlags::CLONE_NEWNET).is_ok();
            if !direct {
                nix::sched::unshare(with_user)?;
            }
        }
        Kind::Connection => connection_probe::connect_to_self()?,
    }
    Ok(())
}

/// This program once more, as `PROGRAM probe KIND OPERANDS`.
///
/// # Errors
/// If its own file cannot be found.
pub fn command(kind: &str, operands: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["probe", kind]).args(operands);
    Ok(command)
}

fn ask(kind: Kind, operands: &[String]) -> Result<String> {
    answer(command(kind.name(), operands)?)
}

fn answer(command: Command) -> Result<String> {
    let finished = Running::start(command)?.wait_until(Instant::now() + PROBE_PATIENCE);
    let output = finished.output.trim().trim_start_matches("pagewire: ");
    if !finished.success() {
        bail!("{}", if output.is_empty() { finished.verdict() } else { output.to_owned() });
    }
    Ok(output.to_owned())
}

/// Whether a process of this user that is no ancestor of ours may read our memory (asked of a child: under Yama's
/// scope 1 an ancestor may read its children, and nobody else may read anybody).
///
/// # Errors
/// With the kernel's refusal.
pub fn cross_memory_read() -> Result<()> {
    let nonce: Box<[u8; 8]> =
        Box::new(u64::from(std::process::id()).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_ne_bytes());
    let address = nonce.as_ptr() as usize;
    let answer = ask(Kind::Reader, &[std::process::id().to_string(), address.to_string()])?;
    if answer != u64::from_ne_bytes(*std::hint::black_box(nonce)).to_string() {
        bail!("other bytes than those of this process came back");
    }
    Ok(())
}

/// Whether this user may make a network namespace, if need be in a user namespace.
///
/// # Errors
/// With the kernel's refusal.
pub fn namespaces() -> Result<()> {
    ask(Kind::Namespaces, &[]).map(drop)
}

/// Whether a program on the engine of `installation` connects to itself by rdma_cm.
///
/// # Errors
/// With what was refused.
pub fn connection(installation: &Installation) -> Result<()> {
    let mut command = command(Kind::Connection.name(), &[])?;
    Launch::new(installation, PathChoice::Auto).apply(&mut command);
    answer(command).map(drop)
}

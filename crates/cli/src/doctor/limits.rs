//! Limits that keep a process from threads and memory: tried, as the engine takes them.

use super::Finding;
use anyhow::Context;
use pagewire_fabric::shortage;
use std::io;
use std::sync::Mutex;
use std::thread::Builder;

/// Threads of an engine with a few connections: the NIC's, that of `pagewire explain`, those that bring pages in.
const THREADS: usize = 6;

/// Private memory that these and the engine take, most of it never touched.
const MEMORY: usize = 64 << 20;

/// Memory that a command needs at most, before it starts programs.
const OWN_MEMORY: usize = 8 << 20;

pub(super) fn findings() -> Vec<Finding> {
    vec![threads(), memory()]
}

/// Whether there is too little memory to look at anything else: an allocation that fails would end this command.
pub(super) fn leave_too_little() -> bool {
    reserve(OWN_MEMORY).is_err()
}

/// Whether a command has memory for its own work: an allocation that fails would end it.
///
/// # Errors
/// ENOMEM, if it has not.
pub fn require_memory() -> anyhow::Result<()> {
    reserve(OWN_MEMORY)
        .map_err(io::Error::from_raw_os_error)
        .with_context(|| format!("this command needs {} MB of memory", OWN_MEMORY >> 20))
}

fn threads() -> Finding {
    const CHECK: &str = "threads";
    match start_threads() {
        Ok(()) => Finding::ok(CHECK, format!("{THREADS} can be started"), "as many as the engine needs"),
        Err(error) => Finding::forbids(
            CHECK,
            format!("{THREADS} cannot be started: {error}"),
            "a program's engine needs them: it does not start",
            shortage(&error)
                .unwrap_or_else(|| "ulimit -u 4096, or more; in a container a larger pids.max".to_owned()),
        ),
    }
}

/// Starts all of them at the same time.
fn start_threads() -> io::Result<()> {
    let held = Mutex::new(());
    std::thread::scope(|scope| {
        // None ends before all are there, or one is refused.
        let guard = held.lock();
        let mut starts =
            (0..THREADS).map(|_| Builder::new().spawn_scoped(scope, || drop(held.lock())).map(drop));
        let started = starts.try_for_each(|start| start);
        drop(guard);
        started
    })
}

fn memory() -> Finding {
    const CHECK: &str = "private memory";
    match reserve(MEMORY) {
        Ok(()) => {
            Finding::ok(CHECK, format!("{} MB can be had", MEMORY >> 20), "as much as the engine needs")
        }
        Err(error) => Finding::forbids(
            CHECK,
            format!("{} MB cannot be had: {}", MEMORY >> 20, io::Error::from_raw_os_error(error)),
            "a program's engine needs them (of addresses, not of memory): it does not start",
            shortage(&io::Error::from_raw_os_error(error))
                .unwrap_or_else(|| "ulimit -d unlimited; ulimit -v unlimited".to_owned()),
        ),
    }
}

/// Takes so many bytes for a moment, without touching them; the error is ENOMEM.
fn reserve(bytes: usize) -> Result<(), i32> {
    let mut reserved = Vec::<u8>::new();
    let outcome = reserved.try_reserve_exact(bytes);
    // Else the compiler leaves out an allocation that nobody uses.
    std::hint::black_box(&reserved);
    outcome.map_err(|_| nix::libc::ENOMEM)
}

/// How to mend what was refused with `error`: by raising the limit that is in the way, else as said.
pub(super) fn mend(error: &anyhow::Error, otherwise: &'static str) -> String {
    crate::limit_in_the_way(error).unwrap_or_else(|| otherwise.to_owned())
}

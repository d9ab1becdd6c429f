//! The engine of this process: made when the first device is opened, gone in forked children.

use crate::boundary::{Errno, Result};
use crate::calls;
use crate::devices::device_list::devices;
use crate::limits::EXIT_PATIENCE_MILLISECONDS;
use crate::objects::held::{HeldOverForks, LockOrder};
use crate::runtime::engine::Engine;
use crate::runtime::explain;
use crate::runtime::messages::{say, start_logging, tell};
use crate::runtime::settings::Settings;
use libc::{EBUSY, EINVAL};
use pagewire_fabric::{Explained, FabricOptions, HostFabric, StreamOptions, Tls};
use pagewire_memory::Uncancelled;
use pagewire_nic::{Nic, PageFaultChoice};
use pagewire_watching::{Hooks, checkpoint, watch};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

static ENGINE: HeldOverForks<Option<Arc<Engine>>> = HeldOverForks::new(LockOrder::Engine, None, |engine| {
    close_listener();
    // The parent's engine is never touched again, not even to free it: its locks may be held by threads that are not here.
    std::mem::forget(engine.take());
});

/// The listener of the explain socket, to be closed in forked children; -1: none.
static EXPLAIN_LISTENER: AtomicI32 = AtomicI32::new(-1);

/// The listener of the checkpoint socket, to be closed in forked children; -1: none.
static CHECKPOINT_LISTENER: AtomicI32 = AtomicI32::new(-1);

/// Has the listener of the checkpoint socket closed in forked children.
fn close_in_child(listener: RawFd) {
    CHECKPOINT_LISTENER.store(listener, Ordering::Release);
}

/// Refuses an environment that asks for something that does not exist, as early as a program looks for devices.
pub fn check_environment() -> Result<()> {
    settings().map(|_| ())
}

fn settings() -> Result<Settings> {
    check_copy()?;
    let settings = Settings::from_environment().map_err(|reason| {
        tell(&reason);
        Errno(EINVAL)
    })?;
    start_logging(&settings.log);
    let statistics = || running().and_then(|engine| engine.settings().statistics.clone());
    Hooks { say, close_in_child, statistics }.set();
    watch::choose(settings.watch, settings.checkpoint.is_some());
    checkpoint::choose(settings.checkpoint.as_ref());
    check_devices(&settings.page_faults)?;
    Ok(settings)
}

/// This is a copy of the library that dlmopen(3) has loaded into a namespace of its own, and the first namespace has one, too. Set by
/// `c/loading.c` when the library is loaded.
#[unsafe(no_mangle)]
pub static PAGEWIRE_IS_SECOND_COPY: AtomicBool = AtomicBool::new(false);

/// Refuses a second engine of a process, in a copy of the library that dlmopen(3) has loaded. It would take the other one's numbers for those of a
/// peer.
fn check_copy() -> Result<()> {
    if !PAGEWIRE_IS_SECOND_COPY.load(Ordering::Relaxed) {
        return Ok(());
    }
    tell(
        "this is a second copy of Pagewire in one process, loaded by dlmopen(3) into a namespace of its own, and a process has one engine: \
         open libibverbs.so.1 itself with dlmopen, which gives the first copy, or the library that needs it with dlopen(3)",
    );
    Err(Errno(EBUSY))
}

/// Refuses what is said of a device that does not exist: it would be said in vain.
fn check_devices(page_faults: &PageFaultChoice) -> Result<()> {
    if page_faults.devices().next().is_none() {
        return Ok(());
    }
    let names: Vec<String> = devices()?.into_iter().map(|device| device.name).collect();
    let Some(unknown) = page_faults.devices().find(|name| !names.iter().any(|known| known == name)) else {
        return Ok(());
    };
    let names = names.join(", ");
    tell(&format!(
        "--page-faults or PAGEWIRE_PAGE_FAULTS names '{unknown}', which is no device here: {names}"
    ));
    Err(Errno(EINVAL))
}

/// The engine of this process; the first call starts it.
pub fn engine() -> Result<Arc<Engine>> {
    let mut engine = ENGINE.lock();
    if let Some(running) = &*engine {
        return Ok(running.clone());
    }
    let started = start()?;
    *engine = Some(started.clone());
    Ok(started)
}

/// The software NIC of this process, for interfaces beside the verbs; the first call starts it.
///
/// # Errors
/// The environment makes no sense: the error says how. The engine cannot start: the reason is told on the standard error output.
pub fn shared_nic() -> io::Result<Arc<Nic<HostFabric>>> {
    if running().is_none() {
        let invalid = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
        Settings::from_environment().map_err(invalid)?;
    }
    match engine() {
        Ok(engine) => Ok(engine.nic().clone()),
        Err(Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The engine of this process, if it has one.
pub fn running() -> Option<Arc<Engine>> {
    ENGINE.lock_within(Duration::from_millis(EXIT_PATIENCE_MILLISECONDS))?.clone()
}

/// What else is to be done with each engine that starts.
static ON_START: OnceLock<fn(&Nic<HostFabric>)> = OnceLock::new();

/// Has this called with each engine that starts from now on: once for a process.
pub fn call_on_start(call: fn(&Nic<HostFabric>)) {
    ON_START.get_or_init(|| call);
}

fn start() -> Result<Arc<Engine>> {
    let settings = settings()?;
    let cannot_start = |error: &io::Error| tell(&format!("the NIC cannot start: {}", Explained(error)));
    let host = new_host(&settings).inspect_err(cannot_start)?;
    let engine = new_engine(host, settings);
    if let Some(call) = ON_START.get() {
        call(engine.nic());
    }
    let nic = engine.nic().clone();
    pagewire_fabric::spawn("pagewire-nic", move || or_abort(|| nic.run(&AtomicBool::new(false))))
        .inspect_err(cannot_start)?;
    match explain::serve(&engine) {
        Ok(listener) => EXPLAIN_LISTENER.store(listener.as_raw_fd(), Ordering::Release),
        // The program can do without; `pagewire explain` then does not find it.
        Err(error) => log::warn!("`pagewire explain` cannot ask this process: {error}"),
    }
    // Children inherit what is registered.
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: `at_exit` is an `extern "C"` function of no arguments that unwinds nowhere.
        if unsafe { libc::atexit(at_exit) } != 0 {
            log::warn!("no statistics will be written: the C library takes no more functions for the exit");
        }
    });
    Ok(engine)
}

/// The fabric of this process. It has several KiB, and whoever opens the device may have little stack: it is made and moved in frames
/// that end before the next step begins.
#[inline(never)]
fn new_host(settings: &Settings) -> io::Result<Box<HostFabric>> {
    let tls = settings.tls.as_ref().map(Tls::load).transpose();
    let tls = tls.map_err(|error| io::Error::other(format!("PAGEWIRE_TLS: {error}")))?;
    let streams = StreamOptions { connect_to: settings.connect_to.clone(), tls };
    let options = FabricOptions { faults: settings.delay, rules: calls::fabric_rules(), streams };
    Ok(Box::new(HostFabric::with_options(options)?))
}

/// The engine, which no thread drives yet. A frame of its own, as that of [`new_host`].
#[inline(never)]
fn new_engine(host: Box<HostFabric>, settings: Settings) -> Arc<Engine> {
    Arc::new(Engine::new(*host, settings))
}

/// Ends the process where the NIC's thread panics, which is a defect of Pagewire: what waits for a completion or an event would wait
/// for ever, and what the thread was at is in no known state.
fn or_abort(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        say(format_args!(
            "the NIC's thread failed, and nothing would complete any more: the process is aborted. This is a defect of \
             Pagewire: please report it with the lines above"
        ));
        std::process::abort();
    }
}

extern "C" fn at_exit() {
    let _uncancelled = Uncancelled::begin();
    // Another thread may be at it while this one ends the process, or this one itself, below a signal handler.
    let Some(running) = ENGINE.lock_within(Duration::from_millis(EXIT_PATIENCE_MILLISECONDS)) else {
        say(format_args!(
            "no statistics were written, and the last acknowledgements may be missing: a device was just being opened \
             when the process ended; let the threads that open devices end first"
        ));
        return;
    };
    let Some(engine) = running.clone() else { return };
    drop(running);
    let written = catch_unwind(AssertUnwindSafe(|| {
        checkpoint::at_exit();
        engine.last_round();
        // What they have lost is told in the statistics.
        pagewire_fabric::finish_captures();
        explain::write_statistics(&engine)
    }));
    if let Ok(Err(error)) = written {
        let file = engine.settings().statistics.as_deref().unwrap_or(Path::new(""));
        say(format_args!("the statistics could not be written to {}: {error}", file.display()));
    }
}

/// Closes the child's copies of the listeners.
fn close_listener() {
    for place in [&EXPLAIN_LISTENER, &CHECKPOINT_LISTENER] {
        let listener: RawFd = place.swap(-1, Ordering::Relaxed);
        if listener >= 0 {
            // SAFETY: the child's copy of a descriptor that only the thread used that listens, which the child does not have.
            unsafe { libc::close(listener) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Runs once more in a process of its own, which ends.
    #[test]
    fn nic_failure_aborts_process() {
        const INSIDE: &str = "PAGEWIRE_TEST_OF_A_FAILING_NIC";
        if std::env::var_os(INSIDE).is_some() {
            or_abort(|| panic!("a defect"));
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "runtime::process::tests::nic_failure_aborts_process", "--nocapture"])
            .env(INSIDE, "yes")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{told}");
        assert!(told.contains("a defect\n") && told.contains("pagewire: the NIC's thread failed"), "{told}");
    }
}

//! The engine of this process: made when the first device is opened, gone in forked children.

use crate::boundary::{Errno, Result};
use crate::held::HeldOverForks;
use crate::limits::EXIT_PATIENCE_MILLISECONDS;
use crate::settings::Settings;
use crate::{device, explain};
use libc::EINVAL;
use pagewire_fabric::{Explained, FaultInjector, HostFabric};
use pagewire_memory::Uncancelled;
use pagewire_nic::device::devices;
use pagewire_nic::{Nic, PageFaultChoice};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

/// The world around the engine: the real one, with the faults that the environment asks for.
pub type Host = FaultInjector<HostFabric>;

/// A running engine.
pub struct Engine {
    nic: Arc<Nic<Host>>,
    settings: Settings,
}

impl Engine {
    /// The software NIC.
    pub fn nic(&self) -> &Arc<Nic<Host>> {
        &self.nic
    }

    /// Serves what has come in, before this process may end: datagrams that the kernel gave to its socket but that are for
    /// other processes (the port is shared) would be lost with the socket, last acknowledgements among them.
    pub fn last_round(&self) {
        self.nic.last_round();
    }

    /// What the environment asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

static ENGINE: HeldOverForks<Option<Arc<Engine>>> = HeldOverForks::new(None);

/// Whether there is a logger.
static LOGGING: HeldOverForks<bool> = HeldOverForks::new(false);

/// Counts the forks that separate this process from the one in which the library was loaded: the objects of a parent
/// carry its epoch, and are refused in the child.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// The listener of the explain socket, to be closed in forked children; -1: none.
static EXPLAIN_LISTENER: AtomicI32 = AtomicI32::new(-1);

/// The current epoch.
#[inline]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Refuses an environment that asks for something that does not exist, as early as a program looks for devices.
pub fn check_environment() -> Result<()> {
    settings().map(|_| ())
}

fn settings() -> Result<Settings> {
    let settings = Settings::from_environment().map_err(|reason| {
        tell(&reason);
        Errno(EINVAL)
    })?;
    start_logging(&settings.log);
    check_devices(&settings.page_faults)?;
    Ok(settings)
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
    tell(&format!("PAGEWIRE_PAGE_FAULTS names '{unknown}', which is no device here: {}", names.join(", ")));
    Err(Errno(EINVAL))
}

/// Says once on standard error why there is no NIC; the program itself would only say that it found no device.
fn tell(reason: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say(format_args!("{reason}"));
    }
}

/// Says once on standard error which limit keeps a verb from a descriptor; the program itself would only say that the verb failed.
pub fn tell_shortage(errno: i32) {
    static SAID: Once = Once::new();
    if matches!(errno, libc::EMFILE | libc::ENFILE) {
        SAID.call_once(|| say(format_args!("{}", Explained(&io::Error::from_raw_os_error(errno)))));
    }
}

/// Says once on standard error why the list of devices is empty.
pub fn tell_no_device() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        say(format_args!(
            "no verbs device: no network device in this network namespace is up and has an address that can be used (ip link \
             set lo up gives one for peers on this host; ip address add gives a network device an address)"
        ));
    });
}

/// A line on standard error; where that cannot be written to, nothing: the program has nothing to do with it.
pub(crate) fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(StandardError, "pagewire: {what}");
}

/// Shows on standard error, once for all, what the filter lets pass: with `debug` why calls were refused.
fn start_logging(filter: &str) {
    let mut started = LOGGING.lock();
    if *started {
        return;
    }
    *started = true;
    // Refused only where the program (a Rust one) has a logger of its own, which then gets the records.
    let target = env_logger::Target::Pipe(Box::new(StandardError));
    drop(env_logger::Builder::new().parse_filters(filter).target(target).try_init());
}

/// Where the log goes, from hot paths too: write(2) is a cancellation point, and no verb that logs may be one.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _uncancelled = Uncancelled::begin();
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let _uncancelled = Uncancelled::begin();
        io::stderr().flush()
    }
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

/// The engine of this process, if it has one.
pub fn running() -> Option<Arc<Engine>> {
    ENGINE.lock_within(Duration::from_millis(EXIT_PATIENCE_MILLISECONDS))?.clone()
}

fn start() -> Result<Arc<Engine>> {
    let settings = settings()?;
    let cannot_start = |error: &std::io::Error| tell(&format!("the NIC cannot start: {}", Explained(error)));
    let host = HostFabric::new().inspect_err(cannot_start)?;
    let nic = Nic::new(FaultInjector::new(host, settings.faults), settings.options());
    let engine = Arc::new(Engine { nic: nic.clone(), settings });
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

/// Registers, once, what happens at a fork: the child has no engine, and may start one of its own.
pub fn handle_forks() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the three are `extern "C"` functions of no arguments that stay loaded (a library with
        // threads is never unloaded: it is linked with -z nodelete).
        let failed = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
        if failed != 0 {
            log::warn!("fork handlers could not be registered: error {failed}");
        }
    });
}

/// Takes the engine's lock first: no thread waits for it while it has one of the others.
extern "C" fn before_fork() {
    ENGINE.hold();
    LOGGING.hold();
    device::KNOWN.hold();
}

extern "C" fn after_fork() {
    drop((ENGINE.held(), LOGGING.held(), device::KNOWN.held()));
}

extern "C" fn in_child() {
    let _uncancelled = Uncancelled::begin();
    EPOCH.fetch_add(1, Ordering::Relaxed);
    let listener: RawFd = EXPLAIN_LISTENER.swap(-1, Ordering::Relaxed);
    if listener >= 0 {
        // SAFETY: the child's copy of a descriptor that only the explain thread used, which the child does not have.
        unsafe { libc::close(listener) };
    }
    // The parent's engine is never touched again, not even to free it: its locks may be held by threads that are not here.
    if let Some(mut engine) = ENGINE.held() {
        std::mem::forget(engine.take());
    }
    drop((LOGGING.held(), device::KNOWN.held()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Runs once more in a process of its own, which ends.
    #[test]
    fn a_nic_that_fails_is_told_and_ends_the_process() {
        const INSIDE: &str = "PAGEWIRE_TEST_OF_A_FAILING_NIC";
        if std::env::var_os(INSIDE).is_some() {
            or_abort(|| panic!("a defect"));
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "engine::tests::a_nic_that_fails_is_told_and_ends_the_process", "--nocapture"])
            .env(INSIDE, "yes")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{told}");
        assert!(told.contains("a defect\n") && told.contains("pagewire: the NIC's thread failed"), "{told}");
    }
}

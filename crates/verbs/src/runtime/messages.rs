//! What a user sees on standard error: lines that say what an `errno` value does not, and the log.

use crate::objects::held::{HeldOverForks, LockOrder};
use pagewire_fabric::Explained;
use pagewire_memory::Uncancelled;
use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there is a logger.
static LOGGING: HeldOverForks<bool> = HeldOverForks::new(LockOrder::Logger, false, |_| {});

/// Says once on standard error why there is no NIC; the program itself would only say that it found no device.
pub fn tell(reason: &str) {
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
pub fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(StandardError, "pagewire: {what}");
}

/// Shows on standard error, once for all, what the filter lets pass: with `debug` why calls were refused.
pub fn start_logging(filter: &str) {
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

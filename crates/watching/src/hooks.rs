//! What the interface above does for watching and saving.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What the interface above does. A process sets it once, before it registers regions.
pub struct Hooks {
    /// Says a line to the user of the program.
    pub say: fn(Arguments<'_>),
    /// Has a listener closed in forked children.
    pub close_in_child: fn(RawFd),
    /// The file that the statistics of the process go to, if it has one.
    pub statistics: fn() -> Option<PathBuf>,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

impl Hooks {
    /// Sets them. The first call counts.
    pub fn set(self) {
        let _ = HOOKS.set(self);
    }
}

/// Says a line to the user of the program.
pub(crate) fn say(line: Arguments<'_>) {
    match HOOKS.get() {
        Some(hooks) => (hooks.say)(line),
        // Where standard error cannot be written to, nothing is said.
        None => drop(writeln!(io::stderr(), "pagewire: {line}")),
    }
}

/// Has a listener closed in forked children.
pub(crate) fn close_in_child(listener: RawFd) {
    if let Some(hooks) = HOOKS.get() {
        (hooks.close_in_child)(listener);
    }
}

/// The file that the statistics of the process go to.
pub(crate) fn statistics() -> Option<PathBuf> {
    HOOKS.get().and_then(|hooks| (hooks.statistics)())
}

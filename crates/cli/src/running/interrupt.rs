//! Being interrupted while other people's programs run: they are ended, and what was made for them is removed, first.

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The signal that has come; 0: none.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// The error of work that was given up because of a signal.
#[derive(Debug)]
pub struct Interrupted {
    /// Its number.
    pub signal: u8,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted by signal {}", self.signal)
    }
}

impl std::error::Error for Interrupted {}

/// From now on SIGINT, SIGTERM and SIGHUP only make [`check`] fail.
///
/// # Errors
/// The kernel's.
pub fn watch() -> Result<()> {
    let signal = SIGNAL.get_or_init(Arc::default);
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)?;
    }
    Ok(())
}

/// Whether a signal has come.
pub fn has_come() -> bool {
    signal() != 0
}

/// Gives up if a signal has come.
///
/// # Errors
/// [`Interrupted`].
pub fn check() -> Result<(), Interrupted> {
    match signal() {
        0 => Ok(()),
        signal => Err(Interrupted { signal }),
    }
}

fn signal() -> u8 {
    // One of the three above.
    SIGNAL.get().map_or(0, |signal| signal.load(Ordering::Relaxed)) as u8
}

//! futex(2) on private words.

use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// More threads than there can be.
pub const ALL: u32 = u32::MAX >> 1;

/// Sleeps while the word has this value, until a wake or the deadline. It may wake for no reason.
pub fn wait(word: &AtomicU32, value: u32, deadline: Option<Instant>) {
    let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
    // Each outcome is a reason to look at the word again.
    let _ = futex::wait(word, Flags::PRIVATE, value, timeout.as_ref());
}

/// Wakes so many that sleep at the word.
pub fn wake(word: &AtomicU32, most: u32) {
    // It fails for an address that is none only.
    let _ = futex::wake(word, Flags::PRIVATE, most);
}

/// Wakes all that sleep at the word.
pub fn wake_all(word: &AtomicU32) {
    wake(word, ALL);
}

fn timespec(time: Duration) -> Timespec {
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(time.subsec_nanos()) as _ }
}

//! Virtual time.

use crate::limits::{CLOCK_LEAP, CLOCK_STEP, LOOKS};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The clock of a world, in nanoseconds. It goes on a little with every look, so that whoever waits for a time
/// in a loop gets there; in steps that grow, while nothing but looks by that one happens.
#[derive(Default)]
pub struct Clock {
    now: AtomicU64,
    /// Whoever looked last.
    looker: AtomicUsize,
    /// Looks of that one in a row.
    looks: AtomicU32,
    /// Each look takes as long as the first.
    is_even: AtomicBool,
}

impl Clock {
    /// A process looks at the clock.
    pub fn look(&self, looker: usize) -> u64 {
        if self.looker.swap(looker, Ordering::Relaxed) != looker {
            self.stir();
        }
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        let step = match looks.checked_sub(LOOKS) {
            None => CLOCK_STEP,
            Some(_) if self.is_even.load(Ordering::Relaxed) => CLOCK_STEP,
            Some(more) => (CLOCK_STEP << more.min(20)).min(CLOCK_LEAP),
        };
        self.now.fetch_add(step, Ordering::Relaxed) + step
    }

    /// The time, without letting any pass.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Something happened besides looking.
    pub fn stir(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    /// Lets time pass.
    pub fn pass(&self, nanoseconds: u64) {
        self.now.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Has each look take as long as the first, where nobody waits for a time in a loop.
    pub fn make_even(&self) {
        self.is_even.store(true, Ordering::Relaxed);
    }

    /// Goes to a time, which may have been: that of another processor.
    pub fn set(&self, time: u64) {
        self.now.store(time, Ordering::Relaxed);
    }

    /// Goes to a time, if it is still to come.
    pub fn advance_to(&self, time: u64) {
        self.now.fetch_max(time, Ordering::Relaxed);
    }
}

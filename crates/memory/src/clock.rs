//! The kernel's coarse clock: a few nanoseconds to read, right to one tick (1 to 10 ms).

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment, up to the last tick.
#[inline]
pub fn tick() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

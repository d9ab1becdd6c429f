//! Whether pages that the kernel calls cheap are so.

use crate::types::limits::{EXPENSIVE, EXPENSIVE_REST, EXPENSIVE_TIMES};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Whether pages that are said to be cheap were so lately.
#[derive(Default)]
pub struct CheapPages {
    /// Until then threads bring them in, too: the last ones took long.
    expensive_until: AtomicU64,
    /// How many took long of those that were brought in last, one after the other.
    expensive: AtomicU32,
}

impl CheapPages {
    /// Whether threads bring them in, too.
    pub fn are_expensive(&self, now: u64) -> bool {
        now < self.expensive_until.load(Ordering::Relaxed)
    }

    /// So many bytes were brought in at once, which took so long. Once may be because this thread lost the processor.
    pub fn judge(&self, took: u64, bytes: u64, now: u64) {
        if took <= EXPENSIVE + bytes {
            self.expensive.store(0, Ordering::Relaxed);
        } else if self.expensive.fetch_add(1, Ordering::Relaxed) + 1 >= EXPENSIVE_TIMES {
            self.expensive_until.store(now + EXPENSIVE_REST, Ordering::Relaxed);
        }
    }
}

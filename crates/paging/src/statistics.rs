//! How many faults there were, and how long they took.

use crate::limits::BUCKETS;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the counts, what lists them, and their sum.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was counted of faults, by how they ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct FaultCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl FaultCounts {
            /// All of them, with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl AddAssign for FaultCounts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Pages came in at once, by the thread that met the fault.
    minor,
    /// A thread had to wait for them.
    major,
    /// Bytes of the accesses that met them.
    bytes,
    /// Bytes that were brought in ahead of accesses.
    bytes_ahead,
    /// Packets that waited for a page: kept,
    stashed,
    /// dropped, and asked for when it is there,
    resumed,
    /// and dropped with an RNR NAK or in silence: their source's timer has them sent again.
    timed_out,
}

/// Times by powers of two.
#[derive(Debug)]
pub struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Histogram {
    /// Counts one.
    pub fn add(&self, nanoseconds: u64) {
        let bucket = (nanoseconds.max(1).ilog2() as usize).min(BUCKETS - 1);
        self.0[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// The times that were counted: each bucket that has any, by the nanoseconds that its members stay below, and their number. The
    /// last one that there can be has no bound, and is told with `u64::MAX`.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let bound = |index: usize| if index + 1 == BUCKETS { u64::MAX } else { 2 << index };
        let all =
            self.0.iter().enumerate().map(|(index, count)| (bound(index), count.load(Ordering::Relaxed)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_below_its_bound_and_not_below_the_half_of_it() {
        for nanoseconds in [1, 2, 3, 999, 1000, 1 << 20, (1 << 39) - 1] {
            let histogram = Histogram::default();
            histogram.add(nanoseconds);
            let [(bound, 1)] = histogram.buckets()[..] else { panic!("{:?}", histogram.buckets()) };
            assert!(nanoseconds < bound && nanoseconds >= bound / 2, "{nanoseconds} {bound}");
        }
        let histogram = Histogram::default();
        for nanoseconds in [0, 1 << 39, u64::MAX] {
            histogram.add(nanoseconds);
        }
        assert_eq!(histogram.buckets(), [(2, 1), (u64::MAX, 2)]);
    }
}

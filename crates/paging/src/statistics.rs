//! How many faults there were, and how long they took.

use crate::limits::BUCKETS;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the counts twice: as they are read, and as several threads add to them.
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

        /// Counts of faults that several threads add to, and the times that the faults took.
        #[derive(Debug, Default)]
        pub struct Faults {
            $($name: AtomicU64,)*
            /// From the fault until the access could go on.
            pub latency: Histogram,
        }

        impl Faults {
            /// What was counted so far.
            pub fn counts(&self) -> FaultCounts {
                FaultCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
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

/// What became of a packet that waits for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was kept.
    Stashed,
    /// It was dropped, and is asked for when the page is there.
    Resumed,
    /// It was dropped, and its source's timer has it sent again.
    TimedOut,
}

impl From<Fate> for FaultCounts {
    fn from(fate: Fate) -> Self {
        let none = FaultCounts::default();
        match fate {
            Fate::Stashed => FaultCounts { stashed: 1, ..none },
            Fate::Resumed => FaultCounts { resumed: 1, ..none },
            Fate::TimedOut => FaultCounts { timed_out: 1, ..none },
        }
    }
}

impl Faults {
    /// Counts a fault that was met at once and took so many nanoseconds.
    pub fn count_resolved(&self, bytes: u64, nanoseconds: u64) {
        self.count_resolved_in_copy(bytes);
        self.latency.add(nanoseconds);
    }

    /// Counts one whose pages come while the bytes are moved: how long that delays them is not known.
    pub fn count_resolved_in_copy(&self, bytes: u64) {
        self.minor.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts one that a thread has to wait for; [`waited`](Self::waited) says how long it took.
    pub fn handed_on(&self, bytes: u64) {
        self.major.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A fault that was handed on has ended.
    pub fn waited(&self, nanoseconds: u64) {
        self.latency.add(nanoseconds);
    }

    /// Counts what is brought in before anybody needs it.
    pub fn ahead(&self, bytes: u64) {
        self.bytes_ahead.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a packet that waits for a page, which was kept, or dropped and is asked for, or neither.
    pub fn packet(&self, fate: Fate) {
        let count = match fate {
            Fate::Stashed => &self.stashed,
            Fate::Resumed => &self.resumed,
            Fate::TimedOut => &self.timed_out,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
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

    #[test]
    fn faults_are_counted_by_how_they_ended() {
        let faults = Faults::default();
        faults.count_resolved(8, 1000);
        faults.handed_on(4096);
        faults.waited(60_000);
        faults.ahead(1 << 20);
        faults.count_resolved_in_copy(100);
        for (fate, times) in [(Fate::Stashed, 1), (Fate::Resumed, 2), (Fate::TimedOut, 3)] {
            (0..times).for_each(|_| faults.packet(fate));
        }
        let counts = FaultCounts {
            minor: 2,
            major: 1,
            bytes: 4204,
            bytes_ahead: 1 << 20,
            stashed: 1,
            resumed: 2,
            timed_out: 3,
        };
        assert_eq!(faults.counts(), counts);
        assert_eq!(faults.latency.buckets(), [(1024, 1), (65_536, 1)]);
    }
}

//! Counts that say what happened, and counts of objects.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A number that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened at one queue pair.
#[derive(Default)]
pub struct QueuePairCounters {
    /// WRITEs and READs executed in the peer's memory, and their bytes.
    pub direct_operations: Counter,
    pub direct_bytes: Counter,
    /// Packets over the ring to a local peer.
    pub ring_packets_sent: Counter,
    pub ring_packets_received: Counter,
    /// Packets over the network.
    pub udp_packets_sent: Counter,
    pub udp_packets_received: Counter,
    /// Packets dropped: wrong source, wrong state, no room to wait.
    pub dropped: Counter,
    /// Times that an access waited for a page.
    pub page_waits: Counter,
}

/// A bounded number of objects.
pub struct ObjectCount {
    present: AtomicU32,
    limit: u32,
}

impl ObjectCount {
    /// At most `limit`.
    pub const fn new(limit: u32) -> Self {
        ObjectCount { present: AtomicU32::new(0), limit }
    }

    /// Counts one more, if it may be.
    pub fn take(&self, what: &'static str) -> Result<()> {
        self.present
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |present| {
                (present < self.limit).then_some(present + 1)
            })
            .map(drop)
            .map_err(|_| Error::NoMemory(what))
    }

    /// Counts one less.
    pub fn give_back(&self) {
        self.present.fetch_sub(1, Ordering::AcqRel);
    }
}

//! Counts that say what happened, and counts of objects.

use crate::types::error::{Error, Result};
use pagewire_fabric::AtomicCounter;
use pagewire_transport::{Disposition, DropCause};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What happened at one queue pair.
#[derive(Default)]
pub struct QueuePairCounters {
    /// WRITEs and READs executed in the peer's memory, and their bytes.
    pub initiator_copies: AtomicCounter,
    pub initiator_copy_bytes: AtomicCounter,
    /// Of these operations those that waited in the send queue before.
    pub initiator_copies_queued: AtomicCounter,
    /// The highest number of completed send requests that was told: it never falls.
    pub completed_reported: AtomicU64,
    /// Packets over the ring to a local peer, and those that came while another thread had the queue pair. The first two are
    /// counted by whoever has it.
    pub ring_packets_sent: AtomicCounter,
    pub ring_packets_received: AtomicCounter,
    pub ring_packets_kept: AtomicCounter,
    /// Packets over the network, and those that came while another thread had the queue pair. Whoever has the queue pair counts the
    /// first two.
    pub udp_packets_sent: AtomicCounter,
    pub udp_packets_received: AtomicCounter,
    pub udp_packets_kept: AtomicCounter,
    /// Packets dropped before they are executed: of a wrong source, type, partition, Q_Key or state, without space to wait; datagrams
    /// also without a receive, at an absent page, or longer than the port's MTU.
    pub dropped: AtomicCounter,
}

impl QueuePairCounters {
    /// Counts a packet that is dropped before the protocol sees it.
    pub fn drop_packet(&self, cause: DropCause) -> Disposition {
        self.dropped.add(1);
        Disposition::Dropped(cause)
    }

    /// The send requests that are complete, of which `retired` have been in the send queue: those executed at their post never are.
    pub fn completed(&self, retired: u64) -> u64 {
        // The two grow one after the other while a request is executed that was kept: one too many may be seen for that time.
        let at_once = self.initiator_copies.get().saturating_sub(self.initiator_copies_queued.get());
        let completed = retired + at_once;
        self.completed_reported.fetch_max(completed, Ordering::Relaxed).max(completed)
    }
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

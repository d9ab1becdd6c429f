//! Counts that say what happened, and counts of objects.

use crate::words::error::{Error, Result};
use pagewire_fabric::Counter;
use pagewire_transport::{RcCounters, UcCounters};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What happened at one queue pair.
#[derive(Default)]
pub struct QueuePairCounters {
    /// WRITEs and READs executed in the peer's memory, and their bytes.
    pub initiator_copies: Counter,
    pub initiator_copy_bytes: Counter,
    /// Of these operations those that waited in the send queue before.
    pub initiator_copies_queued: Counter,
    /// The highest number of completed send requests that was told: it never falls.
    pub completed_reported: AtomicU64,
    /// Packets over the ring to a local peer, and those that came while another thread had the queue pair. The first two are
    /// counted by whoever has it.
    pub ring_packets_sent: Counter,
    pub ring_packets_received: Counter,
    pub ring_packets_kept: Counter,
    /// Packets over the network, and those that came while another thread had the queue pair. Whoever has the queue pair counts the
    /// first two.
    pub udp_packets_sent: Counter,
    pub udp_packets_received: Counter,
    pub udp_packets_kept: Counter,
    /// Packets dropped: wrong source, wrong state, no room to wait, datagrams longer than the port's MTU.
    pub dropped: Counter,
}

impl QueuePairCounters {
    /// The send requests that are complete, of which `retired` have been in the send queue: those executed at their post never are.
    pub fn completed(&self, retired: u64) -> u64 {
        // The two grow one after the other while a request is executed that was kept: one too many may be seen for that time.
        let at_once = self.initiator_copies.get().saturating_sub(self.initiator_copies_queued.get());
        let completed = retired + at_once;
        self.completed_reported.fetch_max(completed, Ordering::Relaxed).max(completed)
    }
}

macro_rules! protocol_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the protocol of one queue pair met with beside what went well; all 0 for UD.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct ProtocolCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl ProtocolCounters {
            /// All of them, with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl AddAssign for ProtocolCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

protocol_counters! {
    /// Request packets sent again from a PSN on (go-back-N).
    retransmissions,
    /// Request packets sent again because only they were missing (between two Pagewires).
    selective_retransmissions,
    /// Times that the acknowledgement timer ran out and a retry was used up.
    timeouts,
    /// Times that the early timer between two Pagewires ran out; no retry is used up.
    probes,
    /// RNR NAKs received: the peer had no receive posted.
    rnr_naks_received,
    /// RNR NAKs sent: no receive was posted here.
    rnr_naks_sent,
    /// Sequence NAKs received: the peer misses a request.
    sequence_naks_received,
    /// Sequence NAKs sent: a request is missing here.
    sequence_naks_sent,
    /// Gaps in the responses that stood for a NAK.
    implied_naks,
    /// Requests received that had been executed before.
    duplicates,
    /// Packets received ahead of a missing one (for UC: gaps in what was received).
    out_of_order,
    /// Packets dropped because they belong to nothing: stale, or of a message that is not taken.
    stale,
    /// Times that the peer asked for patience because it waits for a page.
    holds_received,
    /// Times that the peer was asked for it.
    holds_sent,
    /// Packets kept because their access had to wait for a page.
    faults_stashed,
    /// Packets dropped for that (`PAGEWIRE_PAGE_FAULTS`).
    faults_dropped,
    /// Times that the peer was told which of its packets to send again, now that their pages are there.
    resumes_sent,
    /// Times that the peer told so, and something was sent again.
    resumes_received,
    /// UC messages dropped because no receive was posted.
    no_receive,
}

impl From<RcCounters> for ProtocolCounters {
    fn from(rc: RcCounters) -> Self {
        ProtocolCounters {
            retransmissions: rc.retransmissions,
            selective_retransmissions: rc.selective_retransmissions,
            timeouts: rc.timeouts,
            probes: rc.probes,
            rnr_naks_received: rc.rnr_naks_received,
            rnr_naks_sent: rc.rnr_naks_sent,
            sequence_naks_received: rc.sequence_naks_received,
            sequence_naks_sent: rc.sequence_naks_sent,
            implied_naks: rc.implied_naks,
            duplicates: rc.duplicates,
            out_of_order: rc.out_of_order,
            stale: rc.dropped,
            holds_received: rc.holds_received,
            holds_sent: rc.holds_sent,
            faults_stashed: rc.faults_stashed,
            faults_dropped: rc.faults_dropped,
            resumes_sent: rc.resumes_sent,
            resumes_received: rc.resumes_received,
            no_receive: 0,
        }
    }
}

impl From<UcCounters> for ProtocolCounters {
    fn from(uc: UcCounters) -> Self {
        ProtocolCounters {
            out_of_order: uc.gaps,
            stale: uc.dropped,
            no_receive: uc.no_receive,
            faults_dropped: uc.faults_dropped,
            ..Default::default()
        }
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

//! What the protocol of a connection counts. A place that counts never decides by it.

use std::ops::AddAssign;

macro_rules! protocol_counters {
    (reported { $($(#[$doc:meta])* $name:ident,)* } internal { $($(#[$about:meta])* $other:ident,)* }) => {
        /// What the protocol of one connection saw; all 0 for UD.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct ProtocolCounters {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$about])* pub $other: u64,)*
        }

        impl ProtocolCounters {
            /// Those that reports show, with their names: what happened beside what went well.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl AddAssign for ProtocolCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
                $(self.$other += other.$other;)*
            }
        }
    };
}

protocol_counters! {
    reported {
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
        /// Packets dropped because they belong to nothing: stale, foreign, or of a message that is not taken.
        stale,
        /// Times that the peer asked for patience because it waits for a page (HOLD).
        holds_received,
        /// Times that the peer was asked for it.
        holds_sent,
        /// Packets that the caller kept because their access had to wait for a page.
        faults_stashed,
        /// Packets dropped for that (`PAGEWIRE_PAGE_FAULTS`).
        faults_dropped,
        /// Times that the peer was told which of its packets to send again, now that their pages are there (RESUME).
        resumes_sent,
        /// Times that the peer told so, and something was sent again.
        resumes_received,
        /// UC messages dropped because no receive was posted.
        no_receive,
    }
    internal {
        /// Request packets sent, repetitions included.
        requests_sent,
        /// READ responses, atomic responses and acknowledgements sent.
        responses_sent,
        /// Packets given to `receive`.
        packets_received,
        /// Works executed by [`MemoryAccess::initiator_copy`](crate::MemoryAccess::initiator_copy).
        initiator_copies,
    }
}

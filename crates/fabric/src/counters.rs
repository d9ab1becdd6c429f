//! What the fabric counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// One count.
#[derive(Debug, Default)]
pub struct AtomicCounter(AtomicU64);

impl AtomicCounter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds to it where only one thread at a time does.
    pub fn add_alone(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Defines a struct of counters.
macro_rules! counters {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $type {
            $($(#[$doc])* pub $name: $crate::AtomicCounter,)*
        }

        impl $type {
            /// All of them, with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name.get()),)*].into_iter()
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// Counts of one fabric since its start.
    Counters {
        /// Datagrams handed to the kernel.
        datagrams_sent,
        /// UDP payload bytes handed to the kernel.
        bytes_sent,
        /// Sends that the kernel cut into several datagrams (UDP_SEGMENT).
        segmented_sends,
        /// Sends by sockets that are connected to their peers.
        connected_sends,
        /// Sockets made for what comes from one such socket of a peer.
        rx_peer_sockets,
        /// Packets handed to streams.
        stream_packets_sent,
        /// Their bytes.
        stream_bytes_sent,
        /// Packets that came by streams.
        stream_packets_received,
        /// Their bytes.
        stream_bytes_received,
        /// Datagrams that the kernel did not take for want of room (EAGAIN, ENOBUFS).
        dropped_no_room,
        /// Datagrams that it refused for another reason ([`HostFabric::send_reason`](crate::HostFabric::send_reason)).
        dropped_refused,
        /// Datagrams handed to the NIC.
        datagrams_received,
        /// Their UDP payload bytes.
        bytes_received,
        /// Datagrams whose ICRC was wrong.
        bad_icrc,
        /// Datagrams too short or too long for a RoCEv2 packet.
        bad_length,
        /// Datagrams whose headers do not parse.
        bad_headers,
        /// Datagrams for another process's queue pairs, handed on to it.
        forwarded,
        /// Datagrams that another process handed on to this one.
        forwarded_here,
        /// Datagrams for queue pairs of no process, or of one that takes no more.
        unknown_block,
        /// Times that steering was set up anew.
        steering_updates,
        /// Peers woken.
        wakes_sent,
        /// Wake-ups from peers.
        wakes_received,
        /// Channels made.
        channels,
        /// Handshakes that failed, and channels whose peer broke the rules.
        broken_peers,
        /// Requests to bring pages in.
        brought_in,
        /// Such requests that were dropped because too many waited.
        bring_in_overflow,
        /// Packets that the capture could not keep.
        capture_lost,
    }
}

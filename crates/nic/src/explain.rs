//! What the engine can say about its connections.

use crate::attributes::{QueuePairType, State};
use crate::engine::Nic;
use crate::queue_pair::QueuePair;
use pagewire_fabric::Fabric;
use std::net::IpAddr;
use std::sync::Arc;

/// One queue pair as `pagewire explain` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionReport {
    pub number: u32,
    pub kind: QueuePairType,
    pub state: State,
    /// The peer's queue pair and address; none for UD and before RTR.
    pub peer: Option<(u32, IpAddr)>,
    /// `local`, `udp`, `asked`, `dead` or `none`; `busy` while another thread holds the queue pair.
    pub path: &'static str,
    /// Why the path is not a better one.
    pub reason: String,
    pub direct_operations: u64,
    pub direct_bytes: u64,
    pub ring_packets_sent: u64,
    pub ring_packets_received: u64,
    pub udp_packets_sent: u64,
    pub udp_packets_received: u64,
    pub dropped: u64,
    pub page_waits: u64,
}

impl<F: Fabric> Nic<F> {
    /// The connections that exist now.
    pub fn explain(&self) -> Vec<ConnectionReport> {
        self.all_queue_pairs().iter().map(report).collect()
    }
}

fn report<F: Fabric>(queue_pair: &Arc<QueuePair<F>>) -> ConnectionReport {
    let attributes = queue_pair.query();
    let (path, reason) = match queue_pair.core.try_lock() {
        Some(core) => (core.path.name(), core.path.reason().to_owned()),
        None => ("busy", String::new()),
    };
    let connected = queue_pair.kind() != QueuePairType::Ud && attributes.destination != 0;
    let counters = &queue_pair.counters;
    ConnectionReport {
        number: queue_pair.number(),
        kind: queue_pair.kind(),
        state: attributes.state,
        peer: connected.then(|| {
            (attributes.destination, crate::device::address_of_gid(attributes.address.destination_gid))
        }),
        path,
        reason,
        direct_operations: counters.direct_operations.get(),
        direct_bytes: counters.direct_bytes.get(),
        ring_packets_sent: counters.ring_packets_sent.get(),
        ring_packets_received: counters.ring_packets_received.get(),
        udp_packets_sent: counters.udp_packets_sent.get(),
        udp_packets_received: counters.udp_packets_received.get(),
        dropped: counters.dropped.get(),
        page_waits: counters.page_waits.get(),
    }
}

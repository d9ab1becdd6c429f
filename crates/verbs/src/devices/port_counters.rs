//! What the ports' files in `hw_counters` and `counters` say: counts of this process's queue pairs, living and destroyed ones, by device.
//!
//! A file is shown only for what is counted. The names are those of soft-RoCE (the kernel's `rxe_hw_counters.c`) where it has one.

use crate::runtime::engine::Engine;
use crate::runtime::process::running;
use pagewire_memory::fork::PerProcess;
use pagewire_nic::device::Device;
use pagewire_nic::{ConnectionReport, ProtocolCounters};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts of the queue pairs of a device.
#[derive(Debug, Clone, Copy, Default)]
struct PortCounters {
    packets_sent: u64,
    packets_received: u64,
    local_operations: u64,
    local_bytes: u64,
    protocol: ProtocolCounters,
}

impl PortCounters {
    fn add(&mut self, report: &ConnectionReport) {
        self.packets_sent += report.udp_packets_sent + report.ring_packets_sent;
        self.packets_received += report.udp_packets_received + report.ring_packets_received;
        self.local_operations += report.initiator_copies;
        self.local_bytes += report.initiator_copy_bytes;
        if let Some(protocol) = report.protocol {
            self.protocol += protocol;
        }
    }
}

/// How a file gets its count.
type Read = fn(&PortCounters) -> u64;

/// The files below `ports/1`.
const FILES: [(&str, Read); 13] = [
    ("counters/port_xmit_packets", |of| of.packets_sent),
    ("counters/port_rcv_packets", |of| of.packets_received),
    ("hw_counters/sent_pkts", |of| of.packets_sent),
    ("hw_counters/rcvd_pkts", |of| of.packets_received),
    ("hw_counters/duplicate_request", |of| of.protocol.duplicates),
    ("hw_counters/out_of_seq_request", |of| of.protocol.out_of_order),
    ("hw_counters/rcvd_rnr_err", |of| of.protocol.rnr_naks_received),
    ("hw_counters/send_rnr_err", |of| of.protocol.rnr_naks_sent),
    ("hw_counters/rcvd_seq_err", |of| of.protocol.sequence_naks_received),
    ("hw_counters/completer_retry_err", |of| {
        of.protocol.retransmissions + of.protocol.selective_retransmissions
    }),
    ("hw_counters/local_ack_timeout_err", |of| of.protocol.timeouts),
    // WRITEs and READs that this process executed in the memory of a local peer: no packet is sent.
    ("hw_counters/local_operations", |of| of.local_operations),
    ("hw_counters/local_bytes", |of| of.local_bytes),
];

/// Counts of queue pairs that are destroyed, by the names of their devices.
static ENDED: PerProcess<BTreeMap<String, PortCounters>> = PerProcess::new();

/// The paths of the files below `ports/1`.
pub fn files() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, _)| *path)
}

/// What a file of a device says; 0 before this process has opened a device.
pub fn text(device: &Device, path: &str) -> String {
    let read = FILES.iter().find(|(known, _)| *known == path).map(|(_, read)| read);
    let count = read.map_or(0, |read| running().map_or(0, |engine| read(&counted(&engine, &device.name))));
    format!("{count}\n")
}

fn counted(engine: &Arc<Engine>, device: &str) -> PortCounters {
    let mut counters = ENDED.lock().get(device).copied().unwrap_or_default();
    for report in
        pagewire_nic::ConnectionReport::of_all(&engine.nic()).iter().filter(|report| report.device == device)
    {
        counters.add(report);
    }
    counters
}

/// Keeps what a queue pair counted that is gone.
pub fn remember(report: &ConnectionReport) {
    let mut ended = ENDED.lock();
    match ended.get_mut(&report.device) {
        Some(counters) => counters.add(report),
        None => ended.entry(report.device.clone()).or_default().add(report),
    }
}

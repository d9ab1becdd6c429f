//! What this process tells about its connections: the server behind `pagewire explain`, and the line in `PAGEWIRE_STATS`.
//!
//! The server listens on the abstract UNIX stream socket `\0pagewire-explain-PID`, or where a process of another PID namespace
//! has that, on `\0pagewire-explain-PID.N` with the smallest N from 1 on that is free. To a reader of the same user,
//! or root, it sends lines of JSON and closes; others get nothing. The first line is the process:
//!
//! ```json
//! {"pid":1,"program":"ib_write_bw","path_choice":"auto","page_faults":"stash","port":4791,
//!  "devices":[{"name":"pagewire0","interface":"eth0","addresses":["10.0.0.1"]}],
//!  "counters":{"datagrams_sent":9,"bad_icrc":0},"faults":{"dropped":0,"duplicated":0}}
//! ```
//!
//! `absent_pages` has the strategy of page-in (`PAGEWIRE_PAGE_IN`) and what was counted of accesses that met absent pages
//! (`pagewire_paging::FaultCounts`), in all, by device, and by region; `fault_latency` how long they were delayed: pairs of
//! nanoseconds and the number that stayed below them.
//!
//! `watch` is there if accesses to regions are watched (`PAGEWIRE_WATCH`): how many there were, and the pages with the most ([`WatchReport`]).
//!
//! `connection_manager` is there if the program has opened `/dev/infiniband/rdma_cm`: its IDs, and the last requests for connections that
//! were refused ([`ConnectionManagerReport`]).
//!
//! `port` is the UDP port, with `port_reason` where it is not 4791; `send_reason` says why the kernel last refused to send, and `refused_streams` why there are no streams.
//! `counters` are those of `pagewire_fabric::Counters`, `faults` what was done on purpose (`pagewire run --fail`).
//!
//! Each further line is one queue pair ([`QueuePairLine`]); counters only grow while it lives:
//!
//! ```json
//! {"qpn":256,"type":"RC","state":"RTS","peer_qpn":512,"peer":"10.0.0.1","path":"local","reason":"",
//!  "send_requests":1,"receive_requests":0,"send_requests_completed":9,
//!  "initiator_copies":7,"initiator_copy_bytes":448,"ring_packets_sent":2,"ring_packets_received":2,
//!  "packets_sent":0,"packets_received":0,"dropped":0,"page_waits":0,"protocol":{"retransmissions":0,"timeouts":0}}
//! ```
//!
//! `path` is `local`, `udp`, `connecting` (being chosen), `dead` (the path asked for cannot be had) or `none` (no peer yet);
//! `reason` says why it is not a better one. `state_reason` says why the state is ERR where the completion queue was overrun;
//! else it is absent. `peer` and `peer_qpn` are absent for UD and before RTR. `send_requests` are
//! posted and not complete, `receive_requests` posted and not taken by a message (absent with a shared receive queue).
//! `send_requests_completed` have ended, with success or an error, also those without a completion.
//! `packets_*` count RoCEv2 packets over UDP, `ring_packets_*` those through shared memory. `protocol` has the counters
//! of `pagewire_nic::ProtocolCounters`; it is absent if another thread works on the queue pair without a pause.
//!
//! At exit the same goes to the file that `PAGEWIRE_STATS` names, as one line: the process with its queue
//! pairs, living and ended ones, in `connections`. If more than 1024 have ended, it has the last of these, and the
//! number of the others in `connections_left_out`.

use crate::connection_manager::report::{self, ConnectionManagerReport};
use crate::devices::device_list::devices;
use crate::limits::{EXPLAIN_BACKLOG, MAX_ENDED_CONNECTIONS};
use crate::runtime::engine::Engine;
use pagewire_fabric::Fabric;
use pagewire_memory::above_low_numbers;
use pagewire_memory::fork::PerProcess;
use pagewire_nic::attributes::{QpState, QueuePairType};
use pagewire_nic::{ConnectionReport, FaultCounts, FaultReport};
use pagewire_watching::limits::ANSWER_TIMEOUT_SECONDS;
use pagewire_watching::process_socket::{bind, may_read};
use pagewire_watching::watch::{self, WatchReport};
use pagewire_watching::{program, remove_snapshot};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

/// The process that is asked.
#[derive(Serialize)]
struct ProcessLine {
    pid: u32,
    program: String,
    path_choice: &'static str,
    page_faults: String,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_streams: Vec<String>,
    devices: Vec<DeviceLine>,
    counters: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
    absent_pages: AbsentPages,
    fault_latency: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<WatchReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_manager: Option<ConnectionManagerReport>,
}

/// Accesses that met absent pages.
#[derive(Serialize)]
struct AbsentPages {
    page_in: &'static str,
    #[serde(flatten)]
    all: BTreeMap<&'static str, u64>,
    devices: BTreeMap<String, BTreeMap<&'static str, u64>>,
    regions: Vec<RegionLine>,
}

#[derive(Serialize)]
struct RegionLine {
    name: String,
    device: String,
    address: u64,
    length: u64,
    #[serde(flatten)]
    counts: BTreeMap<&'static str, u64>,
}

impl AbsentPages {
    fn of(engine: &Engine, report: FaultReport) -> Self {
        let of = |counts: FaultCounts| counts.all().collect();
        AbsentPages {
            page_in: engine.settings().page_in.name(),
            all: of(report.all),
            devices: report.devices.into_iter().map(|(device, counts)| (device, of(counts))).collect(),
            regions: report
                .regions
                .into_iter()
                .map(|region| RegionLine {
                    name: format!("{:#x}", region.memory.start),
                    device: region.device,
                    address: region.memory.start,
                    length: region.memory.end - region.memory.start,
                    counts: of(region.counts),
                })
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct DeviceLine {
    name: String,
    interface: String,
    addresses: Vec<String>,
}

/// One queue pair.
#[derive(Serialize, Clone)]
struct QueuePairLine {
    qpn: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_qpn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    path: &'static str,
    reason: String,
    send_requests: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    receive_requests: Option<u64>,
    send_requests_completed: u64,
    initiator_copies: u64,
    initiator_copy_bytes: u64,
    ring_packets_sent: u64,
    ring_packets_received: u64,
    packets_sent: u64,
    packets_received: u64,
    dropped: u64,
    page_waits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<BTreeMap<&'static str, u64>>,
}

/// The name of a state, as in `enum ibv_qp_state` without the prefix.
pub fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::ReadyToReceive => "RTR",
        QpState::ReadyToSend => "RTS",
        QpState::SendQueueDrain => "SQD",
        QpState::SendQueueError => "SQE",
        QpState::Error => "ERR",
    }
}

impl From<ConnectionReport> for QueuePairLine {
    fn from(report: ConnectionReport) -> Self {
        QueuePairLine {
            qpn: report.number,
            kind: match report.kind {
                QueuePairType::Rc => "RC",
                QueuePairType::Uc => "UC",
                QueuePairType::Ud => "UD",
                QueuePairType::XrcSend => "XRC_SEND",
                QueuePairType::XrcReceive => "XRC_RECV",
            },
            state: state_name(report.state),
            state_reason: report.state_reason,
            peer_qpn: report.peer.map(|(number, _)| number),
            peer: report.peer.map(|(_, address)| address.to_string()),
            path: report.path,
            reason: report.reason,
            send_requests: report.send_requests,
            receive_requests: report.receive_requests,
            send_requests_completed: report.send_requests_completed,
            initiator_copies: report.initiator_copies,
            initiator_copy_bytes: report.initiator_copy_bytes,
            ring_packets_sent: report.ring_packets_sent,
            ring_packets_received: report.ring_packets_received,
            packets_sent: report.udp_packets_sent,
            packets_received: report.udp_packets_received,
            dropped: report.dropped,
            page_waits: report.page_waits,
            protocol: report.protocol.map(|protocol| protocol.all().collect()),
        }
    }
}

fn process(engine: &Engine) -> io::Result<ProcessLine> {
    let devices = devices()?
        .into_iter()
        .map(|device| DeviceLine {
            name: device.name,
            interface: device.interface,
            addresses: device
                .gids
                .iter()
                .filter(|gid| !gid.is_empty())
                .map(|gid| gid.address.to_string())
                .collect(),
        })
        .collect();
    let host = engine.nic().fabric();
    let report = engine.nic().page_faults();
    Ok(ProcessLine {
        pid: std::process::id(),
        program: program(),
        path_choice: engine.settings().path.name(),
        page_faults: engine.settings().page_faults.to_string(),
        port: host.direct_port(),
        port_reason: host.port_reason(),
        send_reason: host.send_reason(),
        refused_streams: host.refused_streams(),
        devices,
        counters: host.counters().all().collect(),
        faults: host.fault_counters().all().collect(),
        fault_latency: report.latency.clone(),
        absent_pages: AbsentPages::of(engine, report),
        watch: watch::report(),
        connection_manager: report::report(),
    })
}

/// Starts the thread that answers; gives the listener, which is also the thread's.
pub fn serve(engine: &Arc<Engine>) -> io::Result<Arc<UnixListener>> {
    let listener = Arc::new(UnixListener::from(above_low_numbers(bind(NAME)?.into())?));
    // SAFETY: listen(2) on our own descriptor; it only shortens the queue that `bind_addr` chose.
    unsafe { libc::listen(listener.as_raw_fd(), EXPLAIN_BACKLOG) };
    let (engine, accepting) = (engine.clone(), listener.clone());
    pagewire_fabric::spawn("pagewire-explain", move || {
        loop {
            match accepting.accept() {
                Ok((reader, _)) => {
                    // A reader that goes away early is its own affair.
                    if let Err(error) = answer(&engine, reader) {
                        log::debug!("a reader of the explain socket was not answered: {error}");
                    }
                }
                Err(error) => {
                    log::debug!("explain socket: {error}");
                    // Out of descriptors, for instance: that may pass.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    })?;
    Ok(listener)
}

/// What the name of the socket begins with.
const NAME: &str = "pagewire-explain-";

fn answer(engine: &Engine, reader: UnixStream) -> io::Result<()> {
    if !may_read(&reader)? {
        return Ok(());
    }
    reader.set_write_timeout(Some(Duration::from_secs(ANSWER_TIMEOUT_SECONDS)))?;
    let mut text = serde_json::to_vec(&process(engine)?)?;
    text.push(b'\n');
    for report in pagewire_nic::ConnectionReport::of_all(engine.nic()) {
        serde_json::to_writer(&mut text, &QueuePairLine::from(report))?;
        text.push(b'\n');
    }
    (&reader).write_all(&text)
}

/// Queue pairs that were destroyed, for the statistics; the oldest are forgotten beyond the bound.
static ENDED: PerProcess<EndedQueuePairs> = PerProcess::new();

/// The queue pairs that are gone: the last of them, and how many went before.
#[derive(Default)]
struct EndedQueuePairs {
    kept: VecDeque<QueuePairLine>,
    left_out: u64,
}

/// Keeps the report of a queue pair that is gone, if statistics are wanted.
pub fn remember(engine: &Engine, report: ConnectionReport) {
    if engine.settings().statistics.is_none() {
        return;
    }
    let mut ended = ENDED.lock();
    if ended.kept.len() >= MAX_ENDED_CONNECTIONS {
        ended.kept.pop_front();
        ended.left_out += 1;
    }
    ended.kept.push_back(report.into());
}

/// Appends the statistics of this process to the file that the environment names.
pub fn write_statistics(engine: &Engine) -> io::Result<()> {
    #[derive(Serialize)]
    struct ReportedStatistics {
        #[serde(flatten)]
        process: ProcessLine,
        #[serde(skip_serializing_if = "Option::is_none")]
        connections_left_out: Option<u64>,
        connections: Vec<QueuePairLine>,
    }
    let Some(file) = &engine.settings().statistics else { return Ok(()) };
    let (mut connections, left_out) = {
        let ended = ENDED.lock();
        (Vec::from(ended.kept.clone()), ended.left_out)
    };
    connections
        .extend(pagewire_nic::ConnectionReport::of_all(engine.nic()).into_iter().map(QueuePairLine::from));
    let statistics = ReportedStatistics {
        process: process(engine)?,
        connections_left_out: (left_out > 0).then_some(left_out),
        connections,
    };
    let mut line = serde_json::to_vec(&statistics)?;
    line.push(b'\n');
    // One write of a file opened for appending: lines of several processes do not mix.
    std::fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(&line)?;
    remove_snapshot(file);
    Ok(())
}

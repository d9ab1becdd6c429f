//! What this process tells about its connection manager ([`explain`](crate::runtime::explain)): its IDs, and which requests were refused.

use super::service::{CmService, with_service};
use crate::limits::MAX_REPORTED_IDS;
use pagewire_cm::{KeptRefusal, PortSpace};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The connection manager of a process.
#[derive(Debug, Serialize)]
pub struct ConnectionManagerReport {
    /// Event channels that are open.
    event_channels: usize,
    /// Listeners first.
    ids: Vec<IdLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids_left_out: Option<usize>,
    /// Connections whose ID is destroyed, in timewait.
    lingering: usize,
    refusals_sent: u64,
    refusals_received: u64,
    /// The oldest first.
    refusals: Vec<RefusalLine>,
}

/// What librdmacm calls an `rdma_cm_id`.
#[derive(Debug, Serialize)]
struct IdLine {
    id: usize,
    space: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_pair: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_queue_pair: Option<u32>,
    is_listener: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<usize>,
}

#[derive(Debug, Serialize)]
struct RefusalLine {
    /// Seconds since 1970.
    time: f64,
    direction: &'static str,
    peer: String,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    count: u64,
    reason: String,
}

/// What there is to say; `None`: the program has opened no channel.
pub fn report() -> Option<ConnectionManagerReport> {
    with_service(|service| service.report())
}

impl CmService {
    fn report(&self) -> ConnectionManagerReport {
        let mut ids: Vec<IdLine> = self.ids.iter().filter_map(|(number, _)| self.id_line(number)).collect();
        ids.sort_by_key(|id| (!id.is_listener, id.id));
        let left_out = ids.len().saturating_sub(MAX_REPORTED_IDS);
        ids.truncate(MAX_REPORTED_IDS);
        let refusals = self.manager.refusals();
        let (now, date) = (self.now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        ConnectionManagerReport {
            event_channels: self.channels.len(),
            ids,
            ids_left_out: (left_out > 0).then_some(left_out),
            lingering: self.manager.lingering(),
            refusals_sent: refusals.sent(),
            refusals_received: refusals.received(),
            refusals: refusals.kept().map(|kept| refusal_line(kept, now, date)).collect(),
        }
    }

    fn id_line(&self, number: usize) -> Option<IdLine> {
        let id = self.ids.get(number)?;
        let endpoint = self.manager.report(id.endpoint)?;
        // The addresses are resolved before the manager knows the route.
        let is_resolved = endpoint.state == "bound" && id.destination.is_some();
        Some(IdLine {
            id: number,
            space: name_of(id.space),
            state: if is_resolved { "address resolved" } else { endpoint.state },
            source: id.source.map(|source| source.to_string()),
            destination: id.destination.map(|destination| destination.to_string()),
            queue_pair: endpoint.queue_pair,
            peer_queue_pair: endpoint.peer_queue_pair,
            is_listener: endpoint.listener.is_some(),
            waiting: endpoint.listener.map(|listener| listener.waiting),
            backlog: endpoint.listener.map(|listener| listener.backlog),
        })
    }
}

fn refusal_line(kept: &KeptRefusal, now: Duration, date: Duration) -> RefusalLine {
    let refusal = &kept.refusal;
    RefusalLine {
        time: date.saturating_sub(now.saturating_sub(kept.last)).as_secs_f64(),
        direction: refusal.direction.name(),
        peer: refusal.peer.to_string(),
        port: refusal.port,
        code: refusal.code(),
        count: kept.count,
        reason: refusal.sentence(),
    }
}

fn name_of(space: PortSpace) -> &'static str {
    match space {
        PortSpace::Tcp => "TCP",
        PortSpace::Udp => "UDP",
        PortSpace::Ib => "IB",
        PortSpace::IpoIb => "IPoIB",
    }
}

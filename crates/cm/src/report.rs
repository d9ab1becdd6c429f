//! What people see of a manager's endpoints.

use crate::connection::{Connection, ConnectionState};
use crate::endpoint::{EndpointId, EndpointState};
use crate::exchange::Exchange;
use crate::manager::ConnectionManager;
use crate::refusals::RefusalLog;

/// An endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointReport {
    /// Its state in words: that of its exchange, if it has one.
    pub state: &'static str,
    /// Number of its queue pair; `None`: it is not known (yet).
    pub queue_pair: Option<u32>,
    /// Number of the peer's queue pair.
    pub peer_queue_pair: Option<u32>,
    /// What only listeners have.
    pub listener: Option<ListenerReport>,
}

/// A listener's queue of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerReport {
    /// Requests of which the program has not heard.
    pub waiting: usize,
    /// As many may wait.
    pub backlog: usize,
}

impl ConnectionManager {
    /// What there is to say about an endpoint; `None`: there is none.
    pub fn report(&self, id: EndpointId) -> Option<EndpointReport> {
        let endpoint = self.endpoints.get(&id)?;
        let exchange = endpoint.exchange.and_then(|comm_id| self.exchanges.get(&comm_id));
        let listener = endpoint
            .listener
            .as_ref()
            .map(|listener| ListenerReport { waiting: listener.waiting.len(), backlog: listener.backlog });
        let (queue_pair, peer_queue_pair) = match exchange.map(|owned| &owned.exchange) {
            Some(Exchange::Connection(connection)) => {
                (connection.queue_pair(), connection.remote().queue_pair)
            }
            Some(Exchange::Service(service)) if service.is_active() => (0, service.queue_pair()),
            Some(Exchange::Service(service)) => (service.queue_pair(), 0),
            None => (0, 0),
        };
        let known = |number: u32| (number != 0).then_some(number);
        Some(EndpointReport {
            state: exchange.map_or_else(
                || name_of(endpoint.state),
                |owned| match &owned.exchange {
                    Exchange::Connection(connection) => state_of(connection),
                    Exchange::Service(service) => service.state_name(),
                },
            ),
            queue_pair: known(queue_pair),
            peer_queue_pair: known(peer_queue_pair),
            listener,
        })
    }

    /// Connections whose endpoint is gone, and whose last packets may be under way.
    pub fn lingering(&self) -> usize {
        self.exchanges.values().filter(|owned| owned.owner.is_none()).count()
    }

    /// Requests that were refused.
    pub fn refusals(&self) -> &RefusalLog {
        &self.refusals
    }
}

fn name_of(state: EndpointState) -> &'static str {
    match state {
        EndpointState::Idle => "idle",
        EndpointState::AddressBound => "bound",
        EndpointState::RouteResolved => "route resolved",
        EndpointState::Connect => "connecting",
        EndpointState::Disconnect => "disconnected",
        EndpointState::Listen => "listening",
    }
}

fn state_of(connection: &Connection) -> &'static str {
    match connection.state() {
        ConnectionState::ReqSent if connection.request_port().is_none() => "port query sent",
        ConnectionState::ReqSent => "REQ sent",
        ConnectionState::RepReceived => "REP received",
        ConnectionState::ReqReceived => "REQ received",
        ConnectionState::RepSent => "REP sent",
        ConnectionState::Established => "established",
        ConnectionState::DreqSent => "DREQ sent",
        ConnectionState::DreqReceived => "DREQ received",
        ConnectionState::Timewait => "timewait",
        ConnectionState::Refused => "refused",
        ConnectionState::Over => "over",
    }
}

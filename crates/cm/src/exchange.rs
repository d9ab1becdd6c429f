//! What an endpoint and a peer send messages about, and how the manager finds it.

use crate::active_request::ActiveRequest;
use crate::connection::{Connection, ConnectionState};
use crate::effects::Effects;
use crate::endpoint::{EndpointId, Route};
use crate::service_request::ServiceRequest;
use pagewire_wire::cm::CmDatagram;
use pagewire_wire::packet::PORT;
use std::net::IpAddr;
use std::time::Duration;

/// What an endpoint and a peer send messages about.
#[expect(clippy::large_enum_variant, reason = "most are connections")]
#[derive(Debug)]
pub(crate) enum Exchange {
    Connection(Connection),
    Service(ServiceRequest),
}

impl Exchange {
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self {
            Exchange::Connection(connection) => connection.deadline(),
            Exchange::Service(service) => service.deadline(),
        }
    }

    /// A message of the peer has come.
    pub(crate) fn receive(&mut self, datagram: &CmDatagram, now: Duration, effects: &mut Effects) {
        match self {
            Exchange::Connection(connection) => connection.receive(datagram, now, effects),
            Exchange::Service(service) => service.receive(datagram, now, effects),
        }
    }

    /// Does what is due.
    pub(crate) fn expire(&mut self, now: Duration, effects: &mut Effects) {
        match self {
            Exchange::Connection(connection) => connection.expire(now, effects),
            Exchange::Service(service) => service.expire(now, effects),
        }
    }

    /// The request that waits for its first answer.
    pub(crate) fn unanswered(&self) -> Option<&CmDatagram> {
        match self {
            Exchange::Connection(connection) => connection.unanswered(),
            Exchange::Service(service) => service.unanswered(),
        }
    }

    /// The request of this side as long as it is not answered.
    pub(crate) fn active_request(&self) -> Option<&ActiveRequest> {
        match self {
            Exchange::Connection(connection) => connection.active_request(),
            Exchange::Service(service) => service.active_request(),
        }
    }

    /// Whether this side gave up because no answer of a standard peer could come.
    pub(crate) fn is_cut_off(&self) -> bool {
        match self {
            Exchange::Connection(connection) => connection.is_cut_off(),
            Exchange::Service(service) => service.is_cut_off(),
        }
    }

    /// UDP port for messages that name no communication ID of the peer; `None`: the request has not left.
    pub(crate) fn request_port(&self) -> Option<u16> {
        match self {
            // It is kept after the end, for the last message.
            Exchange::Connection(connection) => connection.request_port(),
            Exchange::Service(service) => service.active_request().and_then(ActiveRequest::udp_port),
        }
    }

    /// The request that waits for its answer is refused in the name of its host. Where its process has ended another one may own the port.
    pub(crate) fn refuse(&mut self, udp_port: u16, now: Duration, effects: &mut Effects) {
        match self {
            _ if udp_port != PORT => {}
            Exchange::Connection(connection) => connection.ask_no_more(),
            Exchange::Service(service) => service.ask_no_more(),
        }
        if let Some(refusal) = self.unanswered().and_then(CmDatagram::refusal) {
            self.receive(&refusal, now, effects);
        }
    }

    /// The peer does not answer.
    pub(crate) fn give_up(&mut self, now: Duration, effects: &mut Effects) {
        match self {
            Exchange::Connection(connection) => connection.give_up(now, effects),
            Exchange::Service(service) => service.give_up(effects),
        }
    }

    /// What the peer is told if the endpoint is destroyed, or the process killed.
    pub(crate) fn last_words(&self) -> Option<CmDatagram> {
        match self {
            Exchange::Connection(connection) => connection.last_words(),
            Exchange::Service(service) => service.last_words(),
        }
    }

    /// The program destroys the endpoint.
    pub(crate) fn close(&mut self, now: Duration, effects: &mut Effects) {
        match self {
            Exchange::Connection(connection) => connection.close(now, effects),
            Exchange::Service(service) => service.close(effects),
        }
    }

    pub(crate) fn route(&self) -> &Route {
        match self {
            Exchange::Connection(connection) => connection.route(),
            Exchange::Service(service) => service.route(),
        }
    }

    /// The peer's queue pair, as long as it is that of this connection.
    pub(crate) fn peer_queue_pair(&self) -> Option<PeerKey> {
        let Exchange::Connection(connection) = self else { return None };
        let peer =
            (connection.route().destination.ip(), connection.peer().ca_guid, connection.remote().queue_pair);
        (connection.is_live() && connection.state() != ConnectionState::ReqSent).then_some(peer)
    }

    /// Whether this side has begun it.
    pub(crate) fn is_active(&self) -> bool {
        match self {
            Exchange::Connection(connection) => connection.is_active(),
            Exchange::Service(service) => service.is_active(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        match self {
            Exchange::Connection(connection) => connection.state() == ConnectionState::Over,
            Exchange::Service(service) => service.is_over(),
        }
    }
}

/// Names what a peer begins: its address, its GUID (for UD the service ID), and the ID that it gave.
pub(crate) type PeerKey = (IpAddr, u64, u32);

/// An exchange, with the endpoint whose it is as long as there is one.
#[derive(Debug)]
pub(crate) struct OwnedExchange {
    pub(crate) owner: Option<EndpointId>,
    pub(crate) exchange: Exchange,
    /// As it is noted in the manager's list.
    pub(crate) deadline: Option<Duration>,
    /// As it was given out last.
    pub(crate) last_words: Option<CmDatagram>,
    /// As it is noted in `begun_by_peers`.
    pub(crate) begun_by: Option<PeerKey>,
    /// As it is noted in `by_peer_queue_pair`.
    pub(crate) peer_queue_pair: Option<PeerKey>,
}

//! Requests that did not become connections: who refused whom, and why, for people who look at the process.
//!
//! Only the latest are kept ([`KEPT_REFUSALS`]). A peer that repeats its request counts up one of them.

use crate::effects::Effects;
use crate::endpoint::EndpointId;
use crate::event::EventKind;
use crate::exchange::Exchange;
use crate::incoming::IncomingDatagram;
use crate::limits::KEPT_REFUSALS;
use crate::manager::ConnectionManager;
use pagewire_wire::cm::{CmMessage, reject, sidr_status};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// Whose doing it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalDirection {
    /// This side refused a request of the peer.
    Sent,
    /// The peer refused this side's request, or what this side had accepted.
    Received,
    /// This side dropped a request of the peer without an answer: the peer repeats it.
    Dropped,
    /// The peer did not answer.
    Unanswered,
}

impl RefusalDirection {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            RefusalDirection::Sent => "sent",
            RefusalDirection::Received => "received",
            RefusalDirection::Dropped => "dropped",
            RefusalDirection::Unanswered => "unanswered",
        }
    }
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// A REJ with this reason ([`reject`]).
    Reject(u16),
    /// A `SIDR_REP` with this status ([`sidr_status`]).
    Service(u8),
    /// The process owns the port, and listens at other addresses of it. The REJ has reason 28.
    OtherAddress,
    /// The request came through the hands of another user, who has UDP port 4791. The REJ has reason 8.
    OtherUser,
    /// As many requests wait as the listener's backlog allows.
    BacklogFull,
    /// Endpoints or communication IDs are used up.
    NothingFree,
    /// No answer came in time.
    Silence,
    /// The peer is no Pagewire, and another user has UDP port 4791 of this host, where its answers would come.
    StandardPeer,
}

/// A refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Whose doing it was.
    pub direction: RefusalDirection,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Address that was asked: the peer's, or one of this host.
    pub listener: IpAddr,
    /// Port that was asked for.
    pub port: u16,
    /// Why.
    pub cause: RefusalCause,
}

impl Refusal {
    /// The number that a REJ or a `SIDR_REP` gave.
    pub fn code(&self) -> Option<u16> {
        match self.cause {
            RefusalCause::Reject(reason) => Some(reason),
            RefusalCause::Service(status) => Some(status.into()),
            RefusalCause::OtherAddress => Some(reject::CONSUMER_DEFINED),
            RefusalCause::OtherUser => Some(reject::INVALID_SERVICE_ID),
            RefusalCause::BacklogFull
            | RefusalCause::NothingFree
            | RefusalCause::Silence
            | RefusalCause::StandardPeer => None,
        }
    }

    /// A sentence for people.
    pub fn sentence(&self) -> String {
        let Refusal { peer, listener, port, .. } = *self;
        let is_own = self.direction == RefusalDirection::Sent;
        match self.cause {
            RefusalCause::Reject(reject::INVALID_SERVICE_ID)
            | RefusalCause::Service(sidr_status::NOT_SUPPORTED) => {
                format!("nobody listens at port {port} of {listener}")
            }
            RefusalCause::OtherAddress => {
                format!("the process that owns port {port} listens at another address than {listener}")
            }
            RefusalCause::Reject(reject::CONSUMER_DEFINED) | RefusalCause::Service(sidr_status::REJECTED) => {
                match is_own {
                    true => format!("this program refused the request of {peer} for port {port}"),
                    false => format!(
                        "the program at port {port} of {listener} refused, or it listens at another address"
                    ),
                }
            }
            RefusalCause::Reject(reject::STALE_CONNECTION) => {
                "the queue pair of the request is still that of an earlier connection, which ends now"
                    .to_owned()
            }
            RefusalCause::Reject(reject::TIMEOUT) => {
                format!("{peer} gave up: it got no answer in time")
            }
            RefusalCause::Reject(reject::INVALID_COMM_ID) => {
                format!(
                    "the connection is not known at {}: it has ended there",
                    if is_own { listener } else { peer }
                )
            }
            RefusalCause::Reject(reject::INVALID_GID) => {
                "the request names other addresses than its datagram has".to_owned()
            }
            RefusalCause::OtherUser => format!(
                "another user has UDP port 4791 of {listener}: only hosts with Pagewire reach port {port} of this process, at its direct port"
            ),
            RefusalCause::StandardPeer => format!(
                "{peer} did not answer as a Pagewire does, and others cannot answer: another user has UDP port 4791 of this host"
            ),
            RefusalCause::BacklogFull => format!(
                "the backlog of the listener at port {port} is full: the program does not take its events"
            ),
            RefusalCause::NothingFree => "all IDs of this process are in use".to_owned(),
            RefusalCause::Silence => format!(
                "{peer} did not answer: no connection manager runs there, a firewall drops port 4791 (UDP and TCP), \
                 the port belongs to another user, or the program takes no events"
            ),
            RefusalCause::Reject(reason) => format!("reason {reason} of a REJ"),
            RefusalCause::Service(status) => format!("status {status} of a SIDR_REP"),
        }
    }
}

/// A refusal that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptRefusal {
    /// What happened.
    pub refusal: Refusal,
    /// When it happened last.
    pub last: Duration,
    /// How often, in a row of repeated requests.
    pub count: u64,
}

/// Refusals of a manager.
#[derive(Debug, Default)]
pub struct RefusalLog {
    now: Duration,
    kept: VecDeque<KeptRefusal>,
    sent: u64,
    received: u64,
}

impl RefusalLog {
    /// The latest, the oldest first.
    pub fn kept(&self) -> impl Iterator<Item = &KeptRefusal> {
        self.kept.iter()
    }

    /// Requests of peers that this side refused or dropped.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Requests of this side that peers refused or did not answer.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Refusals are of this time until the next call.
    pub(crate) fn set_time(&mut self, now: Duration) {
        self.now = now;
    }

    fn add(&mut self, refusal: Refusal) {
        match refusal.direction {
            RefusalDirection::Sent | RefusalDirection::Dropped => self.sent += 1,
            RefusalDirection::Received | RefusalDirection::Unanswered => self.received += 1,
        }
        let known = self.kept.iter().position(|kept| kept.refusal == refusal);
        let count = known.and_then(|at| self.kept.remove(at)).map_or(1, |kept| kept.count + 1);
        if self.kept.len() >= KEPT_REFUSALS {
            self.kept.pop_front();
        }
        self.kept.push_back(KeptRefusal { refusal, last: self.now, count });
    }

    /// A request of a peer was refused because its queue pair has a connection.
    pub(crate) fn add_stale(&mut self, incoming: &IncomingDatagram<'_>, service_id: u64) {
        let cause = RefusalCause::Reject(reject::STALE_CONNECTION);
        self.add_incoming(incoming, service_id, RefusalDirection::Sent, cause);
    }

    /// A request of a peer was refused because no listener takes it, for this reason of a REJ.
    pub(crate) fn add_unheard(&mut self, incoming: &IncomingDatagram<'_>, service_id: u64, reason: u16) {
        let cause = match reason {
            reject::CONSUMER_DEFINED => RefusalCause::OtherAddress,
            reason => RefusalCause::Reject(reason),
        };
        self.add_incoming(incoming, service_id, RefusalDirection::Sent, cause);
    }

    /// A request of a peer came through the hands of another user.
    pub(crate) fn add_of_other_user(&mut self, incoming: &IncomingDatagram<'_>, service_id: u64) {
        self.add_incoming(incoming, service_id, RefusalDirection::Sent, RefusalCause::OtherUser);
    }

    fn add_incoming(
        &mut self,
        incoming: &IncomingDatagram<'_>,
        service_id: u64,
        direction: RefusalDirection,
        cause: RefusalCause,
    ) {
        let (peer, listener) = (incoming.source, incoming.destination);
        self.add(Refusal { direction, peer, listener, port: service_id as u16, cause });
    }

    /// Keeps what a step of an exchange has refused, or has learned of a refusal.
    pub(crate) fn add_effects(&mut self, exchange: &Exchange, effects: &Effects) {
        let route = exchange.route();
        let (peer, own) = (route.destination, route.source);
        let asked = if exchange.is_active() { peer } else { own };
        let mut add = |direction, cause| {
            self.add(Refusal { direction, peer: peer.ip(), listener: asked.ip(), port: asked.port(), cause });
        };
        for datagram in &effects.datagrams {
            match &datagram.message {
                // Who gives up refuses nothing.
                CmMessage::Rej(rej) if rej.reason != reject::TIMEOUT => {
                    add(RefusalDirection::Sent, RefusalCause::Reject(rej.reason));
                }
                CmMessage::SidrRep(answer) if answer.status != sidr_status::VALID => {
                    add(RefusalDirection::Sent, RefusalCause::Service(answer.status));
                }
                _ => {}
            }
        }
        for event in &effects.events {
            match event {
                EventKind::Rejected { reason, .. } => {
                    add(RefusalDirection::Received, RefusalCause::Reject(*reason));
                }
                EventKind::ServiceRefused { status, .. } => {
                    add(RefusalDirection::Received, RefusalCause::Service(*status));
                }
                EventKind::Unreachable => {
                    let cause = if exchange.is_cut_off() {
                        RefusalCause::StandardPeer
                    } else {
                        RefusalCause::Silence
                    };
                    add(RefusalDirection::Unanswered, cause);
                }
                _ => {}
            }
        }
    }
}

impl ConnectionManager {
    /// A request of a peer was dropped: its listener has no room, or this process has no ID for it.
    pub(crate) fn note_dropped(
        &mut self,
        incoming: &IncomingDatagram<'_>,
        service_id: u64,
        listener: EndpointId,
    ) {
        let state = self.endpoints.get(&listener).and_then(|endpoint| endpoint.listener.as_ref());
        let is_full = state.is_some_and(|state| state.waiting.len() >= state.backlog);
        let cause = if is_full { RefusalCause::BacklogFull } else { RefusalCause::NothingFree };
        self.refusals.add_incoming(incoming, service_id, RefusalDirection::Dropped, cause);
    }
}

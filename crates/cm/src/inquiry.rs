//! Where the owner of a port takes messages: what the active side asks before a request with its private data leaves for another host.
//!
//! UDP port 4791 of that host may be another user's, who must not see the request. Every Pagewire that has the port hands the query to the owner, or
//! answers that there is none. A kernel answers that it does not support the query. Silence counts as that, after [`limits::query_patience`].

use crate::effects::Effects;
use crate::limits;
use pagewire_wire::cm::{CmDatagram, CmMessage, PORT_QUERY_MARK, PortQuery};
use pagewire_wire::packet::{DIRECT_PORTS, PORT};
use std::time::Duration;

/// Which service the active side asks for, and how it asks for the port of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceQuery {
    /// Its service ID.
    pub service_id: u64,
    /// Transaction of the first query for its port. Strangers must not guess it: who knows it can say where the request goes.
    pub transaction: u64,
}

/// What is known of where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestDestination {
    /// A Pagewire takes it at this UDP port.
    Pagewire(u16),
    /// A Pagewire says that nobody owns the port.
    Nobody,
    /// The peer is no Pagewire.
    Standard,
    /// The peer has not answered.
    Silent,
}

/// A query that is sent again until it is answered.
#[derive(Debug)]
pub(crate) struct Inquiry {
    query: CmDatagram,
    next: Duration,
    interval: Duration,
    /// Times that it is still sent.
    left: u8,
}

impl Inquiry {
    /// Sends the first query at `now`, when it expires. A peer that was silent before gets one query.
    pub(crate) fn begin(service: ServiceQuery, comm_id: u32, was_silent: bool, now: Duration) -> Self {
        let (mark, local_comm_id, service_id) = (PORT_QUERY_MARK, comm_id, service.service_id);
        let query = CmDatagram::new(service.transaction, PortQuery { mark, local_comm_id, service_id });
        let left = if was_silent { 1 } else { limits::QUERIES };
        Inquiry { query, next: now, interval: limits::QUERY_INTERVAL, left }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.next
    }

    /// Sends the query again if it is time. `Silent`: it was sent often enough.
    pub(crate) fn expire(&mut self, now: Duration, effects: &mut Effects) -> Option<RequestDestination> {
        if now < self.next {
            return None;
        }
        if self.left == 0 {
            return Some(RequestDestination::Silent);
        }
        effects.datagrams.push(self.query.clone());
        (self.left, self.next, self.interval) = (self.left - 1, now + self.interval, 2 * self.interval);
        None
    }

    /// What an answer says; `None`: it answers another query, or names a port at which no Pagewire takes messages.
    pub(crate) fn destination(&self, datagram: &CmDatagram) -> Option<RequestDestination> {
        let CmMessage::PortAnswer(answer) = &datagram.message else { return None };
        if datagram.transaction != self.query.transaction {
            return None;
        }
        match answer.udp_port {
            _ if datagram.status != 0 => Some(RequestDestination::Standard),
            0 => Some(RequestDestination::Nobody),
            port if port == PORT || DIRECT_PORTS.contains(&port) => Some(RequestDestination::Pagewire(port)),
            _ => None,
        }
    }
}

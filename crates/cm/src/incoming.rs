//! Datagrams that came to queue pair 1: which exchange of the manager one is for, what a peer begins, and what is refused.

use crate::connection::{Connection, ConnectionState};
use crate::effects::Effects;
use crate::endpoint::{EndpointId, PortSpace, Route};
use crate::event::EventKind;
use crate::exchange::{Exchange, PeerKey};
use crate::manager::{ConnectionManager, HOP_LIMIT, OutgoingDatagram};
use crate::service_request::ServiceRequest;
use pagewire_wire::cm::{
    CmDatagram, CmMessage, IP_SERVICE_LEN, IpService, PortQuery, Rej, Req, SidrReq, reject,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// By what way a datagram came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From a process of this host.
    ThisHost,
    /// From the network.
    Network,
    /// From the network, by the hands of another user, who has UDP port 4791: it may have been read, or made up.
    OtherUser,
}

/// A datagram that came to queue pair 1.
#[derive(Debug, Clone, Copy)]
pub struct IncomingDatagram<'a> {
    /// Who sent it.
    pub source: IpAddr,
    /// The address of this host that it was sent to.
    pub destination: IpAddr,
    /// By what way.
    pub origin: Origin,
    /// What it says.
    pub datagram: &'a CmDatagram,
}

impl ConnectionManager {
    /// Takes a datagram that came to queue pair 1.
    pub fn receive(&mut self, now: Duration, incoming: &IncomingDatagram<'_>) {
        self.refusals.set_time(now);
        if let CmMessage::PortQuery(query) = &incoming.datagram.message {
            return self.answer_port_query(incoming, query);
        }
        if incoming.origin == Origin::OtherUser {
            return self.refuse_of_other_user(incoming);
        }
        match self.addressee(incoming) {
            Some(comm_id) => {
                self.step(comm_id, |exchange, effects| exchange.receive(incoming.datagram, now, effects));
            }
            None => match &incoming.datagram.message {
                CmMessage::Req(req) => self.begin_connection(now, incoming, req),
                CmMessage::SidrReq(request) => self.begin_service(incoming, request),
                // A connection that is not there any more.
                _ => self.refuse(incoming),
            },
        }
    }

    /// Nobody has a UDP port of a host: what was asked there is refused in its name, as if nobody listened.
    pub fn refuse_unanswered(&mut self, now: Duration, source: IpAddr, destination: SocketAddr) {
        let udp_port = destination.port();
        for comm_id in self.unanswered(source, destination.ip()) {
            self.step(comm_id, |exchange, effects| {
                if exchange.active_request().is_some_and(|request| request.awaited_port() == udp_port) {
                    exchange.refuse(udp_port, now, effects);
                }
            });
        }
    }

    /// A host cannot be reached: nobody waits for its answers any more.
    pub fn give_up_unanswered(&mut self, now: Duration, source: IpAddr, destination: IpAddr) {
        for comm_id in self.unanswered(source, destination) {
            self.step(comm_id, |exchange, effects| exchange.give_up(now, effects));
        }
    }

    /// Processes of this host with whose connections nothing is under way: where one is killed no message tells of it. Each is named by the
    /// upper half of its communication IDs.
    pub fn silent_local_peers(&self) -> BTreeSet<u16> {
        self.silent_local_connections().map(|(_, connection)| block_of_peer(connection)).collect()
    }

    /// A process of this host has ended, and perhaps nobody has sent its last words: its connections end as by its DREQ.
    pub fn end_local_peer(&mut self, now: Duration, block: u16) {
        let of_peer = self.silent_local_connections().filter(|(_, own)| block_of_peer(own) == block);
        for comm_id in of_peer.map(|(comm_id, _)| comm_id).collect::<Vec<_>>() {
            self.step(comm_id, |exchange, effects| {
                if let Exchange::Connection(connection) = exchange {
                    connection.lose_peer(now, effects);
                }
            });
        }
    }

    fn silent_local_connections(&self) -> impl Iterator<Item = (u16, &Connection)> {
        self.exchanges.iter().filter_map(|(comm_id, owned)| match &owned.exchange {
            Exchange::Connection(connection) => {
                let is_silent = match connection.state() {
                    ConnectionState::Established => true,
                    // An MRA has told who has the request.
                    ConnectionState::ReqSent => connection.peer().comm_id != 0,
                    _ => false,
                };
                (is_silent && connection.route().is_on_this_host).then_some((*comm_id, connection))
            }
            Exchange::Service(_) => None,
        })
    }

    /// Exchanges of which a host has not answered the request.
    fn unanswered(&self, source: IpAddr, destination: IpAddr) -> Vec<u16> {
        let is_asked = |exchange: &Exchange| {
            let route = exchange.route();
            (route.source.ip(), route.destination.ip()) == (source, destination)
                && exchange.unanswered().is_some()
        };
        let asked = self.exchanges.iter().filter(|(_, owned)| is_asked(&owned.exchange));
        asked.map(|(comm_id, _)| *comm_id).collect()
    }

    /// The exchange that a message is for; `None`: it is for none yet, or for none any more. What another address sends is nobody's.
    fn addressee(&self, incoming: &IncomingDatagram<'_>) -> Option<u16> {
        let source = incoming.source;
        if let Some(key) = key_of_beginning(incoming) {
            return self.begun_by_peers.get(&key).copied();
        }
        let own = incoming.datagram.receiver_comm_id()?;
        let comm_id = own as u16;
        let exchange = &self.exchanges.get(&comm_id)?.exchange;
        let is_own = own == self.side_name(comm_id).comm_id;
        (is_own && exchange.route().destination.ip() == source).then_some(comm_id)
    }

    fn begin_connection(&mut self, now: Duration, incoming: &IncomingDatagram<'_>, req: &Req) {
        if self.end_stale(now, incoming.source, req) {
            self.refusals.add_stale(incoming, req.service_id);
            return self.refuse_req(incoming, req, reject::STALE_CONNECTION);
        }
        let (head, data) = req.private_data.split_at(IP_SERVICE_LEN);
        let (listener, route) = match self.listener_for(req.service_id, head, incoming) {
            Ok(found) => found,
            Err(reason) => {
                self.refusals.add_unheard(incoming, req.service_id, reason);
                return self.refuse_req(incoming, req, reason);
            }
        };
        let route = Route {
            mtu: req.mtu,
            traffic_class: req.traffic_class,
            hop_limit: req.hop_limit.max(1),
            ack_timeout: req.ack_timeout,
            ..route
        };
        let Some((child, comm_id)) = self.make_child(listener, route) else {
            return self.note_dropped(incoming, req.service_id, listener);
        };
        let psn = self.random.u32(..1 << 24);
        let own = self.side_name(comm_id);
        let connection = Connection::requested((own, route, psn), incoming.datagram.transaction, req);
        let (remote, private_data) = (*connection.remote(), data.to_vec());
        let event = EventKind::ConnectRequest { listener, remote, private_data };
        self.begin_of_peer(child, comm_id, Exchange::Connection(connection), incoming, event);
    }

    fn begin_service(&mut self, incoming: &IncomingDatagram<'_>, request: &SidrReq) {
        let (head, data) = request.private_data.split_at(IP_SERVICE_LEN);
        let (listener, route) = match self.listener_for(request.service_id, head, incoming) {
            Ok(found) => found,
            Err(reason) => {
                self.refusals.add_unheard(incoming, request.service_id, reason);
                // SIDR_REP has one status for all reasons.
                return self.refuse(incoming);
            }
        };
        let Some((child, comm_id)) = self.make_child(listener, route) else {
            return self.note_dropped(incoming, request.service_id, listener);
        };
        let service = ServiceRequest::received(route, incoming.datagram.transaction, request);
        let event = EventKind::ServiceRequest { listener, private_data: data.to_vec() };
        self.begin_of_peer(child, comm_id, Exchange::Service(service), incoming, event);
    }

    fn begin_of_peer(
        &mut self,
        child: EndpointId,
        comm_id: u16,
        exchange: Exchange,
        incoming: &IncomingDatagram<'_>,
        event: EventKind,
    ) {
        let mut effects = Effects::default();
        effects.events.push(event);
        self.begin(child, comm_id, exchange, key_of_beginning(incoming), effects);
    }

    /// Ends a connection with the queue pair of a new REQ: its peer has forgotten it (section 12.4.1). True: there was one.
    fn end_stale(&mut self, now: Duration, source: IpAddr, req: &Req) -> bool {
        let named = (source, req.ca_guid, req.queue_pair);
        let Some(&comm_id) = self.by_peer_queue_pair.get(&named) else { return false };
        self.step(comm_id, |exchange, effects| {
            if let Exchange::Connection(connection) = exchange {
                // One that is not established yet gets its REJ or its REP's end by itself.
                let _is_established = connection.disconnect(now, effects);
            }
        });
        true
    }

    /// The endpoint that takes requests for a service, and the way back; else the reason of a REJ.
    fn listener_for(
        &self,
        service_id: u64,
        head: &[u8],
        incoming: &IncomingDatagram<'_>,
    ) -> Result<(EndpointId, Route), u16> {
        let (space, port) = PortSpace::of_service_id(service_id).ok_or(reject::INVALID_SERVICE_ID)?;
        let service = IpService::parse(head).ok_or(reject::INVALID_SERVICE_ID)?;
        let (source, destination) = (incoming.source, incoming.destination);
        if (service.source, service.destination) != (source, destination) {
            return Err(reject::INVALID_GID);
        }
        let of_port = self.listeners.get(&(space, port)).ok_or(reject::INVALID_SERVICE_ID)?;
        let takes = |id: &&EndpointId| {
            self.endpoints.get(id).is_some_and(|listener| listener.listens_at(destination))
        };
        let listener = of_port.iter().find(takes).ok_or(reject::CONSUMER_DEFINED)?;
        let route = Route {
            source: SocketAddr::new(destination, port),
            destination: SocketAddr::new(source, service.source_port),
            mtu: 0,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            is_on_this_host: incoming.origin == Origin::ThisHost,
            takes_standard_answers: true,
            ack_timeout: 0,
        };
        Ok((*listener, route))
    }

    /// An endpoint for a request, and a communication ID. `None`: the backlog is full, or nothing is free; the peer asks again.
    fn make_child(&mut self, listener: EndpointId, route: Route) -> Option<(EndpointId, u16)> {
        let parent = self.endpoints.get_mut(&listener)?;
        let (space, state) = (parent.space, parent.listener.as_mut()?);
        if state.waiting.len() >= state.backlog {
            return None;
        }
        let comm_id = self.free_comm_id().ok()?;
        let child = self.create(space).ok()?;
        let endpoint = self.endpoints.get_mut(&child)?;
        (endpoint.source, endpoint.route) = (Some(route.source), Some(route));
        endpoint.undelivered_to = Some(listener);
        self.endpoints.get_mut(&listener)?.listener.as_mut()?.waiting.insert(child);
        Some((child, comm_id))
    }

    /// The query came to the owner of the port. It says nothing of the request, and may come through anybody's hands.
    fn answer_port_query(&mut self, incoming: &IncomingDatagram<'_>, query: &PortQuery) {
        let answer = query.answer(self.udp_port());
        self.send_answer(incoming, CmDatagram::new(incoming.datagram.transaction, answer));
    }

    /// What came through another user's hands is not believed. Who asks for a connection need not wait in vain.
    fn refuse_of_other_user(&mut self, incoming: &IncomingDatagram<'_>) {
        if let (CmMessage::Req(_) | CmMessage::SidrReq(_), Some(service_id)) =
            (&incoming.datagram.message, incoming.datagram.service_id())
        {
            self.refusals.add_of_other_user(incoming, service_id);
            self.refuse(incoming);
        }
    }

    fn refuse_req(&mut self, incoming: &IncomingDatagram<'_>, req: &Req, reason: u16) {
        let rej = Rej { remote_comm_id: req.local_comm_id, reason, ..Rej::default() };
        self.send_answer(incoming, CmDatagram::new(incoming.datagram.transaction, rej));
    }

    fn refuse(&mut self, incoming: &IncomingDatagram<'_>) {
        if let Some(refusal) = incoming.datagram.refusal() {
            self.send_answer(incoming, refusal);
        }
    }

    /// Sends an answer to who has sent a datagram.
    fn send_answer(&mut self, incoming: &IncomingDatagram<'_>, datagram: CmDatagram) {
        self.datagrams.push_back(OutgoingDatagram {
            source: incoming.destination,
            destination: incoming.source,
            udp_port: datagram.udp_port(),
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            datagram,
        });
    }
}

fn block_of_peer(connection: &Connection) -> u16 {
    (connection.peer().comm_id >> 16) as u16
}

/// What names an exchange in a message of the peer that began it, and does not name this side: a request, or its end before an answer was
/// seen, where the active side names itself alone (section 12.6.7.2).
fn key_of_beginning(incoming: &IncomingDatagram<'_>) -> Option<PeerKey> {
    let source = incoming.source;
    match &incoming.datagram.message {
        CmMessage::Req(req) => Some((source, req.ca_guid, req.local_comm_id)),
        CmMessage::SidrReq(request) => Some((source, request.service_id, request.request_id)),
        CmMessage::Rej(rej) if rej.remote_comm_id == 0 => {
            let guid = u64::from_be_bytes(*rej.information.first_chunk()?);
            let is_named = rej.reason == reject::TIMEOUT && rej.information_length >= 8;
            is_named.then_some((source, guid, rej.local_comm_id))
        }
        _ => None,
    }
}

//! All endpoints of a process, and which of them a datagram is for.

use crate::connection::{Connection, ConnectionState, Effects, SideName};
use crate::endpoint::{EndpointId, EndpointState, PortSpace, Route};
use crate::error::{Error, Result};
use crate::event::{CmEvent, EventKind};
use crate::limits;
use crate::parameters::{ConnectionParameters, LocalQueuePair};
use crate::service_request::ServiceRequest;
use pagewire_wire::cm::{CmDatagram, CmMessage, IP_SERVICE_LEN, IpService, Rej, Req, SidrReq, reject};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Hop limit of answers to peers of whom nothing else is known.
const HOP_LIMIT: u8 = 64;

/// What a manager is made with.
#[derive(Debug, Clone, Copy)]
pub struct ManagerSettings {
    /// GUID of the channel adapter: no other process of the network has it together with the same communication IDs.
    pub ca_guid: u64,
    /// Upper half of all communication IDs of the manager.
    pub comm_id_block: u16,
    /// Decides starting PSNs and the order of communication IDs.
    pub seed: u64,
}

/// A datagram for queue pair 1 of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingDatagram {
    /// Address of this side.
    pub source: IpAddr,
    /// Address of the peer.
    pub destination: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// What it says.
    pub datagram: CmDatagram,
}

/// Takes requests for a service.
#[derive(Debug)]
struct Listener {
    backlog: usize,
    /// Of these the program has not heard yet.
    waiting: usize,
    takes_ipv4: bool,
}

#[derive(Debug)]
struct Endpoint {
    state: EndpointState,
    space: PortSpace,
    source: Option<SocketAddr>,
    route: Option<Route>,
    listener: Option<Listener>,
    /// The listener whose program has not heard of this request yet.
    undelivered_to: Option<EndpointId>,
    /// Lower half of the communication ID of its exchange.
    exchange: Option<u16>,
}

/// What an endpoint and a peer send messages about.
#[expect(clippy::large_enum_variant, reason = "most are connections")]
#[derive(Debug)]
enum Exchange {
    Connection(Connection),
    Service(ServiceRequest),
}

impl Exchange {
    fn deadline(&self) -> Option<Duration> {
        match self {
            Exchange::Connection(connection) => connection.deadline(),
            Exchange::Service(service) => service.deadline(),
        }
    }

    fn route(&self) -> &Route {
        match self {
            Exchange::Connection(connection) => connection.route(),
            Exchange::Service(service) => service.route(),
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Exchange::Connection(connection) => connection.state() == ConnectionState::Over,
            Exchange::Service(service) => service.is_over(),
        }
    }
}

/// An exchange, with the endpoint whose it is as long as there is one.
#[derive(Debug)]
struct OwnedExchange {
    owner: Option<EndpointId>,
    exchange: Exchange,
    /// As it is noted in the manager's list.
    deadline: Option<Duration>,
}

/// The endpoints of a process, and the peers that they exchange messages with.
#[derive(Debug)]
pub struct ConnectionManager {
    settings: ManagerSettings,
    random: fastrand::Rng,
    endpoints: BTreeMap<EndpointId, Endpoint>,
    next_endpoint: u32,
    exchanges: BTreeMap<u16, OwnedExchange>,
    next_comm_id: u16,
    /// Exchanges that a peer began, by the address and the ID that it gave them: repeated requests are theirs.
    begun_by_peers: HashMap<(IpAddr, u64, u32), u16>,
    deadlines: BTreeSet<(Duration, u16)>,
    datagrams: VecDeque<OutgoingDatagram>,
    events: VecDeque<CmEvent>,
}

impl ConnectionManager {
    /// A manager without endpoints.
    pub fn new(settings: ManagerSettings) -> Self {
        let mut random = fastrand::Rng::with_seed(settings.seed);
        ConnectionManager {
            settings,
            endpoints: BTreeMap::new(),
            next_endpoint: 0,
            exchanges: BTreeMap::new(),
            next_comm_id: random.u16(..),
            begun_by_peers: HashMap::new(),
            deadlines: BTreeSet::new(),
            datagrams: VecDeque::new(),
            events: VecDeque::new(),
            random,
        }
    }

    /// The next datagram that is to be sent.
    pub fn next_datagram(&mut self) -> Option<OutgoingDatagram> {
        self.datagrams.pop_front()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Duration) {
        while let Some(&(at, comm_id)) = self.deadlines.first() {
            if at > now {
                break;
            }
            self.step(comm_id, |exchange, effects| match exchange {
                Exchange::Connection(connection) => connection.expire(now, effects),
                Exchange::Service(service) => service.expire(now, effects),
            });
        }
    }

    /// Makes an endpoint.
    ///
    /// # Errors
    /// `TooManyEndpoints`.
    pub fn create(&mut self, space: PortSpace) -> Result<EndpointId> {
        if self.endpoints.len() >= limits::MAX_ENDPOINTS {
            return Err(Error::TooManyEndpoints);
        }
        let id = EndpointId(self.next_endpoint);
        self.next_endpoint += 1;
        let endpoint = Endpoint {
            state: EndpointState::Idle,
            space,
            source: None,
            route: None,
            listener: None,
            undelivered_to: None,
            exchange: None,
        };
        self.endpoints.insert(id, endpoint);
        Ok(id)
    }

    /// The state of an endpoint; `None`: there is none.
    pub fn state(&self, id: EndpointId) -> Option<EndpointState> {
        self.endpoints.get(&id).map(|endpoint| endpoint.state)
    }

    /// The way to an endpoint's peer.
    pub fn route(&self, id: EndpointId) -> Option<&Route> {
        self.endpoints.get(&id)?.route.as_ref()
    }

    /// The connection of an endpoint.
    pub fn connection(&self, id: EndpointId) -> Option<&Connection> {
        match &self.exchanges.get(&self.endpoints.get(&id)?.exchange?)?.exchange {
            Exchange::Connection(connection) => Some(connection),
            Exchange::Service(_) => None,
        }
    }

    /// Gives an endpoint the address that the caller has reserved for it.
    ///
    /// # Errors
    /// `Invalid`: it has one.
    pub fn bind(&mut self, id: EndpointId, source: SocketAddr) -> Result<()> {
        let endpoint = self.endpoint_in(id, &[EndpointState::Idle])?;
        (endpoint.state, endpoint.source) = (EndpointState::AddressBound, Some(source));
        Ok(())
    }

    /// Gives an endpoint the way to a peer that the caller has found.
    ///
    /// # Errors
    /// `Invalid`: it takes requests, or has messages with a peer; the families of the addresses differ.
    pub fn resolve(&mut self, id: EndpointId, route: Route) -> Result<()> {
        let before = [EndpointState::Idle, EndpointState::AddressBound, EndpointState::RouteResolved];
        let endpoint = self.endpoint_in(id, &before)?;
        if route.source.is_ipv4() != route.destination.is_ipv4() {
            return Err(Error::Invalid);
        }
        (endpoint.state, endpoint.route) = (EndpointState::RouteResolved, Some(route));
        Ok(())
    }

    /// Has an endpoint take requests. `takes_ipv4`: also where its address is the unspecified one of IPv6. A backlog of 0 or of more than
    /// [`MAX_BACKLOG`](limits::MAX_BACKLOG) is that.
    ///
    /// # Errors
    /// `Invalid`: it has no address, or is past that.
    pub fn listen(&mut self, id: EndpointId, backlog: usize, takes_ipv4: bool) -> Result<()> {
        let endpoint = self.endpoint_in(id, &[EndpointState::AddressBound])?;
        let backlog = if backlog == 0 { limits::MAX_BACKLOG } else { backlog.min(limits::MAX_BACKLOG) };
        endpoint.state = EndpointState::Listen;
        endpoint.listener = Some(Listener { backlog, waiting: 0, takes_ipv4 });
        Ok(())
    }

    /// The program has heard of a request: its listener has room for another one.
    pub fn request_delivered(&mut self, request: EndpointId) {
        let listener = self.endpoints.get_mut(&request).and_then(|endpoint| endpoint.undelivered_to.take());
        let listener = listener.and_then(|listener| self.endpoints.get_mut(&listener)?.listener.as_mut());
        if let Some(listener) = listener {
            listener.waiting -= 1;
        }
    }

    /// Asks the peer for a connection.
    ///
    /// # Errors
    /// `Invalid`: the endpoint has no way to a peer, or the private data are longer than 56 bytes. `TooManyEndpoints`: all communication
    /// IDs are in use.
    pub fn connect(
        &mut self,
        id: EndpointId,
        queue_pair: LocalQueuePair,
        parameters: &ConnectionParameters,
        now: Duration,
    ) -> Result<()> {
        let (route, service_id) = self.service_of_peer(id)?;
        let comm_id = self.free_comm_id()?;
        let psn = self.random.u32(..1 << 24);
        let mut effects = Effects::default();
        let settings = (self.side_name(comm_id), route, psn);
        let connection =
            Connection::connect(settings, service_id, queue_pair, parameters, now, &mut effects)?;
        self.begin(id, comm_id, Exchange::Connection(connection), effects);
        Ok(())
    }

    /// Asks the peer for the queue pair of a UD service.
    ///
    /// # Errors
    /// As those of [`connect`](Self::connect), with 180 bytes.
    pub fn ask_for_service(&mut self, id: EndpointId, data: &[u8], now: Duration) -> Result<()> {
        let (route, service_id) = self.service_of_peer(id)?;
        let comm_id = self.free_comm_id()?;
        let mut effects = Effects::default();
        let request_id = self.side_name(comm_id).comm_id;
        let request = ServiceRequest::ask(request_id, route, service_id, data, now, &mut effects)?;
        self.begin(id, comm_id, Exchange::Service(request), effects);
        Ok(())
    }

    /// Accepts a connection that a peer has asked for.
    ///
    /// # Errors
    /// `Invalid`: no request waits, or the private data are longer than 196 bytes.
    pub fn accept(
        &mut self,
        id: EndpointId,
        queue_pair: LocalQueuePair,
        parameters: &ConnectionParameters,
        now: Duration,
    ) -> Result<()> {
        self.step_connection(id, |connection, effects| {
            connection.accept(queue_pair, parameters, now, effects)
        })
    }

    /// Answers a request for a UD service with a queue pair and its Q_Key.
    ///
    /// # Errors
    /// `Invalid`: no request waits, or the private data are longer than 136 bytes.
    pub fn accept_service(&mut self, id: EndpointId, queue_pair: (u32, u32), data: &[u8]) -> Result<()> {
        self.step_own(id, |exchange, effects| match exchange {
            Exchange::Service(service) => service.accept(queue_pair, data, effects),
            Exchange::Connection(_) => Err(Error::Invalid),
        })
    }

    /// The active side's queue pair is ready.
    ///
    /// # Errors
    /// `Invalid`: the peer has not accepted.
    pub fn establish(&mut self, id: EndpointId) -> Result<()> {
        self.step_connection(id, Connection::establish)
    }

    /// The passive side's queue pair has received a packet.
    ///
    /// # Errors
    /// `AlreadyConnected`, `Invalid`.
    pub fn notify_established(&mut self, id: EndpointId) -> Result<()> {
        self.step_connection(id, Connection::notify_established)
    }

    /// Refuses what a peer has asked for, or has accepted.
    ///
    /// # Errors
    /// `Invalid`: nothing waits, or the private data are longer than 148 bytes (136 for a UD service).
    pub fn reject(&mut self, id: EndpointId, data: &[u8], now: Duration) -> Result<()> {
        self.step_own(id, |exchange, effects| match exchange {
            Exchange::Connection(connection) => connection.reject(data, now, effects),
            Exchange::Service(service) => service.reject(data, effects),
        })
    }

    /// Ends a connection, or takes part in its end.
    ///
    /// # Errors
    /// `Invalid`: there is none, or it is not established yet.
    pub fn disconnect(&mut self, id: EndpointId, now: Duration) -> Result<()> {
        self.step_connection(id, |connection, effects| connection.disconnect(now, effects))
    }

    /// Destroys an endpoint. Its events that nobody has taken go with it, and requests to it of which the program has not heard are refused.
    ///
    /// # Errors
    /// `Invalid`: there is none.
    pub fn destroy(&mut self, id: EndpointId, now: Duration) -> Result<()> {
        let endpoint = self.endpoints.remove(&id).ok_or(Error::Invalid)?;
        self.events.retain(|event| event.endpoint != id);
        let undelivered = |(child, endpoint): (&EndpointId, &Endpoint)| {
            (endpoint.undelivered_to == Some(id)).then_some(*child)
        };
        for child in self.endpoints.iter().filter_map(undelivered).collect::<Vec<_>>() {
            self.destroy(child, now)?;
        }
        let listener =
            endpoint.undelivered_to.and_then(|listener| self.endpoints.get_mut(&listener)?.listener.as_mut());
        if let Some(listener) = listener {
            listener.waiting -= 1;
        }
        if let Some(comm_id) = endpoint.exchange {
            if let Some(owned) = self.exchanges.get_mut(&comm_id) {
                owned.owner = None;
            }
            self.step(comm_id, |exchange, effects| match exchange {
                Exchange::Connection(connection) => connection.close(now, effects),
                Exchange::Service(service) => service.close(effects),
            });
        }
        Ok(())
    }

    /// Takes a datagram that came to queue pair 1, from the address `source` to `destination`.
    pub fn receive(&mut self, now: Duration, source: IpAddr, destination: IpAddr, datagram: &CmDatagram) {
        match &datagram.message {
            CmMessage::Req(req) => self.receive_req(now, source, destination, datagram, req),
            CmMessage::SidrReq(request) => self.receive_sidr_req(source, destination, datagram, request),
            message => match self.addressee(source, datagram) {
                Some(comm_id) => self.step(comm_id, |exchange, effects| match exchange {
                    Exchange::Connection(connection) => connection.receive(datagram, now, effects),
                    Exchange::Service(service) => service.receive(message, effects),
                }),
                // A connection that is not there any more.
                None => self.refuse(source, destination, datagram),
            },
        }
    }

    /// Whose a message is that begins nothing. What another address sends is nobody's.
    fn addressee(&self, source: IpAddr, datagram: &CmDatagram) -> Option<u16> {
        let Some(own) = datagram.receiver_comm_id() else {
            return self.given_up(source, datagram);
        };
        let comm_id = own as u16;
        let exchange = &self.exchanges.get(&comm_id)?.exchange;
        let is_own = own == self.side_name(comm_id).comm_id;
        (is_own && exchange.route().destination.ip() == source).then_some(comm_id)
    }

    /// The active side gives up a REQ whose answer it has not seen: it names itself alone (section 12.6.7.2).
    fn given_up(&self, source: IpAddr, datagram: &CmDatagram) -> Option<u16> {
        let CmMessage::Rej(rej) = &datagram.message else { return None };
        let guid = u64::from_be_bytes(*rej.information.first_chunk()?);
        let is_named = rej.reason == reject::TIMEOUT && rej.information_length >= 8;
        is_named.then(|| self.begun_by_peers.get(&(source, guid, rej.local_comm_id)).copied())?
    }

    fn receive_req(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
        datagram: &CmDatagram,
        req: &Req,
    ) {
        let key = (source, req.ca_guid, req.local_comm_id);
        if let Some(&comm_id) = self.begun_by_peers.get(&key) {
            return self.step(comm_id, |exchange, effects| {
                if let Exchange::Connection(connection) = exchange {
                    connection.receive(datagram, now, effects);
                }
            });
        }
        if self.end_stale(now, source, req) {
            return self.refuse_req(source, destination, datagram, req, reject::STALE_CONNECTION);
        }
        let head = &req.private_data[..IP_SERVICE_LEN];
        let (listener, route) = match self.listener_for(req.service_id, head, source, destination) {
            Ok(found) => found,
            Err(reason) => return self.refuse_req(source, destination, datagram, req, reason),
        };
        let route = Route {
            mtu: req.mtu,
            traffic_class: req.traffic_class,
            hop_limit: req.hop_limit.max(1),
            ack_timeout: req.ack_timeout,
            ..route
        };
        let Some((child, comm_id)) = self.make_child(listener, route) else { return };
        let psn = self.random.u32(..1 << 24);
        let connection =
            Connection::requested((self.side_name(comm_id), route, psn), datagram.transaction, req);
        let remote = *connection.remote();
        let private_data = req.private_data[IP_SERVICE_LEN..].to_vec();
        let mut effects = Effects::default();
        effects.events.push(EventKind::ConnectRequest { listener, remote, private_data });
        self.begun_by_peers.insert(key, comm_id);
        self.begin(child, comm_id, Exchange::Connection(connection), effects);
    }

    fn receive_sidr_req(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        datagram: &CmDatagram,
        request: &SidrReq,
    ) {
        let key = (source, request.service_id, request.request_id);
        if let Some(&comm_id) = self.begun_by_peers.get(&key) {
            return self.step(comm_id, |exchange, effects| {
                if let Exchange::Service(service) = exchange {
                    service.receive(&datagram.message, effects);
                }
            });
        }
        let head = &request.private_data[..IP_SERVICE_LEN];
        let (listener, route) = match self.listener_for(request.service_id, head, source, destination) {
            Ok(found) => found,
            Err(_) => {
                // SIDR_REP has one status for all of these.
                return self.refuse(source, destination, datagram);
            }
        };
        let Some((child, comm_id)) = self.make_child(listener, route) else { return };
        let service = ServiceRequest::received(route, datagram.transaction, request);
        let private_data = request.private_data[IP_SERVICE_LEN..].to_vec();
        let mut effects = Effects::default();
        effects.events.push(EventKind::ServiceRequest { listener, private_data });
        self.begun_by_peers.insert(key, comm_id);
        self.begin(child, comm_id, Exchange::Service(service), effects);
    }

    /// Ends a connection with the queue pair of a new REQ: its peer has forgotten it (section 12.4.1). True: there was one.
    fn end_stale(&mut self, now: Duration, source: IpAddr, req: &Req) -> bool {
        let is_stale = |owned: &OwnedExchange| match &owned.exchange {
            Exchange::Connection(connection) => {
                connection.is_live()
                    && connection.peer().ca_guid == req.ca_guid
                    && connection.remote().queue_pair == req.queue_pair
                    && connection.route().destination.ip() == source
                    && connection.state() != ConnectionState::ReqSent
            }
            Exchange::Service(_) => false,
        };
        let Some(comm_id) = self.exchanges.iter().find(|(_, owned)| is_stale(owned)).map(|(id, _)| *id)
        else {
            return false;
        };
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
        source: IpAddr,
        destination: IpAddr,
    ) -> std::result::Result<(EndpointId, Route), u16> {
        let (space, port) = PortSpace::of_service_id(service_id).ok_or(reject::INVALID_SERVICE_ID)?;
        let service = IpService::parse(head).ok_or(reject::INVALID_SERVICE_ID)?;
        if (service.source, service.destination) != (source, destination) {
            return Err(reject::INVALID_GID);
        }
        let of_port = self.endpoints.iter().filter(|(_, endpoint)| {
            endpoint.listener.is_some()
                && endpoint.space == space
                && endpoint.source.is_some_and(|source| source.port() == port)
        });
        let mut has_port = false;
        for (id, endpoint) in of_port {
            has_port = true;
            if endpoint.listens_at(destination) {
                let route = Route {
                    source: SocketAddr::new(destination, port),
                    destination: SocketAddr::new(source, service.source_port),
                    mtu: 0,
                    traffic_class: 0,
                    hop_limit: HOP_LIMIT,
                    ack_timeout: 0,
                };
                return Ok((*id, route));
            }
        }
        Err(if has_port { reject::CONSUMER_DEFINED } else { reject::INVALID_SERVICE_ID })
    }

    /// An endpoint for a request, and a communication ID. `None`: the backlog is full, or nothing is free; the peer asks again.
    fn make_child(&mut self, listener: EndpointId, route: Route) -> Option<(EndpointId, u16)> {
        let parent = self.endpoints.get_mut(&listener)?;
        let (space, state) = (parent.space, parent.listener.as_mut()?);
        if state.waiting >= state.backlog {
            return None;
        }
        let comm_id = self.free_comm_id().ok()?;
        let child = self.create(space).ok()?;
        let endpoint = self.endpoints.get_mut(&child)?;
        (endpoint.source, endpoint.route) = (Some(route.source), Some(route));
        endpoint.undelivered_to = Some(listener);
        self.endpoints.get_mut(&listener)?.listener.as_mut()?.waiting += 1;
        Some((child, comm_id))
    }

    /// The way of an endpoint to its peer, and the service that it asks for there.
    fn service_of_peer(&mut self, id: EndpointId) -> Result<(Route, u64)> {
        let endpoint = self.endpoint_in(id, &[EndpointState::RouteResolved])?;
        let route = endpoint.route.ok_or(Error::Invalid)?;
        Ok((route, endpoint.space.service_id(route.destination.port())))
    }

    /// The endpoint, if it is in one of these states.
    fn endpoint_in(&mut self, id: EndpointId, states: &[EndpointState]) -> Result<&mut Endpoint> {
        self.endpoints.get_mut(&id).filter(|endpoint| states.contains(&endpoint.state)).ok_or(Error::Invalid)
    }

    fn side_name(&self, comm_id: u16) -> SideName {
        SideName {
            comm_id: u32::from(self.settings.comm_id_block) << 16 | u32::from(comm_id),
            ca_guid: self.settings.ca_guid,
        }
    }

    /// The next communication ID that no exchange has; those of the past come back as late as can be.
    fn free_comm_id(&mut self) -> Result<u16> {
        if self.exchanges.len() > usize::from(u16::MAX) {
            return Err(Error::TooManyEndpoints);
        }
        while self.exchanges.contains_key(&self.next_comm_id)
            || self.side_name(self.next_comm_id).comm_id == 0
        {
            self.next_comm_id = self.next_comm_id.wrapping_add(1);
        }
        let found = self.next_comm_id;
        self.next_comm_id = found.wrapping_add(1);
        Ok(found)
    }

    fn begin(&mut self, id: EndpointId, comm_id: u16, exchange: Exchange, effects: Effects) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            (endpoint.state, endpoint.exchange) = (EndpointState::Connect, Some(comm_id));
        }
        self.exchanges.insert(comm_id, OwnedExchange { owner: Some(id), exchange, deadline: None });
        self.apply(comm_id, effects);
    }

    fn step_connection(
        &mut self,
        id: EndpointId,
        step: impl FnOnce(&mut Connection, &mut Effects) -> Result<()>,
    ) -> Result<()> {
        self.step_own(id, |exchange, effects| match exchange {
            Exchange::Connection(connection) => step(connection, effects),
            Exchange::Service(_) => Err(Error::Invalid),
        })
    }

    fn step_own(
        &mut self,
        id: EndpointId,
        step: impl FnOnce(&mut Exchange, &mut Effects) -> Result<()>,
    ) -> Result<()> {
        let comm_id = self.endpoints.get(&id).and_then(|endpoint| endpoint.exchange).ok_or(Error::Invalid)?;
        let mut result = Err(Error::Invalid);
        self.step(comm_id, |exchange, effects| result = step(exchange, effects));
        result
    }

    fn step(&mut self, comm_id: u16, step: impl FnOnce(&mut Exchange, &mut Effects)) {
        let Some(owned) = self.exchanges.get_mut(&comm_id) else { return };
        let mut effects = Effects::default();
        step(&mut owned.exchange, &mut effects);
        self.apply(comm_id, effects);
    }

    /// Sends, tells the owner, and notes when the exchange is due again.
    fn apply(&mut self, comm_id: u16, effects: Effects) {
        let Some(owned) = self.exchanges.get_mut(&comm_id) else { return };
        let route = *owned.exchange.route();
        for datagram in effects.datagrams {
            self.datagrams.push_back(OutgoingDatagram {
                source: route.source.ip(),
                destination: route.destination.ip(),
                traffic_class: route.traffic_class,
                hop_limit: route.hop_limit,
                datagram,
            });
        }
        if let Some(endpoint) = owned.owner {
            let has_ended = |kind: &EventKind| matches!(kind, EventKind::Disconnected { .. });
            if effects.events.iter().any(has_ended) {
                if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
                    endpoint.state = EndpointState::Disconnect;
                }
            }
            self.events.extend(effects.events.into_iter().map(|kind| CmEvent { endpoint, kind }));
        }
        let deadline = owned.exchange.deadline();
        if let Some(before) = std::mem::replace(&mut owned.deadline, deadline) {
            self.deadlines.remove(&(before, comm_id));
        }
        self.deadlines.extend(deadline.map(|at| (at, comm_id)));
        if owned.exchange.is_over() && owned.owner.is_none() {
            self.exchanges.remove(&comm_id);
            self.begun_by_peers.retain(|_, begun| *begun != comm_id);
        }
    }

    fn refuse_req(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        datagram: &CmDatagram,
        req: &Req,
        reason: u16,
    ) {
        let rej = Rej { remote_comm_id: req.local_comm_id, reason, ..Rej::default() };
        self.send_answer(source, destination, CmDatagram::new(datagram.transaction, rej));
    }

    fn refuse(&mut self, source: IpAddr, destination: IpAddr, datagram: &CmDatagram) {
        if let Some(refusal) = datagram.refusal() {
            self.send_answer(source, destination, refusal);
        }
    }

    /// Sends an answer to who has sent a datagram from `source` to `destination`.
    fn send_answer(&mut self, source: IpAddr, destination: IpAddr, datagram: CmDatagram) {
        self.datagrams.push_back(OutgoingDatagram {
            source: destination,
            destination: source,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            datagram,
        });
    }
}

impl Endpoint {
    /// Whether a listener's address takes requests to one: loopback addresses are those of no device, and take all, as with the kernel.
    fn listens_at(&self, destination: IpAddr) -> bool {
        let Some(source) = self.source else { return false };
        let takes_ipv4 = self.listener.as_ref().is_some_and(|listener| listener.takes_ipv4);
        let takes_all = source.ip().is_unspecified() || source.ip().is_loopback();
        let takes_family = source.is_ipv4() == destination.is_ipv4() || source.is_ipv6() && takes_ipv4;
        source.ip() == destination || takes_all && takes_family
    }
}

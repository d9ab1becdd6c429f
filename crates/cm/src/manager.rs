//! All endpoints of a process, and which of them a datagram is for.

use crate::connection::{Connection, SideName};
use crate::effects::Effects;
use crate::endpoint::{EndpointId, EndpointState, PortSpace, Route};
use crate::error::{Error, Result};
use crate::event::{CmEvent, EventKind};
use crate::exchange::{Exchange, OwnedExchange, PeerKey};
use crate::inquiry::ServiceQuery;
use crate::limits;
use crate::parameters::{ConnectionParameters, LocalQueuePair};
use crate::refusals::RefusalLog;
use crate::service_request::ServiceRequest;
use pagewire_wire::cm::{CmDatagram, CmMessage};
use pagewire_wire::packet::{DIRECT_PORTS, PORT};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Hop limit of answers to peers of whom nothing else is known.
pub(crate) const HOP_LIMIT: u8 = 64;

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
    /// UDP port of the peer.
    pub udp_port: u16,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// What it says.
    pub datagram: CmDatagram,
}

/// What a peer is to be told if this process is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastWords {
    /// Lower half of the communication ID that it is about.
    pub comm_id: u16,
    /// The message; `None`: nothing any more.
    pub datagram: Option<OutgoingDatagram>,
}

/// Takes requests for a service.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) backlog: usize,
    /// Requests of which the program has not heard yet.
    pub(crate) waiting: BTreeSet<EndpointId>,
    pub(crate) takes_ipv4: bool,
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) state: EndpointState,
    pub(crate) space: PortSpace,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) route: Option<Route>,
    pub(crate) listener: Option<Listener>,
    /// The listener whose program has not heard of this request yet.
    pub(crate) undelivered_to: Option<EndpointId>,
    /// Lower half of the communication ID of its exchange.
    pub(crate) exchange: Option<u16>,
}

/// The endpoints of a process, and the peers that they exchange messages with.
#[derive(Debug)]
pub struct ConnectionManager {
    settings: ManagerSettings,
    pub(crate) random: fastrand::Rng,
    /// Its keys are random, and known to nobody else.
    transactions: RandomState,
    next_transaction: u64,
    pub(crate) endpoints: BTreeMap<EndpointId, Endpoint>,
    next_endpoint: u32,
    /// Listeners by their port.
    pub(crate) listeners: HashMap<(PortSpace, u16), Vec<EndpointId>>,
    pub(crate) exchanges: BTreeMap<u16, OwnedExchange>,
    next_comm_id: u16,
    /// Exchanges that a peer began: repeated requests are theirs.
    pub(crate) begun_by_peers: HashMap<PeerKey, u16>,
    /// Live connections by the peer's address, GUID and queue pair: a new REQ of that queue pair says that the peer has forgotten it.
    pub(crate) by_peer_queue_pair: HashMap<PeerKey, u16>,
    deadlines: BTreeSet<(Duration, u16)>,
    pub(crate) datagrams: VecDeque<OutgoingDatagram>,
    events: VecDeque<CmEvent>,
    last_words: VecDeque<LastWords>,
    pub(crate) refusals: RefusalLog,
}

impl ConnectionManager {
    /// A manager without endpoints.
    pub fn new(settings: ManagerSettings) -> Self {
        let mut random = fastrand::Rng::with_seed(settings.seed);
        ConnectionManager {
            settings,
            endpoints: BTreeMap::new(),
            next_endpoint: 0,
            listeners: HashMap::new(),
            exchanges: BTreeMap::new(),
            next_comm_id: random.u16(..),
            begun_by_peers: HashMap::new(),
            by_peer_queue_pair: HashMap::new(),
            deadlines: BTreeSet::new(),
            datagrams: VecDeque::new(),
            events: VecDeque::new(),
            last_words: VecDeque::new(),
            refusals: RefusalLog::default(),
            transactions: RandomState::new(),
            next_transaction: 0,
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

    /// The next change of what peers are to be told if this process is killed.
    pub fn next_last_words(&mut self) -> Option<LastWords> {
        self.last_words.pop_front()
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Duration) {
        self.refusals.set_time(now);
        while let Some(&(at, comm_id)) = self.deadlines.first() {
            if at > now {
                break;
            }
            self.step(comm_id, |exchange, effects| exchange.expire(now, effects));
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
        endpoint.listener = Some(Listener { backlog, waiting: BTreeSet::new(), takes_ipv4 });
        let port = (endpoint.space, endpoint.source.map_or(0, |source| source.port()));
        self.listeners.entry(port).or_default().push(id);
        Ok(())
    }

    /// The program has heard of a request: its listener has room for another one.
    pub fn request_delivered(&mut self, request: EndpointId) {
        let listener = self.endpoints.get_mut(&request).and_then(|endpoint| endpoint.undelivered_to.take());
        self.forget_waiting(listener, request);
    }

    fn forget_waiting(&mut self, listener: Option<EndpointId>, request: EndpointId) {
        let listener = listener.and_then(|listener| self.endpoints.get_mut(&listener)?.listener.as_mut());
        if let Some(listener) = listener {
            listener.waiting.remove(&request);
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
        let (route, service) = self.service_of_peer(id)?;
        let comm_id = self.free_comm_id()?;
        let psn = self.random.u32(..1 << 24);
        let mut effects = Effects::default();
        let settings = (self.side_name(comm_id), route, psn);
        let connection = Connection::connect(settings, service, queue_pair, parameters, now, &mut effects)?;
        self.begin(id, comm_id, Exchange::Connection(connection), None, effects);
        Ok(())
    }

    /// Asks the peer for the queue pair of a UD service.
    ///
    /// # Errors
    /// As those of [`connect`](Self::connect), with 180 bytes.
    pub fn ask_for_service(&mut self, id: EndpointId, data: &[u8], now: Duration) -> Result<()> {
        let (route, service) = self.service_of_peer(id)?;
        let comm_id = self.free_comm_id()?;
        let mut effects = Effects::default();
        let request_id = self.side_name(comm_id).comm_id;
        let request = ServiceRequest::ask(request_id, route, service, data, now, &mut effects)?;
        self.begin(id, comm_id, Exchange::Service(request), None, effects);
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
        self.refusals.set_time(now);
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
        self.refusals.set_time(now);
        self.events.retain(|event| event.endpoint != id);
        if let Some(listener) = endpoint.listener {
            self.forget_listener(id, (endpoint.space, endpoint.source.map_or(0, |source| source.port())));
            for child in listener.waiting {
                self.destroy(child, now)?;
            }
        }
        self.forget_waiting(endpoint.undelivered_to, id);
        if let Some(comm_id) = endpoint.exchange {
            if let Some(owned) = self.exchanges.get_mut(&comm_id) {
                owned.owner = None;
            }
            self.step(comm_id, |exchange, effects| exchange.close(now, effects));
        }
        Ok(())
    }

    fn forget_listener(&mut self, id: EndpointId, port: (PortSpace, u16)) {
        let Entry::Occupied(mut listeners) = self.listeners.entry(port) else { return };
        listeners.get_mut().retain(|listener| *listener != id);
        if listeners.get().is_empty() {
            listeners.remove();
        }
    }

    /// The way of an endpoint to its peer, and the service that it asks for there.
    fn service_of_peer(&mut self, id: EndpointId) -> Result<(Route, ServiceQuery)> {
        let endpoint = self.endpoint_in(id, &[EndpointState::RouteResolved])?;
        let route = endpoint.route.ok_or(Error::Invalid)?;
        let service_id = endpoint.space.service_id(route.destination.port());
        self.next_transaction += 1;
        let transaction = self.transactions.hash_one(self.next_transaction);
        Ok((route, ServiceQuery { service_id, transaction }))
    }

    /// UDP port at which this process takes messages, by the block of its communication IDs.
    pub(crate) fn udp_port(&self) -> u16 {
        let block = self.settings.comm_id_block;
        if DIRECT_PORTS.contains(&block) { block } else { PORT }
    }

    /// The endpoint, if it is in one of these states.
    fn endpoint_in(&mut self, id: EndpointId, states: &[EndpointState]) -> Result<&mut Endpoint> {
        self.endpoints.get_mut(&id).filter(|endpoint| states.contains(&endpoint.state)).ok_or(Error::Invalid)
    }

    pub(crate) fn side_name(&self, comm_id: u16) -> SideName {
        SideName {
            comm_id: u32::from(self.settings.comm_id_block) << 16 | u32::from(comm_id),
            ca_guid: self.settings.ca_guid,
        }
    }

    /// The next communication ID that no exchange has; those of the past come back as late as can be.
    pub(crate) fn free_comm_id(&mut self) -> Result<u16> {
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

    pub(crate) fn begin(
        &mut self,
        id: EndpointId,
        comm_id: u16,
        exchange: Exchange,
        begun_by: Option<PeerKey>,
        effects: Effects,
    ) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            (endpoint.state, endpoint.exchange) = (EndpointState::Connect, Some(comm_id));
        }
        self.begun_by_peers.extend(begun_by.map(|key| (key, comm_id)));
        let owned = OwnedExchange {
            owner: Some(id),
            exchange,
            deadline: None,
            last_words: None,
            begun_by,
            peer_queue_pair: None,
        };
        self.exchanges.insert(comm_id, owned);
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

    pub(crate) fn step(&mut self, comm_id: u16, step: impl FnOnce(&mut Exchange, &mut Effects)) {
        let Some(owned) = self.exchanges.get_mut(&comm_id) else { return };
        let mut effects = Effects::default();
        step(&mut owned.exchange, &mut effects);
        self.apply(comm_id, effects);
    }

    /// Sends, tells the owner, and notes when the exchange is due again.
    fn apply(&mut self, comm_id: u16, effects: Effects) {
        let Some(owned) = self.exchanges.get_mut(&comm_id) else { return };
        self.refusals.add_effects(&owned.exchange, &effects);
        let exchange = &owned.exchange;
        self.datagrams.extend(effects.datagrams.into_iter().map(|datagram| exchange.outgoing(datagram)));
        if let Some(endpoint) = owned.owner {
            let has_ended = |kind: &EventKind| matches!(kind, EventKind::Disconnected { .. });
            if effects.events.iter().any(has_ended) {
                if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
                    endpoint.state = EndpointState::Disconnect;
                }
            }
            self.events.extend(effects.events.into_iter().map(|kind| CmEvent { endpoint, kind }));
        }
        self.note(comm_id);
    }

    /// Has the manager's lists say what an exchange is now. One that is over, and nobody's, goes.
    fn note(&mut self, comm_id: u16) {
        let Some(owned) = self.exchanges.get_mut(&comm_id) else { return };
        let is_past = owned.exchange.is_over() && owned.owner.is_none();
        let deadline = owned.exchange.deadline().filter(|_| !is_past);
        if let Some(before) = std::mem::replace(&mut owned.deadline, deadline) {
            self.deadlines.remove(&(before, comm_id));
        }
        self.deadlines.extend(deadline.map(|at| (at, comm_id)));
        let peer = owned.exchange.peer_queue_pair().filter(|_| !is_past);
        let before = std::mem::replace(&mut owned.peer_queue_pair, peer);
        if before != peer {
            // Of two connections of one queue pair the later one is noted.
            before
                .filter(|before| self.by_peer_queue_pair.get(before) == Some(&comm_id))
                .map(|before| self.by_peer_queue_pair.remove(&before));
            self.by_peer_queue_pair.extend(peer.map(|peer| (peer, comm_id)));
        }
        let last_words = owned.exchange.last_words().filter(|_| !is_past);
        if owned.last_words != last_words {
            owned.last_words.clone_from(&last_words);
            let datagram = last_words.map(|datagram| owned.exchange.outgoing(datagram));
            self.last_words.push_back(LastWords { comm_id, datagram });
        }
        if is_past {
            owned.begun_by.map(|key| self.begun_by_peers.remove(&key));
            self.exchanges.remove(&comm_id);
        }
    }
}

impl Exchange {
    /// A message to the peer.
    fn outgoing(&self, datagram: CmDatagram) -> OutgoingDatagram {
        let route = self.route();
        let is_beginning = datagram.receiver_comm_id().is_none();
        // A query goes to whoever has port 4791.
        let is_request = is_beginning && !matches!(datagram.message, CmMessage::PortQuery(_));
        let request_port = self.request_port().filter(|_| is_request);
        OutgoingDatagram {
            source: route.source.ip(),
            destination: route.destination.ip(),
            udp_port: request_port.unwrap_or_else(|| datagram.udp_port()),
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
            datagram,
        }
    }
}

impl Endpoint {
    /// Whether a listener's address takes requests to one: loopback addresses are those of no device, and take all, as with the kernel.
    pub(crate) fn listens_at(&self, destination: IpAddr) -> bool {
        let Some(source) = self.source else { return false };
        let takes_ipv4 = self.listener.as_ref().is_some_and(|listener| listener.takes_ipv4);
        let takes_all = source.ip().is_unspecified() || source.ip().is_loopback();
        let takes_family = source.is_ipv4() == destination.is_ipv4() || source.is_ipv6() && takes_ipv4;
        source.ip() == destination || takes_all && takes_family
    }
}

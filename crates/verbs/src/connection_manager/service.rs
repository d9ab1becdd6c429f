//! The connection manager of this process: its endpoints, channels and ports, and the thread that takes messages and keeps time.
//!
//! One lock holds all of it. A call of the program changes the state, and sends and announces at once what follows ([`CmService::flush`]).

use super::addresses::{self, LocalDevice};
use super::channel::{Channel, ChannelKey, QueuedEvent};
use super::deaths::Deaths;
use super::outbox::{Outbox, OutboxOutcome, Outgoing};
use super::ports::{OwnedPort, PortTable};
use super::reachability::{Pair, Probes, Unreachability};
use crate::boundary::Result;
use crate::runtime::engine::Host;
use crate::runtime::process::engine;
use pagewire_cm::{
    ConnectionManager, EndpointId, IncomingDatagram, ManagerSettings, Origin, OutgoingDatagram, PortSpace,
};
use pagewire_fabric::{
    Fabric, Handover, LastWordsFile, LinkChanges, ManagementDatagram, ManagementSocket, ManagementTarget,
    ROCE_PORT, Sibling,
};
use pagewire_memory::fork::PerProcess;
use pagewire_memory::{Uncancelled, above_low_numbers};
use pagewire_nic::{ManagementRoute, ManagementTransport, Nic};
use pagewire_wire::cm::{CmDatagram, CmMessage};
use rustix::event::{EventfdFlags, epoll, eventfd};
use slab::Slab;
use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// Datagrams that are taken from one socket at a time.
pub const ROUND: usize = 64;
/// Sockets that are looked at in one step.
const READY: usize = 32;
/// So long a process that ends waits for streams to other hosts, and between two looks at them.
const LAST_PATIENCE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_millis(1);

/// Marks what epoll(7) says of a port, with space and number below; other numbers are of [`EventSource`].
const PORTS: u64 = 1 << 63;

/// What a program made by `CREATE_ID`, or got with a request.
pub struct CmId {
    /// The program's name for it; 0 until it has accepted a request.
    pub uid: u64,
    pub channel: ChannelKey,
    pub endpoint: EndpointId,
    pub space: PortSpace,
    /// `enum ibv_qp_type`.
    pub queue_pair_type: u8,
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
    /// The device of `source`, unless that is an address of all.
    pub local: Option<LocalDevice>,
    pub is_route_resolved: bool,
    /// Its device is gone.
    pub is_removed: bool,
    /// Events that the program has taken.
    pub reported: u32,
    pub port: Option<Arc<OwnedPort>>,
    pub options: IdOptions,
}

/// An ID's membership in a group.
pub struct JoinedGroup {
    /// The ID.
    pub id: u32,
    /// Its events that the program has taken.
    pub reported: u32,
}

/// Options of an ID (`rdma_set_option(3)`).
#[derive(Debug, Clone, Copy, Default)]
pub struct IdOptions {
    pub traffic_class: u8,
    pub is_address_shared: bool,
    /// `::` takes no IPv4.
    pub is_family_only: bool,
    pub ack_timeout: Option<u8>,
}

impl CmId {
    /// Whether its queue pairs are of datagrams.
    pub fn is_datagram(&self) -> bool {
        self.queue_pair_type == queue_pair_type::UD
    }

    /// Whether its queue pairs repeat what is lost.
    pub fn is_reliable(&self) -> bool {
        [queue_pair_type::RC, queue_pair_type::XRC_SEND].contains(&self.queue_pair_type)
    }
}

/// `enum ibv_qp_type`.
pub mod queue_pair_type {
    use pagewire_cm::PortSpace;

    pub const RC: u8 = 2;
    pub const UC: u8 = 3;
    pub const UD: u8 = 4;
    pub const XRC_SEND: u8 = 9;

    /// The type of a port space; that of the program, where the space has several.
    pub fn of_space(space: PortSpace, given: u8) -> u8 {
        match space {
            PortSpace::Tcp => RC,
            PortSpace::Udp | PortSpace::IpoIb => UD,
            PortSpace::Ib => given,
        }
    }
}

/// What the thread waits for.
pub enum EventSource {
    Kick,
    CommIds,
    Channel(ChannelKey),
    /// Where siblings make themselves known.
    Introductions,
    /// What the kernel announces of network devices.
    Links,
    Sibling(Sibling),
    /// Errors of what was sent from one address to another.
    Probe(Pair),
}

/// What the thread waits for, by numbers that are never used again: epoll(7) may have told of one that is gone.
#[derive(Default)]
pub struct EventSources {
    sources: BTreeMap<u64, EventSource>,
    next: u64,
}

impl EventSources {
    pub fn insert(&mut self, source: EventSource) -> u64 {
        self.next += 1;
        self.sources.insert(self.next, source);
        self.next
    }

    pub fn get(&self, token: u64) -> Option<&EventSource> {
        self.sources.get(&token)
    }

    pub fn remove(&mut self, token: u64) -> Option<EventSource> {
        self.sources.remove(&token)
    }

    /// The numbers of those that are siblings.
    pub fn siblings(&self) -> Vec<u64> {
        let is_sibling = |source: &EventSource| matches!(source, EventSource::Sibling(_));
        self.sources.iter().filter(|(_, source)| is_sibling(source)).map(|(token, _)| *token).collect()
    }

    fn retain(&mut self, is_kept: impl Fn(&EventSource) -> bool) {
        self.sources.retain(|_, source| is_kept(source));
    }
}

/// See the module.
pub struct CmService {
    pub nic: Arc<Nic<Host>>,
    pub manager: ConnectionManager,
    pub ids: Slab<CmId>,
    pub by_endpoint: HashMap<EndpointId, u32>,
    /// Memberships of IDs in multicast groups.
    pub groups: Slab<JoinedGroup>,
    pub channels: HashMap<ChannelKey, Channel>,
    pub ports: PortTable,
    pub comm_ids: ManagementSocket,
    pub outbox: Outbox,
    pub probes: Probes,
    pub deaths: Deaths,
    pub links: LinkChanges,
    /// `None`: RLIMIT_FSIZE forbids the file, or somebody has its name, and peers learn of the death of this process by their timeouts.
    pub last_words: Option<LastWordsFile>,
    pub ready: Arc<OwnedFd>,
    pub kick: OwnedFd,
    pub watched: EventSources,
    /// The process ends: its last words stay as they are.
    pub is_ending: bool,
    /// When the thread wakes up by itself.
    pub sleeps_until: Option<Duration>,
}

/// The connection manager, once the program has opened a channel. Forked children begin without one.
static SERVICE: PerProcess<Option<CmService>> = PerProcess::new();

/// Runs a step of the connection manager, and sends and announces what follows; `None`: the program has opened no channel.
pub fn with_service<T>(step: impl FnOnce(&mut CmService) -> T) -> Option<T> {
    let mut guard = SERVICE.lock();
    let service = guard.as_mut()?;
    let result = step(service);
    service.flush();
    Some(result)
}

/// Starts the connection manager, if nobody has.
///
/// # Errors
/// The engine's; the kernel's: no descriptors, no thread.
pub fn start() -> Result<()> {
    // Before the lock: the engine has locks of its own, and may start now.
    let nic = engine()?.nic().clone();
    let mut service = SERVICE.lock();
    if service.is_some() {
        return Ok(());
    }
    let started = CmService::new(nic)?;
    let ready = started.ready.clone();
    pagewire_fabric::spawn("pagewire-cm", move || run(&ready))?;
    *service = Some(started);
    // Children inherit what is registered. The engine's, which was registered before, runs later.
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: `at_exit` is an `extern "C"` function of no arguments that unwinds nowhere.
        if unsafe { libc::atexit(at_exit) } != 0 {
            log::warn!("peers may learn late that this process ends: the C library takes no more functions for the exit");
        }
    });
    Ok(())
}

/// Ends all IDs of a process that ends: their peers hear of it. Where another thread is at it siblings tell them, as if it were killed.
extern "C" fn at_exit() {
    let _uncancelled = Uncancelled::begin();
    let end = || {
        let Some(mut guard) = SERVICE.try_lock() else { return };
        let Some(service) = guard.as_mut() else { return };
        // Siblings say what does not leave now: a peer may be busy.
        service.is_ending = true;
        let numbers: Vec<u32> = service.ids.iter().map(|(number, _)| number as u32).collect();
        for number in numbers {
            service.destroy_id(number);
        }
        service.flush();
        // Where only streams will do, and one is being opened.
        let until = Instant::now() + LAST_PATIENCE;
        while service.outbox.waits_for_hosts() && Instant::now() < until {
            std::thread::sleep(LAST_PAUSE);
            service.flush();
        }
    };
    if catch_unwind(AssertUnwindSafe(end)).is_err() {
        log::warn!("the connection manager could not tell its peers that the process ends");
    }
}

/// The thread: it ends with the process.
fn run(ready: &OwnedFd) {
    loop {
        let deadline = with_service(|service| {
            service.expire();
            service.sleep()
        });
        let Some(timeout) = deadline else { return };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(READY);
        // Where a signal has ended it there is nothing, and the next look comes at once.
        let _ended = epoll::wait(ready, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
        for event in &events {
            with_service(|service| service.take(event.data.u64()));
        }
    }
}

impl CmService {
    fn new(nic: Arc<Nic<Host>>) -> Result<Self> {
        // The numbers of its queue pairs are nobody else's in this network namespace: so are communication IDs with that number.
        let block = nic.fabric().lease_block()? as u16;
        let comm_ids = ManagementSocket::claim(ManagementTarget::CommIds(block))?;
        let last_words = match LastWordsFile::new(block) {
            Ok(file) => Some(file),
            Err(error) if matches!(error.kind(), ErrorKind::FileTooLarge | ErrorKind::AddrInUse) => None,
            Err(error) => return Err(error.into()),
        };
        let guid = crate::devices::device_list::devices()?.first().map_or(1, |device| device.guid);
        let settings = ManagerSettings { ca_guid: guid, comm_id_block: block, seed: nic.fabric().random() };
        let mut service = CmService {
            nic,
            manager: ConnectionManager::new(settings),
            ids: Slab::new(),
            by_endpoint: HashMap::new(),
            groups: Slab::new(),
            channels: HashMap::new(),
            ports: PortTable::default(),
            comm_ids,
            outbox: Outbox::default(),
            deaths: Deaths::default(),
            probes: Probes::default(),
            links: LinkChanges::subscribe(),
            last_words,
            ready: Arc::new(above_low_numbers(epoll::create(epoll::CreateFlags::CLOEXEC)?)?),
            kick: above_low_numbers(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?,
            watched: EventSources::default(),
            is_ending: false,
            sleeps_until: None,
        };
        let kick = service.watched.insert(EventSource::Kick);
        watch(&service.ready, &service.kick, kick, epoll::EventFlags::IN)?;
        let comm_ids = service.watched.insert(EventSource::CommIds);
        watch(&service.ready, &service.comm_ids, comm_ids, epoll::EventFlags::IN)?;
        if let Some(links) = service.links.socket() {
            let token = service.watched.insert(EventSource::Links);
            watch(&service.ready, &links, token, epoll::EventFlags::IN)?;
        }
        if let Some(last_words) = &service.last_words {
            let introductions = service.watched.insert(EventSource::Introductions);
            watch(&service.ready, last_words, introductions, epoll::EventFlags::IN)?;
            // Without /proc no sibling is greeted; later ones greet this process.
            let greeted = last_words.greet_all().unwrap_or_else(|error| {
                log::debug!("no sibling is known: {error}");
                0
            });
            service.await_siblings(greeted);
        }
        Ok(service)
    }

    /// The time of the connection manager.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nic.fabric().now())
    }

    /// Has epoll(7) watch a file no more: a forked child may have a copy, and the kernel would go on to tell of it.
    pub fn forget(&self, file: &impl AsFd) {
        // It is watched.
        let _was_watched = epoll::delete(&self.ready, file);
    }

    /// Takes over a channel that the program is about to have.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_channel(&mut self, key: ChannelKey, channel: Channel) -> Result<()> {
        let token = self.watched.insert(EventSource::Channel(key));
        // Only the hang-up, of which epoll(7) always tells.
        watch(&self.ready, &channel.ours(), token, epoll::EventFlags::empty())?;
        self.channels.insert(key, channel);
        Ok(())
    }

    /// Has requests for a port of a space come here, if it is not so yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch_port(&mut self, space: u16, port: &OwnedPort) -> Result<()> {
        let Some(socket) = &port.socket else { return Ok(()) };
        let data = epoll::EventData::new_u64(PORTS | u64::from(space) << 16 | u64::from(port.port));
        match epoll::add(&self.ready, socket, data, epoll::EventFlags::IN) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds an ID.
    pub fn add_id(&mut self, id: CmId) -> u32 {
        let endpoint = id.endpoint;
        let number = self.ids.insert(id) as u32;
        self.by_endpoint.insert(endpoint, number);
        number
    }

    /// Destroys an ID, with requests to it that the program has not taken. Gives how many of its events the program has taken.
    pub fn destroy_id(&mut self, number: u32) -> u32 {
        let Some(id) = self.ids.try_remove(number as usize) else { return 0 };
        self.by_endpoint.remove(&id.endpoint);
        drop(id.port);
        self.ports.release(number);
        self.groups.retain(|_, joined| joined.id != number);
        let now = self.now();
        // Who removes it here is the only one who knows it.
        let _destroyed = self.manager.destroy(id.endpoint, now);
        let is_about = |event: &QueuedEvent| event.counted_for == number || event.request == Some(number);
        let dropped =
            self.channels.get_mut(&id.channel).map(|channel| channel.take(is_about)).unwrap_or_default();
        for request in dropped.iter().filter_map(|event| event.request).filter(|request| *request != number) {
            self.destroy_id(request);
        }
        id.reported
    }

    /// Sends what is to be sent, and announces what has happened, until there is nothing more; the thread is woken for an earlier deadline.
    fn flush(&mut self) {
        loop {
            let mut is_done = true;
            while let Some(outgoing) = self.manager.next_datagram() {
                self.note_local_connection(&outgoing);
                self.outbox.push(outgoing_of(outgoing));
            }
            let now = self.now();
            let transport =
                if self.is_ending { ManagementTransport::AtOnce } else { ManagementTransport::Best };
            let OutboxOutcome { refused, datagrams, lost } = self.outbox.send(&self.nic, now, transport);
            for outgoing in datagrams {
                self.probe(&outgoing);
            }
            for Outgoing { route, .. } in lost {
                // Nothing will change that while the request is repeated.
                is_done = false;
                self.manager.give_up_unanswered(now, route.source, route.destination);
            }
            for refused in refused {
                is_done = false;
                // In the name of the peer.
                let ManagementRoute { source, destination, .. } = refused.route;
                self.receive(destination, source, Origin::ThisHost, &refused.datagram);
            }
            while let Some(event) = self.manager.next_event() {
                is_done = false;
                self.announce(event);
            }
            if is_done {
                break;
            }
        }
        while let Some(changed) = self.manager.next_last_words().filter(|_| !self.is_ending) {
            self.note_last_words(changed);
        }
        if self.deadline().is_some_and(|next| self.sleeps_until.is_none_or(|until| next < until)) {
            self.sleeps_until = self.deadline();
            // A full counter wakes, too.
            let _is_awake = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
        }
    }

    /// Asks whether the host of a request that left as a datagram can be reached.
    fn probe(&mut self, outgoing: &Outgoing) {
        let message = &outgoing.datagram.message;
        let route = outgoing.route;
        let is_request =
            matches!(message, CmMessage::PortQuery(_) | CmMessage::Req(_) | CmMessage::SidrReq(_));
        if !is_request {
            return;
        }
        let pair = (route.source, SocketAddr::new(route.destination, route.udp_port));
        let now = self.now();
        let Some(socket) = self.probes.ask(pair, now) else { return };
        let token = self.watched.insert(EventSource::Probe(pair));
        if watch(&self.ready, &socket, token, epoll::EventFlags::ERR | epoll::EventFlags::ET).is_err() {
            // The peer is waited for.
            self.watched.remove(token);
            self.probes.end(pair);
        }
    }

    /// A connection with a process of this host is established by these messages, or begins: an MRA may follow on the request.
    fn note_local_connection(&mut self, outgoing: &OutgoingDatagram) {
        let message = &outgoing.datagram.message;
        let is_about_to_be = matches!(message, CmMessage::Req(_) | CmMessage::Rep(_) | CmMessage::Rtu(_));
        if is_about_to_be && self.is_of_this_host(outgoing.destination) {
            let now = self.now();
            self.deaths.watch_local_peers(now);
        }
    }

    /// ICMP has told something of a host.
    fn take_error(&mut self, token: u64, (source, destination): Pair) {
        let now = self.now();
        match self.probes.error((source, destination)) {
            // It may be asked once more.
            Some(Unreachability::PortClosed) => self.manager.refuse_unanswered(now, source, destination),
            Some(Unreachability::HostUnreachable) => {
                self.manager.give_up_unanswered(now, source, destination.ip());
                if let Some(socket) = self.probes.end((source, destination)) {
                    self.forget(&socket);
                }
                self.watched.remove(token);
            }
            None => {}
        }
    }

    /// When the thread has something to do.
    fn deadline(&self) -> Option<Duration> {
        let deadlines =
            [self.manager.deadline(), self.outbox.deadline(), self.probes.deadline(), self.deaths.deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn expire(&mut self) {
        let now = self.now();
        self.manager.expire(now);
        self.expire_deaths();
        for (pair, socket) in self.probes.expire(now) {
            self.forget(&socket);
            let is_over =
                |watched: &EventSource| matches!(watched, EventSource::Probe(other) if *other == pair);
            self.watched.retain(|watched| !is_over(watched));
        }
    }

    /// How long the thread may sleep.
    fn sleep(&mut self) -> Option<rustix::time::Timespec> {
        self.sleeps_until = self.deadline();
        let left = self.sleeps_until?.saturating_sub(self.now());
        rustix::time::Timespec::try_from(left).ok()
    }

    /// Takes what has come at something that is watched.
    fn take(&mut self, data: u64) {
        if data & PORTS != 0 {
            return self.take_requests(((data >> 16) as u16, data as u16));
        }
        let token = data;
        match self.watched.get(token) {
            Some(EventSource::Kick) => {
                let mut count = [0; 8];
                let _was_kicked = rustix::io::read(&self.kick, &mut count);
            }
            Some(EventSource::CommIds) => {
                let received = receive_all(&self.comm_ids, self.nic.fabric());
                self.receive_all(&received);
            }
            Some(EventSource::Channel(key)) => {
                let key = *key;
                self.watched.remove(token);
                self.close_channel(key);
            }
            Some(EventSource::Probe(pair)) => {
                let pair = *pair;
                self.take_error(token, pair);
            }
            Some(EventSource::Links) => self.look_for_removed_devices(),
            Some(EventSource::Introductions) => self.add_siblings(),
            Some(EventSource::Sibling(_)) => {
                if let Some(EventSource::Sibling(sibling)) = self.watched.remove(token) {
                    self.forget(&sibling);
                    self.send_last_words(sibling);
                }
            }
            None => {}
        }
    }

    fn take_requests(&mut self, port: (u16, u16)) {
        let Some(port) = self.ports.owned(port) else { return };
        if let Some(socket) = &port.socket {
            let received = receive_all(socket, self.nic.fabric());
            self.receive_all(&received);
        }
    }

    fn receive_all(&mut self, received: &[(ManagementDatagram, Handover)]) {
        for (datagram, handover) in received {
            let origin = match handover {
                Handover::Foreign => Origin::OtherUser,
                Handover::Trusted | Handover::Encrypted if self.is_of_this_host(datagram.source) => {
                    Origin::ThisHost
                }
                Handover::Trusted | Handover::Encrypted => Origin::Network,
            };
            if origin == Origin::ThisHost {
                self.nic.fabric().capture_management(datagram);
            }
            if let Some(message) = CmDatagram::parse(&datagram.payload) {
                self.receive(datagram.source, datagram.destination, origin, &message);
            }
        }
    }

    fn receive(&mut self, source: IpAddr, destination: IpAddr, origin: Origin, datagram: &CmDatagram) {
        let now = self.now();
        self.manager.receive(now, &IncomingDatagram { source, destination, origin, datagram });
    }

    /// Whether an address is one of this host.
    pub fn is_of_this_host(&self, address: IpAddr) -> bool {
        self.nic.fabric().is_local(address) == Ok(true)
    }

    /// Whether what comes to UDP port 4791 comes to a user who is not trusted with it.
    pub fn is_standard_port_foreign(&self) -> bool {
        let is_untrusted = |user: u32| user != 0 && user != rustix::process::geteuid().as_raw();
        self.nic.fabric().direct_port() != ROCE_PORT
            && addresses::users_of_udp_port(ROCE_PORT)
                .is_some_and(|users| users.into_iter().all(is_untrusted))
    }

    /// The program has closed the last descriptor of a channel: its IDs end.
    fn close_channel(&mut self, key: ChannelKey) {
        let numbers: Vec<u32> =
            self.ids.iter().filter(|(_, id)| id.channel == key).map(|(number, _)| number as u32).collect();
        for number in numbers {
            self.destroy_id(number);
        }
        if let Some(channel) = self.channels.remove(&key) {
            self.forget(&channel.ours());
        }
        super::forget_channel(key);
    }
}

fn outgoing_of(outgoing: OutgoingDatagram) -> Outgoing {
    let route = ManagementRoute {
        source: outgoing.source,
        destination: outgoing.destination,
        udp_port: outgoing.udp_port,
        traffic_class: outgoing.traffic_class,
        hop_limit: outgoing.hop_limit,
    };
    Outgoing { route, datagram: outgoing.datagram }
}

pub fn watch(ready: &OwnedFd, what: &impl AsFd, token: u64, flags: epoll::EventFlags) -> Result<()> {
    Ok(epoll::add(ready, what, epoll::EventData::new_u64(token), flags)?)
}

fn receive_all(socket: &ManagementSocket, fabric: &Host) -> Vec<(ManagementDatagram, Handover)> {
    let is_local = |address| fabric.is_local(address) == Ok(true);
    let is_taken = |(datagram, handover): &(ManagementDatagram, Handover)| {
        !fabric.is_encrypted() || *handover == Handover::Encrypted || is_local(datagram.source)
    };
    // An error is that of the next look, too.
    let received = std::iter::from_fn(|| socket.receive(is_local).ok().flatten()).take(ROUND);
    received.filter(is_taken).collect()
}

//! The hosts, their programs, and the network between them.

use pagewire_cm::{
    CmEvent, ConnectionManager, ConnectionParameters, EndpointId, EventKind, IncomingDatagram,
    LocalQueuePair, ManagerSettings, Origin, OutgoingDatagram, PortSpace, Route,
};
use pagewire_wire::cm::CmDatagram;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const HOSTS: usize = 3;
const PORT: u16 = 7174;
/// Every message is answered or given up within this.
const PATIENCE: Duration = Duration::from_secs(400);

/// What was drawn, in all worlds.
#[derive(Debug, Default)]
pub struct Totals(BTreeMap<&'static str, u64>);

impl Totals {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Totals) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    pub fn check_all_drawn(&self) {
        let all = [
            "connect",
            "ask",
            "accept",
            "accept service",
            "reject",
            "reject service",
            "establish",
            "refuse a REP",
            "disconnect",
            "destroy",
            "kill",
            "lost",
            "doubled",
            "request",
            "service request",
            "response",
            "established",
            "found",
            "rejected",
            "refused service",
            "unreachable",
            "disconnected",
            "timewait exit",
        ];
        for what in all {
            assert!(self.0.contains_key(what), "no world had: {what}");
        }
    }
}

/// How far an endpoint has come, as its program has progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Progress {
    Listening,
    /// Asked, or was asked; nothing else yet.
    Asked,
    Answered,
    Established,
    /// Rejected, unreachable, or disconnected.
    Ended,
    Forgotten,
}

#[derive(Debug)]
struct Known {
    progress: Progress,
    is_active: bool,
    is_service: bool,
}

struct Host {
    manager: ConnectionManager,
    endpoints: HashMap<EndpointId, Known>,
    /// What a sibling would say.
    last_words: BTreeMap<u16, OutgoingDatagram>,
}

pub struct World {
    pub totals: Totals,
    seed: u64,
    /// Programs answer whatever they are asked.
    is_ending: bool,
    now: Duration,
    hosts: Vec<Host>,
    blocks: u16,
    in_flight: Vec<(Duration, OutgoingDatagram)>,
    random: fastrand::Rng,
    loss: f64,
    queue_pairs: u32,
    /// Private data of a REQ or SIDR_REQ, with the queue pair that it named: each is somebody's.
    requests: HashMap<[u8; 8], u32>,
}

fn address(host: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, 1 + host as u8])
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let loss = [0.0, 0.05, 0.3][random.usize(..3)];
        let mut world = World {
            totals: Totals::default(),
            seed,
            is_ending: false,
            now: Duration::ZERO,
            hosts: Vec::new(),
            blocks: 0,
            in_flight: Vec::new(),
            random,
            loss,
            queue_pairs: 0,
            requests: HashMap::new(),
        };
        for host in 0..HOSTS {
            let new = world.new_host(host);
            world.hosts.push(new);
        }
        world
    }

    fn new_host(&mut self, host: usize) -> Host {
        self.blocks += 1;
        let settings = ManagerSettings {
            ca_guid: 0xca00 + host as u64,
            comm_id_block: self.blocks,
            seed: self.random.u64(..),
        };
        let mut manager = ConnectionManager::new(settings);
        let mut endpoints = HashMap::new();
        for space in [PortSpace::Tcp, PortSpace::Udp] {
            let listener = manager.create(space).unwrap();
            manager.bind(listener, SocketAddr::from(([0, 0, 0, 0], PORT))).unwrap();
            manager.listen(listener, self.random.usize(1..4), true).unwrap();
            let known = Known {
                progress: Progress::Listening,
                is_active: false,
                is_service: space == PortSpace::Udp,
            };
            endpoints.insert(listener, known);
        }
        Host { manager, endpoints, last_words: BTreeMap::new() }
    }

    /// Does something at random.
    pub fn step(&mut self) {
        let host = self.random.usize(..HOSTS);
        match self.random.usize(..100) {
            0..20 => self.begin(host),
            20..30 => self.leave(host, false),
            30..36 => self.leave(host, true),
            36..37 => self.kill(host),
            _ => {
                let time = Duration::from_micros(1 << self.random.u32(5..24));
                self.run_until(self.now + time);
            }
        }
        self.exchange();
    }

    /// All programs leave: what is under way ends, and nothing is kept.
    pub fn finish(&mut self) {
        self.exchange();
        self.is_ending = true;
        // Whom a program lets wait would wait as long as that program lives.
        for host in &mut self.hosts {
            let is_undecided = |known: &Known| !known.is_active && known.progress == Progress::Asked;
            let undecided = host.endpoints.extract_if(|_, known| is_undecided(known));
            for (id, _) in undecided {
                host.manager.destroy(id, self.now).unwrap();
            }
        }
        self.run_until(self.now + PATIENCE);
        for host in &self.hosts {
            for (id, known) in &host.endpoints {
                let is_done = !(known.is_active && known.progress == Progress::Asked);
                assert!(is_done, "seed {}: {id:?} has progress nothing: {known:?}", self.seed);
            }
        }
        for host in 0..HOSTS {
            for id in self.hosts[host].endpoints.keys().copied().collect::<Vec<_>>() {
                self.hosts[host].manager.destroy(id, self.now).unwrap();
            }
            self.hosts[host].endpoints.clear();
        }
        self.run_until(self.now + PATIENCE);
        for host in &mut self.hosts {
            assert_eq!(host.manager.lingering(), 0, "seed {}", self.seed);
            assert_eq!(host.manager.deadline(), None, "seed {}", self.seed);
            assert!(host.last_words.is_empty(), "seed {}: {:?}", self.seed, host.last_words);
        }
    }

    /// An endpoint of a host asks another one, or itself.
    fn begin(&mut self, host: usize) {
        let space = if self.random.bool() { PortSpace::Tcp } else { PortSpace::Udp };
        let is_service = space == PortSpace::Udp;
        let peer = self.random.usize(..HOSTS);
        // One in some asks where nobody listens.
        let port = if self.random.usize(..8) == 0 { 9 } else { PORT };
        let route = Route {
            source: SocketAddr::new(address(host), 40_000),
            destination: SocketAddr::new(address(peer), port),
            mtu: 3,
            traffic_class: 0,
            hop_limit: 64,
            is_on_this_host: host == peer,
            ack_timeout: 10,
        };
        self.queue_pairs += 1;
        let (queue_pair, token) = (self.queue_pairs, self.random.u64(..).to_be_bytes());
        let now = self.now;
        let manager = &mut self.hosts[host].manager;
        let id = manager.create(space).unwrap();
        manager.resolve(id, route).unwrap();
        if is_service {
            manager.ask_for_service(id, &token, now).unwrap();
            self.totals.count("ask");
        } else {
            manager.connect(id, local(queue_pair), &parameters(&token), now).unwrap();
            self.totals.count("connect");
        }
        self.requests.insert(token, queue_pair);
        let known = Known { progress: Progress::Asked, is_active: true, is_service };
        self.hosts[host].endpoints.insert(id, known);
    }

    /// A program ends one of its connections, in whatever state that is.
    fn leave(&mut self, host: usize, destroys: bool) {
        let mut ids: Vec<EndpointId> = self.hosts[host].endpoints.keys().copied().collect();
        ids.sort_unstable();
        let Some(id) = (!ids.is_empty()).then(|| ids[self.random.usize(..ids.len())]) else { return };
        let entry = &mut self.hosts[host];
        if destroys && entry.endpoints[&id].progress != Progress::Listening {
            entry.manager.destroy(id, self.now).unwrap();
            entry.endpoints.remove(&id);
            self.totals.count("destroy");
        } else if entry.manager.disconnect(id, self.now).is_ok() {
            self.totals.count("disconnect");
        }
    }

    /// A process is killed: a sibling says its last words, and another process listens at once.
    fn kill(&mut self, host: usize) {
        self.exchange();
        let new = self.new_host(host);
        let killed = std::mem::replace(&mut self.hosts[host], new);
        for datagram in killed.last_words.into_values() {
            self.send(datagram);
        }
        self.totals.count("kill");
    }

    fn run_until(&mut self, end: Duration) {
        loop {
            self.exchange();
            let arrivals = self.in_flight.iter().map(|(at, _)| *at);
            let due = self.hosts.iter().filter_map(|host| host.manager.deadline());
            let Some(next) = arrivals.chain(due).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            let (arrived, later): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(|(at, _)| *at <= now);
            self.in_flight = later;
            for (_, datagram) in arrived {
                self.deliver(&datagram);
            }
            for host in &mut self.hosts {
                host.manager.expire(now);
            }
        }
        self.now = self.now.max(end);
    }

    fn deliver(&mut self, datagram: &OutgoingDatagram) {
        let parsed = CmDatagram::parse(&datagram.datagram.emit()).expect("it was emitted");
        let host = (0..HOSTS).find(|host| address(*host) == datagram.destination).expect("a host");
        let incoming = IncomingDatagram {
            source: datagram.source,
            destination: datagram.destination,
            origin: if datagram.source == datagram.destination { Origin::ThisHost } else { Origin::Network },
            datagram: &parsed,
        };
        self.hosts[host].manager.receive(self.now, &incoming);
    }

    /// Messages go on their way, and programs hear of what has happened, until nothing follows.
    fn exchange(&mut self) {
        loop {
            let mut is_done = true;
            for host in 0..HOSTS {
                while let Some(changed) = self.hosts[host].manager.next_last_words() {
                    let words = &mut self.hosts[host].last_words;
                    match changed.datagram {
                        Some(datagram) => words.insert(changed.comm_id, datagram),
                        None => words.remove(&changed.comm_id),
                    };
                }
                while let Some(datagram) = self.hosts[host].manager.next_datagram() {
                    self.send(datagram);
                }
                while let Some(event) = self.hosts[host].manager.next_event() {
                    is_done = false;
                    self.take_event(host, event);
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn send(&mut self, datagram: OutgoingDatagram) {
        let copies = 1 + usize::from(self.random.f64() < self.loss);
        if copies == 2 {
            self.totals.count("doubled");
        }
        for _ in 0..copies {
            if self.random.f64() < self.loss {
                self.totals.count("lost");
            } else {
                let delay = Duration::from_micros(self.random.u64(10..50_000));
                self.in_flight.push((self.now + delay, datagram.clone()));
            }
        }
    }

    fn take_event(&mut self, host: usize, event: CmEvent) {
        let id = event.endpoint;
        match event.kind {
            EventKind::ConnectRequest { remote, private_data, .. } => {
                self.totals.count("request");
                assert_eq!(
                    (private_data.len(), self.requested_queue_pair(&private_data)),
                    (56, remote.queue_pair)
                );
                self.answer(host, id, false);
            }
            EventKind::ServiceRequest { private_data, .. } => {
                self.totals.count("service request");
                let _somebody = self.requested_queue_pair(&private_data);
                self.answer(host, id, true);
            }
            EventKind::ConnectResponse { private_data, .. } => {
                self.totals.count("response");
                assert_eq!((private_data.len(), &private_data[..2]), (196, &b"ok"[..]));
                self.advance(host, id, &[Progress::Asked], Progress::Answered, true);
                self.conclude(host, id);
            }
            EventKind::Established => {
                self.totals.count("established");
                self.advance(host, id, &[Progress::Answered], Progress::Established, false);
            }
            EventKind::ServiceFound { private_data, .. } => {
                self.totals.count("found");
                assert_eq!((private_data.len(), &private_data[..2]), (136, &b"ok"[..]));
                self.advance(host, id, &[Progress::Asked], Progress::Ended, true);
            }
            EventKind::ServiceRefused { .. } => {
                self.totals.count("refused service");
                self.advance(host, id, &[Progress::Asked], Progress::Ended, true);
            }
            EventKind::Rejected { private_data, .. } => {
                self.totals.count("rejected");
                assert_eq!(private_data.len(), 148);
                // The last of them: the passive side has refused before it took the RTU.
                let before = [Progress::Asked, Progress::Answered, Progress::Established];
                self.advance_any(host, id, &before, Progress::Ended);
            }
            EventKind::Unreachable => {
                self.totals.count("unreachable");
                self.advance_any(host, id, &[Progress::Asked, Progress::Answered], Progress::Ended);
            }
            EventKind::Disconnected { .. } => {
                self.totals.count("disconnected");
                self.advance_any(host, id, &[Progress::Answered, Progress::Established], Progress::Ended);
                if self.random.bool() {
                    self.hosts[host].manager.disconnect(id, self.now).unwrap();
                }
            }
            EventKind::TimewaitExit => {
                self.totals.count("timewait exit");
                self.advance_any(host, id, &[Progress::Ended], Progress::Forgotten);
            }
        }
    }

    /// The queue pair that a request with these private data named.
    fn requested_queue_pair(&self, private_data: &[u8]) -> u32 {
        let token: [u8; 8] = private_data[..8].try_into().expect("8 bytes");
        *self.requests.get(&token).expect("somebody has asked so")
    }

    /// A program is asked: it accepts, refuses, or has not decided when this world ends.
    fn answer(&mut self, host: usize, id: EndpointId, is_service: bool) {
        let choice = self.random.usize(..8);
        self.queue_pairs += 1;
        let (queue_pair, now) = (self.queue_pairs, self.now);
        let entry = &mut self.hosts[host];
        entry.manager.request_delivered(id);
        let mut known = Known { progress: Progress::Asked, is_active: false, is_service };
        let (result, what) = match (choice, is_service) {
            (0, false) => (entry.manager.reject(id, b"no", now), "reject"),
            (0, true) => (entry.manager.reject(id, b"no", now), "reject service"),
            (1, _) if !self.is_ending => (Ok(()), "undecided"),
            (_, false) => {
                let accepted = entry.manager.accept(id, local(queue_pair), &parameters(b"ok"), now);
                known.progress = Progress::Answered;
                (accepted, "accept")
            }
            (_, true) => (entry.manager.accept_service(id, (queue_pair, 7), b"ok"), "accept service"),
        };
        // What a peer has given up meanwhile cannot be answered, and the program is about to hear so.
        if result.is_err() {
            known.progress = Progress::Asked;
        }
        self.totals.count(what);
        self.hosts[host].endpoints.insert(id, known);
    }

    /// The active side has its answer.
    fn conclude(&mut self, host: usize, id: EndpointId) {
        let refuses = self.random.usize(..8) == 0;
        let manager = &mut self.hosts[host].manager;
        if refuses {
            if manager.reject(id, b"changed my mind", self.now).is_ok() {
                self.totals.count("refuse a REP");
                self.hosts[host].endpoints.get_mut(&id).expect("it is known").progress = Progress::Forgotten;
            }
        } else if manager.establish(id).is_ok() {
            self.totals.count("establish");
            self.hosts[host].endpoints.get_mut(&id).expect("it is known").progress = Progress::Established;
        }
    }

    fn advance(
        &mut self,
        host: usize,
        id: EndpointId,
        before: &[Progress],
        after: Progress,
        is_active: bool,
    ) {
        let known = &self.hosts[host].endpoints[&id];
        assert_eq!(known.is_active, is_active, "seed {}: {id:?} of host {host}, {known:?}", self.seed);
        self.advance_any(host, id, before, after);
    }

    fn advance_any(&mut self, host: usize, id: EndpointId, before: &[Progress], after: Progress) {
        let seed = self.seed;
        let known = self.hosts[host].endpoints.get_mut(&id).expect("events are of endpoints that there are");
        assert!(
            before.contains(&known.progress),
            "seed {seed}: {id:?} of host {host} hears {after:?}, {known:?}"
        );
        assert!(!known.is_service || after == Progress::Ended, "seed {seed}: {known:?}");
        known.progress = after;
    }
}

fn local(number: u32) -> LocalQueuePair {
    LocalQueuePair { number, has_srq: false, is_unreliable: false }
}

fn parameters(data: &[u8]) -> ConnectionParameters {
    ConnectionParameters { private_data: data.to_vec(), ..ConnectionParameters::default() }
}

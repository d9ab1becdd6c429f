//! Processes of two users on each host, their programs, and the network between them.
//!
//! A process is a number; its host is half of it. On each host one user has UDP port 4791, and the other one's process has a direct port. One host is a
//! kernel's, whose one process knows nothing of Pagewire.

mod hosts;

use hosts::{KERNEL, PROCESSES, address, host_of, port_of};
use pagewire_cm::{
    CmEvent, ConnectionManager, ConnectionParameters, EndpointId, EventKind, LocalQueuePair, ManagerSettings,
    OutgoingDatagram, PortSpace, Route,
};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

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
            "port answered across users",
            "nobody owns the port",
            "kernel answers",
            "closed port",
            "request seen by another user",
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

struct Process {
    manager: ConnectionManager,
    endpoints: HashMap<EndpointId, Known>,
    /// Its communication IDs begin so.
    block: u16,
    /// What a sibling would say.
    last_words: BTreeMap<u16, OutgoingDatagram>,
}

pub struct World {
    pub totals: Totals,
    seed: u64,
    /// Programs answer whatever they are asked.
    is_ending: bool,
    now: Duration,
    processes: Vec<Process>,
    blocks: u16,
    /// The process of each host that has UDP port 4791.
    holders: [usize; 3],
    /// The kernel tells that it does not know the query. Other systems are silent.
    kernel_answers: bool,
    in_flight: Vec<(Duration, OutgoingDatagram)>,
    random: fastrand::Rng,
    loss: f64,
    queue_pairs: u32,
    /// Private data of a REQ or SIDR_REQ, with the queue pair that it named: each is somebody's.
    requests: HashMap<[u8; 8], u32>,
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
            processes: Vec::new(),
            blocks: 0,
            holders: [random.usize(..2), 2 + random.usize(..2), KERNEL],
            kernel_answers: random.bool(),
            in_flight: Vec::new(),
            random,
            loss,
            queue_pairs: 0,
            requests: HashMap::new(),
        };
        for process in 0..PROCESSES {
            let new = world.new_process(process);
            world.processes.push(new);
        }
        world
    }

    fn new_process(&mut self, process: usize) -> Process {
        self.blocks += 1;
        // A kernel's communication IDs may look like those of a process with a direct port.
        let block = if self.is_holder(process) && process != KERNEL { 0 } else { 0xF000 } + self.blocks;
        let settings = ManagerSettings {
            ca_guid: 0xca00 + host_of(process) as u64,
            comm_id_block: block,
            seed: self.random.u64(..),
        };
        let mut manager = ConnectionManager::new(settings);
        let mut endpoints = HashMap::new();
        for space in [PortSpace::Tcp, PortSpace::Udp] {
            let listener = manager.create(space).unwrap();
            manager.bind(listener, SocketAddr::from(([0, 0, 0, 0], port_of(process)))).unwrap();
            manager.listen(listener, self.random.usize(1..4), true).unwrap();
            let known = Known {
                progress: Progress::Listening,
                is_active: false,
                is_service: space == PortSpace::Udp,
            };
            endpoints.insert(listener, known);
        }
        Process { manager, endpoints, block, last_words: BTreeMap::new() }
    }

    /// Does something at random.
    pub fn step(&mut self) {
        let process = self.random.usize(..PROCESSES);
        match self.random.usize(..100) {
            0..20 => self.begin(process),
            20..30 => self.leave(process, false),
            30..36 => self.leave(process, true),
            36..37 => self.kill(process),
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
        for process in &mut self.processes {
            let is_undecided = |known: &Known| !known.is_active && known.progress == Progress::Asked;
            let undecided = process.endpoints.extract_if(|_, known| is_undecided(known));
            for (id, _) in undecided {
                process.manager.destroy(id, self.now).unwrap();
            }
        }
        self.run_until(self.now + PATIENCE);
        for process in &self.processes {
            for (id, known) in &process.endpoints {
                let is_done = !(known.is_active && known.progress == Progress::Asked);
                assert!(is_done, "seed {}: {id:?} has progress nothing: {known:?}", self.seed);
            }
        }
        for process in 0..PROCESSES {
            for id in self.processes[process].endpoints.keys().copied().collect::<Vec<_>>() {
                self.processes[process].manager.destroy(id, self.now).unwrap();
            }
            self.processes[process].endpoints.clear();
        }
        self.run_until(self.now + PATIENCE);
        for process in &mut self.processes {
            assert_eq!(process.manager.lingering(), 0, "seed {}", self.seed);
            assert_eq!(process.manager.deadline(), None, "seed {}", self.seed);
            assert!(process.last_words.is_empty(), "seed {}: {:?}", self.seed, process.last_words);
        }
    }

    /// An endpoint of a process asks another one, or itself.
    fn begin(&mut self, process: usize) {
        let space = if self.random.bool() { PortSpace::Tcp } else { PortSpace::Udp };
        let is_service = space == PortSpace::Udp;
        let peer = self.random.usize(..PROCESSES);
        // One in some asks where nobody listens.
        let port = if self.random.usize(..8) == 0 { 9 } else { port_of(peer) };
        let route = Route {
            source: SocketAddr::new(address(process), 40_000),
            destination: SocketAddr::new(address(peer), port),
            mtu: 3,
            traffic_class: 0,
            hop_limit: 64,
            // A kernel asks nobody for the port.
            is_on_this_host: host_of(process) == host_of(peer) || process == KERNEL,
            takes_standard_answers: self.is_holder(process),
            ack_timeout: 10,
        };
        self.queue_pairs += 1;
        let (queue_pair, token) = (self.queue_pairs, self.random.u64(..).to_be_bytes());
        let now = self.now;
        let manager = &mut self.processes[process].manager;
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
        self.processes[process].endpoints.insert(id, known);
    }

    /// A program ends one of its connections, in whatever state that is.
    fn leave(&mut self, process: usize, destroys: bool) {
        let mut ids: Vec<EndpointId> = self.processes[process].endpoints.keys().copied().collect();
        ids.sort_unstable();
        let Some(id) = (!ids.is_empty()).then(|| ids[self.random.usize(..ids.len())]) else { return };
        let entry = &mut self.processes[process];
        if destroys && entry.endpoints[&id].progress != Progress::Listening {
            entry.manager.destroy(id, self.now).unwrap();
            entry.endpoints.remove(&id);
            self.totals.count("destroy");
        } else if entry.manager.disconnect(id, self.now).is_ok() {
            self.totals.count("disconnect");
        }
    }

    /// A process is killed: a sibling says its last words, and another process listens at once.
    fn kill(&mut self, process: usize) {
        self.exchange();
        let new = self.new_process(process);
        let killed = std::mem::replace(&mut self.processes[process], new);
        for datagram in killed.last_words.into_values() {
            self.send(datagram);
        }
        self.totals.count("kill");
    }

    fn run_until(&mut self, end: Duration) {
        loop {
            self.exchange();
            let arrivals = self.in_flight.iter().map(|(at, _)| *at);
            let due = self.processes.iter().filter_map(|process| process.manager.deadline());
            let Some(next) = arrivals.chain(due).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            let (arrived, later): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(|(at, _)| *at <= now);
            self.in_flight = later;
            for (_, datagram) in arrived {
                self.arrive(&datagram);
            }
            for process in &mut self.processes {
                process.manager.expire(now);
            }
        }
        self.now = self.now.max(end);
    }

    /// Messages go on their way, and programs hear of what has happened, until nothing follows.
    fn exchange(&mut self) {
        loop {
            let mut is_done = true;
            for process in 0..PROCESSES {
                while let Some(changed) = self.processes[process].manager.next_last_words() {
                    let words = &mut self.processes[process].last_words;
                    match changed.datagram {
                        Some(datagram) => words.insert(changed.comm_id, datagram),
                        None => words.remove(&changed.comm_id),
                    };
                }
                while let Some(datagram) = self.processes[process].manager.next_datagram() {
                    self.send(datagram);
                }
                while let Some(event) = self.processes[process].manager.next_event() {
                    is_done = false;
                    self.take_event(process, event);
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn send(&mut self, mut datagram: OutgoingDatagram) {
        if datagram.source == address(KERNEL) {
            datagram.udp_port = 4791;
        }
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

    fn take_event(&mut self, process: usize, event: CmEvent) {
        let id = event.endpoint;
        match event.kind {
            EventKind::ConnectRequest { remote, private_data, .. } => {
                self.totals.count("request");
                assert_eq!(
                    (private_data.len(), self.requested_queue_pair(&private_data)),
                    (56, remote.queue_pair)
                );
                self.answer(process, id, false);
            }
            EventKind::ServiceRequest { private_data, .. } => {
                self.totals.count("service request");
                let _somebody = self.requested_queue_pair(&private_data);
                self.answer(process, id, true);
            }
            EventKind::ConnectResponse { private_data, .. } => {
                self.totals.count("response");
                assert_eq!((private_data.len(), &private_data[..2]), (196, &b"ok"[..]));
                self.advance(process, id, &[Progress::Asked], Progress::Answered, true);
                self.conclude(process, id);
            }
            EventKind::Established => {
                self.totals.count("established");
                self.advance(process, id, &[Progress::Answered], Progress::Established, false);
            }
            EventKind::ServiceFound { private_data, .. } => {
                self.totals.count("found");
                assert_eq!((private_data.len(), &private_data[..2]), (136, &b"ok"[..]));
                self.advance(process, id, &[Progress::Asked], Progress::Ended, true);
            }
            EventKind::ServiceRefused { .. } => {
                self.totals.count("refused service");
                self.advance(process, id, &[Progress::Asked], Progress::Ended, true);
            }
            EventKind::Rejected { private_data, .. } => {
                self.totals.count("rejected");
                assert_eq!(private_data.len(), 148);
                // The last of them: the passive side has refused before it took the RTU.
                let before = [Progress::Asked, Progress::Answered, Progress::Established];
                self.advance_any(process, id, &before, Progress::Ended);
            }
            EventKind::Unreachable => {
                self.totals.count("unreachable");
                self.advance_any(process, id, &[Progress::Asked, Progress::Answered], Progress::Ended);
            }
            EventKind::Disconnected { .. } => {
                self.totals.count("disconnected");
                self.advance_any(process, id, &[Progress::Answered, Progress::Established], Progress::Ended);
                if self.random.bool() {
                    self.processes[process].manager.disconnect(id, self.now).unwrap();
                }
            }
            EventKind::TimewaitExit => {
                self.totals.count("timewait exit");
                self.advance_any(process, id, &[Progress::Ended], Progress::Forgotten);
            }
        }
    }

    /// The queue pair that a request with these private data named.
    fn requested_queue_pair(&self, private_data: &[u8]) -> u32 {
        let token: [u8; 8] = private_data[..8].try_into().expect("8 bytes");
        *self.requests.get(&token).expect("somebody has asked so")
    }

    /// A program is asked: it accepts, refuses, or has not decided when this world ends.
    fn answer(&mut self, process: usize, id: EndpointId, is_service: bool) {
        let choice = self.random.usize(..8);
        self.queue_pairs += 1;
        let (queue_pair, now) = (self.queue_pairs, self.now);
        let entry = &mut self.processes[process];
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
        self.processes[process].endpoints.insert(id, known);
    }

    /// The active side has its answer.
    fn conclude(&mut self, process: usize, id: EndpointId) {
        let refuses = self.random.usize(..8) == 0;
        let manager = &mut self.processes[process].manager;
        if refuses {
            if manager.reject(id, b"changed my mind", self.now).is_ok() {
                self.totals.count("refuse a REP");
                self.processes[process].endpoints.get_mut(&id).expect("it is known").progress =
                    Progress::Forgotten;
            }
        } else if manager.establish(id).is_ok() {
            self.totals.count("establish");
            self.processes[process].endpoints.get_mut(&id).expect("it is known").progress =
                Progress::Established;
        }
    }

    fn advance(
        &mut self,
        process: usize,
        id: EndpointId,
        before: &[Progress],
        after: Progress,
        is_active: bool,
    ) {
        let known = &self.processes[process].endpoints[&id];
        assert_eq!(known.is_active, is_active, "seed {}: {id:?} of process {process}, {known:?}", self.seed);
        self.advance_any(process, id, before, after);
    }

    fn advance_any(&mut self, process: usize, id: EndpointId, before: &[Progress], after: Progress) {
        let seed = self.seed;
        let known =
            self.processes[process].endpoints.get_mut(&id).expect("events are of endpoints that there are");
        assert!(
            before.contains(&known.progress),
            "seed {seed}: {id:?} of process {process} hears {after:?}, {known:?}"
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

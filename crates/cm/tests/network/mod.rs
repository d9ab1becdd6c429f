//! Two hosts, each with a manager, and the network between them.

use pagewire_cm::{
    CmEvent, ConnectionManager, ConnectionParameters, EndpointId, IncomingDatagram, LocalQueuePair,
    ManagerSettings, Origin, OutgoingDatagram, PortSpace, Route, connection::Connection,
};
use pagewire_wire::cm::CmDatagram;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;
pub const SERVICE_PORT: u16 = 7174;

/// No test waits longer than this in virtual time.
const BOUND: Duration = Duration::from_secs(2_000);

pub fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + host as u8], 40_000))
}

pub fn queue_pair(number: u32) -> LocalQueuePair {
    LocalQueuePair { number, has_srq: false, is_unreliable: false }
}

pub fn parameters(data: &[u8]) -> ConnectionParameters {
    ConnectionParameters { private_data: data.to_vec(), ..ConnectionParameters::default() }
}

/// From a host to a port of the other one.
pub fn route(host: usize, port: u16) -> Route {
    let destination = SocketAddr::new(address(1 - host).ip(), port);
    Route {
        source: address(host),
        destination,
        mtu: 3,
        traffic_class: 0,
        hop_limit: 64,
        is_on_this_host: false,
        takes_standard_answers: true,
        ack_timeout: 19,
    }
}

pub struct Network {
    pub now: Duration,
    pub loss: f64,
    /// So many datagrams are lost, whatever the share.
    pub drop_next: usize,
    /// Both processes are of one host.
    pub is_one_host: bool,
    pub sent: Vec<OutgoingDatagram>,
    managers: [ConnectionManager; 2],
    successors: u16,
    events: [VecDeque<CmEvent>; 2],
    /// What siblings would say for each host's process, by the communication ID.
    last_words: [BTreeMap<u16, OutgoingDatagram>; 2],
    /// When each arrives.
    in_flight: Vec<(Duration, OutgoingDatagram)>,
    random: fastrand::Rng,
}

impl Network {
    /// As many are doubled as are lost, and each takes another time.
    pub fn new(seed: u64, loss: f64) -> Network {
        Network {
            now: Duration::ZERO,
            loss,
            drop_next: 0,
            is_one_host: false,
            sent: Vec::new(),
            managers: [CLIENT, SERVER].map(|host| manager(host, host as u16 + 1, seed)),
            successors: 2,
            events: Default::default(),
            last_words: Default::default(),
            in_flight: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    pub fn manager(&mut self, host: usize) -> &mut ConnectionManager {
        &mut self.managers[host]
    }

    pub fn connection(&self, host: usize, endpoint: EndpointId) -> &Connection {
        self.managers[host].connection(endpoint).expect("a connection")
    }

    /// The process of a host is another one, which knows nothing.
    pub fn replace(&mut self, host: usize) {
        self.successors += 1;
        self.managers[host] = manager(host, self.successors, u64::from(self.successors));
    }

    /// The process of a host is killed, and a sibling says its last words.
    pub fn kill(&mut self, host: usize) {
        self.collect();
        self.in_flight.retain(|(_, datagram)| datagram.source != address(host).ip());
        self.replace(host);
        self.events[host].clear();
        let said = std::mem::take(&mut self.last_words[host]).into_values();
        self.in_flight.extend(said.map(|datagram| (self.now, datagram)));
    }

    pub fn listen(&mut self, space: PortSpace, port: u16, backlog: usize) -> EndpointId {
        let manager = &mut self.managers[SERVER];
        let listener = manager.create(space).unwrap();
        manager.bind(listener, SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
        manager.listen(listener, backlog, true).unwrap();
        listener
    }

    /// An endpoint of the client that knows the way to the service.
    pub fn resolved(&mut self, space: PortSpace) -> EndpointId {
        let manager = &mut self.managers[CLIENT];
        let id = manager.create(space).unwrap();
        let is_on_this_host = self.is_one_host;
        manager.resolve(id, Route { is_on_this_host, ..route(CLIENT, SERVICE_PORT) }).unwrap();
        id
    }

    /// The names of all messages that were sent.
    pub fn sent_names(&self) -> impl Iterator<Item = &'static str> {
        self.sent.iter().map(|sent| sent.datagram.message.name())
    }

    /// The next event of a host.
    pub fn expect_event(&mut self, host: usize) -> CmEvent {
        self.collect();
        while self.events[host].is_empty() {
            assert!(self.advance(BOUND), "no event comes at host {host}");
        }
        self.events[host].pop_front().expect("one has come")
    }

    pub fn take_events(&mut self, host: usize) -> Vec<CmEvent> {
        self.collect();
        self.events[host].drain(..).collect()
    }

    pub fn run_until(&mut self, end: Duration) {
        while self.advance(end) {}
        self.now = self.now.max(end);
    }

    /// Nothing is heard any more, however long one waits.
    pub fn expect_silence(&mut self) {
        self.run_until(BOUND);
        assert_eq!(self.events, <[VecDeque<CmEvent>; 2]>::default());
    }

    /// Does what happens next, until `end`; false: nothing does.
    fn advance(&mut self, end: Duration) -> bool {
        self.collect();
        let arrivals = self.in_flight.iter().map(|(at, _)| *at);
        let due = self.managers.iter().filter_map(ConnectionManager::deadline);
        let Some(next) = arrivals.chain(due).min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        let (arrived, later): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(|(at, _)| *at <= now);
        self.in_flight = later;
        for (_, datagram) in arrived {
            let Some(host) =
                [CLIENT, SERVER].into_iter().find(|host| address(*host).ip() == datagram.destination)
            else {
                continue;
            };
            // As bytes, as over a real network.
            let parsed = CmDatagram::parse(&datagram.datagram.emit()).expect("it was emitted");
            let incoming = IncomingDatagram {
                source: datagram.source,
                destination: datagram.destination,
                origin: if self.is_one_host { Origin::ThisHost } else { Origin::Network },
                datagram: &parsed,
            };
            self.managers[host].receive(now, &incoming);
        }
        for manager in &mut self.managers {
            manager.expire(now);
        }
        self.collect();
        true
    }

    fn collect(&mut self) {
        for (host, manager) in self.managers.iter_mut().enumerate() {
            self.events[host].extend(std::iter::from_fn(|| manager.next_event()));
            while let Some(changed) = manager.next_last_words() {
                match changed.datagram {
                    Some(datagram) => self.last_words[host].insert(changed.comm_id, datagram),
                    None => self.last_words[host].remove(&changed.comm_id),
                };
            }
            while let Some(datagram) = manager.next_datagram() {
                self.sent.push(datagram.clone());
                let copies = 1 + usize::from(self.random.f64() < self.loss);
                for _ in 0..copies {
                    let is_lost = self.drop_next > 0 || self.random.f64() < self.loss;
                    self.drop_next = self.drop_next.saturating_sub(1);
                    if !is_lost {
                        let delay = Duration::from_micros(self.random.u64(10..2_000));
                        self.in_flight.push((self.now + delay, datagram.clone()));
                    }
                }
            }
        }
    }
}

fn manager(host: usize, comm_id_block: u16, seed: u64) -> ConnectionManager {
    ConnectionManager::new(ManagerSettings { ca_guid: 0xca00 + host as u64, comm_id_block, seed })
}

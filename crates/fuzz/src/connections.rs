//! Messages to queue pair 1, calls of programs and times into a live connection manager: no panic, few answers to a message, events of
//! endpoints that there are, no harm to a connection with somebody else, and nothing kept in the end.
//!
//! The attacker sends from its own address. It knows what the manager has said, so that its messages name live connections most of the time.

use arbitrary::{Result, Unstructured};
use pagewire_cm::{
    CmEvent, ConnectionManager, ConnectionParameters, EndpointId, EventKind, IncomingDatagram,
    LocalQueuePair, ManagerSettings, Origin, PortSpace, Route, connection::ConnectionState,
};
use pagewire_wire::cm::{CmDatagram, CmMessage, IpService, Rep, Req, Rtu};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
/// Who has a connection, and sends nothing any more.
const INNOCENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
const ATTACKER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 3));
const PORT: u16 = 7174;
const NOBODYS_PORT: u16 = 7175;
const BACKLOG: usize = 8;
/// The upper half of the manager's communication IDs.
const BLOCK: u16 = 0x12;
/// Messages of the manager that the attacker remembers.
const OVERHEARD: usize = 32;
/// Endpoints of the program: it destroys one before it makes another one.
const ENDPOINTS: usize = 64;
/// Answers and events of one message, at most: a REQ of a queue pair whose connection is live has that ended, and is refused.
const ANSWERS: usize = 3;
/// Everything is given up within this.
const PATIENCE: Duration = Duration::from_secs(400);

/// One input; gives how many messages it held.
pub fn run(bytes: &[u8]) -> u64 {
    let mut attacked = Attacked::new();
    // The input is over: a run like any other.
    let _ = attacked.interpret(&mut Unstructured::new(bytes));
    attacked.end()
}

struct Attacked {
    manager: ConnectionManager,
    now: Duration,
    listeners: [EndpointId; 2],
    /// The connection with the innocent peer.
    innocent: EndpointId,
    /// Endpoints of the program, beside those.
    endpoints: Vec<EndpointId>,
    known: BTreeSet<EndpointId>,
    overheard: VecDeque<CmDatagram>,
    messages: u64,
}

impl Attacked {
    fn new() -> Self {
        let settings = ManagerSettings { ca_guid: 0xca, comm_id_block: BLOCK, seed: 1 };
        let mut manager = ConnectionManager::new(settings);
        let listeners = [PortSpace::Tcp, PortSpace::Udp].map(|space| {
            let listener = manager.create(space).expect("the first");
            manager.bind(listener, SocketAddr::from(([0, 0, 0, 0], PORT))).expect("a new one");
            manager.listen(listener, BACKLOG, true).expect("it has an address");
            listener
        });
        let mut attacked = Attacked {
            manager,
            now: Duration::ZERO,
            listeners,
            innocent: listeners[0],
            endpoints: Vec::new(),
            known: listeners.into(),
            overheard: VecDeque::new(),
            messages: 0,
        };
        attacked.connect_innocent();
        attacked
    }

    fn connect_innocent(&mut self) {
        let request =
            Req { ca_guid: 7, queue_pair: 9, local_comm_id: 5, ..req_from(INNOCENT, PortSpace::Tcp) };
        self.receive(INNOCENT, Origin::Network, &CmDatagram::new(1, request));
        self.innocent = self.endpoints.pop().expect("a request");
        self.manager
            .accept(self.innocent, local(8), &ConnectionParameters::default(), self.now)
            .expect("a request");
        let Some(CmMessage::Rep(rep)) = self.manager.next_datagram().map(|sent| sent.datagram.message) else {
            panic!("no REP");
        };
        let rtu = Rtu { local_comm_id: 5, remote_comm_id: rep.local_comm_id, ..Rtu::default() };
        self.receive(INNOCENT, Origin::Network, &CmDatagram::new(1, rtu));
    }

    fn interpret(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        while !input.is_empty() {
            match input.int_in_range(0..=15u8)? {
                0..=8 => {
                    let origin = match input.int_in_range(0..=7u8)? {
                        0 => Origin::OtherUser,
                        1..=3 => Origin::ThisHost,
                        _ => Origin::Network,
                    };
                    if let Some(message) = self.message(input)? {
                        self.receive(ATTACKER, origin, &message);
                    }
                }
                9..=12 => self.call(input)?,
                13 => {
                    let udp_port =
                        if input.arbitrary()? { pagewire_wire::packet::PORT } else { input.arbitrary()? };
                    self.manager.refuse_unanswered(self.now, OWN, SocketAddr::new(ATTACKER, udp_port));
                }
                14 if input.ratio(1, 8)? => self.manager.give_up_unanswered(self.now, OWN, ATTACKER),
                _ => {
                    let exponent = input.int_in_range(0..=34)?;
                    self.now += Duration::from_nanos(1 << exponent);
                    self.expire();
                }
            }
            self.collect(usize::MAX);
        }
        Ok(())
    }

    /// What the attacker says: any bytes, an answer to what it has overheard, a request; some of it changed.
    fn message(&mut self, input: &mut Unstructured<'_>) -> Result<Option<CmDatagram>> {
        let mut bytes = [0; 256];
        match input.int_in_range(0..=3u8)? {
            0 => {
                let length = input.len().min(64);
                bytes[24..24 + length].copy_from_slice(input.bytes(length)?);
                bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
                bytes[17] = input.int_in_range(0x0F..=0x1A)?;
            }
            1 => bytes = self.request(input)?.emit(),
            _ => {
                let Some(last) = self.overheard.len().checked_sub(1) else { return Ok(None) };
                let heard = &self.overheard[input.int_in_range(0..=last)?];
                let Some(answer) = answer_to(heard, input)? else { return Ok(None) };
                bytes = answer.emit();
            }
        }
        for _ in 0..input.int_in_range(0..=2u8)? {
            let at = input.int_in_range(0..=255usize)?;
            bytes[at] = input.arbitrary()?;
        }
        Ok(CmDatagram::parse(&bytes))
    }

    fn request(&self, input: &mut Unstructured<'_>) -> Result<CmDatagram> {
        let space = if input.arbitrary()? { PortSpace::Tcp } else { PortSpace::Udp };
        let (comm_id, queue_pair) = (input.int_in_range(0..=255u32)?, input.int_in_range(0..=31)?);
        let request = req_from(ATTACKER, space);
        let service_id = if input.ratio(1, 8)? { space.service_id(NOBODYS_PORT) } else { request.service_id };
        let transaction = input.arbitrary()?;
        if space == PortSpace::Udp {
            let mut private_data = [0; 216];
            private_data[..92].copy_from_slice(&request.private_data);
            let request = pagewire_wire::cm::SidrReq {
                request_id: comm_id,
                service_id,
                private_data,
                ..Default::default()
            };
            return Ok(CmDatagram::new(transaction, request));
        }
        let ack_timeout = input.int_in_range(0..=31)?;
        let ca_guid = input.int_in_range(6..=7)?;
        let request = Req { local_comm_id: comm_id, queue_pair, service_id, ack_timeout, ca_guid, ..request };
        Ok(CmDatagram::new(transaction, request))
    }

    /// A message comes in.
    fn receive(&mut self, source: IpAddr, origin: Origin, datagram: &CmDatagram) {
        self.collect(usize::MAX);
        self.messages += 1;
        let incoming = IncomingDatagram { source, destination: OWN, origin, datagram };
        self.manager.receive(self.now, &incoming);
        if source != INNOCENT || !matches!(datagram.message, CmMessage::Req(_)) {
            self.collect(ANSWERS);
        } else {
            // The test itself takes the answers.
            while let Some(event) = self.manager.next_event() {
                self.hear(event);
            }
        }
    }

    /// The program does something with one of its endpoints, whatever state that is in.
    fn call(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let now = self.now;
        if self.endpoints.is_empty() || input.ratio(1, 4)? {
            self.begin(input)?;
            return Ok(());
        }
        let place = input.choose_index(self.endpoints.len())?;
        let id = self.endpoints[place];
        let queue_pair = local(input.int_in_range(0..=31)?);
        let parameters = ConnectionParameters {
            private_data: vec![7; input.int_in_range(0..=255)?],
            ..Default::default()
        };
        // Refused calls change nothing.
        let _answer = match input.int_in_range(0..=9u8)? {
            0..=2 => self.manager.accept(id, queue_pair, &parameters, now),
            3 => self.manager.accept_service(id, (1, 2), &parameters.private_data),
            4 => self.manager.establish(id),
            5 => self.manager.notify_established(id),
            6 => self.manager.reject(id, &parameters.private_data, now),
            7 => self.manager.disconnect(id, now),
            8 => {
                self.manager.request_delivered(id);
                Ok(())
            }
            _ => self.destroy(place),
        };
        Ok(())
    }

    fn destroy(&mut self, place: usize) -> pagewire_cm::Result<()> {
        let id = self.endpoints.swap_remove(place);
        self.collect(usize::MAX);
        self.known.remove(&id);
        self.manager.destroy(id, self.now)
    }

    /// A new endpoint asks the attacker.
    fn begin(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if self.endpoints.len() >= ENDPOINTS {
            let place = input.choose_index(self.endpoints.len())?;
            self.destroy(place).expect("it is there");
        }
        let space = if input.arbitrary()? { PortSpace::Tcp } else { PortSpace::Udp };
        let id = self.manager.create(space).expect("there are few");
        self.known.insert(id);
        self.endpoints.push(id);
        let route = Route {
            source: SocketAddr::new(OWN, 40_000),
            destination: SocketAddr::new(ATTACKER, PORT),
            mtu: 3,
            traffic_class: 0,
            hop_limit: 64,
            is_on_this_host: input.arbitrary()?,
            takes_standard_answers: input.arbitrary()?,
            ack_timeout: input.int_in_range(0..=31)?,
        };
        self.manager.resolve(id, route).expect("it is new");
        let asked = match space {
            PortSpace::Udp => self.manager.ask_for_service(id, b"?", self.now),
            _ => {
                let queue_pair = local(input.int_in_range(0..=31)?);
                self.manager.connect(id, queue_pair, &ConnectionParameters::default(), self.now)
            }
        };
        asked.expect("it has a route");
        Ok(())
    }

    fn expire(&mut self) {
        self.manager.expire(self.now);
        assert!(self.manager.deadline().is_none_or(|next| next > self.now), "what is due is done");
    }

    /// Takes what the manager says, which is at most so much.
    fn collect(&mut self, most: usize) {
        let mut count = 0;
        while let Some(sent) = self.manager.next_datagram() {
            assert_eq!(sent.source, OWN);
            assert_eq!(CmDatagram::parse(&sent.datagram.emit()).as_ref(), Some(&sent.datagram));
            if sent.destination == ATTACKER {
                if self.overheard.len() == OVERHEARD {
                    self.overheard.pop_front();
                }
                self.overheard.push_back(sent.datagram);
            }
            count += 1;
        }
        while let Some(event) = self.manager.next_event() {
            self.hear(event);
            count += 1;
        }
        while self.manager.next_last_words().is_some() {}
        assert!(count <= most, "{count} answers and events");
        let waiting = self.listeners.iter().filter_map(|id| self.manager.report(*id)?.listener);
        waiting.for_each(|listener| assert!(listener.waiting <= listener.backlog, "{listener:?}"));
    }

    fn hear(&mut self, event: CmEvent) {
        if let EventKind::ConnectRequest { listener, .. } | EventKind::ServiceRequest { listener, .. } =
            event.kind
        {
            assert!(self.listeners.contains(&listener));
            assert!(self.known.insert(event.endpoint), "{event:?}: a new endpoint");
            self.endpoints.push(event.endpoint);
        }
        assert!(self.known.contains(&event.endpoint), "{event:?}: there is none");
    }

    /// The innocent connection lives. When all is destroyed nothing is kept.
    fn end(mut self) -> u64 {
        self.collect(usize::MAX);
        let connection = self.manager.connection(self.innocent).expect("nobody else may end it");
        assert_eq!(connection.state(), ConnectionState::Established);
        // A listener takes requests with it that the program has not heard of: the newest first.
        for id in std::mem::take(&mut self.known).into_iter().rev() {
            self.manager.destroy(id, self.now).expect("it is there");
        }
        let end = self.now + PATIENCE;
        while let Some(next) = self.manager.deadline() {
            assert!(next <= end, "something is waited for too long");
            self.now = self.now.max(next);
            self.expire();
            while self.manager.next_datagram().is_some() {}
            assert_eq!(self.manager.next_event(), None);
        }
        assert_eq!(self.manager.lingering(), 0);
        self.messages
    }
}

/// An answer to a message of the manager, of any kind; it names the right connection.
/// `None`: to an answer of the manager there is none.
fn answer_to(heard: &CmDatagram, input: &mut Unstructured<'_>) -> Result<Option<CmDatagram>> {
    if let CmMessage::PortQuery(query) = &heard.message {
        let udp_port = *input.choose(&[0, PORT, pagewire_wire::packet::PORT])?;
        return Ok(Some(CmDatagram::new(heard.transaction, query.answer(udp_port))));
    }
    let emitted = heard.emit();
    let theirs = u32::from_be_bytes([emitted[24], emitted[25], emitted[26], emitted[27]]);
    let named = u32::from_be_bytes([emitted[28], emitted[29], emitted[30], emitted[31]]);
    // As the manager knows it, if it does.
    let comm_id = if input.ratio(3, 4)? { named } else { input.int_in_range(0..=255u32)? };
    let mut bytes = [0; 256];
    bytes[..24].copy_from_slice(&emitted[..24]);
    let length = input.len().min(48);
    bytes[32..32 + length].copy_from_slice(input.bytes(length)?);
    bytes[24..28].copy_from_slice(&comm_id.to_be_bytes());
    bytes[28..32].copy_from_slice(&theirs.to_be_bytes());
    bytes[17] = input.int_in_range(0x11..=0x18)?;
    if bytes[17] == 0x18 {
        bytes[24..28].copy_from_slice(&theirs.to_be_bytes());
    }
    let Some(answer) = CmDatagram::parse(&bytes) else { return Ok(None) };
    Ok(Some(match answer.message {
        // One that takes effect, in most cases.
        CmMessage::Rep(rep) if input.ratio(1, 2)? => {
            let rep = Rep { queue_pair: rep.queue_pair % 32, ca_guid: 6 + rep.ca_guid % 2, ..rep };
            CmDatagram::new(answer.transaction, rep)
        }
        _ => answer,
    }))
}

fn req_from(source: IpAddr, space: PortSpace) -> Req {
    let head = IpService { source, source_port: 40_000, destination: OWN };
    let mut private_data = [0; 92];
    private_data[..36].copy_from_slice(&head.emit());
    Req { service_id: space.service_id(PORT), mtu: 3, private_data, ..Req::default() }
}

fn local(number: u32) -> LocalQueuePair {
    LocalQueuePair { number, has_srq: false, is_unreliable: false }
}

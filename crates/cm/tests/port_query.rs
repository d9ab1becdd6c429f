//! Where a request goes: the query for the port at which its owner takes messages, and what answers, silence and forgers do.

use pagewire_cm::{
    ConnectionManager, ConnectionParameters, EndpointId, EventKind, IncomingDatagram, LocalQueuePair,
    ManagerSettings, Origin, OutgoingDatagram, PortSpace, RefusalCause, RefusalDirection, Route, limits,
};
use pagewire_wire::cm::{CmDatagram, CmMessage, PortQuery, reject, sidr_status};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const STANDARD_PORT: u16 = 4791;
const DIRECT_PORT: u16 = 0xF123;
const PORT: u16 = 7174;

/// A process that asks for a service of a peer, and its time.
struct Active {
    manager: ConnectionManager,
    endpoint: EndpointId,
    now: Duration,
}

impl Active {
    fn new(space: PortSpace, takes_standard_answers: bool) -> Active {
        let settings = ManagerSettings { ca_guid: 1, comm_id_block: 0xF001, seed: 1 };
        let mut manager = ConnectionManager::new(settings);
        let endpoint = manager.create(space).unwrap();
        let route = Route {
            source: (OWN, 40_000).into(),
            destination: (PEER, PORT).into(),
            mtu: 3,
            traffic_class: 0,
            hop_limit: 64,
            is_on_this_host: false,
            takes_standard_answers,
            ack_timeout: 19,
        };
        manager.resolve(endpoint, route).unwrap();
        let now = Duration::from_secs(1);
        match space {
            PortSpace::Udp => manager.ask_for_service(endpoint, b"secret", now).unwrap(),
            _ => {
                let queue_pair = LocalQueuePair { number: 7, has_srq: false, is_unreliable: false };
                let parameters =
                    ConnectionParameters { private_data: b"secret".to_vec(), ..Default::default() };
                manager.connect(endpoint, queue_pair, &parameters, now).unwrap();
            }
        }
        Active { manager, endpoint, now }
    }

    /// All that it sends now.
    fn sent(&mut self) -> Vec<OutgoingDatagram> {
        std::iter::from_fn(|| self.manager.next_datagram()).collect()
    }

    /// The one datagram that it sends now, which is a query, for port 4791.
    fn query(&mut self) -> (u64, PortQuery) {
        let sent = self.sent();
        let [OutgoingDatagram { udp_port: STANDARD_PORT, datagram, .. }] = &sent[..] else {
            panic!("{sent:?}")
        };
        let CmMessage::PortQuery(query) = &datagram.message else { panic!("{datagram:?}") };
        (datagram.transaction, query.clone())
    }

    fn receive_from(&mut self, source: IpAddr, datagram: &CmDatagram) {
        let incoming = IncomingDatagram { source, destination: OWN, origin: Origin::Network, datagram };
        self.manager.receive(self.now, &incoming);
    }

    fn answer(&mut self, (transaction, query): &(u64, PortQuery), udp_port: u16) {
        self.receive_from(PEER, &CmDatagram::new(*transaction, query.answer(udp_port)));
    }

    /// As a kernel answers.
    fn answer_of_kernel(&mut self, (transaction, query): &(u64, PortQuery)) {
        let mut answer = CmDatagram::new(*transaction, query.answer(0));
        answer.status = 0x0C;
        self.receive_from(PEER, &answer);
    }

    /// Lets time pass until it has something to do.
    fn expire(&mut self) {
        self.now = self.manager.deadline().expect("something is due");
        self.manager.expire(self.now);
    }

    fn event(&mut self) -> Option<EventKind> {
        self.manager.next_event().map(|event| event.kind)
    }
}

fn is_request(datagram: &CmDatagram) -> bool {
    matches!(datagram.message, CmMessage::Req(_) | CmMessage::SidrReq(_))
}

/// The one request that was sent, and where to.
fn request_of(sent: &[OutgoingDatagram]) -> (u16, u64) {
    let [sent] = sent else { panic!("{sent:?}") };
    assert!(is_request(&sent.datagram), "{sent:?}");
    (sent.udp_port, sent.datagram.transaction)
}

const SPACES: [PortSpace; 2] = [PortSpace::Tcp, PortSpace::Udp];

#[test]
fn request_goes_where_the_owner_takes_it() {
    for space in SPACES {
        for takes_standard_answers in [true, false] {
            let mut active = Active::new(space, takes_standard_answers);
            let query = active.query();
            assert_eq!(query.1.service_id, space.service_id(PORT));
            active.answer(&query, DIRECT_PORT);
            let (udp_port, transaction) = request_of(&active.sent());
            assert_eq!(udp_port, DIRECT_PORT);
            // By its transaction the answer goes to the direct port of this side.
            assert_eq!(transaction, CmDatagram::transaction_of_pagewires(query.1.local_comm_id));
            // Repetitions, too.
            active.expire();
            assert_eq!(request_of(&active.sent()).0, DIRECT_PORT);
            let now = active.now;
            active.manager.destroy(active.endpoint, now).unwrap();
            let is_taken_back = active.sent().iter().all(|sent| sent.udp_port == DIRECT_PORT);
            assert!(is_taken_back);
        }
    }
}

#[test]
fn kernel_gets_the_request_at_once_and_a_silent_peer_after_a_while() {
    for space in SPACES {
        let mut active = Active::new(space, true);
        let query = active.query();
        active.answer_of_kernel(&query);
        let comm_id = u64::from(query.1.local_comm_id);
        assert_eq!(request_of(&active.sent()), (STANDARD_PORT, comm_id));

        let mut active = Active::new(space, true);
        let begin = active.now;
        let first = active.query();
        for _ in 1..limits::QUERIES {
            active.expire();
            assert_eq!(active.query(), first);
        }
        active.expire();
        assert_eq!(request_of(&active.sent()), (STANDARD_PORT, comm_id));
        assert_eq!(active.now - begin, limits::query_patience());
        // An answer that comes now changes nothing: the request has left.
        active.answer(&first, DIRECT_PORT);
        assert_eq!(active.sent(), []);
    }
}

#[test]
fn forged_answers_redirect_nothing() {
    let mut active = Active::new(PortSpace::Tcp, true);
    let query = active.query();
    let (transaction, asked) = &query;
    let stranger = IpAddr::from([192, 0, 2, 77]);
    active.receive_from(stranger, &CmDatagram::new(*transaction, asked.answer(DIRECT_PORT)));
    for guess in [0, transaction.wrapping_add(1), u64::from(asked.local_comm_id)] {
        active.answer(&(guess, asked.clone()), DIRECT_PORT);
    }
    // No Pagewire takes messages there.
    for udp_port in [53, 0xEFFF, 0xFFFF] {
        active.answer(&query, udp_port);
    }
    let incoming = IncomingDatagram {
        source: PEER,
        destination: OWN,
        origin: Origin::OtherUser,
        datagram: &CmDatagram::new(*transaction, asked.answer(DIRECT_PORT)),
    };
    active.manager.receive(active.now, &incoming);
    assert_eq!(active.sent(), []);
    active.answer(&query, DIRECT_PORT);
    assert_eq!(request_of(&active.sent()).0, DIRECT_PORT);
    // Nobody guesses the next transaction by the ones before.
    let transactions: Vec<u64> = (0..3).map(|_| Active::new(PortSpace::Tcp, true).query().0).collect();
    assert!(transactions.iter().all(|one| transactions.iter().filter(|other| *other == one).count() == 1));
}

#[test]
fn only_pagewires_are_reached_without_port_4791() {
    for space in SPACES {
        for answers in [true, false] {
            let mut active = Active::new(space, false);
            let query = active.query();
            if answers {
                active.answer_of_kernel(&query);
            } else {
                for _ in 1..limits::QUERIES {
                    active.expire();
                    active.query();
                }
                active.expire();
            }
            assert_eq!(active.event(), Some(EventKind::Unreachable));
            assert_eq!(active.sent(), [], "nothing is taken back that was not sent");
            let kept = active.manager.refusals().kept().next().unwrap().refusal;
            assert_eq!(
                (kept.direction, kept.cause, kept.code()),
                (RefusalDirection::Unanswered, RefusalCause::StandardPeer, None)
            );
            assert!(kept.sentence().contains("another user has UDP port 4791 of this host"));
        }
    }
}

#[test]
fn unowned_port_is_queried_again() {
    for space in SPACES {
        let mut active = Active::new(space, true);
        let mut last = None;
        for _ in 0..=limits::REFUSALS {
            assert_eq!(active.event(), None);
            let query = active.query();
            assert_ne!(last.replace(query.0), Some(query.0));
            active.answer(&query, 0);
            if active.event_is_due() {
                active.expire();
            }
        }
        match active.event() {
            Some(EventKind::Rejected { reason, .. }) => assert_eq!(reason, reject::INVALID_SERVICE_ID),
            Some(EventKind::ServiceRefused { status, .. }) => assert_eq!(status, sidr_status::NOT_SUPPORTED),
            other => panic!("{other:?}"),
        }
        assert!(active.now < Duration::from_millis(1_200), "{:?}", active.now);
    }
}

impl Active {
    fn event_is_due(&self) -> bool {
        self.manager.deadline().is_some()
    }
}

#[test]
fn next_owner_of_the_port_is_found() {
    for space in SPACES {
        // The process has ended, as ICMP tells, or another one has its direct port and refuses.
        for is_closed in [true, false] {
            let mut active = Active::new(space, true);
            let query = active.query();
            active.answer(&query, DIRECT_PORT);
            let sent = active.sent();
            if is_closed {
                // Of a port that was not asked.
                active.manager.refuse_unanswered(active.now, OWN, (PEER, STANDARD_PORT).into());
                active.manager.refuse_unanswered(active.now, OWN, (PEER, DIRECT_PORT).into());
            } else {
                active.receive_from(PEER, &sent[0].datagram.refusal().unwrap());
            }
            assert_eq!((active.sent(), active.event()), (vec![], None));
            active.expire();
            let query = active.query();
            active.answer(&query, DIRECT_PORT + 1);
            assert_eq!(request_of(&active.sent()).0, DIRECT_PORT + 1);
        }
    }
}

#[test]
fn request_that_has_not_left_is_not_taken_back() {
    let mut active = Active::new(PortSpace::Tcp, true);
    active.query();
    assert_eq!(active.manager.next_last_words(), None);
    let now = active.now;
    active.manager.destroy(active.endpoint, now).unwrap();
    assert_eq!((active.sent(), active.manager.deadline()), (vec![], None));
    // A host where nobody has port 4791 refuses as before.
    let mut active = Active::new(PortSpace::Tcp, true);
    active.query();
    active.manager.refuse_unanswered(active.now, OWN, (PEER, STANDARD_PORT).into());
    assert!(matches!(active.event(), Some(EventKind::Rejected { reason: reject::INVALID_SERVICE_ID, .. })));
    assert_eq!(active.sent(), []);
}

#[test]
fn owner_answers_through_another_users_hands() {
    for (block, udp_port) in [(0xF123, DIRECT_PORT), (0x0012, STANDARD_PORT)] {
        let settings = ManagerSettings { ca_guid: 2, comm_id_block: block, seed: 1 };
        let mut owner = ConnectionManager::new(settings);
        let mut active = Active::new(PortSpace::Tcp, true);
        let (transaction, query) = active.query();
        for origin in [Origin::OtherUser, Origin::Network] {
            let datagram = CmDatagram::new(transaction, query.clone());
            let incoming = IncomingDatagram { source: OWN, destination: PEER, origin, datagram: &datagram };
            owner.receive(Duration::ZERO, &incoming);
            let answer = owner.next_datagram().expect("an answer");
            assert_eq!((answer.source, answer.destination, answer.udp_port), (PEER, OWN, 0xF001));
            assert_eq!(answer.datagram, CmDatagram::new(transaction, query.answer(udp_port)));
        }
        assert_eq!(owner.next_event(), None);
    }
}

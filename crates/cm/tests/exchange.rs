//! Managers of several hosts over a network that loses, doubles and delays datagrams, in virtual time.

mod network;

use network::{CLIENT, Network, SERVER, SERVICE_PORT, parameters, queue_pair, route};
use pagewire_cm::{
    ConnectionParameters, EndpointId, EndpointState, Error, EventKind, IncomingDatagram, Origin, PortSpace,
    limits,
};
use pagewire_wire::cm::{CmDatagram, CmMessage, Dreq, Rej, reject, sidr_status};
use std::time::Duration;

/// A listener at the server, and an endpoint of the client that knows the way there.
fn pair(network: &mut Network, space: PortSpace) -> (EndpointId, EndpointId) {
    let listener = network.listen(space, SERVICE_PORT, 0);
    let active = network.resolved(space);
    (listener, active)
}

/// What a program does that accepts whatever it is asked: the child, once there is one.
fn accept_next(network: &mut Network) -> EndpointId {
    let event = network.expect_event(SERVER);
    let EventKind::ConnectRequest { remote, private_data, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!(remote.queue_pair, 0x0c_0001);
    assert_eq!((private_data.len(), &private_data[..5]), (56, &b"hello"[..]));
    let now = network.now;
    network
        .manager(SERVER)
        .accept(event.endpoint, queue_pair(0x0d_0001), &parameters(b"welcome"), now)
        .unwrap();
    event.endpoint
}

fn connect(network: &mut Network, active: EndpointId) {
    let now = network.now;
    network.manager(CLIENT).connect(active, queue_pair(0x0c_0001), &parameters(b"hello"), now).unwrap();
}

/// Both ends of a connection that is established.
fn established(network: &mut Network) -> (EndpointId, EndpointId) {
    let (_, active) = pair(network, PortSpace::Tcp);
    connect(network, active);
    let passive = accept_next(network);
    let event = network.expect_event(CLIENT);
    let EventKind::ConnectResponse { remote, private_data } = event.kind else { panic!("{event:?}") };
    assert_eq!(remote.queue_pair, 0x0d_0001);
    assert_eq!((private_data.len(), &private_data[..7]), (196, &b"welcome"[..]));
    network.manager(CLIENT).establish(active).unwrap();
    assert_eq!(network.expect_event(SERVER).kind, EventKind::Established);
    (active, passive)
}

#[test]
fn connection_is_established_and_ends_at_any_loss() {
    for (seed, loss) in [(1, 0.0), (2, 0.1), (3, 0.3), (4, 0.5)] {
        for active_ends in [true, false] {
            let mut network = Network::new(seed, loss);
            let (active, passive) = established(&mut network);
            let psns = [network.connection(CLIENT, active), network.connection(SERVER, passive)]
                .map(|connection| (connection.starting_psn(), connection.remote().starting_psn));
            assert_eq!((psns[0].0, psns[0].1), (psns[1].1, psns[1].0), "each knows the other's first PSN");
            let ends = [(CLIENT, active), (SERVER, passive)];
            let [first, second] = if active_ends { ends } else { [ends[1], ends[0]] };
            let now = network.now;
            network.manager(first.0).disconnect(first.1, now).unwrap();
            assert_eq!(network.expect_event(second.0).kind, EventKind::Disconnected { is_timeout: false });
            let now = network.now;
            network.manager(second.0).disconnect(second.1, now).unwrap();
            assert_eq!(network.expect_event(first.0).kind, EventKind::Disconnected { is_timeout: false });
            for (host, endpoint) in ends {
                assert_eq!(network.expect_event(host).kind, EventKind::TimewaitExit);
                assert_eq!(network.manager(host).state(endpoint), Some(EndpointState::Disconnect));
            }
            network.expect_silence();
        }
    }
}

#[test]
fn lost_rtu_is_repaired_by_the_queue_pair_or_by_a_repeated_rep() {
    for notifies in [true, false] {
        let mut network = Network::new(5, 0.0);
        let (_, active) = pair(&mut network, PortSpace::Tcp);
        connect(&mut network, active);
        let passive = accept_next(&mut network);
        assert!(matches!(network.expect_event(CLIENT).kind, EventKind::ConnectResponse { .. }));
        network.drop_next = 1;
        network.manager(CLIENT).establish(active).unwrap();
        if notifies {
            network.manager(SERVER).notify_established(passive).unwrap();
            assert_eq!(network.manager(SERVER).notify_established(passive), Err(Error::AlreadyConnected));
        }
        assert_eq!(network.expect_event(SERVER).kind, EventKind::Established);
        network.expect_silence();
    }
}

#[test]
fn rejections_have_their_reasons() {
    let mut network = Network::new(6, 0.2);
    let active = network.resolved(PortSpace::Tcp);
    connect(&mut network, active);
    let rejected = |reason, data: &[u8]| {
        let mut private_data = vec![0; 148];
        private_data[..data.len()].copy_from_slice(data);
        EventKind::Rejected { reason, private_data }
    };
    assert_eq!(network.expect_event(CLIENT).kind, rejected(reject::INVALID_SERVICE_ID, b""));
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    let request = network.expect_event(SERVER);
    let now = network.now;
    // The first REJ is lost: the REQ comes again, and gets it once more.
    network.drop_next = 1;
    network.manager(SERVER).reject(request.endpoint, b"not now", now).unwrap();
    assert_eq!(network.manager(SERVER).reject(request.endpoint, b"", now), Err(Error::Invalid));
    let event = network.expect_event(CLIENT).kind;
    assert!(event == rejected(reject::CONSUMER_DEFINED, b"not now"), "{event:?}");
}

#[test]
fn listener_that_comes_a_little_later_is_found() {
    let mut network = Network::new(25, 0.0);
    let active = network.resolved(PortSpace::Tcp);
    connect(&mut network, active);
    network.run_until(Duration::from_millis(50));
    network.listen(PortSpace::Tcp, SERVICE_PORT, 0);
    accept_next(&mut network);
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::ConnectResponse { .. }));
    // One that does not come is not waited for.
    let mut network = Network::new(26, 0.0);
    let active = network.resolved(PortSpace::Tcp);
    connect(&mut network, active);
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::Rejected { .. }));
    assert!(network.now < Duration::from_millis(200), "{:?}", network.now);
}

#[test]
fn host_without_a_connection_manager_refuses_and_one_that_is_not_there_is_unreachable() {
    let [source, destination] = [CLIENT, SERVER].map(|host| network::address(host).ip());
    let mut network = Network::new(28, 1.0);
    let active = network.resolved(PortSpace::Tcp);
    connect(&mut network, active);
    let service = network.resolved(PortSpace::Udp);
    let now = network.now;
    network.manager(CLIENT).ask_for_service(service, b"", now).unwrap();
    // Of another pair of addresses.
    network.manager(CLIENT).refuse_unanswered(now, destination, (source, 4791).into());
    assert_eq!(network.take_events(CLIENT), []);
    network.manager(CLIENT).refuse_unanswered(now, source, (destination, 4791).into());
    let events = network.take_events(CLIENT);
    let refused = |kind: &EventKind| match kind {
        EventKind::Rejected { reason, .. } => *reason == reject::INVALID_SERVICE_ID,
        EventKind::ServiceRefused { status, .. } => *status == sidr_status::NOT_SUPPORTED,
        _ => false,
    };
    assert!(events.len() == 2 && events.iter().all(|event| refused(&event.kind)), "{events:?}");
    let other = network.resolved(PortSpace::Tcp);
    connect(&mut network, other);
    let now = network.now;
    network.manager(CLIENT).give_up_unanswered(now, source, destination);
    assert_eq!(network.expect_event(CLIENT).kind, EventKind::Unreachable);
    network.expect_silence();
}

#[test]
fn active_side_may_refuse_a_rep() {
    let mut network = Network::new(7, 0.0);
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    accept_next(&mut network);
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::ConnectResponse { .. }));
    let now = network.now;
    network.manager(CLIENT).reject(active, b"changed my mind", now).unwrap();
    let event = network.expect_event(SERVER).kind;
    assert!(matches!(event, EventKind::Rejected { reason: reject::CONSUMER_DEFINED, .. }), "{event:?}");
}

#[test]
fn dead_peer_is_unreachable_after_all_repetitions() {
    let mut network = Network::new(8, 1.0);
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    assert_eq!(network.expect_event(CLIENT).kind, EventKind::Unreachable);
    assert_eq!(network.now, limits::patience());
    // With ever longer pauses, no more often than a kernel sends in that time and a few quick ones at the beginning.
    let sent = network.sent_names().filter(|name| *name == "Req").count();
    assert!((16..=32).contains(&sent), "{sent} REQs");
}

#[test]
fn unanswered_dreq_ends_with_a_timeout() {
    let mut network = Network::new(9, 0.0);
    let (active, _) = established(&mut network);
    network.loss = 1.0;
    let now = network.now;
    network.manager(CLIENT).disconnect(active, now).unwrap();
    assert_eq!(network.expect_event(CLIENT).kind, EventKind::Disconnected { is_timeout: true });
    assert_eq!(network.expect_event(CLIENT).kind, EventKind::TimewaitExit);
}

#[test]
fn mra_postpones_the_repetition() {
    let mut network = Network::new(10, 0.0);
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    let request = network.expect_event(SERVER);
    // The program takes its time: the first repetition gets an MRA, and no second one follows within a minute.
    network.run_until(Duration::from_secs(60));
    assert_eq!(network.sent_names().filter(|name| *name == "Req").count(), 2);
    assert_eq!(network.sent_names().filter(|name| *name == "Mra").count(), 1);
    let now = network.now;
    network.manager(SERVER).accept(request.endpoint, queue_pair(9), &parameters(b""), now).unwrap();
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::ConnectResponse { .. }));
}

#[test]
fn depths_are_seen_from_the_other_end() {
    let mut network = Network::new(11, 0.0);
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    let asked = ConnectionParameters { responder_resources: 3, initiator_depth: 5, ..parameters(b"hello") };
    let now = network.now;
    network.manager(CLIENT).connect(active, queue_pair(0x0c_0001), &asked, now).unwrap();
    let event = network.expect_event(SERVER);
    let EventKind::ConnectRequest { remote, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!((remote.responder_resources, remote.initiator_depth), (5, 3));
    // All parameters left out: what the peer has asked for.
    let now = network.now;
    network
        .manager(SERVER)
        .accept(event.endpoint, queue_pair(1), &ConnectionParameters::default(), now)
        .unwrap();
    let EventKind::ConnectResponse { remote, .. } = network.expect_event(CLIENT).kind else { panic!() };
    assert_eq!((remote.responder_resources, remote.initiator_depth), (3, 5));
}

#[test]
fn private_data_have_their_bounds() {
    let mut network = Network::new(12, 0.0);
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    let now = network.now;
    let too_long = network.manager(CLIENT).connect(active, queue_pair(1), &parameters(&[1; 57]), now);
    assert_eq!(too_long, Err(Error::Invalid));
    network.manager(CLIENT).connect(active, queue_pair(1), &parameters(&[1; 56]), now).unwrap();
    let request = network.expect_event(SERVER).endpoint;
    let manager = network.manager(SERVER);
    assert_eq!(manager.accept(request, queue_pair(1), &parameters(&[1; 197]), now), Err(Error::Invalid));
    assert_eq!(manager.reject(request, &[1; 149], now), Err(Error::Invalid));
    manager.accept(request, queue_pair(1), &parameters(&[1; 196]), now).unwrap();
}

#[test]
fn full_backlog_drops_requests_until_the_program_takes_one() {
    let mut network = Network::new(13, 0.0);
    let listener = network.listen(PortSpace::Tcp, SERVICE_PORT, 2);
    let actives: Vec<EndpointId> = (0..3).map(|_| network.resolved(PortSpace::Tcp)).collect();
    for (number, active) in actives.iter().enumerate() {
        let now = network.now;
        let queue_pair = queue_pair(100 + number as u32);
        network.manager(CLIENT).connect(*active, queue_pair, &parameters(b"hello"), now).unwrap();
    }
    network.run_until(Duration::from_secs(1));
    let requests = network.take_events(SERVER);
    assert_eq!(requests.len(), 2, "{requests:?}");
    network.manager(SERVER).request_delivered(requests[0].endpoint);
    assert!(matches!(network.expect_event(SERVER).kind, EventKind::ConnectRequest { .. }));
    // Those that the program never heard of end with their listener.
    let now = network.now;
    network.manager(SERVER).destroy(listener, now).unwrap();
    let kinds: Vec<EventKind> = (0..2).map(|_| network.expect_event(CLIENT).kind).collect();
    assert!(kinds.iter().all(|kind| matches!(kind, EventKind::Rejected { .. })), "{kinds:?}");
    assert_eq!(network.take_events(CLIENT), []);
}

#[test]
fn reused_queue_pair_is_stale_and_its_connection_ends() {
    let mut network = Network::new(14, 0.0);
    let (_, passive) = established(&mut network);
    // The client's process has forgotten, and its successor has the same queue pair again.
    network.replace(CLIENT);
    let active = network.resolved(PortSpace::Tcp);
    connect(&mut network, active);
    let event = network.expect_event(CLIENT).kind;
    assert!(matches!(event, EventKind::Rejected { reason: reject::STALE_CONNECTION, .. }), "{event:?}");
    // The successor answers the DREQ of a connection that it does not know.
    assert_eq!(network.expect_event(SERVER).kind, EventKind::Disconnected { is_timeout: false });
    assert_eq!(network.expect_event(SERVER).endpoint, passive);
    let active = network.resolved(PortSpace::Tcp);
    connect(&mut network, active);
    accept_next(&mut network);
}

#[test]
fn destroying_an_endpoint_tells_the_peer() {
    // In which state, what the peer hears.
    type Prepare = fn(&mut Network) -> EndpointId;
    let asked: Prepare = |network| {
        let (_, active) = pair(network, PortSpace::Tcp);
        connect(network, active);
        assert!(matches!(network.expect_event(SERVER).kind, EventKind::ConnectRequest { .. }));
        active
    };
    let mut network = Network::new(15, 0.0);
    let active = asked(&mut network);
    let now = network.now;
    network.manager(CLIENT).destroy(active, now).unwrap();
    let event = network.expect_event(SERVER).kind;
    assert!(matches!(event, EventKind::Rejected { reason: reject::TIMEOUT, .. }), "{event:?}");

    let mut network = Network::new(16, 0.0);
    let (active, passive) = established(&mut network);
    let now = network.now;
    network.manager(SERVER).destroy(passive, now).unwrap();
    assert_eq!(network.expect_event(CLIENT).kind, EventKind::Disconnected { is_timeout: false });
    assert_eq!(network.manager(CLIENT).state(active), Some(EndpointState::Disconnect));
    assert_eq!(network.manager(SERVER).state(passive), None);

    // A listener whose requests nobody has heard of.
    let mut network = Network::new(17, 0.0);
    let (listener, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    network.run_until(Duration::from_millis(10));
    let now = network.now;
    network.manager(SERVER).destroy(listener, now).unwrap();
    let event = network.expect_event(CLIENT).kind;
    assert!(matches!(event, EventKind::Rejected { reason: reject::CONSUMER_DEFINED, .. }), "{event:?}");
}

/// What a connection has come to when a process of it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Stage {
    Requested,
    Accepted,
    Responded,
    Established,
    PassiveLeaves,
}

/// Brings a connection so far, and forgets the events of that.
fn bring_to(network: &mut Network, stage: Stage) {
    let (_, active) = pair(network, PortSpace::Tcp);
    connect(network, active);
    if stage == Stage::Requested {
        assert!(matches!(network.expect_event(SERVER).kind, EventKind::ConnectRequest { .. }));
        return;
    }
    let passive = accept_next(network);
    if stage == Stage::Accepted {
        return;
    }
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::ConnectResponse { .. }));
    if stage == Stage::Responded {
        return;
    }
    network.manager(CLIENT).establish(active).unwrap();
    assert_eq!(network.expect_event(SERVER).kind, EventKind::Established);
    if stage == Stage::PassiveLeaves {
        let now = network.now;
        network.manager(SERVER).disconnect(passive, now).unwrap();
        assert_eq!(network.expect_event(CLIENT).kind, EventKind::Disconnected { is_timeout: false });
    }
}

#[test]
fn last_words_end_connections_of_a_killed_process() {
    let stages =
        [Stage::Requested, Stage::Accepted, Stage::Responded, Stage::Established, Stage::PassiveLeaves];
    for stage in stages {
        for killed in [CLIENT, SERVER] {
            let mut network = Network::new(27, 0.0);
            bring_to(&mut network, stage);
            let before = network.now;
            network.kill(killed);
            let survivor = 1 - killed;
            if (stage, survivor) == (Stage::PassiveLeaves, CLIENT) {
                // It has heard of the end already.
                network.run_until(before + Duration::from_secs(1));
                assert_eq!(network.take_events(CLIENT), []);
                continue;
            }
            let event = loop {
                let event = network.expect_event(survivor).kind;
                if !matches!(event, EventKind::ConnectResponse { .. }) {
                    break event;
                }
            };
            let is_told = match event {
                EventKind::Disconnected { is_timeout: false } => {
                    matches!(stage, Stage::Established | Stage::PassiveLeaves)
                }
                EventKind::Rejected { reason, .. } => {
                    let expected = match (killed, stage) {
                        (CLIENT, Stage::Requested | Stage::Accepted) => reject::TIMEOUT,
                        _ => reject::CONSUMER_DEFINED,
                    };
                    stage < Stage::Established && reason == expected
                }
                _ => false,
            };
            assert!(is_told, "{stage:?}, host {killed} is killed: {event:?}");
            assert!(network.now - before < Duration::from_millis(10), "{stage:?}: {:?}", network.now);
        }
    }
}

#[test]
fn ud_service_is_found_at_any_loss_and_refused() {
    for (seed, loss) in [(20, 0.0), (21, 0.4)] {
        let mut network = Network::new(seed, loss);
        let (_, active) = pair(&mut network, PortSpace::Udp);
        let now = network.now;
        network.manager(CLIENT).ask_for_service(active, b"who", now).unwrap();
        let request = network.expect_event(SERVER);
        let EventKind::ServiceRequest { private_data, .. } = &request.kind else { panic!("{request:?}") };
        assert_eq!((private_data.len(), &private_data[..3]), (180, &b"who"[..]));
        network.manager(SERVER).accept_service(request.endpoint, (77, 0x0123_4567), b"me").unwrap();
        let EventKind::ServiceFound { queue_pair, queue_key, private_data } =
            network.expect_event(CLIENT).kind
        else {
            panic!()
        };
        assert_eq!((queue_pair, queue_key, private_data.len()), (77, 0x0123_4567, 136));
        network.expect_silence();
    }
    let mut network = Network::new(22, 0.0);
    let (_, active) = pair(&mut network, PortSpace::Udp);
    let now = network.now;
    network.manager(CLIENT).ask_for_service(active, b"", now).unwrap();
    let request = network.expect_event(SERVER).endpoint;
    network.manager(SERVER).reject(request, b"", now).unwrap();
    let refused = EventKind::ServiceRefused { status: sidr_status::REJECTED, private_data: vec![0; 136] };
    assert_eq!(network.expect_event(CLIENT).kind, refused);
    // A space of connections knows no such requests.
    let other = network.resolved(PortSpace::Tcp);
    let now = network.now;
    network.manager(CLIENT).ask_for_service(other, b"", now).unwrap();
    let refused =
        EventKind::ServiceRefused { status: sidr_status::NOT_SUPPORTED, private_data: vec![0; 136] };
    assert_eq!(network.expect_event(CLIENT).kind, refused);
}

#[test]
fn strangers_change_no_connection() {
    let mut network = Network::new(23, 0.0);
    let (active, passive) = established(&mut network);
    // Copies of all that was sent, from an address that takes no part.
    let stranger = "192.0.2.77".parse().unwrap();
    for sent in network.sent.clone() {
        let now = network.now;
        let host = if sent.destination == network::address(SERVER).ip() { SERVER } else { CLIENT };
        let incoming = IncomingDatagram {
            source: stranger,
            destination: sent.destination,
            origin: Origin::Network,
            datagram: &sent.datagram,
        };
        network.manager(host).receive(now, &incoming);
        let mut answer = || network.manager(SERVER).next_datagram().expect("an answer").datagram.message;
        match sent.datagram.message {
            CmMessage::Req(_) => {
                assert!(matches!(answer(), CmMessage::Rej(rej) if rej.reason == reject::INVALID_GID));
            }
            CmMessage::PortQuery(_) => assert!(matches!(answer(), CmMessage::PortAnswer(_))),
            _ => {}
        }
    }
    network.expect_silence();
    for (host, endpoint) in [(CLIENT, active), (SERVER, passive)] {
        assert_eq!(network.manager(host).state(endpoint), Some(EndpointState::Connect));
    }
}

/// A peer may have many connections with a process: what one of them sends ends no other (as the kernel's `cm_acquire_id`).
#[test]
fn messages_of_another_connection_of_the_peer_change_nothing() {
    let mut network = Network::new(24, 0.0);
    let (active, passive) = established(&mut network);
    let ids = [(SERVER, passive), (CLIENT, active)].map(|(host, endpoint)| {
        // The peer knows the ID of the other end.
        network.manager(host).connection(endpoint).expect("a connection").peer().comm_id
    });
    let ends = [(CLIENT, SERVER, active, 0x0c_0001), (SERVER, CLIENT, passive, 0x0d_0001)];
    for (host, peer, endpoint, remote_queue_pair) in ends {
        let (remote_comm_id, of_peer) = (ids[host], ids[peer]);
        for local_comm_id in [of_peer ^ 1, 0] {
            let dreq = Dreq { local_comm_id, remote_comm_id, remote_queue_pair, ..Dreq::default() };
            let incoming = IncomingDatagram {
                source: network::address(peer).ip(),
                destination: network::address(host).ip(),
                origin: Origin::Network,
                datagram: &CmDatagram::new(1, dreq),
            };
            let now = network.now;
            network.manager(host).receive(now, &incoming);
        }
        assert_eq!(network.manager(host).state(endpoint), Some(EndpointState::Connect));
    }
    network.expect_silence();
}

/// The last message that was sent, if it is a REJ.
fn last_rej(network: &Network) -> Option<Rej> {
    match &network.sent.last()?.datagram.message {
        CmMessage::Rej(rej) => Some(rej.clone()),
        _ => None,
    }
}

#[test]
fn rej_after_rep_names_neither_message() {
    // A kernel that has the REP takes a REJ of the REQ for an old one.
    let mut network = Network::new(28, 0.0);
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    let passive = accept_next(&mut network);
    network.drop_next = 1;
    let now = network.now;
    network.manager(SERVER).reject(passive, b"", now).unwrap();
    network.run_until(now);
    assert_eq!(last_rej(&network).expect("a REJ").message, 2);
    // One that has not is refused its REQ.
    let mut network = Network::new(29, 0.0);
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    let request = network.expect_event(SERVER).endpoint;
    network.drop_next = 2;
    let now = network.now;
    network.manager(SERVER).accept(request, queue_pair(1), &parameters(b""), now).unwrap();
    network.manager(SERVER).reject(request, b"", now).unwrap();
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::Rejected { .. }));
    assert_eq!(last_rej(&network).expect("a REJ").message, 0);
}

#[test]
fn active_side_hears_of_a_passive_side_that_is_killed_before_the_rtu() {
    let mut network = Network::new(30, 0.0);
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    accept_next(&mut network);
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::ConnectResponse { .. }));
    network.drop_next = 1;
    network.manager(CLIENT).establish(active).unwrap();
    network.kill(SERVER);
    let event = network.expect_event(CLIENT).kind;
    assert!(matches!(event, EventKind::Rejected { reason: reject::CONSUMER_DEFINED, .. }), "{event:?}");
    assert_eq!(network.expect_event(CLIENT).kind, EventKind::TimewaitExit);
}

#[test]
fn late_rej_of_a_req_ends_no_connection() {
    let mut network = Network::new(31, 0.0);
    let (active, passive) = established(&mut network);
    let req = network.sent[0].datagram.clone();
    // A copy from before the listener was there.
    let late = req.refusal().expect("a REJ");
    let now = network.now;
    let incoming = IncomingDatagram {
        source: network::address(SERVER).ip(),
        destination: network::address(CLIENT).ip(),
        origin: Origin::Network,
        datagram: &late,
    };
    network.manager(CLIENT).receive(now, &incoming);
    network.expect_silence();
    for (host, endpoint) in [(CLIENT, active), (SERVER, passive)] {
        assert_eq!(network.manager(host).state(endpoint), Some(EndpointState::Connect));
    }
}

#[test]
fn request_at_a_local_process_that_has_ended_is_rejected() {
    let mut network = Network::new(35, 0.0);
    network.is_one_host = true;
    let (_, active) = pair(&mut network, PortSpace::Tcp);
    connect(&mut network, active);
    network.expect_event(SERVER);
    assert!(network.manager(CLIENT).silent_local_peers().is_empty(), "who has the request is not known");
    // The first repetition gets an MRA, and for a minute there is no second one.
    network.run_until(Duration::from_secs(2));
    let now = network.now;
    let peers = network.manager(CLIENT).silent_local_peers();
    let block = *peers.first().expect("the server's process");
    network.manager(CLIENT).end_local_peer(now, block);
    let ended = network.expect_event(CLIENT);
    assert_eq!(ended.endpoint, active);
    assert!(matches!(ended.kind, EventKind::Rejected { reason: reject::CONSUMER_DEFINED, .. }), "{ended:?}");
    assert!(network.manager(CLIENT).silent_local_peers().is_empty());
}

#[test]
fn connection_with_a_local_process_that_has_ended_ends() {
    let mut network = Network::new(33, 0.0);
    network.is_one_host = true;
    let (active, passive) = established(&mut network);
    let now = network.now;
    let peers = network.manager(CLIENT).silent_local_peers();
    let block = *peers.first().expect("the server's process");
    assert_eq!(peers.len(), 1);
    network.manager(CLIENT).end_local_peer(now, block + 1);
    assert!(network.take_events(CLIENT).is_empty(), "another process has ended");
    network.manager(CLIENT).end_local_peer(now, block);
    let ended = network.expect_event(CLIENT);
    assert_eq!((ended.endpoint, ended.kind), (active, EventKind::Disconnected { is_timeout: false }));
    assert!(network.manager(CLIENT).silent_local_peers().is_empty());
    // The passive side is not asked here, and waits for nothing.
    assert_eq!(network.manager(SERVER).silent_local_peers().len(), 1);
    assert!(network.manager(SERVER).destroy(passive, now).is_ok());
}

#[test]
fn ud_listener_that_comes_a_little_later_is_found() {
    let mut network = Network::new(32, 0.0);
    let active = network.resolved(PortSpace::Udp);
    let now = network.now;
    network.manager(CLIENT).ask_for_service(active, b"", now).unwrap();
    network.run_until(Duration::from_millis(50));
    network.listen(PortSpace::Udp, SERVICE_PORT, 0);
    let request = network.expect_event(SERVER).endpoint;
    network.manager(SERVER).accept_service(request, (7, 8), b"").unwrap();
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::ServiceFound { queue_pair: 7, .. }));
}

#[test]
fn calls_in_a_wrong_state_are_invalid() {
    let mut network = Network::new(24, 0.0);
    let now = network.now;
    let manager = network.manager(CLIENT);
    let id = manager.create(PortSpace::Tcp).unwrap();
    let calls = |manager: &mut pagewire_cm::ConnectionManager, id| {
        [
            manager.connect(id, queue_pair(1), &parameters(b""), now),
            manager.accept(id, queue_pair(1), &parameters(b""), now),
            manager.establish(id),
            manager.notify_established(id),
            manager.reject(id, b"", now),
            manager.disconnect(id, now),
            manager.accept_service(id, (1, 2), b""),
        ]
    };
    assert_eq!(calls(manager, id), [Err(Error::Invalid); 7]);
    assert_eq!(manager.listen(id, 0, true), Err(Error::Invalid));
    manager.bind(id, "192.0.2.1:5".parse().unwrap()).unwrap();
    assert_eq!(manager.bind(id, "192.0.2.1:6".parse().unwrap()), Err(Error::Invalid));
    assert_eq!(calls(manager, id), [Err(Error::Invalid); 7]);
    let mut other_family = route(CLIENT, 7);
    other_family.destination = "[2001:db8::1]:7".parse().unwrap();
    assert_eq!(manager.resolve(id, other_family), Err(Error::Invalid));
    manager.listen(id, 0, true).unwrap();
    assert_eq!(manager.resolve(id, route(CLIENT, 7)), Err(Error::Invalid));
    assert_eq!(calls(manager, id), [Err(Error::Invalid); 7]);
    assert_eq!(manager.destroy(EndpointId(4_000_000), now), Err(Error::Invalid));
}

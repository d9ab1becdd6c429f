//! What a manager remembers of requests that did not become connections, and what people see of its endpoints.

// Other tests use the rest.
#[allow(dead_code)]
mod network;

use network::{CLIENT, Network, SERVER, SERVICE_PORT, address, parameters, queue_pair, route};
use pagewire_cm::{EndpointId, EventKind, ListenerReport, PortSpace, RefusalCause, RefusalDirection, limits};
use pagewire_wire::cm::reject;
use std::time::Duration;

fn connect(network: &mut Network) -> EndpointId {
    let active = network.resolved(PortSpace::Tcp);
    let now = network.now;
    network.manager(CLIENT).connect(active, queue_pair(0x0c_0001), &parameters(b""), now).unwrap();
    active
}

/// Direction, cause, count and sentence of each.
fn refusals(network: &mut Network, host: usize) -> Vec<(RefusalDirection, RefusalCause, u64, String)> {
    let kept = network.manager(host).refusals().kept();
    kept.map(|kept| {
        assert_eq!(kept.refusal.port, SERVICE_PORT);
        (kept.refusal.direction, kept.refusal.cause, kept.count, kept.refusal.sentence())
    })
    .collect()
}

#[test]
fn refusal_is_kept_at_both_sides_with_its_time() {
    let mut network = Network::new(1, 0.0);
    network.run_until(Duration::from_secs(9));
    connect(&mut network);
    network.expect_event(CLIENT);
    let cause = RefusalCause::Reject(reject::INVALID_SERVICE_ID);
    let sentence = "nobody listens at port 7174 of 192.0.2.2".to_owned();
    assert_eq!(refusals(&mut network, CLIENT), [(RefusalDirection::Received, cause, 1, sentence.clone())]);
    let asked = 1 + u64::from(limits::REFUSALS);
    assert_eq!(refusals(&mut network, SERVER), [(RefusalDirection::Sent, cause, asked, sentence)]);
    let kept = *network.manager(SERVER).refusals().kept().next().unwrap();
    assert_eq!((kept.refusal.peer, kept.refusal.code()), (address(CLIENT).ip(), Some(8)));
    assert!(kept.last > Duration::from_secs(9) && kept.last <= network.now, "{:?}", kept.last);
    let log = network.manager(SERVER).refusals();
    assert_eq!((log.sent(), log.received()), (asked, 0));
}

#[test]
fn each_cause_has_its_sentence() {
    // The process owns the port, and listens elsewhere.
    let mut network = Network::new(2, 0.0);
    let listener = network.manager(SERVER).create(PortSpace::Tcp).unwrap();
    network.manager(SERVER).bind(listener, ([192, 0, 2, 99], SERVICE_PORT).into()).unwrap();
    network.manager(SERVER).listen(listener, 1, true).unwrap();
    connect(&mut network);
    network.expect_event(CLIENT);
    let [(direction, cause, 1, sentence)] = &refusals(&mut network, SERVER)[..] else { panic!() };
    assert_eq!((*direction, *cause), (RefusalDirection::Sent, RefusalCause::OtherAddress));
    assert_eq!(sentence, "the process that owns port 7174 listens at another address than 192.0.2.2");

    // A full backlog.
    let mut network = Network::new(3, 0.0);
    let listener = network.listen(PortSpace::Tcp, SERVICE_PORT, 1);
    let first = connect(&mut network);
    network.expect_event(SERVER);
    let waiting = network.manager(SERVER).report(listener).unwrap().listener;
    assert_eq!(waiting, Some(ListenerReport { waiting: 1, backlog: 1 }));
    let second = network.manager(CLIENT).create(PortSpace::Tcp).unwrap();
    network.manager(CLIENT).resolve(second, route(CLIENT, SERVICE_PORT)).unwrap();
    let now = network.now;
    network.manager(CLIENT).connect(second, queue_pair(0x0c_0002), &parameters(b""), now).unwrap();
    network.run_until(network.now + Duration::from_millis(50));
    let [(RefusalDirection::Dropped, RefusalCause::BacklogFull, 1, sentence)] =
        &refusals(&mut network, SERVER)[..]
    else {
        panic!()
    };
    assert!(sentence.contains("the backlog of the listener at port 7174 is full"), "{sentence}");
    assert_eq!(network.manager(CLIENT).report(first).unwrap().state, "REQ sent");

    // A program refuses.
    let mut network = Network::new(4, 0.0);
    network.listen(PortSpace::Tcp, SERVICE_PORT, 1);
    connect(&mut network);
    let request = network.expect_event(SERVER);
    let now = network.now;
    network.manager(SERVER).reject(request.endpoint, b"no", now).unwrap();
    assert!(matches!(network.expect_event(CLIENT).kind, EventKind::Rejected { .. }));
    assert_eq!(
        refusals(&mut network, SERVER)[0].3,
        "this program refused the request of 192.0.2.1 for port 7174"
    );
    assert!(refusals(&mut network, CLIENT)[0].3.starts_with("the program at port 7174 of 192.0.2.2 refused"));

    // Nobody answers.
    let mut network = Network::new(5, 1.0);
    connect(&mut network);
    assert_eq!(network.expect_event(CLIENT).kind, EventKind::Unreachable);
    let [(RefusalDirection::Unanswered, RefusalCause::Silence, 1, sentence)] =
        &refusals(&mut network, CLIENT)[..]
    else {
        panic!()
    };
    assert!(sentence.starts_with("192.0.2.2 did not answer"), "{sentence}");
}

#[test]
fn report_follows_the_connection() {
    let mut network = Network::new(6, 0.0);
    let listener = network.listen(PortSpace::Tcp, SERVICE_PORT, 0);
    assert_eq!(network.manager(SERVER).report(listener).unwrap().state, "listening");
    let active = connect(&mut network);
    let passive = network.expect_event(SERVER).endpoint;
    let report = network.manager(SERVER).report(passive).unwrap();
    assert_eq!(
        (report.state, report.queue_pair, report.peer_queue_pair),
        ("REQ received", None, Some(0x0c_0001))
    );
    let now = network.now;
    network.manager(SERVER).accept(passive, queue_pair(0x0d_0001), &parameters(b""), now).unwrap();
    network.expect_event(CLIENT);
    network.manager(CLIENT).establish(active).unwrap();
    network.expect_event(SERVER);
    for (host, endpoint, pair) in
        [(CLIENT, active, (0x0c_0001, 0x0d_0001)), (SERVER, passive, (0x0d_0001, 0x0c_0001))]
    {
        let report = network.manager(host).report(endpoint).unwrap();
        assert_eq!(report.state, "established");
        assert_eq!((report.queue_pair, report.peer_queue_pair), (Some(pair.0), Some(pair.1)));
    }
    let now = network.now;
    network.manager(CLIENT).destroy(active, now).unwrap();
    assert_eq!((network.manager(CLIENT).report(active), network.manager(CLIENT).lingering()), (None, 1));
    // A connection that ends is no refusal.
    network.run_until(network.now + Duration::from_secs(1));
    assert_eq!((refusals(&mut network, CLIENT), refusals(&mut network, SERVER)), (vec![], vec![]));
}

#[test]
fn only_the_latest_refusals_are_kept() {
    let mut network = Network::new(7, 0.0);
    for port in 1..=2 * limits::KEPT_REFUSALS as u16 {
        let manager = network.manager(CLIENT);
        let active = manager.create(PortSpace::Tcp).unwrap();
        manager.resolve(active, route(CLIENT, port)).unwrap();
        let now = network.now;
        network.manager(CLIENT).connect(active, queue_pair(port.into()), &parameters(b""), now).unwrap();
        network.expect_event(CLIENT);
    }
    let log = network.manager(CLIENT).refusals();
    let ports: Vec<u16> = log.kept().map(|kept| kept.refusal.port).collect();
    let last = limits::KEPT_REFUSALS as u16 + 1..=2 * limits::KEPT_REFUSALS as u16;
    assert_eq!((ports, log.received()), (last.collect(), 2 * limits::KEPT_REFUSALS as u64));
}

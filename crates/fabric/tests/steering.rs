//! Datagrams find their process whatever others that share the port do: end, or stand still with their sockets open.

mod common;

use common::{PATIENCE, alone_in_own_network, packet, receive, route, send};
use pagewire_fabric::{Fabric, HostFabric, ROCE_PORT};
use pagewire_wire::{Icrc, packet as wire};
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
/// More than steering takes on a quiet machine; too short a time is made good by another try.
const SHORT: Duration = Duration::from_millis(300);
/// Source addresses: the kernel's hash of the addresses spreads them over all sockets.
const SOURCES: u32 = 20;

/// A fabric that somebody uses.
fn at_work() -> HostFabric {
    let fabric = HostFabric::new().unwrap();
    assert_eq!(fabric.direct_port(), ROCE_PORT, "{:?}", fabric.port_reason());
    fabric
}

/// As a process that was stopped: its sockets share the port, and nobody looks at them.
fn stopped() -> HostFabric {
    at_work()
}

/// Sleeps for a millisecond at most, and takes the events as a NIC does. While an event is not taken, `wait` returns at once and
/// does no step of the steering. Such an event comes in any test: a second or two after the devices of its network are up, the
/// kernel announces that their IPv6 addresses are usable.
fn wait_and_take_events(fabric: &HostFabric) {
    fabric.wait(Some(fabric.now() + 1_000_000));
    fabric.events(&mut Vec::new());
}

/// Leases a block while others are at work; its first queue pair.
fn lease(fabric: &HostFabric, others: &[&HostFabric]) -> u32 {
    let leased = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !leased.load(Ordering::Relaxed) {
                for other in others {
                    wait_and_take_events(other);
                    other.receive(64, &mut |_| panic!("nothing was sent"));
                }
            }
        });
        let block = fabric.lease_block();
        leased.store(true, Ordering::Relaxed);
        block.unwrap() << 8
    })
}

/// Sends datagrams of many sources to a queue pair.
fn send_from_everywhere(from: &HostFabric, queue_pair: u32) {
    for host in 1..=SOURCES {
        let source = format!("127.0.0.{host}");
        send(from, &route(&source, "127.0.0.1", from), &[packet(queue_pair, host, 8)]);
    }
}

/// What comes of them, when processes do what processes do.
fn arrived(fabrics: &[&HostFabric], wait: Duration) -> usize {
    let start = Instant::now();
    let mut got = 0;
    while got < SOURCES as usize && start.elapsed() < wait {
        fabrics.iter().for_each(|fabric| wait_and_take_events(fabric));
        got += receive(fabrics, 1, Duration::from_millis(1)).iter().map(Vec::len).sum::<usize>();
    }
    got
}

/// Tries until all of them come.
fn all_arrive_in_time(fabrics: &[&HostFabric], queue_pair: u32) {
    let start = Instant::now();
    loop {
        send_from_everywhere(fabrics[0], queue_pair);
        let got = arrived(fabrics, SHORT);
        if got == SOURCES as usize {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "still {got} of {SOURCES}");
    }
}

#[test]
fn a_place_that_went_to_a_stopped_member_is_noticed() {
    let Some(_alone) = alone_in_own_network() else { return };
    let first = at_work();
    let _stopped = stopped();
    let last = at_work();
    lease(&first, &[]);
    let queue_pair = lease(&last, &[&first]);
    all_arrive_in_time(&[&last, &first], queue_pair);
    // The kernel gives the place of a socket that is closed to the last one. Nobody but `last` is at work, and it gets nothing
    // that would tell it.
    drop(first);
    all_arrive_in_time(&[&last], queue_pair);
}

#[test]
fn what_is_for_a_member_that_answers_late_goes_to_one_that_hands_it_on() {
    let Some(_alone) = alone_in_own_network() else { return };
    let prober = at_work();
    let _stopped = [stopped(), stopped(), stopped()];
    let late = at_work();
    let queue_pair = lease(&late, &[]);
    // `late` does not run meanwhile.
    lease(&prober, &[]);
    let start = Instant::now();
    while prober.counters().steering_updates.get() == 0 {
        arrived(&[&prober], Duration::from_millis(1));
        assert!(start.elapsed() < PATIENCE, "no steering");
    }
    send_from_everywhere(&prober, queue_pair);
    assert_eq!(arrived(&[&prober, &late], LONG), SOURCES as usize);
}

#[test]
fn members_that_read_nothing_take_nothing() {
    let Some(_alone) = alone_in_own_network() else { return };
    let _stopped: Vec<HostFabric> = (0..5).map(|_| stopped()).collect();
    let (a, b) = (at_work(), at_work());
    let queue_pair = lease(&b, &[]);
    let other = lease(&a, &[&b]);
    everything_arrives(&a, &b, queue_pair);
    everything_arrives(&b, &a, other);
}

#[test]
fn stopped_process_leaves_steering_usable() {
    let Some(_alone) = alone_in_own_network() else { return };
    let _stopped: Vec<HostFabric> = (0..5).map(|_| stopped()).collect();
    let name = SocketAddr::from_abstract_name(format!("pagewire-steer-{ROCE_PORT}")).unwrap();
    let (a, b) = (at_work(), at_work());
    let _turn = UnixDatagram::bind_addr(&name).unwrap();
    let queue_pair = b.lease_block().unwrap() << 8;
    until_steered(&a, &b, 1);
    everything_arrives(&a, &b, queue_pair);
}

#[test]
fn who_answers_probes_too_late_is_steered_again() {
    let Some(_alone) = alone_in_own_network() else { return };
    let _stopped: Vec<HostFabric> = (0..5).map(|_| stopped()).collect();
    let (a, b) = (at_work(), at_work());
    let queue_pair = b.lease_block().unwrap() << 8;
    until_steered(&a, &b, 1);
    until_steering_rests(&a, &b);
    let leased = a.counters().steering_updates.get();
    // Meanwhile `b` does not run.
    a.lease_block().unwrap();
    let end = Instant::now() + LONG;
    while a.counters().steering_updates.get() == leased {
        assert!(Instant::now() < end, "the steering is not set up");
        serve(&[&a]);
    }
    // `a` attached its program before `b` read the probes, so the answers of `b` come too late. `b` then wants a round until it
    // has completed one itself, whatever `a` does. Therefore the counter of `b` decides.
    let before = b.counters().steering_updates.get();
    until_steered(&a, &b, before + 1);
    everything_arrives(&a, &b, queue_pair);
}

/// What processes at work do while nothing comes.
fn serve(fabrics: &[&HostFabric]) {
    for fabric in fabrics {
        wait_and_take_events(fabric);
        fabric.receive(64, &mut |_| ());
    }
}

/// Until no process has set up the steering for [`SHORT`]. On a busy machine a step may take long and do little, so five
/// milliseconds of it count at most.
fn until_steering_rests(a: &HostFabric, b: &HostFabric) {
    const COUNTED_STEP: Duration = Duration::from_millis(5);
    let updates = || a.counters().steering_updates.get() + b.counters().steering_updates.get();
    let (first, end) = (updates(), Instant::now() + PATIENCE);
    let (mut before, mut quiet) = (first, Duration::ZERO);
    while quiet < SHORT {
        assert!(Instant::now() < end, "quiet for {quiet:?} after {} more updates", before - first);
        let start = Instant::now();
        serve(&[a, b]);
        quiet += start.elapsed().min(COUNTED_STEP);
        if updates() != before {
            (before, quiet) = (updates(), Duration::ZERO);
        }
    }
}

/// Until `b` has set up the steering so many times.
fn until_steered(a: &HostFabric, b: &HostFabric, times: u64) {
    let end = Instant::now() + LONG;
    while b.counters().steering_updates.get() < times {
        assert!(Instant::now() < end, "the steering is not set up");
        serve(&[a, b]);
    }
}

/// All datagrams from one to the other arrive without a detour, though the kernel's hash of their addresses would spread
/// them over all sockets. On a machine that is busy some may be sent before that is so.
fn everything_arrives(from: &HostFabric, to: &HostFabric, queue_pair: u32) {
    let end = Instant::now() + LONG;
    let mut counts = (0, 0);
    while counts != (0, 20) {
        assert!(Instant::now() < end, "{counts:?} of 20 arrived");
        for host in 1..=20 {
            let source = format!("127.0.0.{host}");
            send(from, &route(&source, "127.0.0.1", from), &[packet(queue_pair, host, 8)]);
        }
        let handed_on = from.counters().forwarded.get();
        let got = receive(&[from, to], 20, SHORT);
        serve(&[from, to]);
        counts = ((from.counters().forwarded.get() - handed_on) as usize + got[0].len(), got[1].len());
    }
}

/// Sockets for what single peers send share the port and are no members: steering is as it is without them.
#[test]
fn rx_peer_sockets_are_not_steered() {
    let Some(_alone) = alone_in_own_network() else { return };
    let (a, b) = (at_work(), at_work());
    let mut blocks = vec![lease(&a, &[&b]), lease(&b, &[&a])];
    let start = Instant::now();
    while a.counters().rx_peer_sockets.get() == 0 || b.counters().rx_peer_sockets.get() == 0 {
        for (from, to) in [(&a, blocks[1]), (&b, blocks[0])] {
            send(from, &route("127.0.0.1", "127.0.0.1", from), &[packet(to, 1, 8)]);
        }
        receive(&[&a, &b], 2, SHORT);
        assert!(start.elapsed() < PATIENCE);
    }
    let c = at_work();
    blocks.push(lease(&c, &[&a, &b]));
    let fabrics = [&a, &b, &c];
    for queue_pair in &blocks {
        all_arrive_in_time(&fabrics, *queue_pair);
    }
    // Once all is known nothing takes a detour.
    let start = Instant::now();
    loop {
        let forwarded = || fabrics.iter().map(|fabric| fabric.counters().forwarded.get()).sum::<u64>();
        let before = forwarded();
        for queue_pair in &blocks {
            all_arrive_in_time(&fabrics, *queue_pair);
        }
        if forwarded() == before {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "some are handed on");
    }
    // Nor when the receiving peer sockets are gone with their process, and places change.
    drop(b);
    let fabrics = [&a, &c];
    for queue_pair in [blocks[0], blocks[2]] {
        all_arrive_in_time(&fabrics, queue_pair);
    }
}

/// Port 4791 of a peer is that of all its processes, whose packets are for all of this host's: who asks from there gets no socket
/// that would take them from the others, and keep them when its process stands still.
#[test]
fn the_port_of_all_has_no_rx_peer_socket() {
    let Some(_alone) = alone_in_own_network() else { return };
    let (a, b) = (at_work(), at_work());
    let (to_a, to_b) = (lease(&a, &[&b]), lease(&b, &[&a]));
    let from_there = route("127.0.0.9", "127.0.0.1", &b);
    let mut question = packet(to_a, 0, 16);
    question[0] = 0xC4;
    question[12..].fill(0);
    question[12] = 1;
    // What comes behind the question tells that it has been read.
    let start = Instant::now();
    while receive(&[&a, &b], 1, SHORT)[0].is_empty() {
        assert!(start.elapsed() < PATIENCE, "nothing arrives");
        send(&b, &from_there, &[question.clone(), packet(to_a, 1, 8)]);
        serve(&[&b]);
    }
    assert_eq!(a.counters().rx_peer_sockets.get(), 0);
    send(&b, &from_there, &[packet(to_b, 1, 8)]);
    let got = receive(&[&a, &b], 1, LONG);
    assert_eq!((got[0].len(), got[1].len()), (0, 1));
}

/// A port of a peer may come to be another process's there, which sends to another one here: who finds such packets in its socket
/// for that port gives it up, and does not keep them when it stands still.
#[test]
fn an_rx_peer_socket_for_what_others_are_to_have_is_closed() {
    let Some(_alone) = alone_in_own_network() else { return };
    let (a, b) = (at_work(), at_work());
    let (to_a, to_b) = (lease(&a, &[&b]), lease(&b, &[&a]));
    let peer = UdpSocket::bind("127.0.0.9:0").unwrap();
    let own = peer.local_addr().unwrap().port();
    let icrc = Icrc::ipv4([127, 0, 0, 9].into(), [127, 0, 0, 1].into(), own, ROCE_PORT, true);
    let send_from_peer = |mut bytes: Vec<u8>| {
        bytes.extend([0; 4]);
        wire::seal(&icrc, 0, &mut bytes);
        peer.send_to(&bytes, ("127.0.0.1", ROCE_PORT)).unwrap();
    };
    let mut question = packet(to_a, 0, 16);
    question[0] = 0xC4;
    question[12..].fill(0);
    question[12] = 1;
    let start = Instant::now();
    while a.counters().rx_peer_sockets.get() == 0 {
        assert!(start.elapsed() < PATIENCE, "no receiving peer socket");
        send_from_peer(question.clone());
        serve(&[&a, &b]);
    }
    send_from_peer(packet(to_a, 1, 8));
    assert_eq!(receive(&[&a, &b], 1, LONG)[0].len(), 1);
    // It takes what `b` is to have, and hands that on.
    while a.counters().forwarded.get() == 0 {
        assert!(start.elapsed() < PATIENCE, "nothing is handed on");
        send_from_peer(packet(to_b, 2, 8));
        receive(&[&a, &b], 1, SHORT);
    }
    // From now on `a` stands still.
    let start = Instant::now();
    while receive(&[&b], 1, SHORT)[0].is_empty() {
        assert!(start.elapsed() < LONG, "it is kept");
        send_from_peer(packet(to_b, 3, 8));
    }
}

//! Packets over UDP between two fabrics of one process. They share a port, so that half of what comes is handed on.

mod common;

use common::not_checked::tell;
use common::{Got, alone_in_own_network, damage_last, packet, receive, route, send, send_until_connected};
use pagewire_fabric::{Fabric, HostFabric, ReceivedDatagram, Route, SendBatch};
use pagewire_wire::{Icrc, packet as wire};
use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

fn round_trip(source: &str, destination: &str) {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    common::assert_port(&a);
    a.lease_block().unwrap();
    let queue_pair = b.lease_block().unwrap() << 8 | 5;
    b.request_hop_info();
    let named = route(source, destination, &b);
    // The other one learns that its neighbour wants to be told; until then what it hands on is not.
    let start = Instant::now();
    loop {
        send(&a, &named, &[packet(queue_pair, 0, 64)]);
        if receive(&[&a, &b], 1, LONG)[1][0].hop_limit != 0 {
            break;
        }
        assert!(start.elapsed() < LONG, "the hop limit is not told");
    }
    // Packets that name no class and no hops have the usual ones, whatever was sent before and after.
    for (class, hops) in [(0, 0), (named.traffic_class, named.hop_limit), (0, 64), (0, 7)] {
        let route = Route { traffic_class: class, hop_limit: hops, ..named };
        send(&a, &route, &[packet(queue_pair, 1, 64)]);
        let got = receive(&[&a, &b], 1, LONG);
        let expected = (class, if hops == 0 { 64 } else { hops });
        assert_eq!((got[1][0].traffic_class, got[1][0].hop_limit), expected);
    }
    let before = a.counters().datagrams_sent.get();
    let route = named;
    // FIRST is longer than the MIDDLEs, LAST is shorter.
    let lengths = [1040, 1024, 1024, 1024, 1024, 1024, 1024, 16, 0, 4096, 4096, 4096, 4];
    let packets: Vec<Vec<u8>> =
        lengths.iter().enumerate().map(|(seed, length)| packet(queue_pair, seed as u32, *length)).collect();
    send(&a, &route, &packets);
    let got = receive(&[&a, &b], packets.len(), LONG);
    assert!(got[0].is_empty());
    let bytes: Vec<Vec<u8>> = got[1].iter().map(|got| got.bytes.clone()).collect();
    assert!(bytes == packets, "{} of {} packets", bytes.len(), packets.len());
    for Got { source: from, destination: to, traffic_class, hop_limit, .. } in &got[1] {
        assert_eq!((from.to_string(), to.to_string()), (source.to_owned(), destination.to_owned()));
        assert_eq!((*traffic_class, *hop_limit), (0x68, 33));
    }
    assert_eq!(a.counters().datagrams_sent.get() - before, packets.len() as u64);
    assert!(a.counters().segmented_sends.get() >= 2, "no UDP_SEGMENT");
    assert_eq!(a.counters().bad_icrc.get() + b.counters().bad_icrc.get(), 0);
}

#[test]
fn over_ipv4() {
    let Some(_alone) = alone_in_own_network() else { return };
    round_trip("127.0.0.1", "127.0.0.1");
    // Another address of the loopback device, as source and as destination.
    round_trip("127.0.0.2", "127.0.0.3");
}

#[test]
fn over_ipv6() {
    let Some(_alone) = alone_in_own_network() else { return };
    if UdpSocket::bind("[::1]:0").is_err() {
        return tell("this host has no IPv6");
    }
    round_trip("::1", "::1");
}

#[test]
fn what_came_together_is_handed_over_together() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    let queue_pair = a.lease_block().unwrap() << 8;
    let route = route("127.0.0.1", "127.0.0.1", &a);
    // The fourth is damaged, the eighth for nobody.
    let packets: Vec<Vec<u8>> =
        (0..12).map(|seed| packet(if seed == 7 { 0xEF_FFFF } else { queue_pair }, seed, 512)).collect();
    let mut batch = a.batch();
    for (index, packet) in packets.iter().enumerate() {
        batch.packet(&route, packet.len()).unwrap().copy_from_slice(packet);
        if index == 3 {
            damage_last(&mut batch, 8 * 100);
        }
    }
    a.flush(batch);
    let (mut together, mut got) = (Vec::new(), Vec::new());
    let start = std::time::Instant::now();
    while got.len() < 10 && start.elapsed() < LONG {
        let handed = a.receive(5, &mut |datagrams| {
            together.push(datagrams.len());
            got.extend(datagrams.iter().map(|datagram| datagram.bytes.to_vec()));
        });
        assert!(handed <= 5);
    }
    let sound: Vec<Vec<u8>> =
        (0..12).filter(|index| ![3, 7].contains(index)).map(|index| packets[index].clone()).collect();
    assert!(got == sound, "{} of {} packets", got.len(), sound.len());
    assert_eq!(a.counters().bad_icrc.get(), 1);
    assert_eq!(a.counters().unknown_block.get(), 1);
    // Five sound ones, one more before that for nobody, and what is behind it.
    assert_eq!(together, [5, 1, 4], "no UDP_GRO");
}

#[test]
fn datagrams_wait_for_a_nic_that_seldom_asks() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    let queue_pair = a.lease_block().unwrap() << 8;
    let route = route("127.0.0.1", "127.0.0.1", &a);
    // Rounds without a look at the network, as of a program that polls and has no queue pair on it.
    let rounds = || {
        let start = Instant::now();
        let mut count = 0;
        while count < 1_000 || start.elapsed() < SHORT / 10 {
            assert!(!a.has_events());
            count += 1;
        }
    };
    rounds();
    // Queue pair 1 is everybody's.
    let packets = [packet(1, 0, 256), packet(queue_pair, 1, 64)];
    send(&a, &route, &packets);
    rounds();
    let got = receive(&[&a], 2, LONG);
    let bytes: Vec<&[u8]> = got[0].iter().map(|got| &got.bytes[..]).collect();
    assert!(bytes == packets.each_ref().map(|packet| &packet[..]), "{} of 2", bytes.len());
}

#[test]
fn messages_that_do_not_fit_as_a_whole_wait_for_the_next_round() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    let queue_pair = a.lease_block().unwrap() << 8;
    let route = route("127.0.0.1", "127.0.0.1", &a);
    let packets: Vec<Vec<u8>> = (0..9).map(|seed| packet(queue_pair, seed, 512)).collect();
    // Three sends, of which the kernel makes a message each.
    for burst in packets.chunks(3) {
        let mut batch = a.batch();
        for packet in burst {
            batch.packet(&route, packet.len()).unwrap().copy_from_slice(packet);
        }
        a.flush(batch);
    }
    let (mut rounds, mut got) = (Vec::new(), Vec::new());
    let start = std::time::Instant::now();
    while got.len() < packets.len() && start.elapsed() < LONG {
        if rounds.len() == 1 {
            // The sockets are empty, yet nobody sleeps.
            a.wait(Some(a.now() + 10 * LONG.as_nanos() as u64));
        }
        let handed = a.receive(7, &mut |datagrams| {
            got.extend(datagrams.iter().map(|datagram| datagram.bytes.to_vec()));
        });
        rounds.extend((handed > 0).then_some(handed));
    }
    assert!(got == packets, "{} of {} packets", got.len(), packets.len());
    assert_eq!(rounds, [6, 3], "no UDP_GRO");
}

#[test]
fn damaged_packets_are_dropped() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    let queue_pair = a.lease_block().unwrap() << 8;
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let body = packet(queue_pair, 1, 64);
    let port = sender.local_addr().unwrap().port();
    let ip = [127, 0, 0, 1].into();
    let icrc = Icrc::ipv4(ip, ip, port, a.direct_port(), true);
    let mut whole = body.clone();
    whole.extend([0; 4]);
    // An identification that the receiver cannot see.
    wire::seal(&icrc, 0xBEEF, &mut whole);
    sender.send_to(&whole, ("127.0.0.1", a.direct_port())).unwrap();
    // Each bit of the payload in turn.
    for bit in 0..512 {
        let mut damaged = whole.clone();
        damaged[12 + bit / 8] ^= 1 << (bit % 8);
        sender.send_to(&damaged, ("127.0.0.1", a.direct_port())).unwrap();
        receive(&[&a], 1, Duration::from_millis(1))
            .iter()
            .flatten()
            .for_each(|got| assert_eq!(got.bytes, body));
    }
    for length in 0..16 {
        sender.send_to(&whole[..length], ("127.0.0.1", a.direct_port())).unwrap();
    }
    sender.send_to(&whole, ("127.0.0.1", a.direct_port())).unwrap();
    let last = receive(&[&a], 1, LONG);
    assert_eq!(last[0].len(), 1);
    assert_eq!(a.counters().datagrams_received.get(), 2);
    // Other processes of this host may share the port and see some of it.
    assert!(a.counters().bad_icrc.get() + a.counters().bad_length.get() > 0);
}

/// RoCEv2 senders leave the UDP checksum out (annex A17), on IPv6 too (RFC 6936): the ICRC is in its place.
#[test]
fn over_ipv6_without_a_udp_checksum() {
    let Some(_alone) = alone_in_own_network() else { return };
    let Ok(sender) = UdpSocket::bind("[::1]:0") else {
        return tell("this host has no IPv6");
    };
    let (on, length) = (1, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the value is an int that lives through the call, and its size is given (setsockopt(2)).
    let failed = unsafe {
        let value = (&raw const on).cast();
        libc::setsockopt(sender.as_raw_fd(), libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, value, length)
    };
    assert_eq!(failed, 0);
    let a = HostFabric::new().unwrap();
    let queue_pair = a.lease_block().unwrap() << 8;
    let body = packet(queue_pair, 1, 64);
    let ip = Ipv6Addr::LOCALHOST.octets();
    let icrc = Icrc::ipv6(ip.into(), ip.into(), sender.local_addr().unwrap().port(), a.direct_port());
    let mut whole = body.clone();
    whole.extend([0; 4]);
    wire::seal(&icrc, 0, &mut whole);
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    for bytes in [&damaged, &whole] {
        sender.send_to(bytes, (Ipv6Addr::LOCALHOST, a.direct_port())).unwrap();
    }
    let got = receive(&[&a], 1, LONG);
    assert_eq!(got[0].len(), 1);
    assert_eq!(got[0][0].bytes, body);
    assert_eq!(a.counters().bad_icrc.get(), 1);
}

#[test]
fn unknown_queue_pairs() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    a.lease_block().unwrap();
    let free = {
        let b = HostFabric::new().unwrap();
        b.lease_block().unwrap()
    };
    let route = route("127.0.0.1", "127.0.0.1", &a);
    send(&a, &route, &[packet(free << 8, 1, 8)]);
    let got = receive(&[&a], 1, SHORT);
    assert!(got[0].is_empty());
}

#[test]
fn packets_are_taken_back() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    let queue_pair = a.lease_block().unwrap() << 8;
    let route = route("127.0.0.1", "127.0.0.1", &a);
    let mut batch = a.batch();
    let wanted = packet(queue_pair, 1, 100);
    batch.packet(&route, wanted.len()).unwrap().copy_from_slice(&wanted);
    batch.packet(&route, 50).unwrap().fill(9);
    batch.cancel();
    a.flush(batch);
    let got = receive(&[&a], 2, SHORT);
    assert_eq!(got[0].len(), 1);
    assert_eq!(got[0][0].bytes, wanted);
}

#[test]
fn refusals_are_counted_with_their_reason() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    a.lease_block().unwrap();
    let mut route = route("127.0.0.1", "127.0.0.1", &a);
    route.source = "192.0.2.7".parse().unwrap();
    send(&a, &route, &[packet(256, 1, 8), packet(256, 2, 8)]);
    assert_eq!(a.counters().dropped_refused.get(), 2);
    assert!(a.send_reason().unwrap().contains("127.0.0.1"));
    route.source = "::1".parse().unwrap();
    send(&a, &route, &[packet(256, 1, 8)]);
    assert_eq!(a.counters().dropped_refused.get(), 3);
}

#[test]
fn batches_have_an_end() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    let route = route("127.0.0.1", "127.0.0.1", &a);
    let mut batch = a.batch();
    let mut count = 0;
    while batch.packet(&route, 4000).is_some() {
        count += 1;
    }
    assert!((16..=64).contains(&count));
    assert!(a.batch().packet(&route, 4000).is_some());
}

#[test]
fn a_sleeper_notices_datagrams() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    let queue_pair = a.lease_block().unwrap() << 8;
    let route = route("127.0.0.1", "127.0.0.1", &a);
    for round in 0..10 {
        send(&a, &route, &[packet(queue_pair, round, 8)]);
        let mut got = 0;
        while got == 0 {
            a.wait(Some(a.now() + 60_000_000_000));
            got = a.receive(64, &mut |_| ());
        }
    }
    // What nobody takes does not keep the next sleeper from its sleep.
    send(&a, &route, &[packet(queue_pair, 11, 8)]);
    let deadline = a.now() + 20_000_000;
    a.wait(Some(deadline));
    let mut rounds = 0;
    while a.now() < deadline {
        a.wait(Some(deadline));
        rounds += 1;
    }
    assert!(rounds < 10, "{rounds}");
}

#[test]
fn what_is_handed_on_waits_for_a_reader_that_does_not_run() {
    let Some(_alone) = alone_in_own_network() else { return };
    let first = HostFabric::new().unwrap();
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    let queue_pair = b.lease_block().unwrap() << 8;
    // The kernel gives the last socket the place of the first: nothing is steered to `b` any more, but spread by a hash.
    drop(first);
    for host in 1..=100 {
        let source = format!("127.0.0.{host}");
        send(&a, &route(&source, "127.0.0.1", &b), &[packet(queue_pair, host, 64)]);
    }
    for _ in 0..100 {
        a.receive(64, &mut |_| panic!("not of a"));
    }
    let got = receive(&[&a, &b], 100, LONG);
    assert_eq!((got[0].len(), got[1].len()), (0, 100));
}

/// Sends packets to a fabric that is alone at its port, from somebody who has none: nothing has to be steered.
fn send_as_stranger(to: &HostFabric, packets: &[Vec<u8>]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ip = [127, 0, 0, 1].into();
    let icrc = Icrc::ipv4(ip, ip, socket.local_addr().unwrap().port(), to.direct_port(), true);
    for packet in packets {
        let mut whole = packet.clone();
        whole.extend([0; 4]);
        wire::seal(&icrc, 0, &mut whole);
        socket.send_to(&whole, ("127.0.0.1", to.direct_port())).unwrap();
    }
}

/// Where both have one processor, looking again and again would keep the other one from it.
#[test]
fn a_sleeper_sleeps_while_another_thread_takes_datagrams() {
    let Some(_alone) = alone_in_own_network() else { return };
    let b = HostFabric::new().unwrap();
    let queue_pair = b.lease_block().unwrap() << 8;
    for round in 0..10 {
        let (entered, inside) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        send_as_stranger(&b, &[packet(queue_pair, 2 * round, 64)]);
        std::thread::scope(|scope| {
            let b = &b;
            scope.spawn(move || {
                let start = Instant::now();
                while start.elapsed() < common::PATIENCE {
                    let stays = &mut |_: &[ReceivedDatagram<'_>]| {
                        entered.send(()).unwrap();
                        released.recv().unwrap();
                    };
                    if b.receive(1, stays) > 0 {
                        break;
                    }
                }
            });
            inside.recv_timeout(common::PATIENCE).unwrap();
            send_as_stranger(b, &[packet(queue_pair, 2 * round + 1, 64)]);
            // It is this thread's in the end, as the other one stays there for too long.
            let mut sleeps = 0;
            while b.receive(1, &mut |_| ()) == 0 {
                b.wait(Some(b.now() + LONG.as_nanos() as u64));
                sleeps += 1;
            }
            release.send(()).unwrap();
            assert!(sleeps < 10, "{sleeps}");
        });
    }
}

#[test]
fn an_overtaken_receiver_leaves_nothing_behind() {
    let Some(_alone) = alone_in_own_network() else { return };
    let b = HostFabric::new().unwrap();
    let queue_pair = b.lease_block().unwrap() << 8;
    let packets: Vec<Vec<u8>> = (0..30).map(|seed| packet(queue_pair, seed, 64)).collect();
    send_as_stranger(&b, &packets);
    let sent = b.now();
    let (entered, inside) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        let b = &b;
        let stuck = scope.spawn(move || {
            let start = std::time::Instant::now();
            let mut got = Vec::new();
            while got.is_empty() && start.elapsed() < common::PATIENCE {
                b.receive(1, &mut |datagrams| {
                    got.extend(datagrams.iter().map(|datagram| datagram.bytes.to_vec()));
                    entered.send(()).unwrap();
                    released.recv().unwrap();
                });
            }
            got
        });
        inside.recv_timeout(common::PATIENCE).unwrap();
        // One thread is in the middle of its first datagram; this one goes on with what it can have.
        std::thread::sleep(Duration::from_millis(5));
        got.extend(receive(&[b], usize::MAX, Duration::from_millis(50)).remove(0));
        let rx_watermark = b.rx_watermark();
        release.send(()).unwrap();
        let first = stuck.join().unwrap();
        assert!(rx_watermark < sent, "the first thread held some of them");
        assert_eq!(first, &packets[..1]);
    });
    // Nothing more comes in, but a sleeper is told of what the stuck thread had in its hands.
    let start = std::time::Instant::now();
    while got.len() + 1 < packets.len() && start.elapsed() < LONG {
        b.wait(Some(b.now() + LONG.as_nanos() as u64));
        got.extend(receive(&[&b], usize::MAX, Duration::from_millis(1)).remove(0));
    }
    assert!(start.elapsed() < LONG, "the sleeper was not woken");
    let mut bytes: Vec<Vec<u8>> = got.into_iter().map(|got| got.bytes).collect();
    bytes.sort_by_key(|bytes| u32::from_be_bytes(bytes[8..12].try_into().unwrap()));
    assert!(bytes == packets[1..], "{} of 29 datagrams", bytes.len());
    assert!(b.rx_watermark() >= sent, "all was handed over, and still not heard");
}

#[test]
fn rx_watermark_follows_handed_datagrams() {
    let Some(_alone) = alone_in_own_network() else { return };
    let b = HostFabric::new().unwrap();
    let queue_pair = b.lease_block().unwrap() << 8;
    let packets: Vec<Vec<u8>> = (0..20).map(|seed| packet(queue_pair, seed, 64)).collect();
    send_as_stranger(&b, &packets);
    let sent = b.now();
    let start = std::time::Instant::now();
    let mut got = 0;
    while got < 20 {
        assert!(b.rx_watermark() < sent, "{got} of 20 datagrams were handed over");
        got += b.receive(1, &mut |_| ());
        assert!(start.elapsed() < LONG);
    }
    while b.rx_watermark() < sent {
        assert_eq!(b.receive(1, &mut |_| ()), 0);
        assert!(start.elapsed() < LONG);
    }
}

fn connected_round_trip(address: &str) {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    common::assert_port(&a);
    a.lease_block().unwrap();
    let queue_pair = b.lease_block().unwrap() << 8 | 5;
    b.request_hop_info();
    let route = route(address, address, &b);
    let body = packet(queue_pair, 1, 64);
    let mut got = 0;
    let serve = || got += receive(&[&a, &b], 1, SHORT)[1].len();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // What the first packet needs is there.
    send(&a, &route, std::slice::from_ref(&body));
    assert_eq!(receive(&[&a, &b], 1, LONG)[1].len(), 1);
    let before_connected = descriptors();
    assert!(send_until_connected(&a, &route, &body, serve), "the peer was never believed to hear");
    let before = a.counters().connected_sends.get();
    // What fits one send and what does not, one after the other: the socket is set to cut, and not to.
    for lengths in [&[64, 64, 64, 8][..], &[64, 64, 64, 8], &[64, 64, 8], &[256], &[256], &[8, 64, 64, 4096]]
    {
        let packets: Vec<Vec<u8>> =
            lengths.iter().map(|length| packet(queue_pair, *length as u32, *length)).collect();
        send(&a, &route, &packets);
        let got = receive(&[&a, &b], packets.len(), LONG);
        assert!(got[1].iter().map(|got| &got.bytes).eq(&packets), "{lengths:?}");
        for Got { source, traffic_class, hop_limit, .. } in &got[1] {
            assert_eq!((source.to_string().as_str(), *traffic_class, *hop_limit), (address, 0x68, 33));
        }
    }
    assert!(a.counters().connected_sends.get() - before >= 6);
    assert_eq!((a.counters().rx_peer_sockets.get(), b.counters().rx_peer_sockets.get()), (0, 1));
    // What the socket of the port still gets, in turn with the other.
    let other = Route { hop_limit: 7, ..route };
    for seed in 0..20 {
        let body = packet(queue_pair, seed, 64);
        send(&a, if seed % 2 == 0 { &route } else { &other }, std::slice::from_ref(&body));
        let got = receive(&[&a, &b], 1, LONG);
        assert_eq!((&got[1][0].bytes, got[1][0].hop_limit), (&body, if seed % 2 == 0 { 33 } else { 7 }));
    }
    assert_eq!(a.counters().bad_icrc.get() + b.counters().bad_icrc.get(), 0);
    // Both ends are given back once they are not used.
    assert!(descriptors() >= before_connected + 2);
    let start = Instant::now();
    while descriptors() > before_connected {
        assert!(start.elapsed() < LONG, "sockets that nobody uses stay");
        for fabric in [&a, &b] {
            fabric.wait(Some(fabric.now() + 10_000_000));
            fabric.has_events();
        }
    }
    // And there again when they are.
    assert!(send_until_connected(&a, &route, &body, || drop(receive(&[&a, &b], 1, SHORT))));
}

/// A peer that much is sent to gets a socket of its own once it has said that it hears it.
#[test]
fn connected_sockets() {
    let Some(_alone) = alone_in_own_network() else { return };
    connected_round_trip("127.0.0.1");
    if UdpSocket::bind("[::1]:0").is_ok() {
        connected_round_trip("::1");
    }
}

/// A standard peer behind `socket`: takes what has come, and gives source ports and bytes.
fn taken(socket: &UdpSocket) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    let mut bytes = [0; 2048];
    while let Ok((length, from)) = socket.recv_from(&mut bytes) {
        all.push((from.port(), bytes[..length].to_vec()));
    }
    all
}

/// Packets for a peer that says nothing, as standard ones do, and those behind some firewalls, come from the port of RoCEv2.
#[test]
fn peers_that_do_not_answer_are_sent_to_as_ever() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    a.lease_block().unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_nonblocking(true).unwrap();
    let route = Route { port: peer.local_addr().unwrap().port(), ..route("127.0.0.1", "127.0.0.1", &a) };
    let body = packet(0x12_3407, 1, 64);
    let (mut got, mut asked) = (0, 0);
    let connected = send_until_connected(&a, &route, &body, || {
        for (port, bytes) in taken(&peer) {
            match bytes.first() {
                Some(&0x24) => {
                    assert_eq!(port, a.direct_port());
                    got += 1;
                }
                _ => asked += 1,
            }
        }
    });
    assert!(!connected);
    assert_eq!(got, 20_000);
    assert!((3..=20).contains(&asked), "{asked} questions");
}

/// Where a peer has gone and another comes to its place, what is sent is not lost for the socket's sake. The identification that
/// the kernel gives the packets is the one that the ICRC covers.
#[test]
fn a_connected_socket_that_was_refused_is_given_up() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    a.lease_block().unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_nonblocking(true).unwrap();
    let address = peer.local_addr().unwrap();
    let ip = [127, 0, 0, 1].into();
    let route = Route { port: address.port(), ..route("127.0.0.1", "127.0.0.1", &a) };
    let body = packet(0x12_3407, 1, 64);
    let mut numbers = Vec::new();
    let connected = send_until_connected(&a, &route, &body, || {
        for (port, bytes) in taken(&peer) {
            let icrc = Icrc::ipv4(ip, ip, port, address.port(), true);
            let Some(found) = icrc.recover_identification(&bytes) else { continue };
            numbers.extend((port != a.direct_port()).then_some(found));
            if bytes[0] == 0xC4 {
                let mut answer = bytes.clone();
                answer[4..8].copy_from_slice(&bytes[16..20]);
                answer[13] = 1;
                wire::seal(&Icrc::ipv4(ip, ip, address.port(), a.direct_port(), true), 0, &mut answer);
                peer.send_to(&answer, ("127.0.0.1", a.direct_port())).unwrap();
                receive(&[&a], 1, Duration::from_millis(1));
            }
        }
    });
    assert!(connected);
    for _ in 0..10 {
        send(&a, &route, &[body.clone(), body.clone()]);
    }
    let mut left = 0;
    for (port, bytes) in taken(&peer) {
        assert_ne!(port, a.direct_port());
        numbers.extend(Icrc::ipv4(ip, ip, port, address.port(), true).recover_identification(&bytes));
        left += 1;
    }
    assert_eq!(left, 20);
    // Sends are numbered one after the other, and so are the two datagrams of each, from the number of the send on.
    let steps: Vec<u16> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.iter().all(|step| [0, 1, u16::MAX].contains(step)), "{numbers:?}");
    drop(peer);
    send(&a, &route, std::slice::from_ref(&body));
    let peer = UdpSocket::bind(address).unwrap();
    peer.set_nonblocking(true).unwrap();
    let before = a.counters().connected_sends.get();
    for _ in 0..10 {
        send(&a, &route, std::slice::from_ref(&body));
    }
    let got = taken(&peer);
    assert_eq!(got.len(), 10);
    assert!(got.iter().all(|(port, _)| *port == a.direct_port()));
    assert_eq!(a.counters().connected_sends.get(), before);
}

/// A question whether packets from a socket arrive, for a queue pair.
fn question(from: &UdpSocket, to: &HostFabric, queue_pair: u32) {
    let ip = [127, 0, 0, 1].into();
    let mut bytes = packet(queue_pair, 0, 16);
    bytes[0] = 0xC4;
    bytes[12..].fill(0);
    bytes[12] = 1;
    bytes.extend([0; 4]);
    let (port, own) = (to.direct_port(), from.local_addr().unwrap().port());
    wire::seal(&Icrc::ipv4(ip, ip, own, port, true), 0, &mut bytes);
    from.send_to(&bytes, ("127.0.0.1", port)).unwrap();
}

/// Strangers may ask as often as they like: what they send arrives, and no more sockets are made than there may be.
#[test]
fn questions_of_many() {
    let Some(_alone) = alone_in_own_network() else { return };
    let a = HostFabric::new().unwrap();
    let queue_pair = a.lease_block().unwrap() << 8;
    let ip = [127, 0, 0, 1].into();
    let peers: Vec<UdpSocket> = (0..40).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for round in 0..3 {
        for peer in &peers {
            question(peer, &a, queue_pair);
            receive(&[&a], 1, Duration::from_millis(1));
            let mut body = packet(queue_pair, round, 64);
            body.extend([0; 4]);
            let own = peer.local_addr().unwrap().port();
            wire::seal(&Icrc::ipv4(ip, ip, own, a.direct_port(), true), 0, &mut body);
            peer.send_to(&body, ("127.0.0.1", a.direct_port())).unwrap();
            let got = receive(&[&a], 1, LONG);
            assert_eq!(got[0].len(), 1);
            assert_eq!(got[0][0].bytes, body[..body.len() - 4]);
        }
        assert!(descriptors() - before <= 8, "{} more descriptors", descriptors() - before);
    }
    assert!(a.counters().rx_peer_sockets.get() >= 8);
    assert_eq!(a.counters().bad_icrc.get(), 0);
}

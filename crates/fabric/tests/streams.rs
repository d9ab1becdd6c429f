//! Packets in TCP connections between two fabrics of one process. They share the port, so that half of the connections are accepted by the
//! wrong one, and given to the right one.

mod common;

use common::{PATIENCE, alone, answer, answer_between, packet, receive, route, send, serve};
use pagewire_fabric::{Fabric, HostFabric, Route, SendBatch, StreamAnswer, StreamSend};
use pagewire_memory::Segment;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

const HERE: &str = "127.0.0.1";
const QUIET: Duration = Duration::from_secs(20);

/// Two fabrics, the block of the second, and the way there from the first.
fn connected() -> (HostFabric, HostFabric, u32, Route) {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    a.lease_block().unwrap();
    let block = b.lease_block().unwrap();
    let route = answer(&a, &[&b], block, &route(HERE, HERE, &b)).unwrap();
    (a, b, block, route)
}

fn bodies(from: u32, count: u32, block: u32) -> Vec<Vec<u8>> {
    let length = |seed: u32| [1040, 1024, 1024, 1024, 16, 0, 4096, 4096, 4][seed as usize % 9];
    (from..from + count).map(|seed| packet(block << 8 | 5, seed, length(seed))).collect()
}

#[test]
fn packets_arrive_whole_and_in_order() {
    let _alone = alone();
    // Whoever accepts is a matter of chance.
    for _ in 0..8 {
        let (a, b, block, route) = connected();
        let packets = bodies(0, 500, block);
        for some in packets.chunks(100) {
            send(&a, &route, some);
            let got = receive(&[&a, &b], some.len(), QUIET);
            assert!(got[0].is_empty());
            assert!(got[1].iter().map(|got| &got.bytes).eq(some), "{} of {}", got[1].len(), some.len());
            let is_from_here = |address: std::net::IpAddr| address.to_string() == HERE;
            assert!(got[1].iter().all(|got| is_from_here(got.source) && is_from_here(got.destination)));
        }
        assert_eq!(a.counters().stream_packets_sent.get(), packets.len() as u64);
        assert_eq!(b.counters().stream_packets_received.get(), packets.len() as u64);
        assert_eq!(a.counters().datagrams_sent.get() + b.counters().datagrams_received.get(), 0);
    }
}

/// TCP connections to the port of streams that are established.
fn connections() -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let is_one = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words[2].ends_with(":12B7") && words[3] == "01"
    };
    table.lines().filter(is_one).count()
}

/// Sends packets in both directions by turns, and looks at each.
fn exchange(ends: [(&HostFabric, &Route, u32); 2], rounds: u32) {
    for round in 0..rounds {
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, route, _) = ends[from];
            let (receiver, _, block) = ends[to];
            let packets = bodies(round, 20, block);
            send(sender, route, &packets);
            let got = receive(&[sender, receiver], packets.len(), QUIET);
            assert!(got[1].iter().map(|got| &got.bytes).eq(&packets), "round {round}, from {from}");
            assert!(got[0].is_empty());
        }
    }
}

/// A process answers what it has read when it reads, and not before.
fn answers_questions((asking, route): (&HostFabric, &Route), asked: &HostFabric) {
    let stream = route.stream.unwrap();
    let question = asking.ask_stream(stream).unwrap();
    for _ in 0..20 {
        serve(&[asking]);
        assert_eq!(asking.answer_to(stream, question), StreamAnswer::Pending);
    }
    let until = Instant::now() + PATIENCE;
    while asking.answer_to(stream, question) == StreamAnswer::Pending {
        serve(&[asked, asking]);
        assert!(Instant::now() < until, "no answer");
    }
    assert_eq!(asking.answer_to(stream, question), StreamAnswer::Read);
}

/// Both directions share a connection: of who asks first, and of one of both where they ask at once. When it breaks they share another.
#[test]
fn two_directions_have_one_connection() {
    let _alone = alone();
    for at_once in [false, true].repeat(8) {
        let before = connections();
        let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
        let blocks = (a.lease_block().unwrap(), b.lease_block().unwrap());
        let back = (blocks.1, blocks.0);
        let (to_b, to_a) = (route(HERE, HERE, &b), route(HERE, HERE, &a));
        if !at_once {
            // Also where nothing is sent back.
            let alone = answer_between(&a, &[&b], blocks, &to_b).unwrap();
            answers_questions((&a, &alone), &b);
        }
        if at_once {
            a.stream_to(&to_b, blocks, 0);
            b.stream_to(&to_a, back, 0);
        }
        let open = || {
            let there = answer_between(&a, &[&b], blocks, &to_b).unwrap();
            let back = answer_between(&b, &[&a], back, &to_a).unwrap();
            (there, back)
        };
        let (there, back) = open();
        exchange([(&a, &there, blocks.0), (&b, &back, blocks.1)], 3);
        assert_eq!(connections(), before + 1, "at once: {at_once}");
        answers_questions((&a, &there), &b);
        answers_questions((&b, &back), &a);
    }
}

#[test]
fn few_at_a_time_are_all_there_are() {
    let _alone = alone();
    let (a, b, block, route) = connected();
    let packets = bodies(0, 90, block);
    send(&a, &route, &packets);
    let (mut bytes, until) = (Vec::new(), Instant::now() + PATIENCE);
    while bytes.len() < packets.len() {
        let handed = b.receive(7, &mut |some| bytes.extend(some.iter().map(|one| one.bytes.to_vec())));
        assert!(handed <= 7 && Instant::now() < until, "{} of {} packets", bytes.len(), packets.len());
        serve(&[&a]);
    }
    assert!(bytes == packets);
}

#[test]
fn a_reader_that_is_slow_loses_nothing() {
    let _alone = alone();
    let (a, b, block, route) = connected();
    let packets = bodies(0, 9000, block);
    let (mut sent, mut got, mut waited) = (0, Vec::new(), 0);
    let until = Instant::now() + PATIENCE;
    while got.len() < packets.len() {
        let mut batch = a.batch();
        while let Some(room) = packets.get(sent).and_then(|next| batch.packet(&route, next.len())) {
            room.copy_from_slice(&packets[sent]);
            sent += 1;
        }
        a.flush(batch);
        // Only where there is no more room.
        if sent == packets.len() || a.batch().packet(&route, 16).is_none() {
            waited += usize::from(sent < packets.len());
            let _ = b.receive(64, &mut |some| got.extend(some.iter().map(|one| one.bytes.to_vec())));
        }
        let _ = a.receive(64, &mut |_| panic!("nothing comes here"));
        assert!(Instant::now() < until, "{} of {} packets", got.len(), packets.len());
    }
    assert!(got == packets);
    assert!(waited > 0, "the socket took everything");
    assert_eq!(a.counters().dropped_no_room.get(), 0);
}

#[test]
fn absent_processes_are_refused() {
    let _alone = alone();
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    let own = a.lease_block().unwrap();
    let route = route(HERE, HERE, &b);
    let nobody = (1..0xEFFF).find(|block| *block != own).unwrap();
    let reason = answer(&a, &[&b], nobody, &route).unwrap_err();
    assert!(reason.contains("no process for the peer's number"), "{reason}");
    // A block with a port of its own, at which nobody listens.
    let reason = answer(&a, &[&b], 0xFFF0, &route).unwrap_err();
    assert!(reason.contains("no Pagewire takes connections at TCP port 65520"), "{reason}");
    // What is sent all the same is lost, and counted.
    let (id, _) = a.stream_to(&route, (own, nobody), 0);
    send(&a, &Route { stream: Some(id), ..route }, &[packet(nobody << 8, 0, 64)]);
    assert_eq!(a.counters().dropped_refused.get(), 1);
}

/// A listener that says nothing, as one that is stopped.
#[test]
fn silence_is_bounded() {
    let _alone = alone();
    let a = HostFabric::new().unwrap();
    a.lease_block().unwrap();
    let block = 0xFFE0;
    let Ok(_listener) = std::net::TcpListener::bind((HERE, block as u16)) else {
        return common::not_checked::tell("TCP port 65504 is taken");
    };
    let begun = Instant::now();
    let reason = answer(&a, &[], block, &route(HERE, HERE, &a)).unwrap_err();
    assert!(reason.contains("does not answer"), "{reason}");
    assert!(begun.elapsed() >= Duration::from_millis(240), "{:?}", begun.elapsed());
}

#[test]
fn a_process_that_ends_ends_its_streams() {
    let _alone = alone();
    let (a, b, block, route) = connected();
    drop(b);
    let until = Instant::now() + PATIENCE;
    while a.counters().dropped_refused.get() == 0 {
        let mut batch = a.batch();
        // Packets wait while it is tried once more.
        let bytes = &bodies(0, 1, block)[0];
        if let Some(room) = batch.packet(&route, bytes.len()) {
            room.copy_from_slice(bytes);
        }
        a.flush(batch);
        serve(&[&a]);
        assert!(Instant::now() < until, "the end is not told");
    }
}

/// What the side says first that opens a stream between two addresses.
fn preface(block: u32, source: &str, destination: &str) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..9].copy_from_slice(b"pagewire\x01");
    bytes[10..12].copy_from_slice(&(block as u16).to_be_bytes());
    for (at, address) in [(32, source), (48, destination)] {
        let address: Ipv4Addr = address.parse().unwrap();
        bytes[at..at + 16].copy_from_slice(&address.to_ipv6_mapped().octets());
    }
    bytes
}

/// Nobody names itself by the address of another host, and nobody is taken for a host that this is not.
#[test]
fn addresses_are_not_made_up() {
    const REFUSED: u8 = 3;
    let _alone = alone();
    let (a, b, block, _) = connected();
    for (source, destination) in [("192.0.2.7", HERE), (HERE, "192.0.2.7"), ("127.0.0.2", HERE)] {
        let mut stranger = TcpStream::connect((HERE, 4791)).unwrap();
        stranger.write_all(&preface(block, source, destination)).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let (mut answer, until) = ([0; 64], Instant::now() + PATIENCE);
        while stranger.read(&mut answer).is_err() {
            serve(&[&a, &b]);
            assert!(Instant::now() < until, "no answer");
        }
        assert_eq!(answer[9], REFUSED, "{source} to {destination}");
    }
}

/// Strangers say all kinds of things at the port; others are served meanwhile.
#[test]
fn strangers_are_sent_away() {
    let _alone = alone();
    let (a, b, block, route) = connected();
    let preface = |block: u32| preface(block, HERE, HERE);
    let frame = |kind: u8, segment: u32, length: u32| {
        [&[kind, 0, 0, 0][..], &segment.to_be_bytes(), &length.to_be_bytes()].concat()
    };
    let sayings: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: pagewire.example\r\n\r\n".to_vec(),
        preface(block)[..20].to_vec(),
        [&preface(block)[..], &frame(3, 64, 64)].concat(),
        // A long packet without headers, and one that ends in its payload.
        [&preface(block)[..], &frame(2, 64, 64)].concat(),
        [&preface(block)[..], &[2, 12, 0, 0], &frame(2, 20_000, 20_000)[4..], &[0x77; 9_000]].concat(),
        [&preface(block)[..], &frame(1, 5, 64)].concat(),
        [&preface(block)[..], &frame(1, 64, u32::MAX)].concat(),
        [&preface(block)[..], &frame(1, u32::MAX, u32::MAX)].concat(),
        [&preface(block)[..], &frame(1, 64, 64), &[0; 10]].concat(),
        [&preface(block)[..], &frame(1, 12, 24), &[0x77; 24]].concat(),
    ];
    for saying in &sayings {
        let mut stranger = TcpStream::connect((HERE, 4791)).unwrap();
        stranger.write_all(saying).unwrap();
        stranger.shutdown(Shutdown::Write).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let until = Instant::now() + PATIENCE;
        let mut answer = [0; 64];
        loop {
            serve(&[&a, &b]);
            match stranger.read(&mut answer) {
                Ok(0) => break,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
                _ => assert!(Instant::now() < until, "{saying:?} is kept"),
            }
        }
        let packets = bodies(7, 9, block);
        send(&a, &route, &packets);
        let got = receive(&[&a, &b], packets.len(), QUIET);
        assert!(got[1].iter().map(|got| &got.bytes).eq(&packets), "after {saying:?}");
    }
    // The last one had two packets for nobody here.
    assert_eq!(a.counters().unknown_block.get() + b.counters().unknown_block.get(), 2);
}

/// What a receiver does with a payload that is still in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taking {
    Placed {
        tail_last: bool,
    },
    Copied,
    Left,
    /// Where nothing is mapped.
    Lost,
}

const TAKINGS: [Taking; 5] = [
    Taking::Placed { tail_last: true },
    Taking::Copied,
    Taking::Placed { tail_last: false },
    Taking::Left,
    Taking::Lost,
];

/// Receives packets until so many have come: their bytes, where the payload was taken, and how many payloads were deferred.
fn take_all(fabrics: &[&HostFabric], count: usize, mut go_on: impl FnMut()) -> (Vec<Option<Vec<u8>>>, usize) {
    let (mut got, mut deferred) = (Vec::new(), 0);
    let until = Instant::now() + PATIENCE;
    while got.len() < count {
        for fabric in fabrics {
            let _ = fabric.receive(64, &mut |some| {
                for one in some {
                    let Some(payload) = one.deferred else {
                        got.push(Some(one.bytes.to_vec()));
                        continue;
                    };
                    let mut bytes = vec![0; payload.length()];
                    let place = Segment { address: bytes.as_mut_ptr() as u64, length: bytes.len() as u64 };
                    let taken = match TAKINGS[deferred % TAKINGS.len()] {
                        Taking::Placed { tail_last } => payload.place(place, tail_last).map(|()| bytes).ok(),
                        Taking::Copied => {
                            let copy = payload.read();
                            // Who has to keep the packet after all gets the same, and nothing else is taken from the stream.
                            assert_eq!(payload.read(), copy);
                            assert!(payload.place(place, true).is_err());
                            copy.map(|bytes| bytes.to_vec())
                        }
                        Taking::Left => None,
                        Taking::Lost => {
                            let nowhere = Segment { address: 0x1000, ..place };
                            assert!(payload.place(nowhere, true).is_err());
                            assert!(payload.read().is_none() && payload.place(place, true).is_err());
                            None
                        }
                    };
                    deferred += 1;
                    got.push(taken.map(|bytes| [one.bytes, &bytes].concat()));
                }
            });
        }
        go_on();
        assert!(Instant::now() < until, "{} of {count} packets", got.len());
    }
    (got, deferred)
}

/// Packets whose payloads stay in the kernel until somebody says where they belong, among others.
#[test]
fn long_payloads_lie_where_they_belong() {
    let _alone = alone();
    let (a, b, block, route) = connected();
    let stream = route.stream.unwrap();
    let lengths = [65_536, 64, 8192, 30_000, 16, 9000, 65_536, 65_536];
    let packets: Vec<_> = (0..400_u32)
        .map(|seed| packet(block << 8 | 5, seed, lengths[seed as usize % lengths.len()]))
        .collect();
    let mut sent = 0;
    let (got, deferred) = take_all(&[&b, &a], packets.len(), || {
        while let Some(packet) = packets.get(sent) {
            let (headers, payload) = packet.split_at(12);
            let place = Segment { address: payload.as_ptr() as u64, length: payload.len() as u64 };
            match a.send_from_memory(stream, headers, place) {
                StreamSend::Taken => {}
                StreamSend::NoRoom => break,
                StreamSend::Unavailable => {
                    assert!(payload.len() < 8192, "{} bytes", payload.len());
                    let mut batch = a.batch();
                    let Some(room) = batch.packet(&route, packet.len()) else { break };
                    room.copy_from_slice(packet);
                    a.flush(batch);
                }
            }
            sent += 1;
        }
    });
    assert!(deferred > 50, "{deferred} payloads were deferred");
    for (got, sent) in got.iter().zip(&packets) {
        assert!(got.as_ref().is_none_or(|got| got == sent), "a packet of {} bytes", sent.len());
    }
    let lost = got.iter().filter(|got| got.is_none()).count();
    assert!(lost <= deferred * 2 / TAKINGS.len() + 2 && lost > 0, "{lost} of {deferred}");
    // Memory that is not there is not sent, and nothing else is lost for it.
    let nowhere = Segment { address: 0x1000, length: 65_536 };
    assert_eq!(a.send_from_memory(stream, &packets[0][..12], nowhere), StreamSend::Unavailable);
    send(&a, &route, &packets[1..2]);
    assert_eq!(take_all(&[&b, &a], 1, || {}).0, [Some(packets[1].clone())]);
}

/// A peer that sends a long packet in pieces of any length, in a stream that was cut anywhere.
#[test]
fn long_payloads_in_pieces() {
    let _alone = alone();
    let (a, b, block, _) = connected();
    let mut stranger = TcpStream::connect((HERE, 4791)).unwrap();
    stranger.set_nodelay(true).unwrap();
    let packets: Vec<_> = (0..12).map(|seed| packet(block << 8 | 5, seed, 20_000)).collect();
    let mut bytes = preface(block, HERE, HERE).to_vec();
    for packet in &packets {
        let length = (packet.len() as u32).to_be_bytes();
        bytes.extend([&[2, 12, 0, 0][..], &length, &length, packet].concat());
    }
    let (mut at, mut seed) = (0, 1_u64);
    let (got, deferred) = take_all(&[&b, &a], packets.len(), || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let most = [1, 11, 700, 40_000][(seed >> 40) as usize % 4];
        let piece = &bytes[at..bytes.len().min(at + most)];
        stranger.write_all(piece).unwrap();
        at += piece.len();
    });
    assert!(deferred > 0);
    for (got, sent) in got.iter().zip(&packets) {
        assert!(got.as_ref().is_none_or(|got| got == sent));
    }
    assert!(got.iter().any(Option::is_some));
}

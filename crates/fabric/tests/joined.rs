//! Datagrams of an acknowledgement and the packet next to it: what sends them, and what becomes of whatever looks like one.

mod common;

use common::{Got, alone_in_own_network, packet, receive, route, send, send_until_connected};
use pagewire_fabric::{Batch, Fabric, HostFabric, Route};
use pagewire_wire::joined::ACKNOWLEDGEMENT_LEN;
use pagewire_wire::packet::ICRC_LEN;
use pagewire_wire::{Echo, Icrc, packet as wire};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

/// A packet of RC, from its BTH to the end of its payload.
fn rc(opcode: u8, queue_pair: u32, seed: u32, length: usize) -> Vec<u8> {
    let mut bytes = packet(queue_pair, seed, length);
    bytes[0] = opcode;
    bytes
}

fn acknowledgement(queue_pair: u32, seed: u32) -> Vec<u8> {
    rc(0x11, queue_pair, seed, 4)
}

fn send_only(queue_pair: u32, seed: u32) -> Vec<u8> {
    rc(0x04, queue_pair, seed, 8)
}

fn bytes_of(got: Vec<Got>) -> Vec<Vec<u8>> {
    got.into_iter().map(|got| got.bytes).collect()
}

/// Two fabrics, the second of which has the queue pair, and the first a socket that is connected to it, by this route.
fn connected(address: &str) -> (HostFabric, HostFabric, u32, Route) {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    a.lease_block().unwrap();
    let queue_pair = b.lease_block().unwrap() << 8 | 5;
    let route = route(address, address, &b);
    let mut sent = 0;
    let serve = || {
        sent += 1;
        receive(&[&a, &b], 1, SHORT);
    };
    assert!(send_until_connected(&a, &route, &packet(queue_pair, 1, 64), serve));
    (a, b, queue_pair, route)
}

fn leave_joined(address: &str) {
    let (a, b, queue_pair, plain) = connected(address);
    let joined = Route { joined: true, ..plain };
    let joined_sends = || a.counters().joined_sends.get();
    let both = |seed| [acknowledgement(queue_pair, seed), send_only(queue_pair, seed)];
    for seed in 0..10 {
        let [first, second] = both(seed);
        // The peer gets the acknowledgement first in any case; where it does not take two in one, as they were sent.
        let sent = if seed % 2 == 0 { [&second, &first] } else { [&first, &second] };
        for (route, expected, count) in [(&plain, sent, 0), (&joined, [&first, &second], 1)] {
            let before = joined_sends();
            send(&a, route, &sent.map(Vec::clone));
            let [_, got] = receive(&[&a, &b], 2, LONG).try_into().ok().unwrap();
            assert!(bytes_of(got).iter().eq(expected), "{seed} {route:?}");
            assert_eq!(joined_sends() - before, count);
        }
    }
    // Among others, and each for itself damaged.
    let [first, second] = both(11);
    let longer = rc(0x0A, queue_pair, 3, 40);
    for damaged in 0..4 {
        let before = (joined_sends(), b.counters().bad_icrc.get());
        let mut batch = a.batch();
        for (index, packet) in [&longer, &longer, &first, &second].into_iter().enumerate() {
            batch.packet(&joined, packet.len()).unwrap().copy_from_slice(packet);
            if index == damaged {
                batch.damage(8 * 13);
            }
        }
        a.flush(batch);
        let sound: Vec<&Vec<u8>> = [&longer, &longer, &first, &second]
            .into_iter()
            .enumerate()
            .filter(|it| it.0 != damaged)
            .map(|it| it.1)
            .collect();
        let [_, got] = receive(&[&a, &b], 3, LONG).try_into().ok().unwrap();
        assert!(bytes_of(got).iter().eq(sound), "{damaged}");
        // A row of two and the acknowledgement behind it are one send; what is left is alone then.
        assert_eq!((joined_sends(), b.counters().bad_icrc.get()), (before.0, before.1 + 1));
    }
    assert_eq!(
        a.counters().bad_icrc.get() + a.counters().bad_length.get() + b.counters().bad_length.get(),
        0
    );
}

#[test]
fn an_acknowledgement_and_the_packet_next_to_it_leave_as_one() {
    let Some(_alone) = alone_in_own_network() else { return };
    leave_joined("127.0.0.1");
    if UdpSocket::bind("[::1]:0").is_ok() {
        leave_joined("::1");
    }
}

/// Sends messages to a fabric from a socket of its own, by no rules, cut by the kernel into datagrams of so many bytes.
struct Stranger {
    socket: UdpSocket,
    icrc: Icrc,
}

impl Stranger {
    fn new(to: &HostFabric) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", to.direct_port())).unwrap();
        let (here, port) = (Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port());
        Stranger { socket, icrc: Icrc::ipv4(here, here, port, to.direct_port(), true) }
    }

    /// A packet with its ICRC.
    fn sealed(&self, packet: &[u8]) -> Vec<u8> {
        let mut whole = [packet, &[0; ICRC_LEN]].concat();
        wire::seal(&self.icrc, 0x77, &mut whole);
        whole
    }

    fn send(&self, message: &[u8], segment: usize) {
        let (cut, length) = (segment as i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: the value is an int that lives through the call, and its size is given (setsockopt(2)).
        let failed = unsafe {
            let value = (&raw const cut).cast();
            libc::setsockopt(self.socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, length)
        };
        assert_eq!(failed, 0);
        self.socket.send(message).unwrap();
    }
}

/// A fabric that is alone at its port.
struct Receiving {
    fabric: HostFabric,
    queue_pair: u32,
    stranger: Stranger,
}

impl Receiving {
    fn new() -> Self {
        let fabric = HostFabric::new().unwrap();
        let queue_pair = fabric.lease_block().unwrap() << 8;
        let stranger = Stranger::new(&fabric);
        Receiving { fabric, queue_pair, stranger }
    }

    fn counts(&self) -> [u64; 3] {
        let counters = self.fabric.counters();
        [&counters.bad_icrc, &counters.bad_length, &counters.unknown_block].map(|counter| counter.get())
    }

    /// What is handed over of a message cut into datagrams of so many bytes, at most `limit` packets at once, and how many were
    /// dropped since they were damaged, too short or long, or for nobody.
    fn take(&self, message: &[u8], segment: usize, limit: usize) -> (Vec<Vec<u8>>, [u64; 3]) {
        let before = self.counts();
        // Behind it comes what is certainly handed over.
        let end = rc(0x05, self.queue_pair, 0x00_1234, 12);
        self.stranger.send(message, segment);
        self.stranger.send(&self.stranger.sealed(&end), 0);
        let mut got: Vec<Vec<u8>> = Vec::new();
        let start = Instant::now();
        while got.last() != Some(&end) {
            assert!(start.elapsed() < LONG, "the end does not come");
            let handed = self.fabric.receive(limit, &mut |datagrams| {
                assert!(datagrams.len() <= limit);
                got.extend(datagrams.iter().map(|datagram| datagram.bytes.to_vec()));
            });
            assert!(handed <= limit);
        }
        got.pop();
        let after = self.counts();
        (got, [0, 1, 2].map(|index| after[index] - before[index]))
    }
}

/// What a datagram begins with, what stands behind that, what is handed over of it, and what is counted.
type Case<'a> = (&'a [u8], &'a [u8], &'a [Vec<u8>], [u64; 3]);

#[test]
fn two_packets_of_a_datagram_are_judged_each_for_itself() {
    let Some(_alone) = alone_in_own_network() else { return };
    let receiving = Receiving::new();
    let (queue_pair, stranger) = (receiving.queue_pair, &receiving.stranger);
    let (first, second) = (acknowledgement(queue_pair, 1), send_only(queue_pair, 2));
    let (sound_first, sound_second) = (stranger.sealed(&first), stranger.sealed(&second));
    let damaged = |packet: &[u8]| {
        let mut packet = packet.to_vec();
        packet[13] ^= 4;
        packet
    };
    // For a block that nobody has.
    let elsewhere = stranger.sealed(&send_only(0xEF_FF00, 3));
    let acknowledgement_elsewhere = stranger.sealed(&acknowledgement(0xEF_FF00, 3));
    let twice_acknowledged = [&sound_first[..], &sound_first].concat();
    let too_long = vec![0x04; 5000];
    let both = vec![first.clone(), second.clone()];
    let cases: [Case<'_>; 12] = [
        (&sound_first, &sound_second, &both, [0, 0, 0]),
        (&damaged(&sound_first), &sound_second, &both[1..], [1, 0, 0]),
        (&sound_first, &damaged(&sound_second), &both[..1], [1, 0, 0]),
        (&damaged(&sound_first), &damaged(&sound_second), &[], [2, 0, 0]),
        (&sound_first, &[], &both[..1], [0, 0, 0]),
        (&sound_first, &[0x04], &both[..1], [0, 1, 0]),
        (&sound_first, &sound_second[..15], &both[..1], [0, 1, 0]),
        (&sound_first, &too_long, &both[..1], [0, 1, 0]),
        (&sound_first, &sound_first, &[first.clone(), first.clone()], [0, 0, 0]),
        // What is behind it is one packet.
        (&sound_first, &twice_acknowledged, &both[..1], [1, 0, 0]),
        (&sound_first, &elsewhere, &both[..1], [0, 0, 1]),
        // A datagram goes where its first packet goes.
        (&acknowledgement_elsewhere, &sound_second, &[], [0, 0, 1]),
    ];
    for (case, (front, behind, expected, counts)) in cases.into_iter().enumerate() {
        let datagram = [front, behind].concat();
        for limit in [64, 2, 1] {
            let (got, dropped) = receiving.take(&datagram, 0, limit);
            assert_eq!((&got[..], dropped), (expected, counts), "case {case}, limit {limit}");
        }
    }
    // One that is cut off is one that is too short for its ICRC, or at all.
    for length in [16, 19] {
        assert_eq!(receiving.take(&sound_first[..length], 0, 64), (vec![], [1, 0, 0]));
    }
    assert_eq!(receiving.take(&sound_first[..15], 0, 64), (vec![], [0, 1, 0]));
}

#[test]
fn datagrams_that_the_kernel_has_merged_are_taken_apart_each_for_itself() {
    let Some(_alone) = alone_in_own_network() else { return };
    let receiving = Receiving::new();
    let (queue_pair, stranger) = (receiving.queue_pair, &receiving.stranger);
    let length = 12 + 16 + 4;
    let segment = ACKNOWLEDGEMENT_LEN + length;
    // Two in one, one as long as both, two, and a shorter one last.
    let (mut message, mut packets) = (Vec::new(), Vec::new());
    for seed in 0..13 {
        let alone = [1, 4, 7, 11].contains(&seed);
        if !alone {
            packets.push(acknowledgement(queue_pair, 100 + seed));
        }
        packets.push(rc(0x0A, queue_pair, seed, if alone { 16 + ACKNOWLEDGEMENT_LEN } else { 16 }));
        let from = packets.len() - if alone { 1 } else { 2 };
        packets[from..].iter().for_each(|packet| message.extend(stranger.sealed(packet)));
        assert_eq!(message.len(), (seed as usize + 1) * segment);
    }
    packets.push(acknowledgement(queue_pair, 200));
    message.extend(stranger.sealed(&acknowledgement(queue_pair, 200)));
    for limit in [64, 5, 2, 1] {
        assert_eq!(receiving.take(&message, segment, limit), (packets.clone(), [0, 0, 0]), "limit {limit}");
    }
    // The fifth datagram's second packet is damaged: nothing else is lost.
    message[4 * segment - 1] ^= 1;
    let (got, dropped) = receiving.take(&message, segment, 3);
    assert_eq!((got.len(), dropped), (packets.len() - 1, [1, 0, 0]));
}

/// Of packets as long as each other, what is not for the NIC does not get there because the one before it was.
#[test]
fn each_of_a_row_is_looked_at() {
    let Some(_alone) = alone_in_own_network() else { return };
    let receiving = Receiving::new();
    let (queue_pair, stranger) = (receiving.queue_pair, &receiving.stranger);
    let middle = |to, seed| rc(0x07, to, seed, Echo::LEN);
    let mut echo = middle(queue_pair, 3);
    echo[0] = Echo::OPCODE.0;
    Echo { answer: true, queue_pair, nonce: 1 }.emit(&mut echo[12..]);
    let burst = [
        middle(queue_pair, 1),
        middle(queue_pair, 2),
        // An answer to a question that was not asked: the fabric's own.
        echo,
        middle(queue_pair, 4),
        // To another queue pair of the process, and to one of none.
        middle(queue_pair | 9, 5),
        middle(0xEF_FF00, 6),
        middle(queue_pair, 7),
        rc(0x0A, queue_pair, 8, Echo::LEN),
        middle(queue_pair, 9),
    ];
    let mut message: Vec<u8> = burst.iter().flat_map(|packet| stranger.sealed(packet)).collect();
    let segment = message.len() / burst.len();
    let expected: Vec<Vec<u8>> =
        (0..burst.len()).filter(|place| ![2, 5].contains(place)).map(|place| burst[place].clone()).collect();
    for limit in [64, 4, 1] {
        assert_eq!(receiving.take(&message, segment, limit), (expected.clone(), [0, 0, 1]), "limit {limit}");
    }
    // One that begins like the one before it, but ends too soon.
    let cut_off = [&message[..], &message[..15]].concat();
    assert_eq!(receiving.take(&cut_off, segment, 64), (expected.clone(), [0, 1, 1]));
    // Any of them damaged.
    for place in 0..burst.len() {
        message[place * segment + 20] ^= 1;
        let left: Vec<Vec<u8>> = expected.iter().filter(|packet| **packet != burst[place]).cloned().collect();
        let counts = if place == 5 { [0, 0, 1] } else { [1, 0, 1] };
        assert_eq!(receiving.take(&message, segment, 64), (left, counts), "{place}");
        message[place * segment + 20] ^= 1;
    }
}

/// A process that gets what is for another one hands it on whole.
#[test]
fn what_is_handed_on_is_taken_apart_there() {
    let Some(_alone) = alone_in_own_network() else { return };
    let first = HostFabric::new().unwrap();
    let fabrics = [HostFabric::new().unwrap(), HostFabric::new().unwrap()];
    let queue_pairs = [0, 1].map(|index: usize| fabrics[index].lease_block().unwrap() << 8);
    // The kernel gives the last socket the place of the first: what was steered there is not any more.
    drop(first);
    let stranger = Stranger::new(&fabrics[0]);
    let mut sent = [Vec::new(), Vec::new()];
    for seed in 0..100 {
        let to = seed as usize % 2;
        let both = [acknowledgement(queue_pairs[to], seed), send_only(queue_pairs[to], seed)];
        stranger.send(&both.each_ref().map(|packet| stranger.sealed(packet)).concat(), 0);
        sent[to].extend(both);
        let got = receive(&[&fabrics[0], &fabrics[1]], 2, LONG);
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [2 * (1 - to), 2 * to]);
        for (to, got) in got.into_iter().enumerate() {
            let got = bytes_of(got);
            assert_eq!(got[..], sent[to][sent[to].len() - got.len()..]);
        }
    }
    let forwarded = fabrics.each_ref().map(|fabric| fabric.counters().forwarded_here.get());
    assert!(forwarded.iter().sum::<u64>() > 0, "the kernel has found all of them");
    assert_eq!(fabrics.each_ref().map(|fabric| fabric.counters().bad_icrc.get()), [0, 0]);
}

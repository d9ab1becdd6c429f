//! Messages that the kernel has merged from datagrams of equal length: each datagram is checked for itself.

mod common;

use common::{Got, alone_in_own_network, packet, receive};
use pagewire_fabric::{Fabric, HostFabric};
use pagewire_wire::packet::ICRC_LEN;
use pagewire_wire::{Echo, Icrc, packet as wire};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

/// A packet of RC, from its BTH to the end of its payload.
fn rc(opcode: u8, queue_pair: u32, seed: u32, length: usize) -> Vec<u8> {
    let mut bytes = packet(queue_pair, seed, length);
    bytes[0] = opcode;
    bytes
}

fn bytes_of(got: Vec<Got>) -> Vec<Vec<u8>> {
    got.into_iter().map(|got| got.bytes).collect()
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

#[test]
fn one_that_is_cut_off_or_too_long_is_counted() {
    let Some(_alone) = alone_in_own_network() else { return };
    let receiving = Receiving::new();
    let sound = receiving.stranger.sealed(&rc(0x11, receiving.queue_pair, 1, 4));
    let (longer, too_long) = ([&sound[..], &[0]].concat(), [&sound[..], &[0; 5000]].concat());
    for (datagram, dropped) in [
        (&sound[..15], [0, 1, 0]),
        (&sound[..16], [1, 0, 0]),
        (&sound[..19], [1, 0, 0]),
        (&longer[..], [1, 0, 0]),
        (&too_long, [0, 1, 0]),
    ] {
        assert_eq!(receiving.take(datagram, 0, 64), (vec![], dropped), "{} bytes", datagram.len());
    }
}

#[test]
fn merged_datagrams_are_handed_over_one_by_one() {
    let Some(_alone) = alone_in_own_network() else { return };
    let receiving = Receiving::new();
    let (queue_pair, stranger) = (receiving.queue_pair, &receiving.stranger);
    let mut packets: Vec<Vec<u8>> = (0..13).map(|seed| rc(0x0A, queue_pair, seed, 16)).collect();
    packets.push(rc(0x11, queue_pair, 200, 4));
    let mut message: Vec<u8> = packets.iter().flat_map(|packet| stranger.sealed(packet)).collect();
    let segment = packets[0].len() + ICRC_LEN;
    for limit in [64, 5, 2, 1] {
        assert_eq!(receiving.take(&message, segment, limit), (packets.clone(), [0, 0, 0]), "limit {limit}");
    }
    // The fourth is damaged: nothing else is lost.
    message[4 * segment - 1] ^= 1;
    packets.remove(3);
    assert_eq!(receiving.take(&message, segment, 3), (packets, [1, 0, 0]));
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
fn forwarded_datagram_is_split_at_owner() {
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
        let both = [rc(0x0A, queue_pairs[to], seed, 16), rc(0x11, queue_pairs[to], seed, 4)];
        let message = both.each_ref().map(|packet| stranger.sealed(packet)).concat();
        stranger.send(&message, both[0].len() + ICRC_LEN);
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

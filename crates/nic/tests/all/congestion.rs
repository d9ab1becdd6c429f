//! What the network says to a queue pair.

use crate::support::*;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::*;
use pagewire_wire::{Icrc, cnp, packet};
use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

/// A congestion notification (annex A17) is for the RC queue pair that it names; others drop it.
#[test]
fn a_congestion_notification_reaches_its_queue_pair() {
    if !own_network::is_here() {
        return;
    }
    for (kind, reaches) in [(QueuePairType::Rc, true), (QueuePairType::Uc, false)] {
        let mut pair = Pair::new(PathChoice::Udp, kind, all_rights());
        let number = pair.qb.number();
        let report = |pair: &Pair| {
            pagewire_nic::ConnectionReport::of_all(&pair.b.nic)
                .into_iter()
                .find(|report| report.number == number)
                .expect("a report")
        };
        // Greetings first.
        for _ in 0..1000 {
            pair.turn();
        }
        let before = report(&pair);
        let (_, IpAddr::V4(address)) = before.peer.expect("a peer") else { panic!("an IPv4 device") };
        let socket = UdpSocket::bind((address, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut bytes = [0; cnp::LEN];
        cnp::Cnp { destination: number, partition: 0xffff }.emit(&mut bytes);
        packet::seal(&Icrc::ipv4(address, address, port, packet::PORT, true), 0, &mut bytes);
        socket.send_to(&bytes, (address, packet::PORT)).unwrap();
        let start = Instant::now();
        let mut after = report(&pair);
        while (after.dropped, after.udp_packets_received) == (before.dropped, before.udp_packets_received)
            && start.elapsed() < PATIENCE
        {
            pair.turn();
            after = report(&pair);
        }
        assert_eq!(after.udp_packets_received - before.udp_packets_received, u64::from(reaches), "{kind:?}");
        assert_eq!(after.dropped - before.dropped, u64::from(!reaches), "{kind:?}");
    }
}

//! The fault injector over the real fabric.

mod common;

use common::{packet, receive, send};
use pagewire_fabric::{Fabric, FaultPlan, HostFabric};
use std::collections::HashMap;
use std::time::Duration;

/// Packets of one run.
const PACKETS: u32 = 2000;

fn run(plan: &str) -> (Vec<Vec<u8>>, HostFabric) {
    let fabric = HostFabric::with_faults(FaultPlan::parse(plan).unwrap()).unwrap();
    let queue_pair = fabric.lease_block().unwrap() << 8;
    let route = common::route("127.0.0.1", "127.0.0.1", &fabric);
    let mut got = Vec::new();
    let mut events = Vec::new();
    for first in (0..PACKETS).step_by(20) {
        let packets: Vec<Vec<u8>> = (first..first + 20).map(|seed| packet(queue_pair, seed, 64)).collect();
        send(&fabric, &route, &packets);
        fabric.events(&mut events);
        got.extend(receive(&[&fabric], 20, Duration::from_millis(2)).remove(0));
    }
    for _ in 0..100 {
        fabric.wait(Some(fabric.now() + 1_000_000));
        got.extend(receive(&[&fabric], usize::MAX, Duration::from_millis(1)).remove(0));
    }
    (got.into_iter().map(|got| got.bytes).collect(), fabric)
}

fn seed_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[8..12].try_into().unwrap())
}

#[test]
fn faults_are_made_and_counted() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let (got, fabric) = run("drop=0.05,duplicate=0.05,reorder=0.05,corrupt=0.05,seed=7");
    let counters = fabric.fault_counters();
    let (dropped, doubled) = (counters.dropped.get(), counters.duplicated.get());
    let (reordered, corrupted) = (counters.reordered.get(), counters.corrupted.get());
    for (name, count) in
        [("drop", dropped), ("duplicate", doubled), ("reorder", reordered), ("corrupt", corrupted)]
    {
        assert!((40..200).contains(&count), "{name}: {count}");
    }
    // A damaged packet is dropped by the receiver, for its ICRC, or because another queue pair seems to be meant.
    // Only a byte that switches may change is not covered.
    let (got, marked): (Vec<_>, Vec<_>) = got.into_iter().partition(|bytes| bytes[4] == 0);
    assert_eq!(got.len() as u64, u64::from(PACKETS) - dropped + doubled - corrupted);
    assert!((marked.len() as u64) < corrupted / 4);
    let host = fabric.counters();
    assert!(host.bad_icrc.get() > corrupted / 2);
    let queue_pair = u32::from_be_bytes(got[0][4..8].try_into().unwrap());
    assert!(got.iter().all(|bytes| *bytes == packet(queue_pair, seed_of(bytes), 64)));
    let overtaken = got.windows(2).filter(|pair| seed_of(&pair[1]) < seed_of(&pair[0])).count();
    assert!(overtaken as u64 > reordered / 2, "{overtaken} of {reordered}");
}

#[test]
fn one_seed_one_fate() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let fates = |seed: &str| {
        let (got, _) = run(&format!("drop=0.2,seed={seed}"));
        let mut fates: HashMap<u32, usize> = HashMap::new();
        got.iter().for_each(|bytes| *fates.entry(seed_of(bytes)).or_default() += 1);
        fates
    };
    assert!(fates("1") == fates("1"));
    assert!(fates("1") != fates("2"));
}

#[test]
fn packets_are_delayed() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let fabric = HostFabric::with_faults(FaultPlan::parse("delay=50ms").unwrap()).unwrap();
    let queue_pair = fabric.lease_block().unwrap() << 8;
    let route = common::route("127.0.0.1", "127.0.0.1", &fabric);
    let start = fabric.now();
    send(&fabric, &route, &[packet(queue_pair, 1, 8)]);
    let mut got = 0;
    while got == 0 {
        fabric.wait(None);
        got = fabric.receive(8, &mut |_| ());
    }
    assert!(fabric.now() - start >= 50_000_000);
    assert_eq!(fabric.fault_counters().delayed.get(), 1);
}

/// No packet leaves before its time; how long after it is printed, as no test depends on speed.
#[test]
fn short_delays_are_not_cut() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    for microseconds in [5, 10, 20, 50, 100] {
        let plan = FaultPlan::delayed(format!("{microseconds}us").parse().unwrap());
        let fabric = HostFabric::with_faults(plan).unwrap();
        let queue_pair = fabric.lease_block().unwrap() << 8;
        let route = common::route("127.0.0.1", "127.0.0.1", &fabric);
        for seed in 0..100 {
            let start = fabric.now();
            send(&fabric, &route, &[packet(queue_pair, seed, 8)]);
            while fabric.receive(8, &mut |_| ()) == 0 {
                fabric.wait(None);
            }
            assert!(fabric.now() - start >= microseconds * 1_000);
        }
        let counters = fabric.fault_counters();
        assert_eq!((counters.delayed.get(), counters.released_early.get()), (100, 0));
        println!("{microseconds} us: {} ns late on average", counters.late_nanoseconds.get() / 100);
    }
}

/// A thread that sleeps learns of a packet that another one has sent, and that is held. Else it would look after a second, whenever that is.
#[test]
fn held_packet_wakes_who_sleeps() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let fabric = HostFabric::with_faults(FaultPlan::delayed("5ms".parse().unwrap())).unwrap();
    let queue_pair = fabric.lease_block().unwrap() << 8;
    let route = common::route("127.0.0.1", "127.0.0.1", &fabric);
    let time_to_arrive = |seed| {
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while fabric.receive(8, &mut |_| ()) == 0 {
                    fabric.wait(Some(fabric.now() + 3_000_000_000));
                }
                fabric.now()
            });
            // It sleeps by then.
            std::thread::sleep(Duration::from_millis(200));
            let sent = fabric.now();
            send(&fabric, &route, &[packet(queue_pair, seed, 8)]);
            sleeper.join().unwrap() - sent
        })
    };
    // The quickest of several: a machine that has no time for one of them proves nothing.
    let quickest = (1..=4).map(time_to_arrive).min().unwrap();
    assert!((5_000_000..400_000_000).contains(&quickest), "{quickest} ns");
}

#[test]
fn without_a_plan_nothing_happens() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let (got, fabric) = run("");
    assert_eq!(got.len() as u32, PACKETS);
    assert!(got.iter().enumerate().all(|(seed, bytes)| seed_of(bytes) == seed as u32));
    assert_eq!(fabric.fault_counters().dropped.get(), 0);
}

#[test]
fn of_so_many_resumes_one_is_lost_and_nothing_else() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let plan = FaultPlan::parse("lose_resume=2").unwrap();
    let fabric = HostFabric::with_faults(plan).unwrap();
    let queue_pair = fabric.lease_block().unwrap() << 8;
    let route = common::route("127.0.0.1", "127.0.0.1", &fabric);
    let packets: Vec<Vec<u8>> = (0..20)
        .map(|seed| {
            let mut packet = packet(queue_pair, seed, 64);
            if seed % 4 == 0 {
                packet[0] = pagewire_wire::Opcode::RESUME.0;
            }
            packet
        })
        .collect();
    send(&fabric, &route, &packets);
    let got = receive(&[&fabric], 20, Duration::from_millis(100)).remove(0);
    let mut seeds: Vec<u32> = got.iter().map(|got| seed_of(&got.bytes)).collect();
    seeds.sort_unstable();
    // The second and the fourth of 0, 4, 8, 12 and 16.
    assert_eq!(seeds, (0..20).filter(|seed| ![4, 12].contains(seed)).collect::<Vec<_>>());
    assert_eq!(fabric.fault_counters().dropped.get(), 2);
}

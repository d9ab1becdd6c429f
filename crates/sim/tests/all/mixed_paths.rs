//! Two processes of one host that want different paths.

use crate::support::{Side, connect, side};
use pagewire_fabric::Fabric;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_nic::{PathChoice, Rights, SendOperation, Status};
use pagewire_sim::{LinkFaults, MEMORY, World};

/// Several packets of the network, one of a ring.
const LENGTH: u32 = 30_000;
const BOUND: u64 = 1_000_000_000;

/// Whoever wants the network only gets the peer to use it, too: the packets of the two paths are cut differently.
#[test]
fn both_ends_of_a_connection_take_the_same_path() {
    for (near, far) in [(PathChoice::Auto, PathChoice::Udp), (PathChoice::Udp, PathChoice::Auto)] {
        let world = World::new(7, LinkFaults::NONE);
        let host = world.host();
        let (one, two) = (side(&world, host, near, 1), side(&world, host, far, 1));
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        connect(&world, (one.process, &one.queue_pairs[0]), (two.process, &two.queue_pairs[0]), rights);
        let target = |key| SendOperation::Read { address: MEMORY + 100_000, key };
        one.post(target(two.region.rkey()), LENGTH);
        two.post(target(one.region.rkey()), LENGTH);
        let mut statuses = Vec::new();
        while statuses.len() < 2 && world.now() < BOUND {
            let due = [&one, &two].into_iter().filter_map(|side| side.nic.progress()).min();
            for side in [&one, &two] {
                side.cq.poll(8, &mut |completion| statuses.push(completion.status));
            }
            world.advance(Some(due.unwrap_or(BOUND).clamp(world.now() + 1_000, BOUND)));
        }
        assert_eq!(statuses, [Status::Success; 2], "{near:?} and {far:?}");
    }
}

/// A process that wants the local path only does not reach one that wants none.
#[test]
fn who_wants_no_local_path_has_none() {
    let world = World::new(7, LinkFaults::NONE);
    let host = world.host();
    let (one, two) = (side(&world, host, PathChoice::Local, 1), side(&world, host, PathChoice::Udp, 1));
    connect(
        &world,
        (one.process, &one.queue_pairs[0]),
        (two.process, &two.queue_pairs[0]),
        Rights::REMOTE_WRITE,
    );
    one.post(SendOperation::Write { address: MEMORY, key: two.region.rkey() }, LENGTH);
    let mut statuses = Vec::new();
    while statuses.is_empty() && world.now() < BOUND {
        let due = [&one, &two].into_iter().filter_map(|side| side.nic.progress()).min();
        one.cq.poll(8, &mut |completion| statuses.push(completion.status));
        world.advance(Some(due.unwrap_or(BOUND).clamp(world.now() + 1_000, BOUND)));
    }
    assert_eq!(statuses, [Status::RetryExceeded]);
}

/// Where one end lives at a limit of memory with swap nobody touches the other's memory; what is sent arrives all the same, in as many records
/// as it takes, by either end and whichever is at the limit.
#[test]
fn at_a_limit_of_memory_all_bytes_go_through_the_rings() {
    for limited in [None, Some(0u8), Some(1)] {
        let world = World::new(7, LinkFaults::NONE);
        let host = world.host();
        let sides = [(); 2].map(|()| side(&world, host, PathChoice::Local, 1));
        if let Some(which) = limited {
            world.limit_memory(sides[usize::from(which)].process);
        }
        let [one, two] = &sides;
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        connect(&world, (one.process, &one.queue_pairs[0]), (two.process, &two.queue_pairs[0]), rights);
        let bytes = |from: u8| -> Vec<u8> { (0..LENGTH).map(|at| (at / 7) as u8 ^ from).collect() };
        let (sent, kept) = (bytes(1), bytes(2));
        world.poke(one.process, MEMORY, &sent);
        world.poke(two.process, MEMORY + 200_000, &kept);
        let key = two.region.rkey();
        one.post(SendOperation::Write { address: MEMORY + 100_000, key }, LENGTH);
        let mut statuses = Vec::new();
        let mut wait = |count: usize| {
            while statuses.len() < count && world.now() < BOUND {
                let due = sides.iter().filter_map(|side| side.nic.progress()).min();
                one.cq.poll(8, &mut |completion| statuses.push(completion.status));
                world.advance(Some(due.unwrap_or(BOUND).clamp(world.now() + 1_000, BOUND)));
            }
            statuses.clone()
        };
        assert_eq!(wait(1), [Status::Success]);
        one.post(SendOperation::Read { address: MEMORY + 200_000, key }, LENGTH);
        assert_eq!(wait(2), [Status::Success; 2]);
        let holds = |side: &Side, address, expected: &[u8]| {
            let mut found = vec![0; LENGTH as usize];
            let there = [Segment { address, length: u64::from(LENGTH) }];
            side.nic.fabric().memory().read(&there, &mut found).unwrap();
            found == expected
        };
        assert!(holds(two, MEMORY + 100_000, &sent) && holds(one, MEMORY, &kept), "{limited:?}");
        let direct = pagewire_nic::ConnectionReport::of_all(&one.nic)[0].initiator_copies;
        assert_eq!(
            direct > 0,
            limited.is_none(),
            "{limited:?}: {direct} transfers were made by the requester"
        );
    }
}

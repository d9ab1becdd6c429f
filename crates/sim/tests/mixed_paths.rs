//! Two processes of one host that want different paths.

mod support;

use pagewire_nic::{PathChoice, Rights, SendOperation, Status};
use pagewire_sim::{Faults, MEMORY, World};
use support::{connect, side};

/// Several packets of the network, one of a ring.
const LENGTH: u32 = 30_000;
const BOUND: u64 = 1_000_000_000;

/// Whoever wants the network only gets the peer to use it, too: the packets of the two paths are cut differently.
#[test]
fn both_ends_of_a_connection_take_the_same_path() {
    for (near, far) in [(PathChoice::Auto, PathChoice::Udp), (PathChoice::Udp, PathChoice::Auto)] {
        let world = World::new(7, Faults::NONE);
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
    let world = World::new(7, Faults::NONE);
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

//! As long as it is not known whether the peer is a Pagewire, what is lost uses up no retries.

use crate::support::{connect_with, side};
use pagewire_nic::{PathChoice, ReceiveRequest, Rights, ScatterGather, SendOperation, Status};
use pagewire_sim::{LinkFaults, MEMORY, World};

/// Nanoseconds for which nothing gets through: less than HELLO is repeated after.
const DEAF: u64 = 10_000;

#[test]
fn what_is_lost_before_two_pagewires_know_each_other_uses_up_no_retries() {
    let world = World::new(4, LinkFaults { loss: 1.0, ..LinkFaults::NONE });
    let sides = [0, 1].map(|_| side(&world, world.host(), PathChoice::Udp, 1));
    let [one, two] = &sides;
    let ends = [one, two].map(|side| (side.process, &side.queue_pairs[0]));
    connect_with(&world, ends[0], ends[1], Rights::empty(), (12, 0));
    for wr_id in 2..4 {
        let segments = [ScatterGather { address: MEMORY, length: 64, key: two.region.lkey() }];
        two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id, segments: &segments }).unwrap();
    }
    one.post(SendOperation::Send, 8);
    let heard = world.now() + DEAF;
    while world.now() < heard {
        world.advance(Some(heard));
        one.nic.progress();
    }
    world.set_faults(LinkFaults::NONE);
    // The peer misses the first one, and says so.
    one.post(SendOperation::Send, 8);
    let mut done = Vec::new();
    let end = world.now() + 1_000_000_000;
    while done.len() < 2 && world.now() < end {
        let next = one.nic.progress().into_iter().chain(two.nic.progress()).min();
        one.cq.poll(8, &mut |completion| done.push(completion.status));
        world.advance(Some(next.unwrap_or(u64::MAX).clamp(world.now() + 1_000, end)));
    }
    assert_eq!(done, [Status::Success; 2]);
}

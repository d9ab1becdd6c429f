//! Unreliable messages wait a moment for a receive, because a program that is about to post one may just not be running.

use crate::support::{Side, connect, side_with};
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::{PathChoice, ReceiveRequest, Rights, ScatterGather, SendOperation, Status, Unwatched};
use pagewire_sim::{LinkFaults, MEMORY, World};
use std::sync::Arc;

/// Nanoseconds for which such a message is kept at most (docs/internals/udp-path.md, "Receives that are not posted").
const PATIENCE: u64 = 50_000_000;
/// Nanoseconds for which it is kept at most while the program has completions to take.
const PATIENCE_BEHIND: u64 = 1_000_000_000;

fn pair(path: PathChoice) -> (World, Side, Side) {
    let world = World::new(9, LinkFaults::NONE);
    let host = world.host();
    let other = if path == PathChoice::Udp { world.host() } else { host };
    let side = |host| side_with(&world, host, path, &[QueuePairType::Uc], Arc::new(Unwatched));
    let (one, two) = (side(host), side(other));
    let ends = [&one, &two].map(|side| (side.process, &side.queue_pairs[0]));
    connect(&world, ends[0], ends[1], Rights::empty());
    (world, one, two)
}

/// Lets both NICs work for so many nanoseconds, and the receiving program do `each` again and again.
fn work_while(world: &World, one: &Side, two: &Side, time: u64, mut each: impl FnMut()) {
    let end = world.now() + time;
    while world.now() < end {
        let next = one.nic.progress().into_iter().chain(two.nic.progress()).min();
        each();
        world.advance(Some(next.unwrap_or(u64::MAX).clamp(world.now() + 1_000, end)));
    }
}

/// Lets both work for so many nanoseconds; gives the lengths of the messages that were received.
fn work(world: &World, one: &Side, two: &Side, time: u64) -> Vec<u32> {
    let mut lengths = Vec::new();
    work_while(world, one, two, time, || {
        two.cq.poll(8, &mut |completion| {
            assert_eq!(completion.status, Status::Success);
            lengths.push(completion.byte_length);
        });
    });
    lengths
}

fn receive(side: &Side) {
    let segments = [ScatterGather { address: MEMORY, length: 64, key: side.region.lkey() }];
    side.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 2, segments: &segments }).unwrap();
}

#[test]
fn a_message_waits_for_a_receive_but_not_for_ever() {
    for path in [PathChoice::Local, PathChoice::Udp] {
        let (world, one, two) = pair(path);
        assert_eq!(work(&world, &one, &two, 10_000_000), []);
        one.post(SendOperation::Send, 8);
        assert_eq!(work(&world, &one, &two, PATIENCE / 2), [], "path {path:?}");
        receive(&two);
        assert_eq!(work(&world, &one, &two, PATIENCE / 2), [8], "path {path:?}");
        one.post(SendOperation::Send, 16);
        assert_eq!(work(&world, &one, &two, 2 * PATIENCE), [], "path {path:?}");
        receive(&two);
        one.post(SendOperation::Send, 24);
        assert_eq!(work(&world, &one, &two, PATIENCE), [24], "path {path:?}");
        one.post(SendOperation::Send, 32);
        assert_eq!(work(&world, &one, &two, 4 * PATIENCE), [], "path {path:?}: dropped");
        one.post(SendOperation::Send, 40);
        assert_eq!(
            work(&world, &one, &two, PATIENCE / 2),
            [],
            "path {path:?}: waits as long as the one before"
        );
        receive(&two);
        assert_eq!(work(&world, &one, &two, PATIENCE), [40], "path {path:?}");
    }
}

#[test]
fn a_program_that_has_not_come_to_what_was_received_before_is_waited_for_longer_but_not_for_ever() {
    for path in [PathChoice::Local, PathChoice::Udp] {
        let (world, one, two) = pair(path);
        assert_eq!(work(&world, &one, &two, 10_000_000), []);
        let send_two_for_one_receive = |lengths: [u32; 2]| {
            receive(&two);
            for length in lengths {
                one.post(SendOperation::Send, length);
            }
        };
        send_two_for_one_receive([8, 16]);
        work_while(&world, &one, &two, PATIENCE_BEHIND / 2, || {});
        assert_eq!(work(&world, &one, &two, PATIENCE / 2), [8], "path {path:?}: one receive");
        receive(&two);
        assert_eq!(work(&world, &one, &two, PATIENCE / 2), [16], "path {path:?}: kept");
        send_two_for_one_receive([24, 32]);
        assert_eq!(work(&world, &one, &two, 2 * PATIENCE), [24], "path {path:?}");
        receive(&two);
        assert_eq!(
            work(&world, &one, &two, PATIENCE),
            [],
            "path {path:?}: dropped, as the program took what there was"
        );
        one.post(SendOperation::Send, 40);
        assert_eq!(work(&world, &one, &two, PATIENCE), [40], "path {path:?}");
        send_two_for_one_receive([48, 56]);
        work_while(&world, &one, &two, 2 * PATIENCE_BEHIND, || {});
        assert_eq!(work(&world, &one, &two, PATIENCE), [48], "path {path:?}");
        receive(&two);
        assert_eq!(work(&world, &one, &two, PATIENCE), [], "path {path:?}: dropped, after so long");
    }
}

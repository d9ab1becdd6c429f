//! On the local path, a queue pair that waits for a page says so, and its silence is not taken for the end of its process.

mod support;

use pagewire_nic::{PathChoice, ReceiveRequest, Rights, ScatterGather, SendOperation, Status};
use pagewire_sim::{Faults, MEMORY, World};
use support::{connect_with, side};

/// 16 us: shorter than most pages take to come in.
const TIMEOUT: u8 = 2;

#[test]
fn who_waits_for_a_page_is_not_silent() {
    for seed in 1..=20 {
        let world = World::new(seed, Faults::NONE);
        let host = world.host();
        let sides = [0, 1].map(|_| side(&world, host, PathChoice::Local, 1));
        let [one, two] = &sides;
        let ends = [one, two].map(|side| (side.process, &side.queue_pairs[0]));
        connect_with(&world, ends[0], ends[1], Rights::empty(), (TIMEOUT, 0));
        let segments = [ScatterGather { address: MEMORY, length: 4096, key: two.region.lkey() }];
        two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 2, segments: &segments }).unwrap();
        let mut status = None;
        let work = |status: &mut Option<Status>| {
            // Neither is late: only the page is.
            for side in [one, two, one] {
                side.nic.progress();
            }
            one.cq.poll(1, &mut |completion| *status = Some(completion.status));
            world.advance(Some(world.now() + 1_000));
        };
        while world.now() < 10_000_000 {
            work(&mut status);
        }
        world.evict(two.process, MEMORY, 4096);
        // Long enough not to be sent at its post, whose timer begins late.
        one.post(SendOperation::Send, 1000);
        let end = world.now() + 100_000_000;
        while status.is_none() && world.now() < end {
            work(&mut status);
        }
        assert_eq!(status, Some(Status::Success), "seed {seed}");
    }
}

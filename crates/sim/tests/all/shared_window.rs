//! Many queue pairs of one process, and a receiver that holds little more than one connection's window.

use crate::support::{Side, side};
use pagewire_nic::{Data, PathChoice, QueuePair, Rights, ScatterGather, SendOperation, SendRequest, Status};
use pagewire_sim::{LinkFaults, MEMORY, SimFabric, World};
use std::sync::Arc;

const LENGTH: u32 = 4096;
/// Requests of each queue pair.
const REQUESTS: u64 = 5;
/// Packets of a network that holds one window of [`MAX_IN_FLIGHT`](pagewire_transport::limits::MAX_IN_FLIGHT) and its
/// acknowledgements.
const QUEUE: usize = 100;
/// Virtual time in which all must be done.
const BOUND: u64 = 10_000_000_000;

fn post(one: &Side, two: &Side, queue_pair: &Arc<QueuePair<SimFabric>>, reads: bool) {
    let piece = [ScatterGather { address: MEMORY, length: LENGTH, key: one.region.lkey() }];
    let (address, key) = (MEMORY + u64::from(LENGTH), two.region.rkey());
    let operation = match reads {
        true => SendOperation::Read { address, key },
        false => SendOperation::Write { address, key },
    };
    for wr_id in 0..REQUESTS {
        let request = SendRequest {
            wr_id,
            data: Data::Segments(&piece),
            operation,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        };
        queue_pair.post_send(&request).unwrap();
    }
    queue_pair.doorbell();
}

/// Lets time pass until so many requests of `one` have succeeded, or the bound; gives how many have, and how many failed.
fn run(world: &World, one: &Side, two: &Side, wanted: usize) -> (usize, usize) {
    let (mut succeeded, mut failed, until) = (0, 0, world.now() + BOUND);
    while succeeded < wanted && world.now() < until {
        let due = [one, two].into_iter().filter_map(|side| side.nic.progress()).min();
        one.cq.poll(8192, &mut |completion| match completion.status {
            Status::Success => succeeded += 1,
            _ => failed += 1,
        });
        world.advance(Some(due.unwrap_or(until).clamp(world.now() + 1_000, until)));
    }
    (succeeded, failed)
}

fn connected(queue_pairs: usize) -> (World, Side, Side) {
    let world = World::new(5, LinkFaults::NONE);
    let [one, two] = [0, 1].map(|_| side(&world, world.host(), PathChoice::Udp, queue_pairs));
    let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
    for (near, far) in one.queue_pairs.iter().zip(&two.queue_pairs) {
        crate::support::connect(&world, (one.process, near), (two.process, far), rights);
    }
    // Greetings.
    for _ in 0..2000 {
        one.nic.progress();
        two.nic.progress();
        world.advance(Some(world.now() + 50_000));
    }
    (world, one, two)
}

#[test]
fn many_queue_pairs_do_not_overrun_the_receiver() {
    for reads in [false, true] {
        let (world, one, two) = connected(1000);
        world.set_faults(LinkFaults { queue: QUEUE, ..LinkFaults::NONE });
        for queue_pair in &one.queue_pairs {
            post(&one, &two, queue_pair, reads);
        }
        let wanted = one.queue_pairs.len() * REQUESTS as usize;
        assert_eq!(run(&world, &one, &two, wanted), (wanted, 0));
        assert_eq!(world.network_counters().overflowed, 0, "reads: {reads}");
    }
}

//! A thread that gets no processor for long, with a queue pair or a ring in its hands, while its process goes on: nobody is given
//! up for that inside a host.
//!
//! The process is halted just before each of its stores in turn; its other threads, and its peer, work on meanwhile.

use crate::support::{Side, connect_with, side};
use pagewire_nic::{PathChoice, ReceiveRequest, Rights, ScatterGather, SendOperation, Status};
use pagewire_sim::{LinkFaults, MEMORY, World};
use parking_lot::Mutex;
use std::sync::Arc;

/// 16 us, and 7 retries: over after 131 us.
const PATIENCE: (u8, u8) = (2, 7);
/// How long the thread gets no processor, in nanoseconds.
const STARVED: u64 = 5_000_000;

/// What is read, written and added to.
const FAR: u64 = MEMORY + 65_536;

/// What a request does, given the key of the memory that it may name, and with how many bytes.
type Request = fn(u32) -> (SendOperation, u32);

/// A step of both: `first` drives the first of them.
fn step(world: &World, first: impl FnOnce(), two: &Side) {
    first();
    two.nic.progress();
    world.advance(Some(world.now() + 1_000));
}

/// Has the second process, or the first once it has posted, stand still before a store while requests are under way.
/// False: there is no such store.
fn attempt((what, requests): (&str, &[Request]), halt_first: bool, store: u64) -> bool {
    let world = Arc::new(World::new(9, LinkFaults::NONE));
    let host = world.host();
    let [one, two] = [0, 1].map(|_| Arc::new(side(&world, host, PathChoice::Local, 1)));
    let ends = [&one, &two].map(|side| (side.process, &side.queue_pairs[0]));
    let access = Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC;
    connect_with(&world, ends[0], ends[1], access, PATIENCE);
    let segments = [ScatterGather { address: MEMORY, length: 32_768, key: two.region.lkey() }];
    for _ in 0..4 {
        two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 2, segments: &segments }).unwrap();
    }
    let (driver, peer) = (one.clone(), two.clone());
    for _ in 0..1_000 {
        step(&world, || _ = one.nic.progress(), &two);
    }
    let statuses = Arc::new(Mutex::new(Vec::new()));
    let poll = |side: &Side, statuses: &Mutex<Vec<Status>>| {
        side.cq.poll(8, &mut |completion| statuses.lock().push(completion.status));
    };
    let halt = |side: &Side| {
        let (world, driver, peer) = (world.clone(), driver.clone(), peer.clone());
        let halted = world.clone().get(side.process);
        halted.interrupt_at(store, move || {
            let end = world.now() + STARVED;
            while world.now() < end {
                step(&world, || _ = driver.nic.progress(), &peer);
            }
        });
        halted
    };
    let mut halted = None;
    if !halt_first {
        halted = Some(halt(&two));
    }
    for request in requests {
        let (operation, length) = request(two.region.rkey());
        one.post(operation, length);
    }
    if halt_first {
        halted = Some(halt(&one));
    }
    let end = world.now() + 10 * STARVED;
    while statuses.lock().len() < requests.len() && world.now() < end {
        step(&world, || poll(&one, &statuses), &two);
    }
    let reached = !halted.is_some_and(|halted| halted.cancel_interruption());
    assert_eq!(
        *statuses.lock(),
        vec![Status::Success; requests.len()],
        "requests {what}, first halted: {halt_first}, store {store}"
    );
    reached
}

#[test]
fn a_starved_thread_is_waited_for() {
    let send: Request = |_| (SendOperation::Send, 8);
    let long: Request = |_| (SendOperation::Send, 20_000);
    let write: Request = |key| (SendOperation::WriteImmediate { address: FAR, key, immediate: 7 }, 8);
    let read: Request = |key| (SendOperation::Read { address: FAR, key }, 8);
    let atomic: Request = |key| (SendOperation::FetchAdd { address: FAR, key, add: 1 }, 8);
    for requests in [
        ("send", &[send][..]),
        ("long", &[long]),
        ("write", &[write]),
        ("atomic", &[atomic]),
        // Behind another request nothing is executed by the requester itself.
        ("atomic, read, send", &[atomic, read, send]),
        ("send, atomic, write", &[send, atomic, write]),
    ] {
        for halt_first in [false, true] {
            let mut store = 1;
            while attempt(requests, halt_first, store) {
                store += 1;
                assert!(store < 10_000);
            }
            assert!(store > 1, "{}: nothing was stored", requests.0);
        }
    }
}

//! The end of a region or queue pair, at every instruction of an access by a peer.
//!
//! One process is halted just before each of its stores in turn; meanwhile the other ends the region or the queue
//! pair. If that call succeeds, nothing may land any more, whatever the halted process does when it goes on, and nothing be
//! read.

use crate::support::{SPAN, Side, connect, side};
use pagewire_fabric::Fabric;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_nic::attributes::{QpState, QueuePairChange};
use pagewire_nic::{
    Error, MemoryRegion, PathChoice, QueuePair, ReceiveRequest, Rights, ScatterGather, SendOperation, Status,
};
use pagewire_sim::{LinkFaults, MEMORY, SimFabric, World};
use parking_lot::Mutex;
use std::sync::Arc;

const LENGTH: u64 = 20_000;

fn pair(path: PathChoice) -> (World, Side, Side) {
    let world = World::new(3, LinkFaults::NONE);
    let host = world.host();
    let other = if path == PathChoice::Udp { world.host() } else { host };
    let (one, two) = (side(&world, host, path, 1), side(&world, other, path, 1));
    connect(
        &world,
        (one.process, &one.queue_pairs[0]),
        (two.process, &two.queue_pairs[0]),
        Rights::REMOTE_WRITE | Rights::REMOTE_READ,
    );
    for _ in 0..20 {
        one.nic.progress();
        two.nic.progress();
        world.advance(Some(world.now() + 50_000));
    }
    (world, one, two)
}

fn piece(side: &Side) -> ScatterGather {
    ScatterGather { address: MEMORY, length: LENGTH as u32, key: side.region.lkey() }
}

/// Lets both work until the first has a completion, or long enough; `taken` gets what the second completes.
fn drive(world: &World, one: &Side, two: &Side, taken: &mut Vec<Status>) -> Option<Status> {
    let mut status = None;
    for _ in 0..2_000 {
        one.cq.poll(8, &mut |completion| status = Some(completion.status));
        two.cq.poll(8, &mut |completion| taken.push(completion.status));
        if status.is_some() {
            break;
        }
        let next = one.nic.progress().into_iter().chain(two.nic.progress()).min();
        world.advance(next);
    }
    status
}

fn memory(side: &Side, address: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    side.nic.fabric().memory().read(&[Segment { address, length }], &mut bytes).unwrap();
    bytes
}

/// How the queue pair or region comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Deregister,
    Reset,
    Error,
    Destroy,
    /// Its rights are taken away.
    Withdraw,
}

fn end(
    ending: Ending,
    region: &MemoryRegion<SimFabric>,
    queue_pair: &Arc<QueuePair<SimFabric>>,
) -> Result<(), Error> {
    let to = |state| queue_pair.modify(&QueuePairChange { state: Some(state), ..QueuePairChange::default() });
    match ending {
        Ending::Deregister => region.deregister(),
        Ending::Reset => to(QpState::Reset),
        Ending::Error => to(QpState::Error),
        Ending::Destroy => queue_pair.destroy(),
        Ending::Withdraw => {
            let access = Some(Rights::LOCAL_WRITE);
            queue_pair.modify(&QueuePairChange { access, ..QueuePairChange::default() })
        }
    }
}

/// What the interruption saw.
#[derive(Default)]
struct Seen {
    outcome: Option<Result<(), Error>>,
    /// Of a second try, if the first was refused.
    again: Option<Result<(), Error>>,
    then: Vec<u8>,
}

/// Has `halted` stand still before its store number `store` from now, counted while it sends a WRITE (or takes
/// it), and the target side end things meanwhile. False: the store was not reached.
fn attempt(path: PathChoice, ending: Ending, halt_target: bool, store: u64) -> bool {
    let (world, one, two) = pair(path);
    one.nic
        .fabric()
        .memory()
        .write(&vec![0xAB; LENGTH as usize], &[Segment { address: MEMORY, length: LENGTH }], false)
        .unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let halted = world.get(if halt_target { two.process } else { one.process });
    let (region, queue_pair, note, nic) =
        (two.region.clone(), two.queue_pairs[0].clone(), seen.clone(), two.nic.clone());
    halted.interrupt_at(store, move || {
        let outcome = end(ending, &region, &queue_pair);
        let again = outcome.is_err().then(|| end(ending, &region, &queue_pair));
        let mut then = vec![0; SPAN as usize];
        nic.fabric().memory().read(&[Segment { address: MEMORY, length: SPAN }], &mut then).unwrap();
        *note.lock() = Seen { outcome: Some(outcome), again, then };
    });
    one.post(SendOperation::Write { address: MEMORY + 4096, key: two.region.rkey() }, LENGTH as u32);
    let status = drive(&world, &one, &two, &mut Vec::new());
    let reached = !halted.cancel_interruption();
    let seen = seen.lock();
    let what = format!("path {path:?}, {ending:?}, target halted: {halt_target}, store {store}");
    let landed = memory(&two, MEMORY + 4096, LENGTH) == vec![0xAB; LENGTH as usize];
    match (&seen.outcome, status) {
        (None, status) => {
            assert_eq!((status, landed), (Some(Status::Success), true), "{what}: nobody disturbed it")
        }
        (Some(Ok(())), status) => {
            assert!(memory(&two, MEMORY, SPAN) == seen.then, "{what}: bytes landed after the end");
            assert!(status.is_some(), "{what}: the initiator was never told");
            assert!(
                status != Some(Status::Success) || landed,
                "{what}: success, but the bytes are not there"
            );
        }
        (Some(Err(Error::Busy(_))), _) => {
            // An access was under way and could not end. It has ended now.
            let again = seen.again.as_ref();
            assert!(
                matches!(again, Some(Err(Error::Busy(_)))),
                "{what}: then {again:?}, with the access under way"
            );
            assert!(end(ending, &two.region, &two.queue_pairs[0]).is_ok(), "{what}: busy for ever");
        }
        (Some(Err(error)), _) => panic!("{what}: {error}"),
    }
    reached
}

/// Has the receiver of a long message, which it reads from its sender's memory, stand still before its store number
/// `store`, and the sender end things meanwhile and use the memory for something else. False: the store was not reached.
fn attempt_to_read(ending: Ending, store: u64) -> bool {
    let (world, one, two) = pair(PathChoice::Local);
    let fill = |side: &Side, byte: u8| {
        let memory = side.nic.fabric().memory();
        memory
            .write(&[byte; LENGTH as usize], &[Segment { address: MEMORY, length: LENGTH }], false)
            .unwrap();
    };
    fill(&one, 0xAB);
    let pieces = [piece(&two)];
    let receive = ReceiveRequest { wr_id: 2, segments: &pieces };
    two.queue_pairs[0].post_receive(&receive).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let halted = world.get(two.process);
    let (region, queue_pair, note, nic, cq) =
        (one.region.clone(), one.queue_pairs[0].clone(), seen.clone(), one.nic.clone(), one.cq.clone());
    halted.interrupt_at(store, move || {
        let outcome = end(ending, &region, &queue_pair);
        // A receiver that stands still in the middle of it is waited for until the bound: the request is flushed all the same.
        let mut flushed = false;
        cq.poll(8, &mut |_| flushed = true);
        if outcome.is_ok() || flushed {
            let memory = nic.fabric().memory();
            let all = [Segment { address: MEMORY, length: LENGTH }];
            memory.write(&[0xEE; LENGTH as usize], &all, false).unwrap();
        }
        *note.lock() = Some((outcome, flushed));
    });
    one.post(SendOperation::Send, LENGTH as u32);
    let mut taken = Vec::new();
    let status = drive(&world, &one, &two, &mut taken);
    two.cq.poll(8, &mut |completion| taken.push(completion.status));
    let reached = !halted.cancel_interruption();
    let what = format!("{ending:?}, store {store}: {:?}, {status:?}", seen.lock());
    let received = memory(&two, MEMORY, LENGTH);
    let (outcome, flushed) = seen.lock().take().unzip();
    if taken.contains(&Status::Success) {
        assert!(received == [0xAB; LENGTH as usize], "{what}: received is what was the program's again");
    }
    assert!(
        flushed == Some(true) || !received.contains(&0xEE),
        "{what}: what was the program's again was read"
    );
    match outcome {
        None => assert_eq!(status, Some(Status::Success), "{what}"),
        Some(Ok(())) => {}
        Some(Err(Error::Busy(_))) => {
            assert!(end(ending, &one.region, &one.queue_pairs[0]).is_ok(), "{what}: busy for ever")
        }
        Some(Err(error)) => panic!("{what}: {error}"),
    }
    assert!(status != Some(Status::Success) || received == [0xAB; LENGTH as usize], "{what}: not delivered");
    reached
}

#[test]
fn a_region_or_queue_pair_ends_while_its_message_is_read() {
    for ending in [Ending::Deregister, Ending::Reset, Ending::Error, Ending::Destroy] {
        let mut store = 1;
        while attempt_to_read(ending, store) {
            store += 1;
        }
        assert!(store > 5, "only {store} stores were seen");
    }
}

fn at_every_store(path: PathChoice, ending: Ending, halt_target: bool) {
    let mut store = 1;
    while attempt(path, ending, halt_target, store) {
        store += 1;
    }
    assert!(store > 5, "path {path:?}: only {store} stores were seen");
}

#[test]
fn a_region_ends_while_a_local_peer_writes() {
    at_every_store(PathChoice::Local, Ending::Deregister, false);
}

#[test]
fn a_queue_pair_ends_while_a_local_peer_writes() {
    for ending in [Ending::Reset, Ending::Error, Ending::Destroy] {
        at_every_store(PathChoice::Local, ending, false);
    }
}

#[test]
fn rights_are_withdrawn_while_a_local_peer_writes() {
    at_every_store(PathChoice::Local, Ending::Withdraw, false);
}

#[test]
fn a_region_ends_while_packets_are_placed() {
    at_every_store(PathChoice::Udp, Ending::Deregister, true);
}

#[test]
fn a_region_ends_while_packets_are_sent() {
    at_every_store(PathChoice::Udp, Ending::Deregister, false);
}

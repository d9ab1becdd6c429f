//! A peer refuses a request, says something more, and ends while the refusal is being taken.

use crate::support::{Side, connect, side};
use pagewire_nic::{PathChoice, Rights, SendOperation, Status};
use pagewire_sim::{LinkFaults, MEMORY, World};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Far longer than a run takes; only a thread that waits for itself gets there.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nanoseconds in which the end of a process is noticed.
const NOTICE: u64 = 100_000_000;

/// Has the peer end just before a store that its victim makes while it takes what the peer has left. False: the store was
/// not reached.
fn attempt(store: u64) -> bool {
    let world = World::new(5, LinkFaults::NONE);
    let host = world.host();
    let sides: [Side; 2] = [0, 1].map(|_| side(&world, host, PathChoice::Local, 2));
    let [one, two] = &sides;
    for index in 0..2 {
        let ends = [one, two].map(|side| (side.process, &side.queue_pairs[index]));
        connect(&world, ends[0], ends[1], Rights::REMOTE_WRITE);
    }
    for _ in 0..20 {
        one.nic.progress();
        two.nic.progress();
        world.advance(Some(world.now() + 50_000));
    }
    let no_key = SendOperation::Write { address: MEMORY, key: 0 };
    one.post(no_key, 8);
    two.nic.progress();
    two.post_on(1, SendOperation::Send, 8);
    two.post_on(1, SendOperation::Send, 8);
    let (victim, other) = (world.get(one.process), world.clone());
    let peer = two.process;
    victim.interrupt_at(store, move || {
        let noticed = other.now() + NOTICE;
        // Until its end can be noticed; of the dead it only has happen what is due.
        while other.now() < noticed {
            other.kill(peer);
            other.advance(Some(noticed));
        }
    });
    assert_eq!(status(&world, one), Some(Status::RemoteAccess), "store {store}");
    let reached = !victim.cancel_interruption();
    if reached {
        // Its end is noticed all the same.
        one.post_on(1, SendOperation::Send, 8);
        assert_eq!(status(&world, one), Some(Status::RetryExceeded), "store {store}");
    }
    reached
}

/// What the next completion says, if there is one within a second.
fn status(world: &World, side: &Side) -> Option<Status> {
    let mut status = None;
    for _ in 0..1_000 {
        let next = side.nic.progress();
        side.cq.poll(1, &mut |completion| status = Some(completion.status));
        if status.is_some() {
            break;
        }
        world.advance(Some(next.unwrap_or(u64::MAX).min(world.now() + 1_000_000)));
    }
    status
}

#[test]
fn a_peer_ends_while_its_refusal_is_taken() {
    let (sender, receiver) = channel();
    let work = std::thread::spawn(move || {
        let mut store = 1;
        while attempt(store) {
            store += 1;
            if sender.send(store).is_err() {
                return;
            }
        }
    });
    let mut reached = 1;
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(store) => reached = store,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("nothing goes on at store {reached}"),
        }
    }
    work.join().unwrap();
    assert!(reached > 3, "only {reached} stores were seen");
}

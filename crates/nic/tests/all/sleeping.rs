//! A program that posts and then sleeps until a completion channel tells it: nobody but the NIC thread goes on.

use crate::support::*;
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::limits::LEFT_PATIENCE_OF_SLEEPERS;
use pagewire_nic::path::wake_request;
use pagewire_nic::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Tells whoever waits at the other end.
struct Teller(Sender<()>);

impl Notifier for Teller {
    fn raise(&self) {
        // Nobody may wait any more when the engine tells its last.
        let _ = self.0.send(());
    }
    fn withdraw(&self) {
        unreachable!("no completion queue is destroyed here");
    }
}

/// An engine whose receives' completions are told to whoever waits at the second value.
fn side_with_channel(path: PathChoice) -> (Side, Receiver<()>) {
    let mut side = Side::new(path);
    let (tell, told) = channel();
    let notices = side.context.create_channel(Arc::new(Teller(tell)));
    side.recv_cq = side.context.create_cq(16, Some(notices)).unwrap();
    (side, told)
}

/// Waits until the NIC thread sleeps with nothing to do.
fn asleep(side: &Side) {
    let start = Instant::now();
    while !wake_request::is_requested(side.nic.fabric().mailbox()) {
        assert!(start.elapsed() < PATIENCE, "the NIC thread does not rest");
        sleep(Duration::from_millis(1));
    }
}

/// More packets than one turn of a queue pair sends, so that the rest is left when `ibv_post_send` returns.
#[test]
fn a_long_message_goes_on_while_the_sender_sleeps() {
    const LENGTH: usize = 16 << 20;
    let (b, told) = side_with_channel(PathChoice::Local);
    let mut pair = Pair::connect(Side::new(PathChoice::Local), b, QueuePairType::Uc, all_rights());
    let source = pair.a.buffer(LENGTH, all_rights());
    let target = pair.b.buffer(LENGTH, all_rights());
    source.bytes.fill(7);
    for wr_id in 1..=4 {
        pair.receive(wr_id, &[target.piece(0, LENGTH as u32)]);
        pair.b.recv_cq.arm(false);
        asleep(&pair.a);
        pair.post(wr_id, SendOperation::Send, &[source.piece(0, LENGTH as u32)]).unwrap();
        told.recv_timeout(PATIENCE).expect("the message arrives though nobody polls");
        pair.until(wr_id as usize, wr_id as usize);
    }
    let done: Vec<_> = (1..=4).map(|wr_id| Done { wr_id, status: Status::Success }).collect();
    assert_eq!((&pair.sent, &pair.received), (&done, &done));
    assert!(target.bytes.iter().all(|byte| *byte == 7), "every byte");
}

/// A completion that waits when its queue is armed raises an event for a program that may sleep in poll(2), of which nobody tells. One that sleeps in
/// `ibv_get_cq_event` is told when it sleeps. Before, it is about to poll (perftest's `-e`), and an event for nothing would end its next
/// sleep: for the sleep in poll(2) that it may take, the event comes late.
#[test]
fn whoever_sleeps_in_calls_gets_a_late_event_for_what_it_is_about_to_poll() {
    let mut side = Side::new(PathChoice::Local);
    let (tell, told) = channel();
    let notices = side.context.create_channel(Arc::new(Teller(tell)));
    side.recv_cq = side.context.create_cq(16, Some(notices.clone())).unwrap();
    let pair = Pair::connect(Side::new(PathChoice::Local), side, QueuePairType::Uc, all_rights());
    let source = pair.a.buffer(64, all_rights());
    let target = pair.b.buffer(64, all_rights());
    pair.receive(1, &[target.piece(0, 64)]);
    pair.b.recv_cq.arm(false);
    pair.post(1, SendOperation::Send, &[source.piece(0, 64)]).unwrap();
    told.recv_timeout(PATIENCE).expect("the completion's event");
    notices.next_event().expect("an event");
    pair.b.recv_cq.arm(false);
    told.recv_timeout(PATIENCE).expect("an event for what still waits");
    notices.next_event().expect("an event");
    pair.b.recv_cq.arm(false);
    notices.announce_what_was_left();
    told.recv_timeout(PATIENCE).expect("an event for a sleeper");
    notices.next_event().expect("an event");
    let armed = Instant::now();
    pair.b.recv_cq.arm(false);
    told.recv_timeout(PATIENCE).expect("an event for one that sleeps in poll(2)");
    assert!(
        armed.elapsed() >= Duration::from_nanos(LEFT_PATIENCE_OF_SLEEPERS),
        "it came as to a program of which nothing is known"
    );
    notices.next_event().expect("an event");
    pair.b.recv_cq.arm(false);
    notices.announce_what_was_left();
    told.recv_timeout(PATIENCE).expect("now it sleeps");
}

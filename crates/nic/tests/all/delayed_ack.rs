//! Acknowledgements wait a moment for the answers of programs that answer what they receive, or what is written to their memory;
//! none is forgotten.

use crate::support::*;
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::*;
use std::sync::Arc;
use std::time::Instant;

/// Messages each way after which acknowledgements wait.
const ROUNDS: u64 = 20;

/// Times that a test tries to get so far: where the processor is busy a repeats itself, and b acknowledges that.
const TRIES: u32 = 50;

/// New queue pairs, which have greeted each other.
fn begin_anew(pair: &mut Pair) {
    for (side, old) in [(&pair.a, &pair.qa), (&pair.b, &pair.qb)] {
        old.destroy().unwrap();
        while side.send_cq.poll(64, &mut |_| ()) + side.recv_cq.poll(64, &mut |_| ()) > 0 {}
    }
    (pair.sent, pair.received) = (Vec::new(), Vec::new());
    pair.qa = pair.a.queue_pair(QueuePairType::Rc, all_rights());
    pair.qb = pair.b.queue_pair(QueuePairType::Rc, all_rights());
    for (side, near, remote_hint) in [(&pair.a, &pair.qa, &pair.qb), (&pair.b, &pair.qb, &pair.qa)] {
        to_rtr(side, near, remote_hint.number());
        to_rts(near, TIMERS);
    }
    for _ in 0..1000 {
        pair.turn();
    }
}

/// New queue pairs; b has got something from a, and has not acknowledged the last of it.
fn get_unacknowledged(pair: &mut Pair, exchange: fn(&mut Pair) -> bool) {
    for _ in 0..TRIES {
        begin_anew(pair);
        if exchange(pair) {
            return;
        }
    }
    panic!("the last acknowledgement waits for the answer");
}

/// a has sent messages that b has received, been told of and answered, but for the last. Whether its acknowledgement waits.
fn exchange_messages(pair: &mut Pair) -> bool {
    let (at_a, at_b) = (pair.a.buffer(8, all_rights()), pair.b.buffer(8, all_rights()));
    let mut answers = Vec::new();
    for round in 0..=ROUNDS {
        pair.receive(round, &[at_b.piece(0, 8)]);
        let request = ReceiveRequest { wr_id: round, segments: &[at_a.piece(0, 8)] };
        pair.qa.post_receive(&request).unwrap();
        pair.post(round, SendOperation::Send, &[at_a.piece(0, 8)]).unwrap();
        poll_until((&pair.b, &pair.b.recv_cq), &mut pair.received, round as usize + 1, &pair.a);
        if round < ROUNDS {
            post_send(&pair.qb, round, &[at_b.piece(0, 8)]);
            pair.qb.doorbell();
            poll_until((&pair.a, &pair.a.recv_cq), &mut answers, round as usize + 1, &pair.b);
        }
    }
    for _ in 0..100 {
        pair.a.poll(&pair.a.send_cq, &mut pair.sent);
    }
    pair.sent.len() == ROUNDS as usize
}

/// a has written to b's memory, and b's program has answered, but for the last. Whether its acknowledgement waits, which depends on how
/// soon the program answers.
fn exchange_writes(pair: &mut Pair) -> bool {
    let (mut at_a, mut at_b) = (Memory::new(&pair.a), Memory::new(&pair.b));
    let mut before = 0;
    for value in 0..=ROUNDS as u8 {
        at_a.write(&pair.qa, value + 1, &at_b);
        // The threads of the NICs do the work.
        let start = Instant::now();
        while at_b.seen() != value + 1 {
            assert!(start.elapsed() < PATIENCE);
            before = sent_by_b(pair);
            pair.b.nic.progress();
        }
        if u64::from(value) < ROUNDS {
            at_b.write(&pair.qb, value + 1, &at_a);
            while at_a.seen() != value + 1 {
                assert!(start.elapsed() < PATIENCE);
                pair.a.nic.progress();
            }
            pair.a.poll(&pair.a.send_cq, &mut pair.sent);
            pair.b.send_cq.poll(64, &mut |_| ());
        }
    }
    sent_by_b(pair) == before && pair.sent.len() == ROUNDS as usize
}

/// Memory that a program writes from, and that its peer writes to.
struct Memory {
    from: Buffer,
    to: Buffer,
}

impl Memory {
    fn new(side: &Side) -> Self {
        Memory { from: side.buffer(8, all_rights()), to: side.buffer(8, all_rights()) }
    }

    /// The value that the peer has written last.
    fn seen(&self) -> u8 {
        std::hint::black_box(&*self.to.bytes)[0]
    }

    /// A WRITE of a value to the peer's memory.
    fn write(&mut self, queue_pair: &Arc<QueuePair<pagewire_fabric::HostFabric>>, value: u8, peer: &Memory) {
        self.from.bytes[0] = value;
        let operation = SendOperation::Write { address: peer.to.address, key: peer.to.region.rkey() };
        post_to(queue_pair, value.into(), operation, Data::Segments(&[self.from.piece(0, 8)])).unwrap();
        queue_pair.doorbell();
    }
}

fn sent_by_b(pair: &Pair) -> u64 {
    let number = pair.qb.number();
    let report = pagewire_nic::ConnectionReport::of_all(&pair.b.nic)
        .into_iter()
        .find(|report| report.number == number);
    report.expect("a report").udp_packets_sent
}

type Queue<'a> = (&'a Side, &'a CompletionQueue<pagewire_fabric::HostFabric>);

/// Polls a queue; `other` works, too.
fn poll_until((side, queue): Queue<'_>, into: &mut Vec<Done>, count: usize, other: &Side) {
    let start = Instant::now();
    while into.len() < count && start.elapsed() < PATIENCE {
        other.nic.progress();
        side.poll(queue, into);
    }
    assert_eq!(into.len(), count);
}

/// The last acknowledgement comes. The engine of b goes on: it may have to hand it on.
#[track_caller]
fn assert_arrives(pair: &mut Pair) {
    poll_until((&pair.a, &pair.a.send_cq), &mut pair.sent, ROUNDS as usize + 1, &pair.b);
    assert!(pair.sent.iter().all(|done| done.status == Status::Success), "{:?}", pair.sent);
}

/// It leaves, while a does nothing that it could be the answer to.
#[track_caller]
fn assert_leaves(pair: &Pair, act: impl Fn()) {
    let (before, start) = (sent_by_b(pair), Instant::now());
    while sent_by_b(pair) == before {
        assert!(start.elapsed() < PATIENCE, "it waits for ever");
        act();
    }
}

fn pair_without_threads() -> Pair {
    let sides = (Side::without_thread(PathChoice::Udp), Side::without_thread(PathChoice::Udp));
    Pair::connect(sides.0, sides.1, QueuePairType::Rc, all_rights())
}

#[test]
fn an_acknowledgement_that_waits_leaves_whatever_the_program_does() {
    if !own_network::is_here() {
        return;
    }
    let pair = &mut pair_without_threads();

    get_unacknowledged(pair, exchange_messages);
    let before = sent_by_b(pair);
    pair.b.nic.progress();
    assert!(sent_by_b(pair) > before);
    assert_arrives(pair);

    get_unacknowledged(pair, exchange_messages);
    let before = sent_by_b(pair);
    // Completions of its answers first, then twice nothing.
    while pair.b.send_cq.poll(64, &mut |_| ()) > 0 {}
    pair.b.send_cq.poll(64, &mut |_| ());
    assert!(sent_by_b(pair) > before);
    assert_arrives(pair);

    // Where nobody polls it waits for a moment.
    get_unacknowledged(pair, exchange_writes);
    assert_leaves(pair, || _ = pair.b.nic.progress());
    assert_arrives(pair);
    get_unacknowledged(pair, exchange_writes);
    assert_leaves(pair, || _ = pair.b.send_cq.poll(64, &mut |_| ()));
    assert_arrives(pair);
}

#[test]
fn an_acknowledgement_that_waits_leaves_before_the_connection_ends() {
    if !own_network::is_here() {
        return;
    }
    let pair = &mut pair_without_threads();
    for exchange in [exchange_messages, exchange_writes] {
        for state in [QpState::Error, QpState::Reset] {
            get_unacknowledged(pair, exchange);
            pair.qb.modify(&QueuePairChange { state: Some(state), ..Default::default() }).unwrap();
            assert_arrives(pair);
        }

        let other = pair.b.queue_pair(QueuePairType::Rc, all_rights());
        get_unacknowledged(pair, exchange);
        std::mem::replace(&mut pair.qb, other).destroy().unwrap();
        assert_arrives(pair);
    }
    // The process may end.
    get_unacknowledged(pair, exchange_writes);
    let before = sent_by_b(pair);
    pair.b.nic.last_round();
    assert!(sent_by_b(pair) > before);
    assert_arrives(pair);
}

//! Acknowledgements wait a moment for the answers of programs that answer what they receive, or what is written to their memory;
//! none is forgotten.

mod support;

use pagewire_nic::attributes::{QueuePairChange, QueuePairType, State};
use pagewire_nic::*;
use std::sync::Arc;
use std::time::Instant;
use support::*;

/// Messages each way after which acknowledgements wait.
const ROUNDS: u64 = 20;

/// Times that a test tries to get so far: where the processor is busy a repeats itself, and b acknowledges that.
const TRIES: u32 = 50;

/// New queue pairs; a has sent a message that b has received, and been told of, and not acknowledged.
fn get_unacknowledged(pair: &mut Pair) {
    for _ in 0..TRIES {
        if try_unacknowledged(pair) {
            return;
        }
    }
    panic!("the last acknowledgement waits for the answer");
}

fn try_unacknowledged(pair: &mut Pair) -> bool {
    for (side, old) in [(&pair.a, &pair.qa), (&pair.b, &pair.qb)] {
        old.destroy().unwrap();
        while side.send_cq.poll(64, &mut |_| ()) + side.recv_cq.poll(64, &mut |_| ()) > 0 {}
    }
    (pair.sent, pair.received) = (Vec::new(), Vec::new());
    pair.qa = pair.a.queue_pair(QueuePairType::Rc, all_rights());
    pair.qb = pair.b.queue_pair(QueuePairType::Rc, all_rights());
    for (side, near, far) in [(&pair.a, &pair.qa, &pair.qb), (&pair.b, &pair.qb, &pair.qa)] {
        to_rtr(side, near, far.number());
        to_rts(near, TIMERS);
    }
    // Greetings first.
    for _ in 0..1000 {
        pair.turn();
    }
    let (at_a, at_b) = (pair.a.buffer(8, all_rights()), pair.b.buffer(8, all_rights()));
    let mut answers = Vec::new();
    for round in 0..=ROUNDS {
        pair.receive(round, &[at_b.piece(0, 8)]);
        let request = ReceiveRequest { wr_id: round, segments: &[at_a.piece(0, 8)] };
        pair.qa.post_receive(&request).unwrap();
        pair.post(round, SendOperation::Send, &[at_a.piece(0, 8)]).unwrap();
        poll_until((&pair.b, &pair.b.recv_cq), &mut pair.received, round as usize + 1, &pair.a);
        if round < ROUNDS {
            let piece = [at_b.piece(0, 8)];
            let answer = SendRequest {
                wr_id: round,
                data: Data::Segments(&piece),
                operation: SendOperation::Send,
                signaled: true,
                fence: false,
                solicited: false,
                destination: None,
            };
            pair.qb.post_send(&answer).unwrap();
            pair.qb.doorbell();
            poll_until((&pair.a, &pair.a.recv_cq), &mut answers, round as usize + 1, &pair.b);
        }
    }
    for _ in 0..100 {
        pair.a.poll(&pair.a.send_cq, &mut pair.sent);
    }
    pair.sent.len() == ROUNDS as usize
}

fn sent_by_b(pair: &Pair) -> u64 {
    let number = pair.qb.number();
    let report = pair.b.nic.explain().into_iter().find(|report| report.number == number);
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

#[test]
fn an_acknowledgement_that_waits_leaves_whatever_the_program_does() {
    let sides = (Side::without_thread(PathChoice::Udp), Side::without_thread(PathChoice::Udp));
    let pair = &mut Pair::connect(sides.0, sides.1, QueuePairType::Rc, all_rights());

    get_unacknowledged(pair);
    let before = sent_by_b(pair);
    pair.b.nic.progress();
    assert!(sent_by_b(pair) > before);
    assert_arrives(pair);

    get_unacknowledged(pair);
    let before = sent_by_b(pair);
    // Completions of its answers first, then twice nothing.
    while pair.b.send_cq.poll(64, &mut |_| ()) > 0 {}
    pair.b.send_cq.poll(64, &mut |_| ());
    assert!(sent_by_b(pair) > before);
    assert_arrives(pair);

    for state in [State::Error, State::Reset] {
        get_unacknowledged(pair);
        pair.qb.modify(&QueuePairChange { state: Some(state), ..Default::default() }).unwrap();
        assert_arrives(pair);
    }

    get_unacknowledged(pair);
    let other = pair.b.queue_pair(QueuePairType::Rc, all_rights());
    std::mem::replace(&mut pair.qb, other).destroy().unwrap();
    assert_arrives(pair);
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

    /// A WRITE of a value to the peer's memory.
    fn write(&mut self, queue_pair: &Arc<QueuePair<pagewire_fabric::HostFabric>>, value: u8, peer: &Memory) {
        self.from.bytes[0] = value;
        let operation = SendOperation::Write { address: peer.to.address, key: peer.to.region.rkey() };
        post_to(queue_pair, value.into(), operation, Data::Segments(&[self.from.piece(0, 8)])).unwrap();
        queue_pair.doorbell();
    }

    /// Runs rounds of an engine, as its thread would, until one has brought a value; gives what that told.
    fn await_value(&self, value: u8, round: impl Fn() -> u64) -> u64 {
        let start = Instant::now();
        loop {
            let told = round();
            if self.to.bytes[0] == value {
                return told;
            }
            assert!(start.elapsed() < PATIENCE);
        }
    }
}

#[test]
fn acknowledgements_wait_a_moment_for_programs_that_answer_what_is_written_to_their_memory() {
    let sides = (Side::without_thread(PathChoice::Udp), Side::without_thread(PathChoice::Udp));
    let pair = &mut Pair::connect(sides.0, sides.1, QueuePairType::Rc, all_rights());
    let (mut at_a, mut at_b) = (Memory::new(&pair.a), Memory::new(&pair.b));
    for _ in 0..1000 {
        pair.turn();
    }
    // Whether it waits depends on how soon the program answers.
    for rounds in 1..=TRIES as usize {
        let mut waits = false;
        for value in 1..=ROUNDS as u8 {
            at_a.write(&pair.qa, value, &at_b);
            let sent = at_b.await_value(value, || {
                let sent = sent_by_b(pair);
                pair.b.nic.progress();
                sent
            });
            if value < ROUNDS as u8 {
                at_b.write(&pair.qb, value, &at_a);
                at_a.await_value(value, || pair.a.nic.progress().unwrap_or(0));
            } else {
                waits = sent_by_b(pair) == sent;
            }
        }
        // The last one is not answered: its acknowledgement leaves by itself.
        poll_until((&pair.a, &pair.a.send_cq), &mut pair.sent, rounds * ROUNDS as usize, &pair.b);
        while pair.b.send_cq.poll(64, &mut |_| ()) > 0 {}
        if waits {
            return;
        }
    }
    panic!("the last acknowledgement waits for the answer");
}

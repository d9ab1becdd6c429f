//! Packets that came in for a queue pair before it was reset are not for the connection that it is given afterwards.

mod support;

use pagewire_nic::attributes::{QueuePairChange, QueuePairType, State};
use pagewire_nic::*;
use std::time::{Duration, Instant};
use support::*;

/// Messages that wait in the receiver's socket while it is reset.
const FORMER: u64 = 20;

#[test]
fn what_came_in_before_a_reset_is_dropped() {
    let (a, b) = (Side::new(PathChoice::Udp), Side::without_thread(PathChoice::Udp));
    let mut pair = Pair::connect(a, b, QueuePairType::Uc, all_rights());
    let source = pair.a.buffer(8, all_rights());
    let target = pair.b.buffer(8, all_rights());
    // The port is steered once a message has come through.
    while pair.received.is_empty() {
        pair.receive(1, &[target.piece(0, 8)]);
        pair.post(1, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        pair.until(pair.sent.len() + 1, 0);
    }
    source.bytes.fill(1);
    let sent = pair.sent.len();
    for wr_id in 0..FORMER {
        pair.post(wr_id, SendOperation::SendImmediate(7), &[source.piece(0, 8)]).unwrap();
    }
    // Only a: what it sent is in b's socket then.
    while pair.sent.len() < sent + FORMER as usize {
        pair.a.nic.progress();
        pair.a.poll(&pair.a.send_cq, &mut pair.sent);
    }
    pair.qb.modify(&QueuePairChange { state: Some(State::Reset), ..Default::default() }).unwrap();
    target.bytes.fill(0);
    to_init(&pair.qb, all_rights());
    to_rtr(&pair.b, &pair.qb, pair.qa.number());
    to_rts(&pair.qb, TIMERS);
    pair.received.clear();
    for wr_id in 0..FORMER {
        pair.receive(wr_id, &[target.piece(0, 8)]);
    }
    // Longer than packets that seem to have overtaken others are kept.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        pair.turn();
    }
    assert_eq!((&pair.received[..], &*target.bytes), (&[][..], &[0; 8][..]), "of the former life");
}

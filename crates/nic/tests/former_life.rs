//! Packets that came in for a queue pair before it was reset are not for the connection that it is given afterwards.

mod support;

use pagewire_nic::attributes::{QueuePairChange, QueuePairType, State};
use pagewire_nic::*;
use std::time::{Duration, Instant};
use support::*;

/// Messages that wait in the receiver's socket while it is reset.
const FORMER: u64 = 20;

/// Bytes in the sockets of port 4791: those of a are read all the time.
fn bytes_waiting() -> u64 {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
    let queued = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_ours = fields.next()?.ends_with(":12B7");
        let (_, received) = fields.nth(2)?.split_once(':')?;
        u64::from_str_radix(received, 16).ok().filter(|_| is_ours)
    };
    sockets.lines().filter_map(queued).sum()
}

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
    // The kernel may take its time.
    let start = Instant::now();
    while bytes_waiting() == 0 && start.elapsed() < PATIENCE {
        pair.a.nic.progress();
    }
    assert!(bytes_waiting() > 0, "nothing is in the socket");
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

//! Packets that came in for a queue pair before it was reset are not for the connection that it is given afterwards.

use crate::support::*;
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::*;
use std::time::{Duration, Instant};

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
    if !own_network::is_here() {
        return;
    }
    let (a, b) = (Side::new(PathChoice::Udp), Side::without_thread(PathChoice::Udp));
    let mut pair = Pair::connect(a, b, QueuePairType::Uc, all_rights());
    let source = pair.a.buffer(8, all_rights());
    let target = pair.b.buffer(8, all_rights());
    let forwarded = |pair: &Pair| pair.a.nic.fabric().counters().forwarded.get();
    let start = Instant::now();
    // Until the port is steered, a has them and hands them on: then they may come at any time.
    loop {
        source.bytes.fill(0);
        let received = pair.received.len();
        while pair.received.len() == received {
            pair.receive(1, &[target.piece(0, 8)]);
            pair.post(1, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
            pair.until(pair.sent.len() + 1, 0);
        }
        source.bytes.fill(1);
        let (sent, before) = (pair.sent.len(), forwarded(&pair));
        for wr_id in 0..FORMER {
            pair.post(wr_id, SendOperation::SendImmediate(7), &[source.piece(0, 8)]).unwrap();
        }
        // Only a: what it sent is in b's socket then. The kernel may take its time.
        while pair.sent.len() < sent + FORMER as usize || bytes_waiting() == 0 && forwarded(&pair) == before {
            pair.a.nic.progress();
            pair.a.poll(&pair.a.send_cq, &mut pair.sent);
            assert!(start.elapsed() < PATIENCE, "nothing is in the socket");
        }
        if forwarded(&pair) == before {
            break;
        }
        for wr_id in 0..FORMER {
            pair.receive(wr_id, &[target.piece(0, 8)]);
        }
        pair.until(0, pair.received.len() + FORMER as usize);
    }
    pair.qb.modify(&QueuePairChange { state: Some(QpState::Reset), ..Default::default() }).unwrap();
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

/// A NAK for a request of the former life would name the first PSN of the new one, and the requester would send the message that it has there
/// in parts, with other PSNs for what follows.
#[test]
fn records_of_the_former_life_are_dropped() {
    const LENGTH: u32 = 65_536;
    let (a, b) = (Side::without_thread(PathChoice::Local), Side::without_thread(PathChoice::Local));
    let [qa, qb] = connect_without_threads([&a, &b], TIMERS);
    let [source, answer] = [LENGTH, 4096].map(|length| a.buffer(length as usize, all_rights()));
    let [target, remote] = [LENGTH, 4096].map(|length| b.buffer(length as usize, all_rights()));
    remote.bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 1024 + 1) as u8);
    source.bytes.fill(5);
    assert!(!post_send(&qa, 1, &[source.piece(0, 8)]), "it is in the ring");
    for queue_pair in [&qa, &qb] {
        queue_pair.modify(&QueuePairChange { state: Some(QpState::Reset), ..Default::default() }).unwrap();
        to_init(queue_pair, all_rights());
    }
    // The former one's PSN is ahead of these.
    let psn = 0xFF_FF00;
    to_rtr(&a, &qa, qb.number());
    to_rtr_from(&b, &qb, qa.number(), psn);
    to_rts_from(&qa, TIMERS, psn);
    to_rts(&qb, TIMERS);
    qb.post_receive(&ReceiveRequest { wr_id: 2, segments: &[target.piece(0, LENGTH)] }).unwrap();
    b.nic.progress();
    post_send(&qa, 3, &[source.piece(0, LENGTH)]);
    let read = SendOperation::Read { address: remote.address, key: remote.region.rkey() };
    post_to(&qa, 4, read, Data::Segments(&[answer.piece(0, 4096)])).unwrap();
    qa.doorbell();
    let mut sent = Vec::new();
    let start = Instant::now();
    while sent.len() < 2 {
        a.nic.progress();
        b.nic.progress();
        a.poll(&a.send_cq, &mut sent);
        assert!(start.elapsed() < PATIENCE, "{sent:?}");
    }
    assert_eq!(sent, [3, 4].map(|wr_id| Done { wr_id, status: Status::Success }));
    assert!(target.bytes.iter().all(|&byte| byte == 5));
    assert!(*answer.bytes == *remote.bytes, "the READ has brought other bytes");
}

//! UC between two engines: what ends and begins anew at one side leaves the other side's connection as it was.

use crate::support::*;
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::*;
use std::time::Instant;

const PATHS: [PathChoice; 3] = [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp];

fn send(pair: &Pair, wr_id: u64, source: &Buffer) {
    pair.post(wr_id, SendOperation::SendImmediate(7), &[source.piece(0, 8)]).unwrap();
}

/// Sends until a message has arrived: from then on both sides know what the other one is.
fn send_until_received(pair: &mut Pair, source: &Buffer, target: &Buffer) {
    let start = Instant::now();
    while pair.received.is_empty() && start.elapsed() < PATIENCE {
        pair.receive(0, &[target.piece(0, 8)]);
        send(pair, 0, source);
        pair.until(pair.sent.len() + 1, 0);
    }
    assert!(!pair.received.is_empty(), "nothing arrives");
}

/// Sends `count` messages, one at a time; gives how many arrive.
fn arriving(pair: &mut Pair, source: &Buffer, target: &Buffer, count: usize) -> usize {
    let before = pair.received.len();
    for number in 0..count {
        pair.receive(1, &[target.piece(0, 8)]);
        let sent = pair.sent.len();
        send(pair, number as u64, source);
        pair.until(sent + 1, 0);
    }
    let start = Instant::now();
    while pair.received.len() < before + count && start.elapsed() < PATIENCE / 10 {
        pair.turn();
    }
    pair.received.len() - before
}

/// A UC pair of which each side knows what the other one is, with a buffer at either end; all messages arrive.
fn connected_uc_pair(path: PathChoice) -> (Pair, Buffer, Buffer) {
    let mut pair = Pair::new(path, QueuePairType::Uc, all_rights());
    let (source, target) = (pair.a.buffer(8, all_rights()), pair.b.buffer(8, all_rights()));
    send_until_received(&mut pair, &source, &target);
    assert_eq!(arriving(&mut pair, &source, &target, 20), 20, "{path:?}");
    (pair, source, target)
}

fn established(context: &Context<pagewire_fabric::HostFabric>) -> usize {
    let mut count = 0;
    while let Some(event) = context.next_async_event() {
        event.acknowledge();
        count += usize::from(event.kind == AsyncEventKind::CommunicationEstablished);
    }
    count
}

#[test]
fn a_send_queue_that_failed_goes_on_where_it_stood() {
    if !own_network::is_here() {
        return;
    }
    for path in PATHS {
        let (mut pair, source, target) = connected_uc_pair(path);
        let sent = pair.sent.len();
        let wrong = ScatterGather { key: source.region.lkey() ^ 0x100, ..source.piece(0, 8) };
        pair.post(1, SendOperation::Send, &[wrong]).unwrap();
        pair.until(sent + 1, 0);
        assert_eq!(pair.sent.last().unwrap().status, Status::LocalProtection);
        assert_eq!(pair.qa.state(), QpState::SendQueueError);
        let back = QueuePairChange { state: Some(QpState::ReadyToSend), ..Default::default() };
        pair.qa.modify(&back).unwrap();
        assert_eq!(arriving(&mut pair, &source, &target, 20), 20, "{path:?}: behind SQE");
    }
}

#[test]
fn restarted_peer_is_received() {
    if !own_network::is_here() {
        return;
    }
    for path in PATHS {
        let (mut pair, source, target) = connected_uc_pair(path);
        pair.qa.modify(&QueuePairChange { state: Some(QpState::Reset), ..Default::default() }).unwrap();
        to_init(&pair.qa, all_rights());
        to_rtr(&pair.a, &pair.qa, pair.qb.number());
        to_rts(&pair.qa, TIMERS);
        // A greeting may be lost, and with it what comes before the next.
        pair.received.clear();
        let begun = Instant::now();
        send_until_received(&mut pair, &source, &target);
        assert_eq!(
            arriving(&mut pair, &source, &target, 20),
            20,
            "{path:?}: {:?} behind RTS",
            begun.elapsed()
        );
    }
}

/// Also where the requester executes it, in the memory of a target that only receives.
#[test]
fn the_first_operation_establishes_whatever_it_is() {
    if !own_network::is_here() {
        return;
    }
    for path in PATHS {
        for kind in [QueuePairType::Rc, QueuePairType::Uc] {
            for reads in [false, true] {
                if reads && kind == QueuePairType::Uc {
                    continue;
                }
                let (a, b) = (Side::new(path), Side::new(path));
                let (qa, qb) = (a.queue_pair(kind, all_rights()), b.queue_pair(kind, all_rights()));
                to_rtr(&a, &qa, qb.number());
                to_rtr(&b, &qb, qa.number());
                to_rts(&qa, TIMERS);
                let (source, target) = (a.buffer(8, all_rights()), b.buffer(8, all_rights()));
                let mut pair = Pair { a, b, qa, qb, sent: Vec::new(), received: Vec::new() };
                let (address, key) = (target.address, target.region.rkey());
                let case = format!("{path:?} {kind:?} reads: {reads}");
                let mut events = 0;
                for wr_id in 0..4 {
                    let operation = match reads {
                        true => SendOperation::Read { address, key },
                        false => SendOperation::Write { address, key },
                    };
                    pair.post(wr_id, operation, &[source.piece(0, 8)]).unwrap();
                    pair.until(wr_id as usize + 1, 0);
                    assert_eq!(pair.sent[wr_id as usize].status, Status::Success, "{case}");
                    let start = Instant::now();
                    while events == 0 && start.elapsed() < PATIENCE {
                        pair.turn();
                        events += established(&pair.b.context);
                    }
                }
                assert_eq!(events + established(&pair.b.context), 1, "{case}");
                assert_eq!(pair.qb.state(), QpState::ReadyToReceive);
                let direct = pagewire_nic::ConnectionReport::of_all(&pair.a.nic)[0].initiator_copies;
                assert_eq!(direct, if path == PathChoice::Local { 4 } else { 0 }, "{case}");
            }
        }
    }
}

/// A process that is stopped before anybody has sent to it answers no question: others' datagrams do not wait for that.
#[test]
fn datagrams_for_others_do_not_wait_for_a_stopped_process() {
    if !own_network::is_here() {
        return;
    }
    let [a, b] = [(); 2].map(|()| Side::new(PathChoice::Auto));
    let stopped = Side::without_thread(PathChoice::Auto);
    let [qa, qb, elsewhere] = [&a, &b, &stopped].map(|side| {
        let queue_pair = side.queue_pair(QueuePairType::Ud, Rights::empty());
        let to = |state, send_psn| QueuePairChange { state: Some(state), send_psn, ..Default::default() };
        queue_pair.modify(&to(QpState::ReadyToReceive, None)).unwrap();
        queue_pair.modify(&to(QpState::ReadyToSend, Some(0))).unwrap();
        queue_pair
    });
    let (source, target) = (a.buffer(8, all_rights()), b.buffer(48, all_rights()));
    let address = a.domain.create_ah(&a.vector()).unwrap();
    let start = Instant::now();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (wr_id, peer) in [(0, &elsewhere), (1, &qb), (2, &elsewhere), (3, &qb)] {
        qb.post_receive(&ReceiveRequest { wr_id, segments: &[target.piece(0, 48)] }).unwrap();
        let destination =
            Destination::Address { address: &address, queue_pair: peer.number(), queue_key: 0x1111 };
        let data = Data::Segments(&[source.piece(0, 8)]);
        let (operation, destination) = (SendOperation::Send, Some(destination));
        let (signaled, fence, solicited) = (true, false, false);
        qa.post_send(&SendRequest { wr_id, data, operation, signaled, fence, solicited, destination })
            .unwrap();
        qa.doorbell();
    }
    while (sent.len() < 4 || received.len() < 2) && start.elapsed() < PATIENCE {
        a.nic.progress();
        b.nic.progress();
        a.poll(&a.send_cq, &mut sent);
        b.poll(&b.recv_cq, &mut received);
    }
    assert_eq!((sent.len(), received.len()), (4, 2));
    // The handshake ends after 5 s.
    assert!(start.elapsed() < PATIENCE / 5, "after {:?}", start.elapsed());
}

/// A UC message that is longer than its receive is dropped, the receive takes the next one, and the queue pair goes on.
#[test]
fn long_message_is_dropped() {
    if !own_network::is_here() {
        return;
    }
    for path in PATHS {
        let mut pair = Pair::new(path, QueuePairType::Uc, all_rights());
        let (source, target) = (pair.a.buffer(64, all_rights()), pair.b.buffer(64, all_rights()));
        send_until_received(&mut pair, &source, &target);
        pair.received.clear();
        let sent = pair.sent.len();
        // Of those that it was heard by some may be left.
        for (wr_id, length) in [(1, 64), (2, 8)] {
            pair.receive(7, &[target.piece(0, 16)]);
            pair.post(wr_id, SendOperation::Send, &[source.piece(0, length)]).unwrap();
        }
        pair.until(sent + 2, 1);
        assert!(pair.received.iter().all(|done| done.status == Status::Success), "{path:?}");
        assert!(!pair.received.is_empty(), "{path:?}");
        assert_eq!(pair.qb.state(), QpState::ReadyToSend, "{path:?}");
    }
}

/// A datagram that is longer than its receive.
#[test]
fn long_datagram_is_dropped() {
    if !own_network::is_here() {
        return;
    }
    for path in PATHS {
        let [a, b] = [(); 2].map(|()| Side::new(path));
        let [qa, qb] = [&a, &b].map(|side| {
            let queue_pair = side.queue_pair(QueuePairType::Ud, Rights::empty());
            let to = |state, send_psn| QueuePairChange { state: Some(state), send_psn, ..Default::default() };
            queue_pair.modify(&to(QpState::ReadyToReceive, None)).unwrap();
            queue_pair.modify(&to(QpState::ReadyToSend, Some(0))).unwrap();
            queue_pair
        });
        let (source, target) = (a.buffer(64, all_rights()), b.buffer(64, all_rights()));
        let address = a.domain.create_ah(&a.vector()).unwrap();
        qb.post_receive(&ReceiveRequest { wr_id: 5, segments: &[target.piece(0, 48)] }).unwrap();
        for length in [64, 9, 8] {
            let destination =
                Destination::Address { address: &address, queue_pair: qb.number(), queue_key: 0x1111 };
            let data = Data::Segments(&[source.piece(0, length)]);
            let (operation, destination) = (SendOperation::Send, Some(destination));
            let (wr_id, signaled, fence, solicited) = (u64::from(length), true, false, false);
            qa.post_send(&SendRequest { wr_id, data, operation, signaled, fence, solicited, destination })
                .unwrap();
            qa.doorbell();
        }
        let start = Instant::now();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        while (sent.len() < 3 || received.is_empty()) && start.elapsed() < PATIENCE {
            a.nic.progress();
            b.nic.progress();
            a.poll(&a.send_cq, &mut sent);
            b.poll(&b.recv_cq, &mut received);
        }
        let received: Vec<_> = received.iter().map(|done| (done.wr_id, done.status)).collect();
        assert_eq!(received, [(5, Status::Success)], "{path:?}");
        assert_eq!(qb.state(), QpState::ReadyToSend, "{path:?}");
    }
}

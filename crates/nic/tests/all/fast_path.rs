//! Short SENDs leave at their post and are executed as they are taken from the ring or the socket, where nothing is in their way.

use crate::support::*;
use pagewire_fabric::HostFabric;
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::device::Mtu;
use pagewire_nic::*;
use std::time::{Duration, Instant};

/// Two engines that nobody but the test drives, connected over the network; their greetings have gone both ways.
fn settled() -> Pair {
    settled_over(PathChoice::Udp)
}

/// Two engines that nobody but the test drives, connected over a path; their greetings have gone both ways.
fn settled_over(path: PathChoice) -> Pair {
    let sides = (Side::without_thread(path), Side::without_thread(path));
    let mut pair = Pair::connect(sides.0, sides.1, QueuePairType::Rc, all_rights());
    run_until_quiet(&mut pair);
    pair
}

fn run_until_quiet(pair: &mut Pair) {
    let buffers = (pair.a.buffer(8, all_rights()), pair.b.buffer(8, all_rights()));
    let start = Instant::now();
    loop {
        pair.turn();
        pair.receive(0, &[buffers.1.piece(0, 8)]);
        let (sent, received) = (pair.sent.len(), pair.received.len());
        let at_once = !post_send(&pair.qa, 0, &[buffers.0.piece(0, 8)]);
        pair.qa.doorbell();
        pair.until(sent + 1, received + 1);
        (pair.sent, pair.received) = (Vec::new(), Vec::new());
        if at_once {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "no SEND leaves at once");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn packets_sent(side: &Side, queue_pair: &QueuePair<HostFabric>) -> u64 {
    let report = pagewire_nic::ConnectionReport::of_all(&side.nic)
        .into_iter()
        .find(|report| report.number == queue_pair.number());
    let report = report.expect("a report");
    report.udp_packets_sent + report.ring_packets_sent
}

/// What is executed at its post never comes to the send queue, and counts as well; what is executed from there counts once.
#[test]
fn every_send_request_that_ended_is_counted_once() {
    if !own_network::is_here() {
        return;
    }
    let state = |state| QueuePairChange { state: Some(state), ..Default::default() };
    for path in [PathChoice::Udp, PathChoice::Local] {
        let mut pair = settled_over(path);
        let (ours, theirs) = (pair.a.buffer(8192, all_rights()), pair.b.buffer(8192, all_rights()));
        let write = SendOperation::Write { address: theirs.address, key: theirs.region.rkey() };
        let short = [ours.piece(0, 8)];
        let post = |pair: &Pair, operation, pieces: &[ScatterGather]| {
            post_to(&pair.qa, 0, operation, Data::Segments(pieces)).unwrap()
        };
        let before = pair.qa.report();
        for round in 1..=3 {
            (pair.sent, pair.received) = (Vec::new(), Vec::new());
            let kept = post(&pair, write, &short);
            assert_eq!(kept, path == PathChoice::Udp, "a WRITE that nothing is before");
            pair.qa.doorbell();
            pair.until(1, 0);
            // Nothing is executed until the queue goes on.
            pair.qa.modify(&state(QpState::SendQueueDrain)).unwrap();
            assert!(post(&pair, write, &short) && post(&pair, write, &short));
            pair.qa.modify(&state(QpState::ReadyToSend)).unwrap();
            pair.receive(0, &[theirs.piece(0, 8192)]);
            pair.receive(1, &[theirs.piece(0, 8192)]);
            post(&pair, SendOperation::Send, &short);
            post(&pair, SendOperation::Send, &[ours.piece(0, 5000)]);
            pair.qa.doorbell();
            pair.until(5, 2);
            assert_eq!((pair.sent.len(), pair.received.len()), (5, 2));
            let now = pair.qa.report();
            assert_eq!(now.send_requests_completed, before.send_requests_completed + 5 * round, "{path:?}");
            assert_eq!(now.send_requests, 0);
            if path == PathChoice::Local {
                assert_eq!(now.initiator_copies, before.initiator_copies + 3 * round);
            }
        }
    }
}

fn success(wr_id: u64) -> Done {
    Done { wr_id, status: Status::Success }
}

#[test]
fn a_short_send_leaves_at_its_post() {
    if !own_network::is_here() {
        return;
    }
    const ROOM: usize = 8192;
    for (path, longest) in [(PathChoice::Udp, 256), (PathChoice::Local, 4096)] {
        let mut pair = settled_over(path);
        let (ours, theirs) = (pair.a.buffer(ROOM, all_rights()), pair.b.buffer(ROOM, all_rights()));
        ours.bytes.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value as u8);
        for length in [0_u32, 1, 3, 8, 255, 256, 257, 4095, 4096, 4097] {
            (pair.sent, pair.received) = (Vec::new(), Vec::new());
            theirs.bytes.fill(0);
            let (id, before) = (u64::from(length), packets_sent(&pair.a, &pair.qa));
            // In two pieces, of which one may be empty.
            let pieces = [ours.piece(0, length / 3), ours.piece(u64::from(length / 3), length - length / 3)];
            pair.receive(id, &[theirs.piece(1, 5000)]);
            let kept = post_send(&pair.qa, id, &pieces);
            assert_eq!(kept, length > longest, "{path:?} {length}");
            assert_eq!(packets_sent(&pair.a, &pair.qa), before + u64::from(!kept));
            pair.qa.doorbell();
            pair.until(1, 1);
            assert_eq!((&pair.sent[..], &pair.received[..]), (&[success(id)][..], &[success(id)][..]));
            let end = 1 + length as usize;
            assert!(theirs.bytes[1..end] == ours.bytes[..length as usize], "{path:?} {length}");
            assert!(theirs.bytes[..1].iter().chain(&theirs.bytes[end..]).all(|&byte| byte == 0));
        }
    }
}

#[test]
fn second_send_waits_for_doorbell() {
    if !own_network::is_here() {
        return;
    }
    let mut pair = settled();
    let (ours, theirs) = (pair.a.buffer(8, all_rights()), pair.b.buffer(8, all_rights()));
    (1..=3).for_each(|id| pair.receive(id, &[theirs.piece(0, 8)]));
    assert_eq!([1, 2, 3].map(|id| post_send(&pair.qa, id, &[ours.piece(0, 8)])), [false, true, true]);
    pair.qa.doorbell();
    pair.until(3, 3);
    assert_eq!((&pair.sent, &pair.received), (&pair.received, &[1, 2, 3].map(success).to_vec()));
}

/// Those that leave at their post and those that are kept come in the order in which they were posted.
#[test]
fn inside_a_host_sends_of_all_lengths_come_in_order() {
    if !own_network::is_here() {
        return;
    }
    const ROOM: usize = 8192;
    const INLINE: [u8; 1024] = [0xA5; 1024];
    let mut pair = settled_over(PathChoice::Local);
    let (ours, theirs) = (pair.a.buffer(ROOM, all_rights()), pair.b.buffer(8 * ROOM, all_rights()));
    ours.bytes.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value as u8);
    // Nothing leaves past what is kept.
    let lengths =
        [(8_u32, false), (300, false), (4096, false), (4097, true), (8, true), (257, true), (0, true)];
    let place = |id: u64| id * ROOM as u64;
    for (id, (length, kept)) in (0..).zip(lengths) {
        pair.receive(id, &[theirs.piece(place(id), ROOM as u32)]);
        assert_eq!(post_send(&pair.qa, id, &[ours.piece(id, length)]), kept, "{length}");
    }
    pair.qa.doorbell();
    pair.until(7, 7);
    let all: Vec<Done> = (0..7).map(success).collect();
    assert_eq!((&pair.sent, &pair.received), (&all, &all));
    for (id, (length, _)) in (0..).zip(lengths) {
        let (from, to, length) = (id as usize, place(id) as usize, length as usize);
        assert!(theirs.bytes[to..to + length] == ours.bytes[from..from + length], "{length}");
    }
    pair.receive(7, &[theirs.piece(place(7), ROOM as u32)]);
    assert!(!post_send_of(&pair.qa, 7, Data::Inline(&[&INLINE[..24], &INLINE[24..]])));
    pair.until(8, 8);
    let at = place(7) as usize;
    assert!(theirs.bytes[at..at + INLINE.len()] == INLINE);
}

/// What several queue pairs share is given out in turns.
#[test]
fn queue_pairs_that_share_the_network_wait_their_turn() {
    if !own_network::is_here() {
        return;
    }
    let mut pair = settled();
    let (ours, theirs) = (pair.a.buffer(8, all_rights()), pair.b.buffer(8, all_rights()));
    let other = pair.a.queue_pair(QueuePairType::Rc, all_rights());
    to_rtr(&pair.a, &other, pair.qb.number());
    to_rts(&other, TIMERS);
    pair.a.nic.progress();
    pair.receive(1, &[theirs.piece(0, 8)]);
    assert!(post_send(&pair.qa, 1, &[ours.piece(0, 8)]));
    pair.qa.doorbell();
    pair.until(1, 1);
    assert_eq!((&pair.sent[..], &pair.received[..]), (&[success(1)][..], &[success(1)][..]));
    other.destroy().unwrap();
    run_until_quiet(&mut pair);
}

/// Before the peers know each other losses are met by count, and the way may change.
#[test]
fn before_the_greetings_are_over_nothing_leaves_at_its_post() {
    if !own_network::is_here() {
        return;
    }
    let (a, b) = (Side::without_thread(PathChoice::Udp), Side::without_thread(PathChoice::Udp));
    let [qa, _qb] = connect_without_threads([&a, &b], TIMERS);
    let ours = a.buffer(8, all_rights());
    assert!(post_send(&qa, 1, &[ours.piece(0, 8)]), "b has not been driven since it knows a");
}

/// The receiver is the judge of what fits: the ends may have been given different path MTUs.
#[test]
fn a_send_longer_than_the_receivers_mtu_is_refused_as_ever() {
    if !own_network::is_here() {
        return;
    }
    let (a, b) = (Side::without_thread(PathChoice::Udp), Side::without_thread(PathChoice::Udp));
    let (qa, qb) =
        (a.queue_pair(QueuePairType::Rc, all_rights()), b.queue_pair(QueuePairType::Rc, all_rights()));
    to_rtr(&a, &qa, qb.number());
    let narrow = QueuePairChange {
        state: Some(QpState::ReadyToReceive),
        address: Some(b.vector()),
        path_mtu: Some(Mtu::Mtu256),
        destination: Some(qa.number()),
        receive_psn: Some(0xFF_FFF0),
        max_dest_read_atomic: Some(4),
        min_rnr_timer: Some(1),
        ..Default::default()
    };
    qb.modify(&narrow).unwrap();
    to_rts(&qa, TIMERS);
    to_rts(&qb, TIMERS);
    let mut pair = Pair { a, b, qa, qb, sent: Vec::new(), received: Vec::new() };
    run_until_quiet(&mut pair);
    let (ours, theirs) = (pair.a.buffer(512, all_rights()), pair.b.buffer(512, all_rights()));
    pair.receive(1, &[theirs.piece(0, 512)]);
    post_send(&pair.qa, 1, &[ours.piece(0, 300)]);
    pair.qa.doorbell();
    pair.until(1, 1);
    assert_eq!(pair.sent, [Done { wr_id: 1, status: Status::RemoteInvalidRequest }]);
    assert!(theirs.bytes.iter().all(|&byte| byte == 0));
}

/// A program with one completion queue learns that its SEND is complete before it gets what the peer sent after it had acknowledged that.
#[test]
fn acknowledgement_after_hold_completes_before_answer() {
    if !own_network::is_here() {
        return;
    }
    /// The allocator takes as much from the kernel. Its own page and that of huge pages are before the middle, where no page is yet.
    const ROOM: usize = 8 << 20;
    let mut a = Side::without_thread(PathChoice::Udp);
    a.send_cq = a.recv_cq.clone();
    // Threads bring pages in, so the peer sends HOLD.
    let b =
        Side::with_options(Options { path: PathChoice::Udp, faults_at_once: false, ..Options::default() });
    let mut pair = Pair::connect(a, b, QueuePairType::Rc, all_rights());
    run_until_quiet(&mut pair);
    let (ours, theirs) = (pair.a.buffer(8, all_rights()), pair.b.buffer(ROOM, all_rights()));
    pair.receive(1, &[theirs.piece(ROOM as u64 / 2, 8)]);
    pair.qa.post_receive(&ReceiveRequest { wr_id: 2, segments: &[ours.piece(0, 8)] }).unwrap();
    let before = packets_sent(&pair.b, &pair.qb);
    assert!(!post_send(&pair.qa, 3, &[ours.piece(0, 8)]));
    let start = Instant::now();
    while pair.received.is_empty() {
        assert!(start.elapsed() < PATIENCE);
        pair.b.nic.progress();
        pair.b.recv_cq.poll(64, &mut |_| pair.received.push(success(1)));
    }
    pair.b.nic.progress();
    assert_eq!(packets_sent(&pair.b, &pair.qb), before + 2, "HOLD and the acknowledgement");
    assert!(!post_send(&pair.qb, 4, &[theirs.piece(0, 8)]));
    pair.until(2, 1);
    assert_eq!(pair.sent, [success(3), success(2)]);
}

/// Without a receive nothing is executed; the requester comes back.
#[test]
fn a_send_without_a_receive_comes_back() {
    if !own_network::is_here() {
        return;
    }
    let mut pair = settled();
    let (ours, theirs) = (pair.a.buffer(8, all_rights()), pair.b.buffer(8, all_rights()));
    ours.bytes.fill(7);
    let before = packets_sent(&pair.b, &pair.qb);
    assert!(!post_send(&pair.qa, 1, &[ours.piece(0, 8)]));
    let start = Instant::now();
    while packets_sent(&pair.b, &pair.qb) == before && start.elapsed() < PATIENCE {
        pair.b.nic.progress();
    }
    pair.receive(2, &[theirs.piece(0, 8)]);
    pair.until(1, 1);
    assert_eq!((&pair.sent[..], &pair.received[..]), (&[success(1)][..], &[success(2)][..]));
    assert_eq!(theirs.bytes, [7; 8]);
}

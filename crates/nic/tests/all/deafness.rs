//! A process that did not get to run for a while: what its peers have answered meanwhile waits in its sockets.

use crate::support::*;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::*;
use std::time::{Duration, Instant};

/// More than one round takes off the sockets.
const CONNECTIONS: usize = 300;
/// 1.07 s, and no second try.
const ONE_TRY: Timers = Timers { timeout: 18, retry_count: 0, rnr_retry: 0 };

#[test]
fn answers_that_wait_are_no_silence() {
    if !own_network::is_here() {
        return;
    }
    let (a, b) = (Side::without_thread(PathChoice::Udp), Side::new(PathChoice::Udp));
    let (from, to) = (a.buffer(4096, all_rights()), b.buffer(8 * CONNECTIONS, all_rights()));
    let pairs: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let qa = a.queue_pair(QueuePairType::Rc, all_rights());
            let qb = b.queue_pair(QueuePairType::Rc, all_rights());
            to_rtr(&a, &qa, qb.number());
            to_rtr(&b, &qb, qa.number());
            to_rts(&qa, ONE_TRY);
            to_rts(&qb, ONE_TRY);
            (qa, qb)
        })
        .collect();
    let write = |connections: usize| {
        for (index, (qa, _)) in pairs[..connections].iter().enumerate() {
            let remote = to.address + 8 * index as u64;
            qa.post_send(&SendRequest {
                wr_id: index as u64,
                data: Data::Segments(&[from.piece(0, 8)]),
                operation: SendOperation::Write { address: remote, key: to.region.rkey() },
                signaled: true,
                fence: false,
                solicited: false,
                destination: None,
            })
            .unwrap();
            qa.doorbell();
        }
    };
    // The port is steered once nothing of a round of requests had to be handed on: what `a` gets of the others' it would
    // keep from them while it is deaf.
    let handed_on = || [&a, &b].map(|side| side.nic.fabric().counters().forwarded.get());
    let start = Instant::now();
    loop {
        let (before, mut done) = (handed_on(), Vec::new());
        write(1);
        while done.is_empty() {
            a.nic.progress();
            a.poll(&a.send_cq, &mut done);
        }
        assert_eq!(done[0].status, Status::Success);
        if handed_on() == before && start.elapsed() > Duration::from_millis(200) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "datagrams are handed on for ever");
    }
    write(CONNECTIONS);
    // All is answered, and every timer of `a` is over, before `a` looks.
    std::thread::sleep(Duration::from_millis(2000));
    let mut done = Vec::new();
    let start = Instant::now();
    while done.len() < CONNECTIONS && start.elapsed() < PATIENCE {
        a.nic.progress();
        a.poll(&a.send_cq, &mut done);
    }
    let failed = done.iter().filter(|done| done.status != Status::Success).count();
    assert_eq!((done.len(), failed), (CONNECTIONS, 0));
}

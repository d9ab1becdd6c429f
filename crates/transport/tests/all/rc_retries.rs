//! Timeouts, receivers that are not ready, and how often a request is sent again.

use crate::support::host::Packet;
use crate::support::network::{Bottleneck, DELAY};
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::Syndrome;

#[test]
fn retry_count_n_makes_n_plus_one_transmissions() {
    for count in 0..=7 {
        let mut pair = pair_with(|_, rts| rts.retry_count = count);
        pair.filter = Some(Box::new(|_, _| false));
        pair.post_zeroed(0, write(0, 8));
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
        let times: Vec<_> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
        assert_eq!(times, (0..=u64::from(count)).map(|n| n * (4096 << 14)).collect::<Vec<_>>());
        assert_eq!(pair.now, (u64::from(count) + 1) * (4096 << 14));
        assert_eq!(pair.ends[0].host.events, []);
    }
}

#[test]
fn progress_restores_the_retries() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1);
    // Each of ten packets is lost once, alone.
    let mut seen = std::collections::HashSet::new();
    pair.filter = Some(Box::new(move |from, packet| match packet {
        Packet::Standard { header, .. } if from == 0 => !seen.insert(header.bth.psn),
        _ => true,
    }));
    for n in 0..10 {
        pair.post_zeroed(0, WorkRequest { fence: true, ..read(n * 8, 8) });
    }
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 10]);
    assert_eq!(pair.ends[0].connection.counters().timeouts, 10);
}

#[test]
fn no_timeout_waits_for_ever() {
    let mut pair = pair_with(|_, rts| rts.timeout = 0);
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), []);
    assert_eq!(pair.ends[0].connection.deadline(), None);
    assert_eq!(sent(&pair, 0).len(), 1);
}

#[test]
fn a_selective_peer_keeps_the_retry_budget() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 2).selective();
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    assert_eq!(pair.now, 3 * (4096 << 14));
    assert!(sent(&pair, 0).len() > 3, "early repetitions are free");
}

/// The early timer is shorter than the way, so that whatever is sent first is repeated: from that on the way's length is known.
#[test]
fn long_rtt_repeats_first_message_only() {
    for delay in [15, 40, 250, 400] {
        let mut pair = pair_with(|_, rts| rts.timeout = 20).selective();
        pair.faults.bottleneck = Some(Bottleneck { pace: 1, queue: 1 << 20, delay: delay * 1_000_000 });
        pair.post_zeroed(0, write(0, 8));
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        let first = sent(&pair, 0).len();
        assert!(first > 1, "{delay} ms: {first}");
        for done in 1..5 {
            pair.post_zeroed(0, write(0, 8));
            pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
            assert_eq!(sent(&pair, 0).len(), first + done, "{delay} ms");
        }
    }
}

/// What the first message took is no measure of the way if it was lost, or waited: three quarters of the budget are left to repetitions.
#[test]
fn a_first_message_that_came_late_leaves_room_for_repetitions() {
    let mut pair = pair_with(|_, rts| (rts.timeout, rts.retry_count) = (12, 7)).selective();
    let budget = 8 * (4096 << 12);
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8));
    pair.run(budget / 2);
    pair.filter = None;
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    let before = sent(&pair, 0).len();
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RetryExceeded]);
    let repetitions = (sent(&pair, 0).len() - before) as u64;
    assert!(repetitions > limits::BUDGET_PROBES / 2, "{repetitions}");
}

#[test]
fn receiver_not_ready_waits_and_counts() {
    for count in 0..7 {
        let mut pair = pair_with(|_, rts| rts.rnr_retry = count);
        pair.post_zeroed(0, send(8));
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::RnrRetryExceeded]);
        let times: Vec<_> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
        let period = 2 * DELAY + 640_000;
        assert_eq!(times, (0..=u64::from(count)).map(|n| n * period).collect::<Vec<_>>());
        assert_eq!(naks(&pair, 1), vec![Syndrome::ReceiverNotReady { timer: 12 }; usize::from(count) + 1]);
        assert!(!pair.ends[1].connection.is_dead());
    }
}

#[test]
fn receiver_not_ready_without_end() {
    for on in [false, true] {
        let mut pair = pair_with(|_, _| ());
        if on {
            pair = pair.selective();
        }
        pair.post_zeroed(0, send(3000));
        pair.post_zeroed(0, write(0, 10));
        pair.run(20_000_000);
        assert_eq!(statuses(&pair, 0), []);
        assert!(pair.ends[0].connection.counters().rnr_naks_received > 20);
        pair.ends[1].host.post_receive(3000);
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
    }
}

#[test]
fn progress_restores_the_rnr_retries() {
    let mut pair = pair_with(|_, rts| rts.rnr_retry = 1);
    for count in 1..=3 {
        pair.post_zeroed(0, send(8));
        pair.run(pair.now + 300_000);
        assert_eq!(pair.ends[0].connection.counters().rnr_naks_received, count);
        pair.ends[1].host.post_receive(8);
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), vec![Status::Success; count as usize]);
    }
}

#[test]
fn a_receiver_that_is_not_ready_restores_the_retries() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1);
    // Lost, refused, lost, taken.
    let mut sent = 0;
    pair.filter = Some(Box::new(move |from, _| {
        sent += u32::from(from == 0);
        from != 0 || sent % 2 == 0
    }));
    pair.post_zeroed(0, send(8));
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.counters().rnr_naks_received == 0);
    pair.ends[1].host.post_receive(8);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert_eq!(pair.ends[0].connection.counters().timeouts, 2);
}

#[test]
fn write_with_immediate_needs_a_receive_before_it_writes() {
    let mut pair = pair_with(|_, _| ());
    pair.post(0, write_immediate(0, 8, 7), vec![1; 8]);
    pair.run(10_000_000);
    assert_eq!(pair.ends[1].host.memory.borrow()[..8], [0; 8]);
    pair.ends[1].host.post_receive(0);
    pair.run(FOREVER);
    assert_eq!(pair.ends[1].host.memory.borrow()[..8], [1; 8]);
    let arrival = Arrival {
        kind: ArrivalKind::WriteImmediate,
        length: 8,
        immediate: Some(7),
        invalidated: None,
        solicited: false,
    };
    assert_eq!(pair.ends[1].host.received[0].result, Ok(arrival));
}

//! One rule of the protocol a test: NAKs, counts, timers, duplicates, order.

mod support;

use std::cell::Cell;
use std::rc::Rc;

use pagewire_transport::*;
use pagewire_wire::{Aeth, Header, Nak, Opcode, Operation as Code, Own, Reth, Syndrome, Transport};
use support::host::Packet;
use support::network::{DELAY, MEMORY, Pair};
use support::*;

const FOREVER: u64 = u64::MAX / 2;

fn statuses(pair: &Pair, end: usize) -> Vec<Status> {
    pair.ends[end].host.completions.iter().map(|completion| completion.1).collect()
}

fn logged(mut pair: Pair) -> Pair {
    pair.keep_log = true;
    pair
}

/// Headers that an end handed to the network, lost or not.
fn sent(pair: &Pair, end: usize) -> Vec<(u64, Header)> {
    pair.log
        .iter()
        .filter_map(|(time, from, packet)| match packet {
            Packet::Standard { header, .. } if *from == end => Some((*time, *header)),
            _ => None,
        })
        .collect()
}

fn codes(pair: &Pair, end: usize) -> Vec<Code> {
    sent(pair, end).iter().map(|(_, header)| header.bth.opcode.operation().unwrap()).collect()
}

fn naks(pair: &Pair, end: usize) -> Vec<Syndrome> {
    let aeths = sent(pair, end).into_iter().filter_map(|(_, header)| header.aeth);
    aeths.map(|aeth| aeth.syndrome).filter(|syndrome| !matches!(syndrome, Syndrome::Ack { .. })).collect()
}

fn pair_with(change: impl Fn(&mut RcSettings, &mut RequesterSettings)) -> Pair {
    let (mut rc, mut rts) = (settings(lossy(1024), 0x22, 0), requester(0x100));
    change(&mut rc, &mut rts);
    logged(Pair::with(rc, rts, RcSettings { destination: 0x11, ..rc }, rts, 1))
}

/// Loses the first `count` packets that `matches`.
fn lose(pair: &mut Pair, count: usize, matches: impl Fn(usize, &Packet) -> bool + 'static) {
    let mut left = count;
    pair.filter = Some(Box::new(move |from, packet| {
        let hit = left > 0 && matches(from, packet);
        left -= usize::from(hit);
        !hit
    }));
}

fn is(packet: &Packet, wanted: Code) -> bool {
    matches!(packet, Packet::Standard { header, .. } if header.bth.opcode.operation() == Some(wanted))
}

/// A pair whose second end has no requests of its own, and one work request of the first that fails.
fn refused(work: Work, prepare: impl Fn(&mut Pair)) -> Pair {
    let mut pair = logged(Pair::new(lossy(1024), 1));
    prepare(&mut pair);
    let good = write(0, 10);
    pair.post_zeroed(0, good);
    pair.post_zeroed(0, work);
    pair.post_zeroed(0, good);
    pair.run(FOREVER);
    assert_eq!(pair.ends[0].connection.outstanding(), 1, "what is behind is the caller's to flush");
    assert!(pair.ends.iter().all(|end| end.connection.is_dead()));
    assert_eq!(pair.ends[0].host.events, []);
    pair
}

#[test]
fn wrong_key_is_remote_access() {
    let foreign = RemoteAddress { address: BASE, key: KEY + 1 };
    let outside = RemoteAddress { address: BASE + MEMORY as u64 - 7, key: KEY };
    for remote in [foreign, outside] {
        for operation in [
            Operation::Write { remote, immediate: None },
            Operation::Write { remote, immediate: Some(1) },
            Operation::Read { remote },
        ] {
            let pair = refused(work(operation, 3000), |pair| pair.ends[1].host.post_receive(0));
            assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
            assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::RemoteAccess)]);
            assert_eq!(pair.ends[1].host.events, [Event::AccessError]);
            assert_eq!(pair.ends[1].host.receives_posted(), 1, "no receive is consumed");
        }
    }
    let atomic = Operation::Atomic { remote: foreign, atomic: Atomic::FetchAdd { add: 1 } };
    let pair = refused(work(atomic, 8), |_| ());
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
    assert_eq!(pair.ends[1].host.atomics_run, 0);
}

#[test]
fn unaligned_atomic_is_invalid() {
    let pair = refused(fetch_add(4, 1), |_| ());
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteInvalidRequest]);
    assert_eq!(pair.ends[1].host.events, [Event::RequestError]);
}

#[test]
fn operations_that_are_not_allowed_are_invalid() {
    for work in [write(0, 8), read(0, 8), fetch_add(0, 1)] {
        let mut pair = pair_with(|_, _| ());
        let none = RcUpdate { remote_rights: Some(RemoteRights::default()), ..RcUpdate::default() };
        pair.ends[1].connection.update(none);
        pair.post_zeroed(0, work);
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::RemoteInvalidRequest]);
        assert_eq!(pair.ends[1].host.events, [Event::RequestError]);
    }
}

#[test]
fn too_many_reads_are_invalid() {
    let mut pair = pair_with(|rc, _| rc.max_dest_rd_atomic = 0);
    pair.post_zeroed(0, read(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RemoteInvalidRequest]);
}

#[test]
fn short_receive_is_an_error_on_both_sides() {
    let pair = refused(send(3000), |pair| pair.ends[1].host.post_receive(2000));
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteInvalidRequest]);
    assert_eq!(pair.ends[1].host.received[0].result, Err(Status::LocalLength));
    assert_eq!(pair.ends[1].host.events, [Event::RequestError]);
}

#[test]
fn unreachable_receive_is_remote_operational() {
    let pair = refused(send(30), |pair| {
        pair.ends[1].host.post_receive(2000);
        pair.ends[1].host.deny_receive = Some(Denial::LocalProtection);
    });
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteOperation]);
    assert_eq!(pair.ends[1].host.received[0].result, Err(Status::LocalProtection));
    assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::RemoteOperational)]);
}

#[test]
fn unreachable_memory_is_remote_operational() {
    let pair = {
        let mut pair = logged(Pair::new(lossy(1024), 1));
        pair.ends[1].host.deny_write = Some(Denial::Operational);
        pair.post_zeroed(0, write(0, 30));
        pair.run(FOREVER);
        pair
    };
    assert_eq!(statuses(&pair, 0), [Status::RemoteOperation]);
    let pair = refused(read(0, 5000), |pair| pair.ends[1].host.deny_response = Some(Denial::RemoteAccess));
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
    assert_eq!(pair.ends[1].host.events, [Event::AccessError]);
}

#[test]
fn failed_invalidation_is_an_error() {
    let pair = refused(work(Operation::Send { immediate: None, invalidate: Some(9) }, 4), |pair| {
        pair.ends[1].host.post_receive(2000);
        pair.ends[1].host.deny_invalidate = Some(Denial::RemoteAccess);
    });
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
    assert_eq!(pair.ends[1].host.received[0].result, Err(Status::RemoteInvalidRequest));
}

#[test]
fn local_errors_come_after_what_was_posted_before() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, read(0, 5000));
    pair.post_zeroed(0, write(0, 3000));
    let id = pair.post_zeroed(0, write(0, 3000));
    pair.post_zeroed(0, write(0, 3000));
    pair.ends[0].host.deny_transmit = Some((id, Denial::LocalProtection));
    // Even where what was before is lost.
    lose(&mut pair, 3, |from, _| from == 0);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::Success, Status::LocalProtection]);
    assert!(pair.ends[0].connection.is_dead());
    assert!(!pair.ends[1].connection.is_dead());
}

#[test]
fn a_local_error_waits_for_reads_too() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, read(0, 5000));
    let id = pair.post_zeroed(0, write(0, 3000));
    pair.ends[0].host.deny_transmit = Some((id, Denial::LocalProtection));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::LocalProtection]);
    assert_eq!(pair.now, 2 * DELAY);
}

#[test]
fn unreachable_response_buffer_is_local_protection() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, write(0, 3000));
    pair.post_zeroed(0, read(0, 5000));
    pair.ends[0].host.deny_place = Some(Denial::LocalProtection);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::LocalProtection]);
}

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
        pair.post_zeroed(0, Work { fence: true, ..read(n * 8, 8) });
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

#[test]
fn a_gap_makes_one_nak() {
    let mut pair = pair_with(|_, _| ());
    lose(&mut pair, 1, |from, packet| from == 0 && is(packet, Code::WriteMiddle));
    pair.post(0, write(0, 5000), vec![3; 5000]);
    pair.run(FOREVER);
    assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::PsnSequence)]);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    let psns: Vec<_> = sent(&pair, 0).iter().map(|(_, header)| header.bth.psn - 0x100).collect();
    assert_eq!(psns, [0, 1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
}

#[test]
fn every_gap_makes_a_nak() {
    let mut pair = pair_with(|_, _| ());
    lose(&mut pair, 1, |from, packet| from == 0 && is(packet, Code::WriteMiddle));
    pair.post(0, write(0, 5000), vec![3; 5000]);
    pair.run(FOREVER);
    lose(&mut pair, 1, |from, packet| from == 0 && is(packet, Code::WriteMiddle));
    pair.post(0, write(0, 5000), vec![4; 5000]);
    pair.run(FOREVER);
    assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::PsnSequence); 2]);
    assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
}

#[test]
fn a_read_that_is_being_answered_is_not_answered_twice() {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    let request =
        Header { reth: Some(Reth { address: BASE, key: KEY, length: 5000 }), ..header(Code::ReadRequest, 0) };
    for _ in 0..2 {
        assert_eq!(connection.receive(Time(0), &request, Payload::Bytes(&[]), host), Outcome::Done(()));
    }
    connection.drive(Time(0), host);
    assert_eq!(host.sent.len(), 5);
    // Afterwards it is: the responses were lost.
    assert_eq!(connection.receive(Time(0), &request, Payload::Bytes(&[]), host), Outcome::Done(()));
    connection.drive(Time(0), host);
    assert_eq!(host.sent.len(), 10);
}

#[test]
fn a_gap_between_pagewires_is_filled_alone() {
    let mut pair = pair_with(|_, _| ()).selective();
    lose(&mut pair, 1, |from, packet| from == 0 && is(packet, Code::WriteMiddle));
    pair.post(0, write(0, 5000), vec![3; 5000]);
    pair.run(FOREVER);
    assert_eq!(naks(&pair, 1), []);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    let psns: Vec<_> = sent(&pair, 0).iter().map(|(_, header)| header.bth.psn - 0x100).collect();
    assert_eq!(psns, [0, 1, 2, 3, 4, 1]);
    assert_eq!(pair.ends[0].connection.counters().selective_retransmissions, 1);
    assert_eq!(pair.ends[0].connection.counters().probes, 0);
}

#[test]
fn a_lost_response_is_asked_for_from_the_middle() {
    for selective in [false, true] {
        let mut pair = pair_with(|_, _| ());
        if selective {
            pair = pair.selective();
        }
        pair.ends[1].host.memory.borrow_mut()[..5000].fill(9);
        lose(&mut pair, 1, |from, packet| {
            let psn = matches!(packet, Packet::Standard { header, .. } if header.bth.psn == 0x102);
            from == 1 && psn
        });
        let id = pair.post_zeroed(0, read(0, 5000));
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success]);
        assert!(pair.ends[0].host.buffers[&id] == [9; 5000]);
        let requests = sent(&pair, 0);
        assert_eq!(requests.len(), 2);
        let reth = requests[1].1.reth.unwrap();
        assert_eq!((requests[1].1.bth.psn, reth.address), (0x102, BASE + 2048));
        assert_eq!(reth.length, if selective { 1024 } else { 5000 - 2048 });
        assert_eq!(pair.ends[0].connection.counters().implied_naks, 1);
        assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
    }
}

#[test]
fn an_acknowledgement_past_a_read_is_an_implied_nak() {
    for selective in [false, true] {
        let mut pair = pair_with(|_, _| ());
        if selective {
            pair = pair.selective();
        }
        lose(&mut pair, 2, |_, packet| {
            is(packet, Code::ReadResponseFirst) || is(packet, Code::ReadResponseLast)
        });
        pair.post_zeroed(0, read(0, 2000));
        pair.post(0, write(0, 8), vec![1; 8]);
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
        assert_eq!(pair.ends[0].connection.counters().implied_naks, 1);
        assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
        if selective {
            // What was acknowledged is not sent again.
            assert_eq!(codes(&pair, 0), [Code::ReadRequest, Code::WriteOnly, Code::ReadRequest]);
            assert_eq!(pair.ends[0].connection.counters().probes, 0);
        }
    }
}

#[test]
fn a_repeated_atomic_is_answered_from_memory() {
    let mut pair = pair_with(|_, _| ());
    lose(&mut pair, 3, |_, packet| is(packet, Code::AtomicAcknowledge));
    let ids: Vec<_> = (0..4).map(|_| pair.post_zeroed(0, fetch_add(0, 5))).collect();
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 4]);
    assert_eq!(pair.ends[1].host.atomics_run, 4);
    let values: Vec<_> = ids
        .iter()
        .map(|id| u64::from_ne_bytes(pair.ends[0].host.buffers[id][..].try_into().unwrap()))
        .collect();
    assert_eq!(values, [0, 5, 10, 15]);
    assert!(pair.ends[1].connection.counters().duplicates > 0);
}

#[test]
fn a_repeated_send_is_acknowledged_and_not_executed() {
    let mut pair = pair_with(|_, _| ());
    lose(&mut pair, 2, |from, packet| from == 1 && is(packet, Code::Acknowledge));
    pair.ends[1].host.post_receive(100);
    pair.ends[1].host.post_receive(100);
    pair.post(0, send(8), vec![1; 8]);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert_eq!(pair.ends[1].host.received.len(), 1);
    assert_eq!(pair.ends[1].host.receives_posted(), 1);
    assert_eq!(pair.ends[0].connection.counters().timeouts, 2);
}

/// Volume 1, section 9.7.5.1.2: acknowledgements may be coalesced.
#[test]
fn an_acknowledgement_that_is_held_follows_the_answer_or_leaves_when_it_is_asked_for() {
    let mut pair = pair_with(|_, _| ());
    let host = &mut pair.ends[1].host;
    (0..4).for_each(|_| host.post_receive(8));
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    connection.start_requester(requester(0x100));
    let sent = |packets: &mut Vec<Packet>| -> Vec<_> {
        let code_and_psn = |packet| match packet {
            Packet::Standard { header, .. } => (header.bth.opcode.operation().unwrap(), header.bth.psn),
            Packet::Own(own) => panic!("{own:?}"),
        };
        std::mem::take(packets).into_iter().map(code_and_psn).collect()
    };
    for psn in 0..4 {
        let mut request = header(Code::SendOnly, psn);
        request.bth.acknowledge = true;
        assert_eq!(connection.receive(Time(0), &request, Payload::Bytes(&[1; 8]), host), Outcome::Done(()));
        assert_eq!(connection.drive_holding(Time(0), host), Drive::Idle);
        assert!(connection.owes_acknowledgement());
        assert_eq!(sent(&mut host.sent), []);
        if psn == 0 {
            connection.drive(Time(0), host);
            assert_eq!(sent(&mut host.sent), [(Code::Acknowledge, 0)]);
            assert!(!connection.owes_acknowledgement());
        }
    }
    host.buffers.insert(WorkId(0), vec![2; 8]);
    connection.post(send(8));
    assert_eq!(connection.drive_holding(Time(0), host), Drive::Idle);
    assert_eq!(sent(&mut host.sent), [(Code::SendOnly, 0x100), (Code::Acknowledge, 3)]);
    assert!(!connection.owes_acknowledgement());
}

#[test]
fn a_repetition_reads_no_more_than_was_asked_for() {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    for (length, answers) in [(1000, 1), (1025, 0), (5000, 0), (900, 1)] {
        let request =
            Header { reth: Some(Reth { address: BASE, key: KEY, length }), ..header(Code::ReadRequest, 0) };
        assert_eq!(connection.receive(Time(0), &request, Payload::Bytes(&[]), host), Outcome::Done(()));
        connection.drive(Time(0), host);
        assert_eq!(std::mem::take(&mut host.sent).len(), answers, "{length}");
    }
}

/// The requester goes by what it has got: with the rest of a READ repeated it may have another one outstanding, though
/// this side has not come to the end of what it wanted to send before.
#[test]
fn a_read_whose_rest_was_repeated_is_not_outstanding() {
    const MTU: u32 = 256;
    // More than goes out in one turn.
    const FIRST: u32 = limits::DRIVE_PACKETS + 36;
    let mut pair = Pair::new(lossy(MTU), 1);
    let host = &mut pair.ends[1].host;
    let rules = settings(lossy(MTU), 0x11, 0);
    let mut connection = RcConnection::new(rules);
    let read = |psn: u32, packets: u32| {
        let address = BASE + u64::from(psn) * u64::from(MTU);
        let reth = Some(Reth { address, key: KEY, length: packets * MTU });
        Header { reth, ..header(Code::ReadRequest, psn) }
    };
    let mut requests = vec![read(0, FIRST)];
    requests.extend((1..u32::from(rules.max_dest_rd_atomic)).map(|one| read(FIRST + one - 1, 1)));
    for request in &requests {
        assert_eq!(connection.receive(Time(0), request, Payload::Bytes(&[]), host), Outcome::Done(()));
    }
    connection.drive(Time(0), host);
    let lost = read(40, FIRST - 40);
    assert_eq!(connection.receive(Time(0), &lost, Payload::Bytes(&[]), host), Outcome::Done(()));
    connection.drive(Time(0), host);
    let psns = |sent: &[Packet]| -> Vec<u32> {
        let headers = sent.iter().map(|packet| match packet {
            Packet::Standard { header, .. } => *header,
            Packet::Own(own) => panic!("{own:?}"),
        });
        headers
            .inspect(|header| {
                let syndrome = header.aeth.map(|aeth| aeth.syndrome);
                assert!(!matches!(syndrome, Some(Syndrome::Nak(_))), "{header:?}");
            })
            .map(|header| header.bth.psn)
            .collect()
    };
    let have = psns(&host.sent);
    assert!((0..FIRST).all(|psn| have.contains(&psn)), "the first READ is done: {have:?}");
    let last = FIRST + u32::from(rules.max_dest_rd_atomic) - 1;
    assert_eq!(connection.receive(Time(0), &read(last, 1), Payload::Bytes(&[]), host), Outcome::Done(()));
    while matches!(connection.drive(Time(0), host), Drive::Again) {}
    let have = psns(&host.sent);
    assert!((0..=last).all(|psn| have.contains(&psn)), "{have:?}");
}

#[test]
fn a_read_that_pretends_to_be_a_repetition_needs_the_right() {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    let none = RemoteRights { read: false, write: true, atomic: true };
    let mut connection =
        RcConnection::new(RcSettings { remote_rights: none, ..settings(lossy(1024), 0x11, 0x50) });
    let reth = Some(Reth { address: BASE, key: KEY, length: 1000 });
    let request = Header { reth, ..header(Code::ReadRequest, 0x4f) };
    assert_eq!(connection.receive(Time(0), &request, Payload::Bytes(&[]), host), Outcome::Done(()));
    connection.drive(Time(0), host);
    assert!(host.sent.is_empty() && !connection.is_dead());
    assert_eq!(connection.counters().dropped, 1);
}

#[test]
fn many_gaps_in_one_read_need_no_timer() {
    let mut pair = pair_with(|rc, rts| (rc.max_dest_rd_atomic, rts.max_rd_atomic) = (1, 1)).selective();
    // Every fourth of its responses is lost once.
    let mut lost = std::collections::HashSet::new();
    pair.filter = Some(Box::new(move |from, packet| match packet {
        Packet::Standard { header, .. } if from == 1 && header.bth.psn % 4 == 2 => {
            !lost.insert(header.bth.psn)
        }
        _ => true,
    }));
    pair.ends[1].host.memory.borrow_mut()[..40_000].fill(9);
    let id = pair.post_zeroed(0, read(0, 40_000));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert!(pair.ends[0].host.buffers[&id] == [9; 40_000]);
    let counters = pair.ends[0].connection.counters();
    assert_eq!((counters.timeouts, counters.probes), (0, 0));
}

#[test]
fn a_late_copy_of_a_read_does_not_end_the_connection() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, read(0, 5000));
    pair.run(FOREVER);
    let request = sent(&pair, 0)[0].1;
    pair.ends[1].host.memory.borrow_mut().truncate(100);
    let end = &mut pair.ends[1];
    for header in
        [request, Header { reth: request.reth.map(|reth| Reth { length: 50_000, ..reth }), ..request }]
    {
        let outcome = end.connection.receive(Time(pair.now), &header, Payload::Bytes(&[]), &mut end.host);
        assert_eq!(outcome, Outcome::Done(()));
        assert_eq!(end.connection.drive(Time(pair.now), &mut end.host), Drive::Idle);
    }
    assert!(end.host.sent.is_empty() && !end.connection.is_dead());
    pair.post_zeroed(0, read(0, 50));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
}

#[test]
fn fence_waits_for_reads_and_atomics() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, read(0, 3000));
    pair.post_zeroed(0, fetch_add(0, 1));
    pair.post_zeroed(0, write(0, 8));
    pair.post_zeroed(0, read(0, 8));
    pair.post_zeroed(0, Work { fence: true, ..write(8, 8) });
    pair.run(FOREVER);
    let times: Vec<_> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [0, 0, 0, 0, 2 * DELAY]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 5]);
}

#[test]
fn max_rd_atomic_bounds_what_is_outstanding() {
    let mut pair = pair_with(|rc, rts| (rc.max_dest_rd_atomic, rts.max_rd_atomic) = (2, 2));
    for n in 0..6 {
        pair.post_zeroed(0, if n % 2 == 0 { read(0, 2000) } else { fetch_add(0, 1) });
    }
    pair.run(FOREVER);
    let times: Vec<_> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [0, 0, 1, 1, 2, 2].map(|n| n * 2 * DELAY));
    assert_eq!(statuses(&pair, 0), [Status::Success; 6]);
    let mut pair = pair_with(|_, rts| rts.max_rd_atomic = 0);
    pair.post_zeroed(0, write(0, 8));
    pair.post_zeroed(0, read(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::LocalQpOperation]);
}

#[test]
fn zero_length_needs_no_key() {
    let nowhere = RemoteAddress { address: u64::MAX, key: 0 };
    let mut pair = pair_with(|_, _| ());
    pair.ends[1].host.post_receive(0);
    pair.ends[1].host.post_receive(0);
    pair.post(0, work(Operation::Write { remote: nowhere, immediate: None }, 0), vec![]);
    pair.post(0, work(Operation::Read { remote: nowhere }, 0), vec![]);
    pair.post(0, send(0), vec![]);
    pair.post(0, work(Operation::Write { remote: nowhere, immediate: Some(3) }, 0), vec![]);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 4]);
    assert_eq!(
        codes(&pair, 0),
        [Code::WriteOnly, Code::ReadRequest, Code::SendOnly, Code::WriteOnlyImmediate]
    );
    assert_eq!(pair.ends[1].host.received.len(), 2);
}

#[test]
fn messages_are_cut_at_the_mtu() {
    let mut pair = pair_with(|_, _| ());
    for _ in 0..3 {
        pair.ends[1].host.post_receive(4096);
    }
    pair.post_zeroed(0, send(1024));
    pair.post_zeroed(
        0,
        Work { solicited: true, ..work(Operation::Send { immediate: Some(1), invalidate: None }, 2048) },
    );
    pair.post_zeroed(0, work(Operation::Send { immediate: None, invalidate: Some(8) }, 2049));
    pair.post_zeroed(0, write(0, 1025));
    pair.run(FOREVER);
    use Code::*;
    let wanted = [
        SendOnly,
        SendFirst,
        SendLastImmediate,
        SendFirst,
        SendMiddle,
        SendLastInvalidate,
        WriteFirst,
        WriteLast,
    ];
    assert_eq!(codes(&pair, 0), wanted);
    let solicited: Vec<_> = sent(&pair, 0).iter().map(|(_, header)| header.bth.solicited).collect();
    assert_eq!(solicited, [false, false, true, false, false, false, false, false]);
    assert_eq!(pair.ends[1].host.invalidated, [8]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 4]);
}

#[test]
fn one_acknowledgement_for_what_arrives_together() {
    let mut pair = pair_with(|_, _| ());
    for _ in 0..10 {
        pair.post_zeroed(0, write(0, 100));
    }
    pair.run(FOREVER);
    assert_eq!(codes(&pair, 1), [Code::Acknowledge]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 10]);
}

#[test]
fn local_work_waits_its_turn() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, write(0, 8));
    pair.post(0, work(Operation::Local, 0), vec![]);
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    let times: Vec<_> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [0, 2 * DELAY]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 3]);
}

#[test]
fn draining_finishes_what_has_started() {
    let mut pair = pair_with(|_, _| ());
    for _ in 0..40 {
        pair.post_zeroed(0, write(0, 10_000));
    }
    pair.run(5_000);
    pair.ends[0].connection.set_draining(true);
    assert!(!pair.ends[0].connection.is_drained());
    pair.run(1_000_000);
    assert!(pair.ends[0].connection.is_drained());
    let left = pair.ends[0].connection.outstanding();
    assert!(left > 0 && left < 40);
    pair.ends[0].connection.set_draining(false);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 40]);
}

#[test]
fn a_dead_lossless_peer_is_noticed_at_once() {
    let mut pair = logged(Pair::new(local(false), 1));
    pair.filter = Some(Box::new(|_, _| false));
    pair.ends[0].host.link = LinkState::Pending;
    pair.post_zeroed(0, write(0, 8));
    pair.run(60_000_000_000);
    assert_eq!(statuses(&pair, 0), [], "a peer that holds the packet is not silent");
    pair.ends[0].host.link = LinkState::Dead;
    pair.run(60_200_000_000);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    assert_eq!(sent(&pair, 0).len(), 1);

    // One that took everything and is silent (in RESET, say) uses up the retries.
    let mut pair = logged(Pair::new(local(false), 1));
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    assert_eq!(pair.now, 8 * (4096 << 14));
}

#[test]
fn a_wait_at_this_side_is_not_the_peers_silence() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 0);
    pair.ends[0].host.wait = 1.0;
    pair.ends[1].host.memory.borrow_mut()[..8].fill(4);
    let id = pair.post_zeroed(0, read(0, 8));
    pair.ends[0].host.wait = 0.0;
    pair.run(DELAY / 2);
    pair.ends[0].host.wait = 1.0;
    pair.run(300_000_000);
    assert_eq!(statuses(&pair, 0), []);
    pair.ends[0].host.wait = 0.0;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert_eq!(pair.ends[0].host.buffers[&id], [4; 8]);
}

#[test]
fn hold_keeps_a_selective_requester_patient() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1).selective();
    pair.ends[1].host.page_absent = true;
    pair.post(0, write(0, 8), vec![7; 8]);
    pair.run(1_000_000_000);
    assert_eq!(statuses(&pair, 0), []);
    assert!(pair.ends[0].connection.counters().holds_received > 3);
    pair.ends[1].host.page_absent = false;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert_eq!(pair.ends[1].host.memory.borrow()[..8], [7; 8]);
}

#[test]
fn hold_also_for_packets_that_were_kept() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1).selective();
    // The page goes while the first packet is missing: the second is kept, then waits.
    let lost = Rc::new(Cell::new(false));
    let once = lost.clone();
    pair.filter = Some(Box::new(move |from, _| from != 0 || once.replace(true)));
    pair.post(0, write(0, 8), vec![7; 8]);
    pair.post(0, write(8, 8), vec![8; 8]);
    pair.run(25_000);
    pair.ends[1].host.page_absent = true;
    pair.run(1_000_000_000);
    assert_eq!(statuses(&pair, 0), []);
    pair.ends[1].host.page_absent = false;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
    assert_eq!(pair.ends[1].host.memory.borrow()[..16], [[7; 8], [8; 8]].concat());
}

#[test]
fn first_packet_in_rtr_establishes() {
    let mut host = Pair::new(lossy(1024), 1);
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 5));
    let host = &mut host.ends[1].host;
    let header = header(Code::WriteOnly, 5);
    let header = Header { reth: Some(Reth { address: BASE, key: KEY, length: 4 }), ..header };
    for _ in 0..2 {
        assert_eq!(connection.receive(Time(0), &header, Payload::Bytes(&[1; 4]), host), Outcome::Done(()));
    }
    assert_eq!(host.events, [Event::CommunicationEstablished]);
    assert_eq!(connection.drive(Time(0), host), Drive::Idle);
    assert_eq!(host.sent.len(), 1, "the repetition is acknowledged");
}

fn header(code: Code, psn: u32) -> Header {
    Header::new(pagewire_wire::Bth {
        opcode: Opcode::new(Transport::Rc, code),
        solicited: false,
        migration: true,
        pad: 0,
        version: 0,
        partition: 0xffff,
        fecn: false,
        becn: false,
        destination: 0x11,
        acknowledge: true,
        psn,
    })
}

/// What a responder in order says to each of these requests, one after the other.
fn responder_says(requests: &[(Header, usize)]) -> Vec<Syndrome> {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    host.post_receive(100_000);
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    for (header, length) in requests {
        assert_eq!(
            connection.receive(Time(0), header, Payload::Bytes(&vec![0; *length]), host),
            Outcome::Done(())
        );
        connection.drive(Time(0), host);
    }
    host.sent
        .iter()
        .filter_map(|packet| match packet {
            Packet::Standard { header, .. } => header.aeth.map(|aeth| aeth.syndrome),
            Packet::Own(_) => None,
        })
        .filter(|syndrome| !matches!(syndrome, Syndrome::Ack { .. }))
        .collect()
}

#[test]
fn malformed_requests_are_invalid() {
    let reth = |length| Some(Reth { address: BASE, key: KEY, length });
    let first = |code, length| Header { reth: reth(length), ..header(code, 0) };
    let cases: &[&[(Header, usize)]] = &[
        &[(header(Code::SendMiddle, 0), 1024)],
        &[(header(Code::WriteLast, 0), 10)],
        &[(header(Code::SendFirst, 0), 1023)],
        &[(header(Code::SendOnly, 0), 1025)],
        &[(header(Code::SendFirst, 0), 1024), (header(Code::SendLast, 1), 0)],
        &[(header(Code::SendFirst, 0), 1024), (header(Code::SendFirst, 1), 1024)],
        &[(header(Code::SendFirst, 0), 1024), (header(Code::WriteMiddle, 1), 1024)],
        &[(header(Code::SendFirst, 0), 1024), (Header { reth: reth(4), ..header(Code::ReadRequest, 1) }, 0)],
        &[(first(Code::WriteOnly, 11), 10)],
        &[(first(Code::WriteFirst, 1024), 1024)],
        &[(first(Code::WriteFirst, 3000), 1024), (header(Code::WriteLast, 1), 1024)],
        &[(first(Code::WriteFirst, 2000), 1024), (header(Code::WriteMiddle, 1), 1024)],
        &[(first(Code::WriteFirst, (1 << 31) + 1), 1024)],
        &[(first(Code::ReadRequest, (1 << 31) + 1), 0)],
        &[(first(Code::ReadRequest, 8), 8)],
    ];
    for (index, case) in cases.iter().enumerate() {
        assert_eq!(responder_says(case), [Syndrome::Nak(Nak::InvalidRequest)], "case {index}");
    }
}

#[test]
fn foreign_packets_change_nothing() {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 3000));
    pair.run(1000);
    let end = &mut pair.ends[0];
    let aeth = Some(Aeth { syndrome: Syndrome::Nak(Nak::RemoteAccess), message: 0 });
    for (code, psn, partition) in [
        (Code::Acknowledge, 0x103, 0xffff),
        (Code::Acknowledge, 0xff, 0xffff),
        (Code::Acknowledge, 0x100, 0x8001),
        (Code::ReadResponseOnly, 0x101, 0xffff),
    ] {
        let mut header = Header { aeth, ..header(code, psn) };
        header.bth.partition = partition;
        let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(&[]), &mut end.host);
        assert_eq!(outcome, Outcome::Done(()));
    }
    assert_eq!(end.connection.counters().dropped, 4);
    assert_eq!(end.host.completions, []);
    assert!(!end.connection.is_dead());
}

#[test]
fn a_response_of_a_wrong_length_is_a_bad_response() {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, read(0, 1500));
    pair.run(1000);
    let end = &mut pair.ends[0];
    let aeth = Some(Aeth { syndrome: Syndrome::Ack { credits: 31 }, message: 1 });
    let header = Header { aeth, ..header(Code::ReadResponseFirst, 0x100) };
    let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(&[0; 1000]), &mut end.host);
    assert_eq!(outcome, Outcome::Done(()));
    assert_eq!(end.host.completions, [(WorkId(0), Status::BadResponse)]);
}

#[test]
fn a_response_that_is_no_acknowledgement_is_a_bad_response() {
    for syndrome in [Syndrome::Nak(Nak::RemoteAccess), Syndrome::ReceiverNotReady { timer: 1 }] {
        let mut pair = pair_with(|_, _| ());
        pair.filter = Some(Box::new(|_, _| false));
        pair.post_zeroed(0, fetch_add(0, 1));
        pair.run(1000);
        let end = &mut pair.ends[0];
        let aeth = Some(Aeth { syndrome, message: 1 });
        let header = Header { aeth, atomic_ack: Some(3), ..header(Code::AtomicAcknowledge, 0x100) };
        let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(&[]), &mut end.host);
        assert_eq!(outcome, Outcome::Done(()));
        assert_eq!(end.host.completions, [(WorkId(0), Status::BadResponse)]);
    }
}

#[test]
fn acknowledgements_count_messages_and_give_no_credits() {
    let mut pair = pair_with(|_, _| ());
    pair.ends[1].host.post_receive(3000);
    for work in [write(0, 8), send(3000), read(0, 3000), fetch_add(0, 1), write(0, 0)] {
        pair.post_zeroed(0, work);
        pair.run(FOREVER);
    }
    assert_eq!(statuses(&pair, 0), [Status::Success; 5]);
    let aeths: Vec<_> = sent(&pair, 1).iter().filter_map(|(_, header)| header.aeth).collect();
    // First and last response of the READ carry one each.
    assert_eq!(aeths.iter().map(|aeth| aeth.message).collect::<Vec<_>>(), [1, 2, 3, 3, 4, 5]);
    assert!(aeths.iter().all(|aeth| aeth.syndrome == Syndrome::Ack { credits: 31 }));
}

#[test]
fn half_of_the_psns_are_the_past() {
    const HALF: u32 = 1 << 23;
    let expected = 0x300;
    for (psn, ahead) in [
        (expected + 1, true),
        (expected + HALF - 1, true),
        ((expected + HALF) & 0xff_ffff, false),
        (expected - 1, false),
    ] {
        let mut pair = Pair::new(lossy(1024), 1);
        let host = &mut pair.ends[1].host;
        let mut connection = RcConnection::new(settings(lossy(1024), 0x11, expected));
        let request = header(Code::SendOnly, psn);
        assert_eq!(connection.receive(Time(0), &request, Payload::Bytes(&[]), host), Outcome::Done(()));
        connection.drive(Time(0), host);
        let [Packet::Standard { header, .. }] = &host.sent[..] else { panic!("{:?}", host.sent) };
        let syndrome = header.aeth.unwrap().syndrome;
        if ahead {
            assert_eq!((header.bth.psn, syndrome), (expected, Syndrome::Nak(Nak::PsnSequence)), "{psn:#x}");
        } else {
            assert_eq!((header.bth.psn, syndrome), (expected - 1, Syndrome::Ack { credits: 31 }), "{psn:#x}");
        }
    }
}

#[test]
fn a_congestion_notification_halves_what_is_under_way() {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 1 << 20));
    pair.run(1000);
    let before = limits::INITIAL_IN_FLIGHT as usize / 1024;
    assert_eq!(sent(&pair, 0).len(), before);
    let end = &mut pair.ends[0];
    let mut cnp = header(Code::Acknowledge, 0);
    (cnp.bth.opcode, cnp.bth.acknowledge, cnp.bth.becn) = (Opcode::CNP, false, true);
    let acknowledgement = Header {
        aeth: Some(Aeth { syndrome: Syndrome::Ack { credits: 31 }, message: 0 }),
        ..header(Code::Acknowledge, 0x100 + before as u32 - 1)
    };
    // Two for what is under way count once.
    for (header, payload) in [(cnp, &[0; 16][..]), (cnp, &[0; 16]), (acknowledgement, &[])] {
        let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(payload), &mut end.host);
        assert_eq!(outcome, Outcome::Done(()));
    }
    pair.run(2000);
    // And one packet more for the window that was acknowledged.
    assert_eq!(sent(&pair, 0).len(), before + before / 2 + 1);
}

#[test]
fn direct_execution_needs_no_psn() {
    let mut pair = logged(Pair::new(local(true), 1));
    pair.post(0, write(0, 100), vec![5; 100]);
    let id = pair.post_zeroed(0, read(0, 100));
    pair.run(FOREVER);
    assert_eq!(sent(&pair, 0), []);
    assert_eq!(pair.ends[0].host.buffers[&id], [5; 100]);
    // Behind something that is outstanding it would overtake.
    pair.ends[1].host.post_receive(8);
    pair.post_zeroed(0, send(8));
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    assert_eq!(codes(&pair, 0), [Code::SendOnly, Code::WriteOnly]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 4]);
    assert_eq!(pair.ends[0].connection.counters().direct, 2);
}

#[test]
fn drive_does_its_share_and_comes_back() {
    let mut pair = pair_with(|_, _| ());
    let end = &mut pair.ends[0];
    for id in 0..200 {
        end.host.buffers.insert(WorkId(id), vec![]);
        end.connection.post(Work { id: WorkId(id), ..write(0, 0) });
    }
    // On a lossy link the window ends it first.
    assert_eq!(end.connection.drive(Time(0), &mut end.host), Drive::Again);
    assert_eq!(end.host.sent.len(), limits::DRIVE_PACKETS as usize);
}

#[test]
fn responses_and_requests_take_turns() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(1, read(0, 60_000));
    for _ in 0..10 {
        pair.post_zeroed(0, write(0, 1024));
    }
    pair.run_while(FOREVER, |pair| pair.log.iter().filter(|entry| entry.1 == 0).count() < 20);
    pair.post_zeroed(0, write(0, 10_000));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 11]);
    assert_eq!(statuses(&pair, 1), [Status::Success]);
}

#[test]
fn own_packets_between_standard_settings_do_no_harm() {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 5000));
    pair.run(1000);
    let end = &mut pair.ends[0];
    for expected in [0, 0x100, 0x102, 0x105, 0x106, 0xff_ffff] {
        let received = pagewire_wire::Received::from_iter([0, 1, 200]);
        let report = pagewire_wire::SelectiveAck { expected, message: 0, received };
        end.connection.receive_control(Time(1000), &Own::SelectiveAck(report), &mut end.host);
        end.connection.receive_control(
            Time(1000),
            &Own::Hold(pagewire_wire::Hold { psn: expected }),
            &mut end.host,
        );
        end.connection.drive(Time(1000), &mut end.host);
    }
    assert_eq!(end.host.completions, [(WorkId(0), Status::Success)]);
}

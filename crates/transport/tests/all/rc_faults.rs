//! What becomes of packets that find a page absent: kept, dropped and asked for by RESUME, refused with an RNR NAK, or left to
//! the source's timer (PART-5, 6, 8 and 9).

use std::cell::Cell;
use std::rc::Rc;

use crate::support::host::Packet;
use crate::support::network::{Bottleneck, DELAY, Faults, Pair};
use crate::support::rules::{FOREVER, logged, naks, pair_with, sent, statuses};
use crate::support::workload::{Mix, run};
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Hold, HoldFlags, Opcode, PacketOperation as Code, Resume, Syndrome, VendorPacket};

const MS: u64 = 1_000_000;
const ROUND_TRIP: u64 = 2 * DELAY;

fn pair(handling: FaultHandling) -> Pair {
    pair_with(|rc, _| rc.fault_handling = handling).selective()
}

fn standard(handling: FaultHandling, rnr_retry: u8) -> Pair {
    pair_with(|rc, rts| (rc.fault_handling, rts.rnr_retry) = (handling, rnr_retry))
}

/// The page of the second end is absent while the first writes 8 packets, until then.
fn absent_until(pair: &mut Pair, until: u64) {
    pair.ends[1].host.page_absent = true;
    let bytes: Vec<u8> = (0..8192u32).map(|at| (at * 7 % 251) as u8).collect();
    pair.post(0, write(0, 8192), bytes.clone());
    pair.run(until);
    assert_eq!(statuses(pair, 0), [], "nothing is done while the page is absent");
    pair.ends[1].host.page_absent = false;
}

fn page_is_in(pair: &mut Pair) {
    pair.ends[1].connection.pages_in_for_requests();
}

fn check_bytes(pair: &Pair) {
    let memory = pair.ends[1].host.memory.borrow();
    assert!((0..8192u32).all(|at| memory[at as usize] == (at * 7 % 251) as u8), "wrong bytes");
}

fn counters(pair: &Pair, end: usize) -> ProtocolCounters {
    pair.ends[end].connection.counters()
}

fn own(pair: &Pair, end: usize) -> Vec<VendorPacket> {
    let all = pair.log.iter().filter(|(_, from, _)| *from == end);
    all.filter_map(|(_, _, packet)| if let Packet::Vendor(own) = packet { Some(*own) } else { None })
        .collect()
}

fn holds(pair: &Pair) -> Vec<Hold> {
    own(pair, 1)
        .iter()
        .filter_map(|own| if let VendorPacket::Hold(hold) = own { Some(*hold) } else { None })
        .collect()
}

fn resumes(pair: &Pair) -> Vec<Resume> {
    own(pair, 1)
        .iter()
        .filter_map(|own| if let VendorPacket::Resume(resume) = own { Some(*resume) } else { None })
        .collect()
}

fn is_resume(packet: &Packet) -> bool {
    matches!(packet, Packet::Vendor(VendorPacket::Resume(_)))
}

fn requests_sent(pair: &Pair) -> u64 {
    counters(pair, 0).requests_sent
}

#[test]
fn err_drops_one_packet_tells_of_it_once_and_has_it_sent_again_when_the_page_is_in() {
    let mut pair = pair(FaultHandling::Err);
    let until = MS * 6 / 10;
    absent_until(&mut pair, until);
    assert_eq!(requests_sent(&pair), 8, "the NACK alone has nothing sent again");
    assert_eq!(holds(&pair), [Hold { psn: 0x100, flags: HoldFlags::DROPPED }]);
    page_is_in(&mut pair);
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    // RESUME, the packet, its acknowledgement.
    assert!(pair.now <= until + 3 * DELAY + 10_000, "{} ns after the page", pair.now - until);
    assert_eq!(resumes(&pair), [Resume { psn: 0x100, block: 1 }], "what is behind it was kept");
    assert_eq!(requests_sent(&pair), 9);
    check_bytes(&pair);
    let (source, target) = (counters(&pair, 0), counters(&pair, 1));
    assert_eq!((target.faults_dropped, target.faults_stashed), (1, 0));
    assert_eq!((target.holds_sent, target.resumes_sent), (1, 1));
    assert_eq!((source.holds_received, source.resumes_received, source.probes), (1, 1, 0));
}

/// Overlap (PART-8): pages come in while the source's timer already has packets sent again.
#[test]
fn with_err_the_timer_runs_on_and_only_what_was_dropped_is_repeated() {
    let mut pair = pair(FaultHandling::Err);
    // The round trip is known, and with it the early timer.
    pair.post_zeroed(0, write(8192, 8));
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    pair.ends[0].host.completions.clear();
    // A HOLD that pushed the timer away would do so again and again.
    absent_until(&mut pair, 4 * MS);
    let repeated = requests_sent(&pair) - 9;
    assert!((1..=4).contains(&repeated), "{repeated} repetitions");
    assert_eq!(counters(&pair, 0).probes, repeated);
    assert!(sent(&pair, 0)[9..].iter().all(|(_, header)| header.bth.psn == 0x101), "only what was dropped");
    // The page is in, and nobody says so.
    pair.filter = Some(Box::new(|_, packet| !is_resume(packet)));
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert!(counters(&pair, 0).resumes_received == 0 && pair.now < 40 * MS, "at {}", pair.now);
    check_bytes(&pair);
}

#[test]
fn without_timeouts_nothing_is_sent_again_before_resume() {
    let mut pair = pair(FaultHandling::ErrWithoutTimeout);
    absent_until(&mut pair, 9 * MS);
    assert_eq!((requests_sent(&pair), counters(&pair, 0).probes), (8, 0));
    assert_eq!(holds(&pair), [Hold { psn: 0x100, flags: HoldFlags::DROPPED | HoldFlags::UNTIL_RESUME }]);
    page_is_in(&mut pair);
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert!(pair.now <= 9 * MS + 3 * DELAY + 10_000);
    assert_eq!((requests_sent(&pair), counters(&pair, 0).probes), (9, 0));
    check_bytes(&pair);
}

/// Nobody tells of a page whose region ends: every so often the source tries again.
#[test]
fn source_retries_at_each_interval() {
    for handling in [FaultHandling::Err, FaultHandling::ErrWithoutTimeout] {
        let mut pair = pair(handling);
        pair.ends[1].host.page_absent = true;
        pair.post_zeroed(0, write(0, 8));
        pair.run(100 * limits::RESUME_INTERVAL);
        let tries = counters(&pair, 1).faults_dropped;
        assert!((50..=1000).contains(&tries), "{handling}: {tries} tries");
        let waits = handling == FaultHandling::ErrWithoutTimeout;
        assert_eq!(counters(&pair, 1).resumes_sent > 50, waits, "{handling}");
        pair.ends[1].host.page_absent = false;
        pair.ends[1].host.deny_write = Some(Denial::RemoteAccess);
        let now = pair.now;
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        assert_eq!(statuses(&pair, 0), [Status::RemoteAccess], "{handling}");
        assert!(pair.now < now + 2 * limits::RESUME_INTERVAL, "{handling}: after {} ns", pair.now - now);
    }
}

/// Also where the acknowledgement timeout is for ever, and where it is short.
/// A RESUME that the link has no room for leaves when there is room: until then no timer is due.
#[test]
fn a_resume_that_waits_for_the_link_has_no_deadline() {
    let mut pair = pair(FaultHandling::Err);
    absent_until(&mut pair, MS);
    page_is_in(&mut pair);
    let target = &mut pair.ends[1];
    target.host.wait = 1.0;
    for now in [Time(MS), Time(100 * MS)] {
        assert!(matches!(target.connection.progress(now, &mut target.host), RcProgress::Wait));
        let deadline = target.connection.deadline();
        assert!(deadline.is_none_or(|deadline| deadline > now), "{deadline:?} at {now:?}");
    }
    target.host.wait = 0.0;
    target.connection.progress(Time(100 * MS), &mut target.host);
    assert_eq!(target.connection.counters().resumes_sent, 1);
}

/// A HOLD behind its RESUME would have the source wait for another one.
#[test]
fn a_hold_that_waits_for_the_link_leaves_before_its_resume() {
    for handling in [FaultHandling::Err, FaultHandling::ErrWithoutTimeout] {
        let mut pair = pair(handling);
        pair.ends[1].host.wait = 1.0;
        absent_until(&mut pair, MS / 2);
        assert_eq!(holds(&pair), [], "the link has no room");
        page_is_in(&mut pair);
        pair.ends[1].host.wait = 0.0;
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        let own = own(&pair, 1);
        assert!(matches!(own[..2], [VendorPacket::Hold(_), VendorPacket::Resume(_)]), "{own:?}");
        check_bytes(&pair);
    }
}

#[test]
fn lost_resumes_are_made_up_for() {
    for handling in [FaultHandling::Err, FaultHandling::ErrWithoutTimeout] {
        for timeout in [0, 8, 14] {
            for lost in [1, 3, u32::MAX] {
                let mut pair =
                    pair_with(|rc, rts| (rc.fault_handling, rts.timeout) = (handling, timeout)).selective();
                let mut left = lost;
                pair.filter = Some(Box::new(move |_, packet| {
                    let hit = left > 0 && is_resume(packet);
                    left -= u32::from(hit);
                    !hit
                }));
                absent_until(&mut pair, MS / 2);
                page_is_in(&mut pair);
                pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
                assert_eq!(
                    statuses(&pair, 0),
                    [Status::Success],
                    "{handling}, timeout {timeout}, {lost} lost"
                );
                assert!(
                    pair.now <= limits::MAX_PROBE + 10 * MS,
                    "{handling}, timeout {timeout}, {lost} lost: {}",
                    pair.now
                );
                check_bytes(&pair);
            }
        }
    }
}

#[test]
fn a_peer_that_waits_for_resume_and_dies_is_given_up() {
    let mut pair = pair(FaultHandling::ErrWithoutTimeout);
    absent_until(&mut pair, MS);
    pair.filter = Some(Box::new(|_, _| false));
    let budget = timers::acknowledgement_timeout(14).unwrap() * 8;
    pair.run(2 * budget);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    pair.run(FOREVER);
    let given_up = pair.ends[0].connection.is_dead() && pair.ends[1].connection.deadline().is_none();
    assert!(given_up, "neither goes on for ever");
    assert_eq!(counters(&pair, 1).resumes_sent, u64::from(limits::UNANSWERED_RESUMES));
}

/// However long the page takes, no retry is used up.
#[test]
fn a_page_that_takes_longer_than_the_budget_costs_no_retry() {
    for handling in
        [FaultHandling::Stash, FaultHandling::Err, FaultHandling::ErrWithoutTimeout, FaultHandling::Rnr]
    {
        let mut pair = pair_with(|rc, rts| {
            rc.fault_handling = handling;
            (rts.timeout, rts.retry_count) = (10, 1);
        })
        .selective();
        absent_until(&mut pair, 2_000 * MS);
        page_is_in(&mut pair);
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        assert_eq!(statuses(&pair, 0), [Status::Success], "{handling}");
        check_bytes(&pair);
    }
}

/// What was sent before a request that waits for its page is repeated, and a dead peer is noticed.
#[test]
fn earlier_request_is_repeated_despite_fault() {
    for (selective, deaf) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut pair = pair_with(|_, rts| rts.timeout = 10);
        if selective {
            pair = pair.selective();
        }
        let lost = Cell::new(false);
        pair.filter = Some(Box::new(move |from, _| !deaf && (from != 0 || lost.replace(true))));
        pair.post_zeroed(0, write(0, 8));
        pair.run(DELAY / 2);
        pair.ends[0].host.source_absent = true;
        let behind = pair.post_zeroed(0, write(4096, 8));
        (pair.ends[0].host.source_absent, pair.ends[0].host.absent_work) = (false, Some(behind));
        pair.run(1_000 * MS);
        let first = if deaf { Status::RetryExceeded } else { Status::Success };
        assert_eq!(statuses(&pair, 0).first(), Some(&first), "selective {selective}, deaf {deaf}");
    }
}

/// A page of its own for which a response waited is no part of the way.
#[test]
fn what_was_lost_behind_a_long_wait_is_repeated_as_soon_as_ever() {
    let mut pair = pair_with(|_, rts| rts.timeout = 18).selective();
    pair.post_zeroed(0, write(0, 8));
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    pair.ends[0].host.absent_from = 0;
    pair.post_zeroed(0, read(0, 8));
    pair.run(10_000 * MS);
    let looks = pair.ends[0].connection.counters().probes;
    assert_eq!(looks, 0, "nothing is asked for that is here");
    pair.ends[0].host.absent_from = u64::MAX;
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    let lost = Cell::new(false);
    pair.filter = Some(Box::new(move |from, _| from != 0 || lost.replace(true)));
    let began = pair.now;
    pair.post_zeroed(0, write(0, 8));
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert!(pair.now - began < 2 * MS, "{} ns", pair.now - began);
}

/// However short the time in which a peer must get on, one that says that it waits for a page has it.
#[test]
fn a_hold_is_heeded_however_short_the_budget() {
    for (timeout, retry_count) in [(6, 0), (1, 7)] {
        let mut pair =
            pair_with(|_, rts| (rts.timeout, rts.retry_count) = (timeout, retry_count)).selective();
        pair.ends[1].host.page_absent = true;
        pair.post_zeroed(0, write(0, 8));
        pair.run(100 * MS);
        assert_eq!(statuses(&pair, 0), [], "{timeout} {retry_count}");
        pair.ends[1].host.page_absent = false;
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        assert_eq!(statuses(&pair, 0), [Status::Success], "{timeout} {retry_count}");
    }
}

/// A standard peer's retries are counted, but one that was not asked again is not silent.
#[test]
fn a_repetition_that_waits_for_a_page_of_its_own_side_uses_up_no_retry() {
    let mut pair = pair_with(|_, rts| (rts.timeout, rts.retry_count) = (8, 2));
    pair.filter = Some(Box::new(|from, _| from == 1));
    pair.post_zeroed(0, write(0, 8));
    pair.run(MS / 2);
    pair.ends[0].host.source_absent = true;
    pair.run(100 * MS);
    assert_eq!((requests_sent(&pair), statuses(&pair, 0)), (1, vec![]));
    // It comes: two retries and their timeouts are left.
    pair.ends[0].host.source_absent = false;
    pair.run(102 * MS);
    assert_eq!(statuses(&pair, 0), []);
    pair.run(FOREVER);
    assert_eq!((requests_sent(&pair), statuses(&pair, 0)), (3, vec![Status::RetryExceeded]));
}

/// A page of the source's own that comes and goes: while it is away nobody is asked, and no answer can be missed.
#[test]
fn a_repetition_that_waits_for_a_page_of_its_own_side_takes_no_time_from_the_budget() {
    let mut pair = pair_with(|_, rts| (rts.timeout, rts.retry_count) = (10, 3)).selective();
    pair.filter = Some(Box::new(|from, _| from == 1));
    pair.post_zeroed(0, write(0, 8));
    let mut until = 0;
    for _ in 0..limits::BUDGET_PROBES {
        for (absent, time) in [(false, MS / 20), (true, MS)] {
            pair.ends[0].host.source_absent = absent;
            until += time;
            pair.run(until);
        }
    }
    assert!(
        requests_sent(&pair) > 2 * limits::LEAST_UNANSWERED,
        "it was repeated often enough to be given up"
    );
    assert_eq!(statuses(&pair, 0), []);
    pair.filter = None;
    pair.ends[0].host.source_absent = false;
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
}

#[test]
fn stash_keeps_what_waits_and_says_nothing_of_resume() {
    let mut pair = pair(FaultHandling::Stash);
    absent_until(&mut pair, 3 * MS);
    page_is_in(&mut pair);
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    check_bytes(&pair);
    let target = counters(&pair, 1);
    assert_eq!((target.faults_stashed, target.faults_dropped, target.resumes_sent), (1, 0, 0));
    assert!(holds(&pair).iter().all(|hold| hold.flags.is_empty()));
}

/// What the peer keeps for want of a page is on no link and in no socket: others may have its room.
#[test]
fn stashed_packets_leave_in_flight() {
    for handling in [FaultHandling::Stash, FaultHandling::Err, FaultHandling::ErrWithoutTimeout] {
        let mut pair = pair(handling);
        pair.ends[1].host.page_absent = true;
        pair.post_zeroed(0, write(0, 8192));
        pair.run(DELAY / 2);
        let in_flight = |pair: &Pair| pair.ends[0].connection.in_flight();
        assert_eq!(in_flight(&pair), 8, "{handling}: nothing was heard of them");
        pair.run_while(MS, |pair| holds(pair).is_empty());
        pair.run(pair.now + 2 * DELAY);
        assert_eq!(in_flight(&pair), 0, "{handling}");
        // A repetition is, until that is heard of.
        let sent = requests_sent(&pair);
        pair.run_while(FOREVER, |pair| requests_sent(pair) == sent);
        assert_eq!(in_flight(&pair), 1, "{handling}");
        pair.run(pair.now + 2 * MS);
        assert_eq!(in_flight(&pair), 0, "{handling}");
        pair.ends[1].host.page_absent = false;
        page_is_in(&mut pair);
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        // What is sent afterwards counts as ever.
        pair.post_zeroed(0, write(0, 8192));
        pair.run(pair.now + DELAY / 2);
        assert_eq!(in_flight(&pair), 8, "{handling}");
    }
}

/// Whoever waits long costs little, and is not forgotten.
#[test]
fn long_stash_is_repeated_rarely() {
    let budget = timers::acknowledgement_timeout(14).unwrap() * 8;
    let mut pair = pair(FaultHandling::Stash);
    absent_until(&mut pair, 8 * budget);
    let repeated = requests_sent(&pair) - 8;
    assert!((6..=16).contains(&repeated), "{repeated} repetitions");
    // It is executed, and nothing that says so arrives at first.
    pair.filter = Some(Box::new(|from, _| from == 0));
    page_is_in(&mut pair);
    pair.run_while(FOREVER, |pair| counters(pair, 1).responses_sent == 0);
    pair.filter = None;
    let executed = pair.now;
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert!(pair.now < executed + budget + MS, "{} ns", pair.now - executed);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    check_bytes(&pair);
}

/// What is waited for on purpose does not count, what is waited for in vain does.
#[test]
fn a_peer_that_waits_for_a_page_and_dies_is_given_up() {
    let budget = timers::acknowledgement_timeout(14).unwrap() * 8;
    let mut pair = pair(FaultHandling::Stash);
    absent_until(&mut pair, 4 * budget);
    pair.filter = Some(Box::new(|_, _| false));
    let died = pair.now;
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    let took = pair.now - died;
    assert!(budget <= took && took <= 2 * budget + MS, "{took} ns, of a budget of {budget}");
}

/// What finds no room beside packets that wait for a page is asked for as soon as these are executed.
#[test]
fn resume_requests_stash_overflow() {
    let mut pair = pair(FaultHandling::Stash);
    // Room for three of eight.
    pair.filter = Some(Box::new(|from, packet| {
        from == 1 || !matches!(packet, Packet::Standard { header, .. } if header.bth.psn > 0x102)
    }));
    absent_until(&mut pair, MS / 2);
    pair.filter = None;
    pair.run(pair.now + 2_000);
    assert!(pair.ends[0].connection.outstanding() > 0, "five are missing");
    pair.ends[1].connection.note_overflow();
    let from = pair.now;
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert_eq!(resumes(&pair), [Resume { psn: 0x103, block: 0 }]);
    assert!(pair.now <= from + 3 * DELAY + 10_000, "after {} ns", pair.now - from);
    assert_eq!(requests_sent(&pair), 8 + 5);
    check_bytes(&pair);
}

#[test]
fn rnr_has_a_standard_peer_come_again() {
    let mut pair = standard(FaultHandling::Rnr, 7);
    absent_until(&mut pair, 500 * MS);
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    check_bytes(&pair);
    assert_eq!(own(&pair, 1), []);
    let refusals = naks(&pair, 1);
    assert!(
        refusals.len() > 100 && refusals.iter().all(|nak| *nak == Syndrome::ReceiverNotReady { timer: 12 })
    );
    assert_eq!(counters(&pair, 0).timeouts, 0);
}

#[test]
fn standard_peer_counts_rnr_naks() {
    let mut pair = standard(FaultHandling::Rnr, 3);
    pair.ends[1].host.page_absent = true;
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RnrRetryExceeded]);
    assert_eq!(naks(&pair, 1).len(), 4);
}

/// Its greeting comes behind its first request.
#[test]
fn what_comes_before_it_is_known_what_the_peer_is_is_kept() {
    for handling in [FaultHandling::Err, FaultHandling::ErrWithoutTimeout] {
        let mut pair = standard(handling, 0);
        pair.ends.iter_mut().for_each(|end| end.connection.set_greeting(true));
        absent_until(&mut pair, MS);
        pair.ends[1].host.page_absent = true;
        let mut pair = pair.selective();
        pair.ends.iter_mut().for_each(|end| end.connection.set_greeting(false));
        pair.run(5 * MS);
        assert!(counters(&pair, 1).faults_dropped > 0, "{handling}: from now on");
        pair.ends[1].host.page_absent = false;
        page_is_in(&mut pair);
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        assert_eq!(statuses(&pair, 0), [Status::Success], "{handling}");
        assert_eq!(naks(&pair, 1), [], "{handling}");
        check_bytes(&pair);
    }
}

#[test]
fn a_peer_that_never_greets_is_refused_for_now_in_the_end() {
    let mut pair = standard(FaultHandling::Err, 7);
    pair.ends[1].connection.set_greeting(true);
    absent_until(&mut pair, limits::LONGEST_GREETING - MS);
    assert_eq!(naks(&pair, 1), []);
    pair.ends[1].host.page_absent = true;
    pair.run(limits::LONGEST_GREETING + 200 * MS);
    assert!(naks(&pair, 1).iter().all(|nak| matches!(nak, Syndrome::ReceiverNotReady { .. })));
    assert!(!naks(&pair, 1).is_empty());
    pair.ends[1].host.page_absent = false;
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    check_bytes(&pair);
}

#[test]
fn towards_a_peer_without_resume_err_is_rnr() {
    for handling in [FaultHandling::Err, FaultHandling::ErrWithoutTimeout] {
        let mut standard = standard(handling, 7);
        let mut older = pair(handling);
        older.ends[1].connection.set_resumes(false);
        for pair in [&mut standard, &mut older] {
            absent_until(pair, 5 * MS);
            page_is_in(pair);
            pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
            check_bytes(pair);
            assert!(!naks(pair, 1).is_empty());
            assert!((holds(pair).len(), resumes(pair).len()) == (0, 0));
        }
    }
}

#[test]
fn with_timeout_nothing_is_said() {
    for standard_peer in [false, true] {
        let mut pair =
            if standard_peer { standard(FaultHandling::Timeout, 0) } else { pair(FaultHandling::Timeout) };
        absent_until(&mut pair, MS * 3 / 2);
        page_is_in(&mut pair);
        assert_eq!(pair.log.iter().filter(|(_, from, _)| *from == 1).count(), 0, "standard: {standard_peer}");
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        check_bytes(&pair);
        let source = counters(&pair, 0);
        assert!(source.timeouts + source.probes > 0);
        assert_eq!(source.sequence_naks_received + source.rnr_naks_received, 0);
    }
}

/// SENDs, atomics and the requests of READs.
#[test]
fn every_request_is_dropped_and_resumed() {
    for handling in FaultHandling::ALL {
        for seed in 0..20 {
            let mut pair = Pair::new(lossy(1024), seed);
            for (end, number) in [(0, 0x22), (1, 0x11)] {
                let psn = if end == 0 { 0x200 } else { 0x100 };
                let rc = RcSettings { fault_handling: handling, ..settings(lossy(1024), number, psn) };
                pair.ends[end].connection = RcConnection::new(rc);
                pair.ends[end].connection.start_requester(requester(if end == 0 { 0x100 } else { 0x200 }));
            }
            let mut pair = if seed % 2 == 0 { pair.selective() } else { pair };
            pair.faults.loss = if seed % 4 < 2 { 0.0 } else { 0.05 };
            pair.ends[1].host.page_absent = true;
            pair.ends[1].host.post_receive(3000);
            pair.ends[1].host.memory.borrow_mut()[..3000].fill(7);
            pair.post(0, send(3000), vec![9; 3000]);
            let atomic = pair.post_zeroed(0, fetch_add(8192, 5));
            let id = pair.post_zeroed(0, read(0, 3000));
            pair.post(0, write(4096, 100), vec![3; 100]);
            pair.run(2 * MS);
            pair.ends[1].host.page_absent = false;
            page_is_in(&mut pair);
            pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
            assert_eq!(statuses(&pair, 0), [Status::Success; 4], "{handling}, seed {seed}");
            let host = &pair.ends[1].host;
            assert_eq!((host.atomics_run, host.received.len()), (1, 1), "{handling}, seed {seed}");
            assert_eq!(host.received[0].bytes, [9; 3000]);
            assert_eq!(host.memory.borrow()[4096..4196], [3; 100]);
            assert_eq!(pair.ends[0].host.buffers[&id], [7; 3000]);
            assert_eq!(pair.ends[0].host.buffers[&atomic], [0; 8]);
        }
    }
}

/// The requester's own page is absent: the response is dropped, and asked for when the page is there.
#[test]
fn page_in_rerequests_dropped_response() {
    for (handling, is_standard) in [
        (FaultHandling::Err, false),
        (FaultHandling::Err, true),
        (FaultHandling::ErrWithoutTimeout, false),
        (FaultHandling::Rnr, true),
        (FaultHandling::Timeout, false),
        (FaultHandling::Timeout, true),
    ] {
        let what = format!("{handling}, standard: {is_standard}");
        let mut pair = pair_with(|rc, rts| {
            rc.fault_handling = handling;
            (rts.timeout, rts.retry_count) = (10, 1);
        });
        pair = if is_standard { pair } else { pair.selective() };
        pair.ends[1].host.memory.borrow_mut()[..8000].fill(7);
        pair.ends[0].host.absent_from = 2048;
        let id = pair.post_zeroed(0, read(0, 8000));
        pair.post(0, write(9000, 8), vec![8; 8]);
        // Longer than the peer would be given.
        pair.run(500 * MS);
        assert_eq!(statuses(&pair, 0), [], "{what}");
        assert!(counters(&pair, 0).faults_dropped > 0, "{what}");
        pair.ends[0].host.absent_from = u64::MAX;
        pair.ends[0].connection.pages_in_for_responses();
        let from = pair.now;
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        assert_eq!(statuses(&pair, 0), [Status::Success; 2], "{what}");
        assert_eq!(pair.ends[0].host.buffers[&id], [7; 8000], "{what}");
        let soon = handling != FaultHandling::Timeout;
        assert!(!soon || pair.now < from + 2 * ROUND_TRIP, "{what}: after {} ns", pair.now - from);
    }
}

fn resume(pair: &mut Pair, psn: u32, block: u32) -> u64 {
    let before = requests_sent(pair);
    let (now, end) = (Time(pair.now), &mut pair.ends[0]);
    end.connection.receive_control(now, &VendorPacket::Resume(Resume { psn, block }), &mut end.host);
    pair.run(now.0);
    requests_sent(pair) - before
}

/// Stale, of another connection, or again and again: what comes of it is bounded.
#[test]
fn only_a_resume_that_can_be_true_is_obeyed_and_once_a_round_trip() {
    let mut pair = pair(FaultHandling::Err);
    // A round trip is known.
    pair.post_zeroed(0, write(0, 8));
    pair.run(MS);
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8192));
    pair.run(MS + 1);
    let dropped = counters(&pair, 0).stale;
    for psn in [0, 0x100, 0x109, 0x10a, 0x80_0101, 0xff_ffff] {
        assert_eq!(resume(&mut pair, psn, 0), 0, "PSN {psn:#x} is not outstanding");
    }
    assert_eq!(counters(&pair, 0).stale, dropped + 6);
    assert_eq!(resume(&mut pair, 0x101, 3), 3);
    assert_eq!(resume(&mut pair, 0x101, 3), 0, "twice");
    let mut obeyed = 0;
    let from = pair.now;
    for step in 1..=100 {
        pair.run(from + step * ROUND_TRIP / 10);
        obeyed += resume(&mut pair, 0x101, 0);
    }
    assert!(obeyed <= 11 * 8, "{obeyed} packets in ten round trips");
    assert!(obeyed >= 8);
}

/// What was sent for the first one is still on its way.
#[test]
fn resume_is_obeyed_once_per_rtt() {
    let mut pair = pair(FaultHandling::Err);
    pair.faults.bottleneck = Some(Bottleneck { pace: 100, queue: 1 << 20, delay: 5 * MS / 2 });
    pair.post_zeroed(0, write(0, 8));
    pair.run(20 * MS);
    assert_eq!(statuses(&pair, 0), [Status::Success], "a round trip is known");
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8192));
    pair.run(21 * MS);
    assert!(resume(&mut pair, 0x101, 3) > 0);
    let (from, before) = (pair.now, counters(&pair, 0).resumes_received);
    for step in 1..=210 {
        pair.run(from + step * MS / 10);
        resume(&mut pair, 0x101, 3);
    }
    let obeyed = counters(&pair, 0).resumes_received - before;
    assert_eq!(obeyed, 4, "in four round trips and a bit");
}

/// A peer that has never acknowledged anything.
#[test]
fn without_a_known_round_trip_the_same_resume_is_obeyed_seldom() {
    let mut pair = pair(FaultHandling::Err);
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8192));
    pair.run(1);
    let obeyed: u64 = (0..1000)
        .map(|step| {
            pair.run(1 + step * 1000);
            resume(&mut pair, 0x100, 0)
        })
        .sum();
    assert!((8..=3 * 8).contains(&obeyed), "{obeyed} packets in a millisecond");
    assert!(resume(&mut pair, 0x101, 0) > 0, "what gets on is");
}

/// It greets anew, and does not know RESUME then: nothing is due for ever.
#[test]
fn disabled_resume_sets_no_deadline() {
    let mut pair = pair(FaultHandling::Err);
    absent_until(&mut pair, MS / 2);
    pair.filter = Some(Box::new(|_, _| false));
    assert!(pair.ends[1].connection.deadline().is_some());
    pair.ends[1].connection.set_resumes(false);
    pair.run(MS / 2 + 2 * limits::RESUME_INTERVAL);
    let deadline = pair.ends[1].connection.deadline();
    assert!(deadline.is_none_or(|at| at.0 > pair.now), "{deadline:?} at {}", pair.now);
}

/// Accesses are not possible for a moment for other reasons than a page, such as others' accesses: what is dropped is what finds a page absent.
#[test]
fn what_lacks_no_page_is_kept_in_every_mode() {
    for handling in FaultHandling::ALL {
        let mut pair = pair(handling);
        pair.ends[1].host.busy = true;
        absent_until(&mut pair, MS / 2);
        let target = counters(&pair, 1);
        assert_eq!((target.faults_dropped, target.faults_stashed), (0, 0), "{handling}");
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        check_bytes(&pair);
    }
}

#[test]
fn a_resume_for_a_peer_that_fills_no_gaps_is_dropped() {
    let mut pair = standard(FaultHandling::Err, 7);
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8192));
    pair.run(1);
    assert_eq!(resume(&mut pair, 0x100, 0), 0);
    assert_eq!(counters(&pair, 0).stale, 1);
}

/// A late RESUME of a packet that has come meanwhile, and a RESUME that comes twice.
#[test]
fn late_and_double_resumes_change_nothing() {
    for seed in 0..100 {
        let mut pair = logged(Pair::new(lossy(1024), seed)).selective();
        let handling = if seed % 2 == 0 { FaultHandling::Err } else { FaultHandling::ErrWithoutTimeout };
        let rc = RcSettings { fault_handling: handling, ..settings(lossy(1024), 0x11, 0x100) };
        pair.ends[1].connection = RcConnection::new(rc);
        pair.ends[1].connection.start_requester(requester(0x200));
        let mut pair = pair.selective();
        pair.faults = Faults { loss: 0.1, duplication: 0.5, reordering: 0.5, bottleneck: None };
        absent_until(&mut pair, MS * (seed % 5));
        page_is_in(&mut pair);
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        assert_eq!(statuses(&pair, 0), [Status::Success], "seed {seed}");
        check_bytes(&pair);
    }
}

/// Random work both ways, where every access may find its page absent, and every second RESUME is lost.
#[test]
fn every_mode_brings_every_byte() {
    let mix = Mix { operations: 150, largest: 50_000, late_receives: false, depth: 32 };
    for handling in FaultHandling::ALL {
        for seed in 0..12 {
            let (selective, loss) = (seed % 3 > 0, if seed % 2 == 0 { 0.0 } else { 0.02 });
            let made = |end: u32| RcSettings { fault_handling: handling, ..settings(lossy(1024), end, 0) };
            let mut pair = Pair::with(made(0x22), requester(0xff_ff80), made(0x11), requester(77), seed);
            pair = if selective { pair.selective() } else { pair };
            pair.faults = Faults { loss, duplication: loss, reordering: loss, bottleneck: None };
            pair.page_ins = true;
            let lost = Rc::new(Cell::new(0));
            let count = lost.clone();
            pair.filter = Some(Box::new(move |_, packet| {
                count.set(count.get() + u32::from(is_resume(packet)));
                !is_resume(packet) || count.get() % 2 == 0
            }));
            for end in &mut pair.ends {
                end.host.wait = 0.05;
            }
            run(&mut pair, mix, seed);
            let counted = counters(&pair, 0);
            let kept = handling == FaultHandling::Stash;
            assert_eq!((counted.faults_stashed > 0, counted.faults_dropped > 0), (kept, !kept), "{handling}");
            let resumes =
                matches!(handling, FaultHandling::Err | FaultHandling::ErrWithoutTimeout) && selective;
            assert_eq!(lost.get() > 0, resumes, "{handling}, seed {seed}");
        }
    }
}

/// Inside a host nothing is dropped: nobody would send it again in time.
#[test]
fn links_that_lose_nothing_keep_what_waits() {
    for handling in FaultHandling::ALL {
        let made = |end: u32| RcSettings { fault_handling: handling, ..settings(local(false), end, 0) };
        let mut pair = logged(Pair::with(made(0x22), requester(5), made(0x11), requester(6), 1)).selective();
        pair.ends[1].host.page_absent = true;
        pair.post(0, write(0, 8192), vec![5; 8192]);
        pair.run(50 * MS);
        assert_eq!(sent(&pair, 0).len(), 1, "{handling}");
        pair.ends[1].host.page_absent = false;
        pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
        assert_eq!(pair.ends[1].host.memory.borrow()[..8192], [5; 8192]);
        assert_eq!(
            (counters(&pair, 1).faults_stashed, counters(&pair, 1).faults_dropped),
            (1, 0),
            "{handling}"
        );
    }
}

/// The opcode is one of Pagewire's own, and a READ that is asked for again is asked for whole.
#[test]
fn a_read_request_that_was_dropped_is_sent_again_whole() {
    let mut pair = pair(FaultHandling::Err);
    // The model's READ finds its page absent only where it is checked.
    pair.ends[1].host.wait = 1.0;
    pair.ends[1].host.memory.borrow_mut()[..3000].fill(7);
    let id = pair.post_zeroed(0, read(0, 3000));
    pair.run(15_000);
    assert_eq!(counters(&pair, 1).faults_dropped, 1);
    pair.ends[1].host.wait = 0.0;
    page_is_in(&mut pair);
    pair.run_while(FOREVER, |pair| pair.ends[0].connection.outstanding() > 0);
    assert_eq!(pair.ends[0].host.buffers[&id], [7; 3000]);
    let asked: Vec<_> = sent(&pair, 0)
        .into_iter()
        .filter_map(|(_, header)| Some((header.bth.psn, header.reth?.length)))
        .collect();
    assert_eq!(asked, [(0x100, 3000), (0x100, 3000)]);
    let responses = sent(&pair, 1)
        .iter()
        .filter(|(_, header)| header.bth.opcode.operation() != Some(Code::Acknowledge))
        .count();
    assert_eq!(responses, 3);
    assert_eq!(VendorPacket::Resume(Resume { psn: 0, block: 0 }).opcode(), Opcode::RESUME);
}

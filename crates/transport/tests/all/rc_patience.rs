//! How long a requester waits for a peer that does not get on: two Pagewires by time, others by count.

use crate::support::network::Pair;
use crate::support::rules::header;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Aeth, Nak, PacketOperation as Code, Syndrome};

/// 4.19 ms.
const SHORT: u8 = 10;
const SHORT_TIME: u64 = 4096 << SHORT;
const RETRIES: u8 = 3;
const BUDGET: u64 = SHORT_TIME * (RETRIES as u64 + 1);

fn hasty(psn: u32) -> RequesterSettings {
    RequesterSettings { timeout: SHORT, retry_count: RETRIES, ..requester(psn) }
}

fn impatient(seed: u64) -> Pair {
    let link = lossy(4096);
    Pair::with(settings(link, 0x22, 0x100), hasty(0x100), settings(link, 0x11, 0x200), hasty(0x200), seed)
}

fn statuses(pair: &Pair) -> Vec<Status> {
    pair.ends[0].host.completions.iter().map(|(_, status)| *status).collect()
}

/// Requests one after the other, so that nothing but repetition helps when one is lost.
#[test]
fn two_pagewires_do_not_give_up_where_a_fifth_is_lost() {
    for seed in 0..40 {
        let mut pair = impatient(seed).selective();
        (pair.faults.loss, pair.faults.duplication, pair.faults.reordering) = (0.2, 0.1, 0.2);
        for request in 0..500 {
            let work = match request % 4 {
                0 => write(0, 64),
                1 => read(0, 9000),
                2 => write(0, 9000),
                _ => fetch_add(0, 1),
            };
            pair.post_zeroed(0, work);
            pair.run_while(u64::MAX / 2, |pair| pair.ends[0].connection.outstanding() > 0);
            let end = &pair.ends[0];
            assert!(
                !end.connection.is_dead(),
                "seed {seed}, request {request}: {:?}",
                end.connection.counters()
            );
        }
    }
}

/// Nothing comes back: the budget passes, and no more than that.
#[test]
fn a_silent_pagewire_is_given_up_when_the_budget_is_used_up() {
    for (timeout, retry_count) in [(SHORT, RETRIES), (14, 7), (12, 0), (1, 7)] {
        let link = lossy(4096);
        let requester = |psn| RequesterSettings { timeout, retry_count, ..requester(psn) };
        let (one, two) = (settings(link, 0x22, 0x100), settings(link, 0x11, 0x200));
        let mut pair = Pair::with(one, requester(0x100), two, requester(0x200), 1).selective();
        pair.faults.loss = 1.0;
        let budget = timers::acknowledgement_timeout(timeout).unwrap() * (u64::from(retry_count) + 1);
        pair.post_zeroed(0, write(0, 64));
        pair.run(budget - 1);
        assert!(!pair.ends[0].connection.is_dead(), "given up before {budget} ns");
        pair.run(budget);
        assert_eq!(statuses(&pair), [Status::RetryExceeded], "after {budget} ns");
        let sent = pair.ends[0].connection.counters().requests_sent;
        assert!(sent <= 200, "{sent} repetitions in {budget} ns");
    }
}

/// A peer that gets no processor is waited for; once it has read everything its silence counts.
#[test]
fn a_process_that_has_not_read_is_not_given_up() {
    for selective in [true, false] {
        let mut pair = impatient(1);
        if selective {
            pair = pair.selective();
        }
        pair.faults.loss = 1.0;
        pair.ends[0].host.unread = 5;
        pair.post_zeroed(0, write(0, 64));
        pair.run_while(u64::MAX / 2, |pair| pair.ends[0].host.unread > 0);
        assert!(pair.now >= BUDGET && !pair.ends[0].connection.is_dead(), "selective: {selective}");
        let until = pair.now + BUDGET;
        pair.run(until);
        assert_eq!(statuses(&pair), [Status::RetryExceeded], "selective: {selective}");
        assert_eq!(pair.ends[0].host.unread_questions, [false, true, true, true, true, true]);
    }
}

/// The peer answers all the time, and the one packet that it misses never gets there.
#[test]
fn answers_that_bring_nothing_new_do_not_go_on_for_ever() {
    let mut pair = impatient(1).selective();
    pair.filter = Some(Box::new(|from, packet| match packet {
        crate::support::host::Packet::Standard { header, .. } => from == 1 || header.bth.psn != 0x101,
        crate::support::host::Packet::Vendor(_) => true,
    }));
    for at in 0..4 {
        pair.post_zeroed(0, write(at << 12, 4096));
    }
    pair.run(2 * BUDGET);
    assert_eq!(statuses(&pair), [Status::Success, Status::RetryExceeded]);
}

/// A process that did not run for long has repeated nothing in that time.
#[test]
fn lateness_of_ones_own_is_not_the_peers_silence() {
    let mut pair = impatient(1).selective();
    pair.faults.loss = 1.0;
    pair.post_zeroed(0, write(0, 64));
    pair.run(BUDGET / 8);
    pair.now += 100 * BUDGET;
    let awake = pair.now;
    pair.run(awake + BUDGET / 2);
    assert!(!pair.ends[0].connection.is_dead(), "the time that it slept counted");
    pair.run(awake + BUDGET);
    assert_eq!(statuses(&pair), [Status::RetryExceeded]);
}

/// A peer that begins to tell gaps late sends sequence NAKs until then.
#[test]
fn sequence_naks_use_up_no_retries_between_two_pagewires() {
    let mut pair = impatient(1).selective();
    pair.faults.loss = 1.0;
    pair.post_zeroed(0, write(0, 8 * 4096));
    pair.run(0);
    let mut answered = 0;
    let mut header = header(Code::Acknowledge, 0x100);
    header.aeth = Some(Aeth { syndrome: Syndrome::Nak(Nak::PsnSequence), message: 0 });
    while pair.now < BUDGET * 3 / 4 {
        let next = pair.ends[0].connection.deadline().expect("something is under way").0;
        pair.run(next);
        let end = &mut pair.ends[0];
        assert!(!end.connection.is_dead(), "given up after {answered} NAKs, {} ns", pair.now);
        let taken = end.connection.receive(Time(pair.now), &header, Payload::Bytes(&[]), &mut end.host);
        assert!(!taken.is_held());
        answered += 1;
    }
    assert!(answered > 2 * u64::from(RETRIES), "{answered} NAKs");
    pair.run(2 * BUDGET);
    assert_eq!(statuses(&pair), [Status::RetryExceeded], "they tell nothing new, either");
}

/// One side has heard the other's greeting, its own was lost: it is told of gaps, goes back for missing responses, and goes
/// back again for the gaps, all within microseconds.
#[test]
fn what_a_pagewire_tells_before_its_greeting_arrives_uses_up_no_retries() {
    for seed in 0..200 {
        let mut pair = Pair::new(lossy(4096), seed);
        pair.ends[1].connection.set_selective(true);
        (pair.faults.loss, pair.faults.reordering) = (0.2, 0.2);
        for round in 0..4 {
            pair.post_zeroed(0, read(round << 12, 236));
            pair.post_zeroed(0, write(round << 12, 3000));
            pair.post_zeroed(0, fetch_add(0, 1));
            pair.post_zeroed(0, write(round << 12, 100));
        }
        pair.run(timers::acknowledgement_timeout(14).unwrap() * 3 / 4);
        let end = &pair.ends[0];
        assert!(!end.connection.is_dead(), "seed {seed}: {:?}", end.connection.counters());
    }
}

/// NAKs of a sequence error count as no retries, as long as a peer that has not answered the greeting still might.
#[test]
fn sequence_errors_use_up_no_retries_while_the_peer_may_be_a_pagewire() {
    let died = |greeting: bool| {
        let dead = |seed: &u64| {
            let mut pair = impatient(*seed);
            let connection = &mut pair.ends[0].connection;
            connection.set_greeting(greeting);
            let rights = all_rights();
            let requester = RequesterSettings { retry_count: 1, ..hasty(0) };
            connection.update(RcUpdate { requester, ..update(rights) });
            (pair.faults.loss, pair.faults.reordering) = (0.2, 0.3);
            for round in 0..6 {
                pair.post_zeroed(0, read(round << 12, 236));
                pair.post_zeroed(0, write(round << 12, 3000));
                pair.post_zeroed(0, fetch_add(0, 1));
            }
            pair.run(SHORT_TIME * 3 / 4);
            pair.ends[0].connection.is_dead()
        };
        (0..300).filter(dead).count()
    };
    assert_eq!(died(true), 0, "retries are used up before a timeout");
    assert!(died(false) > 0, "of a standard peer they are counted");
}

/// Whoever has to wait for its turn to repeat gives a peer that is silent up nevertheless: it was asked often enough.
#[test]
fn a_silent_pagewire_is_given_up_also_where_repetitions_have_to_wait_for_their_turn() {
    let mut pair = impatient(1).selective();
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8));
    let mut turns = 0;
    while statuses(&pair).is_empty() && turns < 100 {
        pair.ends[0].connection.set_allowance(1);
        pair.run(pair.now + BUDGET);
        turns += 1;
    }
    assert_eq!(statuses(&pair), [Status::RetryExceeded]);
    let asked = pair.ends[0].connection.counters().requests_sent;
    assert!(asked >= limits::LEAST_UNANSWERED, "asked {asked} times, in {turns} turns");
}

//! Refusals that are lost and repeated, and refusals that end one request: what is behind it is executed, once, in order.

use crate::support::host::Packet;
use crate::support::network::{Faults, Pair};
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Nak, Syndrome, VendorPacket};

/// Memory is gone from here on: a request that begins before it is refused in its middle.
const GONE: u64 = 1 << 20;

fn foreign(operation: impl Fn(RemoteAddress) -> WorkOperation, length: u32) -> WorkRequest {
    work(operation(RemoteAddress { address: BASE, key: KEY + 1 }), length)
}

fn put(remote: RemoteAddress) -> WorkOperation {
    WorkOperation::Write { remote, immediate: None }
}

fn is_nak(packet: &Packet) -> bool {
    matches!(packet, Packet::Standard { header, .. }
        if matches!(header.aeth, Some(aeth) if matches!(aeth.syndrome, Syndrome::Nak(nak) if nak != Nak::PsnSequence)))
}

fn is_skip(packet: &Packet) -> bool {
    matches!(packet, Packet::Vendor(VendorPacket::Skip(_)))
}

/// Both ends have agreed that a refusal ends one request.
fn agreed(link: Link, seed: u64) -> Pair {
    let rc = |number, psn| RcSettings { refusal: RefusalScope::Request, ..settings(link, number, psn) };
    logged(Pair::with(rc(0x22, 0), requester(0xff_fff0), rc(0x11, 0), requester(0x200), seed))
}

fn assert_alive(pair: &Pair) {
    assert!(pair.ends.iter().all(|end| !end.connection.is_dead() && end.host.events.is_empty()));
    assert!(pair.ends.iter().all(|end| end.connection.outstanding() == 0));
}

#[test]
fn lost_nak_is_repeated() {
    let atomic = |remote| WorkOperation::Atomic { remote, atomic: AtomicRequest::FetchAdd { add: 1 } };
    for selective in [false, true] {
        for work in
            [foreign(put, 3000), foreign(|remote| WorkOperation::Read { remote }, 3000), foreign(atomic, 8)]
        {
            let mut pair = logged(Pair::new(lossy(1024), 1));
            pair = if selective { pair.selective() } else { pair };
            lose(&mut pair, 5, |_, packet| is_nak(packet));
            pair.post_zeroed(0, write(0, 10));
            pair.post_zeroed(0, work);
            pair.post_zeroed(0, write(0, 10));
            pair.run(FOREVER);
            assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess], "{selective} {work:?}");
            assert!(naks(&pair, 1).len() >= 6);
            assert!(naks(&pair, 1).iter().all(|nak| *nak == Syndrome::Nak(Nak::RemoteAccess)));
            assert_eq!(pair.ends[1].host.events, [QpEvent::AccessError], "once");
        }
    }
}

#[test]
fn response_before_a_refusal_is_repeated() {
    for work in [read(0, 3000), fetch_add(0, 1)] {
        let mut pair = logged(Pair::new(lossy(1024), 1)).selective();
        let mut left = 6;
        pair.filter = Some(Box::new(move |from, _| {
            let hit = from == 1 && left > 0;
            left -= i32::from(hit);
            !hit
        }));
        pair.post_zeroed(0, work);
        pair.post_zeroed(0, foreign(put, 8));
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
        assert!(pair.ends[1].host.atomics_run <= 1);
    }
}

#[test]
fn refusal_ends_one_request() {
    for (link, selective) in
        [(lossy(1024), true), (lossy(1024), false), (local(false), false), (local(true), false)]
    {
        let mut pair = agreed(link, 1);
        pair = if selective { pair.selective() } else { pair };
        pair.post_zeroed(0, write(0, 3000));
        pair.post_zeroed(0, foreign(put, 9000));
        let linked = WorkRequest { linked: true, ..fetch_add(8, 1) };
        pair.post_zeroed(0, linked);
        pair.post_zeroed(0, WorkRequest { linked: true, ..write(64, 100) });
        pair.post_zeroed(0, fetch_add(8, 5));
        pair.post_zeroed(0, foreign(|remote| WorkOperation::Read { remote }, 5000));
        pair.run(FOREVER);
        // What is linked to it may be posted when it has ended.
        pair.post_zeroed(0, linked);
        pair.post_zeroed(0, fetch_add(8, 1));
        pair.run(FOREVER);
        let (refused, flushed, success) = (Status::RemoteAccess, Status::Flushed, Status::Success);
        assert_eq!(
            statuses(&pair, 0),
            [success, refused, flushed, flushed, success, refused, flushed, success],
            "{link:?} {selective}"
        );
        assert_alive(&pair);
        assert_eq!(pair.ends[1].host.memory.borrow()[8], 6);
    }
}

#[test]
fn lost_skip_is_repeated() {
    for lost in 1..6 {
        let mut pair = agreed(lossy(1024), 1).selective();
        lose(&mut pair, lost, |_, packet| is_skip(packet));
        pair.post_zeroed(0, foreign(put, 3000));
        for _ in 0..20 {
            pair.post_zeroed(0, fetch_add(0, 1));
        }
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0)[1..], [Status::Success; 20], "{lost}");
        assert_eq!(pair.ends[1].host.memory.borrow()[0], 20);
        assert_alive(&pair);
    }
}

#[test]
fn what_has_landed_is_known() {
    let at = |length: u32| GONE - u64::from(length) / 2 / 1024 * 1024;
    for work in [write(at(9000), 9000), read(at(9000), 9000)] {
        let mut pair = agreed(lossy(1024), 1).selective();
        pair.ends[1].host.gone_from = BASE + GONE;
        pair.post_zeroed(0, work);
        pair.post_zeroed(0, fetch_add(0, 1));
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::RemoteAccess, Status::Success]);
        assert_eq!(pair.ends[0].host.landed, [(WorkId(0), 4096)]);
        assert_alive(&pair);
    }
}

#[test]
fn failing_own_buffer_ends_one_request() {
    for offset in [0, 2048] {
        let mut pair = agreed(lossy(1024), 1).selective();
        let id = pair.post_zeroed(0, write(0, 9000));
        pair.post_zeroed(0, WorkRequest { linked: true, ..fetch_add(16384, 1) });
        pair.post_zeroed(0, fetch_add(16384, 2));
        (pair.ends[0].host.deny_transmit, pair.ends[0].host.deny_from) =
            (Some((id, Denial::LocalProtection)), offset);
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::LocalProtection, Status::Flushed, Status::Success]);
        assert_eq!(pair.ends[1].host.memory.borrow()[16384], 2);
        assert_alive(&pair);
    }
}

/// The NAK of a request acknowledges the one before it, with which a request ends that had failed here: nothing else does.
#[test]
fn refusal_of_a_request_that_failed_here_ends_no_other() {
    for selective in [false, true] {
        let mut pair = agreed(lossy(1024), 1);
        pair = if selective { pair.selective() } else { pair };
        pair.filter = Some(Box::new(|from, packet| from == 0 || is_nak(packet) || is_skip(packet)));
        pair.post_zeroed(0, write(0, 10));
        let failing = pair.post_zeroed(0, foreign(put, 9000));
        pair.post_zeroed(0, fetch_add(16384, 2));
        pair.post_zeroed(0, fetch_add(16384, 3));
        (pair.ends[0].host.deny_transmit, pair.ends[0].host.deny_from) =
            (Some((failing, Denial::LocalProtection)), 2048);
        pair.run(2_000_000);
        pair.filter = None;
        pair.run(FOREVER);
        assert_eq!(
            statuses(&pair, 0),
            [Status::Success, Status::LocalProtection, Status::Success, Status::Success],
            "{selective}"
        );
        assert_eq!(pair.ends[1].host.memory.borrow()[16384], 5);
        assert_alive(&pair);
    }
}

/// What comes late of a READ that was refused asks for nothing: each is refused, and logged, once.
#[test]
fn refused_reads_are_refused_once_by_any_network() {
    for seed in 0..20 {
        let mut pair = agreed(lossy(1024), seed).selective();
        pair.faults = Faults { loss: 0.05, duplication: 0.05, reordering: 0.2, ..Faults::default() };
        for _ in 0..100 {
            pair.post_zeroed(0, foreign(|remote| WorkOperation::Read { remote }, 3000));
            pair.run(FOREVER);
            pair.post_zeroed(0, read(0, 3000));
        }
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0).len(), 200);
        assert_eq!(pair.ends[1].host.reads_refused, 100, "seed {seed}");
        assert_alive(&pair);
    }
}

/// A SKIP that is late, comes twice or names another request changes nothing.
#[test]
fn stale_skips_change_nothing() {
    let mut pair = agreed(lossy(1024), 1).selective();
    pair.faults = Faults { duplication: 1.0, ..Faults::default() };
    for _ in 0..5 {
        pair.post_zeroed(0, foreign(put, 3000));
        pair.post_zeroed(0, fetch_add(0, 1));
    }
    pair.run(FOREVER);
    let end = &mut pair.ends[1];
    for (refused, resume) in [(0, 5), (0xff_fff0, 0xff_fff3), (0x300, 0x301), (0x80_0000, 0)] {
        let skip = VendorPacket::Skip(pagewire_wire::Skip { refused, resume });
        end.connection.receive_control(Time(pair.now), &skip, &mut end.host);
    }
    pair.post_zeroed(0, fetch_add(0, 1));
    pair.run(FOREVER);
    assert_eq!(pair.ends[1].host.memory.borrow()[0], 6);
    assert_alive(&pair);
}

/// Requests of both ends, of which some are refused, by a network that does all that it may: each ends once, as it should.
#[test]
fn refusals_survive_any_network() {
    let links = [lossy(1024), local(false), local(true)];
    for seed in 0..240u64 {
        let link = links[seed as usize % links.len()];
        let mut pair = agreed(link, seed).selective();
        if !link.lossless {
            pair.faults = Faults { loss: 0.05, duplication: 0.05, reordering: 0.1, ..Faults::default() };
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let mut expected: [Vec<Status>; 2] = Default::default();
        let mut sums = [0u64; 2];
        for end in 0..2 {
            pair.ends[end].host.wait = if random.bool() { 0.1 } else { 0.0 };
            pair.ends[end].host.gone_from = BASE + GONE;
        }
        for _ in 0..60 {
            let end = random.usize(0..2);
            let length = if random.bool() { random.u32(1..200) } else { random.u32(1..9000) };
            let straddles = GONE - u64::from(random.u32(0..length));
            let (posted, is_good) = match random.u32(0..8) {
                0 => (write(64, length), true),
                1 => (read(64, length), true),
                2 | 3 => (fetch_add(0, 1), true),
                4 => (foreign(put, length), false),
                5 => (foreign(|remote| WorkOperation::Read { remote }, length), false),
                6 => (write(straddles, length), false),
                _ => (read(straddles, length), false),
            };
            let linked = random.u32(0..3) == 0;
            let last = expected[end].last().copied().unwrap_or(Status::Success);
            let status = match (linked && last != Status::Success, is_good) {
                (true, _) => Status::Flushed,
                (false, true) => Status::Success,
                (false, false) => Status::RemoteAccess,
            };
            let adds = matches!(posted.operation, WorkOperation::Atomic { .. });
            sums[1 - end] += u64::from(adds && status == Status::Success);
            expected[end].push(status);
            pair.post_zeroed(end, WorkRequest { linked, fence: random.u32(0..8) == 0, ..posted });
            if random.u32(0..4) == 0 {
                let until = pair.now + random.u64(0..200_000);
                pair.run(until);
            }
        }
        pair.run(FOREVER);
        for end in 0..2 {
            assert_eq!(statuses(&pair, end), expected[end], "seed {seed}, end {end}");
            let memory = pair.ends[end].host.memory.borrow();
            assert_eq!(u64::from_ne_bytes(memory[..8].try_into().unwrap()), sums[end], "seed {seed}");
        }
        assert_alive(&pair);
    }
}

/// The response to a READ is lost, and its region goes before the READ is repeated: it is refused, not lost.
#[test]
fn repeated_read_of_a_region_that_has_gone_is_refused() {
    for refusal in [RefusalScope::Connection, RefusalScope::Request] {
        let rc = |number, psn| RcSettings { refusal, ..settings(lossy(1024), number, psn) };
        let mut pair =
            Pair::with(rc(0x22, 0), requester(0x100), rc(0x11, 0), requester(0x200), 1).selective();
        pair.filter = Some(Box::new(|from, _| from == 0));
        pair.post_zeroed(0, read(GONE, 3000));
        pair.post_zeroed(0, write(0, 8));
        pair.run(1_000_000);
        pair.filter = None;
        pair.ends[1].host.gone_from = BASE + GONE;
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0)[0], Status::RemoteAccess, "{refusal:?}");
        assert!(
            !pair.ends[1].connection.is_dead(),
            "the requester alone ends, where a refusal ends connections"
        );
        assert_eq!(pair.ends[0].connection.is_dead(), refusal == RefusalScope::Connection);
        if refusal == RefusalScope::Request {
            assert_eq!(statuses(&pair, 0), [Status::RemoteAccess, Status::Success]);
        }
    }
}

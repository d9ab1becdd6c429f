//! What a NIC does with packets that find a page absent, in each way that it may be told.

use crate::support::{Side, connect, side_by};
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::{
    FaultHandling, Options, PathChoice, ProtocolCounters, ReceiveRequest, Rights, ScatterGather,
    SendOperation, Status, Unwatched,
};
use pagewire_sim::{LinkFaults, MEMORY, World};
use std::sync::Arc;

/// Virtual nanoseconds in which everything here is done.
const LONG: u64 = 2_000_000_000;

fn sides(world: &World, handling: FaultHandling, kind: QueuePairType, path: PathChoice) -> [Side; 2] {
    let hosts = [world.host(), world.host()];
    let sides = [0, 1].map(|at| {
        let options = Options { path, page_faults: handling.into(), ..Options::default() };
        let host = if path == PathChoice::Udp { hosts[at] } else { hosts[0] };
        side_by(world, host, options, &[kind], Arc::new(Unwatched))
    });
    let ends = [0, 1].map(|at| (sides[at].process, &sides[at].queue_pairs[0]));
    connect(world, ends[0], ends[1], Rights::REMOTE_WRITE | Rights::REMOTE_READ);
    // The peers have greeted each other.
    work(world, &sides, 5_000_000, |_| false);
    sides
}

/// Has both sides work until `done`, or for some time; gives how many completions each had, all of them successes.
fn work(world: &World, sides: &[Side; 2], time: u64, done: impl Fn([u32; 2]) -> bool) -> [u32; 2] {
    let end = world.now() + time;
    let mut completed = [0; 2];
    while world.now() < end && !done(completed) {
        let next = sides.iter().filter_map(|side| side.nic.progress()).min();
        for (side, count) in sides.iter().zip(&mut completed) {
            side.cq.poll(8, &mut |completion| {
                assert_eq!(completion.status, Status::Success);
                *count += 1;
            });
        }
        world.advance(Some(next.unwrap_or(u64::MAX).clamp((world.now() + 1_000).min(end), end)));
    }
    completed
}

fn counters(side: &Side) -> ProtocolCounters {
    side.queue_pairs[0].report().protocol.expect("nobody drives it now")
}

#[test]
fn a_write_to_an_absent_page_arrives_in_every_mode() {
    for handling in FaultHandling::ALL {
        let world = World::new(7, LinkFaults::NONE);
        let both = sides(&world, handling, QueuePairType::Rc, PathChoice::Udp);
        let [one, two] = &both;
        world.evict(two.process, MEMORY, 1 << 16);
        one.post(SendOperation::Write { address: MEMORY, key: two.region.rkey() }, 1 << 16);
        assert_eq!(work(&world, &both, LONG, |[done, _]| done > 0), [1, 0], "{handling}");
        let (source, target) = (counters(one), counters(two));
        let kept = handling == FaultHandling::Stash;
        assert_eq!((target.faults_stashed > 0, target.faults_dropped > 0), (kept, !kept), "{handling}");
        let resumes = matches!(handling, FaultHandling::Err | FaultHandling::ErrWithoutTimeout);
        assert_eq!(target.resumes_sent > 0, resumes, "{handling}");
        assert_eq!(source.resumes_received, target.resumes_sent, "{handling}");
        assert_eq!(target.rnr_naks_sent > 0, handling == FaultHandling::Rnr, "{handling}");
        let report = two.nic.page_faults();
        let [all, region] = [report.all, report.regions[0].counts];
        for counts in [all, region, report.devices.values().next().copied().unwrap_or_default()] {
            let has = [counts.stashed, counts.resumed, counts.timed_out].map(|count| count > 0);
            assert_eq!(has, [kept, resumes, !kept && !resumes], "{handling}: {counts:?}");
        }
        // With RNR NAKs, only for packets that came ahead of the one that was dropped, and were kept.
        let may_hold = handling != FaultHandling::Timeout;
        assert!(!resumes || target.holds_sent > 0, "{handling}");
        assert!(may_hold || target.holds_sent == 0, "{handling}");
        assert_eq!(source.timeouts, 0, "{handling}");
    }
}

/// PART-7. A pager in user space is asked ahead for what a WRITE or READ is known to bring, and for nothing behind it.
#[test]
fn of_a_pager_all_that_is_known_to_come_is_asked_for_ahead() {
    const LENGTH: u32 = 1 << 17;
    for reads in [false, true] {
        let world = World::new(11, LinkFaults::NONE);
        let both = sides(&world, FaultHandling::Stash, QueuePairType::Rc, PathChoice::Udp);
        let [one, two] = &both;
        let (operation, target) = if reads {
            (SendOperation::Read { address: MEMORY, key: two.region.rkey() }, one)
        } else {
            (SendOperation::Write { address: MEMORY, key: two.region.rkey() }, two)
        };
        world.evict(target.process, MEMORY, 1 << 19);
        one.post(operation, LENGTH);
        assert_eq!(work(&world, &both, LONG, |[done, _]| done > 0), [1, 0]);
        let counts = target.nic.page_faults().all;
        assert!(counts.bytes_ahead > u64::from(LENGTH) / 2, "reads {reads}: {counts:?}");
        assert!(counts.bytes_ahead <= u64::from(LENGTH), "reads {reads}, behind the transfer: {counts:?}");
        assert!(counts.major <= u64::from(LENGTH) / 16_384 + 1, "reads {reads}: {counts:?}");
    }
}

#[test]
fn a_read_into_an_absent_page_arrives_in_every_mode() {
    for handling in FaultHandling::ALL {
        let world = World::new(8, LinkFaults::NONE);
        let both = sides(&world, handling, QueuePairType::Rc, PathChoice::Udp);
        let [one, two] = &both;
        world.evict(one.process, MEMORY, 1 << 16);
        one.post(SendOperation::Read { address: MEMORY, key: two.region.rkey() }, 1 << 16);
        assert_eq!(work(&world, &both, LONG, |[done, _]| done > 0), [1, 0], "{handling}");
        let counted = counters(one);
        let kept = handling == FaultHandling::Stash;
        assert_eq!((counted.faults_stashed > 0, counted.faults_dropped > 0), (kept, !kept), "{handling}");
    }
}

#[test]
fn uc_and_ud_lose_what_is_dropped_and_only_that() {
    for handling in FaultHandling::ALL {
        let world = World::new(9, LinkFaults::NONE);
        let both = sides(&world, handling, QueuePairType::Uc, PathChoice::Udp);
        let [one, two] = &both;
        for wr_id in 0..2 {
            let address = MEMORY + 8192 * wr_id;
            let segments = [ScatterGather { address, length: 4096, key: two.region.lkey() }];
            two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id, segments: &segments }).unwrap();
        }
        world.evict(two.process, MEMORY, 4096);
        one.post(SendOperation::Send, 1000);
        let first = work(&world, &both, 50_000_000, |_| false);
        one.post(SendOperation::Send, 1000);
        let second = work(&world, &both, 50_000_000, |_| false);
        let kept = handling == FaultHandling::Stash;
        assert_eq!((first, second), ([1, u32::from(kept)], [1, 1]), "{handling}");
        assert_eq!(counters(two).faults_dropped, u64::from(!kept), "{handling}");
    }
}

#[test]
fn inside_a_host_everything_is_kept() {
    for handling in FaultHandling::ALL {
        let world = World::new(10, LinkFaults::NONE);
        let both = sides(&world, handling, QueuePairType::Rc, PathChoice::Local);
        let [one, two] = &both;
        let segments = [ScatterGather { address: MEMORY, length: 8192, key: two.region.lkey() }];
        two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 1, segments: &segments }).unwrap();
        world.evict(two.process, MEMORY, 8192);
        one.post(SendOperation::Send, 8192);
        assert_eq!(work(&world, &both, LONG, |done| done == [1, 1]), [1, 1], "{handling}");
        assert_eq!(counters(two).faults_dropped, 0, "{handling}");
    }
}

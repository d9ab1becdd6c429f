//! A queue pair that waits for a page says so, and its silence is not taken for the end of its process.

use crate::support::{Side, connect, connect_with, side, side_with};
use pagewire_nic::attributes::{QueuePairChange, QueuePairType};
use pagewire_nic::{PathChoice, ReceiveRequest, Rights, ScatterGather, SendOperation, Status, Unwatched};
use pagewire_sim::{LinkFaults, MEMORY, World};
use std::sync::Arc;

/// 16 us: shorter than most pages take to come in.
const TIMEOUT: u8 = 2;

/// Has both sides work for some time, and notes the last completion of each.
fn work(world: &World, sides: [&Side; 2], statuses: &mut [Option<Status>; 2], time: u64) {
    let end = world.now() + time;
    while world.now() < end {
        let next = sides.iter().filter_map(|side| side.nic.progress()).min();
        for (side, status) in sides.iter().zip(statuses.iter_mut()) {
            side.cq.poll(1, &mut |completion| *status = Some(completion.status));
        }
        world.advance(Some(next.unwrap_or(u64::MAX).clamp((world.now() + 1_000).min(end), end)));
    }
}

#[test]
fn who_waits_for_a_page_is_not_silent() {
    for seed in 1..=20 {
        let world = World::new(seed, LinkFaults::NONE);
        let host = world.host();
        let sides = [0, 1].map(|_| side(&world, host, PathChoice::Local, 1));
        let [one, two] = &sides;
        let ends = [one, two].map(|side| (side.process, &side.queue_pairs[0]));
        connect_with(&world, ends[0], ends[1], Rights::empty(), (TIMEOUT, 0));
        let segments = [ScatterGather { address: MEMORY, length: 4096, key: two.region.lkey() }];
        two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 2, segments: &segments }).unwrap();
        let mut status = None;
        let work = |status: &mut Option<Status>| {
            // Neither is late: only the page is.
            for side in [one, two, one] {
                side.nic.progress();
            }
            one.cq.poll(1, &mut |completion| *status = Some(completion.status));
            world.advance(Some(world.now() + 1_000));
        };
        while world.now() < 10_000_000 {
            work(&mut status);
        }
        world.evict(two.process, MEMORY, 4096);
        // Long enough not to be sent at its post, whose timer begins late.
        one.post(SendOperation::Send, 1000);
        let end = world.now() + 100_000_000;
        while status.is_none() && world.now() < end {
            work(&mut status);
        }
        assert_eq!(status, Some(Status::Success), "seed {seed}");
    }
}

/// When a page comes that comes late, in nanoseconds: the patience of the one that waits, 134 ms, is over many times until then.
const LATE: u64 = 20_000_000_000;

#[test]
fn a_page_is_waited_for_however_late_it_comes() {
    for path in [PathChoice::Local, PathChoice::Udp] {
        let world = World::new(5, LinkFaults::NONE);
        let host = world.host();
        let other = if path == PathChoice::Udp { world.host() } else { host };
        let [one, two] = [host, other].map(|host| side(&world, host, path, 1));
        let ends = [&one, &two].map(|side| (side.process, &side.queue_pairs[0]));
        connect(&world, ends[0], ends[1], Rights::REMOTE_WRITE | Rights::REMOTE_READ);
        let segments = [ScatterGather { address: MEMORY, length: 4096, key: two.region.lkey() }];
        two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 2, segments: &segments }).unwrap();
        let (address, key) = (MEMORY, two.region.rkey());
        for operation in
            [SendOperation::Send, SendOperation::Write { address, key }, SendOperation::Read { address, key }]
        {
            let step = |status: &mut Option<Status>, end: u64| {
                let next = one.nic.progress().into_iter().chain(two.nic.progress()).min();
                one.cq.poll(1, &mut |completion| *status = Some(completion.status));
                world.advance(Some(next.unwrap_or(u64::MAX).clamp(world.now() + 1_000, end)));
            };
            let mut status = None;
            let end = world.now() + 10_000_000;
            while world.now() < end {
                step(&mut status, end);
            }
            world.evict(two.process, MEMORY, 4096);
            let end = world.now() + LATE;
            world.withhold_pages(two.process, end);
            one.post(operation, 1000);
            while world.now() < end {
                step(&mut status, end);
                assert_eq!(status, None, "path {path:?}, {} ns before the page came", end - world.now());
            }
            let end = end + 1_000_000_000;
            while status.is_none() && world.now() < end {
                step(&mut status, end);
            }
            assert_eq!(status, Some(Status::Success), "path {path:?}");
        }
    }
}

/// Memory, or its region, may go while a page of it is awaited: nobody says so.
#[test]
fn what_goes_while_a_page_is_awaited_is_noticed() {
    for (path, kind) in [PathChoice::Local, PathChoice::Udp]
        .into_iter()
        .flat_map(|path| [(path, QueuePairType::Rc), (path, QueuePairType::Uc)])
    {
        for region_goes in [true, false] {
            let world = World::new(5, LinkFaults::NONE);
            let host = world.host();
            let other = if path == PathChoice::Udp { world.host() } else { host };
            let [one, two] =
                [host, other].map(|host| side_with(&world, host, path, &[kind], Arc::new(Unwatched)));
            let ends = [&one, &two].map(|side| (side.process, &side.queue_pairs[0]));
            connect(&world, ends[0], ends[1], Rights::empty());
            let segments = [ScatterGather { address: MEMORY, length: 4096, key: two.region.lkey() }];
            two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 2, segments: &segments }).unwrap();
            let mut statuses = [None; 2];
            let work = |statuses: &mut _, time| work(&world, [&one, &two], statuses, time);
            work(&mut statuses, 10_000_000);
            world.evict(two.process, MEMORY, 4096);
            world.withhold_pages(two.process, u64::MAX);
            one.post(SendOperation::Send, 1000);
            work(&mut statuses, 100_000_000);
            let reliable = kind == QueuePairType::Rc;
            // UC sends, and forgets.
            let sent = if reliable { None } else { Some(Status::Success) };
            assert_eq!(statuses, [sent, None], "{path:?} {kind:?}: the page is not there");
            if region_goes {
                two.region.deregister().unwrap();
            } else {
                world.unmap(two.process, MEMORY, 4096);
            }
            work(&mut statuses, 100_000_000);
            let sent = if reliable { Status::RemoteOperation } else { Status::Success };
            assert_eq!(statuses, [Some(sent), Some(Status::LocalProtection)], "{path:?} {kind:?}");
        }
    }
}

/// Pages that come in for one half of a queue pair are none that the other half waits for.
#[test]
fn who_waits_for_one_page_goes_on_doing_so_while_others_come() {
    let world = World::new(5, LinkFaults::NONE);
    let [one, two] = [(); 2].map(|()| side(&world, world.host(), PathChoice::Udp, 1));
    let ends = [&one, &two].map(|side| (side.process, &side.queue_pairs[0]));
    connect(&world, ends[0], ends[1], Rights::REMOTE_WRITE);
    let mut done = [None, None];
    let work = |done: &mut _, time| work(&world, [&one, &two], done, time);
    work(&mut done, 10_000_000);
    let late = MEMORY + (512 << 10);
    let end = world.now() + LATE;
    world.evict(two.process, late, 4096);
    world.withhold_pages(two.process, end);
    one.post(SendOperation::Write { address: late, key: two.region.rkey() }, 1000);
    work(&mut done, 100_000_000);
    world.withhold_pages(two.process, 0);
    for count in 0..20 {
        world.evict(two.process, MEMORY, 4096);
        two.post(SendOperation::Write { address: MEMORY, key: one.region.rkey() }, 1000);
        work(&mut done, 100_000_000);
        assert_eq!(done, [None, Some(Status::Success)], "after {count} others");
        done[1] = None;
    }
    work(&mut done, LATE);
    assert_eq!(done, [Some(Status::Success), None]);
}

/// Bytes of a message that its receiver reads where they lie.
const LONG: u32 = 100_000;

/// Two processes of a host, of which the first has just posted a long message to the second. No time-out helps: they wait for ever.
fn long_message() -> (World, [Side; 2]) {
    let world = World::new(5, LinkFaults::NONE);
    let host = world.host();
    let sides = [0, 1].map(|_| side(&world, host, PathChoice::Local, 1));
    let [one, two] = &sides;
    let ends = [one, two].map(|side| (side.process, &side.queue_pairs[0]));
    connect_with(&world, ends[0], ends[1], Rights::REMOTE_READ, (0, 7));
    let segments = [ScatterGather { address: MEMORY, length: LONG, key: two.region.lkey() }];
    two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 2, segments: &segments }).unwrap();
    work(&world, [one, two], &mut [None; 2], 10_000_000);
    one.post(SendOperation::Send, LONG);
    (world, sides)
}

/// Pages of a long message that are swapped out between its post and the receiver's look at them: the requester is asked for it, once, and
/// not found silent. Then its bytes travel themselves, however often the pages go again.
#[test]
fn what_cannot_be_read_is_asked_for_once() {
    for times in [1, 2, 3, 10] {
        let (world, [one, two]) = &long_message();
        let mut statuses = [None; 2];
        let counters = || pagewire_nic::ConnectionReport::of_all(&one.nic)[0].protocol.unwrap();
        let before = counters();
        for _ in 0..times {
            world.evict(one.process, MEMORY, u64::from(LONG));
            // For longer than the receiver has them brought in itself.
            world.withhold_pages(one.process, world.now() + 100_000_000);
            let end = world.now() + 150_000_000;
            while world.now() < end {
                let asked = counters().sequence_naks_received > before.sequence_naks_received;
                // Who sends again comes to it before the receiver.
                let [taker, sender] = if asked { [one, one] } else { [two, one] };
                taker.nic.progress();
                sender.nic.progress();
                world.advance(Some(world.now() + 10_000));
            }
        }
        assert!(counters().retransmissions > before.retransmissions);
        work(world, [one, two], &mut statuses, 100_000_000);
        assert_eq!(statuses, [Some(Status::Success); 2], "{times} times");
        assert_eq!(counters().sequence_naks_received, before.sequence_naks_received + 1);
    }
}

/// A receiver that looks just then, at each store of the call, does not take the sender to have ended.
#[test]
fn rights_change_while_a_message_is_read() {
    for store in 1..=6 {
        let (world, [one, two]) = &long_message();
        let mut statuses = [None; 2];
        let (sender, receiver) = (world.get(one.process), two.nic.clone());
        sender.interrupt_at(store, move || {
            for _ in 0..5 {
                receiver.progress();
            }
        });
        for access in [Rights::REMOTE_WRITE, Rights::REMOTE_READ] {
            let change = QueuePairChange { access: Some(access), ..Default::default() };
            one.queue_pairs[0].modify(&change).unwrap();
        }
        sender.cancel_interruption();
        work(world, [one, two], &mut statuses, 100_000_000);
        assert_eq!(statuses, [Some(Status::Success); 2], "store {store}");
    }
}

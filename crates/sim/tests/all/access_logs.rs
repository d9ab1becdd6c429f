//! Access logs of simulated hosts, over links that lose, double and reorder packets: each WRITE has its records once, whole and in order, however
//! often its packets come, and each READ once but for records that say that they repeat it (PAPERS AA-3, AA-7 and AA-8).

use crate::support::{SPAN, Side, connect, side};
use pagewire_fabric::Fabric;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_nic::{
    AccessLog, AccessLogInit, Data, LoggedOperation, Next, PageAttributes, PageFlags, PathChoice,
    RecordFlags, Rights, ScatterGather, SendOperation, SendRequest, Status,
};
use pagewire_sim::{LinkFaults, MEMORY, SimFabric, World};

const PAGE: u64 = 4096;
/// Pages that redirect, pages that log data, pages that log metadata; the rest is ordinary.
const REDIRECTED: u64 = 4;
const LOGGED: u64 = 8;
const COUNTED: u64 = 12;
/// The ring of a source is shorter than what is posted at once.
const RING: usize = 8192;
const WRITES: u64 = 60;
pub const AT_ONCE: u64 = 4;
/// Virtual nanoseconds without progress that are too many.
pub const PATIENCE: u64 = 20_000_000_000;

/// A WRITE: where to, how long, and which byte it is full of.
#[derive(Debug, Clone, Copy)]
struct Write {
    at: u64,
    length: u64,
    fill: u8,
}

pub fn post(side: &Side, wr_id: u64, length: u64, slot: u64, operation: SendOperation) {
    let address = MEMORY + slot * (SPAN / AT_ONCE);
    let pieces = [ScatterGather { address, length: length as u32, key: side.region.lkey() }];
    let request = SendRequest {
        wr_id,
        data: Data::Segments(&pieces),
        operation,
        signaled: true,
        fence: false,
        solicited: false,
        destination: None,
    };
    side.queue_pairs[0].post_send(&request).unwrap();
    side.queue_pairs[0].doorbell();
}

/// What the records of the writes should be, page by page.
struct Checker {
    memory: Vec<u8>,
    /// Of each write: the bytes that are logged with data, and those whose metadata are.
    expected: Vec<(u64, u64)>,
    seen: Vec<(u64, u64)>,
    /// The write of which a record came last. Records of a queue pair come in the order of its writes.
    last: usize,
}

impl Checker {
    fn expect(&mut self, write: &Write) {
        let (mut with_data, mut counted) = (0, 0);
        for at in write.at..write.at + write.length {
            let page = at / PAGE;
            with_data += u64::from(page < LOGGED);
            counted += u64::from((LOGGED..COUNTED).contains(&page));
            if page >= REDIRECTED {
                self.memory[at as usize] = write.fill;
            }
        }
        self.expected.push((with_data, counted));
        self.seen.push((0, 0));
    }

    fn take(&mut self, log: &AccessLog<SimFabric>, writes: &[Write]) -> bool {
        let mut data = Vec::new();
        let Next::Record(record, receipt) = log.next(&mut data) else { return false };
        log.handled(receipt);
        assert_eq!(record.operation, LoggedOperation::Write);
        let (at, length) = (record.address - MEMORY, u64::from(record.length));
        assert_eq!(record.flags.contains(RecordFlags::REDIRECTED), at / PAGE < REDIRECTED);
        assert!(data.is_empty() || data.len() as u64 == length);
        let has_data = !data.is_empty();
        let is_of = |index: &usize| {
            let (write, expected, seen) = (&writes[*index], self.expected[*index], self.seen[*index]);
            let left = if has_data { expected.0 - seen.0 } else { expected.1 - seen.1 };
            let is_inside = at >= write.at && at + length <= write.at + write.length;
            is_inside && length <= left && data.iter().all(|byte| *byte == write.fill)
        };
        let Some(index) = (self.last..writes.len()).find(is_of) else {
            panic!("{record:?} is of no write from {} on", self.last)
        };
        self.last = index;
        let seen = &mut self.seen[index];
        if has_data {
            seen.0 += length
        } else {
            seen.1 += length
        }
        true
    }
}

/// A caller and an owner that are connected.
pub fn pair(world: &World, path: PathChoice) -> (Side, Side) {
    let hosts = [world.host(), world.host()];
    let host = |at: usize| if path == PathChoice::Udp { hosts[at] } else { hosts[0] };
    let (caller, owner) = (side(world, host(0), path, 1), side(world, host(1), path, 1));
    let ends = [(caller.process, &caller.queue_pairs[0]), (owner.process, &owner.queue_pairs[0])];
    connect(world, ends[0], ends[1], Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC);
    (caller, owner)
}

fn run(seed: u64, path: PathChoice, faults: LinkFaults) {
    let world = World::new(seed, faults);
    let mut random = fastrand::Rng::with_seed(seed);
    let (caller, owner) = pair(&world, path);
    let init = AccessLogInit { sources: 2, bytes: RING, is_ordered: true };
    let log = pagewire_nic::AccessLog::of_nic(&owner.nic, &init).unwrap();
    let table = owner.nic.make_attributes(MEMORY..MEMORY + SPAN).unwrap();
    let flags = PageFlags::READ | PageFlags::TO_ACCESS_LOG | PageFlags::LOG_WRITE;
    let page = |flags| PageAttributes { flags, user_domain: log.user_domain() };
    table.set(0..REDIRECTED * PAGE, page(flags | PageFlags::LOG_WRITE_DATA)).unwrap();
    let logged = flags | PageFlags::WRITE | PageFlags::LOG_WRITE_DATA;
    table.set(REDIRECTED * PAGE..LOGGED * PAGE, page(logged)).unwrap();
    table.set(LOGGED * PAGE..COUNTED * PAGE, page(flags | PageFlags::WRITE)).unwrap();
    owner.region.set_attributes(Some(&table)).unwrap();

    let memory = vec![0; SPAN as usize];
    let mut checker = Checker { memory, expected: Vec::new(), seen: Vec::new(), last: 0 };
    let mut writes: Vec<Write> = Vec::new();
    let (mut completed, mut silent_since) = (0, world.now());
    while completed < WRITES {
        while (writes.len() as u64) < WRITES.min(completed + AT_ONCE) {
            let slot = writes.len() as u64 % AT_ONCE;
            let (at, length) = (random.u64(0..16 * PAGE), random.u64(1..5 * PAGE));
            let write = Write { at, length, fill: writes.len() as u8 + 1 };
            world.poke(caller.process, MEMORY + slot * (SPAN / AT_ONCE), &vec![write.fill; length as usize]);
            checker.expect(&write);
            writes.push(write);
            let operation = SendOperation::Write { address: MEMORY + at, key: owner.region.rkey() };
            post(&caller, write.fill.into(), length, slot, operation);
        }
        let next = [&caller, &owner].into_iter().filter_map(|side| side.nic.progress()).min();
        caller.cq.poll(8, &mut |completion| {
            assert_eq!(completion.status, Status::Success);
            completed += 1;
            silent_since = world.now();
        });
        if random.bool() && checker.take(&log, &writes) {
            silent_since = world.now();
        }
        assert!(world.now() < silent_since + PATIENCE, "seed {seed}, {path}: {completed} of {WRITES}");
        let soon = world.now() + 1_000;
        world.advance(Some(next.unwrap_or(u64::MAX).clamp(soon, soon + 1_000_000)));
    }
    while checker.take(&log, &writes) {}
    assert_eq!(checker.seen, checker.expected, "seed {seed}, {path}");
    let mut there = vec![0; SPAN as usize];
    let all = [Segment { address: MEMORY, length: SPAN }];
    owner.nic.fabric().memory().read(&all, &mut there).unwrap();
    assert!(there == checker.memory, "seed {seed}, {path}: memory");
}

#[test]
fn each_write_has_its_records_once_on_the_local_path() {
    for seed in 0..10 {
        run(seed, PathChoice::Local, LinkFaults::NONE);
    }
}

#[test]
fn each_write_has_its_records_once_over_lossy_links() {
    for seed in 0..10 {
        run(seed, PathChoice::Udp, LinkFaults::lossy(0.02 * (seed % 4) as f64));
    }
}

/// Reads until all have completed; gives the bytes that records say of each, without those that repeat some, and the number of records that do.
fn read_all(seed: u64, path: PathChoice, faults: LinkFaults) -> (Vec<u64>, Vec<u64>, usize) {
    let world = World::new(seed, faults);
    let mut random = fastrand::Rng::with_seed(seed);
    let (caller, owner) = pair(&world, path);
    let init = AccessLogInit { sources: 2, bytes: RING, is_ordered: true };
    let log = pagewire_nic::AccessLog::of_nic(&owner.nic, &init).unwrap();
    let table = owner.nic.make_attributes(MEMORY..MEMORY + SPAN).unwrap();
    let flags = PageFlags::READ | PageFlags::WRITE | PageFlags::TO_ACCESS_LOG | PageFlags::LOG_READ;
    table.set(0..SPAN, PageAttributes { flags, user_domain: log.user_domain() }).unwrap();
    owner.region.set_attributes(Some(&table)).unwrap();
    let (mut asked, mut seen, mut repetitions) = (Vec::new(), Vec::new(), 0);
    let (mut completed, mut silent_since) = (0, world.now());
    let mut take = |seen: &mut Vec<u64>| {
        let mut data = Vec::new();
        while let Next::Record(record, receipt) = log.next(&mut data) {
            log.handled(receipt);
            assert_eq!(record.operation, LoggedOperation::Read);
            // Each READ begins at a page of its own.
            let index = ((record.address - MEMORY) / (5 * PAGE)) as usize;
            match record.flags.contains(RecordFlags::REPEATED) {
                true => repetitions += 1,
                false => seen[index] += u64::from(record.length),
            }
        }
    };
    let most = SPAN / (5 * PAGE);
    while completed < most {
        while (asked.len() as u64) < most.min(completed + AT_ONCE) {
            let (index, length) = (asked.len() as u64, random.u64(1..5 * PAGE));
            let operation =
                SendOperation::Read { address: MEMORY + index * 5 * PAGE, key: owner.region.rkey() };
            asked.push(length);
            seen.push(0);
            post(&caller, index, length, index % AT_ONCE, operation);
        }
        let next = [&caller, &owner].into_iter().filter_map(|side| side.nic.progress()).min();
        caller.cq.poll(8, &mut |completion| {
            assert_eq!(completion.status, Status::Success);
            completed += 1;
            silent_since = world.now();
        });
        take(&mut seen);
        assert!(world.now() < silent_since + PATIENCE, "seed {seed}, {path}: {completed} of {most}");
        let soon = world.now() + 1_000;
        world.advance(Some(next.unwrap_or(u64::MAX).clamp(soon, soon + 1_000_000)));
    }
    take(&mut seen);
    (asked, seen, repetitions)
}

#[test]
fn each_read_has_its_bytes_once_but_for_records_that_repeat_it() {
    let mut repetitions = 0;
    for seed in 0..20 {
        let faults = LinkFaults::lossy(0.03 * (seed % 4) as f64);
        let (asked, seen, more) = read_all(seed, PathChoice::Udp, faults);
        assert_eq!(seen, asked, "seed {seed}");
        repetitions += more;
        let (asked, seen, more) = read_all(seed, PathChoice::Local, LinkFaults::NONE);
        assert_eq!((seen, more), (asked, 0), "seed {seed}");
    }
    assert!(repetitions > 20, "{repetitions}");
}

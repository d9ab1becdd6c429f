//! A source ends before any of its stores while it makes accesses to pages whose accesses are logged: claim, copy, record and publication. The owner's log
//! and memory agree, and the log goes on.

use crate::support::{SPAN, Side, connect, side};
use pagewire_fabric::Fabric;
use pagewire_iommu::words::Site;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_nic::{
    AccessLog, AccessLogInit, LoggedOperation, Next, PageAttributes, PageFlags, PathChoice, RecordFlags,
    RecordHeader, Rights, SendOperation, Status,
};
use pagewire_sim::{CrashPoint, LinkFaults, MEMORY, SimFabric, SiteTally, World};
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
/// Page 5 logs metadata, page 6 redirects. All others log data.
const COUNTED: u64 = 5;
const REDIRECTED: u64 = 6;
const ADDED: u64 = 9 * PAGE;
/// Bytes of the records of one source.
const RING: usize = 512 << 10;
/// Virtual nanoseconds in which an access ends, or the reader is at the end of a dead source.
const BOUND: u64 = 5_000_000_000;
/// Crashes at each site: the first stores, the last ones, and some between.
const AT_EACH_END: u64 = 6;
const BETWEEN: u64 = 12;

/// The accesses of the source: short, over pages with different attributes, and of several records.
fn script(key: u32) -> Vec<(SendOperation, u32)> {
    let write = |at: u64| SendOperation::Write { address: MEMORY + at, key };
    let read = |at: u64| SendOperation::Read { address: MEMORY + at, key };
    vec![
        (write(0), 8),
        (write(2 * PAGE - 100), 300),
        (write(4 * PAGE), 3 * PAGE as u32),
        (write(16 * PAGE), 160 << 10),
        (read(8 * PAGE), 64),
        (read(4 * PAGE), 3 * PAGE as u32),
        (SendOperation::FetchAdd { address: MEMORY + ADDED, key, add: 3 }, 8),
        (write(REDIRECTED * PAGE), 64),
    ]
}

type Records = Vec<(RecordHeader, Vec<u8>)>;

struct Scene {
    world: World,
    source: Side,
    beside: Side,
    owner: Side,
    log: AccessLog<SimFabric>,
    records: Records,
}

fn scene(seed: u64) -> Scene {
    let world = World::new(seed, LinkFaults::NONE);
    let host = world.host();
    let make = |count| side(&world, host, PathChoice::Local, count);
    let (source, beside, owner) = (make(1), make(1), make(2));
    let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC;
    for (number, caller) in [&source, &beside].into_iter().enumerate() {
        let ends = [(caller.process, &caller.queue_pairs[0]), (owner.process, &owner.queue_pairs[number])];
        connect(&world, ends[0], ends[1], rights);
    }
    let init = AccessLogInit { sources: 3, bytes: RING, is_ordered: true };
    let log = pagewire_nic::AccessLog::of_nic(&owner.nic, &init).unwrap();
    let table = owner.nic.make_attributes(MEMORY..MEMORY + SPAN).unwrap();
    let page = |flags| PageAttributes { flags, user_domain: log.user_domain() };
    let counted = PageFlags::READ | PageFlags::TO_ACCESS_LOG | PageFlags::LOG_WRITE | PageFlags::LOG_READ;
    let redirected = counted | PageFlags::LOG_WRITE_DATA;
    let data = redirected | PageFlags::WRITE | PageFlags::LOG_READ_DATA;
    table.set(0..SPAN, page(data)).unwrap();
    table.set(COUNTED * PAGE..(COUNTED + 1) * PAGE, page(counted | PageFlags::WRITE)).unwrap();
    table.set(REDIRECTED * PAGE..(REDIRECTED + 1) * PAGE, page(redirected)).unwrap();
    owner.region.set_attributes(Some(&table)).unwrap();
    for (caller, fill) in [(&source, 7u8), (&beside, 9)] {
        world.poke(caller.process, MEMORY, &vec![fill; SPAN as usize]);
    }
    Scene { world, source, beside, owner, log, records: Vec::new() }
}

impl Scene {
    /// All engines that live make a round, and the owner reads.
    fn round(&mut self) {
        let Scene { world, source, beside, owner, .. } = self;
        let sides = [&*source, &*beside, &*owner];
        let living = sides.into_iter().filter(|side| world.get(side.process).is_alive());
        let next = living.filter_map(|side| side.nic.progress()).min();
        self.read();
        let soon = self.world.now() + 1_000;
        self.world.advance(Some(next.unwrap_or(u64::MAX).clamp(soon, soon + 1_000_000)));
    }

    fn read(&mut self) -> bool {
        let mut data = Vec::new();
        loop {
            match self.log.next(&mut data) {
                Next::Record(record, receipt) => {
                    self.log.handled(receipt);
                    self.records.push((record, data.clone()));
                }
                Next::Empty => return true,
                Next::InFlight => return false,
                Next::Corrupt(source) => panic!("source {source} is not hostile"),
            }
        }
    }

    /// Makes an access of a caller. False: the caller has ended.
    fn access(&mut self, by_source: bool, (operation, length): (SendOperation, u32)) -> bool {
        let process = if by_source { self.source.process } else { self.beside.process };
        let begun = self.world.now();
        if by_source { &self.source } else { &self.beside }.post(operation, length);
        let mut is_done = false;
        while !is_done && self.world.get(process).is_alive() {
            self.round();
            let side = if by_source { &self.source } else { &self.beside };
            let mut status = None;
            side.cq.poll(8, &mut |completion| status = Some(completion.status));
            // A poll works, too. What a process is told that ends within it means nothing.
            if let Some(status) = status.filter(|_| self.world.get(process).is_alive()) {
                assert_eq!(status, Status::Success, "{operation:?} of {length} bytes");
                is_done = true;
            }
            assert!(self.world.now() < begun + BOUND, "{operation:?} does not end");
        }
        is_done
    }

    /// The source makes its accesses, until it is done or ends.
    fn play(&mut self) {
        for access in script(self.owner.region.rkey()) {
            if !self.access(true, access) {
                return;
            }
        }
    }

    /// Behind the death: the log has an end, and takes the records of another source.
    fn settle(&mut self) {
        let begun = self.world.now();
        let write = SendOperation::Write { address: MEMORY + 12 * PAGE, key: self.owner.region.rkey() };
        assert!(self.access(false, (write, 16)));
        let is_of_beside = |(record, _): &(RecordHeader, Vec<u8>)| record.address == MEMORY + 12 * PAGE;
        while !self.read() || !self.records.iter().any(is_of_beside) {
            assert!(self.world.now() < begun + BOUND, "the log does not come to an end");
            self.round();
        }
    }

    /// Each byte that has changed has a record, and each record tells of what is there.
    fn check(&self, what: &str) {
        let mut there = vec![0; SPAN as usize];
        let all = [Segment { address: MEMORY, length: SPAN }];
        self.owner.nic.fabric().memory().read(&all, &mut there).unwrap();
        let mut covered = vec![false; SPAN as usize];
        for (record, data) in &self.records {
            let at = (record.address - MEMORY) as usize;
            let range = at..at + record.length as usize;
            let unsure = record.flags.contains(RecordFlags::MAY_HAVE_WRITTEN);
            let redirected = record.flags.contains(RecordFlags::REDIRECTED);
            match record.operation {
                LoggedOperation::Write if redirected => {
                    assert!(at as u64 / PAGE == REDIRECTED && there[range].iter().all(|byte| *byte == 0));
                }
                LoggedOperation::Write => {
                    covered[range.clone()].fill(true);
                    assert!(
                        unsure || data.is_empty() || there[range.clone()] == **data,
                        "{what}: {record:?}"
                    );
                    assert!(
                        unsure || there[range].iter().all(|byte| matches!(byte, 7 | 9)),
                        "{what}: {record:?}"
                    );
                }
                LoggedOperation::Read => {}
                LoggedOperation::FetchAdd | LoggedOperation::CompareSwap => {
                    covered[range.clone()].fill(true);
                    assert!(unsure || there[range.start] == 3, "{what}: {record:?}");
                }
            }
        }
        let lost = (0..SPAN as usize).find(|at| there[*at] != 0 && !covered[*at]);
        assert_eq!(lost, None, "{what}: a byte has changed that no record names");
    }
}

fn tally(scene: &Scene) -> BTreeMap<Site, SiteTally> {
    scene.world.get(scene.source.process).tally()
}

#[test]
fn log_and_memory_agree_wherever_a_source_ends() {
    let mut whole = scene(1);
    let before = tally(&whole);
    whole.play();
    let after = tally(&whole);
    whole.settle();
    whole.check("no crash");
    // Of the third access three pieces, of the fourth one too.
    assert_eq!(
        whole.records.iter().filter(|(record, _)| record.stamp > 0).count(),
        1 + 1 + 3 + 3 + 1 + 3 + 1 + 1 + 1
    );
    let mut random = fastrand::Rng::with_seed(1);
    let (mut ended, mut unsure) = (BTreeMap::<&str, u64>::new(), 0);
    for (site, SiteTally { stores, .. }) in &after {
        let first = before.get(site).map_or(0, |tally| tally.stores) + 1;
        for number in first..=*stores {
            let is_at_end = number < first + AT_EACH_END || number + AT_EACH_END > *stores;
            if !is_at_end && random.u64(0..stores - first) >= BETWEEN {
                continue;
            }
            let mut scene = scene(1);
            let process = scene.world.get(scene.source.process);
            process.crash_at(CrashPoint::At(*site, number));
            scene.play();
            let what = format!("{} number {number}", site.0);
            assert_eq!(process.ended_by(), Some(*site), "{what}");
            *ended.entry(site.0).or_default() += 1;
            scene.settle();
            scene.check(&what);
            let is_unsure =
                |(record, _): &&(RecordHeader, Vec<u8>)| record.flags.contains(RecordFlags::MAY_HAVE_WRITTEN);
            unsure += scene.records.iter().filter(is_unsure).count();
        }
    }
    println!(
        "a source ended before a store at each site: {ended:?}, {unsure} records say that it may have written"
    );
    for site in
        ["access_log.record", "access_log.publish", "access_log.source", "memory.write", "memory.tail"]
    {
        assert!(ended.contains_key(site), "no source ended at {site}: {ended:?}");
    }
    assert!(ended.keys().any(|site| site.contains("hazard")), "none ended at a claim: {ended:?}");
    assert!(unsure > 0);
}

//! What an access log counts: for each access and each log that it concerns one record that begins it, one that ends it, and each byte once,
//! whatever the links lose, double or reorder (PAPERS AA-10). Accesses go to the same few pages, so that no address tells them apart.

use crate::access_logs::{AT_ONCE, PATIENCE, pair, post};
use crate::support::{SPAN, Side};
use pagewire_nic::{
    AccessLog, AccessLogInit, LoggedOperation, Next, PageAttributes, PageFlags, PathChoice, RecordFlags,
    SendOperation, Status,
};
use pagewire_sim::{LinkFaults, MEMORY, SimFabric, World};
use std::collections::HashMap;

const PAGE: u64 = 4096;
/// A READ of all of them is more than one request, also where nothing is lost.
const PAGES: u64 = 48;
/// The ring of a source is shorter than an access may be.
const RING: usize = 8192;
const ACCESSES: u64 = 150;

/// What one log says of the accesses of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    firsts: u64,
    lasts: u64,
    bytes: u64,
}

type AllCounts = HashMap<(usize, LoggedOperation), Counts>;

/// The attributes of the pages: how each access is logged by each of two logs.
struct Pages(Vec<(Option<usize>, PageFlags)>);

impl Pages {
    fn drawn(random: &mut fastrand::Rng) -> Pages {
        let page = |random: &mut fastrand::Rng| {
            let mut flags = PageFlags::READ | PageFlags::WRITE | PageFlags::TO_ACCESS_LOG;
            flags.set(PageFlags::LOG_READ, random.bool());
            flags.set(PageFlags::LOG_READ_DATA, random.u8(0..4) == 0);
            flags.set(PageFlags::LOG_WRITE, random.bool());
            flags.set(PageFlags::LOG_WRITE_DATA, random.u8(0..4) == 0);
            ((random.u8(0..4) > 0).then(|| random.usize(0..2)), flags)
        };
        Pages((0..PAGES).map(|_| page(random)).collect())
    }

    fn set(&self, owner: &Side, logs: &[AccessLog<SimFabric>]) {
        let table = owner.nic.make_attributes(MEMORY..MEMORY + SPAN).unwrap();
        for (page, (log, flags)) in self.0.iter().enumerate() {
            let Some(log) = log else { continue };
            let at = page as u64 * PAGE;
            let attributes = PageAttributes { flags: *flags, user_domain: logs[*log].user_domain() };
            table.set(at..at + PAGE, attributes).unwrap();
        }
        owner.region.set_attributes(Some(&table)).unwrap();
    }

    /// What the logs are to count of an access.
    fn expect(&self, counts: &mut AllCounts, operation: LoggedOperation, at: u64, length: u64) {
        let logging = match operation {
            LoggedOperation::Read => PageFlags::LOG_READ | PageFlags::LOG_READ_DATA,
            _ => PageFlags::LOG_WRITE | PageFlags::LOG_WRITE_DATA,
        };
        for log in 0..2 {
            let mut bytes = 0;
            for page in at / PAGE..=(at + length - 1) / PAGE {
                let (of, flags) = self.0[page as usize];
                if of == Some(log) && flags.intersects(logging) {
                    bytes += (at + length).min((page + 1) * PAGE) - at.max(page * PAGE);
                }
            }
            if bytes > 0 {
                let of = counts.entry((log, operation)).or_default();
                *of = Counts { firsts: of.firsts + 1, lasts: of.lasts + 1, bytes: of.bytes + bytes };
            }
        }
    }
}

/// What the records say.
#[derive(Default)]
struct Seen {
    counts: AllCounts,
    /// Messages of which more is to come: by log, operation and number.
    open: HashMap<(usize, LoggedOperation, u32), u64>,
    repeated: u64,
}

impl Seen {
    fn take(&mut self, logs: &[AccessLog<SimFabric>]) {
        let mut data = Vec::new();
        for (log, reader) in logs.iter().enumerate() {
            while let Next::Record(record, receipt) = reader.next(&mut data) {
                reader.handled(receipt);
                assert!(!record.flags.intersects(RecordFlags::REFUSED | RecordFlags::MAY_HAVE_WRITTEN));
                if record.flags.contains(RecordFlags::REPEATED) {
                    self.repeated += 1;
                    continue;
                }
                let counts = self.counts.entry((log, record.operation)).or_default();
                counts.bytes += u64::from(record.length);
                let message = (log, record.operation, record.sequence);
                if record.flags.contains(RecordFlags::FIRST) {
                    counts.firsts += 1;
                    assert_eq!(self.open.insert(message, record.address), None, "{record:?} begins again");
                }
                // Each record goes on where the one before ended, or behind pages of another log.
                let at = self.open.get_mut(&message);
                let at = at.unwrap_or_else(|| panic!("{record:?} is of an access that has not begun"));
                assert!(record.address >= *at, "{record:?} comes behind {at:x}");
                *at = record.address + u64::from(record.length);
                if record.flags.contains(RecordFlags::LAST) {
                    counts.lasts += 1;
                    self.open.remove(&message);
                }
            }
        }
    }
}

/// Draws accesses, and gives how many records repeat others.
fn run(seed: u64, path: PathChoice, faults: LinkFaults) -> u64 {
    let world = World::new(seed, faults);
    let mut random = fastrand::Rng::with_seed(seed);
    let (caller, owner) = pair(&world, path);
    let init = AccessLogInit { sources: 2, bytes: RING, is_ordered: random.bool() };
    let logs = [(); 2].map(|()| pagewire_nic::AccessLog::of_nic(&owner.nic, &init).unwrap());
    let pages = Pages::drawn(&mut random);
    pages.set(&owner, &logs);
    let (mut expected, mut seen) = (AllCounts::new(), Seen::default());
    let (mut posted, mut completed, mut silent_since) = (0, 0, world.now());
    while completed < ACCESSES {
        while posted < ACCESSES.min(completed + AT_ONCE) {
            let at = random.u64(0..PAGES * PAGE - 8) & !7;
            let longest = (PAGES * PAGE - at).min(if random.bool() { 64 } else { SPAN / AT_ONCE });
            let length = random.u64(1..=longest);
            let (address, key) = (MEMORY + at, owner.region.rkey());
            let (operation, logged, length) = match random.u8(0..5) {
                0 | 1 => (SendOperation::Read { address, key }, LoggedOperation::Read, length),
                2 | 3 => (SendOperation::Write { address, key }, LoggedOperation::Write, length),
                _ => (SendOperation::FetchAdd { address, key, add: 1 }, LoggedOperation::FetchAdd, 8),
            };
            pages.expect(&mut expected, logged, at, length);
            post(&caller, posted, length, posted % AT_ONCE, operation);
            posted += 1;
        }
        let next = [&caller, &owner].into_iter().filter_map(|side| side.nic.progress()).min();
        caller.cq.poll(8, &mut |completion| {
            assert_eq!(completion.status, Status::Success);
            completed += 1;
            silent_since = world.now();
        });
        if random.bool() {
            seen.take(&logs);
        }
        assert!(world.now() < silent_since + PATIENCE, "seed {seed}, {path}: {completed} of {ACCESSES}");
        let soon = world.now() + 1_000;
        world.advance(Some(next.unwrap_or(u64::MAX).clamp(soon, soon + 1_000_000)));
    }
    seen.take(&logs);
    assert_eq!(seen.counts, expected, "seed {seed}, {path}");
    assert!(seen.open.is_empty(), "seed {seed}, {path}: {:?}", seen.open);
    seen.repeated
}

#[test]
fn counts_equal_accesses_over_lossy_links() {
    let mut repeated = 0;
    for seed in 0..30 {
        repeated += run(seed, PathChoice::Udp, LinkFaults::lossy(0.02 * (seed % 6) as f64));
    }
    assert!(repeated > 100, "{repeated}");
}

#[test]
fn counts_equal_accesses_on_the_local_path() {
    for seed in 0..20 {
        assert_eq!(run(seed, PathChoice::Local, LinkFaults::NONE), 0);
    }
}

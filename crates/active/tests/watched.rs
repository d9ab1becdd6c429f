//! Each combination of attributes, kind of access and path: what the caller sees, what reaches memory, and what reaches which log (PAPERS AA-2 to
//! AA-4). Written from the table of the specification, not from the code.

mod other;

use other::on_each_path;
use pagewire::access_log::{
    AccessLog, AccessLogInit, LoggedOperation, Next, PageAttributes, PageFlags, RecordFlags, RecordHeader,
};
use pagewire::{Node, Region, RemoteRegion, Rights, Token};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const PAGES: u64 = 3;
const WORDS: usize = (PAGE * PAGES / 8) as usize;
/// What memory has before an access.
const BEFORE: u64 = 0x1111_1111_1111_1111;
/// A long access begins and ends in the midst of a page.
const LONG: u64 = PAGE / 2;
const LONG_WORDS: usize = (PAGE * 2 / 8) as usize;

/// Memory of the owner: that of a region is mapped by peers of the host, other memory is reached by cross-memory attach.
enum Memory {
    Mapped(Region<u64>),
    Attached(Token, &'static [AtomicU64]),
}

impl Memory {
    fn attached(owner: &Node) -> Memory {
        let words: &'static [AtomicU64] = (0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let address = NonNull::from(words).cast();
        // SAFETY: raw export: the words live as long as the process, and are accessed as atomics only.
        let token = unsafe { owner.export_raw(address, WORDS * 8, Rights::all()) };
        Memory::Attached(token.unwrap(), words)
    }

    fn token(&self) -> Token {
        match self {
            Memory::Mapped(region) => region.export(Rights::all()).unwrap(),
            Memory::Attached(token, _) => *token,
        }
    }

    fn set_attributes(&self, owner: &Node, page: u64, attributes: PageAttributes) {
        let bytes = page * PAGE..(page + 1) * PAGE;
        match self {
            Memory::Mapped(region) => region.set_attributes(bytes, attributes).unwrap(),
            Memory::Attached(token, _) => owner.set_attributes_raw(token, bytes, attributes).unwrap(),
        }
    }

    fn fill(&self) {
        match self {
            Memory::Mapped(region) => region.write(0, &[BEFORE; WORDS]).unwrap(),
            Memory::Attached(_, words) => words.iter().for_each(|word| word.store(BEFORE, Ordering::SeqCst)),
        }
    }

    fn read(&self) -> Vec<u64> {
        match self {
            Memory::Mapped(region) => {
                let mut there = vec![0; WORDS];
                region.read(0, &mut there).unwrap();
                there
            }
            Memory::Attached(_, words) => words.iter().map(|word| word.load(Ordering::SeqCst)).collect(),
        }
    }
}

struct World {
    owner: Node,
    _caller: Node,
    memory: Memory,
    /// Of the first byte.
    address: u64,
    remote: RemoteRegion,
    /// Of the first and the last page, and of the page between.
    logs: [AccessLog; 2],
}

impl World {
    fn new(is_mapped: bool) -> World {
        let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
        let memory = match is_mapped {
            true => Memory::Mapped(owner.zeroed::<u64>(WORDS).unwrap()),
            false => Memory::attached(&owner),
        };
        let token = memory.token();
        let remote = caller.open(&token).unwrap();
        let init = AccessLogInit { sources: 8, bytes: 1 << 16, is_ordered: true };
        let logs = [(); 2].map(|()| owner.make_access_log(&init).unwrap());
        let address = token.memory().0;
        World { owner, _caller: caller, memory, address, remote, logs }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A value that the operation carries.
    PutValue,
    /// A buffer.
    Put,
    PutSignal,
    Get,
    FetchAdd,
    CompareSwap {
        hits: bool,
    },
    LongPut,
    LongGet,
}

const KINDS: [Kind; 9] = [
    Kind::PutValue,
    Kind::Put,
    Kind::PutSignal,
    Kind::Get,
    Kind::FetchAdd,
    Kind::CompareSwap { hits: true },
    Kind::CompareSwap { hits: false },
    Kind::LongPut,
    Kind::LongGet,
];

/// Elements of which a failure shows the first ones, those that are equal together.
#[derive(Clone, PartialEq, Eq)]
struct Long<T>(Vec<T>);

impl<T: fmt::Debug + PartialEq> fmt::Debug for Long<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> =
            self.0.chunk_by(|a, b| a == b).map(|equal| (equal.len(), &equal[0])).take(8).collect();
        write!(out, "{} elements, of which {shown:x?}", self.0.len())
    }
}

/// Bytes of records that follow each other and say the same: of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Logged {
    operation: LoggedOperation,
    flags: RecordFlags,
    offset: u64,
    length: u64,
    data: Long<u8>,
}

/// What was seen of one access.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    succeeds: bool,
    memory: Long<u64>,
    logs: [Vec<Logged>; 2],
    faults: Vec<Logged>,
}

fn value(index: usize) -> u64 {
    0x0101_0000 + index as u64
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Makes an access; gives whether it succeeded. What it gives is checked.
fn make(remote: &RemoteRegion, kind: Kind) -> bool {
    match kind {
        Kind::PutValue => remote.put_value(8, value(0)).wait().is_ok(),
        Kind::Put => remote.put(16, vec![value(0), value(1), value(2)]).wait().is_ok(),
        Kind::PutSignal => remote.put_signal(16, vec![value(0)], remote.signal(8).set(5)).wait().is_ok(),
        Kind::Get => {
            let got = remote.get::<u64>(8, 2).unwrap().wait();
            got.inspect(|got| assert_eq!(*got, [BEFORE; 2])).is_ok()
        }
        Kind::FetchAdd => {
            let found = remote.fetch_add(8, 3).wait();
            found.inspect(|found| assert_eq!(*found, BEFORE)).is_ok()
        }
        Kind::CompareSwap { hits } => {
            let found = remote.compare_swap(8, if hits { BEFORE } else { 4 }, 9).wait();
            found.inspect(|found| assert_eq!(*found, BEFORE)).is_ok()
        }
        Kind::LongPut => {
            let values: Vec<u64> = (0..LONG_WORDS).map(value).collect();
            remote.put(LONG, values).wait().is_ok()
        }
        Kind::LongGet => {
            let got = remote.get::<u64>(LONG, LONG_WORDS).unwrap().wait();
            got.inspect(|got| assert_eq!(*got, [BEFORE; LONG_WORDS])).is_ok()
        }
    }
}

/// Adds a record to those before. A long access has one for each packet and page.
fn note(all: &mut Vec<Logged>, record: &RecordHeader, data: &[u8], offset: u64) {
    let edges = RecordFlags::FIRST | RecordFlags::LAST;
    let (operation, flags, length) = (record.operation, record.flags - edges, u64::from(record.length));
    if flags.contains(RecordFlags::REPEATED) {
        // The network was slow, and the caller has asked again: what is logged then was logged before.
        let flags = flags - RecordFlags::REPEATED;
        let was_logged = |logged: &Logged| {
            (logged.operation, logged.flags) == (operation, flags)
                && (logged.offset..logged.offset + logged.length).contains(&offset)
        };
        assert!(operation == LoggedOperation::Read && all.iter().any(was_logged), "{record:?}");
        return;
    }
    match all.last_mut() {
        Some(last)
            if (last.operation, last.flags, last.offset + last.length) == (operation, flags, offset)
                && last.offset / PAGE == offset / PAGE
                && !record.flags.contains(RecordFlags::FIRST) =>
        {
            last.length += length;
            last.data.0.extend_from_slice(data);
        }
        _ => all.push(Logged { operation, flags, offset, length, data: Long(data.to_vec()) }),
    }
}

fn access(world: &World, kind: Kind) -> Seen {
    let World { owner, memory, address, remote, logs, .. } = world;
    memory.fill();
    let succeeds = make(remote, kind);
    let taken = logs.each_ref().map(|log| {
        let (mut all, mut data) = (Vec::new(), Vec::new());
        loop {
            match log.next(&mut data) {
                Next::Record(record, receipt) => {
                    log.handled(receipt);
                    assert_eq!(record.user_domain, log.user_domain());
                    note(&mut all, &record, &data, record.address - address);
                }
                Next::InFlight => {}
                Next::Empty => return all,
                Next::Corrupt(source) => panic!("source {source}"),
            }
        }
    });
    let mut faults = Vec::new();
    for record in owner.take_logged_faults().0 {
        note(&mut faults, &record, &[], record.address - address);
    }
    Seen { succeeds, memory: Long(memory.read()), logs: taken, faults }
}

/// One request of an access: what it does, where, and which bytes a record of it has.
struct Request {
    operation: LoggedOperation,
    offset: u64,
    length: u64,
    data: Vec<u8>,
    /// What it leaves in memory.
    leaves: Vec<u64>,
}

fn requests(kind: Kind) -> Vec<Request> {
    let request = |operation, offset, data: &[u64], leaves: &[u64]| {
        let length = 8 * if leaves.is_empty() { data.len() } else { leaves.len() } as u64;
        Request { operation, offset, length, data: bytes_of(data), leaves: leaves.to_vec() }
    };
    let write = |offset, values: &[u64]| request(LoggedOperation::Write, offset, values, values);
    let read = |offset, count| request(LoggedOperation::Read, offset, &vec![BEFORE; count], &[]);
    match kind {
        Kind::PutValue => vec![write(8, &[value(0)])],
        Kind::Put => vec![write(16, &[value(0), value(1), value(2)])],
        Kind::PutSignal => vec![write(16, &[value(0)]), write(8, &[5])],
        Kind::Get => vec![read(8, 2)],
        Kind::FetchAdd => vec![request(LoggedOperation::FetchAdd, 8, &[3], &[BEFORE + 3])],
        Kind::CompareSwap { hits: true } => {
            vec![request(LoggedOperation::CompareSwap, 8, &[BEFORE, 9], &[9])]
        }
        Kind::CompareSwap { hits: false } => {
            vec![request(LoggedOperation::CompareSwap, 8, &[4, 9], &[BEFORE])]
        }
        Kind::LongPut => vec![write(LONG, &(0..LONG_WORDS).map(value).collect::<Vec<_>>())],
        Kind::LongGet => vec![read(LONG, LONG_WORDS)],
    }
}

/// What becomes of one kind of access to a page.
struct Fate {
    is_allowed: bool,
    reaches_memory: bool,
    is_redirected: bool,
    is_logged: bool,
    has_data: bool,
    to_log: bool,
}

fn fate(flags: PageFlags, operation: LoggedOperation) -> Fate {
    let has = |flag| flags.contains(flag);
    let (r, w, to_log) = (has(PageFlags::READ), has(PageFlags::WRITE), has(PageFlags::TO_ACCESS_LOG));
    let is_read = operation == LoggedOperation::Read;
    let (metadata, data) = match is_read {
        true => (has(PageFlags::LOG_READ), has(PageFlags::LOG_READ_DATA)),
        false => (has(PageFlags::LOG_WRITE), has(PageFlags::LOG_WRITE_DATA)),
    };
    let is_redirected = operation == LoggedOperation::Write && !w && data && to_log;
    let is_allowed = match operation {
        LoggedOperation::Read => r,
        LoggedOperation::Write => w || is_redirected,
        LoggedOperation::FetchAdd | LoggedOperation::CompareSwap => r && w,
    };
    let reaches_memory = is_allowed && !is_read && !is_redirected;
    let has_data = data && is_allowed && to_log;
    Fate { is_allowed, reaches_memory, is_redirected, is_logged: metadata || data, has_data, to_log }
}

/// The page between logs data of all.
const BETWEEN: PageFlags = PageFlags::READ
    .union(PageFlags::WRITE)
    .union(PageFlags::TO_ACCESS_LOG)
    .union(PageFlags::LOG_READ_DATA)
    .union(PageFlags::LOG_WRITE_DATA);

fn expected(flags: PageFlags, kind: Kind) -> Seen {
    let mut seen = Seen {
        succeeds: true,
        memory: Long(vec![BEFORE; WORDS]),
        logs: [Vec::new(), Vec::new()],
        faults: Vec::new(),
    };
    for Request { operation, offset, length, data, leaves } in requests(kind) {
        let pages = offset / PAGE..=(offset + length - 1) / PAGE;
        let fate_of = |page| fate(if page == 1 { BETWEEN } else { flags }, operation);
        seen.succeeds = pages.clone().all(|page| fate_of(page).is_allowed);
        for page in pages {
            let fate = fate_of(page);
            let (from, to) = (offset.max(page * PAGE), (offset + length).min((page + 1) * PAGE));
            let inside = (from - offset) as usize..(to - offset) as usize;
            if seen.succeeds && fate.reaches_memory {
                let words = &leaves[inside.start / 8..inside.end / 8];
                seen.memory.0[from as usize / 8..to as usize / 8].copy_from_slice(words);
            }
            let mut said = RecordFlags::empty();
            said.set(RecordFlags::REFUSED, !fate.is_allowed);
            said.set(RecordFlags::REDIRECTED, fate.is_redirected);
            let is_atomic = matches!(operation, LoggedOperation::FetchAdd | LoggedOperation::CompareSwap);
            let data = match (fate.has_data, is_atomic) {
                (false, _) => Vec::new(),
                (true, true) => data.clone(),
                (true, false) => data[inside].to_vec(),
            };
            let logged = Logged { operation, flags: said, offset: from, length: to - from, data: Long(data) };
            // A message is refused as a whole, for the first page that refuses it.
            if fate.is_logged && (seen.succeeds || !fate.is_allowed) {
                match fate.to_log {
                    true => seen.logs[usize::from(page == 1)].push(logged),
                    false => seen.faults.push(logged),
                }
            }
            if !fate.is_allowed {
                break;
            }
        }
        if !seen.succeeds {
            break;
        }
    }
    seen
}

fn each_combination(is_mapped: bool) {
    let world = World::new(is_mapped);
    let [outer, between] = world.logs.each_ref().map(AccessLog::user_domain);
    world.memory.set_attributes(&world.owner, 1, PageAttributes { flags: BETWEEN, user_domain: between });
    for bits in 0..=PageFlags::all().bits() {
        let flags = PageFlags::from_bits_retain(bits);
        for page in [0, 2] {
            world.memory.set_attributes(&world.owner, page, PageAttributes { flags, user_domain: outer });
        }
        for kind in KINDS {
            assert_eq!(access(&world, kind), expected(flags, kind), "{flags:?} {kind:?}");
        }
    }
}

#[test]
fn each_combination_on_mapped_memory() {
    on_each_path("each_combination_on_mapped_memory", || each_combination(true));
}

#[test]
fn each_combination_by_cross_memory_attach() {
    on_each_path("each_combination_by_cross_memory_attach", || each_combination(false));
}

//! Regions that are watched: which pages peers write and read, and how often (`pagewire run --watch`, `pw_watch_region()`).
//!
//! The pages of a watched region have attributes that log the metadata of accesses. A thread of the process counts the records by page. Whoever
//! asks for the counts counts first what the thread has not.
//!
//! A process that watches nothing has no log and no thread. Registering a region then costs one look at a flag.

use crate::engine::Host;
use crate::limits::{
    MAX_COUNTED_PAGES, MAX_HOT_PAGES, MAX_UNWATCHED, MAX_WATCHED_REGION, WATCH_CATCH_UP_MILLISECONDS,
    WATCH_MILLISECONDS, WATCH_RING, WATCH_SOURCES, WATCH_THRESHOLD,
};
use crate::settings::Watched;
use pagewire_memory::fork::PerProcess;
use pagewire_nic::{
    AccessLog, AccessLogInit, LoggedOperation, MemoryRegion, Next, PageAttributes, PageFlags, RecordFlags,
    RecordHeader, Rights,
};
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a page of the counts: pages of memory.
const PAGE: u64 = 4096;

/// Looks at an empty log before the thread sleeps.
const EMPTY_LOOKS: u32 = 2;

/// Accesses of peers to one page, or to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// WRITEs that touched it.
    pub writes: u64,
    /// Bytes that they wrote there.
    pub written_bytes: u64,
    /// READs that touched it.
    pub reads: u64,
    /// Bytes that they read there.
    pub read_bytes: u64,
    /// Atomics.
    pub atomics: u64,
}

impl Counts {
    fn all(&self) -> u64 {
        self.writes + self.reads + self.atomics
    }

    /// Counts a part of a message with so many bytes. `is_new`: no part of it was counted here before.
    fn add(&mut self, operation: LoggedOperation, bytes: u64, is_new: bool) {
        let (messages, moved) = match operation {
            LoggedOperation::Write => (&mut self.writes, Some(&mut self.written_bytes)),
            LoggedOperation::Read => (&mut self.reads, Some(&mut self.read_bytes)),
            LoggedOperation::FetchAdd | LoggedOperation::CompareSwap => (&mut self.atomics, None),
        };
        *messages += u64::from(is_new);
        if let Some(moved) = moved {
            *moved += bytes;
        }
    }
}

/// A page and its counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PageCounts {
    /// Its first byte, a multiple of 4,096.
    pub address: u64,
    #[serde(flatten)]
    pub counts: Counts,
}

/// A region that could not be watched.
#[derive(Debug, Clone, Serialize)]
struct Unwatched {
    address: u64,
    length: u64,
    reason: String,
}

/// What was counted, as reports have it.
#[derive(Debug, Clone, Serialize)]
pub struct WatchReport {
    /// Regions that were watched since the beginning, and their bytes.
    regions: u64,
    bytes: u64,
    /// All accesses to them.
    accesses: Counts,
    /// The pages with the most accesses.
    pages: Vec<PageCounts>,
    /// Pages that have accesses and are not told of.
    pages_left_out: u64,
    /// Parts of accesses that nobody knows of whether they were made: their source has died.
    uncertain: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unwatched: Vec<Unwatched>,
}

/// The log, and what was counted of it.
struct Watch {
    log: AccessLog<Host>,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    all: Counts,
    pages: HashMap<u64, Counts>,
    /// Pages that have no counts of their own, as there are too many.
    uncounted_pages: bool,
    /// By source: the last page of its message.
    last: HashMap<u64, u64>,
    uncertain: u64,
    data: Vec<u8>,
}

/// What this process watches.
#[derive(Default)]
struct State {
    watch: Option<Arc<Watch>>,
    /// What new regions are watched for.
    chosen: Watched,
    regions: u64,
    bytes: u64,
    unwatched: Vec<Unwatched>,
}

static STATE: PerProcess<State> = PerProcess::new();

/// Something is watched, or was.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Whether something is watched in this process, or was.
#[inline(always)] // Part of each registration.
pub fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// Has regions watched that are registered from now on.
pub fn choose(chosen: Watched) {
    if !chosen.is_nothing() {
        STATE.lock().chosen = chosen;
        IS_USED.store(true, Ordering::Relaxed);
    }
}

/// A region was registered, or registered anew, with memory of this address and length.
#[cold]
pub fn registered(region: &MemoryRegion<Host>, (address, length): (u64, u64), rights: Rights) {
    let mut state = STATE.lock();
    let remote = Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
    let chosen = Watched {
        writes: state.chosen.writes && rights.intersects(remote),
        reads: state.chosen.reads && rights.contains(Rights::REMOTE_READ),
    };
    if chosen.is_nothing() {
        return;
    }
    if let Err(reason) = begin(&mut state, region, (address, length), chosen) {
        log::warn!("the region of {length} bytes at {address:#x} is not watched: {reason}");
        if state.unwatched.len() < MAX_UNWATCHED {
            state.unwatched.push(Unwatched { address, length, reason });
        }
    }
}

/// A region is to be registered anew: its pages have no attributes meanwhile.
#[cold]
pub fn suspend(region: &MemoryRegion<Host>) {
    // It may have had none.
    if let Err(error) = region.set_attributes(None) {
        log::debug!("a region that is registered anew keeps its attributes: {error}");
    }
}

fn begin(
    state: &mut State,
    region: &MemoryRegion<Host>,
    (address, length): (u64, u64),
    watched: Watched,
) -> Result<(), String> {
    if length == 0 {
        return Err("it has no bytes".into());
    }
    if length > MAX_WATCHED_REGION {
        return Err(format!("it is longer than {} GiB", MAX_WATCHED_REGION >> 30));
    }
    let watch = match &state.watch {
        Some(watch) => watch.clone(),
        None => state.watch.insert(Watch::start(region)?).clone(),
    };
    let mut flags = PageFlags::READ | PageFlags::WRITE | PageFlags::TO_ACCESS_LOG;
    flags.set(PageFlags::LOG_WRITE, watched.writes);
    flags.set(PageFlags::LOG_READ, watched.reads);
    let page = PageAttributes { flags, user_domain: watch.log.user_domain() };
    let told = |error: pagewire_nic::Error| error.to_string();
    let attributes = region.make_attributes(address..address + length).map_err(told)?;
    attributes.set(0..length, page).map_err(|error| error.to_string())?;
    region.set_attributes(Some(&attributes)).map_err(told)?;
    state.regions += 1;
    state.bytes += length;
    Ok(())
}

/// Watches a region with memory of this address and length, or no more.
///
/// # Errors
/// Why it cannot be watched.
pub fn watch(region: &MemoryRegion<Host>, memory: (u64, u64), watched: Watched) -> Result<(), String> {
    IS_USED.store(true, Ordering::Relaxed);
    if watched.is_nothing() {
        return region.set_attributes(None).map_err(|error| error.to_string());
    }
    begin(&mut STATE.lock(), region, memory, watched)
}

/// The counts of the pages that lie in a range of addresses and have been accessed, in the order of their addresses; none: nothing is watched.
pub fn page_counts(range: Range<u64>) -> Vec<PageCounts> {
    let Some(watch) = STATE.lock().watch.clone() else { return Vec::new() };
    let tally = watch.up_to_date();
    let pages = tally.pages.iter().map(|(page, counts)| PageCounts { address: page * PAGE, counts: *counts });
    let mut found: Vec<_> = pages
        .filter(|page| page.address < range.end && page.address.saturating_add(PAGE) > range.start)
        .collect();
    found.sort_unstable_by_key(|page| page.address);
    found
}

/// What was counted. `None`: nothing is watched in this process.
pub fn report() -> Option<WatchReport> {
    if !is_used() {
        return None;
    }
    let (watch, mut report) = {
        let state = STATE.lock();
        let report = WatchReport {
            regions: state.regions,
            bytes: state.bytes,
            accesses: Counts::default(),
            pages: Vec::new(),
            pages_left_out: 0,
            uncertain: 0,
            unwatched: state.unwatched.clone(),
        };
        (state.watch.clone(), report)
    };
    if let Some(watch) = watch {
        let tally = watch.up_to_date();
        let pages =
            tally.pages.iter().map(|(page, counts)| PageCounts { address: page * PAGE, counts: *counts });
        let mut pages: Vec<_> = pages.collect();
        pages.sort_unstable_by_key(|page| (std::cmp::Reverse(page.counts.all()), page.address));
        report.pages_left_out =
            pages.len().saturating_sub(MAX_HOT_PAGES) as u64 + u64::from(tally.uncounted_pages);
        pages.truncate(MAX_HOT_PAGES);
        (report.pages, report.accesses, report.uncertain) = (pages, tally.all, tally.uncertain);
    }
    Some(report)
}

impl Watch {
    fn start(region: &MemoryRegion<Host>) -> Result<Arc<Watch>, String> {
        let init = AccessLogInit { sources: WATCH_SOURCES, bytes: WATCH_RING, is_ordered: false };
        let log = region.make_access_log(&init).map_err(|error| error.to_string())?;
        let watch = Arc::new(Watch { log, tally: Mutex::default() });
        let counting = watch.clone();
        pagewire_fabric::spawn("pagewire-watch", move || counting.run())
            .map_err(|error| format!("a thread that counts cannot start: {error}"))?;
        Ok(watch)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut empty = 0u32;
        loop {
            let mut tally = self.tally();
            let next = tally.count_one(&self.log);
            drop(tally);
            empty = if next == Found::Counted { 0 } else { empty.saturating_add(1) };
            if empty < EMPTY_LOOKS {
                std::hint::spin_loop();
            } else if next == Found::Nothing {
                self.log.sleep(WATCH_THRESHOLD, Duration::from_millis(WATCH_MILLISECONDS));
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// What was counted, with all that was logged before.
    fn up_to_date(&self) -> MutexGuard<'_, Tally> {
        let mut tally = self.tally();
        // Peers may log as fast as this counts. What they had logged before takes less.
        let end = Instant::now() + Duration::from_millis(WATCH_CATCH_UP_MILLISECONDS);
        while tally.count_one(&self.log) == Found::Counted && Instant::now() < end {}
        tally
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Counted,
    /// An access is under way.
    InFlight,
    Nothing,
}

impl Tally {
    fn count_one(&mut self, log: &AccessLog<Host>) -> Found {
        let mut data = std::mem::take(&mut self.data);
        let next = log.next(&mut data);
        self.data = data;
        match next {
            Next::Record(header, receipt) => {
                self.count(&header);
                log.handled(receipt);
                Found::Counted
            }
            Next::Corrupt(source) => {
                log::warn!("queue pair {source} has damaged what it logs, and is counted no more");
                Found::InFlight
            }
            Next::InFlight => Found::InFlight,
            Next::Empty => Found::Nothing,
        }
    }

    fn count(&mut self, header: &RecordHeader) {
        let RecordHeader { operation, flags, source, address, length, .. } = *header;
        // A READ that the network repeats is one.
        if flags.intersects(RecordFlags::REFUSED | RecordFlags::REPEATED) {
            return;
        }
        if flags.contains(RecordFlags::MAY_HAVE_WRITTEN) {
            self.uncertain += 1;
            return;
        }
        let is_first = flags.contains(RecordFlags::FIRST);
        self.all.add(operation, length.into(), is_first);
        let before = if is_first { None } else { self.last.get(&source).copied() };
        let end = address.saturating_add(length.into());
        let mut at = address;
        while at < end {
            let (page, next) = (at / PAGE, (at / PAGE + 1).saturating_mul(PAGE).min(end));
            // A message that comes in several parts may come to a page with two of them.
            self.count_page(page, operation, next - at, before != Some(page));
            at = next;
        }
        if flags.contains(RecordFlags::LAST) || length == 0 {
            self.last.remove(&source);
        } else {
            self.last.insert(source, (end - 1) / PAGE);
        }
    }

    fn count_page(&mut self, page: u64, operation: LoggedOperation, bytes: u64, is_new: bool) {
        let is_full = self.pages.len() >= MAX_COUNTED_PAGES;
        match self.pages.get_mut(&page) {
            Some(counts) => counts.add(operation, bytes, is_new),
            None if is_full => self.uncounted_pages = true,
            None => self.pages.entry(page).or_default().add(operation, bytes, is_new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operation: LoggedOperation, address: u64, length: u32, flags: RecordFlags) -> RecordHeader {
        RecordHeader {
            operation,
            flags,
            user_domain: 0,
            source: 7,
            key: 1,
            sequence: 1,
            address,
            length,
            stamp: 1,
        }
    }

    #[test]
    fn messages_and_bytes_are_counted_by_page() {
        let (first, last) = (RecordFlags::FIRST, RecordFlags::LAST);
        let mut tally = Tally::default();
        // One WRITE in parts that meet within the second page.
        tally.count(&record(LoggedOperation::Write, PAGE - 10, 20, first));
        tally.count(&record(LoggedOperation::Write, PAGE + 10, 30, RecordFlags::empty()));
        tally.count(&record(LoggedOperation::Write, PAGE + 40, PAGE as u32, last));
        // Another one, whole, to where that ended.
        tally.count(&record(LoggedOperation::Write, 2 * PAGE, 8, first | last));
        tally.count(&record(LoggedOperation::Read, 0, 2 * PAGE as u32, first | last));
        tally.count(&record(LoggedOperation::FetchAdd, 8, 8, first | last));
        tally.count(&record(LoggedOperation::Write, 8, 8, first | last | RecordFlags::REFUSED));
        tally.count(&record(LoggedOperation::Read, 0, 8, first | last | RecordFlags::REPEATED));
        tally.count(&record(LoggedOperation::Write, 8, 8, first | last | RecordFlags::MAY_HAVE_WRITTEN));
        let page = |page| tally.pages.get(&page).copied().unwrap_or_default();
        let read = Counts { reads: 1, read_bytes: PAGE, ..Counts::default() };
        assert_eq!(page(0), Counts { writes: 1, written_bytes: 10, atomics: 1, ..read });
        assert_eq!(page(1), Counts { writes: 1, written_bytes: PAGE, ..read });
        assert_eq!(page(2), Counts { writes: 2, written_bytes: 48, ..Counts::default() });
        let all = Counts { writes: 2, written_bytes: PAGE + 58, reads: 1, read_bytes: 2 * PAGE, atomics: 1 };
        assert_eq!((tally.all, tally.uncertain, tally.last.len()), (all, 1, 0));
    }
}

//! Regions that are watched: which pages peers write and read, and how often (`pagewire run --watch`, `pw_watch_region()`).
//!
//! The pages of a watched region have attributes that log the metadata of accesses. A thread of the process counts the records by page. Whoever
//! asks for the counts counts first what the thread has not. Checkpoints learn from the same log what peers write
//! ([`log_writes`], [`note_writes`]). A region may have attributes of the program's own instead ([`set_own_attributes`]).
//!
//! A process that watches nothing has no log and no thread. Registering a region then costs one look at a flag.

use crate::limits::{
    MAX_COUNTED_PAGES, MAX_HOT_PAGES, MAX_UNWATCHED, MAX_WATCHED_REGION, SNAPSHOT_RECORDS,
    WATCH_CATCH_UP_MILLISECONDS, WATCH_MILLISECONDS, WATCH_RING, WATCH_SOURCES, WATCH_THRESHOLD,
};
use crate::snapshot::Snapshots;
use crate::{Host, WatchedAccesses, checkpoint};
use pagewire_checkpoint::WrittenPages;
use pagewire_memory::fork::PerProcess;
use pagewire_nic::{
    AccessLog, AccessLogInit, AttributeError, Attributes, LoggedOperation, MemoryRegion, Next,
    PageAttributes, PageFlags, RecordFlags, RecordHeader, Rights,
};
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a page of the counts: pages of memory.
const PAGE: u64 = 4096;

/// Records that are counted by one who catches up before others can ask.
const CATCH_UP_RECORDS: u32 = 256;

/// Looks at an empty log before the thread sleeps.
const EMPTY_LOOKS: u32 = 2;

/// Accesses of peers to one page, or to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct AccessCounts {
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

impl AccessCounts {
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
    pub counts: AccessCounts,
}

/// A region that could not be watched.
#[derive(Debug, Clone, Serialize)]
struct UnwatchedRegion {
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
    accesses: AccessCounts,
    /// The pages with the most accesses.
    pages: Vec<PageCounts>,
    /// Pages that have accesses and are not told of.
    pages_left_out: u64,
    /// Parts of accesses that nobody knows of whether they were made: their source has died.
    uncertain: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unwatched: Vec<UnwatchedRegion>,
}

/// The log, and what was counted of it.
struct WatchLog {
    log: AccessLog<Host>,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    /// What is counted of a region, if nothing else is said.
    usual: WatchedAccesses,
    /// What is counted of others, by key.
    counted: HashMap<u32, WatchedAccesses>,
    /// Whom to tell of writes to a region, by its key: each with the number of the checkpoint's region.
    written: HashMap<u32, Vec<(u64, WrittenPages)>>,
    all: AccessCounts,
    pages: HashMap<u64, AccessCounts>,
    /// Pages that have no counts of their own, as there are too many.
    uncounted_pages: bool,
    /// By source: the last page of its message.
    last: HashMap<(u64, bool), u64>,
    uncertain: u64,
    data: Vec<u8>,
}

/// What accesses to a region are logged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct WatchPurpose {
    counted: WatchedAccesses,
    /// A checkpoint is to know what peers write.
    is_saved: bool,
}

/// What the program itself has made of a region.
enum OwnUse {
    /// Its pages have attributes.
    Attributes(Arc<Attributes<Host>>),
    /// READs of it wait for handlers.
    Flushes,
}

/// What this process watches.
#[derive(Default)]
struct WatchState {
    watch: Option<Arc<WatchLog>>,
    /// What new regions are watched for.
    chosen: WatchPurpose,
    /// Regions whose accesses are logged, by key.
    watched: HashMap<u32, WatchPurpose>,
    /// What the program itself has made of regions, by key.
    own: HashMap<u32, OwnUse>,
    /// Something is counted, or was.
    counts: bool,
    regions: u64,
    bytes: u64,
    unwatched: Vec<UnwatchedRegion>,
}

static STATE: PerProcess<WatchState> = PerProcess::new();

/// Something is watched, or was.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Whether something is watched in this process, or was.
#[inline(always)] // Part of each registration.
pub fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// Has regions watched that are registered from now on, `is_saved`: for checkpoints, too.
pub fn choose(counted: WatchedAccesses, is_saved: bool) {
    if !counted.is_nothing() || is_saved {
        let mut state = STATE.lock();
        state.chosen = WatchPurpose { counted, is_saved };
        state.counts |= !counted.is_nothing();
        IS_USED.store(true, Ordering::Relaxed);
    }
}

/// Something is to be known of each region from now on.
pub fn begin_use() {
    IS_USED.store(true, Ordering::Relaxed);
}

/// A region was registered, or registered anew, with memory of this address and length.
#[cold]
pub fn registered(region: &Arc<MemoryRegion<Host>>, (address, length): (u64, u64), rights: Rights) {
    let mut state = STATE.lock();
    let key = region.rkey();
    if state.own.contains_key(&key) {
        // It has other rights, and its attributes still.
        return;
    }
    let is_written = rights.intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC);
    let counted = WatchedAccesses {
        writes: state.chosen.counted.writes && is_written,
        reads: state.chosen.counted.reads && rights.contains(Rights::REMOTE_READ),
    };
    let purpose = WatchPurpose { counted, is_saved: state.chosen.is_saved && is_written };
    let saves = state.chosen.is_saved;
    if purpose != WatchPurpose::default() {
        if let Err(reason) = begin(&mut state, region, (address, length), purpose) {
            log::warn!("the region of {length} bytes at {address:#x} is not watched: {reason}");
            if !counted.is_nothing() && state.unwatched.len() < MAX_UNWATCHED {
                state.unwatched.push(UnwatchedRegion { address, length, reason });
            }
        }
    }
    drop(state);
    if saves {
        checkpoint::registered(region, (address, length));
    }
}

/// A region is to be registered anew: its pages have no attributes meanwhile, unless those are the program's own.
#[cold]
pub fn suspend(region: &MemoryRegion<Host>) {
    let key = region.rkey();
    if STATE.lock().own.contains_key(&key) {
        return;
    }
    // A save that is under way sets none any more: [`log_writes`].
    checkpoint::ended(key);
    STATE.lock().forget(key);
    // It may have had none.
    if let Err(error) = region.set_attributes(None) {
        log::debug!("a region that is registered anew keeps its attributes: {error}");
    }
}

/// A region that had this key was deregistered.
#[cold]
pub fn ended(key: u32) {
    let mut state = STATE.lock();
    state.own.remove(&key);
    state.forget(key);
    drop(state);
    checkpoint::ended(key);
}

impl WatchState {
    /// A region is watched no more. What was logged of it is counted before.
    fn forget(&mut self, key: u32) {
        if self.watched.remove(&key).is_none() {
            return;
        }
        let Some(watch) = &self.watch else { return };
        let knows = |tally: &Tally| tally.counted.contains_key(&key) || tally.written.contains_key(&key);
        if knows(&watch.tally()) {
            watch.catch_up(WATCH_CATCH_UP_MILLISECONDS);
            let mut tally = watch.tally();
            tally.counted.remove(&key);
            tally.written.remove(&key);
        }
    }
}

fn begin(
    state: &mut WatchState,
    region: &MemoryRegion<Host>,
    (address, length): (u64, u64),
    purpose: WatchPurpose,
) -> Result<(), String> {
    if length == 0 {
        return Err("it has no bytes".into());
    }
    if length > MAX_WATCHED_REGION {
        return Err(format!("it is longer than {} GiB", MAX_WATCHED_REGION >> 30));
    }
    let key = region.rkey();
    if state.own.contains_key(&key) {
        return Err(HAS_OWN.into());
    }
    let watch = match &state.watch {
        Some(watch) => watch.clone(),
        None => {
            let usual = state.chosen.counted;
            state.watch.insert(WatchLog::start(region, usual)?).clone()
        }
    };
    let WatchPurpose { counted, is_saved } = purpose;
    let mut flags = PageFlags::READ | PageFlags::WRITE | PageFlags::TO_ACCESS_LOG;
    flags.set(PageFlags::LOG_WRITE, counted.writes || is_saved);
    flags.set(PageFlags::LOG_READ, counted.reads);
    let page = PageAttributes { flags, user_domain: watch.log.user_domain() };
    let told = |error: pagewire_nic::Error| error.to_string();
    let attributes = region.make_attributes(address..address + length).map_err(told)?;
    attributes.set(0..length, page).map_err(|error| error.to_string())?;
    watch.count(key, purpose);
    region.set_attributes(Some(&attributes)).map_err(told)?;
    let before = state.watched.insert(key, purpose).unwrap_or_default();
    if !counted.is_nothing() && before.counted.is_nothing() {
        state.counts = true;
        state.regions += 1;
        state.bytes += length;
    }
    Ok(())
}

/// Why a region cannot be watched.
const HAS_OWN: &str = "its pages have attributes that the program has set";

/// Watches a region with memory of this address and length, or no more.
///
/// # Errors
/// Why it cannot be watched.
pub fn watch(
    region: &MemoryRegion<Host>,
    memory: (u64, u64),
    watched: WatchedAccesses,
) -> Result<(), String> {
    begin_use();
    let mut state = STATE.lock();
    let key = region.rkey();
    if state.own.contains_key(&key) {
        return Err(HAS_OWN.into());
    }
    let is_saved = state.watched.get(&key).is_some_and(|purpose| purpose.is_saved);
    let purpose = WatchPurpose { counted: watched, is_saved };
    if purpose == WatchPurpose::default() {
        region.set_attributes(None).map_err(|error| error.to_string())?;
        state.forget(key);
        return Ok(());
    }
    begin(&mut state, region, memory, purpose)
}

/// Has writes of peers to a region logged, for a checkpoint, as long as that `has_ended` is not set.
///
/// # Errors
/// Why they cannot be.
pub fn log_writes(
    region: &MemoryRegion<Host>,
    memory: (u64, u64),
    has_ended: &AtomicBool,
) -> Result<(), String> {
    let mut state = STATE.lock();
    // Whoever registers it anew has set this before, and takes the attributes away behind this.
    if has_ended.load(Ordering::Acquire) {
        return Err("the region was deregistered, or registered anew, meanwhile".into());
    }
    let before = state.watched.get(&region.rkey()).copied().unwrap_or_default();
    if before.is_saved {
        return Ok(());
    }
    begin(&mut state, region, memory, WatchPurpose { is_saved: true, ..before })
}

/// Has writes that are logged of the region with this key noted there. `number`: of the region of a checkpoint, which has one such place.
pub fn note_writes(key: u32, number: u64, written: &WrittenPages) {
    let Some(watch) = STATE.lock().watch.clone() else { return };
    let mut tally = watch.tally();
    let places = tally.written.entry(key).or_default();
    places.retain(|(known, _)| *known != number);
    places.push((number, written.clone()));
}

/// The region of a checkpoint is no more.
pub fn forget_writes(number: u64) {
    let Some(watch) = STATE.lock().watch.clone() else { return };
    let mut tally = watch.tally();
    tally.written.retain(|_, places| {
        places.retain(|(known, _)| *known != number);
        !places.is_empty()
    });
}

/// Notes all writes that had been logged before. False: there were too many for this time.
pub fn catch_up(milliseconds: u64) -> bool {
    // The lock is not held meanwhile: regions are registered.
    let watch = STATE.lock().watch.clone();
    watch.is_none_or(|watch| watch.catch_up(milliseconds))
}

/// Why a region does not get attributes.
#[derive(Debug)]
pub enum OwnAttributesError {
    /// Its accesses are logged already.
    Watched,
    /// READs of the region wait for handlers.
    Flushes,
    /// Pages of the region have attributes.
    HasAttributes,
    /// The range, or the user domain.
    Attributes(AttributeError),
    /// The engine.
    Engine(pagewire_nic::Error),
}

/// Sets attributes of pages of a region with memory of this address and length, in the program's own words. When this returns, later accesses
/// obey.
///
/// # Errors
/// Why they are not set.
pub fn set_own_attributes(
    region: &MemoryRegion<Host>,
    (address, length): (u64, u64),
    bytes: Range<u64>,
    page: PageAttributes,
) -> Result<(), OwnAttributesError> {
    begin_use();
    let mut state = STATE.lock();
    let key = region.rkey();
    if state.watched.contains_key(&key) {
        return Err(OwnAttributesError::Watched);
    }
    let (table, is_new) = match state.own.get(&key) {
        Some(OwnUse::Attributes(table)) => (table.clone(), false),
        Some(OwnUse::Flushes) => return Err(OwnAttributesError::Flushes),
        None => {
            let end = address.saturating_add(length);
            (region.make_attributes(address..end).map_err(OwnAttributesError::Engine)?, true)
        }
    };
    table.set(bytes, page).map_err(OwnAttributesError::Attributes)?;
    if is_new {
        region.set_attributes(Some(&table)).map_err(OwnAttributesError::Engine)?;
        state.own.insert(key, OwnUse::Attributes(table));
        return Ok(());
    }
    region.await_accesses().map_err(OwnAttributesError::Engine)
}

/// Has READs of a region wait for handlers, as [`MemoryRegion::make_flush_region`] does, in the program's own words.
///
/// # Errors
/// Why they do not wait.
pub fn make_flush_region(region: &MemoryRegion<Host>) -> Result<(), OwnAttributesError> {
    begin_use();
    let mut state = STATE.lock();
    let key = region.rkey();
    if state.watched.contains_key(&key) {
        return Err(OwnAttributesError::Watched);
    }
    if let Some(OwnUse::Attributes(_)) = state.own.get(&key) {
        return Err(OwnAttributesError::HasAttributes);
    }
    region.make_flush_region().map_err(OwnAttributesError::Engine)?;
    state.own.insert(key, OwnUse::Flushes);
    Ok(())
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
        if !state.counts {
            return None;
        }
        let report = WatchReport {
            regions: state.regions,
            bytes: state.bytes,
            accesses: AccessCounts::default(),
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

impl WatchLog {
    fn start(region: &MemoryRegion<Host>, usual: WatchedAccesses) -> Result<Arc<WatchLog>, String> {
        let init = AccessLogInit { sources: WATCH_SOURCES, bytes: WATCH_RING, is_ordered: false };
        let log = pagewire_nic::AccessLog::of_region(region, &init).map_err(|error| error.to_string())?;
        let tally = Mutex::new(Tally { usual, ..Tally::default() });
        let watch = Arc::new(WatchLog { log, tally });
        let counting = watch.clone();
        pagewire_fabric::spawn("pagewire-watch", move || counting.run())
            .map_err(|error| format!("a thread that counts cannot start: {error}"))?;
        Ok(watch)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is counted of what is logged of a region.
    fn count(&self, key: u32, purpose: WatchPurpose) {
        let WatchPurpose { counted, is_saved } = purpose;
        let mut tally = self.tally();
        let usual = WatchedAccesses {
            writes: tally.usual.writes && (counted.writes || is_saved),
            reads: tally.usual.reads && counted.reads,
        };
        match usual == counted {
            true => tally.counted.remove(&key),
            false => tally.counted.insert(key, counted),
        };
    }

    fn run(&self) {
        let (mut empty, mut counted) = (0u32, 0u32);
        let mut snapshots = Snapshots::new();
        loop {
            let mut tally = self.tally();
            let next = tally.count_one(&self.log);
            drop(tally);
            counted = counted.saturating_add(u32::from(next == AccessState::Counted));
            let is_long = next == AccessState::Nothing || counted % SNAPSHOT_RECORDS == 0;
            if is_long && counted > 0 && snapshots.is_due() {
                counted = 0;
                snapshots.write();
            }
            empty = if next == AccessState::Counted { 0 } else { empty.saturating_add(1) };
            if empty < EMPTY_LOOKS {
                std::hint::spin_loop();
            } else if next == AccessState::Nothing {
                self.log.sleep(WATCH_THRESHOLD, Duration::from_millis(WATCH_MILLISECONDS));
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// What was counted, with all that was logged before.
    fn up_to_date(&self) -> MutexGuard<'_, Tally> {
        self.catch_up(WATCH_CATCH_UP_MILLISECONDS);
        self.tally()
    }

    /// Counts what was logged before. False: the time was up before that.
    fn catch_up(&self, milliseconds: u64) -> bool {
        let end = Instant::now() + Duration::from_millis(milliseconds);
        let Some(published) = self.log.published() else { return true };
        loop {
            // What another one has just read is counted when the lock is free.
            let mut tally = self.tally();
            if self.log.has_read(&published) {
                return true;
            }
            // Behind an access that is under way there is nothing that had ended.
            if (0..CATCH_UP_RECORDS).any(|_| tally.count_one(&self.log) != AccessState::Counted) {
                return true;
            }
            drop(tally);
            if Instant::now() >= end {
                return false;
            }
            // Others want to know or tell something, too.
            std::thread::yield_now();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AccessState {
    Counted,
    /// An access is under way.
    InFlight,
    Nothing,
}

impl Tally {
    fn count_one(&mut self, log: &AccessLog<Host>) -> AccessState {
        let mut data = std::mem::take(&mut self.data);
        let next = log.next(&mut data);
        self.data = data;
        match next {
            Next::Record(header, receipt) => {
                self.count(&header);
                log.handled(receipt);
                AccessState::Counted
            }
            Next::Corrupt(source) => {
                log::warn!("queue pair {source} has damaged what it logs, and is counted no more");
                self.note_damage();
                AccessState::Counted
            }
            Next::InFlight => AccessState::InFlight,
            Next::Empty => AccessState::Nothing,
        }
    }

    /// What a source has damaged told of writes that nobody knows now: they may be to any page.
    fn note_damage(&self) {
        self.written.values().flatten().for_each(|(_, written)| written.mark(0, u64::MAX));
    }

    fn count(&mut self, header: &RecordHeader) {
        let RecordHeader { operation, flags, source, key, address, length, .. } = *header;
        // A READ that the network repeats is one.
        if flags.intersects(RecordFlags::REFUSED | RecordFlags::REPEATED) {
            return;
        }
        let is_read = operation == LoggedOperation::Read;
        if !is_read && let Some(places) = self.written.get(&key) {
            places.iter().for_each(|(_, written)| written.mark(address, length.into()));
        }
        let counted = self.counted.get(&key).copied().unwrap_or(self.usual);
        if !(if is_read { counted.reads } else { counted.writes }) {
            return;
        }
        if flags.contains(RecordFlags::MAY_HAVE_WRITTEN) {
            self.uncertain += 1;
            return;
        }
        let is_first = flags.contains(RecordFlags::FIRST);
        self.all.add(operation, length.into(), is_first);
        let by = (source, is_read);
        let before = if is_first { None } else { self.last.get(&by).copied() };
        let end = address.saturating_add(length.into());
        let mut at = address;
        while at < end {
            let (page, next) = (at / PAGE, (at / PAGE + 1).saturating_mul(PAGE).min(end));
            // A message that comes in several parts may come to a page with two of them.
            self.count_page(page, operation, next - at, before != Some(page));
            at = next;
        }
        if flags.contains(RecordFlags::LAST) || length == 0 {
            self.last.remove(&by);
        } else {
            self.last.insert(by, (end - 1) / PAGE);
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
        let usual = WatchedAccesses { writes: true, reads: true };
        let mut tally = Tally { usual, ..Tally::default() };
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
        let read = AccessCounts { reads: 1, read_bytes: PAGE, ..AccessCounts::default() };
        assert_eq!(page(0), AccessCounts { writes: 1, written_bytes: 10, atomics: 1, ..read });
        assert_eq!(page(1), AccessCounts { writes: 1, written_bytes: PAGE, ..read });
        assert_eq!(page(2), AccessCounts { writes: 2, written_bytes: 48, ..AccessCounts::default() });
        let all =
            AccessCounts { writes: 2, written_bytes: PAGE + 58, reads: 1, read_bytes: 2 * PAGE, atomics: 1 };
        assert_eq!((tally.all, tally.uncertain, tally.last.len()), (all, 1, 0));
    }
}

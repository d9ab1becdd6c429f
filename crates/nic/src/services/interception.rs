//! Interception of accesses to this process's memory: which regions have page attributes, and the access logs (PAPERS AA-2 and AA-4).
//!
//! A region with attributes is published with intercepted rights in the place of the plain ones. So a plain access finds no right there, and
//! other regions pay nothing.

use crate::services::callers::Callers;
use crate::services::{Services, TABLES};
use crate::types::error::{Error, Result};
use crate::types::limits::FAULT_LOG_RECORDS;
use derive_where::derive_where;
use pagewire_fabric::{Fabric, WordsFile};
use pagewire_iommu::access_log::{self, FlushState, Flushed, LogSource, RecordHeader};
use pagewire_iommu::hazards::Revoked;
use pagewire_iommu::layout::{LOG_WORDS, LOGS};
use pagewire_iommu::limits::USER_DOMAINS;
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{AttributeError, AttributeTable, AttributesAt, PageAttributes, PageFlags};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What is intercepted in one process.
pub struct Interception<F: Fabric> {
    /// Some region is intercepted, or was.
    is_used: AtomicBool,
    /// By the place of the region.
    tables: RwLock<HashMap<u32, Arc<Attributes<F>>>>,
    logs: RwLock<HashMap<u16, Arc<SharedLog<F>>>>,
    domains: Mutex<Domains<F>>,
    fault_log: Mutex<VecDeque<RecordHeader>>,
    faults_dropped: AtomicU64,
    /// Places of the regions whose READs wait for handlers.
    flushes: RwLock<BTreeSet<u32>>,
    callers: RwLock<Callers>,
}

impl<F: Fabric> Default for Interception<F> {
    fn default() -> Self {
        Interception {
            is_used: AtomicBool::new(false),
            tables: RwLock::default(),
            logs: RwLock::default(),
            domains: Mutex::default(),
            fault_log: Mutex::default(),
            faults_dropped: AtomicU64::new(0),
            flushes: RwLock::default(),
            callers: RwLock::default(),
        }
    }
}

/// Which user domains were given, and which tables may name them.
#[derive_where(Default)]
struct Domains<F: Fabric> {
    given: u16,
    tables: Vec<Weak<Attributes<F>>>,
}

/// The attributes of the pages of a range, in a file that peers map.
pub struct Attributes<F: Fabric> {
    table: AttributeTable<F::SharedMemory>,
    file: WordsFile<F::SharedMemory>,
}

impl<F: Fabric> Attributes<F> {
    /// Sets the attributes of some pages: see [`AttributeTable::set`].
    ///
    /// # Errors
    /// As [`AttributeError`] says.
    pub fn set(
        &self,
        bytes: Range<u64>,
        attributes: PageAttributes,
    ) -> std::result::Result<(), AttributeError> {
        self.table.set(bytes, attributes)
    }

    /// The user domains of the logs that its pages name.
    fn user_domains(&self) -> impl Iterator<Item = u16> {
        let Range { start, end } = self.table.range();
        let runs = self.table.runs(start, end - start);
        let to_log = runs.filter(|(_, page)| page.flags.contains(PageFlags::TO_ACCESS_LOG));
        to_log.map(|(_, page)| page.user_domain)
    }

    fn place(&self) -> AttributesAt {
        let (file, words) = (self.file.number, self.file.words.len() as u64);
        AttributesAt { file, words, base: self.table.range().start }
    }
}

/// An access log, as its sources and its reader share it.
pub struct SharedLog<F: Fabric> {
    pub log: access_log::AccessLog<F::SharedMemory>,
    user_domain: u16,
    /// Keeps its file open, which peers map.
    _file: WordsFile<F::SharedMemory>,
}

impl<F: Fabric> SharedLog<F> {
    /// The user domain that selects it.
    pub fn user_domain(&self) -> u16 {
        self.user_domain
    }

    /// Becomes a source.
    pub fn claim_source(&self, number: u32) -> Option<LogSource<F::SharedMemory>> {
        self.log.claim_source(number.into())
    }
}

/// What a flush waits for: what the logs had of a caller when it began.
pub struct LogFlush<F: Fabric> {
    user_domain: Option<u16>,
    rings: Vec<(Arc<SharedLog<F>>, Flushed)>,
}

impl<F: Fabric> LogFlush<F> {
    /// Whether it is one of the log of a user domain, or of all.
    pub fn is_of(&self, user_domain: Option<u16>) -> bool {
        self.user_domain == user_domain
    }

    /// How far it is. That rings are damaged is said once.
    pub fn state(&mut self) -> FlushState {
        let (mut is_lost, mut waits) = (false, false);
        self.rings.retain(|(shared, ring)| {
            let state = shared.log.flush_state(ring);
            waits |= state == FlushState::Waits;
            if state == FlushState::Lost {
                is_lost = true;
                shared.log.note_lost(ring);
            }
            state == FlushState::Waits
        });
        match (is_lost, waits) {
            (true, _) => FlushState::Lost,
            (false, true) => FlushState::Waits,
            (false, false) => FlushState::Handled,
        }
    }
}

impl<F: Fabric> Interception<F> {
    /// The attributes of the pages of a region. `None`: it has none.
    pub fn table(&self, place: u32) -> Option<AttributeTable<F::SharedMemory>> {
        self.tables.read().get(&place).map(|attributes| attributes.table.clone())
    }

    /// The access log of a user domain.
    pub fn log(&self, user_domain: u16) -> Option<Arc<SharedLog<F>>> {
        self.logs.read().get(&user_domain).cloned()
    }

    /// Notes an access that goes to no access log. The oldest records stay where there is no space for all (PAPERS AA-4).
    pub fn note_fault(&self, record: RecordHeader) {
        let mut log = self.fault_log.lock();
        if log.len() < FAULT_LOG_RECORDS {
            return log.push_back(record);
        }
        self.faults_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the records of the fault log, and tells how many were dropped since the beginning.
    pub fn take_faults(&self) -> (Vec<RecordHeader>, u64) {
        let records = self.fault_log.lock().drain(..).collect();
        (records, self.faults_dropped.load(Ordering::Relaxed))
    }

    /// A user domain that has no log, and that no page names: a page whose log has ended is to be in no other one. Those that were never given
    /// come first. `None`: there is none.
    fn free_domain(&self, logs: &HashMap<u16, Arc<SharedLog<F>>>) -> Option<u16> {
        let mut domains = self.domains.lock();
        if usize::from(domains.given) < USER_DOMAINS {
            domains.given += 1;
            return Some(domains.given - 1);
        }
        domains.tables.retain(|table| table.strong_count() > 0);
        let mut used = vec![false; USER_DOMAINS];
        let tables: Vec<_> = domains.tables.iter().filter_map(Weak::upgrade).collect();
        let in_pages = tables.iter().flat_map(|table| table.user_domains());
        for domain in in_pages.chain(logs.keys().copied()) {
            used[usize::from(domain) % USER_DOMAINS] = true;
        }
        used.iter().position(|is_used| !is_used).map(|domain| domain as u16)
    }

    #[cold]
    fn forget(&self, place: u32) {
        if self.tables.read().contains_key(&place) {
            self.tables.write().remove(&place);
        }
        if self.is_flush(place) {
            self.flushes.write().remove(&place);
        }
    }

    /// What is logged of the caller of a queue pair, by whichever of its queue pairs: in the log of a user domain, or in all.
    pub fn flush(&self, number: u32, user_domain: Option<u16>) -> LogFlush<F> {
        let numbers = self.callers.read().siblings(number);
        let is_of_caller = |owner: u64| numbers.iter().any(|number| u64::from(*number) == owner);
        let logs = self.logs.read();
        let concerned = logs.iter().filter(|(domain, _)| user_domain.is_none_or(|wanted| wanted == **domain));
        let rings = concerned.flat_map(|(_, shared)| {
            shared.log.flush(is_of_caller).into_iter().map(|ring| (shared.clone(), ring))
        });
        LogFlush { user_domain, rings: rings.collect() }
    }

    /// A queue pair belongs to a caller: see [`flush`](Self::flush).
    pub fn enter_caller(&self, number: u32, caller: u64) {
        let logs = self.logs.read();
        let is_logged = |number: u32| logs.values().any(|shared| shared.log.knows(number.into()));
        self.callers.write().enter(number, caller, is_logged);
    }

    /// Whether a queue pair connects two nodes of the native interface: those have callers.
    #[cold]
    pub fn connects_nodes(&self, number: u32) -> bool {
        self.callers.read().has(number)
    }

    /// Whether READs of a region wait for handlers.
    pub fn is_flush(&self, place: u32) -> bool {
        self.flushes.read().contains(&place)
    }
}

fn refused(error: std::io::Error) -> Error {
    error.raw_os_error().map_or(Error::NoMemory("memory files"), Error::OperatingSystem)
}

impl<F: Fabric> Services<F> {
    /// A new table of attributes for a range of addresses, whose pages are ordinary. It costs memory for pages that are set.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn attribute_table(&self, range: Range<u64>) -> Result<Arc<Attributes<F>>> {
        let length = AttributeTable::<F::SharedMemory>::words_for(range.end.saturating_sub(range.start));
        let file = self.fabric.make_words("pagewire-attributes", length.max(1), false).map_err(refused)?;
        let table = Arc::new(Attributes { table: AttributeTable::new(file.words.clone(), range), file });
        let mut domains = self.interception.domains.lock();
        if domains.tables.len() == domains.tables.capacity() {
            domains.tables.retain(|table| table.strong_count() > 0);
        }
        domains.tables.push(Arc::downgrade(&table));
        Ok(table)
    }

    /// Has accesses of peers through a key obey a table. When this returns, later accesses do.
    ///
    /// # Errors
    /// `NotFound`: the key is not valid; `Busy`: an access that was checked before does not end.
    pub fn intercept_region(&self, key: u32, attributes: Option<&Arc<Attributes<F>>>) -> Result<()> {
        let place = self.regions.place_of(key);
        self.interception.is_used.store(true, Ordering::Release);
        let mut tables = self.interception.tables.write();
        let before = match attributes {
            Some(attributes) => tables.insert(place, attributes.clone()),
            None => tables.remove(&place),
        };
        let at = attributes.map(|attributes| attributes.place());
        let is_valid = self.regions.intercept(key, at.is_some(), at.as_ref());
        if !is_valid {
            // Another region may have the place by now.
            match before {
                Some(before) => tables.insert(place, before),
                None => tables.remove(&place),
            };
        }
        drop(tables);
        if !is_valid {
            return Err(Error::NotFound("the key names no region"));
        }
        self.wait_for_hazards(Revoked::Region(place))
    }

    /// Waits until accesses to a region that were under way have ended: what began before attributes were changed.
    ///
    /// # Errors
    /// `Busy`: one does not end in time.
    pub fn await_accesses(&self, key: u32) -> Result<()> {
        self.fabric.tables().fence();
        self.wait_for_hazards(Revoked::Region(self.regions.place_of(key)))
    }

    /// A region is gone.
    #[inline]
    pub fn forget_attributes(&self, place: u32) {
        if self.interception.is_used.load(Ordering::Acquire) {
            self.interception.forget(place);
        }
    }

    /// Has READs of a region answered when handlers have handled what was logged of the reading queue pair: all at its first byte, and at
    /// the offset 8 * (user domain + 1) what is in that log. When this returns, later READs are.
    ///
    /// # Errors
    /// `NotFound`: the key is not valid; `Busy`: an access that was checked before does not end.
    pub fn make_flush_region(&self, key: u32) -> Result<()> {
        let place = self.regions.place_of(key);
        self.interception.is_used.store(true, Ordering::Release);
        self.interception.flushes.write().insert(place);
        if self.regions.intercept(key, true, None) {
            return self.wait_for_hazards(Revoked::Region(place));
        }
        self.interception.flushes.write().remove(&place);
        Err(Error::NotFound("the key names no region"))
    }

    /// Makes an access log with a user domain of its own, of at most `sources` queue pairs with `bytes` each.
    ///
    /// # Errors
    /// `InvalidArgument`, `NoMemory` (each user domain has a log, or is named by pages), and those of the kernel.
    pub fn make_log(&self, sources: usize, bytes: usize) -> Result<Arc<SharedLog<F>>> {
        let ring = bytes / 8;
        let length = access_log::AccessLog::<F::SharedMemory>::words_for(sources, ring).ok_or(
            Error::InvalidArgument("an access log has 1 to 4096 sources with 48 bytes to 32 GiB each"),
        )?;
        let file = self.fabric.make_words("pagewire-access-log", length, true).map_err(refused)?;
        let number = file.number;
        let log = access_log::AccessLog::new(file.words.clone(), sources, ring)
            .ok_or(Error::InvalidArgument("the access log is too long"))?;
        let mut logs = self.interception.logs.write();
        let user_domain = self.interception.free_domain(&logs).ok_or(Error::NoMemory("user domains"))?;
        let shared = Arc::new(SharedLog { log, user_domain, _file: file });
        logs.insert(user_domain, shared.clone());
        let (tables, at) = (self.fabric.tables(), LOGS + usize::from(user_domain) * LOG_WORDS);
        tables.store(TABLES, at + 1, (sources as u64) << 32 | ring as u64);
        tables.store(TABLES, at, u64::from(number) + 1);
        Ok(shared)
    }

    /// Nobody reads a log any more. Records for it go to the fault log, and what would be redirected is refused.
    pub fn end_log(&self, user_domain: u16) {
        self.fabric.tables().store(TABLES, LOGS + usize::from(user_domain) * LOG_WORDS, 0);
        if let Some(shared) = self.interception.logs.write().remove(&user_domain) {
            shared.log.close();
        }
    }

    /// A queue pair has ended, and accesses through it: it is no source any more, whoever wrote its records.
    pub fn end_log_sources(&self, number: u32) {
        let Interception { logs, callers, .. } = &self.interception;
        let logs = logs.read();
        logs.values().for_each(|shared| shared.log.end_source(number.into()));
        let is_logged = |number: u32| logs.values().any(|shared| shared.log.knows(number.into()));
        callers.write().end(number, is_logged);
    }
}

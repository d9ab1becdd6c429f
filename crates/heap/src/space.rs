//! A reservation with all that is known about it: free runs, large objects, freed pages, bytes in use. mimalloc's arenas hold
//! pointers to it, so it lives as long as the process.
//!
//! One lock guards the lists. It is taken for large objects and when mimalloc takes or returns units, never for a small object.

use crate::arena::Arenas;
use crate::error::{HeapError, Result};
use crate::freed::FreedRanges;
use crate::limits::{CHUNK, PURGE_BATCH, PURGE_PIECE, UNIT};
use crate::options::HeapOptions;
use crate::presence::{self, COPY_FAILED, GONE, Gate, PRIVATE, SHARED};
use crate::range::{Backing, Range, give_back, unmap};
use crate::runs::FreeRuns;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

/// A chunk that the page-run layer uses itself.
const RUNS: u8 = 0;
/// A chunk of an arena of mimalloc.
const ARENA: u8 = 1;

/// See [`set_purger`].
static START_PURGER: OnceLock<fn()> = OnceLock::new();

#[derive(Debug)]
pub struct HeapSpace {
    pub range: Range,
    pub gate: &'static Gate,
    /// Who owns each chunk.
    owners: Box<[AtomicU8]>,
    pub arenas: Arenas,
    /// The memory file; -1: none.
    pub file: AtomicI32,
    /// Whether a forked child gets a copy.
    pub fork_copies: AtomicBool,
    /// Why the copy failed that this process should have got.
    pub copy_error: AtomicI32,
    /// Times that the ceiling kept mimalloc from taking units.
    ceiling_refusals: AtomicUsize,
    lists: Mutex<Lists>,
}

/// What the lock guards. Offsets and lengths are in bytes.
#[derive(Debug)]
pub struct Lists {
    runs: FreeRuns,
    /// Length of each large object by its offset.
    large: BTreeMap<usize, usize>,
    freed: FreedRanges,
    /// Bytes of units that hold objects, or that mimalloc keeps at hand.
    in_use: usize,
    /// Of them, those of arenas.
    in_arenas: usize,
    /// Of all, those that were in use when the heap began: what mimalloc has kept at hand for threads since the heap before.
    inherited: usize,
    pub peak: usize,
    pub ceiling: usize,
    /// Freed bytes that stay resident.
    retain: usize,
    purge_delay: u64,
    /// Times that the kernel refused to take pages back.
    pub refused_purges: u64,
}

impl HeapSpace {
    /// A reservation of its own, with nothing mapped yet.
    pub fn new(length: usize) -> Result<Self> {
        let range = Range::reserve(length)?;
        let gate = presence::new_gate().inspect_err(|_| unmap(range.base, length))?;
        Ok(HeapSpace {
            range,
            gate,
            owners: (0..length / CHUNK).map(|_| AtomicU8::new(RUNS)).collect(),
            arenas: Arenas::default(),
            file: AtomicI32::new(-1),
            fork_copies: AtomicBool::new(false),
            copy_error: AtomicI32::new(0),
            ceiling_refusals: AtomicUsize::new(0),
            lists: Mutex::new(Lists {
                runs: FreeRuns::new(length),
                large: BTreeMap::new(),
                freed: FreedRanges::default(),
                in_use: 0,
                in_arenas: 0,
                inherited: 0,
                peak: 0,
                ceiling: usize::MAX,
                retain: 0,
                purge_delay: 0,
                refused_purges: 0,
            }),
        })
    }

    /// Sets what the options say, for a heap that begins.
    pub fn configure(&self, options: &HeapOptions) {
        let mut lists = self.lists.lock();
        lists.ceiling = options.ceiling.unwrap_or(usize::MAX);
        lists.inherited = lists.in_use;
        lists.retain = options.retain;
        lists.purge_delay = options.purge_delay.as_millis().try_into().unwrap_or(u64::MAX);
        lists.peak = 0;
        self.fork_copies.store(options.fork_copies, Ordering::Relaxed);
    }

    /// Frees all large objects.
    pub fn free_runs(&self) {
        let mut lists = self.lists.lock();
        for (offset, length) in std::mem::take(&mut lists.large) {
            self.release(&mut lists, offset, length);
        }
    }

    pub fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock()
    }

    /// Addresses of the range where the memory file is mapped: all but the tables of arenas.
    pub fn parts_of_file(&self) -> Vec<std::ops::Range<usize>> {
        let mut tables: Vec<_> = self.arenas.list().iter().map(|arena| arena.tables()).collect();
        tables.sort_by_key(|tables| tables.start);
        let mut start = self.range.base;
        let mut parts = Vec::new();
        for tables in tables {
            parts.push(start..tables.start);
            start = tables.end;
        }
        parts.push(start..self.range.base + self.range.length);
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Whether this process has the memory, and which.
    #[inline]
    pub fn backing(&self) -> Result<Backing> {
        match self.gate.presence.load(Ordering::Relaxed) {
            SHARED => Ok(Backing::File),
            other => self.other_backing(other),
        }
    }

    /// What this process has of the memory from now on.
    pub fn set_presence(&self, presence: u32) {
        let is_present = matches!(presence, SHARED | PRIVATE);
        let owners = if is_present { self.owners.as_ptr().cast_mut() } else { null_mut() };
        self.gate.owners.store(owners, Ordering::Release);
        self.gate
            .current
            .store(if is_present { self.arenas.latest() } else { null_mut() }, Ordering::Release);
        self.gate.presence.store(presence, Ordering::Release);
    }

    /// Whether mimalloc has made the object at this address of the range. `None`: this process has not the memory.
    ///
    /// # Safety
    /// The address lies in the range.
    #[inline(always)]
    pub unsafe fn is_in_arena(&self, address: usize) -> Option<bool> {
        let owners = self.gate.owners.load(Ordering::Relaxed);
        let chunk = (address - self.range.base) / CHUNK;
        debug_assert!(chunk < self.owners.len());
        // SAFETY: NULL, or `owners`, which has an entry for each chunk of the range and lives for ever.
        (!owners.is_null()).then(|| unsafe { &*owners.add(chunk) }.load(Ordering::Relaxed) == ARENA)
    }

    #[cold]
    fn other_backing(&self, presence: u32) -> Result<Backing> {
        match presence {
            PRIVATE => Ok(Backing::Private),
            COPY_FAILED => {
                let error = std::io::Error::from_raw_os_error(self.copy_error.load(Ordering::Relaxed));
                Err(HeapError::ForkCopy { error })
            }
            GONE if presence::place() => self.backing(),
            // GONE. A heap that exists never finds its reservation unused.
            _ => Err(HeapError::Forked),
        }
    }

    #[inline]
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.range.base) < self.range.length
    }

    /// A run for a large object: {address, length}.
    pub fn allocate_run(&self, length: usize, alignment: usize, zeroed: bool) -> Result<(usize, usize)> {
        let exhausted = HeapError::Exhausted { length, alignment };
        let Some(units) = length.checked_next_multiple_of(UNIT).filter(|units| *units <= self.range.length)
        else {
            return Err(exhausted);
        };
        let mut lists = self.lists.lock();
        if lists.left() < units {
            return Err(HeapError::Ceiling { length, ceiling: lists.ceiling });
        }
        let Some(offset) = lists.runs.allocate(units, alignment.max(UNIT), self.range.base) else {
            return Err(exhausted);
        };
        if let Err(error) = self.claim(&mut lists, offset, units, zeroed) {
            lists.runs.free(offset, units);
            return Err(error);
        }
        lists.large.insert(offset, units);
        Ok((self.range.base + offset, units))
    }

    /// Grows (`length` is more) or shrinks a run in its place. `None`: what comes after it is not free.
    pub fn resize_run(&self, address: usize, length: usize, zeroed: bool) -> Result<Option<usize>> {
        let offset = address - self.range.base;
        let Some(units) = length.checked_next_multiple_of(UNIT) else { return Ok(None) };
        let mut lists = self.lists.lock();
        let old = lists.large_at(offset);
        if units <= old {
            if units < old {
                lists.large.insert(offset, units);
                self.release(&mut lists, offset + units, old - units);
            }
            purge_later(lists);
            return Ok(Some(units));
        }
        if lists.left() < units - old {
            return Err(HeapError::Ceiling { length, ceiling: lists.ceiling });
        }
        if !lists.runs.allocate_at(offset + old, units - old) {
            return Ok(None);
        }
        if let Err(error) = self.claim(&mut lists, offset + old, units - old, zeroed) {
            lists.runs.free(offset + old, units - old);
            return Err(error);
        }
        lists.large.insert(offset, units);
        Ok(Some(units))
    }

    /// Bytes of the run at `address`.
    #[cold]
    #[inline(never)]
    pub fn run_length(&self, address: usize) -> usize {
        self.lists.lock().large_at(address - self.range.base)
    }

    /// Frees the run of a large object; its length.
    #[cold]
    #[inline(never)]
    pub fn free_run(&self, address: usize) -> usize {
        let offset = address - self.range.base;
        let mut lists = self.lists.lock();
        let length = lists.large_at(offset);
        lists.large.remove(&offset);
        self.release(&mut lists, offset, length);
        purge_later(lists);
        length
    }

    /// Whole chunks for an arena, all zero: the offset.
    pub fn allocate_chunks(&self, length: usize) -> Result<usize> {
        let mut lists = self.lists.lock();
        let Some(offset) = lists.runs.allocate(length, CHUNK, self.range.base) else {
            return Err(HeapError::Exhausted { length, alignment: CHUNK });
        };
        let before = lists.in_use;
        if let Err(error) = self.claim(&mut lists, offset, length, true) {
            lists.runs.free(offset, length);
            return Err(error);
        }
        // An arena is in use as far as mimalloc takes its units.
        lists.in_use = before;
        for owner in &self.owners[offset / CHUNK..(offset + length) / CHUNK] {
            owner.store(ARENA, Ordering::Release);
        }
        Ok(offset)
    }

    /// mimalloc takes units of an arena, of which `new` bytes were not in use. False: the ceiling is reached.
    pub fn commit(&self, offset: usize, length: usize, new: usize) -> bool {
        let mut lists = self.lists.lock();
        if lists.left() < new {
            self.ceiling_refusals.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        lists.freed.take(offset, length, |_| ());
        lists.use_more(new);
        lists.in_arenas += new;
        purge_later(lists);
        true
    }

    /// mimalloc gives units of an arena back, of which `old` bytes were in use. It has waited already.
    pub fn decommit(&self, offset: usize, length: usize, old: usize) {
        let mut lists = self.lists.lock();
        lists.in_use -= old;
        lists.in_arenas -= old;
        let time = now().saturating_sub(lists.purge_delay);
        self.note_freed(&mut lists, offset, length, time);
        purge_later(lists);
    }

    /// Whether this process has the memory, and more of it than it retains.
    pub fn is_over_retained(&self) -> bool {
        self.backing().is_ok() && self.lists.lock().is_over_retained()
    }

    /// How long freed pages beyond those that are retained stay resident.
    pub fn purge_delay(&self) -> Duration {
        Duration::from_millis(self.lists.lock().purge_delay)
    }

    /// Gives pages back that were freed at least the purge delay ago, as far as more than `retain` bytes are resident.
    pub fn purge_expired(&self) {
        while self.purge_piece() {}
    }

    /// One piece of [`purge_expired`](Self::purge_expired). False: there was none.
    pub fn purge_piece(&self) -> bool {
        self.purge_some(&mut self.lists.lock(), PURGE_PIECE)
    }

    /// Says how many freed bytes stay resident.
    pub fn retain(&self, bytes: usize) {
        let mut lists = self.lists.lock();
        lists.retain = bytes;
        purge_later(lists);
    }

    /// Gives all freed pages back.
    pub fn purge_all(&self) {
        loop {
            let mut lists = self.lists.lock();
            let Some((offset, length)) = lists.freed.take_oldest(u64::MAX, PURGE_PIECE) else { return };
            if !self.give_back(&mut lists, offset, length) {
                return;
            }
        }
    }

    /// Times that the ceiling kept mimalloc from taking units.
    pub fn ceiling_refusals(&self) -> usize {
        self.ceiling_refusals.load(Ordering::Relaxed)
    }

    /// Address behind which everything is free.
    pub fn end_in_use(&self) -> usize {
        self.range.base + self.lists.lock().runs.end_in_use(self.range.length)
    }

    /// Freed bytes that have not gone back yet.
    pub fn freed_bytes(&self) -> usize {
        self.lists.lock().freed.bytes()
    }

    /// Takes a free run into use. Where old bytes may be, `zeroed` has them removed.
    fn claim(&self, lists: &mut Lists, offset: usize, length: usize, zeroed: bool) -> Result<()> {
        let mut old = Vec::new();
        lists.freed.take(offset, length, |piece| old.push(piece));
        if zeroed {
            let backing = self.backing()?;
            for (start, bytes) in old {
                // SAFETY: nobody owns the run: it was free, and the lock is held.
                if let Err(error) = unsafe { give_back(self.range.base + start, bytes, backing) } {
                    lists.freed.insert(offset, length, now());
                    return Err(HeapError::System { call: "madvise(2) of freed pages", error });
                }
            }
        }
        lists.use_more(length);
        Ok(())
    }

    fn release(&self, lists: &mut Lists, offset: usize, length: usize) {
        lists.runs.free(offset, length);
        lists.in_use -= length;
        self.note_freed(lists, offset, length, now());
    }

    fn note_freed(&self, lists: &mut Lists, offset: usize, length: usize, time: u64) {
        if lists.freed.is_full() {
            if let Some((start, bytes)) = lists.freed.take_oldest(u64::MAX, usize::MAX) {
                self.give_back(lists, start, bytes);
            }
        }
        lists.freed.insert(offset, length, time);
        self.purge_some(lists, PURGE_BATCH);
    }

    /// At most `most` bytes of pages that are old enough, and more than are retained. False: nothing went back.
    fn purge_some(&self, lists: &mut Lists, most: usize) -> bool {
        let until = now().saturating_sub(lists.purge_delay);
        let mut left = most;
        while left > 0 && lists.freed.bytes() > lists.retain {
            let piece = PURGE_PIECE.min(left).min(lists.freed.bytes() - lists.retain).next_multiple_of(UNIT);
            let Some((offset, length)) = lists.freed.take_oldest(until, piece) else { break };
            if !self.give_back(lists, offset, length) {
                break;
            }
            left = left.saturating_sub(length);
        }
        left < most
    }

    /// False: the kernel refused. The pages are then noted as freed now.
    fn give_back(&self, lists: &mut Lists, offset: usize, length: usize) -> bool {
        let Ok(backing) = self.backing() else {
            // The heap has just ended, and the pages keep their bytes for the next one.
            lists.freed.insert(offset, length, now());
            return false;
        };
        // SAFETY: the range was noted as freed, nobody has taken it since, and the lock is held.
        let done = unsafe { give_back(self.range.base + offset, length, backing) }.is_ok();
        if !done {
            lists.refused_purges += 1;
            lists.freed.insert(offset, length, now());
        }
        done
    }
}

impl Lists {
    fn large_at(&self, offset: usize) -> usize {
        *self
            .large
            .get(&offset)
            .expect("no object of the heap begins at this address: freed twice, or never allocated")
    }

    /// Bytes of units in use by this heap.
    pub fn in_use(&self) -> usize {
        self.in_use.saturating_sub(self.inherited)
    }

    /// Bytes that may still come into use.
    fn left(&self) -> usize {
        self.ceiling.saturating_sub(self.in_use())
    }

    /// Whether freed pages and units of small objects, of which mimalloc may return some when it is called, are more than what stays resident.
    fn is_over_retained(&self) -> bool {
        self.freed.bytes() + self.in_arenas > self.retain
    }

    fn use_more(&mut self, bytes: usize) {
        self.in_use += bytes;
        self.peak = self.peak.max(self.in_use());
    }
}

/// Has `start` begin what gives pages back while nobody calls, whenever a heap has more than it retains. The first word counts.
pub fn set_purger(start: fn()) {
    START_PURGER.get_or_init(|| start);
}

/// Has a thread give back what nobody gives back by the way.
fn purge_later(lists: MutexGuard<'_, Lists>) {
    let is_over = lists.is_over_retained();
    drop(lists);
    if is_over {
        START_PURGER.get().inspect(|start| start());
    }
}

/// Milliseconds of the monotonic clock.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

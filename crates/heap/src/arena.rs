//! Arenas: parts of the range that mimalloc manages, one exclusive heap of mimalloc for each.
//!
//! The tables of an arena stand at its start, in private pages: a forked child inherits them, so mimalloc can go on there, and
//! peers that map the memory file do not see them. Objects begin behind the tables.

use crate::error::{HeapError, Result};
use crate::limits::{ARENA_SHARE, ARENAS, CHUNK, MOST_ARENA, UNIT};
use crate::mimalloc::{manage_memory, mi_heap_new_in_arena, mi_heap_t};
use crate::operation;
use crate::range::map_private;
use crate::space::HeapSpace;
use libc::c_void;
use pagewire_memory::BlockedSignals;
use parking_lot::Mutex;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Arenas of this process.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The arenas of one reservation.
#[derive(Debug, Default)]
pub struct Arenas {
    /// As `Gate::current`, for when the gate is opened again.
    latest: AtomicPtr<mi_heap_t>,
    all: Mutex<Vec<&'static HeapArena>>,
    /// Held while an arena is made.
    making: Mutex<()>,
}

/// One arena. mimalloc never gives it back.
#[derive(Debug)]
pub struct HeapArena {
    space: &'static HeapSpace,
    /// Offset in the range, and bytes.
    offset: usize,
    length: usize,
    /// Bytes of mimalloc's tables at its start.
    tables: AtomicUsize,
    /// Set when the arena is ready.
    heap: AtomicPtr<mi_heap_t>,
    committed: Mutex<Committed>,
}

/// Units that mimalloc may use, a bit for each.
#[derive(Debug)]
struct Committed {
    bits: Vec<u64>,
    units: usize,
}

impl Arenas {
    /// The heap that small objects came from last; NULL: there is no arena.
    pub fn latest(&self) -> *mut mi_heap_t {
        self.latest.load(Ordering::Acquire)
    }

    /// Lets small objects come from another arena.
    pub fn set_current(&self, space: &HeapSpace, heap: *mut mi_heap_t) {
        self.latest.store(heap, Ordering::Release);
        space.gate.current.store(heap, Ordering::Release);
    }

    /// A list of all arenas.
    pub fn list(&self) -> Vec<&'static HeapArena> {
        // A signal handler of this thread that forks must not find the lock held.
        let _signals = BlockedSignals::begin();
        self.all.lock().clone()
    }

    /// Makes one more arena and lets small objects come from it, unless another thread did since `seen` was the current one.
    pub fn make(&self, space: &'static HeapSpace, seen: *mut mi_heap_t) -> Result<*mut mi_heap_t> {
        let _making = self.making.lock();
        if self.latest() != seen {
            return Ok(self.latest());
        }
        let taken = COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < ARENAS).then_some(count + 1)
        });
        taken.map_err(|_| HeapError::Arenas)?;
        let arena = HeapArena::new(space).inspect_err(|_| {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        })?;
        {
            let _signals = BlockedSignals::begin();
            self.all.lock().push(arena);
        }
        self.set_current(space, arena.heap());
        Ok(arena.heap())
    }
}

impl HeapArena {
    fn new(space: &'static HeapSpace) -> Result<&'static Self> {
        let wanted = (space.range.length / ARENA_SHARE / CHUNK * CHUNK).clamp(CHUNK, MOST_ARENA);
        let (offset, length) = match space.allocate_chunks(wanted) {
            Ok(offset) => (offset, wanted),
            Err(HeapError::Exhausted { .. }) => (space.allocate_chunks(CHUNK)?, CHUNK),
            Err(error) => return Err(error),
        };
        let arena: &'static HeapArena = Box::leak(Box::new(HeapArena {
            space,
            offset,
            length,
            tables: AtomicUsize::new(0),
            heap: AtomicPtr::new(null_mut()),
            committed: Mutex::new(Committed { bits: vec![0; (length / UNIT).div_ceil(64)], units: 0 }),
        }));
        let mut id = null_mut();
        // SAFETY: the chunks belong to the arena alone and are zero, and the arena lives for ever. `commit` is given it back.
        let managed = unsafe {
            manage_memory()(
                arena.start() as *mut c_void,
                length,
                false,
                false,
                true,
                -1,
                true,
                commit,
                std::ptr::from_ref(arena).cast_mut().cast(),
                &raw mut id,
            )
        };
        if !managed {
            // The chunks stay marked as an arena: mimalloc may have kept a part of its tables.
            return Err(HeapError::Arenas);
        }
        // SAFETY: the name is mimalloc's own for this arena.
        let heap = unsafe { mi_heap_new_in_arena(id) };
        if heap.is_null() {
            return Err(HeapError::System {
                call: "mimalloc's malloc",
                error: std::io::ErrorKind::OutOfMemory.into(),
            });
        }
        arena.heap.store(heap, Ordering::Release);
        Ok(arena)
    }

    /// mimalloc's heap in this arena.
    pub fn heap(&self) -> *mut mi_heap_t {
        self.heap.load(Ordering::Acquire)
    }

    /// Address of the tables.
    fn start(&self) -> usize {
        self.space.range.base + self.offset
    }

    /// Addresses of the tables.
    pub fn tables(&self) -> std::ops::Range<usize> {
        self.start()..self.start() + self.tables.load(Ordering::Acquire)
    }

    /// Whether mimalloc has taken all but an eighth of the arena.
    pub fn is_mostly_used(&self) -> bool {
        self.committed.lock().units * UNIT >= self.length / 8 * 7
    }

    /// Marks units as committed or not; bytes that changed.
    fn mark(&self, start: usize, length: usize, is_committed: bool, really: bool) -> usize {
        let mut committed = self.committed.lock();
        let first = (start - self.start()) / UNIT;
        let mut changed = 0;
        for unit in first..first + length.div_ceil(UNIT) {
            let (word, bit) = (unit / 64, 1 << (unit % 64));
            if (committed.bits[word] & bit != 0) != is_committed {
                changed += 1;
                if really {
                    committed.bits[word] ^= bit;
                }
            }
        }
        if really {
            committed.units =
                if is_committed { committed.units + changed } else { committed.units - changed };
        }
        changed * UNIT
    }
}

/// mimalloc takes units of an arena or gives them back; see [`CommitFunction`](crate::mimalloc::CommitFunction).
///
/// `is_zero` is left alone. It would speak for the whole of a range of which a part may have been in use all the time.
unsafe extern "C" fn commit(
    is_commit: bool,
    start: *mut c_void,
    size: usize,
    _is_zero: *mut bool,
    arena: *mut c_void,
) -> bool {
    // SAFETY: `HeapArena::new` gave mimalloc a pointer to an arena that lives for ever.
    let arena = unsafe { &*arena.cast::<HeapArena>() };
    // mimalloc gives memory back when a thread ends, and the process, too: what the lists of the space need then must not come from here.
    let _operation = operation::enter();
    let start = start as usize;
    if start == arena.start() {
        // The first call of all: mimalloc asks for its tables.
        debug_assert!(is_commit && size % UNIT == 0);
        arena.tables.store(size, Ordering::Release);
        // SAFETY: the arena is new, nobody has touched it yet.
        return unsafe { map_private(start, size) }.is_ok();
    }
    if arena.space.backing().is_err() {
        // A forked child without the memory: nothing is used, and nothing goes back.
        return false;
    }
    let offset = start - arena.space.range.base;
    // mimalloc has claimed the units, so no other thread marks them in between.
    let changed = arena.mark(start, size, is_commit, false);
    if is_commit && !arena.space.commit(offset, size, changed) {
        return false;
    }
    arena.mark(start, size, is_commit, true);
    if !is_commit {
        arena.space.decommit(offset, size, changed);
    }
    true
}

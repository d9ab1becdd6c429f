//! Operations on heaps, as fork sees them. A thread announces that it is inside the heap, so that a fork can wait until no
//! operation is under way: the child then finds every lock free and every list whole.
//!
//! Announcing costs two plain stores. The expensive side, membarrier(2), is on the thread that forks. Start at [`enter`].

use crate::fork_lock::ForkLock;
use crate::limits::{FORK_WAIT_MILLISECONDS, HEAPS};
use pagewire_memory::BlockedSignals;
use rustix::thread::{MembarrierCommand, membarrier};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

/// What one thread tells about itself.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    /// Operations that the thread is inside, one in the other.
    depth: AtomicU32,
    is_taken: AtomicU32,
    /// Bytes allocated less bytes freed, for each heap. A thread that frees what others allocated has less than 0.
    live: [AtomicI64; HEAPS],
}

/// Operations go ahead.
const GO: u8 = 0;
/// The kernel has no membarrier(2): each operation has a fence of its own.
const FENCED: u8 = 1;
/// A thread forks; operations wait for [`FORKING`].
const STOP: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(GO);
/// Held while a thread forks.
static FORKING: ForkLock = ForkLock::new();
static SLOTS: Slots = Slots { lock: ForkLock::new(), slots: UnsafeCell::new(Vec::new()) };
/// Stands in [`CURRENT`] before a thread has a slot. Its depth sends [`enter`] off its fast path.
static NONE: Slot = Slot::always_inside();
/// Stands there while a thread finds its slot, which takes memory: [`is_inside`] is then true.
static FINDING: Slot = Slot::always_inside();

impl Slot {
    const fn always_inside() -> Self {
        Slot {
            depth: AtomicU32::new(1),
            is_taken: AtomicU32::new(1),
            live: [const { AtomicI64::new(0) }; HEAPS],
        }
    }
}

struct Slots {
    lock: ForkLock,
    slots: UnsafeCell<Vec<&'static Slot>>,
}

// SAFETY: `slots` is reached with `lock` held only.
unsafe impl Sync for Slots {}

thread_local! {
    /// This thread's slot. No destructor, so that a look at it is one load.
    static CURRENT: Cell<*const Slot> = const { Cell::new(&raw const NONE) };
}

/// The key whose destructor returns a thread's slot. A thread that uses a heap after that takes another one.
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// Works on the slots of all threads. A signal handler of this thread that forks must not find the lock held.
fn with_slots<T>(work: impl FnOnce(&mut Vec<&'static Slot>) -> T) -> T {
    let _signals = BlockedSignals::begin();
    SLOTS.lock.lock();
    // SAFETY: the lock is held.
    let given = work(unsafe { &mut *SLOTS.slots.get() });
    SLOTS.lock.unlock();
    given
}

fn take_slot() -> &'static Slot {
    with_slots(|slots| {
        let free = slots.iter().copied().find(|slot| slot.is_taken.load(Ordering::Relaxed) == 0);
        let slot = free.unwrap_or_else(|| {
            let slot: &'static Slot = Box::leak(Box::default());
            slots.push(slot);
            slot
        });
        slot.is_taken.store(1, Ordering::Relaxed);
        slot
    })
}

unsafe extern "C" fn return_slot(slot: *mut libc::c_void) {
    CURRENT.set(&raw const NONE);
    // SAFETY: `find_slot` gave the key a slot, which lives for ever.
    unsafe { &*slot.cast::<Slot>() }.is_taken.store(0, Ordering::Release);
}

/// An operation under way.
#[derive(Debug)]
pub struct HeapOperation {
    slot: *const Slot,
    /// Operations that the thread was inside already. Kept here, so that the slot is written to and not read again.
    outer: u32,
}

/// Begins an operation of this thread. While another thread forks, it waits.
#[inline(always)]
pub fn enter() -> HeapOperation {
    let slot = CURRENT.get();
    // SAFETY: slots are leaked, so they live for ever.
    let depth = unsafe { &(*slot).depth };
    if depth.load(Ordering::Relaxed) != 0 {
        return enter_slowly();
    }
    // The stopper's membarrier(2) makes this a full fence: either it sees the depth, or this thread sees STOP.
    depth.store(1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    if MODE.load(Ordering::Relaxed) != GO {
        wait_for_fork(depth);
    }
    HeapOperation { slot, outer: 0 }
}

/// The thread has no slot yet, or is inside an operation already.
#[cold]
#[inline(never)]
fn enter_slowly() -> HeapOperation {
    if std::ptr::eq(CURRENT.get(), &NONE) {
        find_slot();
        return enter();
    }
    let slot = CURRENT.get();
    // SAFETY: slots are leaked, so they live for ever.
    let depth = unsafe { &(*slot).depth };
    let outer = depth.load(Ordering::Relaxed);
    depth.store(outer + 1, Ordering::Relaxed);
    HeapOperation { slot, outer }
}

impl HeapOperation {
    #[inline(always)]
    fn slot(&self) -> &Slot {
        // SAFETY: slots are leaked, so they live for ever.
        unsafe { &*self.slot }
    }

    /// Counts bytes of a heap that began (more than 0) or ended to be live.
    #[inline(always)]
    pub fn count(&self, heap: usize, bytes: i64) {
        const { assert!(HEAPS.is_power_of_two()) };
        let live = &self.slot().live[heap % HEAPS];
        // Only this thread writes to its slot.
        live.store(live.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }
}

impl Drop for HeapOperation {
    #[inline(always)]
    fn drop(&mut self) {
        self.slot().depth.store(self.outer, Ordering::Release);
    }
}

/// Whether this thread is inside an operation on a heap: a malloc that is built on the heap must then take its memory elsewhere.
pub fn is_inside() -> bool {
    let slot = CURRENT.get();
    // SAFETY: slots live for ever.
    !std::ptr::eq(slot, &NONE) && unsafe { &*slot }.depth.load(Ordering::Relaxed) > 0
}

/// Live bytes of a heap: what all threads have counted.
pub fn live_bytes(heap: usize) -> i64 {
    with_slots(|slots| {
        slots.iter().fold(0i64, |sum, slot| sum.wrapping_add(slot.live[heap].load(Ordering::Relaxed)))
    })
}

/// The next heap with this number counts from 0. Nobody uses the number now.
pub fn forget_live_bytes(heap: usize) {
    with_slots(|slots| slots.iter().for_each(|slot| slot.live[heap].store(0, Ordering::Relaxed)));
}

/// To be called once before the first heap is used.
///
/// # Errors
/// As pthread_key_create(3).
pub fn prepare_process() -> io::Result<()> {
    if membarrier(MembarrierCommand::RegisterPrivateExpedited).is_err() {
        MODE.store(FENCED, Ordering::SeqCst);
    }
    let mut key = 0;
    // SAFETY: a place for the key, and a destructor that lives as long as the engine, which is never unloaded.
    match unsafe { libc::pthread_key_create(&raw mut key, Some(return_slot)) } {
        0 => KEY.set(key).map_err(|_| io::ErrorKind::AlreadyExists.into()),
        failed => Err(io::Error::from_raw_os_error(failed)),
    }
}

#[cold]
#[inline(never)]
fn find_slot() -> *const Slot {
    CURRENT.set(&raw const FINDING);
    let slot = take_slot();
    if let Some(key) = KEY.get() {
        // Should it fail, the slot stays taken when the thread ends: some bytes.
        // SAFETY: the key was made by `prepare_process`.
        unsafe { libc::pthread_setspecific(*key, std::ptr::from_ref(slot).cast()) };
    }
    CURRENT.set(slot);
    slot
}

#[cold]
#[inline(never)]
fn wait_for_fork(depth: &AtomicU32) {
    // A signal handler of this thread that forks must not find the lock held.
    let _signals = BlockedSignals::begin();
    loop {
        fence(Ordering::SeqCst);
        if MODE.load(Ordering::Relaxed) != STOP {
            return;
        }
        depth.store(0, Ordering::Release);
        FORKING.lock();
        FORKING.unlock();
        depth.store(1, Ordering::Relaxed);
    }
}

/// Stops operations until [`resume`]; this thread, whose signals are blocked, counts as inside one. False: some operation did not end within the bound, and the heap may be in the middle of it.
pub fn stop() -> bool {
    let own = if std::ptr::eq(CURRENT.get(), &NONE) { find_slot() } else { CURRENT.get() };
    FORKING.lock();
    // SAFETY: slots live for ever.
    unsafe { &*own }.depth.fetch_add(1, Ordering::Relaxed);
    SLOTS.lock.lock();
    MODE.store(STOP, Ordering::SeqCst);
    if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
        // Without it every operation has a fence of its own, as this thread has now.
        fence(Ordering::SeqCst);
    }
    let deadline = Instant::now() + Duration::from_millis(FORK_WAIT_MILLISECONDS);
    // SAFETY: the lock is held.
    let slots = unsafe { &*SLOTS.slots.get() };
    slots.iter().copied().filter(|slot| !std::ptr::eq(*slot, own)).all(|slot| {
        while slot.depth.load(Ordering::Acquire) > 0 {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    })
}

/// Lets operations go on, in the process that called [`stop`] or in its child.
pub fn resume(is_child: bool) {
    let own = CURRENT.get();
    if is_child {
        // Threads that the child does not have are outside all operations; their slots are free.
        // SAFETY: this thread has held the lock since `stop`.
        for slot in unsafe { &*SLOTS.slots.get() } {
            if !std::ptr::eq(*slot, own) {
                slot.depth.store(0, Ordering::Relaxed);
                slot.is_taken.store(0, Ordering::Relaxed);
            }
        }
    }
    let fenced = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_err();
    MODE.store(if fenced { FENCED } else { GO }, Ordering::SeqCst);
    SLOTS.lock.unlock();
    FORKING.unlock();
    // The end of the operation that `stop` began.
    // SAFETY: slots live for ever.
    let outer = unsafe { &*own }.depth.load(Ordering::Relaxed) - 1;
    drop(HeapOperation { slot: own, outer });
}

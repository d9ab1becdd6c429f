//! What fork(2) does with the heaps of a process.
//!
//! 1. Before the fork, operations stop, and what the child shall have is copied to private pages: the whole heap, or, without
//!    [`Heap::fork_copies`](crate::Heap::fork_copies), the forking thread's few pages of mimalloc's own.
//! 2. The child moves these pages to their addresses. The kernel has unmapped the heap there.
//! 3. The parent unmaps the copies. Operations go on.
//!
//! In the child the C library touches what the program has allocated before it calls any handler: open streams, the name service's
//! tables. So step 2 is done by the first fault ([`place_at_once`], on a stack of its own), or else by the child's handler.
//! The thread that forks takes no signals from step 1 on, so that none of its signal handlers forks in between.
//!
//! A thread whose stack lies in the heap cannot fork: the copy of its stack is older than the fork.
//!
//! vfork(2) and posix_spawn(3) run no handlers and need none: parent and child share all memory. A bare clone(2) or fork(2) by
//! syscall(2) runs none either. Its child finds the heap gone; it must not end a thread that has used the heap but by _exit(2) or
//! execve(2).

use crate::error::{HeapError, Result};
use crate::limits::{RESERVATIONS, UNIT};
use crate::mimalloc::{self, _mi_heap_default_key, _mi_heap_theap_get_peek};
use crate::operation;
use crate::presence::{self, COPY_FAILED, GONE, PRIVATE, SHARED, UNUSED};
use crate::range::{map_anywhere, map_private, unmap};
use crate::space::HeapSpace;
use pagewire_memory::BlockedSignals;
use pagewire_memory::guard::{ForkWindow, place_by};
use parking_lot::Mutex;
use rustix::fs::{SeekFrom, seek};
use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Every reservation of this process and its parents.
static SPACES: [AtomicPtr<HeapSpace>; RESERVATIONS] = [const { AtomicPtr::new(null_mut()) }; RESERVATIONS];
static INSTALLED: Mutex<bool> = Mutex::new(false);
static PENDING_FORK: PendingFork =
    PendingFork(UnsafeCell::new(Fork { copies: Vec::new(), is_placed: false, window: None }));
/// A fork is under way: what stands in [`PENDING_FORK`] is complete.
static IS_PENDING: AtomicBool = AtomicBool::new(false);

struct PendingFork(UnsafeCell<Fork>);
// SAFETY: reached by the handlers between `operation::stop` and `operation::resume`, and in a child by a fault of its one thread
// before its handler: by one thread at a time.
unsafe impl Sync for PendingFork {}

struct Fork {
    copies: Vec<Copied>,
    /// The child has moved the copies to their addresses, or failed to.
    is_placed: bool,
    window: Option<ForkWindow>,
}

/// What a child shall have of one reservation.
struct Copied {
    space: &'static HeapSpace,
    content: ForkCopy,
    /// Why it is not the whole heap, although the parent had asked for it; or why the child could not move it.
    error: Option<io::Error>,
}

impl Copied {
    /// Whether the child has memory at an address by this copy, once it is moved.
    fn has(&self, address: usize) -> bool {
        match &self.content {
            ForkCopy::Whole { .. } => self.error.is_none() && self.space.contains(address),
            ForkCopy::ThreadUnits(units) => {
                units.iter().any(|unit| (unit.0..unit.0 + UNIT).contains(&address))
            }
            ForkCopy::Inherited(_) => false,
        }
    }
}

enum ForkCopy {
    /// A copy of the range up to an offset, in private pages at an address.
    Whole { copy: usize, used: usize, parts: Vec<Range<usize>> },
    /// Units of mimalloc for the forking thread: {address, copy}.
    ThreadUnits(Vec<(usize, usize)>),
    /// This process is a child itself: the next one inherits what it has, as any private memory. The presence.
    Inherited(u32),
}

/// Has fork(2) look after a reservation from now on.
pub fn watch(space: &'static HeapSpace) -> Result<()> {
    install()?;
    for place in &SPACES {
        let new = std::ptr::from_ref(space).cast_mut();
        if place.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
    }
    Err(HeapError::Heaps)
}

/// Begins mimalloc, and has fork(2) look after what it uses, once for a process.
pub fn install() -> Result<()> {
    let mut installed = INSTALLED.lock();
    if *installed {
        return Ok(());
    }
    mimalloc::begin().map_err(|error| HeapError::System { call: "pthread_create(3) for mimalloc", error })?;
    operation::prepare_process()
        .map_err(|error| HeapError::System { call: "pthread_key_create(3)", error })?;
    if !place_by(|address| place_at_once(|copied| copied.has(address))) {
        return Err(HeapError::last_os("sigaction(2) for the copies of forked children"));
    }
    presence::place_by(|| place_at_once(|_| true));
    // SAFETY: the handlers are functions of this crate and live as long as it is loaded; the engine is never unloaded.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if failed != 0 {
        return Err(HeapError::System {
            call: "pthread_atfork(3)",
            error: io::Error::from_raw_os_error(failed),
        });
    }
    *installed = true;
    Ok(())
}

unsafe extern "C" fn before() {
    let signals = BlockedSignals::begin();
    let is_stopped = operation::stop();
    // SAFETY: operations are stopped, so this thread alone reaches it.
    let fork = unsafe { &mut *PENDING_FORK.0.get() };
    for space in spaces() {
        match space.gate.presence.load(Ordering::Relaxed) {
            SHARED | UNUSED => fork.copies.push(copy(space, is_stopped)),
            GONE => (),
            presence => {
                fork.copies.push(Copied { space, content: ForkCopy::Inherited(presence), error: None })
            }
        }
    }
    fork.is_placed = false;
    fork.window = Some(ForkWindow::begin(signals, !fork.copies.is_empty()));
    presence::set_parent();
    IS_PENDING.store(true, Ordering::Release);
}

unsafe extern "C" fn in_parent() {
    IS_PENDING.store(false, Ordering::Relaxed);
    // SAFETY: operations are stopped until `resume` below, so this thread alone reaches it.
    let fork = unsafe { &mut *PENDING_FORK.0.get() };
    for copied in fork.copies.drain(..) {
        match copied.content {
            ForkCopy::Whole { copy, .. } => unmap(copy, copied.space.range.length),
            ForkCopy::ThreadUnits(units) => units.iter().for_each(|unit| unmap(unit.1, UNIT)),
            ForkCopy::Inherited(_) => (),
        }
    }
    let window = fork.window.take();
    operation::resume(false);
    window.into_iter().for_each(ForkWindow::end);
}

unsafe extern "C" fn in_child() {
    place_at_once(|_| true);
    IS_PENDING.store(false, Ordering::Relaxed);
    // SAFETY: operations are stopped until `resume` below, and the child has this thread only.
    let fork = unsafe { &mut *PENDING_FORK.0.get() };
    let mut is_lost = false;
    for copied in fork.copies.drain(..) {
        let file = copied.space.file.swap(-1, Ordering::Relaxed);
        if file >= 0 {
            // SAFETY: the child's own number of the memory file, which nobody uses: `Heap::file` refuses in a child.
            unsafe { libc::close(file) };
        }
        let is_inherited = matches!(copied.content, ForkCopy::Inherited(_));
        is_lost |= !is_inherited && copied.space.gate.presence.load(Ordering::Relaxed) != PRIVATE;
    }
    if is_lost {
        // This thread's end would have mimalloc look at blocks that the child does not have.
        // SAFETY: the key is mimalloc's, made when it was loaded.
        unsafe { libc::pthread_setspecific(_mi_heap_default_key, null_mut()) };
    }
    let window = fork.window.take();
    operation::resume(true);
    window.into_iter().for_each(ForkWindow::end);
}

/// In a child, once: moves all copies to their addresses, if one of them is `wanted`. Whether that is the case. Async-signal-safe: the memory of
/// the thread's own variables may be missing.
fn place_at_once(wanted: impl Fn(&Copied) -> bool) -> bool {
    if !IS_PENDING.load(Ordering::Acquire) || presence::is_parent() {
        return false;
    }
    // SAFETY: a fork is under way and this is its child, which has this thread only.
    let fork = unsafe { &mut *PENDING_FORK.0.get() };
    if fork.is_placed || !fork.copies.iter().any(wanted) {
        return false;
    }
    fork.is_placed = true;
    for copied in &mut fork.copies {
        match put_in_place(copied) {
            Ok(presence) => copied.space.set_presence(presence),
            Err(error) => copied.error = Some(error),
        }
        if let Some(error) = &copied.error {
            copied.space.copy_error.store(error.raw_os_error().unwrap_or(libc::ENOMEM), Ordering::Relaxed);
            copied.space.set_presence(COPY_FAILED);
        }
    }
    true
}

/// Forks by a function that runs no handlers of fork(3), as `_Fork(3)`: the child has its copies all the same. Async-signal-safe as far as
/// `_Fork` is, but for the memory that copies take.
///
/// # Safety
/// `fork` forks this process, and gives 0 in the child, or fails.
pub unsafe fn around_fork(fork: impl FnOnce() -> libc::pid_t) -> libc::pid_t {
    // SAFETY: the calls that fork(3) makes, in its order.
    unsafe {
        before();
        let child = fork();
        if child == 0 {
            in_child()
        } else {
            in_parent()
        }
        child
    }
}

/// All reservations of this process and its parents.
pub fn spaces() -> impl Iterator<Item = &'static HeapSpace> {
    // SAFETY: the pointers come from `watch` and live for ever.
    SPACES.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Copies what a child shall have.
fn copy(space: &'static HeapSpace, is_stopped: bool) -> Copied {
    let mut error = None;
    if !is_stopped {
        // An operation may hold the locks that are needed to look.
        let late = io::Error::from_raw_os_error(libc::ETIMEDOUT);
        return Copied { space, content: ForkCopy::ThreadUnits(Vec::new()), error: Some(late) };
    }
    // A reservation without a heap has no objects, but pages of mimalloc.
    if space.fork_copies.load(Ordering::Relaxed) && space.gate.presence.load(Ordering::Relaxed) == SHARED {
        match copy_whole(space) {
            Ok(content) => return Copied { space, content, error: None },
            Err(failed) => error = Some(failed),
        }
    }
    let mut units = Vec::new();
    for arena in space.arenas.list() {
        // SAFETY: the heap is a heap of mimalloc; `peek` only looks at this thread's table.
        let unit = unsafe { _mi_heap_theap_get_peek(arena.heap()) } as usize;
        if unit != 0 {
            debug_assert_eq!(unit % UNIT, 0, "mimalloc keeps its part of a thread at the start of a unit");
            match map_anywhere(UNIT, libc::PROT_READ | libc::PROT_WRITE) {
                Ok(copy) => {
                    // SAFETY: the unit is mapped and this thread's own; the copy was made above.
                    unsafe { std::ptr::copy_nonoverlapping(unit as *const u8, copy as *mut u8, UNIT) };
                    units.push((unit, copy));
                }
                Err(failed) => error = Some(failed),
            }
        }
    }
    Copied { space, content: ForkCopy::ThreadUnits(units), error }
}

/// Copies all pages that the memory file has.
fn copy_whole(space: &HeapSpace) -> io::Result<ForkCopy> {
    let range = space.range;
    let copy = map_anywhere(range.length, libc::PROT_READ | libc::PROT_WRITE)?;
    let mut used = 0;
    let done = for_each_data(space, |data| {
        used = data.end.next_multiple_of(UNIT).min(range.length);
        // SAFETY: the data lie in the range, which is mapped, and in the copy, which was made above. Other threads may write to
        // their objects meanwhile, as they may during fork(2) itself; the copy is made of bytes without meaning.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (range.base + data.start) as *const u8,
                (copy + data.start) as *mut u8,
                data.len(),
            );
        }
    });
    match done {
        Ok(()) => Ok(ForkCopy::Whole { copy, used, parts: space.parts_of_file() }),
        Err(error) => {
            unmap(copy, range.length);
            Err(error)
        }
    }
}

/// Shows the parts of the memory file that have pages, as offsets.
fn for_each_data(space: &HeapSpace, mut part: impl FnMut(Range<usize>)) -> io::Result<()> {
    // SAFETY: the file stays open as long as the heap is shared; operations are stopped.
    let file = unsafe { BorrowedFd::borrow_raw(space.file.load(Ordering::Relaxed)) };
    let mut offset = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        offset = seek(file, SeekFrom::Hole(start))?;
        part(start as usize..offset as usize);
    }
}

/// In the child: moves copies to their addresses. The presence that follows.
fn put_in_place(copied: &Copied) -> io::Result<u32> {
    match &copied.content {
        ForkCopy::Inherited(presence) => Ok(*presence),
        ForkCopy::ThreadUnits(units) => {
            for &(unit, copy) in units {
                move_pages(copy, unit, UNIT)?;
            }
            Ok(GONE)
        }
        ForkCopy::Whole { copy, used, parts } => {
            let base = copied.space.range.base;
            for part in parts {
                let (start, end) = (part.start - base, part.end - base);
                let middle = (*used).clamp(start, end);
                if middle > start {
                    move_pages(copy + start, part.start, middle - start)?;
                }
                if end > middle {
                    // SAFETY: the kernel has unmapped the range in this child, and nobody has used it yet.
                    unsafe { map_private(base + middle, end - middle)? };
                }
            }
            Ok(PRIVATE)
        }
    }
}

fn move_pages(from: usize, to: usize, length: usize) -> io::Result<()> {
    // SAFETY: `from` are pages that `copy` has mapped; `to` is a part of the range, which the kernel has unmapped in this child.
    let moved = unsafe {
        libc::mremap(
            from as *mut _,
            length,
            length,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            to as *mut libc::c_void,
        )
    };
    if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

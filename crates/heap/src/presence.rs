//! Whether this process has a heap's memory. A forked child finds [`GONE`] and no pointers, however it was forked: the kernel wipes
//! the page.

use crate::error::{HeapError, Result};
use crate::limits::RESERVATIONS;
use crate::mimalloc::mi_heap_t;
use crate::range::map_anywhere;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// What the fast paths look at. All of it is 0 in a forked child, until a handler of fork says otherwise.
#[derive(Debug)]
#[repr(align(64))]
pub struct Gate {
    /// One of the constants below.
    pub presence: AtomicU32,
    /// The heap of mimalloc that small objects come from; NULL: none.
    pub current: AtomicPtr<mi_heap_t>,
    /// Who owns each chunk; NULL: this process has not the memory.
    pub owners: AtomicPtr<AtomicU8>,
}

/// A parent has the memory.
pub const GONE: u32 = 0;
/// The memory is that of the memory file.
pub const SHARED: u32 = 1;
/// The memory is a copy, made by fork.
pub const PRIVATE: u32 = 2;
/// The parent had asked for a copy, and it failed.
pub const COPY_FAILED: u32 = 3;
/// No heap uses the reservation, and the next one may.
pub const UNUSED: u32 = 4;

static PAGE: OnceLock<usize> = OnceLock::new();
/// See [`place_by`].
static PLACE: OnceLock<fn() -> bool> = OnceLock::new();
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A new gate, [`GONE`] at first. There are as many as reservations.
pub fn new_gate() -> Result<&'static Gate> {
    let page = page()?;
    let index = TAKEN
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < RESERVATIONS).then_some(taken + 1)
        })
        .map_err(|_| HeapError::Heaps)?;
    // SAFETY: the page is never unmapped, zeroed, and has place for RESERVATIONS gates; nobody reaches it but by these atomics.
    Ok(unsafe { &*(page as *const Gate).add(index) })
}

/// Bytes of the gates.
const GATES: usize = 4096;

/// Notes that this process is the parent of the fork that it is about to make. In its child the note is wiped.
pub fn set_parent() {
    if let Some(word) = parent_word() {
        word.store(1, Ordering::Release);
    }
}

/// Whether this process has called [`set_parent`], and not only one of its parents.
pub fn is_parent() -> bool {
    parent_word().is_some_and(|word| word.load(Ordering::Acquire) != 0)
}

fn parent_word() -> Option<&'static AtomicU32> {
    // SAFETY: behind the gates, in pages that are never unmapped; nobody reaches it but by this function.
    PAGE.get().map(|page| unsafe { &*((*page + GATES) as *const AtomicU32) })
}

/// Has `function` asked for the memory where it is [`GONE`]: in a child that has not come to its handler of fork it may be at hand. The first
/// word counts.
pub fn place_by(function: fn() -> bool) {
    PLACE.get_or_init(|| function);
}

/// Whether the memory is there now, where it was [`GONE`].
#[cold]
pub fn place() -> bool {
    PLACE.get().is_some_and(|function| function())
}

fn page() -> Result<usize> {
    const LENGTH: usize = 2 * GATES;
    const { assert!(RESERVATIONS * size_of::<Gate>() <= GATES) };
    if let Some(page) = PAGE.get() {
        return Ok(*page);
    }
    let page = map_anywhere(LENGTH, libc::PROT_READ | libc::PROT_WRITE)
        .map_err(|error| HeapError::System { call: "mmap(2)", error })?;
    // SAFETY: exactly the mapping made above.
    if unsafe { libc::madvise(page as *mut _, LENGTH, libc::MADV_WIPEONFORK) } != 0 {
        return Err(HeapError::last_os("madvise(2), MADV_WIPEONFORK (Linux 4.14),"));
    }
    // Another thread may have been faster; this page is then unused.
    Ok(*PAGE.get_or_init(|| page))
}

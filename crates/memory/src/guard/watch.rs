//! Remembers, for each thread, that faults are mended on it, until something changes.
//!
//! Changes by way of the C library are told by whoever stands before it (the shared object's `c/signals.c`). Those by
//! bare system calls (Go's runtime, `swapcontext(3)`) are not; therefore every look is forgotten after one tick of the
//! kernel's coarse clock, 1 to 10 ms.

use crate::clock::tick;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Nobody would tell of changes unless this is set: then nothing is remembered.
static SEEN: AtomicBool = AtomicBool::new(false);
/// Changes of handlers that are being made now.
static CHANGING: AtomicU64 = AtomicU64::new(0);
/// Changes of handlers so far.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// What a look was made at: the number of changes, and the tick.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    changes: u64,
    tick: u64,
}

thread_local! {
    /// The last look that found faults mended.
    static MENDED: Cell<Option<Look>> = const { Cell::new(None) };
}

/// From now on the other functions are called at every change by way of the C library.
pub fn changes_are_seen() {
    SEEN.store(true, Ordering::Release);
}

/// The program is about to replace a handler: until it has, nothing is certain.
pub fn handlers_begin_to_change() {
    CHANGING.fetch_add(1, Ordering::SeqCst);
}

/// It has.
pub fn handlers_have_changed() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
    CHANGING.fetch_sub(1, Ordering::SeqCst);
}

/// This thread blocks other signals than before.
pub fn mask_has_changed() {
    // A thread that ends has nothing to forget.
    let _ = MENDED.try_with(|mended| mended.set(None));
}

/// Whether faults are mended on this thread now: as remembered, or as `look` finds.
#[inline]
pub fn is_mended(look: impl FnOnce() -> bool) -> bool {
    if !SEEN.load(Ordering::Acquire) || CHANGING.load(Ordering::Acquire) != 0 {
        return false;
    }
    let now = Look { changes: CHANGES.load(Ordering::Acquire), tick: tick() };
    MENDED
        .try_with(|mended| {
            if mended.get() == Some(now) {
                return true;
            }
            mended.set(None);
            let found = look();
            // The tick was read before the look, and so were the changes: nothing newer is taken for looked at.
            mended.set(found.then_some(now));
            found
        })
        .unwrap_or(false)
}

//! Remembers, for each thread, that faults are mended on it, until something changes.
//!
//! Changes of masks by way of the C library are told by whoever stands before it (the shared object's `c/signals.c`);
//! a change of a handler by way of it leaves ours in place ([`program`](super::program)). Changes by bare system calls
//! (Go's runtime, `swapcontext(3)`) nobody tells of; therefore every look is forgotten after one tick of the kernel's
//! coarse clock, 1 to 10 ms.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Nobody would tell of changes unless this is set: then nothing is remembered.
static SEEN: AtomicBool = AtomicBool::new(false);

/// No tick.
const NEVER: u64 = u64::MAX;

thread_local! {
    /// The tick of the last look, if that found faults mended; else [`NEVER`].
    static MENDED: Cell<u64> = const { Cell::new(NEVER) };
}

/// From now on masks and handlers are changed by way of the C library only through [`mask_has_changed`] and
/// [`change_action`](super::change_action).
pub fn changes_are_seen() {
    SEEN.store(true, Ordering::Release);
}

/// This thread blocks other signals than before.
pub fn mask_has_changed() {
    if !SEEN.load(Ordering::Acquire) {
        // Nothing is remembered; and where the library was opened with dlopen(3), a thread's first access to its part of
        // MENDED may allocate, which a signal handler must not.
        return;
    }
    // A thread that ends has nothing to forget.
    let _ = MENDED.try_with(|mended| mended.set(NEVER));
}

/// Whether faults are mended on this thread at `now`, the present [`tick`](crate::clock::tick): as remembered, or as `look` finds.
#[inline]
pub fn is_mended(now: u64, look: impl FnOnce() -> bool) -> bool {
    if !SEEN.load(Ordering::Acquire) {
        return false;
    }
    MENDED
        .try_with(|mended| {
            if mended.get() == now {
                return true;
            }
            mended.set(NEVER);
            let found = look();
            // The tick was read before the look: nothing newer is taken for looked at.
            mended.set(if found { now } else { NEVER });
            found
        })
        .unwrap_or(false)
}

//! The lock of readers and writers: a word of who has it, and one of wakes.

use crate::futex;
use lock_api::GuardSend;
use std::sync::atomic::{AtomicU32, Ordering};

/// A writer has it.
const WRITER: u32 = 1 << 31;
/// Threads sleep, or did a moment ago. Readers that come now sleep, too, so that a writer is not passed by for ever.
const WAITERS: u32 = 1 << 30;
/// Readers that have it.
const READERS: u32 = WAITERS - 1;
/// Looks at a lock before a thread sleeps.
const SPINS: u32 = 100;

/// The lock of a [`RwLock`](crate::RwLock).
pub struct RawRwLock(AtomicU32);

// SAFETY: a writer changes the word from no reader and no writer; a reader counts itself where there is no writer. Each is undone by its unlock alone.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // The trait has it so.
    const INIT: RawRwLock = RawRwLock(AtomicU32::new(0));
    type GuardMarker = GuardSend;

    #[inline]
    fn lock_shared(&self) {
        if !self.try_lock_shared() {
            self.lock_slowly(Self::shared);
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        loop {
            let state = self.0.load(Ordering::Relaxed);
            let Some(to) = Self::shared(state) else { return false };
            if self.take(state, to) {
                return true;
            }
        }
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        let left = self.0.fetch_sub(1, Ordering::Release) - 1;
        if left == WAITERS {
            self.wake();
        }
    }

    #[inline]
    fn lock_exclusive(&self) {
        if !self.try_lock_exclusive() {
            self.lock_slowly(Self::exclusive);
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.take(0, WRITER)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        if self.0.fetch_and(!WRITER, Ordering::Release) & WAITERS != 0 {
            self.wake();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (WRITER | READERS) != 0
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WRITER != 0
    }
}

// SAFETY: the writer becomes the one reader, by one change of the word.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        if self.0.fetch_sub(WRITER - 1, Ordering::Release) & WAITERS != 0 {
            // Readers come in beside this one. A writer among them sets the mark again.
            self.0.fetch_and(!WAITERS, Ordering::Relaxed);
            futex::wake_all(&self.0);
        }
    }
}

impl RawRwLock {
    /// The word with one reader more. `None`: it must wait.
    #[inline]
    fn shared(state: u32) -> Option<u32> {
        (state & (WRITER | WAITERS) == 0 && state < READERS).then_some(state + 1)
    }

    /// The word with a writer. `None`: it must wait.
    #[inline]
    fn exclusive(state: u32) -> Option<u32> {
        (state & (WRITER | READERS) == 0).then_some(state | WRITER)
    }

    #[inline]
    fn take(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slowly(&self, change: fn(u32) -> Option<u32>) {
        let mut spins = 0;
        loop {
            let state = self.0.load(Ordering::Relaxed);
            if let Some(to) = change(state) {
                if self.take(state, to) {
                    return;
                }
                continue;
            }
            if spins < SPINS && state & WAITERS == 0 {
                spins += 1;
                std::hint::spin_loop();
                continue;
            }
            if state & (WRITER | READERS) == 0 {
                // Nobody has it, and who has given it back is about to wake all.
                self.forget_waiters(state);
            } else if state & WAITERS != 0 || self.take(state, state | WAITERS) {
                futex::wait(&self.0, state | WAITERS, None);
            }
        }
    }

    fn forget_waiters(&self, state: u32) {
        let _ = self.0.compare_exchange(state, state & !WAITERS, Ordering::Relaxed, Ordering::Relaxed);
        futex::wake_all(&self.0);
    }

    /// Nobody has it, and threads wait.
    #[cold]
    fn wake(&self) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            // Who has taken it since then leaves them to its own unlock.
            (state & (WRITER | READERS) == 0).then_some(state & !WAITERS)
        });
        futex::wake_all(&self.0);
    }
}

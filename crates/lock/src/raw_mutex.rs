//! The lock of a mutex: one word.

use crate::futex;
use lock_api::{GetThreadId, GuardSend};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, and some thread sleeps, or did a moment ago.
const CONTENDED: u32 = 2;
/// As [`CONTENDED`], and a thread has waited through several holders.
const STARVING: u32 = 3;
/// Free for those that wait. Whoever comes by yields to them once.
const GRANTED: u32 = 4;

/// Looks at a lock before a thread sleeps.
const SPINS: u32 = 100;
/// Wakes without the lock after which a thread starves.
const PATIENCE: u32 = 4;

/// The lock of a [`Mutex`](crate::Mutex).
pub struct RawMutex(AtomicU32);

// SAFETY: `lock` returns after a change from FREE or GRANTED to a held state, which one thread alone makes; `unlock` is the only way back.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)] // The trait has it so.
    const INIT: RawMutex = RawMutex(AtomicU32::new(FREE));
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.take(FREE, LOCKED) {
            self.lock_slowly(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Whom it was granted to may have had it already, by the time of the grant.
        self.take(FREE, LOCKED) || self.take(GRANTED, CONTENDED)
    }

    #[inline]
    unsafe fn unlock(&self) {
        let before = self.0.swap(FREE, Ordering::Release);
        if before > LOCKED {
            self.wake(before);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        !matches!(self.0.load(Ordering::Relaxed), FREE | GRANTED)
    }
}

// SAFETY: both give true only behind a change from FREE or GRANTED to a held state, which one thread alone makes.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.take(FREE, LOCKED) || self.lock_slowly(Instant::now().checked_add(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.take(FREE, LOCKED) || self.lock_slowly(Some(timeout))
    }
}

impl RawMutex {
    /// False: the deadline has come.
    #[cold]
    fn lock_slowly(&self, deadline: Option<Instant>) -> bool {
        for _ in 0..SPINS {
            let state = self.0.load(Ordering::Relaxed);
            if state == FREE && self.take(FREE, LOCKED) {
                return true;
            }
            if state > LOCKED {
                break;
            }
            std::hint::spin_loop();
        }
        if self.0.load(Ordering::Relaxed) == GRANTED {
            std::thread::yield_now();
        }
        let mut wakes = 0;
        loop {
            let state = self.0.load(Ordering::Relaxed);
            if matches!(state, FREE | GRANTED) {
                // Others may sleep still.
                if self.take(state, CONTENDED) {
                    return true;
                }
                continue;
            }
            let waits = if wakes >= PATIENCE || state == STARVING { STARVING } else { CONTENDED };
            if state == waits || self.take(state, waits) {
                // With its mark set: a wake that this thread has got is passed on by whoever has the lock now.
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return false;
                }
                futex::wait(&self.0, waits, deadline);
                wakes += 1;
            }
        }
    }

    #[inline]
    fn take(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Behind the unlock of a lock that others wait for.
    #[cold]
    fn wake(&self, before: u32) {
        if before == STARVING {
            // Who has taken it since then comes before those that sleep once more.
            let _ = self.0.compare_exchange(FREE, GRANTED, Ordering::Relaxed, Ordering::Relaxed);
        }
        futex::wake(&self.0, 1);
    }
}

/// The number of the calling thread.
pub struct ThreadNumber;

// SAFETY: the address of a variable of the thread: no other living thread has it.
unsafe impl GetThreadId for ThreadNumber {
    const INIT: ThreadNumber = ThreadNumber;

    fn nonzero_thread_id(&self) -> NonZeroUsize {
        thread_local!(static PLACE: u8 = const { 0 });
        PLACE.with(|place| NonZeroUsize::new(std::ptr::from_ref(place) as usize).unwrap_or(NonZeroUsize::MIN))
    }
}

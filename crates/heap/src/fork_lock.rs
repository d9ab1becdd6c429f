//! A lock that the thread that forks may hold across fork(2), and free in the child. It has no list of waiters outside itself, so
//! threads that the child does not have leave nothing in it.

use rustix::thread::{Timespec, nanosleep};
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// How often a waiter looks before it sleeps.
const SPINS: u32 = 100;

/// For how long it sleeps between looks from then on.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

#[derive(Debug)]
pub struct ForkLock(AtomicU32);

impl ForkLock {
    pub const fn new() -> Self {
        ForkLock(AtomicU32::new(FREE))
    }

    /// Takes the lock. It is held for some microseconds, or as long as a fork takes.
    pub fn lock(&self) {
        let mut looks = 0;
        while self.0.compare_exchange_weak(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            looks += 1;
            if looks < SPINS {
                std::hint::spin_loop();
            } else {
                // A bare system call: that of the C library is a cancellation point, and would end the thread of a program here.
                let _ = nanosleep(&PAUSE);
            }
        }
    }

    pub fn unlock(&self) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), HELD);
        self.0.store(FREE, Ordering::Release);
    }
}

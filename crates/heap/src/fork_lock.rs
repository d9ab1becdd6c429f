//! A lock that the thread that forks may hold across fork(2), and free in the child. It has no list of waiters outside itself, so
//! threads that the child does not have leave nothing in it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// How often a waiter looks before it sleeps.
const SPINS: u32 = 100;

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
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    pub fn unlock(&self) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), HELD);
        self.0.store(FREE, Ordering::Release);
    }
}

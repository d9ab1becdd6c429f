//! Locks of the hot path: held for nanoseconds, and given back by a plain store.
//!
//! A lock that waiters sleep at is given back by an exchange, which on x86 waits until every store before it has reached the
//! cache; behind the first word of a record, whose cache line the peer has, that is as long as the line travels.

use std::cell::Cell;
use std::time::{Duration, Instant};

use spin::mutex::SpinMutex;
use spin::relax::RelaxStrategy;

/// A lock.
pub type Lock<T> = lock_api::Mutex<SpinMutex<(), Patience>, T>;
/// Held.
pub type LockGuard<'l, T> = lock_api::MutexGuard<'l, SpinMutex<(), Patience>, T>;
/// Held, and keeps the lock itself.
pub type ArcLockGuard<T> = lock_api::ArcMutexGuard<SpinMutex<(), Patience>, T>;

/// Looks at a taken lock in a row, until the processor is offered to others; and offers, until the thread sleeps: whoever
/// has the lock may have been displaced by this very thread.
const LOOKS: u32 = 64;
const OFFERS: u32 = 32;
const SLEEP: Duration = Duration::from_micros(50);

/// How a thread waits for a lock.
pub struct Patience;

impl RelaxStrategy for Patience {
    fn relax() {
        thread_local!(static WAITED: Cell<u32> = const { Cell::new(0) });
        let waited = WAITED.get().wrapping_add(1);
        WAITED.set(waited);
        if waited % LOOKS != 0 {
            std::hint::spin_loop();
        } else if waited / LOOKS % OFFERS != 0 {
            std::thread::yield_now();
        } else {
            // Unlike sleep(3), no point at which the thread may be cancelled.
            std::thread::park_timeout(SLEEP);
        }
    }
}

/// Waits until `deadline` at most.
pub fn lock_until<T>(lock: &Lock<T>, deadline: Instant) -> Option<LockGuard<'_, T>> {
    loop {
        if let Some(guard) = lock.try_lock() {
            return Some(guard);
        }
        if Instant::now() >= deadline {
            return None;
        }
        Patience::relax();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn one_at_a_time_also_where_the_holder_is_slow() {
        let lock = Arc::new(Lock::new(0u64));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for round in 0..200 {
                        let mut held = lock.lock();
                        let before = *held;
                        if round % 50 == 0 {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        *held = before + 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*lock.lock(), 8 * 200);
    }

    #[test]
    fn a_lock_that_is_not_given_back_is_waited_for_no_longer_than_said() {
        let lock = Lock::new(());
        let held = lock.lock();
        let deadline = Instant::now() + Duration::from_millis(20);
        assert!(lock_until(&lock, deadline).is_none() && Instant::now() >= deadline);
        drop(held);
        assert!(lock_until(&lock, deadline).is_some());
    }
}

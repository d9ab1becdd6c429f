//! What no other thread may be in the midst of when a thread forks.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at a lock that is not waited for without end.
const INTERVAL: Duration = Duration::from_millis(1);

/// A lock that the fork handlers hold over the fork (see `engine`), so that the child does not inherit it from a thread that it
/// does not have.
///
/// Not one of `parking_lot`'s: those hand a lock on to whoever waits for it, and in a forked child that is again such a thread.
pub struct HeldOverForks<T: 'static> {
    lock: Mutex<T>,
    /// The lock while a thread forks.
    forking: UnsafeCell<Option<MutexGuard<'static, T>>>,
}

// SAFETY: `lock` is what shares the value; `forking` is touched by fork handlers only, which hold the lock when they do.
unsafe impl<T: Send> Sync for HeldOverForks<T> {}

impl<T> HeldOverForks<T> {
    /// Locks a value.
    pub const fn new(value: T) -> Self {
        HeldOverForks { lock: Mutex::new(value), forking: UnsafeCell::new(None) }
    }

    /// The lock. Whoever panicked under it has changed nothing.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        crate::engine::handle_forks();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, if it can be had within so long.
    pub fn lock_within(&'static self, patience: Duration) -> Option<MutexGuard<'static, T>> {
        crate::engine::handle_forks();
        let begun = Instant::now();
        loop {
            match self.lock.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() < patience => sleep(INTERVAL),
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// Takes the lock before the calling thread forks.
    pub fn hold(&'static self) {
        let held = self.lock();
        // SAFETY: the lock is held.
        unsafe { *self.forking.get() = Some(held) };
    }

    /// The lock that the calling thread took before it forked.
    pub fn held(&'static self) -> Option<MutexGuard<'static, T>> {
        // SAFETY: this thread took the lock in `hold`, and has it until the caller drops what this gives.
        unsafe { (*self.forking.get()).take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_waits_so_long_gets_what_is_given_back_meanwhile() {
        static VALUE: HeldOverForks<u32> = HeldOverForks::new(0);
        let (holds, held) = channel();
        let (asks, asked) = channel();
        let holder = std::thread::spawn(move || {
            let mut value = VALUE.lock();
            holds.send(()).unwrap();
            asked.recv().unwrap();
            sleep(INTERVAL * 3);
            *value = 7;
        });
        held.recv().unwrap();
        assert!(VALUE.lock_within(INTERVAL).is_none());
        asks.send(()).unwrap();
        assert_eq!(VALUE.lock_within(Duration::from_secs(60)).map(|value| *value), Some(7));
        holder.join().unwrap();
    }
}

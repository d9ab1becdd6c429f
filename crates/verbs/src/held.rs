//! What no other thread may be in the midst of when a thread forks.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

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

    /// The lock, if nobody has it.
    pub fn try_lock(&'static self) -> Option<MutexGuard<'static, T>> {
        match self.lock.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
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

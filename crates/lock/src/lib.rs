//! Locks and condition variables whose waiters the kernel keeps (futex(2)), and nothing else does.
//!
//! The crate `parking_lot` keeps waiters in a table of the process. A forked child inherits that table with the threads of its parent, which the
//! child does not have: its own locks then follow pointers into their stacks. So the workspace takes these locks under the name of that crate, whose
//! interface they have.
//!
//! A lock that a thread of the parent held at fork stays held in the child. Whoever shares objects with a parent checks that first
//! (`pagewire_memory::fork`).

mod condvar;
mod futex;
mod raw_mutex;
mod raw_rw_lock;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use lock_api;
pub use raw_mutex::{RawMutex, ThreadNumber};
pub use raw_rw_lock::RawRwLock;

/// Mutual exclusion. A thread that panics with it gives it back.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// A held [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// A [`Mutex`] that its holder may take again.
pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawMutex, ThreadNumber, T>;
/// A held [`ReentrantMutex`].
pub type ReentrantMutexGuard<'a, T> = lock_api::ReentrantMutexGuard<'a, RawMutex, ThreadNumber, T>;
/// Several readers, or one writer.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// A [`RwLock`] that is held for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// A [`RwLock`] that is held for writing.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

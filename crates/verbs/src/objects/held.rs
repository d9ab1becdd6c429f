//! What no other thread may be in the midst of when a thread forks, and how many forks lie behind this process.

use pagewire_memory::Uncancelled;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at a lock that is not waited for without end.
const INTERVAL: Duration = Duration::from_millis(1);

/// Counts the forks that separate this process from the one in which the library was loaded: the objects of a parent
/// carry its epoch, and are refused in the child.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// The current epoch.
#[inline]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// The order in which a fork takes the locks: a thread that holds one never waits for one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockOrder {
    /// The list of the locks, which every lock enters once.
    Locks,
    Engine,
    FailureLog,
    Failures,
    FailureLines,
    Logger,
    Devices,
}

/// A lock that the fork handlers hold over the fork, so that the child does not inherit it from a thread that it does not have.
///
/// Not one of `parking_lot`'s: those hand a lock on to whoever waits for it, and in a forked child that is again such a thread.
pub struct HeldOverForks<T: 'static> {
    order: LockOrder,
    in_child: fn(&mut T),
    /// It is in [`LOCKS`].
    is_listed: AtomicBool,
    lock: Mutex<T>,
    /// The lock while a thread forks.
    forking: UnsafeCell<Option<MutexGuard<'static, T>>>,
}

// SAFETY: `lock` is what shares the value; `forking` is touched by fork handlers only, which hold the lock when they do.
unsafe impl<T: Send> Sync for HeldOverForks<T> {}

/// A lock, whatever it holds.
trait ForkAwareLock: Sync {
    fn order(&self) -> LockOrder;

    /// Takes the lock before the calling thread forks.
    fn hold(&'static self);

    /// Gives back the lock that the calling thread took before it forked.
    fn release(&'static self, is_child: bool);
}

/// All locks that were ever taken, in their order.
static LOCKS: HeldOverForks<Vec<&'static dyn ForkAwareLock>> =
    HeldOverForks::new(LockOrder::Locks, Vec::new(), |_| {});

impl<T: Send> HeldOverForks<T> {
    /// Locks a value. `in_child` makes of it what a forked child begins with; no other thread is there then.
    pub const fn new(order: LockOrder, value: T, in_child: fn(&mut T)) -> Self {
        let forking = UnsafeCell::new(None);
        HeldOverForks { order, in_child, is_listed: AtomicBool::new(false), lock: Mutex::new(value), forking }
    }

    /// The lock. Whoever panicked under it has changed nothing.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        self.list();
        self.take()
    }

    /// The lock, if it can be had within so long.
    pub fn lock_within(&'static self, patience: Duration) -> Option<MutexGuard<'static, T>> {
        self.list();
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

    fn take(&'static self) -> MutexGuard<'static, T> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has forks hold this lock. A thread that forks has the list, so that no lock is taken for the first time meanwhile.
    fn list(&'static self) {
        if self.is_listed.load(Ordering::Acquire) {
            return;
        }
        let mut locks = LOCKS.take();
        if locks.is_empty() {
            // SAFETY: the three are `extern "C"` functions of no arguments that stay loaded (a library with
            // threads is never unloaded: it is linked with -z nodelete).
            let failed = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
            if failed != 0 {
                log::warn!("fork handlers could not be registered: error {failed}");
            }
        }
        if !self.is_listed.swap(true, Ordering::Release) {
            locks.push(self);
            locks.sort_by_key(|lock| lock.order());
        }
    }
}

impl<T: Send> ForkAwareLock for HeldOverForks<T> {
    fn order(&self) -> LockOrder {
        self.order
    }

    fn hold(&'static self) {
        let held = self.take();
        // SAFETY: the lock is held.
        unsafe { *self.forking.get() = Some(held) };
    }

    fn release(&'static self, is_child: bool) {
        // SAFETY: this thread took the lock in `hold`, and has it until the guard is dropped here.
        if let Some(mut held) = unsafe { (*self.forking.get()).take() }
            && is_child
        {
            (self.in_child)(&mut held);
        }
    }
}

extern "C" fn before_fork() {
    LOCKS.hold();
    for lock in locks_of_fork() {
        lock.hold();
    }
}

extern "C" fn after_fork() {
    release(false);
}

extern "C" fn in_child() {
    let _uncancelled = Uncancelled::begin();
    EPOCH.fetch_add(1, Ordering::Relaxed);
    release(true);
}

fn release(is_child: bool) {
    for lock in locks_of_fork() {
        lock.release(is_child);
    }
    LOCKS.release(is_child);
}

/// The locks, to the thread that forks and holds the list.
fn locks_of_fork() -> &'static [&'static dyn ForkAwareLock] {
    // SAFETY: the calling thread holds the lock (`before_fork` took it), and changes nothing until it gives it back.
    unsafe { (*LOCKS.forking.get()).as_ref() }.map_or(&[], |locks| locks.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_waits_so_long_gets_what_is_given_back_meanwhile() {
        static VALUE: HeldOverForks<u32> = HeldOverForks::new(LockOrder::Devices, 0, |_| {});
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

    #[test]
    fn a_fork_waits_for_the_lock_and_its_child_has_the_value_that_it_begins_with() {
        static VALUE: HeldOverForks<u32> = HeldOverForks::new(LockOrder::Devices, 0, |value| *value += 1);
        let mut value = VALUE.lock();
        let forking = std::thread::spawn(|| {
            let before = epoch();
            // SAFETY: the child only takes locks that the fork held, and ends by _exit(2).
            let child = unsafe { libc::fork() };
            if child == 0 {
                let begins =
                    VALUE.lock_within(INTERVAL).is_some_and(|value| *value == 8) && epoch() == before + 1;
                // SAFETY: _exit(2) has no preconditions.
                unsafe { libc::_exit(i32::from(!begins)) };
            }
            let mut status = -1;
            // SAFETY: waitpid(2) of our own child, with a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            (libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, epoch() == before)
        });
        sleep(INTERVAL * 3);
        *value = 7;
        drop(value);
        assert_eq!(forking.join().unwrap(), (true, true));
        assert_eq!(*VALUE.lock(), 7);
    }
}

//! Condition variables.

use crate::{MutexGuard, futex};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What threads wait at until another one has changed what a [`Mutex`](crate::Mutex) guards. A wait may end for no reason: look again.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Counts notifications: who sleeps has seen an older number.
    notified: AtomicU32,
    /// Threads that wait, or are about to. Changed with the mutex held.
    waiting: AtomicU32,
}

/// Whether a wait has lasted as long as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// The time was over.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// One that nobody waits at.
    pub const fn new() -> Self {
        Condvar { notified: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// Gives the mutex back, waits for a notification, and takes it again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_until(guard, None);
    }

    /// [`wait`](Self::wait) for so long at most.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        let deadline = Instant::now().checked_add(timeout);
        self.wait_until(guard, deadline);
        WaitTimeoutResult(deadline.is_some_and(|deadline| Instant::now() >= deadline))
    }

    fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Option<Instant>) {
        let seen = self.notified.load(Ordering::Relaxed);
        // Before the mutex is given back: who takes it next sees that there is somebody to be notified.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        MutexGuard::unlocked(guard, || futex::wait(&self.notified, seen, deadline));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.notify(futex::ALL);
    }

    #[inline]
    fn notify(&self, most: u32) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.notified.fetch_add(1, Ordering::SeqCst);
            futex::wake(&self.notified, most);
        }
    }
}

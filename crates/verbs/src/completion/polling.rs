//! The completion that a program reads by the extended interface, and the lock that keeps other threads from it meanwhile.

use crate::abi::*;
use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use std::cell::UnsafeCell;

/// The completion that is being read.
pub struct Polling {
    /// Held from a successful `start_poll` to `end_poll`.
    poll_lock: RawMutex,
    single_threaded: bool,
    current: UnsafeCell<ibv_wc>,
}

impl Polling {
    /// Nothing polled yet.
    pub fn new(single_threaded: bool) -> Self {
        Polling { poll_lock: RawMutex::INIT, single_threaded, current: UnsafeCell::new(ibv_wc::zeroed()) }
    }

    /// Waits until no other thread reads.
    pub fn begin(&self) {
        if !self.single_threaded {
            self.poll_lock.lock();
        }
    }

    /// Lets others read.
    ///
    /// # Safety
    /// The calling thread began.
    pub unsafe fn end(&self) {
        if !self.single_threaded {
            // SAFETY: the caller promises that the calling thread began, so it holds the lock.
            unsafe { self.poll_lock.unlock() };
        }
    }

    /// The completion, valid for reads and writes of who began, or of the only thread.
    pub fn current(&self) -> *mut ibv_wc {
        self.current.get()
    }
}

//! Completion queues that are armed, and whether the NIC thread rests meanwhile.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Thread;

/// What the NIC thread must know of threads that are about to sleep, and they of it.
#[derive(Default)]
pub struct Arming {
    /// Completion queues that are armed, and have a channel.
    pub armed: AtomicU32,
    /// One was armed since the NIC thread last looked: a thread of the program is about to sleep.
    pub armed_anew: AtomicBool,
    pub thread: Mutex<Option<Thread>>,
    /// A thread of the program is within a poll of an empty queue, or a post that drives its queue pair. With several threads one may take
    /// back what another says.
    pub within_verb: AtomicBool,
    /// The NIC thread has left the work to the program.
    pub parked: AtomicBool,
}

/// A thread of the program is within a verb as long as this lives.
pub struct WithinVerb<'w>(&'w AtomicBool);

impl Drop for WithinVerb<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Arming {
    /// A thread of the program begins a verb that does the NIC's work.
    #[inline]
    pub fn begin_verb(&self) -> WithinVerb<'_> {
        self.within_verb.store(true, Ordering::Relaxed);
        WithinVerb(&self.within_verb)
    }

    /// Whether the NIC thread has left the work to the program, which polls without a pause.
    pub fn leaves_work_to_polls(&self) -> bool {
        self.parked.load(Ordering::SeqCst)
    }

    /// The program arms a completion queue, once more if it `is_armed` already, and may sleep from now on until it fires. The NIC
    /// thread works until it sees that the program goes on polling: polls of any queue deliver to armed ones, too.
    pub fn note_arming(&self, is_armed: bool) {
        if !is_armed {
            self.armed.fetch_add(1, Ordering::Relaxed);
        }
        self.armed_anew.store(true, Ordering::SeqCst);
        if self.parked.load(Ordering::SeqCst) {
            if let Some(thread) = &*self.thread.lock() {
                thread.unpark();
            }
        }
    }

    /// An armed completion queue has fired, or is gone.
    pub fn note_disarming(&self) {
        self.armed.fetch_sub(1, Ordering::Relaxed);
    }
}

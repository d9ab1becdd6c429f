//! When queue pairs and completion queues want to run next.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Stands in the list for objects that are no queue pairs. No queue pair has this number.
const OBJECTS: u32 = u32::MAX;

/// Times (of the fabric) and numbers of queue pairs.
type List = BTreeSet<(u64, u32)>;

/// What the lists of the engine know of one queue pair.
pub struct Schedule {
    pub number: u32,
    /// It is in the list of those that the next round runs.
    pub queued: AtomicBool,
    /// When the protocol wants to run next (fabric time); `u64::MAX`: never.
    pub deadline: AtomicU64,
    /// When the list will look at it next.
    pub scheduled: AtomicU64,
}

impl Schedule {
    /// Of a queue pair that wants nothing yet.
    pub fn new(number: u32) -> Self {
        let never = || AtomicU64::new(u64::MAX);
        Schedule { number, queued: AtomicBool::new(false), deadline: never(), scheduled: never() }
    }
}

/// An object with a timer that is rarely set.
pub trait Timed: Send + Sync {
    /// The timer has run out.
    fn run_timer(&self, now: u64);
}

/// The timers of a process.
pub struct Timers {
    list: Mutex<List>,
    earliest: AtomicU64,
    objects: Mutex<Vec<(u64, Weak<dyn Timed>)>>,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { list: Mutex::default(), earliest: AtomicU64::new(u64::MAX), objects: Mutex::default() }
    }
}

impl Timers {
    /// When the first is due; `u64::MAX`: there is none.
    pub fn earliest(&self) -> u64 {
        self.earliest.load(Ordering::SeqCst)
    }

    /// Sets a queue pair's timer. Called by the thread that runs it. True: it is due sooner than all others.
    #[must_use]
    pub fn schedule(&self, queue_pair: &Schedule, deadline: u64) -> bool {
        // `take_due` writes `scheduled` and reads `deadline`, this does the opposite: one of them sees the other.
        if queue_pair.deadline.load(Ordering::Relaxed) != deadline {
            queue_pair.deadline.store(deadline, Ordering::SeqCst);
        }
        deadline < queue_pair.scheduled.load(Ordering::SeqCst) && self.arm(queue_pair, deadline)
    }

    /// Enters a queue pair in the list, unless it is there with an earlier time. True: it is due sooner than all others.
    #[must_use]
    pub fn arm(&self, queue_pair: &Schedule, deadline: u64) -> bool {
        let mut list = self.list.lock();
        let scheduled = queue_pair.scheduled.load(Ordering::SeqCst);
        if scheduled <= deadline {
            return false;
        }
        list.remove(&(scheduled, queue_pair.number));
        queue_pair.scheduled.store(deadline, Ordering::SeqCst);
        self.add(list, deadline, queue_pair.number)
    }

    fn add(&self, mut list: MutexGuard<'_, List>, deadline: u64, number: u32) -> bool {
        list.insert((deadline, number));
        let sooner = deadline < self.earliest.load(Ordering::SeqCst);
        if sooner {
            self.earliest.store(deadline, Ordering::SeqCst);
        }
        sooner
    }

    /// Sets an object's timer. True: it is due sooner than all others.
    #[must_use]
    pub fn add_object(&self, object: Weak<dyn Timed>, due: u64) -> bool {
        self.objects.lock().push((due, object));
        self.add(self.list.lock(), due, OBJECTS)
    }

    /// Takes what is due from the list. `each` gets the numbers of the queue pairs under its lock; the objects are returned.
    pub fn take_due(&self, now: u64, mut each: impl FnMut(u32)) -> Vec<Arc<dyn Timed>> {
        let mut objects = Vec::new();
        let mut list = self.list.lock();
        let mut any_object = false;
        while let Some(&(at, number)) = list.first().filter(|(at, _)| *at <= now) {
            list.remove(&(at, number));
            any_object |= number == OBJECTS;
            each(number);
        }
        self.earliest.store(list.first().map_or(u64::MAX, |first| first.0), Ordering::SeqCst);
        drop(list);
        if any_object {
            self.objects.lock().retain(|(at, object)| {
                let is_due = *at <= now;
                objects.extend(object.upgrade().filter(|_| is_due));
                !is_due
            });
        }
        objects
    }
}

//! An operation from its start to its end, as the engine's side keeps it.

use crate::error::Failure;
use pagewire_nic::{ScatterGather, SendOperation};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

/// The name of swaps, which are posted until nobody came between.
pub(crate) const SWAP: &str = "swap";

/// One work request of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub operation: SendOperation,
    pub local: ScatterGather,
}

/// An operation from its start to its end. The engine's table, and whoever waits, hold it together: its buffer lives until it has ended,
/// whatever becomes of the future.
pub(crate) struct Pending<P: ?Sized> {
    /// As errors say it.
    pub name: &'static str,
    /// Work requests that follow each other; the last one's completion ends the operation.
    pub steps: Mutex<SmallVec<[Step; 2]>>,
    /// How many of them the engine has or had.
    pub posted: AtomicUsize,
    /// How many of them are complete.
    pub done: AtomicUsize,
    /// What an atomic found.
    pub word: AtomicU64,
    ended: AtomicBool,
    outcome: Mutex<Outcome>,
    payload: P,
}

#[derive(Default)]
struct Outcome {
    failure: Option<Failure>,
    wakers: SmallVec<[Waker; 1]>,
    abandoned: bool,
}

/// An operation whose buffer's type is forgotten.
pub(crate) type AnyPending = Pending<dyn Send + Sync>;

impl<B> Pending<Mutex<Option<B>>> {
    /// The buffer. `None`: it was taken before.
    pub fn take_payload(&self) -> Option<B> {
        self.payload.lock().take()
    }

    /// An operation that has not begun and has no steps yet.
    pub fn new(name: &'static str, buffer: B) -> Self {
        Pending {
            name,
            steps: Mutex::default(),
            posted: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            word: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            outcome: Mutex::default(),
            payload: Mutex::new(Some(buffer)),
        }
    }
}

impl<P: ?Sized> Pending<P> {
    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Its failure, if it has ended with one that was not taken before.
    pub fn take_failure(&self) -> Option<Failure> {
        self.outcome.lock().failure.take()
    }

    /// Has the task woken when it ends.
    pub fn wake(&self, waker: &Waker) -> Sleep {
        let mut outcome = self.outcome.lock();
        // With the lock: nothing ends between this look and the waker.
        if self.is_ended() {
            return Sleep::Ended;
        }
        if outcome.wakers.iter().any(|known| known.will_wake(waker)) {
            return Sleep::Known;
        }
        outcome.wakers.push(waker.clone());
        Sleep::Added
    }

    /// Ends it, and wakes whoever waits.
    pub fn end(&self, failure: Option<Failure>) -> Woken {
        let mut outcome = self.outcome.lock();
        let wakers = std::mem::take(&mut outcome.wakers);
        let unnoticed = if outcome.abandoned { failure.clone() } else { None };
        outcome.failure = failure;
        self.ended.store(true, Ordering::Release);
        drop(outcome);
        let sleepers = wakers.len();
        wakers.into_iter().for_each(Waker::wake);
        Woken { sleepers, unnoticed }
    }

    /// Nobody will ask for its result any more. Gives the failure that it has ended with, of which nobody has learnt.
    pub fn abandon(&self) -> Option<Failure> {
        let mut outcome = self.outcome.lock();
        outcome.abandoned = true;
        outcome.failure.take()
    }
}

/// What the end of an operation brings.
pub(crate) struct Woken {
    /// So many were woken.
    pub sleepers: usize,
    /// Its failure, if nobody asks for its result any more.
    pub unnoticed: Option<Failure>,
}

/// What becomes of somebody who wants to sleep until an operation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// It has ended.
    Ended,
    /// One more is woken.
    Added,
    /// It is woken anyway.
    Known,
}

//! An operation from its start to its end, as the engine's side keeps it.

use crate::error::Failure;
use crate::nodes::readiness::Readiness;
use crate::regions::word_change::WordChange;
use pagewire_nic::{ScatterGather, SendOperation};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

/// One work request of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkStep {
    pub operation: SendOperation,
    pub local: ScatterGather,
    /// A compare-swap that comes again with this change of what it found, until nobody came between.
    pub repeats: Option<WordChange>,
}

/// The work requests of an operation, which follow each other, and how far they are.
#[derive(Default)]
pub(crate) struct WorkSteps {
    pub list: SmallVec<[WorkStep; 2]>,
    /// How many the engine has or had.
    pub posted: usize,
    /// How many of these have come back, in whatever way.
    pub returned: usize,
    /// How many are done.
    pub done: usize,
    /// Why no more of them is posted.
    pub failure: Option<Failure>,
}

impl WorkSteps {
    /// Steps the first of which are done.
    pub fn new(list: SmallVec<[WorkStep; 2]>, done: usize) -> Self {
        WorkSteps { list, posted: done, returned: done, done, failure: None }
    }

    /// The next one to be posted. `None`: there is none, or one before has failed.
    pub fn next(&self) -> Option<&WorkStep> {
        if self.failure.is_some() { None } else { self.list.get(self.posted) }
    }

    /// Whether the engine has none of them.
    pub fn is_idle(&self) -> bool {
        self.returned == self.posted
    }

    /// Bytes of those that are done.
    pub fn length_done(&self) -> u64 {
        self.list[..self.done].iter().map(|step| u64::from(step.local.length)).sum()
    }

    /// What is not done is posted again.
    fn rewind(&mut self) {
        (self.posted, self.returned) = (self.done, self.done);
    }

    /// Begins anew if the step that was done repeats, and somebody came between. Gives whether it does.
    pub fn repeat(&mut self, found: u64) -> bool {
        let again = self.list.get_mut(self.done).is_some_and(|step| {
            step.repeats.is_some_and(|change| change.prepare_again(&mut step.operation, found))
        });
        if again {
            self.rewind();
        }
        again
    }
}

/// An operation from its start to its end. The connection, and whoever waits, hold it together: its buffer lives until it has ended, whatever
/// becomes of the future.
pub(crate) struct PendingOperation<P: ?Sized> {
    /// As errors say it.
    pub name: &'static str,
    pub steps: Mutex<WorkSteps>,
    /// What an atomic found, or the value that a signal is set to.
    pub word: AtomicU64,
    ended: AtomicBool,
    outcome: Mutex<PendingOutcome>,
    payload: P,
}

#[derive(Default)]
struct PendingOutcome {
    failure: Option<Failure>,
    wakers: Wakers,
    abandoned: bool,
    /// How it has ended. It stays when the failure is taken.
    end_state: Option<EndState>,
    /// Where it counts as ready until its result is taken.
    announced: Option<Arc<Readiness>>,
}

impl PendingOutcome {
    /// Its result is taken.
    fn withdraw(&mut self) {
        if let Some(readiness) = self.announced.take() {
            readiness.take();
        }
    }
}

/// Whoever is to be woken at the end of an operation.
pub(crate) type Wakers = SmallVec<[Waker; 1]>;

/// An operation whose buffer's type is forgotten.
pub(crate) type AnyPending = PendingOperation<dyn Send + Sync>;

impl<B> PendingOperation<Mutex<Option<B>>> {
    /// An operation that has no steps yet.
    pub fn new(name: &'static str, buffer: B) -> Self {
        PendingOperation {
            name,
            steps: Mutex::default(),
            word: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            outcome: Mutex::default(),
            payload: Mutex::new(Some(buffer)),
        }
    }

    /// The buffer. `None`: it was taken before.
    pub fn take_payload(&self) -> Option<B> {
        self.payload.lock().take()
    }
}

impl<P: ?Sized> PendingOperation<P> {
    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Its failure, if it has ended with one that was not taken before.
    pub fn take_failure(&self) -> Option<Failure> {
        let mut outcome = self.outcome.lock();
        outcome.withdraw();
        outcome.failure.take()
    }

    /// How it has ended, whoever has taken its result. `None`: it has not.
    pub fn end_state(&self) -> Option<EndState> {
        self.outcome.lock().end_state
    }

    /// Has somebody woken when it ends.
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

    /// Ends it. `readiness`: where it is announced to a program that sleeps in poll(2).
    pub fn end(&self, failure: Option<Failure>, readiness: Option<&Arc<Readiness>>) -> EndNotice {
        let mut outcome = self.outcome.lock();
        debug_assert!(!self.is_ended(), "an operation ends once");
        let abandoned = outcome.abandoned;
        let unnoticed = if abandoned { failure.clone() } else { None };
        outcome.end_state = Some(EndState::of(failure.as_ref()));
        outcome.failure = failure;
        // Before it is announced: who is woken by that finds it ended. Who takes it meanwhile waits for the lock, and finds it announced.
        self.ended.store(true, Ordering::Release);
        if let Some(readiness) = readiness.filter(|_| !abandoned) {
            readiness.add();
            outcome.announced = Some(readiness.clone());
        }
        EndNotice { wakers: std::mem::take(&mut outcome.wakers), abandoned, unnoticed }
    }

    /// Nobody will ask for its result any more.
    pub fn abandon(&self) -> Abandoned {
        let mut outcome = self.outcome.lock();
        if !self.is_ended() {
            outcome.abandoned = true;
            return Abandoned::Unfinished;
        }
        outcome.withdraw();
        Abandoned::Ended(outcome.failure.take())
    }
}

/// How an operation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndState {
    Done,
    PeerLost,
    Failed,
}

impl EndState {
    fn of(failure: Option<&Failure>) -> Self {
        match failure {
            None => EndState::Done,
            Some(Failure::PeerLost { .. }) => EndState::PeerLost,
            Some(_) => EndState::Failed,
        }
    }
}

/// What the end of an operation brings.
pub(crate) struct EndNotice {
    pub wakers: Wakers,
    /// It was dropped before, and counts as a sleeper.
    pub abandoned: bool,
    /// Its failure, if it was.
    pub unnoticed: Option<Failure>,
}

/// How an operation stands that is dropped.
pub(crate) enum Abandoned {
    /// Perhaps with a failure of which nobody has learnt.
    Ended(Option<Failure>),
    Unfinished,
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

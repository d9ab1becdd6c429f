//! Operations: what was started, who waits for it, and how it ended.

use crate::connection::Connection;
use crate::error::{Failure, OperationError};
use crate::node::Shared;
use pagewire_nic::{ScatterGather, SendOperation};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

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
    fn abandon(&self) -> Option<Failure> {
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

/// An operation that was started: a future of its end, at the completion `remote`: the bytes are visible at the target.
///
/// It runs whether somebody waits for it or not. Dropping or forgetting it ends nothing: the buffer is the operation's own until that has
/// ended. The failure of one that was dropped is told by the next [flush](crate::RemoteRegion::flush). `wait` and `await` give the buffer back; on failure the error has it.
#[must_use = "an operation that nobody waits for may fail without notice: wait for it, or flush its region"]
pub struct Operation<B> {
    node: Arc<Shared>,
    connection: Arc<Connection>,
    pending: Arc<Pending<Mutex<Option<B>>>>,
    finish: fn(u64, B) -> B,
}

impl<B> Unpin for Operation<B> {}

impl<B: Send + 'static> Operation<B> {
    pub(crate) fn new(
        node: Arc<Shared>,
        connection: Arc<Connection>,
        pending: Arc<Pending<Mutex<Option<B>>>>,
        finish: fn(u64, B) -> B,
    ) -> Self {
        Operation { node, connection, pending, finish }
    }

    /// Waits until it has ended (`remote`), and gives the buffer back. The thread polls for [`SPIN`](crate::limits::SPIN), then it sleeps.
    ///
    /// # Errors
    /// The operation's, with the buffer.
    pub fn wait(self) -> Result<B, OperationError<B>> {
        self.node.wait_until_ended(&*self.pending);
        self.into_result()
    }

    /// Waits until the buffer may be used again (`source`), and gives it back. On all paths of today that is when it has ended.
    ///
    /// # Errors
    /// The operation's, with the buffer.
    pub fn wait_source(self) -> Result<B, OperationError<B>> {
        self.wait()
    }

    /// Whether it has ended. Polls the engine once where it has not.
    pub fn is_done(&self) -> bool {
        self.pending.is_ended() || {
            self.node.poll();
            self.pending.is_ended()
        }
    }

    /// What it gave if it has ended, else the operation as it was.
    ///
    /// # Errors
    /// The operation itself: it has not ended.
    pub fn try_wait(self) -> Result<Result<B, OperationError<B>>, Self> {
        if self.is_done() { Ok(self.into_result()) } else { Err(self) }
    }

    fn into_result(self) -> Result<B, OperationError<B>> {
        self.result().unwrap_or_else(|| {
            unreachable!("an operation that has ended holds its buffer until it is asked for it")
        })
    }

    /// Takes the result of an operation that has ended. `None`: it was taken before.
    fn result(&self) -> Option<Result<B, OperationError<B>>> {
        let buffer = self.pending.payload.lock().take()?;
        Some(match self.pending.outcome.lock().failure.take() {
            None => Ok((self.finish)(self.pending.word.load(Ordering::Acquire), buffer)),
            Some(failure) => Err(OperationError { buffer, failure }),
        })
    }
}

impl<B> Drop for Operation<B> {
    fn drop(&mut self) {
        if let Some(failure) = self.pending.abandon() {
            self.connection.note_unnoticed(failure);
        }
    }
}

impl<B: Send + 'static> Future for Operation<B> {
    type Output = Result<B, OperationError<B>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if !this.is_done() {
            let sleep = this.node.sleep(&*this.pending, context.waker());
            if sleep != Sleep::Ended {
                return Poll::Pending;
            }
        }
        match this.result() {
            Some(result) => Poll::Ready(result),
            None => panic!("an operation was polled after it had given its result"),
        }
    }
}

//! Operations as programs hold them: futures of their end.

use crate::error::{Failure, OperationError};
use crate::nodes::connection::PeerConnection;
use crate::operations::operation_end::{OperationEnd, WakerFate};
use crate::operations::pending::{Abandoned, AnyPending, PendingOperation, Sleep};
use pagewire_memory::fork::Owner;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An operation that was started: a future of its end, at the completion `remote`: the bytes are visible at the target.
///
/// It runs whether somebody waits for it or not. Dropping or forgetting it ends nothing: the buffer is the operation's own until that has
/// ended. The failure of one that was dropped is told by the next [flush](crate::RemoteRegion::flush). `wait` and `await` give the buffer back; on failure the error has it.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let get = remote.get::<u64>(0, 16)?; // It runs.
/// assert_eq!(get.wait()?.len(), 16);
/// let refused = remote.put(128, vec![1u64]).wait().unwrap_err();
/// assert_eq!(refused.buffer, [1]);
/// # Ok(())
/// # }
/// ```
#[must_use = "an operation that nobody waits for may fail without notice: wait for it, or flush its region"]
pub struct Operation<B>(OperationProgress<B>);

enum OperationProgress<B> {
    /// It was executed as it was started, and nobody else knows it. Its result, until that is taken.
    Executed(Option<B>, Owner),
    Started(Started<B>),
}

impl<B> Unpin for Operation<B> {}

impl<B: Send + 'static> Operation<B> {
    pub(crate) fn executed(result: B) -> Self {
        Operation(OperationProgress::Executed(Some(result), Owner::this_process()))
    }

    pub(crate) fn started(started: Started<B>) -> Self {
        Operation(OperationProgress::Started(started))
    }

    /// Waits until it has ended (`remote`), and gives the buffer back. The thread polls for [`SPIN`](crate::limits::SPIN), then it sleeps.
    ///
    /// # Errors
    /// The operation's, with the buffer.
    pub fn wait(self) -> Result<B, OperationError<B>> {
        match self.0 {
            OperationProgress::Executed(result, owner) => executed(result, owner),
            OperationProgress::Started(started) => started.wait(),
        }
    }

    /// Waits until the buffer may be used again (`source`), and gives it back. On all paths of today that is when it has ended.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let mut buffer = remote.put(0, vec![5u64]).wait_source()?;
    /// buffer[0] = 6; // what is on its way stays as it was
    /// remote.flush()?;
    /// assert_eq!(table.get(0)?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The operation's, with the buffer.
    pub fn wait_source(self) -> Result<B, OperationError<B>> {
        self.wait()
    }

    /// Waits until it has ended, for so long at most. False: it has not. What it gave is taken by another call.
    pub fn ends_within(&self, patience: Duration) -> bool {
        match &self.0 {
            OperationProgress::Executed(..) => true,
            OperationProgress::Started(started) => started.ends_within(patience),
        }
    }

    /// Whether it has ended. Polls the engine once where it has not.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            OperationProgress::Executed(..) => true,
            OperationProgress::Started(started) => started.is_done(),
        }
    }

    /// What it gave if it has ended, else the operation as it was.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let mut put = remote.put(0, vec![5u64]);
    /// let result = loop {
    ///     match put.try_wait() {
    ///         Ok(result) => break result,
    ///         Err(unfinished) => put = unfinished,
    ///     }
    /// };
    /// assert_eq!(result?, [5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The operation itself: it has not ended.
    pub fn try_wait(self) -> Result<Result<B, OperationError<B>>, Self> {
        if self.is_done() { Ok(self.wait()) } else { Err(self) }
    }
}

/// What an operation gives that was done as it was started.
#[inline]
fn executed<B>(result: Option<B>, owner: Owner) -> Result<B, OperationError<B>> {
    let buffer = result.unwrap_or_else(taken);
    if owner.is_this_process() {
        return Ok(buffer);
    }
    Err(OperationError { buffer, failure: Failure::Forked { operation: "an operation" } })
}

impl<B: Send + 'static> OperationEnd for Operation<B> {
    fn is_ended(&self) -> bool {
        match &self.0 {
            OperationProgress::Executed(..) => true,
            OperationProgress::Started(started) => started.is_ended(),
        }
    }

    fn poll_end(&self) -> bool {
        self.is_done()
    }

    fn polled(&self) -> usize {
        match &self.0 {
            OperationProgress::Executed(..) => 0,
            OperationProgress::Started(started) => {
                std::ptr::from_ref(started.connection.completions()).addr()
            }
        }
    }

    fn wake_at_end(&self, waker: &Waker) -> WakerFate {
        match &self.0 {
            OperationProgress::Executed(..) => WakerFate::Ended,
            OperationProgress::Started(started) => {
                WakerFate::of(started.connection.completions().sleep(&*started.pending, waker))
            }
        }
    }
}

fn taken<B>() -> B {
    panic!("an operation was polled after it had given its result")
}

/// An operation that the connection has, or had.
pub(crate) struct Started<B> {
    connection: Arc<PeerConnection>,
    pending: Arc<PendingOperation<Mutex<Option<B>>>>,
    finish: fn(u64, B) -> B,
}

impl<B: Send + 'static> Started<B> {
    pub fn new(
        connection: Arc<PeerConnection>,
        pending: Arc<PendingOperation<Mutex<Option<B>>>>,
        finish: fn(u64, B) -> B,
    ) -> Self {
        Started { connection, pending, finish }
    }

    fn wait(self) -> Result<B, OperationError<B>> {
        self.connection.wait_until_ended(&*self.pending);
        self.into_result()
    }

    pub fn ends_within(&self, patience: Duration) -> bool {
        self.connection.ends_within(&*self.pending, patience)
    }

    fn is_done(&self) -> bool {
        self.is_ended() || {
            self.connection.completions().poll();
            self.pending.is_ended()
        }
    }

    pub fn connection(&self) -> &Arc<PeerConnection> {
        &self.connection
    }

    pub fn any_pending(&self) -> Arc<AnyPending> {
        self.pending.clone()
    }

    /// Whether it has ended, by what is known already.
    pub fn is_ended(&self) -> bool {
        self.pending.is_ended() || self.connection.is_forked()
    }

    /// Its buffer, of an operation that nothing was done for.
    pub fn refuse(self, failure: Failure) -> OperationError<B> {
        if !self.is_ended() {
            self.pending.end(Some(failure), None);
        }
        match self.into_result() {
            Err(error) => error,
            Ok(_) => unreachable!("it has just failed"),
        }
    }

    pub fn into_result(self) -> Result<B, OperationError<B>> {
        self.result().unwrap_or_else(|| {
            unreachable!("an operation that has ended holds its buffer until it is asked for it")
        })
    }

    /// Takes the result of an operation that has ended. `None`: it was taken before.
    pub fn result(&self) -> Option<Result<B, OperationError<B>>> {
        let buffer = self.pending.take_payload()?;
        if self.connection.is_forked() {
            // What the parent makes of it is not known here.
            return Some(Err(OperationError {
                buffer,
                failure: Failure::Forked { operation: self.pending.name },
            }));
        }
        Some(match self.pending.take_failure() {
            None => Ok((self.finish)(self.pending.word.load(Ordering::Acquire), buffer)),
            Some(failure) => Err(OperationError { buffer, failure }),
        })
    }
}

impl<B> Drop for Started<B> {
    fn drop(&mut self) {
        if self.connection.is_forked() {
            return;
        }
        match self.pending.abandon() {
            Abandoned::Ended(None) => {}
            Abandoned::Ended(Some(failure)) => self.connection.note_unnoticed(failure),
            // So that it goes on though nobody waits for it.
            Abandoned::Unfinished => self.connection.completions().add_sleepers(1),
        }
    }
}

impl<B: Send + 'static> Future for Operation<B> {
    type Output = Result<B, OperationError<B>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let started = match &mut self.get_mut().0 {
            OperationProgress::Executed(result, owner) => {
                return Poll::Ready(executed(result.take(), *owner));
            }
            OperationProgress::Started(started) => started,
        };
        if !started.is_done() {
            let sleep = started.connection.completions().sleep(&*started.pending, context.waker());
            if sleep != Sleep::Ended {
                return Poll::Pending;
            }
        }
        Poll::Ready(started.result().unwrap_or_else(taken))
    }
}

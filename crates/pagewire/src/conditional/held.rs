//! The side whose data move: a write that is posted before the peer's memory is known.

use crate::conditional::{ConditionalWrites, HeldBy, HeldWork, Tag, WRITE};
use crate::error::{Error, Failure, OperationError, Rule, Side};
use crate::limits::{MAX_LENGTH, SPIN};
use crate::nodes::completions::Completions;
use crate::operations::buffer::Buffer;
use crate::operations::operation::Started;
use crate::operations::operation_end::{OperationEnd, WakerFate};
use crate::operations::pending::{PendingOperation, Sleep};
use crate::regions::token::Peer;
use pagewire_nic::ScatterGather;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Holds a write of `buffer`. `announces`: it also sends the opening to the peer.
pub(crate) fn hold<B: Buffer>(
    conditional: &Arc<ConditionalWrites>,
    peer: Peer,
    tag: Tag,
    buffer: B,
    announces: bool,
) -> Result<HeldWrite<B>, OperationError<B>> {
    let socket = peer.0.socket();
    let (address, count) = buffer.bytes();
    if count > MAX_LENGTH {
        let (side, rule) = (Side::Caller, Rule::Length(count as u64));
        let failure = Failure::Refused { operation: WRITE, peer: socket, side, rule, landed: 0 };
        return Err(OperationError { buffer, failure });
    }
    // Its release comes as a message.
    let connected = conditional.services.inbox().and_then(|_| conditional.peers.connect(peer.0));
    let connection = match connected {
        Ok(connection) => connection,
        Err(error) => {
            let failure = not_connected(&error, socket);
            return Err(OperationError { buffer, failure });
        }
    };
    let local = ScatterGather { address: address as u64, length: count as u32, key: connection.local_key() };
    let operation =
        Started::new(connection, Arc::new(PendingOperation::new(WRITE, buffer)), |_, buffer| buffer);
    let work = HeldWork::Operation { pending: operation.any_pending(), local };
    match conditional.hold(peer, tag, (operation.connection().clone(), work), announces) {
        Ok(held) => Ok(HeldWrite { operation, held, conditional: conditional.clone() }),
        Err(failure) => Err(operation.refuse(failure)),
    }
}

/// A conditional write: a future of how it ends. Dropping it ends nothing; the write stays held until its release, or its time, comes.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights, WriteOutcome};
/// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
/// # let table = receiver.zeroed::<u64>(4)?;
/// # let token = table.export(Rights::WRITE)?;
/// # let held = writer.conditional_write(receiver.identity(), 7, vec![1u64, 2])?;
/// // It is held: nothing else is delayed by it.
/// assert!(!held.is_done());
/// receiver.accept_conditional_write(writer.identity(), 7, &token)?;
/// assert_eq!(held.wait(), WriteOutcome::Written(vec![1, 2])); // or held.await
/// # Ok(())
/// # }
/// ```
#[must_use = "a write that nobody waits for may fail without notice: wait for it"]
pub struct HeldWrite<B> {
    operation: Started<B>,
    held: HeldBy,
    conditional: Arc<ConditionalWrites>,
}

/// Why a write is not held whose peer is not connected to.
pub(super) fn not_connected(error: &Error, peer: SocketAddr) -> Failure {
    match error {
        Error::Forked => Failure::Forked { operation: WRITE },
        error => Failure::PeerLost { operation: WRITE, peer, why: error.to_string() },
    }
}

impl<B> Unpin for HeldWrite<B> {}

/// Ends a conditional write for whoever waits for it.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights, WriteOutcome};
/// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
/// # let table = receiver.zeroed::<u64>(4)?;
/// # let token = table.export(Rights::WRITE)?;
/// # let held = writer.conditional_write(receiver.identity(), 7, vec![1u64, 2])?;
/// let canceller = held.canceller();
/// std::thread::spawn(move || canceller.cancel());
/// assert!(matches!(held.wait(), WriteOutcome::Cancelled(..)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Canceller {
    held: HeldBy,
    conditional: Arc<ConditionalWrites>,
}

impl Canceller {
    /// Cancels the write. One that was released before ends as it ends; its outcome says which.
    pub fn cancel(&self) {
        self.conditional.cancel(&self.held);
    }

    /// As [`HeldWrite::within`].
    pub fn end_after(&self, time: Duration) {
        self.conditional.end_after(&self.held, time);
    }
}

/// How a conditional write has ended, and its buffer.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights, WriteOutcome};
/// # use std::time::Duration;
/// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
/// # let table = receiver.zeroed::<u64>(4)?;
/// # let token = table.export(Rights::WRITE)?;
/// # let held = writer.conditional_write(receiver.identity(), 7, vec![1u64, 2])?;
/// match held.within(Duration::from_millis(5)).wait() {
///     WriteOutcome::Written(buffer) => println!("{} elements are there", buffer.len()),
///     WriteOutcome::TimedOut(buffer, why) => println!("{why}, and its {} elements are here", buffer.len()),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum WriteOutcome<B> {
    /// The bytes are visible at the peer.
    Written(B),
    /// The peer has declined it, or the memory that it was released to does not take it.
    Refused(B, Failure),
    /// It was cancelled, and wrote nothing.
    Cancelled(B, Failure),
    /// Its release did not come in time, and it wrote nothing.
    TimedOut(B, Failure),
    /// The peer is lost. A write that had been released may have written some of its bytes; another one has written nothing.
    PeerLost(B, Failure),
}

impl<B> WriteOutcome<B> {
    /// The buffer of a write that was done.
    ///
    /// # Errors
    /// Why it was not, with the buffer.
    pub fn into_result(self) -> Result<B, OperationError<B>> {
        match self {
            WriteOutcome::Written(buffer) => Ok(buffer),
            WriteOutcome::Refused(buffer, failure)
            | WriteOutcome::Cancelled(buffer, failure)
            | WriteOutcome::TimedOut(buffer, failure)
            | WriteOutcome::PeerLost(buffer, failure) => Err(OperationError { buffer, failure }),
        }
    }

    fn of(result: Result<B, OperationError<B>>) -> Self {
        match result {
            Ok(buffer) => WriteOutcome::Written(buffer),
            Err(OperationError { buffer, failure }) => match failure {
                Failure::Cancelled { .. } => WriteOutcome::Cancelled(buffer, failure),
                Failure::TimedOut { .. } => WriteOutcome::TimedOut(buffer, failure),
                Failure::PeerLost { .. } => WriteOutcome::PeerLost(buffer, failure),
                failure => WriteOutcome::Refused(buffer, failure),
            },
        }
    }
}

impl<B: Send + 'static> HeldWrite<B> {
    /// Ends it as [`TimedOut`](WriteOutcome::TimedOut) if its release has not come by then, counted from now.
    pub fn within(self, time: Duration) -> Self {
        self.canceller().end_after(time);
        self
    }

    /// What other threads end it by, while one waits for it.
    pub fn canceller(&self) -> Canceller {
        Canceller { held: self.held, conditional: self.conditional.clone() }
    }

    /// Cancels it, and gives how it has ended: when this returns, no further byte of it will be written. One that was released before is waited for.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights, WriteOutcome};
    /// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
    /// # let table = receiver.zeroed::<u64>(4)?;
    /// # let token = table.export(Rights::WRITE)?;
    /// # let held = writer.conditional_write(receiver.identity(), 7, vec![1u64, 2])?;
    /// // Perhaps it was released before: its outcome says which.
    /// assert!(matches!(held.cancel(), WriteOutcome::Cancelled(..)));
    /// assert_eq!(table.get(0)?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(self) -> WriteOutcome<B> {
        self.canceller().cancel();
        self.wait()
    }

    /// Waits until it has ended. The thread polls for [`SPIN`](crate::limits::SPIN), then it sleeps.
    pub fn wait(self) -> WriteOutcome<B> {
        let (pending, start) = (self.operation.any_pending(), Instant::now());
        while !self.operation.is_ended() {
            self.poll_once();
            if start.elapsed() >= SPIN {
                self.conditional.services.stop_polling_messages();
                self.completions().sleep_until_ended(&*pending);
            }
        }
        WriteOutcome::of(self.operation.into_result())
    }

    /// Waits until it has ended, for so long at most. False: it has not. What it gave is taken by another call.
    pub fn ends_within(&self, patience: Duration) -> bool {
        self.poll_once();
        self.operation.ends_within(patience)
    }

    /// Whether it has ended. Polls the engine once where it has not.
    pub fn is_done(&self) -> bool {
        self.operation.is_ended() || {
            self.poll_once();
            self.operation.is_ended()
        }
    }

    fn completions(&self) -> &Completions {
        self.operation.connection().completions()
    }

    fn poll_once(&self) {
        self.conditional.services.poll_messages();
        self.completions().poll();
    }
}

impl<B: Send + 'static> OperationEnd for HeldWrite<B> {
    fn is_ended(&self) -> bool {
        self.operation.is_ended()
    }

    fn poll_end(&self) -> bool {
        self.is_done()
    }

    fn polled(&self) -> usize {
        // Not that of operations: messages are polled, too.
        std::ptr::from_ref(&*self.conditional.services).addr()
    }

    fn wake_at_end(&self, waker: &Waker) -> WakerFate {
        self.conditional.services.stop_polling_messages();
        WakerFate::of(self.completions().sleep(&*self.operation.any_pending(), waker))
    }
}

impl<B: Send + 'static> Future for HeldWrite<B> {
    type Output = WriteOutcome<B>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.poll_once();
        let waker: &Waker = context.waker();
        this.conditional.services.stop_polling_messages();
        if this.completions().sleep(&*this.operation.any_pending(), waker) != Sleep::Ended {
            return Poll::Pending;
        }
        match this.operation.result() {
            Some(result) => Poll::Ready(WriteOutcome::of(result)),
            None => panic!("a write was polled after it had given its outcome"),
        }
    }
}

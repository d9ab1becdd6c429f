//! Flushes as programs hold them: futures of the end of everything that was started before.

use crate::error::Failure;
use crate::nodes::connection::PeerConnection;
use crate::operations::pending::{AnyPending, Sleep};
use pagewire_memory::fork::Owner;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A flush that was started: a future of the end, at `remote`, of everything that had been started before. Dropping it changes nothing.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::{Node, Rights};
/// let node = Node::alone()?;
/// let table = node.zeroed::<u64>(100)?;
/// let remote = node.open(&table.export(Rights::WRITE)?)?;
/// for index in 0..100 {
///     drop(remote.put_value(8 * index, index)); // Nobody waits for this one alone.
/// }
/// let mut flush = remote.start_flush(); // or flush.await
/// while !flush.is_done() {}
/// flush.wait()?;
/// assert_eq!(table.get(99)?, 99);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing waits before `wait` or `await`"]
pub struct Flush {
    connections: Vec<Arc<PeerConnection>>,
    unfinished: Vec<(Arc<PeerConnection>, Arc<AnyPending>)>,
    /// Who started it. `None`: a forked child, of a node of its parent.
    owner: Option<Owner>,
}

impl Flush {
    pub(crate) fn new(connections: Vec<Arc<PeerConnection>>) -> Self {
        let of = |connection: &Arc<PeerConnection>| {
            let connection = connection.clone();
            connection.unfinished().into_iter().map(move |pending| (connection.clone(), pending))
        };
        // The last ones end last, and are looked at first.
        let unfinished = connections.iter().flat_map(of).collect();
        Flush { connections, unfinished, owner: Some(Owner::this_process()) }
    }

    /// That of a forked child, of a node of its parent: it ends at once.
    pub(crate) fn forked() -> Self {
        Flush { connections: Vec::new(), unfinished: Vec::new(), owner: None }
    }

    /// Waits until everything has ended.
    ///
    /// # Errors
    /// The first failure since the last flush of an operation that was dropped before its result was taken.
    pub fn wait(mut self) -> Result<(), Failure> {
        for (connection, pending) in self.unfinished.drain(..) {
            connection.wait_until_ended(&*pending);
        }
        self.result()
    }

    /// Whether everything has ended. Polls the engine once where it has not.
    pub fn is_done(&mut self) -> bool {
        if let Some((connection, pending)) = self.unfinished.last() {
            if connection.is_forked() {
                self.unfinished.clear();
                return true;
            }
            if !pending.is_ended() {
                connection.completions().poll();
            }
        }
        while self.unfinished.last().is_some_and(|(_, pending)| pending.is_ended()) {
            self.unfinished.pop();
        }
        self.unfinished.is_empty()
    }

    /// All failures are taken, also those behind the first.
    fn result(&self) -> Result<(), Failure> {
        if !self.owner.is_some_and(Owner::is_this_process) {
            return Err(Failure::Forked { operation: "flush" });
        }
        let failures: Vec<_> =
            self.connections.iter().filter_map(|connection| connection.take_unnoticed()).collect();
        failures.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Future for Flush {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        while !self.is_done() {
            let Some((connection, pending)) = self.unfinished.last() else { break };
            if connection.completions().sleep(&**pending, context.waker()) != Sleep::Ended {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.result())
    }
}

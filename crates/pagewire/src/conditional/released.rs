//! The side that receives the data: what peers have opened, and its release.

use crate::conditional::held::{HeldWrite, hold};
use crate::conditional::releases::Opening;
use crate::conditional::{ConditionalWrites, Direction, RELEASE, ReleaseEnd, Tag};
use crate::error::{Failure, OperationError, Result};
use crate::nodes::services::{NodeServices, RegionExport};
use crate::operations::buffer::Buffer;
use crate::operations::operation_end::{OperationEnd, WakerFate};
use crate::regions::token::{Peer, Token};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A future of the next opening.
pub(crate) struct NextOpening<'n> {
    node: &'n ConditionalWrites,
    /// Its place among those that are woken by an opening.
    place: Option<u64>,
}

impl<'n> NextOpening<'n> {
    pub fn new(node: &'n ConditionalWrites) -> Self {
        NextOpening { node, place: None }
    }
}

impl Future for NextOpening<'_> {
    type Output = Result<Opening>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Opening>> {
        let node = self.node;
        node.services.check_owner()?;
        node.poll_opened(&mut self.place, context.waker()).map(Ok)
    }
}

impl Drop for NextOpening<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.node.forget_waker(place);
        }
    }
}

/// What a peer has opened. Answer it by [`accept`](Self::accept) if its data move, or by [`supply`](Self::supply) if those of this process do.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights, WriteOutcome};
/// # use std::time::Duration;
/// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
/// # let table = receiver.zeroed::<u64>(4)?;
/// # let token = table.export(Rights::WRITE)?;
/// # let held = writer.conditional_write(receiver.identity(), 7, vec![1u64, 2])?;
/// # let opened = receiver.next_conditional_request(Duration::from_secs(10))?;
/// if opened.length() <= table.bytes() {
///     opened.accept(&token)?;
/// } else {
///     opened.decline();
/// }
/// assert_eq!(held.wait(), WriteOutcome::Written(vec![1, 2]));
/// # Ok(())
/// # }
/// ```
pub struct ConditionalRequest {
    opening: Opening,
    node: Arc<ConditionalWrites>,
    services: Arc<NodeServices>,
}

impl ConditionalRequest {
    pub(crate) fn new(opening: Opening, node: &Arc<ConditionalWrites>) -> Self {
        ConditionalRequest { opening, node: node.clone(), services: node.services.clone() }
    }

    /// Who has opened it.
    pub fn peer(&self) -> Peer {
        Peer(self.opening.peer)
    }

    /// Its tag.
    pub fn tag(&self) -> Tag {
        self.opening.tag
    }

    /// Bytes that the peer has, or has space for.
    pub fn length(&self) -> u64 {
        self.opening.length
    }

    /// Whose data move.
    pub fn direction(&self) -> Direction {
        self.opening.direction
    }

    /// Has the peer write to the first bytes of the token's memory: this write, and no other one of its tag. See [`Node::accept_conditional_write`](crate::Node::accept_conditional_write).
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights, WriteOutcome};
    /// # use std::time::Duration;
    /// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
    /// # let table = receiver.zeroed::<u64>(4)?;
    /// # let token = table.export(Rights::WRITE)?;
    /// # let held = writer.conditional_write(receiver.identity(), 7, vec![1u64, 2])?;
    /// # let opened = receiver.next_conditional_request(Duration::from_secs(10))?;
    /// assert_eq!(opened.accept(&token)?.wait()?, 16);
    /// assert_eq!(held.wait(), WriteOutcome::Written(vec![1, 2]));
    /// assert!(opened.accept(&token).is_err()); // once
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Failed` with `Cancelled`: the peer has cancelled it, or its time has run out, or it was answered before; `Failed` with `Refused`: too many
    /// releases are under way; `Limit`: there are too many peers.
    pub fn accept(&self, token: &Token) -> Result<Acceptance> {
        let end = self.node.release_opening(&self.opening, token)?;
        Ok(Acceptance::new(&self.services, end, None))
    }

    /// Writes to the memory of a peer that has opened a read. See [`Node::conditional_write`](crate::Node::conditional_write).
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # use std::time::Duration;
    /// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
    /// # let table = receiver.zeroed::<u64>(4)?;
    /// # let token = table.export(Rights::WRITE)?;
    /// let read = receiver.conditional_read(writer.identity(), 9, &table)?;
    /// let opened = writer.next_conditional_request(Duration::from_secs(10))?;
    /// assert_eq!((opened.direction(), opened.length()), (pagewire::Direction::Read, 32));
    /// opened.supply(vec![8u64; 4])?.wait().into_result()?;
    /// assert_eq!((read.wait()?, table.get(3)?), (32, 8));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As those of `Node::conditional_write`.
    pub fn supply<B: Buffer>(&self, buffer: B) -> Result<HeldWrite<B>, OperationError<B>> {
        let held = hold(&self.node, self.peer(), self.tag(), buffer, false)?;
        self.node.close_opening(&self.opening);
        Ok(held)
    }

    /// Declines it: a write ends as [`Refused`](crate::WriteOutcome::Refused).
    pub fn decline(self) {
        self.node.decline(&self.opening);
    }
}

impl Drop for ConditionalRequest {
    fn drop(&mut self) {
        // Others take its place. Where it was not answered, its write is held until a release of its tag comes.
        self.node.close_opening(&self.opening);
    }
}

/// A release: a future of the end of its write. Dropping it ends nothing.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights, WriteOutcome};
/// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
/// # let table = receiver.zeroed::<u64>(4)?;
/// # let token = table.export(Rights::WRITE)?;
/// # let held = writer.conditional_write(receiver.identity(), 7, vec![1u64, 2])?;
/// let released = receiver.accept_conditional_write(writer.identity(), 7, &token)?;
/// assert_eq!(released.wait()?, 16); // or released.await
/// assert_eq!(held.wait(), WriteOutcome::Written(vec![1, 2]));
/// # Ok(())
/// # }
/// ```
pub struct Acceptance {
    end: Arc<ReleaseEnd>,
    services: Arc<NodeServices>,
    export: Option<Arc<RegionExport>>,
}

impl Acceptance {
    /// `export`: it ends with the release.
    pub(crate) fn new(
        services: &Arc<NodeServices>,
        end: Arc<ReleaseEnd>,
        export: Option<Arc<RegionExport>>,
    ) -> Self {
        Acceptance { end, services: services.clone(), export }
    }

    /// Waits until the write has ended, and gives how many bytes it has written: they are visible here.
    ///
    /// # Errors
    /// `Cancelled`: the peer has cancelled it, or its time had run out; `TimedOut`: no write with the tag came; `Refused`: the token does not take
    /// the write; `Declined`: the peer keeps too many releases; `PeerLost`. `System`: messages cannot be taken.
    pub fn wait(self) -> Result<u64> {
        self.services.check_owner()?;
        if !self.end.is_ended() {
            self.services.inbox()?.completions().wait_until_ended(&*self.end);
        }
        Ok(self.result()?)
    }

    /// Waits until the write has ended, for so long at most. False: it has not. What it gave is taken by another call.
    ///
    /// # Errors
    /// `Engine`, `System` and `Heap`: messages cannot be taken.
    pub fn ends_within(&self, patience: Duration) -> Result<bool> {
        self.services.check_owner()?;
        Ok(self.end.is_ended() || self.services.inbox()?.completions().ends_within(&*self.end, patience))
    }

    /// Whether it has ended. Polls the engine once where it has not.
    pub fn is_done(&self) -> bool {
        self.end.is_ended() || self.services.is_forked() || {
            self.services.poll_messages();
            self.end.is_ended()
        }
    }

    fn result(&self) -> Result<u64, Failure> {
        if self.services.is_forked() {
            return Err(Failure::Forked { operation: RELEASE });
        }
        if let Some(export) = &self.export {
            if let Err(error) = self.services.revoke(export) {
                log::warn!("an export stays: {error}");
            }
        }
        match self.end.take_failure() {
            None => Ok(self.end.word.load(Ordering::Acquire)),
            Some(failure) => Err(failure),
        }
    }
}

impl Drop for Acceptance {
    fn drop(&mut self) {
        if self.services.is_forked() {
            return;
        }
        // Nobody asks for its failure: the write is the peer's.
        let _ = self.end.abandon();
    }
}

impl OperationEnd for Acceptance {
    fn is_ended(&self) -> bool {
        self.end.is_ended() || self.services.is_forked()
    }

    fn poll_end(&self) -> bool {
        self.is_done()
    }

    fn polled(&self) -> usize {
        std::ptr::from_ref(&*self.services).addr() + 1
    }

    fn wake_at_end(&self, waker: &Waker) -> WakerFate {
        match self.services.inbox() {
            Ok(inbox) => WakerFate::of(inbox.completions().sleep(&*self.end, waker)),
            // Its own calls say why.
            Err(_) => WakerFate::NotKept,
        }
    }
}

impl Future for Acceptance {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_done() {
            return Poll::Ready(self.result().map_err(Into::into));
        }
        let inbox = self.services.inbox()?;
        match inbox.completions().sleep(&*self.end, context.waker()) {
            crate::operations::pending::Sleep::Ended => Poll::Ready(self.result().map_err(Into::into)),
            _ => Poll::Pending,
        }
    }
}

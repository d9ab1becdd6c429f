//! The side that receives the data: what peers have opened, and its release.

use crate::buffer::Buffer;
use crate::conditional::held::{HeldWrite, hold};
use crate::conditional::releases::Opening;
use crate::conditional::{Conditional, Direction, ReleaseEnd, Tag};
use crate::error::{Failure, OperationError, Result};
use crate::node::Node;
use crate::region::Region;
use crate::rights::Rights;
use crate::services::{Export, Services};
use crate::token::{Peer, Token};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

impl Node {
    /// Releases the write of this tag that a peer holds, or will hold: it writes to the first bytes of the token's memory, which must be this
    /// node's and as long at least. Returns at once.
    ///
    /// # Errors
    /// `Failed`: a release of this tag to this peer is under way, or too many are; `Limit`: there are too many peers.
    pub fn release(&self, peer: Peer, tag: Tag, token: &Token) -> Result<Released> {
        let end = self.conditional.release(peer, tag, token)?;
        Ok(Released::new(&self.services, end, None))
    }

    /// Releases the write of this tag of whichever peer has opened one, or will first. Else as [`release`](Self::release).
    ///
    /// # Errors
    /// As those of `release`.
    pub fn release_any(&self, tag: Tag, token: &Token) -> Result<Released> {
        let end = self.conditional.release_any(tag, token)?;
        Ok(Released::new(&self.services, end, None))
    }

    /// Opens a conditional read: asks a peer for data, which come as a conditional write of the peer into `region`. The message goes out first, then
    /// the region is exported and released. The export ends with [`Released::wait`].
    ///
    /// # Errors
    /// As those of [`export`](Region::export) and [`release`](Self::release).
    pub fn open_read<T: IntoBytes + FromBytes + Immutable + Copy>(
        &self,
        peer: Peer,
        tag: Tag,
        region: &Region<T>,
    ) -> Result<Released> {
        self.conditional.open_read(peer, tag, region.bytes());
        let token = region.export(Rights::WRITE)?;
        let export = self.services.exported(&token);
        match self.conditional.release(peer, tag, &token) {
            Ok(end) => Ok(Released::new(&self.services, end, export)),
            Err(error) => {
                self.unexport(&token)?;
                Err(error)
            }
        }
    }

    /// [`open_read`](Self::open_read) into memory that is exported already.
    ///
    /// # Errors
    /// As those of [`release`](Self::release).
    pub fn open_read_into(&self, peer: Peer, tag: Tag, token: &Token) -> Result<Released> {
        self.conditional.open_read(peer, tag, token.length);
        self.release(peer, tag, token)
    }

    /// Waits for a conditional write or read that a peer opens, and gives it: each to one caller.
    ///
    /// # Errors
    /// `Timeout`: none came in time. `Engine`, `System` and `Heap`: messages cannot be taken.
    pub fn next_opened(&self, patience: Duration) -> Result<OpenedByPeer> {
        self.services.inbox()?;
        let opening = self.conditional.next_opened(patience)?;
        Ok(OpenedByPeer { opening, node: self.conditional.clone(), services: self.services.clone() })
    }
}

/// What a peer has opened. Answer it by [`release`](Self::release) if its data move, or by [`write`](Self::write) if those of this process do.
pub struct OpenedByPeer {
    opening: Opening,
    node: Arc<Conditional>,
    services: Arc<Services>,
}

impl OpenedByPeer {
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

    /// Has the peer write to the first bytes of the token's memory: this write, and no other one of its tag. See [`Node::release`].
    ///
    /// # Errors
    /// `Failed` with `Cancelled`: the peer has cancelled it, or its time has run out, or it was answered before; `Failed` with `Refused`: too many
    /// releases are under way; `Limit`: there are too many peers.
    pub fn release(&self, token: &Token) -> Result<Released> {
        let end = self.node.release_opening(&self.opening, token)?;
        Ok(Released::new(&self.services, end, None))
    }

    /// Writes to the memory of a peer that has opened a read. See [`Node::open_write`].
    ///
    /// # Errors
    /// As those of `Node::open_write`.
    pub fn write<B: Buffer>(&self, buffer: B) -> Result<HeldWrite<B>, OperationError<B>> {
        let held = hold(&self.node, self.peer(), self.tag(), buffer, false)?;
        self.node.close_opening(&self.opening);
        Ok(held)
    }

    /// Declines it: a write ends as [`Refused`](crate::WriteOutcome::Refused).
    pub fn decline(self) {
        self.node.decline(&self.opening);
    }
}

impl Drop for OpenedByPeer {
    fn drop(&mut self) {
        // Others take its place. Where it was not answered, its write is held until a release of its tag comes.
        self.node.close_opening(&self.opening);
    }
}

/// A release: a future of the end of its write. Dropping it ends nothing.
pub struct Released {
    end: Arc<ReleaseEnd>,
    services: Arc<Services>,
    export: Option<Arc<Export>>,
}

impl Released {
    fn new(services: &Arc<Services>, end: Arc<ReleaseEnd>, export: Option<Arc<Export>>) -> Self {
        Released { end, services: services.clone(), export }
    }

    /// Waits until the write has ended, and gives how many bytes it has written: they are visible here.
    ///
    /// # Errors
    /// `Cancelled`: the peer has cancelled it, or its time had run out; `TimedOut`: no write with the tag came; `Refused`: the token does not take
    /// the write; `Declined`: the peer keeps too many releases; `PeerLost`. `System`: messages cannot be taken.
    pub fn wait(self) -> Result<u64> {
        if !self.end.is_ended() {
            self.services.inbox()?.completions().wait_until_ended(&*self.end);
        }
        Ok(self.result()?)
    }

    /// Whether it has ended. Polls the engine once where it has not.
    pub fn is_done(&self) -> bool {
        self.end.is_ended() || {
            self.services.poll_messages();
            self.end.is_ended()
        }
    }

    fn result(&self) -> Result<u64, Failure> {
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

impl Drop for Released {
    fn drop(&mut self) {
        // Nobody asks for its failure: the write is the peer's.
        let _ = self.end.abandon();
    }
}

impl Future for Released {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_done() {
            return Poll::Ready(self.result().map_err(Into::into));
        }
        let inbox = self.services.inbox()?;
        match inbox.completions().sleep(&*self.end, context.waker()) {
            crate::pending::Sleep::Ended => Poll::Ready(self.result().map_err(Into::into)),
            _ => Poll::Pending,
        }
    }
}

//! Conditional writes as a program asks its node for them. `conditional` does the work.

use crate::conditional::held::hold;
use crate::conditional::released::NextOpening;
use crate::conditional::{Acceptance, ConditionalRequest, Deferred, HeldWrite, Tag};
use crate::error::{Failure, OperationError, Result};
use crate::nodes::node::Node;
use crate::operations::buffer::Buffer;
use crate::regions::region::Region;
use crate::regions::rights::Rights;
use crate::regions::token::{Peer, Token};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

impl Node {
    /// Starts a conditional write: sends a message to the peer, and holds the write until the peer [accepts](Node::accept_conditional_write) it, which says where the bytes go.
    /// The message goes out first, so both sides prepare their memory at once. This node then writes by itself; the program need do nothing.
    ///
    /// A held write delays nothing: it is ordered with other operations to the peer from its release on. A release may come before its write.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// use pagewire::{Node, Rights};
    /// let (writer, receiver) = (Node::alone()?, Node::alone()?);
    /// let table = receiver.zeroed::<u64>(4)?;
    /// let token = table.export(Rights::WRITE)?;
    /// # let (at_receiver, at_writer) = (token.owner(), writer.identity());
    /// let held = writer.conditional_write(at_receiver, 7, vec![1u64, 2])?;
    /// // At the receiver, when its memory is ready:
    /// let released = receiver.accept_conditional_write(at_writer, 7, &token)?;
    /// assert_eq!(released.wait()?, 16);
    /// assert_eq!(held.wait().into_result()?, [1, 2]);
    /// assert_eq!(table.get(1)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `PeerLost`: it cannot be connected to, or is no Pagewire of this version; `Refused`: the tag is in use with this peer, the buffer is too
    /// long for one operation, or too many are held. The buffer comes back.
    pub fn conditional_write<B: Buffer>(
        &self,
        peer: Peer,
        tag: Tag,
        buffer: B,
    ) -> Result<HeldWrite<B>, OperationError<B>> {
        hold(&self.conditional, peer, tag, buffer, true)
    }

    /// Accepts the write of this tag that a peer holds, or will hold: it writes to the first bytes of the token's memory, which must be this
    /// node's and as long at least. Returns at once.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights, WriteOutcome};
    /// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
    /// # let table = receiver.zeroed::<u64>(4)?;
    /// # let token = table.export(Rights::WRITE)?;
    /// // It may come before its write.
    /// let released = receiver.accept_conditional_write(writer.identity(), 7, &token)?;
    /// let held = writer.conditional_write(receiver.identity(), 7, vec![1u64])?;
    /// assert_eq!(released.wait()?, 8);
    /// assert_eq!(held.wait(), WriteOutcome::Written(vec![1]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Failed`: a release of this tag to this peer is under way, or too many are; `Limit`: there are too many peers.
    pub fn accept_conditional_write(&self, peer: Peer, tag: Tag, token: &Token) -> Result<Acceptance> {
        let end = self.conditional.release(peer, tag, token)?;
        Ok(Acceptance::new(&self.services, end, None))
    }

    /// Accepts the write of this tag of whichever peer has opened one, or will first. Else as [`accept_conditional_write`](Self::accept_conditional_write).
    ///
    /// # Errors
    /// As those of [`accept_conditional_write`](Self::accept_conditional_write).
    pub fn accept_any_conditional_write(&self, tag: Tag, token: &Token) -> Result<Acceptance> {
        let end = self.conditional.release_any(tag, token)?;
        Ok(Acceptance::new(&self.services, end, None))
    }

    /// Starts a conditional read: asks a peer for data, which come as a conditional write of the peer into `region`. The message goes out first, then
    /// the region is exported and released. The export ends with [`Acceptance::wait`].
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights, WriteOutcome};
    /// # use std::time::Duration;
    /// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
    /// # let table = receiver.zeroed::<u64>(4)?;
    /// # let token = table.export(Rights::WRITE)?;
    /// let read = receiver.conditional_read(writer.identity(), 7, &table)?;
    /// // At the peer:
    /// let opened = writer.next_conditional_request(Duration::from_secs(10))?;
    /// let held = opened.supply(vec![3u64, 4])?;
    /// assert_eq!((read.wait()?, table.get(1)?), (16, 4));
    /// assert_eq!(held.wait(), WriteOutcome::Written(vec![3, 4]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As those of [`export`](Region::export) and [`accept_conditional_write`](Self::accept_conditional_write).
    pub fn conditional_read<T: IntoBytes + FromBytes + Immutable + Copy>(
        &self,
        peer: Peer,
        tag: Tag,
        region: &Region<T>,
    ) -> Result<Acceptance> {
        self.services.check_owner()?;
        self.conditional.conditional_read(peer, tag, region.bytes());
        let token = region.export(Rights::WRITE)?;
        let export = self.services.exported(&token);
        match self.conditional.release(peer, tag, &token) {
            Ok(end) => Ok(Acceptance::new(&self.services, end, export)),
            Err(error) => {
                self.unexport(&token)?;
                Err(error)
            }
        }
    }

    /// [`conditional_read`](Self::conditional_read) into memory that is exported already.
    ///
    /// # Errors
    /// As those of [`accept_conditional_write`](Self::accept_conditional_write).
    pub fn conditional_read_into(&self, peer: Peer, tag: Tag, token: &Token) -> Result<Acceptance> {
        self.conditional.conditional_read(peer, tag, token.length);
        self.accept_conditional_write(peer, tag, token)
    }

    /// Waits for a conditional write or read that a peer opens, and gives it: each to one caller.
    ///
    /// # Errors
    /// `Timeout`: none came in time. `Engine`, `System` and `Heap`: messages cannot be taken.
    pub fn next_conditional_request(&self, patience: Duration) -> Result<ConditionalRequest> {
        self.services.inbox()?;
        let opening = self.conditional.next_conditional_request(patience)?;
        Ok(ConditionalRequest::new(opening, &self.conditional))
    }

    /// [`next_conditional_request`](Self::next_conditional_request) for tasks, without a bound. Dropping the future takes nothing.
    ///
    /// # Errors
    /// `Engine`, `System` and `Heap`: messages cannot be taken.
    pub async fn conditional_request(&self) -> Result<ConditionalRequest> {
        self.services.inbox()?;
        let opening = NextOpening::new(&self.conditional).await?;
        Ok(ConditionalRequest::new(opening, &self.conditional))
    }

    /// Holds a write of another layer until the peer releases it, or its time runs out. See [`conditional_write`](Self::conditional_write).
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use std::sync::Arc;
    /// # let (writer, receiver) = (pagewire::Node::alone()?, pagewire::Node::alone()?);
    /// use pagewire::raw::{Deferred, Posted};
    /// struct Write;
    /// impl Deferred for Write {
    ///     fn length(&self) -> u64 {
    ///         8
    ///     }
    ///     fn has_ended(&self) -> bool {
    ///         false
    ///     }
    ///     fn post(&self, address: u64, key: u32) -> Posted {
    ///         println!("an RDMA WRITE to {address:#x}, with key {key}");
    ///         Posted::Done
    ///     }
    ///     fn end(&self, failure: &pagewire::Failure) {
    ///         println!("it is not posted: {failure}");
    ///     }
    /// }
    /// writer.hold_deferred(receiver.identity(), 7, Arc::new(Write), None)?;
    /// let (address, key) = (0x10_0000, 5); // of a region of verbs
    /// let released = receiver.release_memory(writer.identity(), 7, (address, 8), key)?;
    /// assert_eq!(released.wait()?, 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As those of `conditional_write`. Nothing is held then, and `write` gets no end.
    pub fn hold_deferred(
        &self,
        peer: Peer,
        tag: Tag,
        write: Arc<dyn Deferred>,
        patience: Option<Duration>,
    ) -> Result<(), Failure> {
        self.conditional.hold_deferred(peer, tag, write, patience)
    }

    /// Cancels the held write of a tag, if there is one.
    pub fn cancel_deferred(&self, peer: Peer, tag: Tag) {
        self.conditional.cancel_tag((peer.0, tag));
    }

    /// Releases the write of a tag that a peer holds, or will hold, to memory that another layer has registered: {address, length} and its key. It
    /// ends when the peer has posted the write.
    ///
    /// # Errors
    /// As those of [`accept_conditional_write`](Self::accept_conditional_write).
    pub fn release_memory(
        &self,
        peer: Peer,
        tag: Tag,
        (address, length): (u64, u64),
        key: u32,
    ) -> Result<Acceptance> {
        let token = Token { node: self.identity().0, rights: Rights::WRITE, key, base: address, length };
        self.accept_conditional_write(peer, tag, &token)
    }
}

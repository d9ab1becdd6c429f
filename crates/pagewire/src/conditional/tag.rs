//! What names a conditional write at both sides.

use crate::regions::token::NodeAddress;
use serde::{Deserialize, Serialize};

/// What couples a conditional write and its release. A node has at most one held write of a tag to each peer.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights, WriteOutcome};
/// # let (writer, receiver) = (Node::alone()?, Node::alone()?);
/// # let table = receiver.zeroed::<u64>(4)?;
/// # let token = table.export(Rights::WRITE)?;
/// let tag: pagewire::Tag = 7;
/// let held = writer.conditional_write(receiver.identity(), tag, vec![1u64])?;
/// receiver.accept_conditional_write(writer.identity(), tag, &token)?.wait()?;
/// assert_eq!(held.wait(), WriteOutcome::Written(vec![1]));
/// # Ok(())
/// # }
/// ```
pub type Tag = u64;

/// Whose data move.
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
/// assert_eq!(opened.direction(), pagewire::Direction::Write);
/// opened.decline();
/// assert!(matches!(held.wait(), WriteOutcome::Refused(..)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Those of the peer that has opened it, once this process [accepts](crate::Node::accept_conditional_write) it.
    Write,
    /// Those of this process: the peer waits for a [conditional write](crate::Node::conditional_write) with its tag.
    Read,
}

/// Which write: the tag couples both sides.
pub(crate) type Key = (NodeAddress, Tag);

//! What names a conditional write at both sides.

use crate::token::NodeAddress;
use serde::{Deserialize, Serialize};

/// What couples a conditional write and its release. A node has at most one held write of a tag to each peer.
pub type Tag = u64;

/// Whose data move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Those of the peer that has opened it, once this process [releases](crate::Node::release) it.
    Write,
    /// Those of this process: the peer waits for a [conditional write](crate::Node::open_write) with its tag.
    Read,
}

/// Which write: the tag couples both sides.
pub(crate) type Key = (NodeAddress, Tag);

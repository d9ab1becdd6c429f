//! The messages of two nodes about conditional writes: SENDs between their queue pairs.

use crate::conditional::releases::Outgoing;
use crate::conditional::tag::{Direction, Tag};
use crate::error::Rule;
use crate::limits::MAX_MESSAGE;
use crate::regions::rights::Rights;
use crate::regions::token::{NodeAddress, Token};
use serde::{Deserialize, Serialize};

/// A message. A write that was done sends none: a SEND with immediate follows its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionalMessage {
    /// The sender holds a write of `length` bytes, or has space for one.
    Open { tag: Tag, serial: u64, length: u64, direction: Direction },
    /// The receiver may write: to the memory of the token.
    Release(Release),
    /// A held write will not be done by its release, or by any.
    Ended { serial: u64, release: Option<u32>, ending: Ending },
    /// Another layer of the sender has posted a released write, and sees its end.
    Posted { serial: u64, release: u32, length: u64 },
    /// The sender will not release the write.
    Decline { tag: Tag, serial: u64, is_full: bool },
}

/// Permission for a held write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub tag: Tag,
    /// The write that is meant. `None`: whichever has the tag, or will have.
    pub serial: Option<u64>,
    /// The newest opening of the writer that the releaser has read.
    pub seen: u64,
    /// The releaser's number for it: the immediate data of the SEND behind the WRITE.
    pub number: u32,
    token: Vec<u8>,
}

/// Why a release ends without its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// The writer has cancelled the write, or its time had run out.
    Withdrawn,
    /// No write came in time.
    NoWrite,
    /// The memory of the token refuses the write: its key, its rights or its length.
    Refused,
    /// The connection was lost while it was written.
    Lost,
    /// The writer keeps as many releases without a write as it can.
    Full,
}

impl Release {
    pub fn new(outgoing: &Outgoing) -> Self {
        let Outgoing { tag, serial, seen, number, token, .. } = *outgoing;
        Release { tag, serial, seen, number, token: token.to_bytes().to_vec() }
    }

    /// The token.
    pub fn token(&self) -> Result<Token, Rule> {
        Token::from_bytes(&self.token).map_err(|_| Rule::Release)
    }

    /// The token, if it takes so many bytes of a write to the peer that has sent it.
    pub fn taken_by(&self, peer: &NodeAddress, count: u64) -> Result<Token, Rule> {
        let token = self.token()?;
        let takes_it = token.node == *peer && token.rights.contains(Rights::WRITE) && count <= token.length;
        if takes_it { Ok(token) } else { Err(Rule::Release) }
    }
}

impl ConditionalMessage {
    pub fn encode(&self) -> Vec<u8> {
        let bytes = postcard::to_allocvec(self)
            .unwrap_or_else(|error| unreachable!("a message of numbers cannot be encoded: {error}"));
        debug_assert!(bytes.len() <= MAX_MESSAGE);
        bytes
    }

    /// The message that these bytes are. `None`: they are none.
    pub fn decode(bytes: &[u8]) -> Option<ConditionalMessage> {
        postcard::from_bytes(bytes).ok()
    }
}

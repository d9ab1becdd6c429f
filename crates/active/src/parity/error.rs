//! What can go wrong with parity.

use std::fmt;

/// Why a checkpoint was not taken, or not rebuilt. `Debug` prints the same sentence as `Display`.
#[derive(thiserror::Error)]
pub enum ParityError {
    /// A parity has no members, or too many.
    #[error("a parity of {members} members: 1 to {most} are possible")]
    Members { members: usize, most: usize },
    /// There is no such member.
    #[error("member {member} is none of the {members} that the parity has")]
    NoMember { member: usize, members: usize },
    /// A token is not of a parity, or not of a member's checkpoints.
    #[error("the token is not that of {what}")]
    Token { what: &'static str },
    /// The token is that of another member.
    #[error("the token is not that of member {member}: each member has one of its own, by which it is known")]
    NotOfMember { member: usize },
    /// The tokens of the others are not one of each other member.
    #[error("the tokens of the other members are to be one of each: {why}")]
    Others { why: String },
    /// The regions have more bytes than the parity.
    #[error("{bytes} bytes do not fit the parity, which has {most}: make it larger")]
    Length { bytes: u64, most: u64 },
    /// The regions have other lengths than the checkpoint.
    #[error(
        "the checkpoint has {checkpoint} bytes, and the regions have {regions}: restore the regions that were saved"
    )]
    Regions { checkpoint: u64, regions: u64 },
    /// The round before is not complete.
    #[error("round {round} is not complete: wait for the other members, or rebuild the one that died")]
    Incomplete { round: u64 },
    /// A round was begun anew by another member: save again.
    #[error("round {round} was begun anew, as a member died in it: save again")]
    BegunAnew { round: u64 },
    /// The other members did not save in time.
    #[error("not all members have saved round {round} in time")]
    Timeout { round: u64 },
    /// No round is complete, so there is nothing to rebuild or to restore.
    #[error("no round is complete yet")]
    Nothing,
    /// What was rebuilt is not what was saved.
    #[error("the checkpoint of member {member} in round {round} is not what it saved: {why}")]
    Damaged { member: usize, round: u64, why: &'static str },
    /// The memory, its log, or a peer.
    #[error(transparent)]
    Pagewire(#[from] pagewire::Error),
}

impl fmt::Debug for ParityError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl<B> From<pagewire::OperationError<B>> for ParityError {
    fn from(error: pagewire::OperationError<B>) -> Self {
        ParityError::Pagewire(error.into())
    }
}

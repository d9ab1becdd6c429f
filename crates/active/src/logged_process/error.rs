//! What can go wrong with logged puts and gets.

use crate::checkpoint::CheckpointError;
use std::fmt;

/// Why an access was not made or not replayed. `Debug` prints the same sentence as `Display`.
#[derive(thiserror::Error)]
pub enum LoggedProcessError {
    /// There is no such process, or its ticket was not given.
    #[error("process {rank} is not connected: give its ticket to `connect`")]
    NotConnected { rank: usize },
    /// The bytes are no ticket for this process.
    #[error("the ticket is not one for process {rank}: {why}")]
    Ticket { rank: usize, why: &'static str },
    /// A log has no space left. Its other side frees it by a checkpoint.
    #[error(
        "the log of {what} has no space for {bytes} bytes more: process {rank} must save a checkpoint, or the logs be larger"
    )]
    Full { what: &'static str, rank: usize, bytes: u64 },
    /// The process that is replayed does something else than before.
    #[error(
        "replay: {what} of process {rank} was at {logged}, and is at {now}: a process that is replayed must repeat its work"
    )]
    Diverged { what: &'static str, rank: usize, logged: String, now: String },
    /// The logs do not tell what a get has returned.
    #[error("replay: the log at process {rank} has lost a get: {why}")]
    Lost { rank: usize, why: &'static str },
    /// Somebody has changed the memory of this process otherwise than by [`put`](super::LoggedProcess::put): a replay would not have it. All
    /// processes begin anew.
    #[error(
        "{what} at byte {offset} has changed the memory of process {rank}, and nobody has logged it: its peers use `put` and `get` of a LoggedProcess only, and all processes begin anew"
    )]
    Unlogged { what: &'static str, rank: usize, offset: u64 },
    /// A process that was not killed cannot be replayed, and one that was must be.
    #[error("{0}")]
    Order(&'static str),
    /// The checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The memory, its log, or a peer. A put is logged all the same: it is made by `connect` when the peer is there again.
    #[error(transparent)]
    Pagewire(#[from] pagewire::Error),
}

impl fmt::Debug for LoggedProcessError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl<B> From<pagewire::OperationError<B>> for LoggedProcessError {
    fn from(error: pagewire::OperationError<B>) -> Self {
        LoggedProcessError::Pagewire(error.into())
    }
}

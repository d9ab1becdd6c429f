//! What can go wrong with a checkpoint of regions.

use pagewire_checkpoint::SaveError;
use std::fmt;

/// Why a checkpoint was not saved, or not restored. `Debug` prints the same sentence as `Display`.
#[derive(thiserror::Error)]
pub enum CheckpointError {
    /// The file, or the watch for changes.
    #[error(transparent)]
    Save(SaveError),
    /// Other processes of the job could not save.
    #[error(
        "the processes of ranks {ranks:?} could not save: see their output for why, and restore together before the next save"
    )]
    Others { ranks: Vec<usize> },
    /// The memory, its log, or the job.
    #[error(transparent)]
    Pagewire(#[from] pagewire::Error),
}

impl fmt::Debug for CheckpointError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl From<SaveError> for CheckpointError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Memory(why) => match why.downcast::<pagewire::Error>() {
                Ok(error) => CheckpointError::Pagewire(*error),
                Err(why) => CheckpointError::Save(SaveError::Memory(why)),
            },
            error => CheckpointError::Save(error),
        }
    }
}

impl From<pagewire::Failure> for CheckpointError {
    fn from(failure: pagewire::Failure) -> Self {
        CheckpointError::Pagewire(failure.into())
    }
}

impl<B> From<pagewire::OperationError<B>> for CheckpointError {
    fn from(error: pagewire::OperationError<B>) -> Self {
        CheckpointError::Pagewire(error.into())
    }
}

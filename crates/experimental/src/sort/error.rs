//! Why a sort failed.

use std::path::PathBuf;
use std::time::Duration;

/// Why a sort failed.
#[derive(Debug, thiserror::Error)]
pub enum SortError {
    /// The processes do not fit.
    #[error("process {rank} of {size} cannot be: ranks are 0 to {}, and at most {most} sort together", size.saturating_sub(1))]
    Processes { rank: usize, size: usize, most: usize },
    /// A file of the folder cannot be read or written.
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: std::io::Error },
    /// A process was lost and nobody has taken its place, or has not begun.
    #[error(
        "process {rank} is not there, and nobody took its place within {after:?}: start it with the same folder"
    )]
    NotThere { rank: usize, after: Duration },
    /// The memory or the log cannot be had.
    #[error("sort: {0}")]
    Memory(#[from] pagewire::Error),
}

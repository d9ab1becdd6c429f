//! What can go wrong with a checkpoint.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why the memory itself could not be read or written, in the words of whom it belongs to.
pub type MemoryError = Box<dyn std::error::Error + Send + Sync>;

/// Why a checkpoint was not saved, or not restored. `Debug` prints the same sentence as `Display`.
#[derive(thiserror::Error)]
pub enum SaveError {
    /// The file cannot be opened, read, written or renamed.
    #[error("{what} {}: {why}", path.display())]
    File { what: &'static str, path: PathBuf, why: io::Error },
    /// Another process, or another value of this one, has the file open to save.
    #[error(
        "{} is used by another process, or for another region of this one: end that, or name another file", path.display()
    )]
    Busy { path: PathBuf },
    /// The file is no checkpoint, or one of another version.
    #[error("{} is no checkpoint of this version: {why}; name another file, or move this one away", path.display())]
    Foreign { path: PathBuf, why: &'static str },
    /// Bytes of the file have changed since they were written.
    #[error(
        "{} is damaged at byte {at}: {}", path.display(),
        whole.map_or("no checkpoint before that is whole".to_owned(), |(number, end)| format!(
            "checkpoint {number} before that is whole, and `truncate -s {end} {}` keeps it", path.display()
        ))
    )]
    Damaged {
        path: PathBuf,
        at: u64,
        /// The last checkpoint before the damage, and where it ends.
        whole: Option<(u64, u64)>,
    },
    /// The file has no checkpoint with this number.
    #[error("{} has no checkpoint {number}: it has {}", path.display(), match has {
        Some((first, last)) => format!("{first} to {last}"),
        None => "none".to_owned(),
    })]
    NoSuchNumber { path: PathBuf, number: u64, has: Option<(u64, u64)> },
    /// The regions are not those that the file has.
    #[error("{} has regions of {file:?} bytes, and not of {given:?}: save and restore the same regions in the same order", path.display())]
    Regions { path: PathBuf, file: Vec<u64>, given: Vec<u64> },
    /// There are too many regions, or too many bytes beside them.
    #[error("a checkpoint has at most {most} {what}")]
    Limit { what: &'static str, most: usize },
    /// The kernel does not say what this process writes to a region.
    #[error("local writes to the region at {address:#x} cannot be watched: {why}")]
    Watch { address: u64, why: io::Error },
    /// The memory itself.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl fmt::Debug for SaveError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

//! Looking at a checkpoint file without its process.

use super::file::CheckpointFile;
use super::{CheckpointError, CheckpointKind};
use std::path::Path;

/// A checkpoint of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Its number.
    pub number: u64,
    /// Whether it has all pages.
    pub kind: CheckpointKind,
    /// Pages of data in it.
    pub pages: u64,
    /// Bytes of the program's note.
    pub note: u32,
    /// When it was saved, in seconds since 1970.
    pub time: u64,
    /// Where it begins in the file.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
}

/// A checkpoint file, as it is: it may be one that a process saves to.
pub struct Inspection(CheckpointFile);

impl Inspection {
    /// Opens a file.
    ///
    /// # Errors
    /// `File`, `Foreign`, `Damaged`.
    pub fn open(path: impl AsRef<Path>) -> Result<Inspection, CheckpointError> {
        Ok(Inspection(CheckpointFile::open_to_read(path.as_ref())?))
    }

    /// Its checkpoints, by number.
    pub fn checkpoints(&self) -> Vec<CheckpointInfo> {
        let segments = self.0.segments().iter();
        let info = segments.map(|segment| CheckpointInfo {
            number: segment.header.number,
            kind: segment.header.kind,
            pages: segment.header.pages,
            note: segment.header.note,
            time: segment.header.time,
            start: segment.start,
            end: segment.end,
        });
        info.collect()
    }

    /// Bytes of each region.
    pub fn regions(&self) -> &[u64] {
        self.0.segments().last().map_or(&[], |segment| &segment.header.regions)
    }

    /// Bytes of one that is being saved, or was not finished.
    pub fn unfinished(&self) -> u64 {
        self.0.torn()
    }

    /// Reads all data, and compares them with their checksums.
    ///
    /// # Errors
    /// `Damaged`, `File`.
    pub fn verify(&self) -> Result<(), CheckpointError> {
        self.0.verify()
    }
}

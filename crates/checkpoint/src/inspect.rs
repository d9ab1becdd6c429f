//! Looking at a checkpoint file without its process.

use crate::error::SaveError;
use crate::file::CheckpointFile;
use crate::format::SegmentKind as CheckpointKind;
use crate::saver::{Restored, SavedMemory, put_back_all, verified};
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
    pub fn open(path: impl AsRef<Path>) -> Result<Inspection, SaveError> {
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

    /// Reads all data, and compares them with their checksums: for each checkpoint, in their order, whether it can be restored.
    ///
    /// # Errors
    /// `Damaged`: not even an index can be read; `File`.
    pub fn verify(&self) -> Result<Vec<Verified>, SaveError> {
        let of = |damaged_at: Option<u64>| damaged_at.map_or(Verified::Whole, Verified::DamagedAt);
        Ok(self.0.verify()?.into_iter().map(of).collect())
    }

    /// The note of a checkpoint.
    ///
    /// # Errors
    /// `NoSuchNumber`, `File`.
    pub fn note(&self, number: u64) -> Result<Vec<u8>, SaveError> {
        self.0.note(number)
    }

    /// Puts a checkpoint back into memory, or into anything else that stands for the regions: as many, of the same lengths. All data are
    /// compared with their checksums before anything is changed. The file stays as it is.
    ///
    /// # Errors
    /// `NoSuchNumber`, `Regions`, `Damaged`, `File`: nothing was changed. `Memory`: it is changed in part.
    pub fn restore(&self, number: u64, regions: &[&dyn SavedMemory]) -> Result<Restored, SaveError> {
        let lengths: Vec<u64> = regions.iter().map(|region| region.bytes()).collect();
        let (note, slots) = verified(&self.0, number)?;
        self.0.check_regions(&lengths)?;
        put_back_all(&self.0, &slots, regions)?;
        Ok(Restored { number, note })
    }
}

/// Whether a checkpoint can be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// All its data are what was saved.
    Whole,
    /// The first of its data that are not, by their offset in the file.
    DamagedAt(u64),
}

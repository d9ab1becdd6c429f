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
        self.0.check_regions(&lengths)?;
        let (note, slots) = verified(&self.0, number)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::MemoryError;
    use crate::format::{BYTES, PAGE, SegmentCommit, SegmentHeader};
    use crate::saver::{NoPeers, Saver};
    use pagewire_memory::DirtyMethod;
    use std::path::PathBuf;
    use zerocopy::IntoBytes;

    struct Nothing;

    impl SavedMemory for Nothing {
        fn address(&self) -> u64 {
            4096
        }

        fn bytes(&self) -> u64 {
            8
        }

        fn copy_out(&self, _: u64, _: &mut [u8]) -> Result<(), MemoryError> {
            panic!("nothing is read")
        }

        fn copy_in(&self, _: u64, _: &[u8]) -> Result<(), MemoryError> {
            panic!("nothing is written")
        }
    }

    /// A file whose one checkpoint has no pages, and the right checksums.
    fn crafted(directory: &Path, number: u64, regions: &[u64]) -> PathBuf {
        let kind = CheckpointKind::Full;
        let header =
            SegmentHeader { file: 7, number, kind, pages: 0, note: 0, time: 0, regions: regions.to_vec() };
        let page = header.to_page();
        let mut tail = vec![0; PAGE - size_of::<SegmentCommit>()];
        let commit = SegmentCommit::new(number, SegmentHeader::checksum(&page), crc32fast::hash(&tail));
        tail.extend_from_slice(commit.as_bytes());
        let path = directory.join(format!("{number}.{}", regions[0]));
        std::fs::write(&path, [&page[..], &tail].concat()).unwrap();
        path
    }

    #[test]
    fn huge_region_length_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = crafted(directory.path(), 1, &[BYTES]);
        let inspection = Inspection::open(&path).unwrap();
        assert_eq!(inspection.regions(), [BYTES]);
        let is_refused = |error: Option<SaveError>| matches!(error, Some(SaveError::Regions { .. }));
        assert!(is_refused(inspection.restore(1, &[&Nothing]).err()));
        let mut saver = Saver::open(&path, DirtyMethod::None, false).unwrap();
        assert!(is_refused(saver.restore(1, &[&Nothing], &NoPeers).err()));
        assert!(is_refused(saver.save(&[&Nothing], &[], &NoPeers).err()));
    }

    #[test]
    fn headers_that_no_save_writes_are_none() {
        let directory = tempfile::tempdir().unwrap();
        let there = |number, regions: &[u64]| {
            let inspection = Inspection::open(crafted(directory.path(), number, regions)).unwrap();
            inspection.checkpoints().len()
        };
        assert_eq!(there(1, &[8, 8]), 1);
        for (number, regions) in
            [(0, &[8][..]), (u64::MAX, &[8]), (1, &[BYTES + 1]), (1, &[u64::MAX, u64::MAX]), (1, &[BYTES, 1])]
        {
            assert_eq!(there(number, regions), 0, "{number} {regions:?}");
        }
    }

    #[test]
    fn a_file_is_locked_by_one_and_free_when_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let open = || Saver::open(&path, DirtyMethod::None, false);
        assert!(Saver::open_existing(&path, DirtyMethod::None, false).is_err() && !path.exists());
        let saver = open().unwrap();
        assert!(matches!(open(), Err(SaveError::Busy { .. })));
        drop(saver);
        assert!(open().is_ok() && Saver::open_existing(&path, DirtyMethod::None, false).is_ok());
    }
}

//! The files of a sort, in a folder that all its processes share: tokens, sorted runs, results. A file is whole or not there, because it gets its name
//! when it is whole. They survive the death of processes, not a crash of the host: nothing is synced.

use super::error::SortError;
use std::path::{Path, PathBuf};

/// "PWSORT1" and a zero.
const MAGIC: u64 = u64::from_le_bytes(*b"PWSORT1\0");

pub struct Files {
    folder: PathBuf,
}

impl Files {
    pub fn new(folder: &Path) -> Self {
        Files { folder: folder.to_owned() }
    }

    fn path(&self, kind: &str, rank: usize) -> PathBuf {
        self.folder.join(format!("{kind}-{rank}"))
    }

    pub fn write(&self, kind: &str, rank: usize, bytes: &[u8]) -> Result<(), SortError> {
        let path = self.path(kind, rank);
        let fresh = self.folder.join(format!("{kind}-{rank}.{}", std::process::id()));
        let written = std::fs::write(&fresh, bytes).and_then(|()| std::fs::rename(&fresh, &path));
        written.map_err(|why| SortError::File { path, why })
    }

    /// `None`: it is not there.
    pub fn read(&self, kind: &str, rank: usize) -> Result<Option<Vec<u8>>, SortError> {
        let path = self.path(kind, rank);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(SortError::File { path, why }),
        }
    }

    pub fn is_there(&self, kind: &str, rank: usize) -> bool {
        self.path(kind, rank).exists()
    }

    /// Writes keys, with their count and a checksum before them.
    pub fn write_keys(&self, kind: &str, rank: usize, keys: &[u64]) -> Result<(), SortError> {
        let head = [MAGIC, keys.len() as u64, checksum(keys)];
        let bytes: Vec<u8> = head.iter().chain(keys).flat_map(|word| word.to_le_bytes()).collect();
        self.write(kind, rank, &bytes)
    }

    /// `None`: they are not there.
    pub fn read_keys(&self, kind: &str, rank: usize) -> Result<Option<Vec<u64>>, SortError> {
        let Some(bytes) = self.read(kind, rank)? else { return Ok(None) };
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
        match words.split_first_chunk::<3>() {
            Some(([MAGIC, count, sum], keys)) if *count == keys.len() as u64 && *sum == checksum(keys) => {
                Ok(Some(keys.to_vec()))
            }
            _ => {
                let why = "it is no file of a sort, or was damaged: delete it, and it is made anew";
                let why = std::io::Error::new(std::io::ErrorKind::InvalidData, why);
                Err(SortError::File { path: self.path(kind, rank), why })
            }
        }
    }
}

/// FNV-1a over words.
fn checksum(keys: &[u64]) -> u64 {
    keys.iter().fold(0xCBF2_9CE4_8422_2325, |sum, key| (sum ^ key).wrapping_mul(0x0000_0100_0000_01B3))
}

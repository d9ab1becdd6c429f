//! The journal of a store: a file to which it appends what it must remember. The page cache keeps it when the process is killed; nothing of it is
//! synced to the disk.

use super::wire::{decode_journal, encode_record};
use super::words::Record;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A journal is written anew when it has grown by so many bytes.
const COMPACT_AFTER: u64 = 64 << 20;

/// Two stores with one journal would each lose what the other one commits.
fn lock(file: &File, path: &Path) -> Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            let why = format!("{} is in use by another store", path.display());
            Err(Error::new(ErrorKind::ResourceBusy, why))
        }
        done => Ok(done?),
    }
}

/// A journal that is open.
pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    compact_at: u64,
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A child that has not executed its program yet has the file open, too, and the lock would stay until it does.
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            log::debug!("{} stays locked: {error}", self.path.display());
        }
    }
}

impl Journal {
    /// Opens or makes the file, and gives what it has. What was being written when its writer was killed is cut off.
    pub fn open(path: &Path) -> Result<(Journal, Vec<Record<Vec<u8>>>)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        lock(&file, path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (records, whole) = decode_journal(&bytes);
        let length = whole as u64;
        file.set_len(length)?;
        file.seek(SeekFrom::End(0))?;
        Ok((Journal { path: path.to_owned(), file, length, compact_at: length + COMPACT_AFTER }, records))
    }

    pub fn append(&mut self, record: &Record<Vec<u8>>) -> Result<()> {
        let bytes = encode_record(record);
        self.file.write_all(&bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    pub fn is_long(&self) -> bool {
        self.length > self.compact_at
    }

    /// Writes a journal that says the same in fewer bytes, and has it take the place of the file.
    pub fn replace(&mut self, records: &[Record<Vec<u8>>]) -> Result<()> {
        let fresh = self.path.with_extension("fresh");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&fresh)?;
        let bytes: Vec<u8> = records.iter().flat_map(encode_record).collect();
        file.write_all(&bytes)?;
        lock(&file, &fresh)?;
        std::fs::rename(&fresh, &self.path)?;
        self.file = file;
        self.length = bytes.len() as u64;
        self.compact_at = self.length + COMPACT_AFTER;
        Ok(())
    }
}

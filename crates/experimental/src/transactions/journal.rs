//! The journal of a store: a file to which it appends what it must remember. The page cache keeps it when the process is killed; nothing of it is
//! synced to the disk.

use super::wire::{Records, decode_journal, encode_header, encode_record};
use super::words::{OwnerId, Record};
use pagewire_active::fork::{KeptFromChildren, Owner};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A journal is written anew when it has grown by so many bytes.
const COMPACT_AFTER: u64 = 64 << 20;

/// Two stores with one journal would each lose what the other one commits.
fn lock(file: &File) -> Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Error::new(ErrorKind::ResourceBusy, "it is in use by another store")),
        done => Ok(done?),
    }
}

/// A journal that is open.
pub struct Journal {
    path: PathBuf,
    /// Whose it is.
    store: OwnerId,
    /// A child would have the lock, too, and longer than this process. Ends before the file is closed.
    kept: KeptFromChildren,
    file: File,
    length: u64,
    compact_at: u64,
    owner: Owner,
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent.
        if !self.owner.is_this_process() {
            return;
        }
        // A child that has not executed its program yet has the file open, too, and the lock would stay until it does.
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            log::debug!("{} stays locked: {error}", self.path.display());
        }
    }
}

impl Journal {
    /// Opens or makes the file, and gives what it has. What was being written when its writer was killed is cut off.
    ///
    /// # Errors
    /// `InvalidData`: it is no journal of this store, or was changed, and stays as it is. `ResourceBusy`: another store has it.
    pub fn open(path: &Path, store: OwnerId) -> Result<(Journal, Records)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let kept = KeptFromChildren::new(file.as_fd());
        lock(&file)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let decoded = decode_journal(&bytes, store);
        let (records, whole) = decoded.map_err(|why| Error::new(ErrorKind::InvalidData, why))?;
        let length = whole as u64;
        file.set_len(length)?;
        file.seek(SeekFrom::End(0))?;
        Ok((
            Journal {
                path: path.to_owned(),
                store,
                kept,
                file,
                length,
                compact_at: length + COMPACT_AFTER,
                owner: Owner::this_process(),
            },
            records,
        ))
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
        let mut bytes = encode_header(self.store);
        records.iter().for_each(|record| bytes.extend(encode_record(record)));
        file.write_all(&bytes)?;
        let kept = KeptFromChildren::new(file.as_fd());
        lock(&file)?;
        std::fs::rename(&fresh, &self.path)?;
        self.kept = kept;
        self.file = file;
        self.length = bytes.len() as u64;
        self.compact_at = self.length + COMPACT_AFTER;
        Ok(())
    }
}

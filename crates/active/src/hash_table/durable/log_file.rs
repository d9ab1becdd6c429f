//! The log of a volume: files that the processes which change it append to, each to its own, before they change it.
//!
//! A file is words: `what it is | boot | tail | ... | records`. The tail says how many words are used. A record is
//! `kind, length, checksum | stamp | key | bytes of the value`. Records become valid by one compare-swap of the tail. Whoever rebuilds the volume
//! closes the tail first: what was appended before is in the file, and what comes later fails at its writer.

use super::super::volume::MAX_VALUE;
use super::{Change, damaged_file, failed};
use crate::bytes::to_words;
use crate::clock::now;
use pagewire::Result;
use pagewire_memory::FileWords;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

const MAGIC: u64 = u64::from_le_bytes(*b"PWTLOG\x01\n");
const BOOT: usize = 1;
const TAIL: usize = 2;
const HEADER: usize = 8;

/// In the tail: nobody may append any more.
const CLOSED: u64 = 1 << 63;

/// Words of a record before the bytes of its value.
const HEAD: usize = 3;
const INSERT: u64 = 1;
const DELETE: u64 = 2;

/// A change of a log, to be made again.
pub struct Logged {
    pub stamp: u64,
    pub key: u64,
    /// `None`: it was deleted.
    pub value: Option<Vec<u8>>,
}

/// Adds the records of changes to words.
pub fn write_records(changes: &[Change<'_>], into: &mut Vec<u64>) {
    for (key, value) in changes {
        let (kind, value) = match value {
            Some(value) => (INSERT, *value),
            None => (DELETE, &[][..]),
        };
        debug_assert!(*key != 0 && value.len() <= MAX_VALUE, "a reader would refuse it");
        let at = into.len();
        into.extend([kind << 60 | (value.len() as u64) << 32, now(), *key]);
        into.extend(to_words(value));
        into[at] |= u64::from(crc32fast::hash(into[at..].as_bytes()));
    }
}

/// One file, which this process appends to.
pub struct LogFile {
    words: FileWords,
    used: usize,
}

impl LogFile {
    /// Makes a file with space for so many bytes of records at least. `None`: there is one of this name.
    pub fn create(path: &Path, bytes: usize, boot: u64) -> Result<Option<LogFile>> {
        let file = match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(failed("cannot make", path)(error)),
        };
        let words = FileWords::create(&file, (HEADER * 8 + bytes).next_multiple_of(4096));
        let words = words.map_err(failed("cannot keep space for", path))?;
        words[BOOT].store(boot, Ordering::Relaxed);
        words[0].store(MAGIC, Ordering::Release);
        Ok(Some(LogFile { words, used: 0 }))
    }

    pub fn has_space(&self, records: &[u64]) -> bool {
        self.words.len().saturating_sub(HEADER + self.used) >= records.len()
    }

    /// Appends records that have space. False: somebody else rebuilds the volume, or has. Nothing was appended.
    #[inline]
    pub fn append(&mut self, records: &[u64]) -> bool {
        let end = self.used + records.len();
        let Some(space) = self.words.get(HEADER + self.used..HEADER + end) else { return false };
        space.iter().zip(records).for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
        let tail = &self.words[TAIL];
        let swapped = tail.compare_exchange(self.used as u64, end as u64, Ordering::SeqCst, Ordering::SeqCst);
        if swapped.is_ok() {
            self.used = end;
        }
        swapped.is_ok()
    }
}

/// Closes a log for whoever appends to it, and adds its changes.
pub fn close_and_read(path: &Path, boot: u64, changes: &mut Vec<Logged>) -> Result<()> {
    let file = File::options().read(true).write(true).open(path).map_err(failed("cannot open", path))?;
    let words = match FileWords::map(&file) {
        Ok(words) if words.len() >= HEADER => words,
        // Its maker was killed before the file had its space.
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Ok(()),
        Err(error) => return Err(failed("cannot map", path)(error)),
    };
    // Also where its maker has not come so far that it says what it is: it appends behind that.
    let tail = words[TAIL].fetch_or(CLOSED, Ordering::SeqCst) & !CLOSED;
    if tail == 0 {
        return Ok(());
    }
    let is_log = words[0].load(Ordering::Acquire) == MAGIC;
    let used = usize::try_from(tail).ok().and_then(|tail| words.get(HEADER..)?.get(..tail));
    let (true, Some(used)) = (is_log, used) else { return Err(damaged_file(path, 0)) };
    let mut at = 0;
    while at < used.len() {
        match read_record(&used[at..]) {
            Some((change, length)) => {
                changes.push(change);
                at += length;
            }
            // The machine has stopped: its last pages were written in any order, or not at all.
            None if words[BOOT].load(Ordering::Relaxed) != boot => {
                let lost = (used.len() - at) * 8;
                log::warn!("{} lacks its last {lost} bytes since the machine stopped", path.display());
                break;
            }
            None => return Err(damaged_file(path, (HEADER + at) as u64 * 8)),
        }
    }
    Ok(())
}

/// The record that words begin with, and its length.
fn read_record(words: &[AtomicU64]) -> Option<(Logged, usize)> {
    let head = words.first()?.load(Ordering::Relaxed);
    let length = (head >> 32) as usize & ((1 << 28) - 1);
    let count = HEAD + length.div_ceil(8);
    let mut record: Vec<u64> = words.get(..count)?.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    record[0] &= !u64::from(u32::MAX);
    let is_element = record.get(2).is_some_and(|key| *key != 0) && length <= MAX_VALUE;
    if !is_element || crc32fast::hash(record.as_bytes()) != head as u32 {
        return None;
    }
    let value = match head >> 60 {
        INSERT => Some(record[HEAD..].as_bytes()[..length].to_vec()),
        DELETE => None,
        _ => return None,
    };
    Some((Logged { stamp: record[1], key: record[2], value }, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    fn records(changes: &[Change<'_>]) -> Vec<u64> {
        let mut records = Vec::new();
        write_records(changes, &mut records);
        records
    }

    fn read(path: &Path, boot: u64) -> Result<Vec<(u64, Option<Vec<u8>>)>> {
        let mut changes = Vec::new();
        close_and_read(path, boot, &mut changes)?;
        Ok(changes.into_iter().map(|change| (change.key, change.value)).collect())
    }

    #[test]
    fn what_was_appended_is_read_and_nothing_comes_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = LogFile::create(&path, 4096 - 64, 1).unwrap().unwrap();
        assert!(LogFile::create(&path, 100, 1).unwrap().is_none(), "there is one");
        assert!(log.append(&records(&[(1, Some(b"one")), (2, Some(b"nine bytes"))])));
        assert!(log.append(&records(&[(1, None)])));
        assert!(!log.has_space(&[0; 500]) && log.has_space(&[0; 400]));
        let expected = [(1, Some(b"one".to_vec())), (2, Some(b"nine bytes".to_vec())), (1, None)];
        assert_eq!(read(&path, 1).unwrap(), expected);
        assert!(!log.append(&records(&[(3, None)])), "it is closed");
        assert_eq!(read(&path, 1).unwrap(), expected);
    }

    proptest! {
        /// Damage is an error that says where; behind a stop of the machine it ends the log.
        #[test]
        fn damaged_logs_are_errors(at in 64u64..200, flip in 1u8..=255) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let mut log = LogFile::create(&path, 4096, 1).unwrap().unwrap();
            let changes: Vec<Change<'_>> = (1..10).map(|key| (key, Some(&b"value"[..]))).collect();
            let records = records(&changes);
            prop_assert!(log.append(&records));
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ flip], at).unwrap();
            let record = (at - 64) / 32;
            let text = read(&path, 1).unwrap_err().to_string();
            prop_assert!(text.contains(&format!("byte {}", 64 + 32 * record)), "{}", text);
            prop_assert_eq!(read(&path, 2).unwrap().len() as u64, record);
        }
    }
}

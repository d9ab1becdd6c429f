//! The log of a volume: files that the processes which change it append to, each to its own, before they change it.
//!
//! A file is words: `what it is | boot | tail | ... | records`. The tail says how many words are used. A record is
//! `kind, length, checksum | stamp | key | bytes of the value`. That of a swap has a fingerprint of the expected value before the bytes, and the record
//! behind it says whether the swap was made. Without one, as its writer was killed, nobody was told: it is made again where its value is expected.
//! Records become valid by one compare-swap of the tail. Whoever rebuilds the volume
//! closes the tail first: what was appended before is in the file, and what comes later fails at its writer.

use super::super::swap::Swap;
use super::super::volume::{MAX_VALUE, hash};
use super::{Change, check_file_size, damaged_file, failed};
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
pub const HEAD: usize = 3;
const INSERT: u64 = 1;
const DELETE: u64 = 2;
/// A swap to a value, or to none.
const SWAP_INSERT: u64 = 3;
const SWAP_DELETE: u64 = 4;
/// The swap of the record before was made, or was not.
const MADE: u64 = 5;
const NOT_MADE: u64 = 6;

/// A change of a log, to be made again.
pub struct Logged {
    pub stamp: u64,
    pub key: u64,
    /// `None`: it was deleted.
    pub value: Option<Vec<u8>>,
    /// The [`fingerprint`] of the value that it takes the place of, where it is not known whether it did.
    pub expected: Option<u64>,
}

/// Stands for a value in the record of a swap, and for none.
pub fn fingerprint(value: Option<&[u8]>) -> u64 {
    let Some(value) = value else { return 0 };
    to_words(value).fold(value.len() as u64, |sum, word| hash(sum.rotate_left(1) ^ word)) | 1
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

/// Adds the record of a swap that is to be made.
pub fn write_swap(swap: &Swap<'_>, into: &mut Vec<u64>) {
    let (kind, value) = match swap.new {
        Some(value) => (SWAP_INSERT, value),
        None => (SWAP_DELETE, &[][..]),
    };
    let at = into.len();
    into.extend([kind << 60 | (value.len() as u64) << 32, now(), swap.key, fingerprint(swap.expected)]);
    into.extend(to_words(value));
    into[at] |= u64::from(crc32fast::hash(into[at..].as_bytes()));
}

/// Adds the record of what became of the swap of the record before.
pub fn write_outcome(key: u64, is_made: bool, into: &mut Vec<u64>) {
    let (at, kind) = (into.len(), if is_made { MADE } else { NOT_MADE });
    into.extend([kind << 60, now(), key]);
    into[at] |= u64::from(crc32fast::hash(into[at..].as_bytes()));
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
        let length = (HEADER * 8 + bytes).next_multiple_of(4096);
        let words = check_file_size(length as u64).and_then(|()| FileWords::create(&file, length));
        let words = words.map_err(|error| {
            // What it has of the disk is for others, and nobody appends to it.
            let _ = std::fs::remove_file(path);
            failed("cannot keep space for", path)(error)
        })?;
        words[BOOT].store(boot, Ordering::Relaxed);
        words[0].store(MAGIC, Ordering::Release);
        Ok(Some(LogFile { words, used: 0 }))
    }

    /// Whether there is space for so many words.
    pub fn has_space(&self, words: usize) -> bool {
        self.words.len().saturating_sub(HEADER + self.used) >= words
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
    let file = match File::options().read(true).write(true).open(path) {
        // Nobody can append to it either.
        Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {
            let bytes = std::fs::read(path).map_err(failed("cannot read", path))?;
            let words: Vec<AtomicU64> = to_words(&bytes[..bytes.len() / 8 * 8]).map(AtomicU64::new).collect();
            return if words.len() < HEADER { Ok(()) } else { read_log(path, &words, boot, changes) };
        }
        opened => opened.map_err(failed("cannot open", path))?,
    };
    let words = match FileWords::map(&file) {
        Ok(words) if words.len() >= HEADER => words,
        // Its maker was killed before the file had its space.
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Ok(()),
        Err(error) => return Err(failed("cannot map", path)(error)),
    };
    read_log(path, &words, boot, changes)
}

/// Closes the words of a log, and adds its changes.
fn read_log(path: &Path, words: &[AtomicU64], boot: u64, changes: &mut Vec<Logged>) -> Result<()> {
    // Also where its maker has not come so far that it says what it is: it appends behind that.
    let tail = words[TAIL].fetch_or(CLOSED, Ordering::SeqCst) & !CLOSED;
    if tail == 0 {
        return Ok(());
    }
    let is_log = words[0].load(Ordering::Acquire) == MAGIC;
    let used = usize::try_from(tail).ok().and_then(|tail| words.get(HEADER..)?.get(..tail));
    let (true, Some(used)) = (is_log, used) else { return Err(damaged_file(path, 0)) };
    let (mut at, mut of_file) = (0, Vec::new());
    while at < used.len() {
        let record = read_record(&used[at..])
            .and_then(|(record, length)| take_record(record, &mut of_file).then_some(length));
        match record {
            Some(length) => at += length,
            // The machine has stopped: its last pages were written in any order, or not at all.
            None if words[BOOT].load(Ordering::Relaxed) != boot => {
                let lost = (used.len() - at) * 8;
                log::warn!("{} lacks its last {lost} bytes since the machine stopped", path.display());
                break;
            }
            None => return Err(damaged_file(path, (HEADER + at) as u64 * 8)),
        }
    }
    changes.append(&mut of_file);
    Ok(())
}

/// What a record says.
enum Record {
    Change(Logged),
    /// The swap of this key, in the record before, was made or not.
    Outcome {
        key: u64,
        is_made: bool,
    },
}

/// Adds a record to those before it in its file. False: it is an outcome, and no swap of its key is before it.
fn take_record(record: Record, changes: &mut Vec<Logged>) -> bool {
    let (key, is_made) = match record {
        Record::Change(change) => {
            changes.push(change);
            return true;
        }
        Record::Outcome { key, is_made } => (key, is_made),
    };
    let Some(swap) = changes.last_mut().filter(|swap| swap.key == key && swap.expected.is_some()) else {
        return false;
    };
    swap.expected = None;
    if !is_made {
        changes.pop();
    }
    true
}

/// The record that words begin with, and its length.
fn read_record(words: &[AtomicU64]) -> Option<(Record, usize)> {
    let head = words.first()?.load(Ordering::Relaxed);
    let (kind, length) = (head >> 60, (head >> 32) as usize & ((1 << 28) - 1));
    let start = if matches!(kind, SWAP_INSERT | SWAP_DELETE) { HEAD + 1 } else { HEAD };
    let count = start + length.div_ceil(8);
    let mut record: Vec<u64> = words.get(..count)?.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    record[0] &= !u64::from(u32::MAX);
    let is_element = record.get(2).is_some_and(|key| *key != 0) && length <= MAX_VALUE;
    if !is_element || crc32fast::hash(record.as_bytes()) != head as u32 {
        return None;
    }
    let (stamp, key) = (record[1], record[2]);
    let value = || Some(record[start..].as_bytes()[..length].to_vec());
    let (value, expected) = match kind {
        INSERT => (value(), None),
        DELETE => (None, None),
        SWAP_INSERT => (value(), Some(record[HEAD])),
        SWAP_DELETE => (None, Some(record[HEAD])),
        MADE | NOT_MADE => return Some((Record::Outcome { key, is_made: kind == MADE }, count)),
        _ => return None,
    };
    Some((Record::Change(Logged { stamp, key, value, expected }), count))
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
        assert!(!log.has_space(500) && log.has_space(400));
        let expected = [(1, Some(b"one".to_vec())), (2, Some(b"nine bytes".to_vec())), (1, None)];
        assert_eq!(read(&path, 1).unwrap(), expected);
        assert!(!log.append(&records(&[(3, None)])), "it is closed");
        assert_eq!(read(&path, 1).unwrap(), expected);
    }

    #[test]
    fn swaps_are_read_with_their_outcomes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = LogFile::create(&path, 4096, 1).unwrap().unwrap();
        let swap = Swap { key: 1, expected: Some(b"old"), new: Some(b"a new value") };
        let mut append = |swap: Option<&Swap<'_>>, outcome: Option<bool>| {
            let mut words = Vec::new();
            swap.into_iter().for_each(|swap| write_swap(swap, &mut words));
            outcome.into_iter().for_each(|is_made| write_outcome(1, is_made, &mut words));
            assert!(log.append(&words));
        };
        append(Some(&swap), Some(true));
        append(Some(&swap), Some(false));
        append(Some(&Swap { new: None, ..swap }), None);
        append(Some(&Swap { expected: None, ..swap }), None);
        let mut changes = Vec::new();
        close_and_read(&path, 1, &mut changes).unwrap();
        let read: Vec<_> = changes.iter().map(|change| (change.expected, change.value.as_deref())).collect();
        let (old, new) = (fingerprint(Some(b"old")), Some(&b"a new value"[..]));
        assert_eq!(read, [(None, new), (Some(old), None), (Some(0), new)]);
        assert!(
            old != 0 && old != fingerprint(Some(b"")) && fingerprint(Some(b"")) != fingerprint(Some(b"\0"))
        );

        let path = folder.path().join("other");
        let mut log = LogFile::create(&path, 4096, 1).unwrap().unwrap();
        let mut words = records(&[(1, Some(b"one"))]);
        write_outcome(1, true, &mut words);
        assert!(log.append(&words));
        let error = close_and_read(&path, 1, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("byte 96"), "an outcome of no swap: {error}");
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

//! Checksums of served files: computed when somebody asks, in a thread of their own, and given up when nobody waits any more.

use super::files::ServedFile;
use super::lock;
use crate::limits::{CHECKSUM_PIECE, CHECKSUM_TICK, CHECKSUMS};
use crate::running::directory::hexadecimal;
use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

/// What a checksum is of: the identity of a file, and how many of its bytes.
type Key = (String, u64);

/// All that are computed, and those that are known.
#[derive(Default)]
pub(super) struct Checksums {
    /// Of files that nobody writes: one each, so they are bounded.
    known: Arc<Mutex<HashMap<String, (Key, String)>>>,
    /// Whom others may join.
    running: Mutex<HashMap<Key, Weak<ChecksumJob>>>,
    turns: Arc<Turns>,
}

/// How many are computed at a time.
#[derive(Default)]
struct Turns {
    taken: Mutex<usize>,
    given_back: Condvar,
}

impl Turns {
    /// Waits for a turn as long as `goes_on` says so. False: there was none.
    fn take(&self, goes_on: impl Fn() -> bool) -> bool {
        let mut taken = lock(&self.taken);
        while *taken >= CHECKSUMS {
            if !goes_on() {
                return false;
            }
            let waited = self.given_back.wait_timeout(taken, CHECKSUM_TICK);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += 1;
        true
    }

    fn give_back(&self) {
        *lock(&self.taken) -= 1;
        self.given_back.notify_one();
    }
}

/// A checksum that is computed, or known.
pub(super) struct ChecksumJob {
    bytes: AtomicU64,
    result: Mutex<Option<Result<String, String>>>,
    ended: Condvar,
}

impl ChecksumJob {
    fn new(result: Option<Result<String, String>>) -> Arc<ChecksumJob> {
        Arc::new(ChecksumJob { bytes: AtomicU64::new(0), result: Mutex::new(result), ended: Condvar::new() })
    }

    /// Bytes of which it is known.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Its result, if that comes within a time.
    pub(super) fn wait(&self, time: Duration) -> Option<Result<String, String>> {
        let result = lock(&self.result);
        let waited = self.ended.wait_timeout_while(result, time, |result| result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn end(&self, result: Result<String, String>) {
        *lock(&self.result) = Some(result);
        self.ended.notify_all();
    }
}

impl Checksums {
    /// Computes the checksum of the first `length` bytes of a file, or joins who does. Nobody computes it once all jobs are dropped that
    /// this gave.
    ///
    /// # Errors
    /// If the file has fewer bytes, or there can be no thread.
    pub(super) fn start(&self, file: &ServedFile, length: u64) -> Result<Arc<ChecksumJob>> {
        let has = file.entry().length;
        if length > has {
            file.check_length()?;
        }
        ensure!(length <= has, "{} has {has} bytes, and not {length}", file.name);
        let key = (file.identity()?, length);
        if let Some((of, sum)) = lock(&self.known).get(&file.name) {
            if *of == key {
                return Ok(ChecksumJob::new(Some(Ok(sum.clone()))));
            }
        }
        let mut running = lock(&self.running);
        running.retain(|_, job| job.strong_count() > 0);
        // What is written meanwhile may have been summed before, so nobody is joined.
        if let Some(job) = running.get(&key).and_then(Weak::upgrade).filter(|_| !file.writable) {
            return Ok(job);
        }
        let job = ChecksumJob::new(None);
        running.insert(key.clone(), Arc::downgrade(&job));
        let (own, turns, known) = (Arc::downgrade(&job), self.turns.clone(), self.known.clone());
        let (copy, name) = (file.file.try_clone()?, file.name.clone());
        let remembers = !file.writable;
        let compute = move || {
            if !turns.take(|| own.strong_count() > 0) {
                return;
            }
            let summed = sum(&copy, length, |bytes| {
                own.upgrade().is_some_and(|job| {
                    job.bytes.store(bytes, Ordering::Relaxed);
                    true
                })
            });
            turns.give_back();
            let is_same = || super::identity(&copy).is_ok_and(|identity| identity == key.0);
            if let Ok(sum) = &summed {
                if remembers && is_same() {
                    lock(&known).insert(name, (key.clone(), sum.clone()));
                }
            }
            if let Some(job) = own.upgrade() {
                job.end(summed.map_err(|error| format!("the checksum cannot be computed: {error:#}")));
            }
        };
        Builder::new().name("pagewire-sum".to_owned()).spawn(compute).context("a thread for a checksum")?;
        Ok(job)
    }
}

/// The checksum of the first `length` bytes of a file, as long as `goes_on` says so, which learns how far it is.
fn sum(file: &File, length: u64, goes_on: impl Fn(u64) -> bool) -> Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHECKSUM_PIECE];
    let mut at = 0;
    while at < length {
        ensure!(goes_on(at), "nobody waits for it");
        let count = (length - at).min(CHECKSUM_PIECE as u64) as usize;
        file.read_exact_at(&mut buffer[..count], at)
            .context("the file became shorter meanwhile, or cannot be read")?;
        hash.update(&buffer[..count]);
        at += count as u64;
    }
    Ok(hexadecimal(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn served(path: &std::path::Path, writable: bool) -> ServedFile {
        ServedFile::new("a".to_owned(), File::options().read(true).write(true).open(path).unwrap(), writable)
            .unwrap()
    }

    fn expected(bytes: &[u8]) -> String {
        hexadecimal(&Sha256::digest(bytes))
    }

    #[test]
    fn sums_are_of_the_bytes_asked_for_and_known_until_the_file_changes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes = vec![7; CHECKSUM_PIECE + 5];
        file.write_all(&bytes).unwrap();
        let (served, checksums) = (served(file.path(), false), Checksums::default());
        for length in [0, 1, CHECKSUM_PIECE, CHECKSUM_PIECE + 5] {
            let sum = checksums.start(&served, length as u64).unwrap().wait(PATIENCE);
            assert_eq!(sum, Some(Ok(expected(&bytes[..length]))), "{length}");
        }
        let again = checksums.start(&served, bytes.len() as u64).unwrap();
        assert_eq!(again.wait(Duration::ZERO), Some(Ok(expected(&bytes))), "it was known");
        assert!(checksums.start(&served, bytes.len() as u64 + 1).is_err());

        file.as_file().set_len(3).unwrap();
        let sum = checksums.start(&served, 3).unwrap().wait(PATIENCE);
        assert_eq!(sum, Some(Ok(expected(&bytes[..3]))));
    }

    #[test]
    fn what_may_be_written_is_summed_each_time() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"abc").unwrap();
        let (served, checksums) = (served(file.path(), true), Checksums::default());
        assert_eq!(checksums.start(&served, 3).unwrap().wait(PATIENCE), Some(Ok(expected(b"abc"))));
        assert!(lock(&checksums.known).is_empty());
    }

    #[test]
    fn nobody_has_a_turn_for_a_client_that_went() {
        let turns = Turns::default();
        (0..CHECKSUMS).for_each(|_| assert!(turns.take(|| true)));
        assert!(!turns.take(|| false), "all turns are taken, and nobody waits");
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| turns.take(|| begun.elapsed() < PATIENCE));
            turns.give_back();
            assert!(next.join().unwrap());
        });
    }
}

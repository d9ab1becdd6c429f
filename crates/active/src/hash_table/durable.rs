//! Volumes that outlive their owners: a checkpoint of each in a file, and logs of what came since (PAPERS AA-11, AA-12).
//!
//! Whoever changes a volume appends the change to a log file of its own first, and changes the volume then. So a change that is visible is in a file
//! that outlives both processes. Records have stamps of the host's clock: a change that began behind the end of another one has a later stamp.
//!
//! A checkpoint begins a generation. Nobody is within a change of the generation before then, so its logs have nothing that the checkpoint lacks.
//!
//! Who rebuilds a volume locks its file, counts itself in there, closes all logs, and makes the changes again by stamp. Each other process learns of that
//! from its closed log, before its call returns.

mod image;
mod log_file;

use super::swap::{Swap, SwapRecord};
use image::Header;
use log_file::LogFile;
pub(super) use log_file::{Logged, fingerprint};
use pagewire::{Error, Result};
use pagewire_memory::FileWords;
use pagewire_memory::fork::KeptFromChildren;
use rustix::fs::{FlockOperation, fallocate, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A change of an element: its value, or `None` if it is deleted.
pub(super) type Change<'v> = (u64, Option<&'v [u8]>);

/// Elements as changes.
#[inline]
pub(super) fn inserts<'v>(elements: &[(u64, &'v [u8])]) -> impl ExactSizeIterator<Item = Change<'v>> + Clone {
    elements.iter().map(|(key, value)| (*key, Some(*value)))
}

/// Bytes of a log file at most, if no record needs more.
const SEGMENT: usize = 1 << 20;

/// How long a process that was killed may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Bytes of the file that counts the owners of a volume.
const OWNER_FILE: u64 = 4096;

/// Where the volumes of a table lie when their processes do not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// The folder of the files. Each process of a host names the same one.
    pub folder: PathBuf,
    /// Bytes that the logs of one process to one volume take before the owner of the volume makes a checkpoint.
    pub log_bytes: u64,
    /// A checkpoint is on the disk when its call returns. Without it, it outlives processes, and not the machine.
    pub syncs: bool,
}

impl Durability {
    /// In a folder, which is made if there is none: up to 64 MiB of logs, and checkpoints that are synced.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Durability { folder: folder.into(), log_bytes: 64 << 20, syncs: true }
    }
}

/// The files of one volume.
#[derive(Debug, Clone)]
pub(super) struct Files {
    durability: Durability,
    /// Whose volume it is.
    rank: usize,
    boot: u64,
}

impl Files {
    pub fn new(durability: &Durability, rank: usize) -> Result<Files> {
        Ok(Files { durability: durability.clone(), rank, boot: boot()? })
    }

    /// Those of another volume of the table.
    pub fn of(&self, rank: usize) -> Files {
        Files { rank, ..self.clone() }
    }

    fn path(&self, what: &str) -> PathBuf {
        self.durability.folder.join(format!("volume-{}.{what}", self.rank))
    }

    /// The logs, and their generations.
    fn logs(&self) -> Result<Vec<(u64, PathBuf)>> {
        let folder = &self.durability.folder;
        let begin = format!("volume-{}.", self.rank);
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(failed("cannot read", folder))? {
            let name = entry.map_err(failed("cannot read", folder))?.file_name();
            let generation = name.to_str().and_then(|name| {
                let (generation, rest) = name.strip_prefix(&begin)?.split_once('.')?;
                generation.parse().ok().filter(|_| rest.ends_with(".log"))
            });
            logs.extend(generation.map(|generation| (generation, folder.join(name))));
        }
        Ok(logs)
    }

    pub fn remove_logs_before(&self, generation: u64) -> Result<()> {
        let logs = self.logs()?;
        let mut old = logs.iter().filter(|(of, _)| *of < generation);
        old.try_for_each(|(_, path)| std::fs::remove_file(path).map_err(failed("cannot remove", path)))
    }

    /// Makes a checkpoint of the elements that `walk` hands over. The logs of before are not needed any more.
    pub fn save(
        &self,
        (generation, size): (u64, usize),
        walk: impl FnOnce(&mut image::Sink<'_>) -> Result<()>,
    ) -> Result<()> {
        let header = Header { generation, rank: self.rank as u32, size: size as u32 };
        image::write(&self.path("checkpoint"), header, self.durability.syncs, walk)
    }
}

/// The right of this process to a volume, which ends with it.
pub(super) struct Ownership {
    /// A child would have the lock, too, and longer than this process. Ends before the file is closed.
    _kept: KeptFromChildren,
    // Locked.
    _file: File,
    pub ticket: OwnerTicket,
    pub files: Files,
}

/// By which others know that they have the file of the same owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerTicket {
    pub device: u64,
    pub inode: u64,
    /// How many processes have had the volume.
    pub incarnation: u64,
}

impl OwnerTicket {
    pub const WORDS: usize = 3;

    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.device, self.inode, self.incarnation]
    }

    /// `None`: the owner keeps no files.
    pub fn of_words([device, inode, incarnation]: [u64; Self::WORDS]) -> Option<Self> {
        (incarnation > 0).then_some(OwnerTicket { device, inode, incarnation })
    }
}

impl Ownership {
    /// Takes a volume over: from now on whoever changes it as another process had it fails.
    pub fn take(files: Files) -> Result<Ownership> {
        let folder = &files.durability.folder;
        std::fs::create_dir_all(folder).map_err(failed("cannot make the folder", folder))?;
        let path = files.path("owner");
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                return Ownership::take_to_read(files, &path, error);
            }
            opened => opened.map_err(failed("cannot open", &path))?,
        };
        let kept = KeptFromChildren::new(file.as_fd());
        lock(&file, &path)?;
        let has_space = fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, OWNER_FILE);
        has_space.map_err(|why| failed("cannot keep space for", &path)(why.into()))?;
        let words = FileWords::map(&file).map_err(failed("cannot map", &path))?;
        let incarnation = words[0].fetch_add(1, Ordering::SeqCst) + 1;
        let of_file = file.metadata().map_err(failed("cannot read", &path))?;
        let ticket = OwnerTicket { device: of_file.dev(), inode: of_file.ino(), incarnation };
        Ok(Ownership { _kept: kept, _file: file, ticket, files })
    }

    /// As [`take`](Self::take), where the file system takes no changes, as `error` says. Whoever had the volume before has ended, or changes it no more.
    fn take_to_read(files: Files, path: &Path, error: io::Error) -> Result<Ownership> {
        let Ok(file) = File::open(path) else { return Err(failed("cannot open", path)(error)) };
        let kept = KeptFromChildren::new(file.as_fd());
        lock(&file, path)?;
        let incarnation = word_of(&file).map_err(failed("cannot read", path))?;
        let of_file = file.metadata().map_err(failed("cannot read", path))?;
        let ticket = OwnerTicket { device: of_file.dev(), inode: of_file.ino(), incarnation };
        Ok(Ownership { _kept: kept, _file: file, ticket, files })
    }

    /// Hands over all changes of the volume as it was, and gives the generation that begins now.
    pub fn rebuild(&self, size: usize, mut change: impl FnMut(&Logged) -> Result<()>) -> Result<u64> {
        let files = &self.files;
        let (logs, mut changes) = (files.logs()?, Vec::new());
        let path = files.path("checkpoint");
        let header = image::read(&path, |key, value| {
            change(&Logged { stamp: 0, key, value: Some(value.to_vec()), expected: None })
        })?;
        if let Some(header) = header
            && (header.rank as usize, header.size as usize) != (files.rank, size)
        {
            let Header { rank, size, .. } = header;
            let why = format!(
                "it is of rank {rank} of {size} processes: start as many, each with its rank, or name another folder"
            );
            return Err(failed("cannot use", &path)(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let first = header.map_or(0, |header| header.generation);
        let last = logs.iter().max_by_key(|(generation, _)| *generation);
        let (newest, path) = last.map_or((first, &path), |(last, of)| (*last, of));
        let next = newest.max(first).checked_add(1).ok_or_else(|| {
            let why =
                "its generation is the last one that there can be, and no member makes so many: remove it";
            failed("cannot use", path)(io::Error::new(io::ErrorKind::InvalidData, why))
        })?;
        // All of them are closed, also those that the checkpoint has made needless.
        for (generation, path) in &logs {
            let mut of_file = Vec::new();
            log_file::close_and_read(path, files.boot, &mut of_file)?;
            if *generation >= first {
                changes.append(&mut of_file);
            }
        }
        changes.sort_by_key(|change: &Logged| change.stamp);
        changes.iter().try_for_each(change)?;
        Ok(next)
    }
}

/// The first word of a file.
fn word_of(file: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0)?;
    Ok(u64::from_ne_bytes(word))
}

fn lock(file: &File, path: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            // Who was killed may not have ended yet.
            Err(rustix::io::Errno::WOULDBLOCK) if start.elapsed() < ENDS_WITHIN => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let why = "another process has this volume: end that, or take another rank or folder";
                return Err(failed("cannot lock", path)(io::Error::new(io::ErrorKind::ResourceBusy, why)));
            }
            Err(error) => return Err(failed("cannot lock", path)(error.into())),
        }
    }
}

/// The file of the owner of a volume, as another process sees it, which has the volume mapped.
pub(super) struct OwnerFile {
    words: OwnerWords,
    incarnation: u64,
    path: PathBuf,
    pub files: Files,
}

/// The words of the file of an owner.
enum OwnerWords {
    Mapped(FileWords),
    /// Its file system takes no changes.
    ReadOnly(File),
}

impl OwnerWords {
    fn open(path: &Path) -> io::Result<(File, OwnerWords)> {
        match File::options().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                let file = File::open(path)?;
                Ok((file.try_clone()?, OwnerWords::ReadOnly(file)))
            }
            opened => {
                let file = opened?;
                let words = FileWords::map(&file)?;
                Ok((file, OwnerWords::Mapped(words)))
            }
        }
    }

    #[inline]
    fn incarnation(&self) -> Option<u64> {
        match self {
            OwnerWords::Mapped(words) => words.first().map(|word| word.load(Ordering::SeqCst)),
            OwnerWords::ReadOnly(file) => word_of(file).ok(),
        }
    }
}

impl OwnerFile {
    /// Opens the file that the ticket of the owner names.
    pub fn open(files: Files, ticket: OwnerTicket) -> Result<OwnerFile> {
        let path = files.path("owner");
        let (file, words) = OwnerWords::open(&path).map_err(failed("cannot open", &path))?;
        let of_file = file.metadata().map_err(failed("cannot read", &path))?;
        if (of_file.dev(), of_file.ino()) != (ticket.device, ticket.inode) {
            let why = "the owner of the volume names another file: all processes of a host name one folder, or all take `Scheme::Handler`";
            return Err(failed("cannot use", &path)(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let owner = OwnerFile { words, incarnation: ticket.incarnation, path, files };
        owner.check()?;
        Ok(owner)
    }

    /// Whether the process that has the volume is the one that this process knows.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.words.incarnation() {
            Some(incarnation) if incarnation == self.incarnation => Ok(()),
            _ => Err(replaced(&self.path)),
        }
    }
}

/// Appends to the logs of a volume in one generation.
pub(super) struct LogWriter {
    files: Files,
    generation: u64,
    segment: Option<LogFile>,
    /// Of all files of this writer.
    bytes: u64,
    has_begun: bool,
    records: Vec<u64>,
}

/// What became of changes that were to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appended {
    Done,
    /// There are so many that the owner is to make a checkpoint first.
    Full,
}

impl LogWriter {
    pub fn new(files: Files, generation: u64) -> Self {
        LogWriter { files, generation, segment: None, bytes: 0, has_begun: false, records: Vec::new() }
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a file was begun since this was last asked: the disk has taken one.
    pub fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.has_begun)
    }

    /// Appends changes, all or none. `owner`: who may have been replaced since; `None`: this process is it.
    #[inline]
    pub fn append(&mut self, changes: &[Change<'_>], owner: Option<&OwnerFile>) -> Result<Appended> {
        self.records.clear();
        log_file::write_records(changes, &mut self.records);
        self.append_records(0, owner)
    }

    /// Appends the records that were made, and keeps so many words behind them.
    #[inline]
    fn append_records(&mut self, kept: usize, owner: Option<&OwnerFile>) -> Result<Appended> {
        let words = self.records.len() + kept;
        if !self.segment.as_ref().is_some_and(|segment| segment.has_space(words))
            && self.begin_segment(words, owner)? == Appended::Full
        {
            return Ok(Appended::Full);
        }
        match self.segment.as_mut().is_some_and(|segment| segment.append(&self.records)) {
            true => Ok(Appended::Done),
            false => Err(replaced(&self.files.path("owner"))),
        }
    }

    #[cold]
    fn begin_segment(&mut self, words: usize, owner: Option<&OwnerFile>) -> Result<Appended> {
        static SEGMENTS: AtomicU64 = AtomicU64::new(0);
        let most = usize::try_from(self.files.durability.log_bytes).unwrap_or(SEGMENT).min(SEGMENT);
        let bytes = most.max(words * 8);
        if self.bytes > 0 && self.bytes + bytes as u64 > self.files.durability.log_bytes {
            return Ok(Appended::Full);
        }
        let segment = loop {
            let number = SEGMENTS.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}.{}-{number}.log", self.generation, std::process::id());
            if let Some(segment) = LogFile::create(&self.files.path(&name), bytes, self.files.boot)? {
                break segment;
            }
        };
        // Who has taken the volume over before this may not have seen the file.
        owner.map_or(Ok(()), OwnerFile::check)?;
        self.bytes += bytes as u64;
        self.segment = Some(segment);
        self.has_begun = true;
        Ok(Appended::Done)
    }
}

/// The log of a volume, for a swap of its owner or of another process.
pub(super) struct LoggedSwap<'l> {
    pub log: &'l mut LogWriter,
    /// As in [`LogWriter::append`].
    pub owner: Option<&'l OwnerFile>,
}

impl SwapRecord for LoggedSwap<'_> {
    fn begin(&mut self, swap: &Swap<'_>) -> Result<Appended> {
        self.log.records.clear();
        log_file::write_swap(swap, &mut self.log.records);
        // The record of its outcome never lacks space.
        self.log.append_records(log_file::HEAD, self.owner)
    }

    fn end(&mut self, swap: &Swap<'_>, is_done: bool) -> Result<()> {
        self.log.records.clear();
        log_file::write_outcome(swap.key, is_done, &mut self.log.records);
        self.log.append_records(0, self.owner).map(drop)
    }
}

/// A number of this run of the machine: files of another one may lack what was not synced.
fn boot() -> Result<u64> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let id = std::fs::read(path).map_err(failed("cannot read", path))?;
    Ok(u64::from(crc32fast::hash(&id)) | 1 << 32)
}

/// An error of a file. Where the disk is what refuses, it says how that is mended.
fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let what = format!("a durable hash table: {what} {}", path.display());
    move |why| {
        let why = match advice(&why) {
            Some(advice) => io::Error::new(why.kind(), format!("{why}: {advice}")),
            None => why,
        };
        Error::System { what, why }
    }
}

/// How a disk that takes no more bytes is made to. `None`: something else is wrong.
fn advice(why: &io::Error) -> Option<&'static str> {
    Some(match why.kind() {
        io::ErrorKind::StorageFull => {
            "the disk is full; nothing that was flushed is lost, and lookups go on: free space there, and do this again"
        }
        io::ErrorKind::QuotaExceeded => {
            "the disk quota is used up; nothing that was flushed is lost, and lookups go on: free space there, and do this again"
        }
        io::ErrorKind::FileTooLarge => {
            "nothing that was flushed is lost, and lookups go on: raise the limit (prlimit(1) does so while the process runs), and do this again"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "nothing that was flushed is lost, and lookups go on: mount the file system for writing, and do this again"
        }
        _ => return None,
    })
}

/// Whether an error says that files take no more bytes, so that elements can be looked up, and not be changed.
pub(super) fn is_unwritable(error: &Error) -> bool {
    let Error::System { why, .. } = error else { return false };
    let is_of_device = why.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    is_of_device || why.kind() == io::ErrorKind::PermissionDenied || advice(why).is_some()
}

/// Whether a file may have so many bytes.
///
/// # Errors
/// `FileTooLarge`: RLIMIT_FSIZE is less, and the kernel would answer a write with SIGXFSZ.
fn check_file_size(bytes: u64) -> io::Result<()> {
    let limit = pagewire_memory::file_size_limit();
    match limit.filter(|limit| *limit < bytes) {
        Some(limit) => {
            let why = format!("RLIMIT_FSIZE (ulimit -f) is {limit} bytes, and the file has more");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
        }
        None => Ok(()),
    }
}

fn damaged_file(path: &Path, at: u64) -> Error {
    let why = format!("it is damaged at byte {at}: restore it, or name another folder and begin anew");
    failed("cannot use", path)(io::Error::new(io::ErrorKind::InvalidData, why))
}

fn replaced(path: &Path) -> Error {
    let why = "another process has this volume now: readmit that one by its ticket, and do this again";
    failed("lost the volume of", path)(io::Error::new(io::ErrorKind::ConnectionReset, why))
}

//! A job by a directory that all processes share, on one host or on a shared file system with locks (flock(2)).
//!
//! | file | meaning |
//! |---|---|
//! | `job` | size and name of the job. Who joins or leaves holds its lock. |
//! | `member.R` | rank R has come. The process holds its lock as long as it lives, so others notice its death. |
//! | `record.R.0`, `record.R.1` | what rank R gave to its last two operations, by even and odd number |
//!
//! Two records are enough: who gives to operation n + 1 has read all records of operation n, so nobody needs n - 1 any more.
//!
//! A job begins where no member lives. It removes what an earlier one left. The directory belongs to the user, and nobody else
//! may write to it, because the files are trusted. The last process that leaves removes all files but `job`.
//!
//! A forked child does not keep the lock of `member.R`: a process counts as living until it ends, whatever its children do.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pagewire_memory::fork::KeptFromChildren;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::error::{JobError, Operation, OperationKind, Refusal, Result};
use super::limits::{ALIVE_TEST_TIME, MAX_CONTRIBUTION, POLL_MAX, POLL_MIN};
use super::message::{FrameHeader, FrameKind, HEADER, frame};
use super::{Exchange, Joined, Ranks, Wait, check_sum};

const JOIN: Operation = Operation { kind: OperationKind::Join, number: 0 };
const LOCK_MEND: &str =
    "PAGEWIRE_JOB_FILE must name a directory on a file system with flock(2) that all processes can write to";
/// Time that leaving waits for the lock of `job`. What it then leaves behind, the next job removes.
const LEAVE_TIME: Duration = Duration::from_secs(1);

pub(super) fn join(path: &Path, job: &str, rank: Option<usize>, size: usize, wait: Wait) -> Result<Joined> {
    let directory = JobDirectory::open(path)?;
    let (rank, life) = directory.enter(job, rank, size, wait)?;
    let life = Some((KeptFromChildren::new(life.as_fd()), life));
    let exchange = JobMember { directory, rank, size, life };
    exchange.wait_for_all(wait)?;
    let started_by = format!("PAGEWIRE_JOB_FILE={} (files in this directory)", path.display());
    Ok(Joined { rank, size, started_by, exchange: Box::new(exchange) })
}

/// The directory of a job.
struct JobDirectory {
    path: PathBuf,
    file: File,
}

/// What is known about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    NotCome,
    Lives,
    Ended,
}

/// A process in its job.
struct JobMember {
    directory: JobDirectory,
    rank: usize,
    size: usize,
    /// The locked file `member.R`.
    life: Option<(KeptFromChildren, File)>,
}

fn member_name(rank: usize) -> String {
    format!("member.{rank}")
}

fn record_name(rank: usize, number: u64) -> String {
    format!("record.{rank}.{}", number % 2)
}

impl JobDirectory {
    /// Opens the directory, and makes it where it is absent.
    fn open(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let failed = |action, error: io::Error| JobError::System {
            action,
            place: place.clone(),
            error: error.to_string(),
            mend: "PAGEWIRE_JOB_FILE must name a directory of your own, whose parent exists",
        };
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("make", error)),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            File::from(open(path, flags, Mode::empty()).map_err(|error| failed("open", error.into()))?);
        let about = file.metadata().map_err(|error| failed("look at", error))?;
        if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o022 != 0 {
            let reason =
                "another user owns it or may write to it; take a directory of your own with mode 700"
                    .to_string();
            return Err(JobError::WrongPlace { place, reason });
        }
        Ok(Self { path: path.to_path_buf(), file })
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn system(&self, action: &'static str, name: &str, error: impl Into<io::Error>) -> JobError {
        let place = self.path.join(name).display().to_string();
        JobError::System { action, place, error: error.into().to_string(), mend: LOCK_MEND }
    }

    fn wrong(&self, reason: impl Into<String>) -> JobError {
        JobError::WrongPlace { place: self.place(), reason: reason.into() }
    }

    /// Opens a file for reading and writing, and makes it where it is absent.
    fn create(&self, name: &str) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.file, name, flags, Mode::RUSR | Mode::WUSR);
        file.map(File::from).map_err(|error| self.system("open", name, error))
    }

    fn open_existing(&self, name: &str) -> Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.file, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.system("open", name, error)),
        }
    }

    /// Takes a lock if it is free.
    fn try_lock(&self, file: &File, name: &str, how: FlockOperation) -> Result<bool> {
        match flock(file, how) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(error) => Err(self.system("lock", name, error)),
        }
    }

    /// Waits for the exclusive lock of a file. A stopped process that holds it does not stop others for ever.
    fn lock(&self, file: &File, name: &str, wait: Wait) -> Result<()> {
        let mut pause = Backoff::new();
        while !self.try_lock(file, name, FlockOperation::NonBlockingLockExclusive)? {
            if wait.is_over() {
                let error =
                    io::Error::new(io::ErrorKind::TimedOut, "another process holds its lock for too long");
                return Err(self.system("lock", name, error));
            }
            pause.wait(wait);
        }
        Ok(())
    }

    fn life(&self, rank: usize) -> Result<Life> {
        let name = member_name(rank);
        let Some(file) = self.open_existing(&name)? else { return Ok(Life::NotCome) };
        // Closing the file gives the lock back.
        let is_free = self.try_lock(&file, &name, FlockOperation::NonBlockingLockShared)?;
        Ok(if is_free { Life::Ended } else { Life::Lives })
    }

    /// Names of the files in the directory.
    fn names(&self) -> Result<Vec<String>> {
        let list = || -> io::Result<Vec<String>> {
            fs::read_dir(&self.path)?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        };
        list().map_err(|error| self.system("list", "", error))
    }

    fn members(&self) -> Result<Vec<usize>> {
        let names = self.names()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix("member.")?.parse().ok()).collect())
    }

    fn any_lives(&self) -> Result<bool> {
        for rank in self.members()? {
            if self.life(rank)? == Life::Lives {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the files of a job whose processes have all ended. The caller holds the lock of `job`.
    fn clear(&self) -> Result<()> {
        for name in self.names()? {
            if ["member.", "record.", "claim."].iter().any(|prefix| name.starts_with(prefix)) {
                match unlinkat(&self.file, &name, rustix::fs::AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(self.system("remove", &name, error)),
                }
            }
        }
        Ok(())
    }

    /// Becomes a member, with the given rank or the lowest free one. Returns the rank and the locked file of the member.
    fn enter(&self, job: &str, rank: Option<usize>, size: usize, wait: Wait) -> Result<(usize, File)> {
        let mut file = self.create("job")?;
        self.lock(&file, "job", wait)?;
        let header = describe(job, size);
        if self.any_lives()? {
            let mut found = String::new();
            file.read_to_string(&mut found).map_err(|error| self.system("read", "job", error))?;
            if found != header {
                return Err(self.wrong(
                    "a job with another PAGEWIRE_JOB or PAGEWIRE_SIZE lives there; give each job its own directory",
                ));
            }
        } else {
            self.clear()?;
            let written = file.set_len(0).and_then(|()| file.write_all(header.as_bytes()));
            written.map_err(|error| self.system("write", "job", error))?;
        }
        let rank = self.choose(rank, size)?;
        Ok((rank, self.claim(rank)?))
    }

    fn choose(&self, rank: Option<usize>, size: usize) -> Result<usize> {
        let members = self.members()?;
        let Some(rank) = rank else {
            return (0..size).find(|rank| !members.contains(rank)).ok_or_else(|| {
                self.wrong("all processes of its job have come already; give each job its own directory, or wait for its end")
            });
        };
        match self.life(rank)? {
            Life::NotCome => Ok(rank),
            Life::Lives => Err(JobError::Refused { place: self.place(), reason: Refusal::RankTaken }),
            Life::Ended => Err(self.wrong(format!(
                "rank {rank} of its job has ended, and other ranks still live; wait for their end, or take another directory"
            ))),
        }
    }

    /// Makes `member.R`. It has its name only once it is locked, so nobody takes a new member for an ended one.
    fn claim(&self, rank: usize) -> Result<File> {
        let name = format!("claim.{rank}");
        let mut file = self.create(&name)?;
        if !self.try_lock(&file, &name, FlockOperation::NonBlockingLockExclusive)? {
            return Err(JobError::Refused { place: self.place(), reason: Refusal::RankTaken });
        }
        // For people who look into the directory.
        writeln!(file, "process {}", std::process::id())
            .map_err(|error| self.system("write", &name, error))?;
        renameat(&self.file, &name, &self.file, member_name(rank))
            .map_err(|error| self.system("rename", &name, error))?;
        Ok(file)
    }
}

/// What stands in `job`.
fn describe(job: &str, size: usize) -> String {
    let digest: String = Sha256::digest(job).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("pagewire job 1\nsize {size}\nname {digest}\n")
}

/// Pauses that grow while nothing happens.
struct Backoff(Duration);

impl Backoff {
    fn new() -> Self {
        Self(POLL_MIN)
    }

    fn wait(&mut self, wait: Wait) {
        sleep(self.0.min(wait.left()));
        self.0 = (self.0 * 2).min(POLL_MAX);
    }
}

impl JobMember {
    fn wait_for_all(&self, wait: Wait) -> Result<()> {
        let mut pause = Backoff::new();
        let mut absent: Vec<usize> = (0..self.size).collect();
        loop {
            let mut left = Vec::new();
            for rank in absent {
                if self.directory.life(rank)? == Life::NotCome {
                    left.push(rank);
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            if wait.is_over() {
                return Err(wait.absent(JOIN, Ranks::from_iter(left), &self.directory.place()));
            }
            absent = left;
            pause.wait(wait);
        }
    }

    fn publish(&self, operation: Operation, bytes: &[u8], wait: Wait) -> Result<()> {
        let name = record_name(self.rank, operation.number);
        let mut file = self.directory.create(&name)?;
        self.directory.lock(&file, &name, wait)?;
        let frame = frame(FrameKind::Data(operation.kind), operation.number, bytes);
        let written = file.set_len(0).and_then(|()| file.write_all(&frame));
        written.map_err(|error| self.directory.system("write", &name, error))
        // Closing the file flushes it, also on NFS, and gives the lock back.
    }

    /// The record of a rank, once it is there as a whole.
    fn read(&self, rank: usize, operation: Operation) -> Result<Option<Vec<u8>>> {
        let name = record_name(rank, operation.number);
        let Some(mut file) = self.directory.open_existing(&name)? else { return Ok(None) };
        if !self.directory.try_lock(&file, &name, FlockOperation::NonBlockingLockShared)? {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let most = (HEADER + MAX_CONTRIBUTION) as u64;
        let read = Read::by_ref(&mut file).take(most + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.directory.system("read", &name, error))?;
        let Some((head, body)) = bytes.split_at_checked(HEADER) else { return Ok(None) };
        let header = FrameHeader::decode(head.try_into().expect("a header's length"))
            .map_err(|error| self.directory.wrong(format!("{name}: {error}")))?;
        if header.number < operation.number || body.len() < header.length {
            // The record of an earlier operation, or one whose writer ended before it was complete.
            return Ok(None);
        }
        if header.kind != FrameKind::Data(operation.kind)
            || header.number != operation.number
            || body.len() != header.length
        {
            return Err(JobError::Mismatch { operation, rank });
        }
        bytes.drain(..HEADER);
        Ok(Some(bytes))
    }

    /// Fails if a rank has ended without its record.
    fn check_alive(&self, rank: usize, operation: Operation) -> Result<()> {
        // The record may have come after the last look, and its process may have ended as it should.
        if self.directory.life(rank)? == Life::Lives || self.read(rank, operation)?.is_some() {
            return Ok(());
        }
        let reason = "its lock is free, so its process has ended".to_string();
        Err(JobError::Lost { operation, rank, place: self.directory.place(), reason })
    }

    fn leave(&mut self) -> Result<()> {
        let file = self.directory.create("job")?;
        self.directory.lock(&file, "job", Wait::new(LEAVE_TIME))?;
        self.life = None;
        if self.directory.any_lives()? { Ok(()) } else { self.directory.clear() }
    }
}

impl Exchange for JobMember {
    fn exchange(&mut self, operation: Operation, bytes: &[u8], wait: Wait) -> Result<Vec<Vec<u8>>> {
        self.publish(operation, bytes, wait)?;
        let mut all: Vec<Option<Vec<u8>>> = vec![None; self.size];
        all[self.rank] = Some(bytes.to_vec());
        let mut pause = Backoff::new();
        let mut tested = Instant::now();
        loop {
            let absent: Vec<usize> = (0..self.size).filter(|rank| all[*rank].is_none()).collect();
            if absent.is_empty() {
                return Ok(all.into_iter().flatten().collect());
            }
            if wait.is_over() {
                return Err(wait.absent(operation, Ranks::from_iter(absent), &self.directory.place()));
            }
            let is_test_due = tested.elapsed() >= ALIVE_TEST_TIME;
            for rank in absent {
                all[rank] = self.read(rank, operation)?;
                if is_test_due && all[rank].is_none() {
                    self.check_alive(rank, operation)?;
                }
            }
            if is_test_due {
                tested = Instant::now();
            }
            check_sum(operation, all.iter().flatten().map(Vec::len))?;
            pause.wait(wait);
        }
    }
}

impl Drop for JobMember {
    fn drop(&mut self) {
        // Nobody can be notified here. The next job removes what stays behind.
        let _ = self.leave();
    }
}

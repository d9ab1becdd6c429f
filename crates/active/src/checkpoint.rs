//! Incremental checkpoints of regions that peers write, too (PAPERS AA-11).
//!
//! Puts and atomics of peers come from the access log, writes of this process from its page tables ([`LocalWrites`]). So a checkpoint takes
//! what has changed since the one before, and nothing else.
//!
//! The checkpoints lie in a file. It survives the process at any instant: what was begun is passed over, and the last whole one is there.

mod error;

pub use error::CheckpointError;
pub use pagewire_checkpoint::{
    CheckpointInfo, CheckpointKind, Inspection, LocalWrites, MemoryError, Restored, SaveError, Saved,
    SavedMemory, Verified,
};

use crate::access::Access;
use crate::log::{AccessLog, LogOptions, Logs};
use crate::memory::Memory;
use crate::serve::Serving;
use pagewire::access_log::LoggedOperation;
use pagewire::{Node, RemoteRegion};
use pagewire_checkpoint::{PeerWrites, Saver, WrittenPages};
use pagewire_memory::fork::Owner;
use std::path::Path;

type Result<T> = std::result::Result<T, CheckpointError>;

/// Bytes of the log for each source: some thousand records.
const LOG_BYTES: usize = 256 << 10;

/// How checkpoints are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// How writes of this process are seen. `None`: in the best way that works here, and without any each save is a full copy, which a
    /// warning says.
    pub local_writes: Option<LocalWrites>,
    /// The checkpoint logs the puts to its regions, for which it sets their attributes. Else the program logs them, and notes them by
    /// [`Checkpoint::remote_writes`].
    pub logs_puts: bool,
    /// A checkpoint is on the disk when it is saved (fdatasync(2)). Else it survives the process, but not the machine.
    pub syncs: bool,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        CheckpointOptions { local_writes: None, logs_puts: true, syncs: true }
    }
}

/// A region, as it is saved.
struct AsSaved<'r>(&'r dyn Memory);

impl SavedMemory for AsSaved<'_> {
    fn address(&self) -> u64 {
        self.0.address()
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> std::result::Result<(), MemoryError> {
        Ok(self.0.copy_out(offset, bytes)?)
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) -> std::result::Result<(), MemoryError> {
        Ok(self.0.copy_in(offset, bytes)?)
    }
}

/// Tells checkpoints what peers write, for programs that log the puts to their regions themselves: give it each access of them, in the
/// handler.
#[derive(Clone)]
pub struct RemoteWrites(WrittenPages);

impl RemoteWrites {
    /// An access of a peer was logged. Those that change nothing are passed over.
    pub fn note(&self, access: &Access<'_>) {
        note(&self.0, access);
    }
}

fn note(written: &WrittenPages, access: &Access<'_>) {
    if access.operation() != LoggedOperation::Read && !access.was_refused() && !access.was_redirected() {
        written.mark(access.address(), access.length() as u64);
    }
}

/// The log of the puts to regions that are saved. `None`: the program notes what is logged.
struct LoggedPuts<'c> {
    log: Option<&'c AccessLog>,
    regions: &'c [&'c dyn Memory],
}

impl PeerWrites for LoggedPuts<'_> {
    fn begin(&self, region: usize, _: &WrittenPages) -> std::result::Result<(), SaveError> {
        match (self.log, self.regions[region].pages()) {
            (Some(log), Some(pages)) => {
                pages.log_puts().to(log).map_err(|error| SaveError::Memory(error.into()))
            }
            _ => Ok(()),
        }
    }

    fn note_all(&self, written: &WrittenPages) {
        if let Some(log) = self.log {
            log.drain(|access| note(written, &access));
        }
    }
}

/// Checkpoints of one or more regions of this process, in a file.
///
/// ```
/// # fn main() -> Result<(), pagewire_active::CheckpointError> {
/// use pagewire::{Node, Rights};
/// use pagewire_active::Checkpoint;
/// let directory = tempfile::tempdir().unwrap();
/// let path = directory.path().join("table.checkpoint");
///
/// let node = Node::alone()?;
/// let table = node.zeroed::<u64>(100 * 512)?;
/// let mut checkpoint = Checkpoint::open(&node, &path)?;
/// checkpoint.save(&table)?; // the first one is full
///
/// let remote = node.open(&table.export(Rights::all())?)?; // any process that has the token
/// remote.put_value(40 * 4096, 7u64).wait()?;
/// table.set(0, 8)?;
/// checkpoint.save(&table)?; // two pages, or few more
/// drop((checkpoint, table));
///
/// // The process ends in any way, and begins anew.
/// let table = node.zeroed::<u64>(100 * 512)?;
/// let mut checkpoint = Checkpoint::open(&node, &path)?;
/// assert_eq!(checkpoint.restore(&table)?.unwrap().number, 2);
/// assert_eq!((table.get(40 * 512)?, table.get(0)?), (7, 8));
/// # Ok(())
/// # }
/// ```
///
/// # What a save has
///
/// Puts that have ended at their callers, and writes of this process that happened before the call, are in the checkpoint. Whoever wants
/// more, so that what several processes save fits together, stops writing, flushes ([`save_together`](Self::save_together)).
/// A page that is written during the save may be there in part, and comes again with the next one. With
/// [`SoftDirty`](LocalWrites::SoftDirty) no thread of this process may write during a save: the next one could miss it.
pub struct Checkpoint {
    saver: Saver,
    /// `None`: the program notes what is logged.
    log: Option<(AccessLog, Serving)>,
    /// A region that other processes map has not been warned of yet.
    warns_of_shared: bool,
    owner: Owner,
}

impl Checkpoint {
    /// Opens a file of checkpoints, and makes it if there is none.
    ///
    /// # Errors
    /// `Busy`, `Foreign`, `Damaged`, `File`; or the log cannot be made.
    pub fn open(node: &Node, path: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::open_with(node, path, &CheckpointOptions::default())
    }

    /// Opens a file of checkpoints in some other way than the usual one.
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn open_with(node: &Node, path: impl AsRef<Path>, options: &CheckpointOptions) -> Result<Checkpoint> {
        // Before the file is made.
        node.check_owner()?;
        let method = options.local_writes.unwrap_or_else(LocalWrites::best);
        if method == LocalWrites::None {
            log::warn!(
                "each checkpoint of {} is a full copy: this kernel has neither PAGEMAP_SCAN with asynchronous write protection (Linux 6.7) \
                 nor soft-dirty bits, or the program has chosen so",
                path.as_ref().display()
            );
        }
        let saver = Saver::open(path.as_ref(), method, options.syncs)?;
        let log = match options.logs_puts {
            true => Some(log_of(node, saver.written().clone())?),
            false => None,
        };
        Ok(Checkpoint { saver, log, warns_of_shared: true, owner: Owner::this_process() })
    }

    /// Refuses a forked child: the file, the pages that are watched and the locks are its parent's.
    fn check_owner(&self) -> Result<()> {
        if self.owner.is_this_process() { Ok(()) } else { Err(pagewire::Error::Forked.into()) }
    }

    /// How writes of this process are seen.
    pub fn local_writes(&self) -> LocalWrites {
        self.saver.local_writes()
    }

    /// For a program that logs the puts itself ([`CheckpointOptions::logs_puts`]): what takes note of them.
    pub fn remote_writes(&self) -> RemoteWrites {
        RemoteWrites(self.saver.written().clone())
    }

    /// The numbers of the first and the last checkpoint that can be restored.
    pub fn numbers(&self) -> Option<(u64, u64)> {
        self.saver.numbers()
    }

    /// Saves a region.
    ///
    /// # Errors
    /// As those of [`save_all`](Self::save_all).
    pub fn save(&mut self, region: &impl Memory) -> Result<Saved> {
        self.save_all(&[region], &[])
    }

    /// Saves regions as one checkpoint, with a note of the program's own: the same regions each time, in the same order. It is full if this
    /// value has neither saved nor restored them before.
    ///
    /// # Errors
    /// `Regions`: the file has others. `File`: it could not be written; the checkpoints before stay, and what was to be saved comes with the
    /// next one. `Watch`: the kernel refused; the next save is full.
    pub fn save_all(&mut self, regions: &[&dyn Memory], note: &[u8]) -> Result<Saved> {
        self.check_owner()?;
        let puts = LoggedPuts { log: self.log.as_ref().map(|(log, _)| log), regions };
        let saved = with_saved(regions, |saved| self.saver.save(saved, note, &puts))?;
        if let Some((address, bytes)) = self.saver.shared().filter(|_| self.warns_of_shared) {
            self.warns_of_shared = false;
            log::warn!(
                "each checkpoint of the {bytes} bytes at {address:#x} has all pages: they are mapped shared (MAP_SHARED), and nobody sees \
                 what other processes write there"
            );
        }
        Ok(saved)
    }

    /// Saves regions together with all processes of a job, each of which calls this: what each process has put before the call is in the
    /// checkpoint of whom it has put to. `peers`: the regions that this process puts to.
    ///
    /// 1. The handlers of the peers have returned for all that this process has put (active flush).
    /// 2. All processes have come so far (barrier).
    /// 3. Each saves.
    /// 4. All have saved (barrier): nobody writes before.
    ///
    /// # Errors
    /// As those of [`save_all`](Self::save_all), of a flush and of a barrier; `Others`: another process could not. If any process has an error, all
    /// have one. Then [restore](Self::restore_together) before the next save: what those have saved that could is of no use to the others.
    pub fn save_together(
        &mut self,
        node: &Node,
        peers: &[&RemoteRegion],
        regions: &[&dyn Memory],
        note: &[u8],
    ) -> Result<Saved> {
        self.check_owner()?;
        let flush = |peer: &&RemoteRegion| -> Result<()> {
            peer.flush()?;
            peer.flush_handled(None).wait()?;
            Ok(())
        };
        together(node, peers.iter().try_for_each(flush))?;
        together(node, self.save_all(regions, note))
    }

    /// Restores a region from the last checkpoint. `None`: there is none, and nothing is changed. Nobody else may use the region meanwhile.
    ///
    /// # Errors
    /// As those of [`restore_all`](Self::restore_all).
    pub fn restore(&mut self, region: &impl Memory) -> Result<Option<Restored>> {
        self.check_owner()?;
        match self.numbers() {
            Some((_, last)) => self.restore_all(last, &[region]).map(Some),
            None => Ok(None),
        }
    }

    /// Restores regions from a checkpoint: the same as were saved, in the same order. All data are compared with their checksums before
    /// anything is changed. Later checkpoints are forgotten by the next save.
    ///
    /// # Errors
    /// `NoSuchNumber`, `Regions`, `Damaged`, `File`: nothing was changed. `Watch`: the next save is full.
    pub fn restore_all(&mut self, number: u64, regions: &[&dyn Memory]) -> Result<Restored> {
        self.check_owner()?;
        let puts = LoggedPuts { log: self.log.as_ref().map(|(log, _)| log), regions };
        with_saved(regions, |saved| Ok(self.saver.restore(number, saved, &puts)?))
    }

    /// Restores regions together with all processes of a job, each of which calls this, from the last checkpoint that all have. `None`: they
    /// have none in common, and nothing is changed.
    ///
    /// # Errors
    /// As those of [`restore_all`](Self::restore_all), and of an exchange between all processes.
    pub fn restore_together(&mut self, node: &Node, regions: &[&dyn Memory]) -> Result<Option<Restored>> {
        self.check_owner()?;
        let (first, last) = self.numbers().unwrap_or((u64::MAX, 0));
        let all = node.all_gather_bytes(&[first.to_le_bytes(), last.to_le_bytes()].concat())?;
        let number_at = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        let first = all.iter().map(|bytes| number_at(bytes, 0)).max().unwrap_or(u64::MAX);
        let last = all.iter().map(|bytes| number_at(bytes, 8)).min().unwrap_or(0);
        let restored = if first <= last { self.restore_all(last, regions).map(Some) } else { Ok(None) };
        node.barrier()?;
        restored
    }
}

/// A log of puts, which a thread notes.
fn log_of(node: &Node, written: WrittenPages) -> Result<(AccessLog, Serving)> {
    // The order of writes is of no importance.
    let log = node.access_log_with(&LogOptions { is_ordered: false, ..LogOptions::new(LOG_BYTES) })?;
    let serving = log.serve(move |access| note(&written, &access))?;
    Ok((log, serving))
}

/// Calls with regions as they are saved.
fn with_saved<T>(regions: &[&dyn Memory], call: impl FnOnce(&[&dyn SavedMemory]) -> T) -> T {
    let regions: Vec<AsSaved<'_>> = regions.iter().map(|region| AsSaved(*region)).collect();
    let regions: Vec<&dyn SavedMemory> = regions.iter().map(|region| region as _).collect();
    call(&regions)
}

/// The outcome of this process, if that is an error or all processes have none. Waits for all.
fn together<T>(node: &Node, outcome: Result<T>) -> Result<T> {
    let all = node.all_gather_bytes(&[u8::from(outcome.is_ok())])?;
    let value = outcome?;
    let failed: Vec<usize> = (0..all.len()).filter(|rank| all[*rank] != [1]).collect();
    if failed.is_empty() { Ok(value) } else { Err(CheckpointError::Others { ranks: failed }) }
}

//! Incremental checkpoints of regions that peers write, too (PAPERS AA-11).
//!
//! Puts and atomics of peers come from the access log, writes of this process from its page tables ([`LocalWrites`]). So a checkpoint takes
//! what has changed since the one before, and nothing else.
//!
//! The checkpoints lie in a file. It survives the process at any instant: what was begun is passed over, and the last whole one is there.

mod error;
mod file;
mod format;
mod inspect;
mod tracker;

pub use error::CheckpointError;
pub use format::SegmentKind as CheckpointKind;
pub use inspect::{CheckpointInfo, Inspection};
pub use tracker::RemoteWrites;

use crate::memory::Memory;
use file::{BATCH, CheckpointFile, Slots, give_but_zeros};
use format::{PAGE, SegmentKind};
use pagewire::{Node, RemoteRegion};
pub use pagewire_memory::DirtyMethod as LocalWrites;
use std::path::Path;
use tracker::{Tracker, runs};

type Result<T> = std::result::Result<T, CheckpointError>;

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

/// What was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// The number of the checkpoint: one more than that of the one before.
    pub number: u64,
    /// Whether it has all pages.
    pub kind: CheckpointKind,
    /// Pages of data in it.
    pub pages: u64,
}

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The number of the checkpoint.
    pub number: u64,
    /// What the program had saved beside the regions: see [`Checkpoint::save_all`].
    pub note: Vec<u8>,
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
    file: CheckpointFile,
    tracker: Tracker,
    /// The checkpoint that the watched pages differ from by what the tracker says. `None`: nobody knows what they differ in.
    base: Option<u64>,
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
        let file = CheckpointFile::open(path.as_ref(), options.syncs)?;
        file.sync_directory()?;
        if file.torn() > 0 {
            log::warn!(
                "{}: {} bytes behind the last whole checkpoint are passed over",
                file.path().display(),
                file.torn()
            );
        }
        let method = options.local_writes.unwrap_or_else(LocalWrites::best);
        if method == LocalWrites::None {
            log::warn!(
                "each checkpoint of {} is a full copy: this kernel has neither PAGEMAP_SCAN with asynchronous write protection (Linux 6.7) \
                 nor soft-dirty bits",
                file.path().display()
            );
        }
        let tracker = Tracker::new(node, method, options.logs_puts)?;
        Ok(Checkpoint { file, tracker, base: None })
    }

    /// How writes of this process are seen.
    pub fn local_writes(&self) -> LocalWrites {
        self.tracker.method()
    }

    /// For a program that logs the puts itself ([`CheckpointOptions::logs_puts`]): what takes note of them.
    pub fn remote_writes(&self) -> RemoteWrites {
        self.tracker.remote_writes().clone()
    }

    /// The numbers of the first and the last checkpoint that can be restored.
    pub fn numbers(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.file.segments().first()?, self.file.segments().last()?);
        Some((first.header.number, last.header.number))
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
        let lengths = self.check(regions)?;
        if !self.tracker.watches(regions) {
            self.base = None;
        }
        let base = self.base;
        match base {
            Some(base) => self.file.roll_back(base)?,
            None => self.tracker.watch(regions)?,
        }
        // Without space for another file this one still has some for what has changed.
        if let Err(error) = self.file.compact_if_worth() {
            log::warn!("the file stays longer than it needs to be: {error}");
        }
        // If the kernel does not tell, nobody knows what differs.
        self.base = None;
        self.tracker.look()?;
        // What is dirty still is if this fails.
        self.base = base;
        let all: u64 = lengths.iter().map(|bytes| bytes.div_ceil(PAGE as u64)).sum();
        let dirty: u64 = (0..regions.len()).map(|region| count(self.tracker.dirty(region))).sum();
        let kind = if base.is_none() || dirty >= all { SegmentKind::Full } else { SegmentKind::Incremental };
        let tracker = &self.tracker;
        let number = self.file.append(kind, &lengths, note, &mut |slots, sink| {
            let mut buffer = vec![0; BATCH * PAGE];
            for (index, region) in regions.iter().enumerate() {
                let pages = lengths[index].div_ceil(PAGE as u64);
                let copy = Copy { region: *region, index: index as u32, slots, buffer: &mut buffer };
                match kind {
                    SegmentKind::Full => copy.all(pages, sink)?,
                    SegmentKind::Incremental => copy.runs(runs(tracker.dirty(index), pages), sink)?,
                }
            }
            Ok(())
        })?;
        self.tracker.saved();
        self.base = Some(number);
        let pages = self.file.segments().last().map_or(0, |segment| segment.header.pages);
        Ok(Saved { number, kind, pages })
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
        let position = self.file.position(number)?;
        let note = self.file.note(number)?;
        self.check(regions)?;
        let slots = self.file.slots_of(position + 1)?;
        for slots in &slots {
            self.file.read_slots(slots, &mut |_, _| Ok(()))?;
        }
        self.base = None;
        for (region, slots) in regions.iter().zip(&slots) {
            self.file.read_slots(slots, &mut |first, pages| Ok(put_back(*region, first, pages)?))?;
        }
        // From here on it is known what differs.
        self.tracker.watch(regions)?;
        self.base = Some(number);
        Ok(Restored { number, note })
    }

    /// Restores regions together with all processes of a job, each of which calls this, from the last checkpoint that all have. `None`: they
    /// have none in common, and nothing is changed.
    ///
    /// # Errors
    /// As those of [`restore_all`](Self::restore_all), and of an exchange between all processes.
    pub fn restore_together(&mut self, node: &Node, regions: &[&dyn Memory]) -> Result<Option<Restored>> {
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

    fn check(&self, regions: &[&dyn Memory]) -> Result<Vec<u64>> {
        let lengths: Vec<u64> = regions.iter().map(|region| region.bytes()).collect();
        self.file.check_regions(&lengths)?;
        Ok(lengths)
    }
}

/// The outcome of this process, if that is an error or all processes have none. Waits for all.
fn together<T>(node: &Node, outcome: Result<T>) -> Result<T> {
    let all = node.all_gather_bytes(&[u8::from(outcome.is_ok())])?;
    let value = outcome?;
    let failed: Vec<usize> = (0..all.len()).filter(|rank| all[*rank] != [1]).collect();
    if failed.is_empty() { Ok(value) } else { Err(CheckpointError::Others { ranks: failed }) }
}

fn count(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Puts pages back, if they are others: memory that was never touched, and is zeros, stays so. The last one may be cut by the end.
fn put_back(region: &dyn Memory, first: u64, pages: &[u8]) -> pagewire::Result<()> {
    let start = first * PAGE as u64;
    let length = (region.bytes() - start).min(pages.len() as u64) as usize;
    let mut there = vec![0; length];
    region.copy_out(start, &mut there)?;
    if there == pages[..length] {
        return Ok(());
    }
    region.copy_in(start, &pages[..length])
}

/// Copies pages of a region to a file.
struct Copy<'c> {
    region: &'c dyn Memory,
    index: u32,
    /// Of all regions.
    slots: &'c Slots,
    buffer: &'c mut [u8],
}

impl Copy<'_> {
    fn all(self, pages: u64, sink: &mut file::PageSink<'_>) -> Result<()> {
        for first in (0..pages).step_by(BATCH) {
            let count = (pages - first).min(BATCH as u64);
            read(self.region, first, count, self.buffer)?;
            give_but_zeros(self.index, first, &self.buffer[..count as usize * PAGE], sink)?;
        }
        Ok(())
    }

    fn runs(
        self,
        runs: impl Iterator<Item = std::ops::Range<u64>>,
        sink: &mut file::PageSink<'_>,
    ) -> Result<()> {
        let slots = self.slots.get(self.index as usize).map_or(&[][..], Vec::as_slice);
        for run in runs {
            for first in run.clone().step_by(BATCH) {
                let count = (run.end - first).min(BATCH as u64);
                read(self.region, first, count, self.buffer)?;
                let pages = &self.buffer[..count as usize * PAGE];
                let was_zeros = slots.get(first as usize..(first + count) as usize);
                match was_zeros.is_some_and(|slots| slots.iter().all(|slot| slot.at == 0)) {
                    // What was zeros, and is, need not be saved.
                    true => give_but_zeros(self.index, first, pages, sink)?,
                    false => sink(self.index, first, pages)?,
                }
            }
        }
        Ok(())
    }
}

/// Reads whole pages of a region, the last of which may be cut by its end: zeros follow.
fn read(region: &dyn Memory, first: u64, count: u64, buffer: &mut [u8]) -> Result<()> {
    let start = first * PAGE as u64;
    let wanted = count as usize * PAGE;
    let length = (region.bytes() - start).min(wanted as u64) as usize;
    region.copy_out(start, &mut buffer[..length])?;
    buffer[length..wanted].fill(0);
    Ok(())
}

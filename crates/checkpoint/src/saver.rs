//! Saving memory to a file of checkpoints, and restoring it.

use crate::error::{MemoryError, SaveError};
use crate::file::{BATCH, CheckpointFile, PageSink, PageSlots, emit_nonzero_pages};
use crate::format::{PAGE, SegmentKind};
use crate::written::{Tracker, WrittenPages, runs};
use pagewire_memory::DirtyMethod;
use std::path::Path;

type Result<T> = std::result::Result<T, SaveError>;

/// Memory that can be saved and restored.
pub trait SavedMemory {
    /// The address of its first byte.
    fn address(&self) -> u64;
    /// Bytes in it.
    fn bytes(&self) -> u64;
    /// Copies bytes out.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> std::result::Result<(), MemoryError>;
    /// Copies bytes in.
    ///
    /// # Errors
    /// Why they cannot be written.
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> std::result::Result<(), MemoryError>;
}

/// Who knows what peers write.
pub trait PeerWrites {
    /// From here on all that peers write to a region is to be known: `region` is its place among those that are saved. What is known may be noted
    /// at any time from now on, or when [`note_all`](Self::note_all) asks for it.
    ///
    /// # Errors
    /// Why it is not.
    fn begin(&self, region: usize, written: &WrittenPages) -> Result<()>;
    /// Notes all that had ended before this call.
    fn note_all(&self, written: &WrittenPages);
}

/// Nobody but this process writes, or somebody notes it by [`Saver::written`].
#[derive(Debug, Clone, Copy)]
pub struct NoPeers;

impl PeerWrites for NoPeers {
    fn begin(&self, _: usize, _: &WrittenPages) -> Result<()> {
        Ok(())
    }

    fn note_all(&self, _: &WrittenPages) {}
}

/// What was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// The number of the checkpoint: one more than that of the one before.
    pub number: u64,
    /// Whether it has all pages.
    pub kind: SegmentKind,
    /// Pages of data in it.
    pub pages: u64,
}

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The number of the checkpoint.
    pub number: u64,
    /// What the program had saved beside the regions.
    pub note: Vec<u8>,
}

/// A file of checkpoints that is open to save, and the watch for what has changed.
pub struct Saver {
    file: CheckpointFile,
    tracker: Tracker,
    /// The checkpoint that the watched pages differ from by what the tracker says. `None`: nobody knows what they differ in.
    base: Option<u64>,
}

impl Saver {
    /// Opens a file of checkpoints, and makes it if there is none. `syncs`: a checkpoint is on the disk when it is saved. With
    /// [`DirtyMethod::None`] each save is a full copy, of which the caller tells.
    ///
    /// # Errors
    /// `Busy`, `Foreign`, `Damaged`, `File`.
    pub fn open(path: &Path, method: DirtyMethod, syncs: bool) -> Result<Saver> {
        let file = CheckpointFile::open(path, syncs)?;
        file.sync_directory()?;
        Ok(Saver::of(file, method))
    }

    /// Opens a file of checkpoints that is there.
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn open_existing(path: &Path, method: DirtyMethod, syncs: bool) -> Result<Saver> {
        Ok(Saver::of(CheckpointFile::open_existing(path, syncs)?, method))
    }

    fn of(file: CheckpointFile, method: DirtyMethod) -> Saver {
        if file.torn() > 0 {
            log::warn!(
                "{}: {} bytes behind the last whole checkpoint are passed over",
                file.path().display(),
                file.torn()
            );
        }
        Saver { file, tracker: Tracker::new(method), base: None }
    }

    /// How writes of this process are seen.
    pub fn local_writes(&self) -> DirtyMethod {
        self.tracker.method()
    }

    /// Address and length of a region whose memory other processes map, too (MAP_SHARED): nobody sees what they write, so that each of its
    /// pages is saved each time.
    pub fn shared(&self) -> Option<(u64, u64)> {
        self.tracker.shared()
    }

    /// Refuses regions of other lengths than those that the file has, and a number that it does not have.
    ///
    /// # Errors
    /// `Regions`, `NoSuchNumber`.
    pub fn check_restore(&self, number: u64, lengths: &[u64]) -> Result<()> {
        self.file.position(number)?;
        self.file.check_regions(lengths)
    }

    /// Refuses regions of other lengths than those that the file has.
    ///
    /// # Errors
    /// `Regions`.
    pub fn check_regions(&self, lengths: &[u64]) -> Result<()> {
        self.file.check_regions(lengths)
    }

    /// What takes note of what peers write.
    pub fn written(&self) -> &WrittenPages {
        self.tracker.written()
    }

    /// The numbers of the first and the last checkpoint that can be restored.
    pub fn numbers(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.file.segments().first()?, self.file.segments().last()?);
        Some((first.header.number, last.header.number))
    }

    /// Saves regions as one checkpoint, with a note: the same regions each time, in the same order. It is full if this value has neither
    /// saved nor restored them before.
    ///
    /// # Errors
    /// `Regions`: the file has others. `File`, `Memory`: it could not be written, or read; the checkpoints before stay, and what was to be saved
    /// comes with the next one. `Watch`: the kernel refused; the next save is full.
    pub fn save(
        &mut self,
        regions: &[&dyn SavedMemory],
        note: &[u8],
        peers: &dyn PeerWrites,
    ) -> Result<Saved> {
        let lengths = self.check(regions)?;
        if !self.tracker.watches(regions) {
            self.base = None;
        }
        let base = self.base;
        match base {
            Some(base) => self.file.roll_back(base)?,
            None => self.tracker.watch(regions, peers)?,
        }
        // Without space for another file this one still has some for what has changed.
        if let Err(error) = self.file.compact_if_worth() {
            log::warn!("the file stays longer than it needs to be: {error}");
        }
        // If the kernel does not tell, nobody knows what differs.
        self.base = None;
        self.tracker.look(peers)?;
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
                let copy = RegionCopy { region: *region, index: index as u32, slots, buffer: &mut buffer };
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

    /// Restores regions from a checkpoint: the same as were saved, in the same order. All data are compared with their checksums before
    /// anything is changed. Later checkpoints are forgotten by the next save.
    ///
    /// # Errors
    /// `NoSuchNumber`, `Regions`, `Damaged`, `File`: nothing was changed. `Memory`: it is changed in part. `Watch`: the next save is full.
    pub fn restore(
        &mut self,
        number: u64,
        regions: &[&dyn SavedMemory],
        peers: &dyn PeerWrites,
    ) -> Result<Restored> {
        self.check(regions)?;
        let (note, slots) = verified(&self.file, number)?;
        self.base = None;
        put_back_all(&self.file, &slots, regions)?;
        // From here on it is known what differs.
        self.tracker.watch(regions, peers)?;
        self.base = Some(number);
        Ok(Restored { number, note })
    }

    fn check(&self, regions: &[&dyn SavedMemory]) -> Result<Vec<u64>> {
        let lengths: Vec<u64> = regions.iter().map(|region| region.bytes()).collect();
        self.file.check_regions(&lengths)?;
        Ok(lengths)
    }
}

/// The note of a checkpoint, and where its data are, which were compared with their checksums. The lengths of the regions were checked before.
pub(crate) fn verified(file: &CheckpointFile, number: u64) -> Result<(Vec<u8>, PageSlots)> {
    let position = file.position(number)?;
    let note = file.note(number)?;
    let slots = file.slots_of(position + 1)?;
    for slots in &slots {
        file.read_slots(slots, &mut |_, _| Ok(()))?;
    }
    Ok((note, slots))
}

/// Puts data back into regions whose lengths are right.
pub(crate) fn put_back_all(
    file: &CheckpointFile,
    slots: &PageSlots,
    regions: &[&dyn SavedMemory],
) -> Result<()> {
    for (region, slots) in regions.iter().zip(slots) {
        file.read_slots(slots, &mut |first, pages| put_back(*region, first, pages))?;
    }
    Ok(())
}

fn count(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Puts pages back, if they are others: memory that was never touched, and is zeros, stays so. The last one may be cut by the end.
fn put_back(region: &dyn SavedMemory, first: u64, pages: &[u8]) -> Result<()> {
    let start = first * PAGE as u64;
    let length = (region.bytes() - start).min(pages.len() as u64) as usize;
    let mut there = vec![0; length];
    region.copy_out(start, &mut there)?;
    if there == pages[..length] {
        return Ok(());
    }
    Ok(region.copy_in(start, &pages[..length])?)
}

/// Copies pages of a region to a file.
struct RegionCopy<'c> {
    region: &'c dyn SavedMemory,
    index: u32,
    /// Of all regions.
    slots: &'c PageSlots,
    buffer: &'c mut [u8],
}

impl RegionCopy<'_> {
    fn all(self, pages: u64, sink: &mut PageSink<'_>) -> Result<()> {
        for first in (0..pages).step_by(BATCH) {
            let count = (pages - first).min(BATCH as u64);
            read(self.region, first, count, self.buffer)?;
            emit_nonzero_pages(self.index, first, &self.buffer[..count as usize * PAGE], sink)?;
        }
        Ok(())
    }

    fn runs(self, runs: impl Iterator<Item = std::ops::Range<u64>>, sink: &mut PageSink<'_>) -> Result<()> {
        let slots = self.slots.get(self.index as usize).map_or(&[][..], Vec::as_slice);
        for run in runs {
            for first in run.clone().step_by(BATCH) {
                let count = (run.end - first).min(BATCH as u64);
                read(self.region, first, count, self.buffer)?;
                let pages = &self.buffer[..count as usize * PAGE];
                let was_zeros = slots.get(first as usize..(first + count) as usize);
                match was_zeros.is_some_and(|slots| slots.iter().all(|slot| slot.at == 0)) {
                    // What was zeros, and is, need not be saved.
                    true => emit_nonzero_pages(self.index, first, pages, sink)?,
                    false => sink(self.index, first, pages)?,
                }
            }
        }
        Ok(())
    }
}

/// Reads whole pages of a region, the last of which may be cut by its end: zeros follow.
fn read(region: &dyn SavedMemory, first: u64, count: u64, buffer: &mut [u8]) -> Result<()> {
    let start = first * PAGE as u64;
    let wanted = count as usize * PAGE;
    let length = (region.bytes() - start).min(wanted as u64) as usize;
    region.copy_out(start, &mut buffer[..length])?;
    buffer[length..wanted].fill(0);
    Ok(())
}

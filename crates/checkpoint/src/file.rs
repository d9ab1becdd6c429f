//! A checkpoint file: it is appended to, and made anew when half of it is out of date.
//!
//! Whatever instant a process is killed at, the last whole checkpoint stays. A segment counts when its commit record and its header, which
//! is written last, are there. What was begun behind it is cut off by the next save. A new file takes the place of the old one by rename(2).

use crate::error::SaveError;
use crate::format::{
    BYTES, IndexEntry, MAGIC, NOTE, NoHeader, PAGE, REGIONS, SegmentCommit, SegmentHeader, SegmentKind,
};
use pagewire_memory::fork::{self, KeptFromChildren};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A pipe that nobody writes to is not waited for.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

/// Pages that are copied at once.
pub const BATCH: usize = 256;

/// Pages out of date from which on a file may be made anew.
const LEAST_GARBAGE: u64 = 512;

type Result<T> = std::result::Result<T, SaveError>;

/// A checkpoint of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSegment {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    pub header: SegmentHeader,
}

/// Where the newest data of a page are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageSlot {
    /// The offset in the file. 0: the page is zeros.
    pub at: u64,
    pub checksum: u32,
}

/// The newest data of all pages: of each region, of each page.
pub type PageSlots = Vec<Vec<PageSlot>>;

/// A file of checkpoints.
pub struct CheckpointFile {
    path: PathBuf,
    /// A child would have the lock, too, and longer than this process. Ends before the file is closed.
    _kept: KeptFromChildren,
    file: File,
    /// By number, each one more than the one before. The first is full.
    segments: Vec<CheckpointSegment>,
    /// Bytes behind the last whole segment: of one whose writer was killed.
    torn: u64,
    /// Identity of the file.
    id: u64,
    /// Those of the last segment. `None`: they were not asked for yet.
    slots: Option<PageSlots>,
    syncs: bool,
    /// Of the process that has opened it.
    generation: u64,
}

impl Drop for CheckpointFile {
    fn drop(&mut self) {
        // A child that was forked meanwhile has the same lock.
        if self.generation == fork::generation()
            && let Err(error) = flock(&self.file, FlockOperation::Unlock)
        {
            log::debug!("{} stays locked: {error}", self.path.display());
        }
    }
}

/// Gives the pages of a segment to a sink; it gets where the newest data before are.
pub type Fill<'f> = dyn FnMut(&PageSlots, &mut PageSink<'_>) -> Result<()> + 'f;

/// Pages of a segment, as they are given to be written: region, first page, and bytes of whole pages.
pub type PageSink<'s> = dyn FnMut(u32, u64, &[u8]) -> Result<()> + 's;

impl CheckpointFile {
    /// Opens a file to save and restore; makes it if there is none. `syncs`: what is saved is on the disk when `append` returns.
    pub fn open(path: &Path, syncs: bool) -> Result<CheckpointFile> {
        let file = locked(OpenOptions::new().create(true).truncate(false), path)?;
        if file.metadata().map_err(failed("cannot look at", path))?.len() == 0 {
            // From now on it is seen whose it is: the header of the first checkpoint is written last.
            file.write_all_at(&MAGIC, 0).map_err(failed("cannot write", path))?;
        }
        CheckpointFile::scan(path, file, syncs)
    }

    /// Opens a file that is there, as [`open`](Self::open) does.
    pub fn open_existing(path: &Path, syncs: bool) -> Result<CheckpointFile> {
        CheckpointFile::scan(path, locked(&mut OpenOptions::new(), path)?, syncs)
    }

    /// Opens a file to look at it. Who saves to it is not disturbed.
    pub fn open_to_read(path: &Path) -> Result<CheckpointFile> {
        let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path);
        let file = file.map_err(failed("cannot open the checkpoint file", path))?;
        let this = CheckpointFile::scan(path, regular(file, path)?, false)?;
        if this.length()? == 0 { this.foreign("it is empty") } else { Ok(this) }
    }

    fn scan(path: &Path, file: File, syncs: bool) -> Result<CheckpointFile> {
        let id = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let mut this = CheckpointFile {
            path: path.to_owned(),
            _kept: KeptFromChildren::new(file.as_fd()),
            file,
            segments: vec![],
            torn: 0,
            id,
            slots: None,
            syncs,
            generation: fork::generation(),
        };
        let length = this.length()?;
        while let Some(segment) = this.segment_at(this.end(), length)? {
            this.id = segment.header.file;
            this.segments.push(segment);
        }
        // Only the last one may be torn without a trace in its commit record: a machine that stops writes pages in any order.
        if let Some(last) = this.segments.last().cloned()
            && this.first_bad_page(&last)?.is_some()
        {
            this.segments.pop();
        }
        let begun = if this.segments.is_empty() { length.min(MAGIC.len() as u64) } else { 0 };
        this.torn = length - this.end() - begun;
        this.refuse_damage(length)?;
        Ok(this)
    }

    /// The segment that begins at an offset. `None`: there is none that is whole.
    fn segment_at(&self, start: u64, length: u64) -> Result<Option<CheckpointSegment>> {
        let mut page = [0; PAGE];
        let there = (length - start).min(PAGE as u64) as usize;
        if there == 0 || there < PAGE && start > 0 {
            return Ok(None);
        }
        self.read(start, &mut page[..there])?;
        let header = match SegmentHeader::parse(&page) {
            Ok(header) => header,
            // A version that this program does not know is somebody's data.
            Err(NoHeader::Version) => return self.foreign("its version is another one"),
            Err(NoHeader::Magic) if start == 0 && page.iter().all(|byte| *byte == 0) => {
                return self.foreign("it begins with zeros");
            }
            Err(NoHeader::Magic) if start == 0 => return self.foreign("it begins otherwise"),
            Err(_) => return Ok(None),
        };
        let end = header.segment_length().and_then(|bytes| start.checked_add(bytes));
        let Some(end) = end.filter(|end| *end <= length) else { return Ok(None) };
        let follows = match self.segments.last() {
            None => header.kind == SegmentKind::Full,
            Some(CheckpointSegment { header: last, .. }) => {
                header.file == last.file && header.number == last.number + 1 && header.regions == last.regions
            }
        };
        let segment = CheckpointSegment { start, end, header };
        let is_whole = follows && self.is_committed(&segment, SegmentHeader::checksum(&page))?;
        Ok(is_whole.then_some(segment))
    }

    fn is_committed(&self, segment: &CheckpointSegment, header: u32) -> Result<bool> {
        let tail = self.tail(segment)?;
        let (rest, commit) = tail.split_at(tail.len() - size_of::<SegmentCommit>());
        let expected = SegmentCommit::new(segment.header.number, header, crc32fast::hash(rest));
        Ok(commit == expected.as_bytes())
    }

    /// What stands behind the data of a segment.
    fn tail(&self, segment: &CheckpointSegment) -> Result<Vec<u8>> {
        let length = segment.header.tail_length().unwrap_or_default();
        let mut tail = vec![0; length as usize];
        self.read(segment.end - length, &mut tail)?;
        Ok(tail)
    }

    fn index(&self, segment: &CheckpointSegment) -> Result<Vec<IndexEntry>> {
        let tail = self.tail(segment)?;
        let count = segment.header.pages as usize;
        match <[IndexEntry]>::ref_from_prefix_with_elems(&tail, count) {
            Ok((index, _)) => Ok(index.to_vec()),
            Err(_) => Err(self.damaged(segment.start, 0)),
        }
    }

    /// A segment behind the last whole one would never have been begun before that one's end: then the file is damaged, and not torn.
    fn refuse_damage(&self, length: u64) -> Result<()> {
        let mut page = [0; PAGE];
        let mut start = self.end() + PAGE as u64;
        while length.saturating_sub(start) >= PAGE as u64 {
            self.read(start, &mut page)?;
            if let Ok(header) = SegmentHeader::parse(&page)
                && (self.segments.is_empty() || header.file == self.id)
                && let Some(end) = header.segment_length().and_then(|bytes| start.checked_add(bytes))
                && end <= length
                && self
                    .is_committed(&CheckpointSegment { start, end, header }, SegmentHeader::checksum(&page))?
            {
                return Err(self.damaged(self.end(), self.segments.len()));
            }
            start += PAGE as u64;
        }
        Ok(())
    }

    /// `whole`: so many segments are.
    fn damaged(&self, at: u64, whole: usize) -> SaveError {
        let whole = self.segments[..whole].last().map(|segment| (segment.header.number, segment.end));
        SaveError::Damaged { path: self.path.clone(), at, whole }
    }

    /// The first page of a segment whose data are not what was written: its offset in the file.
    fn first_bad_page(&self, segment: &CheckpointSegment) -> Result<Option<u64>> {
        let mut first = None;
        self.look_at_pages(segment, &mut |at, _, is_good| {
            first = first.or((!is_good).then_some(at));
            first.is_none()
        })?;
        Ok(first)
    }

    /// Compares the pages of a segment with their checksums: tells the offset of each, which page it is, and whether it is what was written.
    /// Goes on as long as that gives true.
    fn look_at_pages(
        &self,
        segment: &CheckpointSegment,
        tell: &mut dyn FnMut(u64, &IndexEntry, bool) -> bool,
    ) -> Result<()> {
        let mut pages = vec![0; BATCH * PAGE];
        let mut at = segment.start + PAGE as u64;
        for entries in self.index(segment)?.chunks(BATCH) {
            let pages = &mut pages[..entries.len() * PAGE];
            self.read(at, pages)?;
            for (entry, page) in entries.iter().zip(pages.chunks_exact(PAGE)) {
                let is_good =
                    self.names_page(segment, entry) && crc32fast::hash(page) == entry.checksum.get();
                if !tell(at, entry, is_good) {
                    return Ok(());
                }
                at += PAGE as u64;
            }
        }
        Ok(())
    }

    fn names_page(&self, segment: &CheckpointSegment, entry: &IndexEntry) -> bool {
        let bytes = segment.header.regions.get(entry.region.get() as usize);
        bytes.is_some_and(|bytes| entry.page.get() < bytes.div_ceil(PAGE as u64))
    }

    /// The newest data of all pages, for who knows that the lengths of the regions are right: see [`check_regions`](Self::check_regions).
    fn slots(&mut self) -> Result<&PageSlots> {
        let slots = match self.slots.take() {
            Some(slots) => slots,
            None => self.slots_of(self.segments.len())?,
        };
        Ok(self.slots.insert(slots))
    }

    /// Refuses regions of other lengths than those that the file has.
    pub fn check_regions(&self, given: &[u64]) -> Result<()> {
        match self.segments.last().map(|segment| &segment.header.regions) {
            Some(file) if file != given => {
                Err(SaveError::Regions { path: self.path.clone(), file: file.clone(), given: given.to_vec() })
            }
            _ => Ok(()),
        }
    }

    /// The newest data of all pages in the first so many segments, for regions whose lengths are right.
    pub fn slots_of(&self, segments: usize) -> Result<PageSlots> {
        let segments = &self.segments[..segments];
        let first = segments.iter().rposition(|segment| segment.header.kind == SegmentKind::Full);
        let mut slots = PageSlots::new();
        for segment in &segments[first.unwrap_or_default()..] {
            if segment.header.kind == SegmentKind::Full {
                slots = self.empty_slots(&segment.header.regions)?;
            }
            for (count, entry) in self.index(segment)?.iter().enumerate() {
                let at = segment.start + (count as u64 + 1) * PAGE as u64;
                let region = slots.get_mut(entry.region.get() as usize);
                match region.and_then(|region| region.get_mut(entry.page.get() as usize)) {
                    Some(slot) => *slot = PageSlot { at, checksum: entry.checksum.get() },
                    None => return Err(self.damaged(segment.start, 0)),
                }
            }
        }
        Ok(slots)
    }

    fn empty_slots(&self, regions: &[u64]) -> Result<PageSlots> {
        let empty = |bytes: &u64| {
            let (mut slots, pages) = (Vec::new(), bytes.div_ceil(PAGE as u64) as usize);
            slots.try_reserve_exact(pages).map_err(|_| {
                failed("there is no memory for the index of", &self.path)(io::ErrorKind::OutOfMemory.into())
            })?;
            slots.resize(pages, PageSlot::default());
            Ok(slots)
        };
        regions.iter().map(empty).collect()
    }

    /// Gives the data of slots, verified: first page of a run, and its bytes. Runs of zeros are given, too.
    pub fn read_slots(
        &self,
        region: &[PageSlot],
        give: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut pages = vec![0; BATCH * PAGE];
        let mut first = 0;
        while first < region.len() {
            let run = run_at(&region[first..]);
            let (slots, pages) = (&region[first..first + run], &mut pages[..run * PAGE]);
            match slots[0].at {
                0 => pages.fill(0),
                at => self.read(at, pages)?,
            }
            for (slot, page) in slots.iter().zip(pages.chunks_exact(PAGE)).filter(|(slot, _)| slot.at != 0) {
                if crc32fast::hash(page) != slot.checksum {
                    let before = self.segments.partition_point(|segment| segment.end <= slot.at);
                    return Err(self.damaged(slot.at, before));
                }
            }
            give(first as u64, pages)?;
            first += run;
        }
        Ok(())
    }

    /// Appends a checkpoint of regions whose lengths were checked, and gives its number. `fill` gives the pages to the sink. If it fails,
    /// the file has what it had.
    pub fn append(
        &mut self,
        kind: SegmentKind,
        regions: &[u64],
        note: &[u8],
        fill: &mut Fill<'_>,
    ) -> Result<u64> {
        if regions.len() > REGIONS {
            return Err(SaveError::Limit { what: "regions", most: REGIONS });
        }
        if regions.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes)) > BYTES {
            return Err(SaveError::Limit { what: "bytes of regions", most: BYTES as usize });
        }
        if note.len() > NOTE {
            return Err(SaveError::Limit { what: "bytes of a note", most: NOTE });
        }
        let number = self.last_number().unwrap_or(0) + 1;
        let (start, mut at) = (self.end(), self.end() + PAGE as u64);
        // What a killed process has begun. Mostly there is nothing, and the disk would have more to write.
        let kept = if start == 0 { MAGIC.len() as u64 } else { start };
        if self.length()? != kept {
            self.file.set_len(kept).map_err(failed("cannot shorten", &self.path))?;
        }
        if start == 0 {
            // Whoever looks before the header is there sees that these are no other data.
            self.write(0, &MAGIC)?;
        }
        let mut index: Vec<IndexEntry> = Vec::new();
        self.slots()?;
        let slots = self.slots.take().unwrap_or_default();
        let filled = fill(&slots, &mut |region, first, pages| {
            self.write(at, pages)?;
            at += pages.len() as u64;
            index.extend(pages.chunks_exact(PAGE).zip(first..).map(|(bytes, page)| IndexEntry {
                region: region.into(),
                checksum: crc32fast::hash(bytes).into(),
                page: page.into(),
            }));
            Ok(())
        });
        self.slots = Some(slots);
        filled?;
        let (pages, note_length) = (index.len() as u64, note.len() as u32);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let regions = regions.to_vec();
        let header = SegmentHeader { file: self.id, number, kind, pages, note: note_length, time, regions };
        let end = self.commit(start, &header, &index, note)?;
        self.apply(start, kind, &header.regions, &index);
        self.segments.push(CheckpointSegment { start, end, header });
        self.torn = 0;
        Ok(number)
    }

    /// Writes the tail and then the header of a segment; gives its end.
    fn commit(&self, start: u64, header: &SegmentHeader, index: &[IndexEntry], note: &[u8]) -> Result<u64> {
        let page = header.to_page();
        let mut tail = index.as_bytes().to_vec();
        tail.extend_from_slice(note);
        let length = header.tail_length().unwrap_or_default() as usize;
        tail.resize(length - size_of::<SegmentCommit>(), 0);
        let commit =
            SegmentCommit::new(header.number, SegmentHeader::checksum(&page), crc32fast::hash(&tail));
        tail.extend_from_slice(commit.as_bytes());
        let data_end = start + (header.pages + 1) * PAGE as u64;
        self.write(data_end, &tail)?;
        self.write(start, &page)?;
        self.sync()?;
        Ok(data_end + length as u64)
    }

    fn apply(&mut self, start: u64, kind: SegmentKind, regions: &[u64], index: &[IndexEntry]) {
        let mut slots = self.slots.take().unwrap_or_default();
        if kind == SegmentKind::Full {
            slots = regions
                .iter()
                .map(|bytes| vec![PageSlot::default(); bytes.div_ceil(PAGE as u64) as usize])
                .collect();
        }
        for (count, entry) in index.iter().enumerate() {
            let at = start + (count as u64 + 1) * PAGE as u64;
            let slot = PageSlot { at, checksum: entry.checksum.get() };
            slots[entry.region.get() as usize][entry.page.get() as usize] = slot;
        }
        self.slots = Some(slots);
    }

    /// Forgets the checkpoints behind a number: the next one that is appended takes its place behind that.
    pub fn roll_back(&mut self, number: u64) -> Result<()> {
        let keep = self.position(number)? + 1;
        if keep < self.segments.len() {
            self.segments.truncate(keep);
            self.slots = None;
        }
        Ok(())
    }

    /// Makes the file anew if more of it is out of date than not. It then has one full checkpoint, the last one.
    pub fn compact_if_worth(&mut self) -> Result<bool> {
        let live = self.slots()?.iter().flatten().filter(|slot| slot.at != 0).count() as u64;
        let all: u64 = self.segments.iter().map(|segment| segment.header.pages).sum();
        if all - live.min(all) <= live.max(LEAST_GARBAGE) {
            return Ok(false);
        }
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        self.compact(&new).map(|()| true).inspect_err(|_| {
            // It may have taken the space that the next checkpoint needs.
            if let Err(error) = std::fs::remove_file(&new) {
                log::debug!("{}: {error}", new.display());
            }
        })
    }

    /// `path`: of the new file.
    fn compact(&mut self, path: &Path) -> Result<()> {
        let Some(last) = self.segments.last() else { return Ok(()) };
        let SegmentHeader { number, note: note_length, pages, ref regions, .. } = last.header;
        let note_at = pages as usize * size_of::<IndexEntry>();
        let note = self.tail(last)?[note_at..note_at + note_length as usize].to_vec();
        let regions = regions.clone();
        let what = "cannot make the new checkpoint file";
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed(what, path))?;
        lock(&file, path)?;
        file.set_len(0).map_err(failed(what, path))?;
        let mut new = CheckpointFile::scan(path, file, true)?;
        let slots = self.slots()?.clone();
        let old = &*self;
        new.append_as(number, &regions, &note, &mut |_, sink| {
            for (region, slots) in slots.iter().enumerate() {
                old.read_slots(slots, &mut |first, pages| {
                    emit_nonzero_pages(region as u32, first, pages, sink)
                })?;
            }
            Ok(())
        })?;
        std::fs::rename(path, &self.path).map_err(failed("cannot rename to", &self.path))?;
        new.path = self.path.clone();
        new.syncs = self.syncs;
        new.sync_directory()?;
        *self = new;
        Ok(())
    }

    fn append_as(&mut self, number: u64, regions: &[u64], note: &[u8], fill: &mut Fill<'_>) -> Result<()> {
        // The place of the one before, which has no bytes.
        let none = SegmentHeader {
            file: self.id,
            number: number - 1,
            kind: SegmentKind::Full,
            pages: 0,
            note: 0,
            time: 0,
            regions: vec![],
        };
        self.segments.push(CheckpointSegment { start: 0, end: 0, header: none });
        self.slots = Some(PageSlots::new());
        let appended = self.append(SegmentKind::Full, regions, note, fill);
        self.segments.remove(0);
        appended.map(|_| ())
    }

    /// The name of a new file is on the disk when this returns.
    pub fn sync_directory(&self) -> Result<()> {
        if !self.syncs {
            return Ok(());
        }
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(failed("cannot write the directory", directory))
    }

    /// The checkpoints, by number.
    pub fn segments(&self) -> &[CheckpointSegment] {
        &self.segments
    }

    /// Bytes behind the last whole checkpoint: of one that was not finished.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    pub fn last_number(&self) -> Option<u64> {
        self.segments.last().map(|segment| segment.header.number)
    }

    /// The note of a checkpoint.
    pub fn note(&self, number: u64) -> Result<Vec<u8>> {
        let segment = &self.segments[self.position(number)?];
        let at = segment.header.pages as usize * size_of::<IndexEntry>();
        Ok(self.tail(segment)?[at..at + segment.header.note as usize].to_vec())
    }

    /// Which of the segments has a number.
    pub fn position(&self, number: u64) -> Result<usize> {
        let found = self.segments.iter().position(|segment| segment.header.number == number);
        found.ok_or_else(|| {
            let number_of = |segment: &CheckpointSegment| segment.header.number;
            let has = self.segments.first().map(number_of).zip(self.segments.last().map(number_of));
            SaveError::NoSuchNumber { path: self.path.clone(), number, has }
        })
    }

    /// Reads everything and compares it with the checksums: for each checkpoint the first damaged page among those that it needs, by its
    /// offset in the file. What is damaged and has been saved anew harms only the checkpoints before.
    pub fn verify(&self) -> Result<Vec<Option<u64>>> {
        let mut damaged = Vec::new();
        // Pages whose newest data are damaged, and where these are.
        let mut bad: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for segment in &self.segments {
            if segment.header.kind == SegmentKind::Full {
                bad.clear();
            }
            self.look_at_pages(segment, &mut |at, entry, is_good| {
                let page = (entry.region.get(), entry.page.get());
                match is_good {
                    true => bad.remove(&page),
                    false => bad.insert(page, at),
                };
                true
            })?;
            damaged.push(bad.values().copied().min());
        }
        Ok(damaged)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn length(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(failed("cannot look at", &self.path))?.len())
    }

    fn end(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.end)
    }

    fn foreign<T>(&self, why: &'static str) -> Result<T> {
        Err(SaveError::Foreign { path: self.path.clone(), why })
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, at).map_err(failed("cannot read", &self.path))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(failed("cannot write", &self.path))
    }

    fn sync(&self) -> Result<()> {
        match self.syncs {
            true => self.file.sync_data().map_err(failed("cannot write to the disk:", &self.path)),
            false => Ok(()),
        }
    }
}

/// Pages of the run that begins here: they follow each other in the file, or are all zeros.
fn run_at(slots: &[PageSlot]) -> usize {
    let first = slots[0].at;
    let follows = |(index, slot): &(usize, &PageSlot)| match first {
        0 => slot.at == 0,
        first => slot.at == first + (*index * PAGE) as u64,
    };
    slots.iter().take(BATCH).enumerate().take_while(follows).count()
}

/// Gives whole pages to a sink, without those that are zeros.
pub fn emit_nonzero_pages(region: u32, first: u64, pages: &[u8], sink: &mut PageSink<'_>) -> Result<()> {
    let zeros = <[u8; PAGE]>::new_zeroed();
    let is_zeros = |page: &[u8]| page == zeros;
    let count = pages.len() / PAGE;
    let mut at = 0;
    while at < count {
        let is_data = |index: &usize| !is_zeros(&pages[index * PAGE..(index + 1) * PAGE]);
        let run = (at..count).take_while(is_data).count();
        if run > 0 {
            sink(region, first + at as u64, &pages[at * PAGE..(at + run) * PAGE])?;
        }
        at += run + 1;
    }
    Ok(())
}

/// Refuses what is no regular file: data that were read are gone from a pipe, and a device has others.
fn regular(file: File, path: &Path) -> Result<File> {
    match file.metadata().map_err(failed("cannot look at", path))?.is_file() {
        true => Ok(file),
        false => Err(SaveError::Foreign { path: path.to_owned(), why: "it is no regular file" }),
    }
}

fn locked(options: &mut OpenOptions, path: &Path) -> Result<File> {
    let file = options.read(true).write(true).custom_flags(NONBLOCK).open(path);
    let file = regular(file.map_err(failed("cannot open the checkpoint file", path))?, path)?;
    lock(&file, path)?;
    Ok(file)
}

fn lock(file: &File, path: &Path) -> Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) if is_at(file, path).map_err(failed("cannot look at", path))? => Ok(()),
        // Its owner has put another file in its place meanwhile.
        Ok(()) => Err(SaveError::Busy { path: path.to_owned() }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SaveError::Busy { path: path.to_owned() }),
        Err(error) => Err(failed("cannot lock", path)(error.into())),
    }
}

/// Whether an open file is the one that has the path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SaveError {
    let path = path.to_owned();
    move |why| SaveError::File { what, path, why }
}

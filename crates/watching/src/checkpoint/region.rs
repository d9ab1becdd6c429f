//! A region that is saved, and its memory.

use crate::hooks::say;
use crate::limits::{CHECKPOINT_CATCH_UP_MILLISECONDS, MAX_WATCHED_REGION};
use crate::{Host, watch};
use pagewire_checkpoint::{
    Inspection, LocalWrites, MemoryError, PeerWrites, SaveError, Saved, SavedMemory, Saver, WrittenPages,
};
use pagewire_fabric::Fabric;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_nic::{MemoryRegion, Rights};
use parking_lot::Mutex;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

type Result<T> = std::result::Result<T, SaveError>;

/// Times that a save begins anew where the kernel does not tell what was written: its memory may have been mapped anew.
const WATCHES: u32 = 2;

/// What a checkpoint says of its region, as JSON, in its note.
#[derive(Serialize)]
struct RegionNote<'n> {
    program: &'n str,
    pid: u32,
    /// Regions of the process that were registered before.
    region: u64,
    address: u64,
    length: u64,
    /// That of the process, which all its regions have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u64>,
}

/// How a region is called.
pub struct Title {
    /// Regions that were registered before.
    pub number: u64,
    pub path: PathBuf,
    /// It is saved because all are.
    pub is_chosen: bool,
}

/// A region that is saved.
pub struct SavedRegion {
    region: Arc<MemoryRegion<Host>>,
    key: u32,
    memory: (u64, u64),
    title: Title,
    saver: Mutex<Option<Saver>>,
    /// Where writes of peers are noted, once it was saved.
    written: Mutex<Option<WrittenPages>>,
    has_ended: AtomicBool,
    has_failed: AtomicBool,
    /// Its file has a checkpoint of it.
    is_saved: AtomicBool,
    /// Its memory, which other processes map, has been warned of.
    has_warned_of_shared: AtomicBool,
}

impl SavedRegion {
    pub fn new(region: &Arc<MemoryRegion<Host>>, memory: (u64, u64), title: Title) -> SavedRegion {
        SavedRegion {
            key: region.rkey(),
            region: region.clone(),
            memory,
            title,
            saver: Mutex::new(None),
            written: Mutex::new(None),
            has_ended: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            is_saved: AtomicBool::new(false),
            has_warned_of_shared: AtomicBool::new(false),
        }
    }

    pub fn is_of(&self, region: &Arc<MemoryRegion<Host>>) -> bool {
        Arc::ptr_eq(&self.region, region)
    }

    /// Whether both are of one region, as it is registered now.
    pub fn is_same_as(&self, other: &SavedRegion) -> bool {
        self.is_of(&other.region)
    }

    pub fn key(&self) -> u32 {
        self.key
    }

    pub fn memory(&self) -> (u64, u64) {
        self.memory
    }

    pub fn number(&self) -> u64 {
        self.title.number
    }

    pub fn path(&self) -> &Path {
        &self.title.path
    }

    pub fn is_chosen(&self) -> bool {
        self.title.is_chosen
    }

    /// Whether both have bytes of the same pages.
    pub fn overlaps(&self, other: &SavedRegion) -> bool {
        let end = |(address, length): (u64, u64)| address.saturating_add(length);
        self.memory.0 < end(other.memory) && other.memory.0 < end(self.memory)
    }

    pub fn written(&self) -> Option<WrittenPages> {
        self.written.lock().clone()
    }

    pub fn set_written(&self, written: &WrittenPages) {
        *self.written.lock() = Some(written.clone());
    }

    /// Whether its file has a checkpoint of it.
    pub fn is_saved(&self) -> bool {
        self.is_saved.load(Ordering::Acquire)
    }

    /// Whether it is saved no more.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// It is saved no more. Who is at it gives up.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether it has ended without a word: with its context.
    pub fn is_gone(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) || !self.region.has_key(self.key)
    }

    /// Saves it. A failure is told once.
    ///
    /// # Errors
    /// Why it was not saved.
    pub fn save(&self, round: Option<u64>) -> Result<Saved> {
        let (address, length) = self.memory;
        let program = program();
        let pid = std::process::id();
        let note = RegionNote { program: &program, pid, region: self.title.number, address, length, round };
        let note = serde_json::to_vec(&note).map_err(|error| SaveError::Memory(error.into()))?;
        let outcome = self.with_saver(true, |saver, memory, peers| saver.save(&[memory], &note, peers));
        self.is_saved.fetch_or(outcome.is_ok(), Ordering::AcqRel);
        if let Err(error) = &outcome
            && self.title.is_chosen
            && !self.is_gone()
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            say(format_args!("the region of {length} bytes at {address:#x} was not saved: {error}"));
        }
        outcome
    }

    /// Restores it from a checkpoint of its file, or from the last one; gives the number.
    ///
    /// # Errors
    /// Why it was not restored.
    pub fn restore(&self, number: Option<u64>) -> Result<u64> {
        self.with_saver(false, |saver, memory, peers| {
            let number = number_or_last(saver, number);
            Ok(saver.restore(number, &[memory], peers)?.number)
        })
    }

    /// Restores it from a file that it is not saved to. No save of it is under way meanwhile.
    ///
    /// # Errors
    /// Why it was not restored.
    pub fn restore_from(&self, inspection: &Inspection, number: Option<u64>) -> Result<u64> {
        let _not_saved = self.saver.lock();
        let bytes = RegionMemory::of(&self.region, self.key, self.memory, &self.has_ended);
        let last = inspection.checkpoints().last().map(|last| last.number);
        // Zero is none: the error says which there are.
        Ok(inspection.restore(number.or(last).unwrap_or(0), &[&bytes])?.number)
    }

    /// Opens its file, and sees that a save can follow.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn open_to_save(&self) -> Result<()> {
        let saver = Saver::open(&self.title.path, local_writes(), true)?;
        saver.check_regions(&[self.memory.1])?;
        *self.saver.lock() = Some(saver);
        Ok(())
    }

    /// Opens its file, and sees that a restore can follow.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn open_to_restore(&self, number: Option<u64>) -> Result<()> {
        let saver = Saver::open_existing(&self.title.path, local_writes(), true)?;
        saver.check_restore(number_or_last(&saver, number), &[self.memory.1])?;
        *self.saver.lock() = Some(saver);
        Ok(())
    }

    /// Closes its file, and watches its pages no more: the kernel does that for one at a time. A save opens it anew, and is full.
    pub fn close(&self) {
        *self.saver.lock() = None;
    }

    /// Calls with the open file, until the kernel tells what was written: at last with a watch that needs no such thing. `makes`: the file is
    /// made if it is absent.
    fn with_saver<T>(
        &self,
        makes: bool,
        mut call: impl FnMut(&mut Saver, &dyn SavedMemory, &dyn PeerWrites) -> Result<T>,
    ) -> Result<T> {
        if self.memory.1 > MAX_WATCHED_REGION {
            let most = MAX_WATCHED_REGION >> 30;
            return Err(SaveError::Memory(format!("the region is longer than {most} GiB").into()));
        }
        let memory = RegionMemory::of(&self.region, self.key, self.memory, &self.has_ended);
        let mut place = self.saver.lock();
        let mut method = local_writes();
        let mut watches = 0;
        loop {
            let saver = match &mut *place {
                Some(saver) => saver,
                None if makes => place.insert(Saver::open(&self.title.path, method, true)?),
                None => place.insert(Saver::open_existing(&self.title.path, method, true)?),
            };
            let outcome = call(saver, &memory, &LoggedWrites(self));
            self.warn_if_shared(saver);
            match outcome {
                Err(SaveError::Watch { why, .. }) if saver.local_writes() != LocalWrites::None => {
                    watches += 1;
                    if watches == WATCHES {
                        let (address, length) = self.memory;
                        say(format_args!(
                            "each checkpoint of the region of {length} bytes at {address:#x} is a full copy: the kernel does not tell \
                             what is written there: {why}"
                        ));
                        method = LocalWrites::None;
                        *place = None;
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn warn_if_shared(&self, saver: &Saver) {
        if let Some((address, length)) = saver.shared()
            && !self.has_warned_of_shared.swap(true, Ordering::Relaxed)
        {
            say(format_args!(
                "each checkpoint of the region of {length} bytes at {address:#x} is a full copy: its memory is mapped shared (MAP_SHARED), \
                 and nobody sees what other processes write there"
            ));
        }
    }
}

/// That number, or the one of the last checkpoint. Zero is none: the error says which there are.
fn number_or_last(saver: &Saver, number: Option<u64>) -> u64 {
    number.or_else(|| Some(saver.numbers()?.1)).unwrap_or(0)
}

/// How writes of this process are seen. Soft-dirty bits are of no use here: a write between the look and their clearing is lost, and nobody stops
/// the program for that.
fn local_writes() -> LocalWrites {
    static METHOD: OnceLock<LocalWrites> = OnceLock::new();
    static WARNED: Once = Once::new();
    let method = *METHOD.get_or_init(|| match LocalWrites::best() {
        LocalWrites::WriteProtect => LocalWrites::WriteProtect,
        _ => LocalWrites::None,
    });
    if method == LocalWrites::None {
        WARNED.call_once(|| {
            say(format_args!(
                "each checkpoint is a full copy: this kernel has no PAGEMAP_SCAN with asynchronous write protection (Linux 6.7)"
            ));
        });
    }
    method
}

/// The name of the program, as the name of a folder.
pub fn program() -> String {
    let name = crate::program();
    if matches!(name.as_str(), "" | "." | ".." | "/") { "program".to_owned() } else { name }
}

/// The memory of a region, as long as that is registered.
struct RegionMemory<'r> {
    region: &'r MemoryRegion<Host>,
    key: u32,
    memory: (u64, u64),
    has_ended: &'r AtomicBool,
}

impl<'r> RegionMemory<'r> {
    fn of(
        region: &'r MemoryRegion<Host>,
        key: u32,
        memory: (u64, u64),
        has_ended: &'r AtomicBool,
    ) -> RegionMemory<'r> {
        RegionMemory { region, key, memory, has_ended }
    }

    fn segment(&self, offset: u64, length: usize) -> Segment {
        Segment { address: self.memory.0 + offset, length: length as u64 }
    }

    /// What was read before this is its own. Behind a deregistration the memory may be somebody else's.
    fn check(&self) -> std::result::Result<(), MemoryError> {
        if self.has_ended.load(Ordering::Acquire) || !self.region.has_key(self.key) {
            return Err("the region was deregistered meanwhile".into());
        }
        Ok(())
    }

    fn memory_error(&self, segment: Segment, error: pagewire_memory::MemoryError) -> MemoryError {
        format!("{} bytes at {:#x} cannot be accessed: {error:?}", segment.length, segment.address).into()
    }
}

impl SavedMemory for RegionMemory<'_> {
    fn address(&self) -> u64 {
        self.memory.0
    }

    fn bytes(&self) -> u64 {
        self.memory.1
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> std::result::Result<(), MemoryError> {
        let from = self.segment(offset, bytes.len());
        let read = self.region.fabric().memory().read(&[from], bytes);
        self.check()?;
        read.map_err(|error| self.memory_error(from, error))
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) -> std::result::Result<(), MemoryError> {
        self.check()?;
        let to = self.segment(offset, bytes.len());
        self.region.fabric().memory().write(bytes, &[to], false).map_err(|error| self.memory_error(to, error))
    }
}

/// The log of what peers write to a region.
struct LoggedWrites<'r>(&'r SavedRegion);

impl PeerWrites for LoggedWrites<'_> {
    fn begin(&self, _: usize, written: &WrittenPages) -> Result<()> {
        let region = self.0;
        if region.region.rights().intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC) {
            let refused =
                |why: String| SaveError::Memory(format!("writes of peers cannot be logged: {why}").into());
            watch::log_writes(&region.region, region.memory, &region.has_ended).map_err(refused)?;
        }
        super::note_writes(region, written);
        Ok(())
    }

    fn note_all(&self, written: &WrittenPages) {
        if !watch::catch_up(CHECKPOINT_CATCH_UP_MILLISECONDS) {
            // What is still to be read may be of any page.
            written.mark(self.0.memory.0, self.0.memory.1);
        }
    }
}

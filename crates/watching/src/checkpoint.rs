//! Checkpoints of regions: each is saved to a file of its own, incrementally (`pagewire run --checkpoint`, `pw_checkpoint_region()`).
//!
//! What peers write comes from the log of [`watch`], what this process writes from its page tables. The file and what is taken of memory is the
//! work of `pagewire_checkpoint`, which the native interface has, too. The program goes on meanwhile: each page is what it was at some instant
//! between the beginning and the end of the save of its region.
//!
//! A reader starts at [`save_all`]. Without the option or the call there is no thread and no file, and nothing of this runs.

mod region;
mod server;

use crate::hooks::say;
use crate::limits::{
    CHECKPOINT_EXIT_SECONDS, EXIT_PATIENCE_MILLISECONDS, MAX_CHECKPOINT_FOLDERS, MAX_ENDED_CHECKPOINTS,
    MAX_SAVED_REGIONS,
};
use crate::{Host, watch};
use pagewire_checkpoint::{CheckpointChoice, Inspection, SaveError, Saved, WrittenPages};
use pagewire_memory::Uncancelled;
use pagewire_memory::fork::PerProcess;
use pagewire_nic::MemoryRegion;
use parking_lot::Mutex;
use region::{SavedRegion, Title};
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a region was not saved, or not restored.
#[derive(Debug)]
pub enum RefusedSave {
    /// There is none.
    NoRegion,
    /// No file is named, and the region has none.
    NoFile,
    /// The region is saved to this file, as the program was started so.
    Chosen(PathBuf),
    /// So many regions are saved, and no more can be.
    Full(usize),
    /// As it says.
    Save(SaveError),
}

impl From<SaveError> for RefusedSave {
    fn from(error: SaveError) -> Self {
        RefusedSave::Save(error)
    }
}

/// What is saved in this process.
#[derive(Default)]
struct CheckpointState {
    chosen: Option<CheckpointChoice>,
    /// The folder of this process, once it has one.
    folder: Option<PathBuf>,
    regions: Vec<Arc<SavedRegion>>,
    /// Those registered or saved so far.
    registered: u64,
    /// Files of regions that have ended, the oldest first.
    ended: VecDeque<PathBuf>,
    rounds: Arc<Mutex<Rounds>>,
    /// There is no folder for files, which was told.
    is_refused: bool,
    /// There are as many regions as can be, which was told.
    is_full: bool,
}

/// Checkpoints of all regions. Who makes one has it locked.
#[derive(Default)]
struct Rounds {
    made: u64,
    /// Why a save failed, the first that did.
    failure: Option<String>,
}

static STATE: PerProcess<CheckpointState> = PerProcess::new();

/// What a round has saved.
#[derive(Debug, Serialize)]
pub struct Round {
    pid: u32,
    folder: PathBuf,
    /// Its number in this process: it stands in each checkpoint.
    round: u64,
    regions: Vec<SavedRegionLine>,
}

impl Round {
    /// Regions that it has saved.
    pub fn saved(&self) -> u64 {
        self.regions.iter().filter(|region| region.error.is_none()).count() as u64
    }

    /// Why one of them was not saved.
    pub fn first_error(&self) -> Option<String> {
        self.regions.iter().find_map(|region| region.error.clone())
    }
}

/// What became of a region.
#[derive(Debug, Serialize)]
struct SavedRegionLine {
    file: PathBuf,
    address: u64,
    length: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Whether this process saves a region, or is just registering one.
pub fn has_begun() -> bool {
    STATE.try_lock().is_none_or(|state| state.folder.is_some())
}

/// Has all regions saved that are registered from now on.
pub fn choose(chosen: Option<&CheckpointChoice>) {
    if chosen.is_some() {
        STATE.lock().chosen = chosen.cloned();
    }
}

/// A region was registered, or registered anew, while all are to be saved.
#[cold]
pub fn registered(region: &Arc<MemoryRegion<Host>>, memory: (u64, u64)) {
    let _uncancelled = Uncancelled::begin();
    let mut state = STATE.lock();
    if memory.1 == 0 || state.is_refused {
        return;
    }
    if state.regions.len() >= MAX_SAVED_REGIONS {
        if !std::mem::replace(&mut state.is_full, true) {
            say(format_args!(
                "only the first {MAX_SAVED_REGIONS} regions are saved: each takes three descriptors"
            ));
        }
        return;
    }
    match state.folder() {
        Ok(folder) => {
            let number = state.take_number();
            let path = folder.join(format!("region-{number}.checkpoint"));
            let added = SavedRegion::new(region, memory, Title { number, path, is_chosen: true });
            state.add(Arc::new(added));
        }
        Err(error) => {
            state.is_refused = true;
            say(format_args!("regions are not saved: {error}"));
        }
    }
}

/// A region that had this key has ended.
#[cold]
pub fn ended(key: u32) {
    let _uncancelled = Uncancelled::begin();
    end(|region| region.key() == key);
}

/// Ends regions, and removes files that are not kept.
fn end(is_ended: impl Fn(&SavedRegion) -> bool) {
    // The lock is not held while files are removed.
    let removed = STATE.lock().end(is_ended);
    for path in removed {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                log::warn!("the file of a region that has ended stays: {}: {error}", path.display());
            }
            _ => {}
        }
    }
}

impl CheckpointState {
    /// The folder of this process; the first call makes it, and starts the thread that saves.
    fn folder(&mut self) -> io::Result<PathBuf> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        let Some(CheckpointChoice { folder, every }) = &self.chosen else {
            return Err(io::Error::other("no folder is named"));
        };
        let with_path = |error: io::Error| io::Error::other(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(with_path)?;
        let made = make_folder(folder).map_err(with_path)?;
        server::start(*every)?;
        Ok(self.folder.insert(made).clone())
    }

    /// How many were registered or saved before this one.
    fn take_number(&mut self) -> u64 {
        self.registered += 1;
        self.registered - 1
    }

    fn add(&mut self, added: Arc<SavedRegion>) {
        self.note_others(&added);
        self.regions.push(added);
    }

    /// Has writes by the key of a region noted for the other ones over the same memory.
    fn note_others(&self, region: &SavedRegion) {
        for other in self.regions.iter().filter(|other| other.overlaps(region)) {
            if let Some(written) = other.written() {
                watch::note_writes(region.key(), other.number(), &written);
            }
        }
    }

    /// Ends regions. The files of those that were chosen and have a checkpoint stay, the youngest; gives the others.
    fn end(&mut self, is_ended: impl Fn(&SavedRegion) -> bool) -> Vec<PathBuf> {
        let (ended, living) =
            std::mem::take(&mut self.regions).into_iter().partition(|region| is_ended(region));
        self.regions = living;
        let (ended, mut removed): (Vec<Arc<SavedRegion>>, _) = (ended, Vec::new());
        for region in ended {
            region.end();
            watch::forget_writes(region.number());
            match (region.is_chosen(), region.is_saved()) {
                (true, true) => self.ended.push_back(region.path().to_owned()),
                // Its first save may have begun one.
                (true, false) => removed.push(region.path().to_owned()),
                (false, _) => {}
            }
        }
        let older = self.ended.len().saturating_sub(MAX_ENDED_CHECKPOINTS);
        removed.extend(self.ended.drain(..older));
        removed
    }

    /// Whether there is a file with a checkpoint in the folder.
    fn has_checkpoint(&self) -> bool {
        !self.ended.is_empty() || self.regions.iter().any(|region| region.is_chosen() && region.is_saved())
    }

    fn known(&self, region: &Arc<MemoryRegion<Host>>) -> Option<&Arc<SavedRegion>> {
        let key = region.rkey();
        self.regions.iter().find(|known| known.is_of(region) && known.key() == key)
    }
}

/// Has what peers write noted there: to a region, by its own key or by that of another one over the same memory.
fn note_writes(region: &SavedRegion, written: &WrittenPages) {
    let state = STATE.lock();
    if region.has_ended() {
        // Nobody would have it forgotten.
        return;
    }
    region.set_written(written);
    // Before the first region was saved there may have been no log to note anything of.
    state.note_others(region);
    watch::note_writes(region.key(), region.number(), written);
    for other in state.regions.iter().filter(|other| other.overlaps(region)) {
        watch::note_writes(other.key(), region.number(), written);
    }
}

/// Makes a folder of this process's own: the first name that nothing has.
fn make_folder(folder: &Path) -> io::Result<PathBuf> {
    let name = format!("{}.{}", region::program(), std::process::id());
    for namesake in 0..=MAX_CHECKPOINT_FOLDERS {
        let made = match namesake {
            0 => folder.join(&name),
            _ => folder.join(format!("{name}.{namesake}")),
        };
        // What the program has in its memory is its user's alone.
        match DirBuilder::new().mode(0o700).create(&made) {
            Ok(()) => return Ok(made),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!(
        "there are {MAX_CHECKPOINT_FOLDERS} folders {name}.N already: move them away"
    )))
}

/// Saves all regions that are to be saved. `None`: the program was not started so.
pub fn save_all() -> Option<Round> {
    let rounds = STATE.lock().rounds.clone();
    let mut rounds = rounds.lock();
    save_round(&mut rounds)
}

fn save_round(rounds: &mut Rounds) -> Option<Round> {
    let (folder, regions): (_, Vec<_>) = {
        let state = STATE.lock();
        state.chosen.as_ref()?;
        // Before the first region there is no folder of this process.
        let folder = state.folder.clone().or_else(|| Some(state.chosen.as_ref()?.folder.clone()))?;
        (folder, state.regions.iter().filter(|region| region.is_chosen()).cloned().collect())
    };
    rounds.made += 1;
    let round = rounds.made;
    let mut lines = Vec::new();
    for region in regions {
        if region.is_gone() {
            end(|known| known.number() == region.number());
            continue;
        }
        let outcome = region.save(Some(round));
        // One that was deregistered meanwhile is none of those that are to be saved.
        if outcome.is_ok() || !region.is_gone() {
            if let Err(error) = &outcome {
                rounds.failure.get_or_insert_with(|| error.to_string());
            }
            lines.push(line(&region, outcome));
        }
    }
    Some(Round { pid: std::process::id(), folder, round, regions: lines })
}

fn line(region: &SavedRegion, outcome: Result<Saved, SaveError>) -> SavedRegionLine {
    let (address, length) = region.memory();
    let (saved, error) = match outcome {
        Ok(saved) => (Some(saved), None),
        Err(error) => (None, Some(error.to_string())),
    };
    SavedRegionLine {
        file: region.path().to_owned(),
        address,
        length,
        checkpoint: saved.map(|saved| saved.number),
        kind: saved.map(|saved| saved.kind.name()),
        pages: saved.map(|saved| saved.pages),
        error,
    }
}

/// Saves a region to a file, or to the one that it has.
///
/// # Errors
/// Why it was not saved.
pub fn save_region(
    region: &Arc<MemoryRegion<Host>>,
    memory: (u64, u64),
    file: Option<&Path>,
) -> Result<Saved, RefusedSave> {
    watch::begin_use();
    let known = STATE.lock().known(region).cloned();
    match (known, file) {
        (Some(known), None) => Ok(known.save(None)?),
        (Some(known), Some(file)) if is_same_file(known.path(), file) => Ok(known.save(None)?),
        (Some(known), Some(_)) if known.is_chosen() => Err(RefusedSave::Chosen(known.path().to_owned())),
        (None, None) => Err(RefusedSave::NoFile),
        (_, Some(file)) => {
            let other = of_other_file(region, memory, file)?;
            other.open_to_save()?;
            take_over(&other, || other.save(None))
        }
    }
}

/// Whether both name one file.
fn is_same_file(known: &Path, file: &Path) -> bool {
    known == file
        || known.canonicalize().ok().zip(file.canonicalize().ok()).is_some_and(|(known, file)| known == file)
}

/// A region with another file than it is saved to, if it is.
fn of_other_file(
    region: &Arc<MemoryRegion<Host>>,
    memory: (u64, u64),
    file: &Path,
) -> Result<Arc<SavedRegion>, RefusedSave> {
    let mut state = STATE.lock();
    if state.regions.iter().filter(|known| !known.is_of(region)).count() >= MAX_SAVED_REGIONS {
        return Err(RefusedSave::Full(MAX_SAVED_REGIONS));
    }
    let title = Title { number: state.take_number(), path: file.to_owned(), is_chosen: false };
    Ok(Arc::new(SavedRegion::new(region, memory, title)))
}

/// Has a region with another file, which is open, take the place of the one that it is saved to, if a call of it succeeds. If not, that stays,
/// and the next save there is full.
fn take_over<T>(
    other: &Arc<SavedRegion>,
    call: impl FnOnce() -> Result<T, SaveError>,
) -> Result<T, RefusedSave> {
    let before: Vec<_> = {
        let mut state = STATE.lock();
        let before = state.regions.iter().filter(|region| region.is_same_as(other)).cloned().collect();
        state.add(other.clone());
        before
    };
    before.iter().for_each(|region| region.close());
    let outcome = call();
    match outcome.is_ok() {
        true => end(|region| region.is_same_as(other) && region.number() != other.number()),
        false => end(|region| region.number() == other.number()),
    }
    Ok(outcome?)
}

/// Restores a region from a file: from a checkpoint, or from the last one. Gives its number. What is saved to the file behind that is what has
/// changed.
///
/// # Errors
/// Why it was not restored.
pub fn restore_region(
    region: &Arc<MemoryRegion<Host>>,
    memory: (u64, u64),
    file: &Path,
    number: Option<u64>,
) -> Result<u64, RefusedSave> {
    watch::begin_use();
    let known = STATE.lock().known(region).cloned();
    match known {
        Some(known) if is_same_file(known.path(), file) => Ok(known.restore(number)?),
        // It goes on being saved where it is.
        Some(known) if known.is_chosen() => Ok(known.restore_from(&Inspection::open(file)?, number)?),
        _ => {
            let other = of_other_file(region, memory, file)?;
            other.open_to_restore(number)?;
            take_over(&other, || other.restore(number))
        }
    }
}

/// The process ends: what it has by now is saved, if all is to be.
pub fn at_exit() {
    let begun = Instant::now();
    let (is_chosen, rounds) = loop {
        match STATE.try_lock() {
            Some(state) => break (state.folder.is_some(), state.rounds.clone()),
            None if begun.elapsed() < Duration::from_millis(EXIT_PATIENCE_MILLISECONDS) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            // A thread that this one has interrupted may be at it.
            None => {
                say(format_args!(
                    "the last checkpoint is not of the end of the process: a region was just being registered when that ended"
                ));
                return;
            }
        }
    };
    if !is_chosen {
        return;
    }
    let Some(mut rounds) = rounds.try_lock_for(Duration::from_secs(CHECKPOINT_EXIT_SECONDS)) else {
        say(format_args!(
            "the last checkpoint is not of the end of the process: another one was still being saved"
        ));
        return;
    };
    let round = save_round(&mut rounds);
    if let Some(error) = round.and_then(|round| round.first_error()) {
        log::warn!("a region was not saved at the end: {error}");
        return;
    }
    // A thread that has it locked is registering a region, of which nobody expects a checkpoint.
    if let Some(state) = STATE.try_lock().filter(|state| !state.has_checkpoint()) {
        say(format_args!(
            "no region was saved: {}",
            reason_for_none(state.registered, rounds.failure.as_deref())
        ));
    }
}

/// Why a process that ends has saved none of the regions that it has registered.
fn reason_for_none(registered: u64, failure: Option<&str>) -> String {
    match failure {
        Some(failure) => format!("each save failed, the first one with: {failure}"),
        None => format!(
            "the program deregistered all {registered} before the first save. --checkpoint FOLDER,every=SECONDS saves more often, and \
             pagewire checkpoint --now {} while it runs",
            std::process::id()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_says_that_saves_failed() {
        let failed = reason_for_none(1, Some("No space left on device"));
        assert_eq!(failed, "each save failed, the first one with: No space left on device");
        assert!(reason_for_none(1, None).contains("deregistered all 1 before the first save"));
    }
}

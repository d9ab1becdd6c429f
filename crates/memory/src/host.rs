//! The real [`ApplicationMemory`]: what is remembered of pages, and how they are reached.

mod bring_in;
mod copies;

use self::bring_in::AtWork;
use self::copies::{between, read_directly, write_directly};
use crate::clock::tick;
use crate::guard::{FaultGuard, Guard};
use crate::limits::{OWN_GRACE, SAMPLED};
use crate::mappings::MappingKind;
use crate::null_pages::{NullPages, null_pages};
use crate::pagemap::Presence;
use crate::peer_pages::PeerPages;
use crate::process::HostProcess;
use crate::residency::ResidentPages;
use crate::segments::total;
use crate::transfer::ProcessTransfer;
use crate::watch_list::WatchList;
use crate::{
    Absence, ApplicationMemory, AtomicOperation, LastSeen, MemoryError, Residency, Segment, SyncError,
    Unreached, atomic, persistence,
};
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// The memory of the program that the engine runs in, and of peers.
pub struct HostMemory {
    resident: ResidentPages,
    peer_pages: PeerPages,
    watch_list: WatchList,
    own: HostProcess,
    at_work: AtWork,
}

impl HostMemory {
    /// Touches nothing yet.
    pub fn new() -> Self {
        HostMemory {
            resident: ResidentPages::new(),
            peer_pages: PeerPages::new(),
            watch_list: WatchList::default(),
            own: HostProcess::current(),
            at_work: AtWork::default(),
        }
    }

    /// A guard, where all of a segment is remembered to be resident, and that faults are mended: one look at the clock for both.
    #[inline]
    fn resident_guard(&self, segment: Segment) -> Option<FaultGuard> {
        let now = tick();
        if self.resident.remembers_all(segment, now) { Guard::at_hand_at(now) } else { None }
    }

    /// Finds out how the pages of a segment come, where that is not known. May take milliseconds.
    pub fn learn(&self, segment: Segment) {
        self.own.learn(segment);
    }

    /// As [`learn`](Self::learn) in a peer.
    pub fn learn_peer(&self, process: &HostProcess, segment: Segment) {
        process.learn(segment);
    }

    /// Makes a segment outlive a loss of power (msync(2)), however long that takes.
    ///
    /// # Errors
    /// [`SyncError`].
    pub fn sync(&self, segment: Segment) -> Result<(), SyncError> {
        persistence::sync(segment)
    }

    /// Asks the kernel how it is with a peer's pages.
    #[cold]
    fn query_peer(
        &self,
        process: &HostProcess,
        segment: Segment,
        moment: u64,
        seen: &mut LastSeen,
    ) -> Result<(), Absence> {
        let Some(end) = segment.address.checked_add(segment.length) else { return Ok(()) };
        if let Some(range) = self.peer_pages.remembers(process.pid(), segment.address..end, moment) {
            let middle = Segment { address: segment.address + segment.length / 2, length: 1 };
            if segment.length < SAMPLED || is_there_still(process, middle) {
                *seen = LastSeen { moment, range };
                return Ok(());
            }
            // Mostly what was looked at; the others are looked at below.
            self.peer_pages.forget(process.pid(), middle.address..middle.address + 1, moment);
        }
        // What somebody in user space gives and takes is not remembered.
        let watched = process.is_watched(segment);
        if !watched {
            if let Some(whole) = self.peer_pages.unknown_block(process.pid(), segment.address..end, moment) {
                let block = Segment { address: whole.start, length: whole.end - whole.start };
                let present = !process.is_watched(block) && process.presence(block) == Presence::All;
                self.peer_pages.remember_block(process.pid(), whole.start, present, moment);
                if present {
                    *seen = LastSeen { moment, range: whole };
                    return Ok(());
                }
            }
        }
        match process.presence(segment) {
            Presence::All => {
                if !watched {
                    self.peer_pages.remember(process.pid(), segment.address..end, moment);
                    *seen = LastSeen { moment, range: segment.address..end };
                }
                Ok(())
            }
            // An access finds out, as ever.
            Presence::Unknown => Ok(()),
            Presence::SomeEmpty | Presence::SomeSwapped => Err(process.absence(segment, 0).0),
        }
    }
}

/// Whether a page of a peer is present, as it was.
fn is_there_still(process: &HostProcess, page: Segment) -> bool {
    matches!(process.presence(page), Presence::All | Presence::Unknown)
}

impl Default for HostMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl ApplicationMemory for HostMemory {
    type RemoteProcess = HostProcess;

    fn read(&self, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
        let length = total(from)?.min(into.len() as u64) as usize;
        let into = &mut into[..length];
        if let Some(guard) = Guard::at_hand() {
            return read_directly(&guard, from, into);
        }
        copies::read_by_kernel(self.own.pid(), from, into)
    }

    fn write(&self, from: &[u8], to: &[Segment], tail_last: bool) -> Result<(), MemoryError> {
        let length = total(to)?.min(from.len() as u64) as usize;
        let from = &from[..length];
        if let Some(guard) = Guard::at_hand() {
            return write_directly(&guard, from, to, tail_last);
        }
        copies::write_by_kernel(self.own.pid(), from, to, tail_last)
    }

    #[inline(always)] // As `between`.
    fn pull(
        &self,
        process: &HostProcess,
        from: &[Segment],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError> {
        between(ProcessTransfer::Read, process, to, from, tail_last)
    }

    fn pull_bytes(
        &self,
        process: &HostProcess,
        from: &[Segment],
        into: &mut [u8],
    ) -> Result<(), MemoryError> {
        // The engine's own bytes have an address in this process like any others.
        let into = [Segment { address: into.as_mut_ptr() as u64, length: into.len() as u64 }];
        self.pull(process, from, &into, false)
    }

    #[inline(always)] // As `between`.
    fn push(
        &self,
        process: &HostProcess,
        from: &[Segment],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError> {
        between(ProcessTransfer::Write, process, from, to, tail_last)
    }

    fn atomic(&self, address: u64, operation: AtomicOperation) -> Result<u64, MemoryError> {
        atomic::run(address, operation)
    }

    fn residency(&self, segments: &[Segment]) -> Residency {
        self.resident.look(segments, |segment| self.own.is_watched(segment))
    }

    fn residency_ahead(&self, segment: Segment, ahead: Segment) -> (Residency, bool) {
        self.resident.look_ahead(segment, ahead, |segment| self.own.is_watched(segment))
    }

    fn absence(&self, segments: &[Segment]) -> Absence {
        let all = segments.iter().filter(|segment| segment.length > 0);
        let each = all.map(|segment| match self.own.absence(*segment, OWN_GRACE) {
            // That may be out of date. Of shared memory it is not asked: there the question itself may map a page.
            (Absence::Cheap, Some(MappingKind::Anonymous)) if self.watch_list.has(*segment) == Some(true) => {
                Absence::UserSpace
            }
            (absence, _) => absence,
        });
        each.max().unwrap_or(Absence::Cheap)
    }

    fn kernel_may_fault(&self) -> bool {
        !self.own.swaps_at_a_limit()
    }

    fn is_denied(&self, process: &HostProcess) -> bool {
        process.is_denied()
    }

    fn kernel_may_fault_in(&self, process: &HostProcess) -> bool {
        !process.swaps_at_a_limit()
    }

    fn bring_in(&self, segment: &Segment, write: bool) -> Result<(), MemoryError> {
        while !self.bring_in_until_ended(segment, write)? {}
        Ok(())
    }

    #[inline(always)] // Part of each transfer that the requester executes itself, as the next two.
    fn moment(&self) -> u64 {
        tick()
    }

    #[inline(always)]
    fn residency_at(&self, segment: Segment, moment: u64, seen: &mut LastSeen) -> Residency {
        if self.resident.remembers_page(segment, moment) || seen.covers(segment, moment) {
            return Residency::Resident;
        }
        self.resident.look_for(segment, moment, |segment| self.own.is_watched(segment), seen)
    }

    #[inline(always)]
    fn reach(
        &self,
        process: &HostProcess,
        segment: Segment,
        moment: u64,
        seen: &mut LastSeen,
    ) -> Result<(), Unreached> {
        if !process.is_alive_at(moment) {
            return Err(Unreached::Gone);
        }
        if segment.length < SAMPLED && seen.covers(segment, moment) {
            return Ok(());
        }
        // Whoever copies brings it in, as any memory of this process: it is mapped here.
        if segment.length < SAMPLED && self.is_in_mapping(process, segment) {
            return Ok(());
        }
        match self.query_peer(process, segment, moment, seen) {
            // The next transfer need not ask again.
            Err(Absence::Cheap) if self.is_in_mapping(process, segment) => {
                *seen = LastSeen { moment, range: segment.address..segment.address + segment.length };
                Ok(())
            }
            reached => reached.map_err(Unreached::Absent),
        }
    }

    fn atomic_in_mapping(
        &self,
        process: &HostProcess,
        there: Segment,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let here = process.shared().and_then(|shared| shared.place(there)).ok_or(MemoryError::NotMapped)?;
        atomic::run(here, operation)
    }

    fn has_mapping(&self, process: &HostProcess) -> bool {
        process.shared().is_some()
    }

    fn is_in_mapping(&self, process: &HostProcess, there: Segment) -> bool {
        process.shared().is_some_and(|shared| shared.place(there).is_some())
    }

    fn words_in_mapping<'p>(&self, process: &'p HostProcess, there: Segment) -> Option<&'p [AtomicU64]> {
        if process.is_alive() { process.shared()?.words(there) } else { None }
    }

    fn map_shared(&self, process: &HostProcess, there: Range<u64>, file: i32) -> io::Result<()> {
        process.map_shared(there, file)
    }

    fn check_persistent(&self, segment: Segment) -> Result<(), SyncError> {
        persistence::check(segment)
    }

    fn null_pages(&self) -> io::Result<NullPages> {
        null_pages()
    }

    #[inline]
    fn reads(&self) -> impl Fn(Segment, &mut [u8]) -> bool {
        let guard = Guard::at_hand();
        move |from, into| match &guard {
            Some(guard) if from.length == into.len() as u64 => guard.read(from.address, into).is_ok(),
            _ => self.read(&[from], into).is_ok(),
        }
    }

    #[inline]
    fn writes(&self) -> impl Fn(&[u8], Segment) -> bool {
        let guard = Guard::at_hand();
        move |from, to| match &guard {
            Some(guard) if from.len() as u64 == to.length => guard.write(from, to.address).is_ok(),
            _ => self.write(from, &[to], false).is_ok(),
        }
    }

    #[inline]
    fn read_resident(&self, from: Segment, into: &mut [u8]) -> bool {
        match self.resident_guard(from) {
            Some(guard) => guard.read(from.address, into).is_ok(),
            None => self.residency(&[from]) == Residency::Resident && self.read(&[from], into).is_ok(),
        }
    }

    #[inline]
    fn write_resident(&self, from: &[u8], to: Segment) -> bool {
        match self.resident_guard(to) {
            Some(guard) => write_directly(&guard, from, &[to], true).is_ok(),
            None => self.residency(&[to]) == Residency::Resident && self.write(from, &[to], true).is_ok(),
        }
    }
}

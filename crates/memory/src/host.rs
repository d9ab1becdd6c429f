//! The real [`ApplicationMemory`].
//!
//! Between the application and engine buffers: directly, where faults are known to be mended
//! ([`guard`](crate::guard)). Else `preadv` and `pwritev` on the arena's file where the buffer is part of one; small
//! copies by way of scratch memory that is; else `process_vm_readv` and `process_vm_writev` on ourselves. Between processes: the latter two. Where the kernel cannot reach a page (a userfaultfd that handles
//! faults of user mode only), the page is touched in user mode under the [`guard`](crate::guard), and the
//! copy goes on.

use crate::clock::tick;
use crate::far::FarPages;
use crate::guard::{Guard, Mended};
use crate::limits::{
    BROUGHT_IN_AT_ONCE, LONGEST_WORK, OWN_GRACE, PIECE, POPULATED_PAGES, SAMPLED, SCRATCH_BYTES,
    SCRATCH_COPY, TAIL, TOUCHED_AT_ONCE, TOUCHES,
};
use crate::mappings::Kind;
use crate::pagemap::Presence;
use crate::process::HostProcess;
use crate::residency::ResidentPages;
use crate::segments::{address_at, part_of, total};
use crate::transfer::{FileTransfer, ProcessTransfer, Stop, common_length, through_file, through_process};
use crate::watch_list::WatchList;
use crate::{
    Absence, ApplicationMemory, AtomicOperation, LastSeen, MemoryError, Residency, Segment, Unreached,
};
use crate::{arena, atomic, scratch};
use arrayvec::ArrayVec;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The memory of the program that the engine runs in, and of peers.
pub struct HostMemory {
    resident: ResidentPages,
    far: FarPages,
    watch_list: WatchList,
    own: HostProcess,
    at_work: AtWork,
}

impl HostMemory {
    /// Touches nothing yet.
    pub fn new() -> Self {
        HostMemory {
            resident: ResidentPages::new(),
            far: FarPages::new(),
            watch_list: WatchList::default(),
            own: HostProcess::current(),
            at_work: AtWork::default(),
        }
    }

    /// A guard, where all of a segment is remembered to be resident, and that faults are mended: one look at the clock for both.
    #[inline]
    fn resident_guard(&self, segment: Segment) -> Option<Mended> {
        let now = tick();
        if self.resident.remembers_all(segment, now) { Guard::at_hand_at(now) } else { None }
    }

    /// As [`bring_in`](ApplicationMemory::bring_in), piece by piece: a page where somebody in user space gives it, or that is not known, else 64 KiB at most. Each is brought
    /// in while what `begin` gives for it lives. From where it gives none nothing is.
    ///
    /// # Errors
    /// `NotMapped` where a page is not mapped, or not with that right.
    pub fn bring_in_pieces<P>(
        &self,
        segment: &Segment,
        write: bool,
        begin: impl Fn() -> Option<P>,
    ) -> Result<(), MemoryError> {
        total(std::slice::from_ref(segment))?;
        let page = rustix::param::page_size() as u64;
        let end = segment.address + segment.length;
        let part_of = |at: u64, unit: u64| {
            let part_end = (at / unit + 1).saturating_mul(unit).min(end);
            Segment { address: at, length: part_end - at }
        };
        let mut at = segment.address;
        while at < end {
            let part = part_of(at, BROUGHT_IN_AT_ONCE);
            let part_end = at + part.length;
            // What the kernel has itself comes soon enough.
            if matches!(self.absence(&[part]), Absence::Cheap | Absence::Slow) {
                let Some(_piece) = begin() else { return Ok(()) };
                if self.at_work.during(|| self.bring_in_until_ended(&part, write))? {
                    at = part_end;
                }
            }
            while at < part_end {
                let Some(_piece) = begin() else { return Ok(()) };
                let single = part_of(at, page);
                // Where the wait was ended its reason may be gone: the region has ended, or something else is mapped there.
                if self.bring_in_page(&single, write)? {
                    at += single.length;
                }
            }
        }
        Ok(())
    }

    /// Whether a thread is in the midst of [`bring_in_pieces`](Self::bring_in_pieces), and waits for nobody but the kernel: it may want a
    /// processor. Not if none has begun with a piece lately: what takes longer waits for a disk.
    #[inline]
    pub fn is_at_work(&self) -> bool {
        self.at_work.is_busy()
    }

    /// As [`bring_in`](ApplicationMemory::bring_in). False: the wait for a page was [ended](guard::end_touch).
    fn bring_in_until_ended(&self, segment: &Segment, write: bool) -> Result<bool, MemoryError> {
        if segment.length == 0 {
            return Ok(true);
        }
        total(std::slice::from_ref(segment))?;
        let page = rustix::param::page_size() as u64;
        let pages = (segment.address + segment.length - 1) / page - segment.address / page + 1;
        let populate = || atomic::make_writable_pages_present(segment.address, segment.length);
        let populated = || match write {
            true => populate().is_ok(),
            false => atomic::make_pages_present(segment.address, segment.length) == Ok(true),
        };
        let there = match Guard::at_hand().filter(|_| pages < POPULATED_PAGES || !self.kernel_may_fault()) {
            Some(guard) => touch_pages(&guard, segment, write)?,
            None if self.kernel_may_fault() && populated() => true,
            None => match self.touch_each(segment, write) {
                // The program has taken the signals over: nothing can be touched for writing.
                Err(_) if write => populate().map(|()| true)?,
                touched => touched?,
            },
        };
        if there {
            self.note_arrival(segment);
        }
        Ok(there)
    }

    /// Brings in the page that a segment lies in: from user mode, if possible, where the wait for it may be ended: false.
    fn bring_in_page(&self, segment: &Segment, write: bool) -> Result<bool, MemoryError> {
        let Some(guard) = Guard::enter() else { return self.bring_in(segment, write).map(|()| true) };
        let there = guard.touch_until_ended(segment.address, write).map_err(|_| MemoryError::NotMapped)?;
        if there {
            self.note_arrival(segment);
        }
        Ok(there)
    }

    /// The pages of a segment have just come in.
    fn note_arrival(&self, segment: &Segment) {
        if !self.kernel_may_fault() {
            make_cold(segment);
        }
        if !self.own.is_watched(*segment) {
            self.resident.note(*segment, tick());
        }
    }

    /// As [`bring_in`](ApplicationMemory::bring_in) in a peer, for reading; pages that turn out to be cheap are left. Goes on as long as
    /// `wanted`, which is asked before each system call: of one page where somebody in user space is asked for it, or that is not known.
    ///
    /// # Errors
    /// `PeerNotMapped`, `PeerGone`.
    pub fn bring_in_far(
        &self,
        process: &HostProcess,
        segment: &Segment,
        wanted: impl Fn() -> bool,
    ) -> Result<(), MemoryError> {
        total(std::slice::from_ref(segment))?;
        process.learn(*segment);
        let most = match process.absence(*segment, 0) {
            // They come while the bytes are moved, or their owner brings them in.
            (Absence::Cheap | Absence::UserSpace, _) => return Ok(()),
            (_, Some(Kind::File)) => TOUCHED_AT_ONCE,
            _ => 1,
        };
        let end = segment.address + segment.length;
        let mut at = segment.address;
        while at < end && wanted() {
            at = touch_far(process, at..end, most).inspect_err(|_| {
                // Whoever asks next may try: an access tells what is wrong.
                self.far.remember(process.pid(), segment.address..end, tick());
            })?;
        }
        Ok(())
    }

    /// Finds out how the pages of a segment come, where that is not known. May take milliseconds.
    pub fn learn(&self, segment: Segment) {
        self.own.learn(segment);
    }

    /// As [`learn`](Self::learn) in a peer.
    pub fn learn_far(&self, process: &HostProcess, segment: Segment) {
        process.learn(segment);
    }

    /// Asks the kernel how it is with a peer's pages.
    #[cold]
    fn ask_far(
        &self,
        process: &HostProcess,
        segment: Segment,
        moment: u64,
        seen: &mut LastSeen,
    ) -> Result<(), Absence> {
        let Some(end) = segment.address.checked_add(segment.length) else { return Ok(()) };
        if let Some(range) = self.far.remembers(process.pid(), segment.address..end, moment) {
            let middle = Segment { address: segment.address + segment.length / 2, length: 1 };
            if segment.length < SAMPLED || is_there_still(process, middle) {
                *seen = LastSeen { moment, range };
                return Ok(());
            }
            // Mostly what was looked at; the others are looked at below.
            self.far.forget(process.pid(), middle.address..middle.address + 1, moment);
        }
        // What somebody in user space gives and takes is not remembered.
        let watched = process.is_watched(segment);
        if !watched {
            if let Some(whole) = self.far.unknown_block(process.pid(), segment.address..end, moment) {
                let block = Segment { address: whole.start, length: whole.end - whole.start };
                let present = !process.is_watched(block) && process.presence(block) == Presence::All;
                self.far.remember_block(process.pid(), whole.start, present, moment);
                if present {
                    *seen = LastSeen { moment, range: whole };
                    return Ok(());
                }
            }
        }
        match process.presence(segment) {
            Presence::All => {
                if !watched {
                    self.far.remember(process.pid(), segment.address..end, moment);
                    *seen = LastSeen { moment, range: segment.address..end };
                }
                Ok(())
            }
            // An access finds out, as ever.
            Presence::Unknown => Ok(()),
            Presence::SomeEmpty | Presence::SomeSwapped => Err(process.absence(segment, 0).0),
        }
    }

    /// Brings pages in one by one, where the kernel does not do it as a whole; false as above.
    fn touch_each(&self, segment: &Segment, write: bool) -> Result<bool, MemoryError> {
        let page = rustix::param::page_size() as u64;
        let mut at = segment.address;
        while at < segment.address + segment.length {
            match Guard::enter() {
                Some(guard) => {
                    if !guard.touch_until_ended(at, write).map_err(|_| MemoryError::NotMapped)? {
                        return Ok(false);
                    }
                }
                None if write => return Err(MemoryError::NotMapped),
                None => self.read(&[Segment { address: at, length: 1 }], &mut [0])?,
            }
            at = (at / page + 1).saturating_mul(page);
        }
        Ok(true)
    }
}

/// Whether a page of a peer is present, as it was.
fn is_there_still(process: &HostProcess, page: Segment) -> bool {
    matches!(process.presence(page), Presence::All | Presence::Unknown)
}

/// Threads for which the kernel is just bringing in pieces that it has itself.
#[derive(Default)]
struct AtWork {
    threads: AtomicUsize,
    /// The tick at which the last one began with its piece.
    began: AtomicU64,
}

impl AtWork {
    fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        self.began.store(tick(), Ordering::Relaxed);
        self.threads.fetch_add(1, Ordering::Relaxed);
        let outcome = work();
        self.threads.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    #[inline]
    fn is_busy(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 0 && self.began_lately()
    }

    #[cold]
    fn began_lately(&self) -> bool {
        tick().saturating_sub(self.began.load(Ordering::Relaxed)) < LONGEST_WORK
    }
}

impl Default for HostMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl ApplicationMemory for HostMemory {
    type Process = HostProcess;

    fn read(&self, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
        let length = total(from)?.min(into.len() as u64) as usize;
        let into = &mut into[..length];
        if let Some(guard) = Guard::at_hand() {
            return read_directly(&guard, from, into);
        }
        if let Some(file) = arena::file_of(into) {
            return with_file(FileTransfer::FromApplication, file, from, 0, length as u64, false);
        }
        let mut at = 0;
        if length > SCRATCH_COPY {
            let ours = [segment_of(into)];
            match through_process(ProcessTransfer::Read, self.own.pid(), &ours, from, length as u64, false) {
                Ok(()) => return Ok(()),
                Err(Stop::Gone) => return Err(MemoryError::NotMapped),
                Err(Stop::Fault(position)) => at = position as usize,
            }
        }
        for part in into[at..].chunks_mut(SCRATCH_BYTES) {
            let position = at as u64;
            at += part.len();
            scratch::with(|page| {
                let page = &mut page[..part.len()];
                let file = arena::file_of(page).ok_or(MemoryError::NotMapped)?;
                with_file(FileTransfer::FromApplication, file, from, position, part.len() as u64, false)?;
                part.copy_from_slice(page);
                Ok(())
            })
            .unwrap_or_else(|| {
                let (ours, rest) = ([segment_of(part)], rest_of(from, position));
                let length = part.len() as u64;
                through_process(ProcessTransfer::Read, self.own.pid(), &ours, &rest, length, false)
                    .map_err(|_| MemoryError::NotMapped)
            })?;
        }
        Ok(())
    }

    fn write(&self, from: &[u8], to: &[Segment], tail_last: bool) -> Result<(), MemoryError> {
        let length = total(to)?.min(from.len() as u64) as usize;
        let from = &from[..length];
        if let Some(guard) = Guard::at_hand() {
            return write_directly(&guard, from, to, tail_last);
        }
        if let Some(file) = arena::file_of(from) {
            return with_file(FileTransfer::ToApplication, file, to, 0, length as u64, tail_last);
        }
        let mut at = 0;
        if length > SCRATCH_COPY {
            let ours = [segment_of(from)];
            match through_process(ProcessTransfer::Write, self.own.pid(), &ours, to, length as u64, tail_last)
            {
                Ok(()) => return Ok(()),
                Err(Stop::Gone) => return Err(MemoryError::NotMapped),
                Err(Stop::Fault(position)) => at = position as usize,
            }
        }
        // Parts are cut at the tail at the latest, so that it is never split.
        let tail_at = if tail_last { length.saturating_sub(TAIL as usize).max(at) } else { length };
        while at < length {
            let end = (at + SCRATCH_BYTES).min(length);
            let end = if at < tail_at && end > tail_at && end - at == SCRATCH_BYTES { tail_at } else { end };
            let part = &from[at..end];
            let position = at as u64;
            let last = tail_last && end == length;
            at = end;
            scratch::with(|page| {
                let page = &mut page[..part.len()];
                page.copy_from_slice(part);
                let file = arena::file_of(page).ok_or(MemoryError::NotMapped)?;
                with_file(FileTransfer::ToApplication, file, to, position, part.len() as u64, last)
            })
            .unwrap_or_else(|| {
                let (ours, rest) = ([segment_of(part)], rest_of(to, position));
                let length = part.len() as u64;
                through_process(ProcessTransfer::Write, self.own.pid(), &ours, &rest, length, last)
                    .map_err(|_| MemoryError::NotMapped)
            })?;
        }
        Ok(())
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
            (Absence::Cheap, Some(Kind::Anonymous)) if self.watch_list.has(*segment) == Some(true) => {
                Absence::UserSpace
            }
            (absence, _) => absence,
        });
        each.max().unwrap_or(Absence::Cheap)
    }

    fn kernel_may_fault(&self) -> bool {
        !self.own.swaps_at_a_limit()
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
        self.ask_far(process, segment, moment, seen).map_err(Unreached::Absent)
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

/// Touches each page of a segment that is not empty. False: the wait for one was ended.
fn touch_pages(guard: &Mended, segment: &Segment, write: bool) -> Result<bool, MemoryError> {
    let page = rustix::param::page_size() as u64;
    let mut at = segment.address;
    while at < segment.address + segment.length {
        if !guard.touch_until_ended(at, write).map_err(|_| MemoryError::NotMapped)? {
            return Ok(false);
        }
        at = (at / page + 1).saturating_mul(page);
    }
    Ok(true)
}

/// Has pages that were just brought in be the next ones to go, until somebody uses them: pages that come back soon after they went the
/// kernel counts as active at once, and at the limit of a memory cgroup it ends a process of which all are ([`cgroup`](crate::cgroup)).
fn make_cold(segment: &Segment) {
    let page = rustix::param::page_size() as u64;
    let first = segment.address / page * page;
    let length = segment.address + segment.length - first;
    let start = std::ptr::without_provenance_mut(first as usize);
    // SAFETY: MADV_COLD (Linux 5.4) changes no byte and no attribute of the mapping (madvise(2)). It is advice: kernels or mappings
    // for which there is none go on as they would.
    unsafe { libc::madvise(start, length as usize, libc::MADV_COLD) };
}

/// Touches some pages of another process, from the beginning of a range on, for reading; gives the address behind them.
fn touch_far(process: &HostProcess, range: Range<u64>, most: usize) -> Result<u64, MemoryError> {
    if !process.is_alive() {
        return Err(MemoryError::PeerGone);
    }
    let page = rustix::param::page_size() as u64;
    let mut bytes = [0u8; TOUCHED_AT_ONCE];
    let mut there: ArrayVec<Segment, TOUCHED_AT_ONCE> = ArrayVec::new();
    let mut at = range.start;
    while at < range.end && there.len() < most.min(TOUCHED_AT_ONCE) {
        there.push(Segment { address: at, length: 1 });
        at = (at / page + 1).saturating_mul(page);
    }
    let here = [segment_of(&bytes[..there.len()])];
    let touched = through_process(ProcessTransfer::Read, process.pid(), &here, &there, here[0].length, false);
    std::hint::black_box(&mut bytes);
    match touched {
        Ok(()) => Ok(at),
        Err(Stop::Gone) => Err(MemoryError::PeerGone),
        Err(Stop::Fault(_)) if !process.is_alive() => Err(MemoryError::PeerGone),
        Err(Stop::Fault(_)) => Err(MemoryError::PeerNotMapped),
    }
}

/// Copies from segments that together hold as much as `into` at least.
fn read_directly(guard: &Mended, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
    let mut rest = into;
    for segment in from {
        let (part, after) = rest.split_at_mut(rest.len().min(segment.length as usize));
        guard.read(segment.address, part).map_err(|_| MemoryError::NotMapped)?;
        rest = after;
    }
    Ok(())
}

/// Copies to segments that together hold as much as `from` at least.
#[inline]
fn write_directly(guard: &Mended, from: &[u8], to: &[Segment], tail_last: bool) -> Result<(), MemoryError> {
    let body = if tail_last { from.len().saturating_sub(TAIL as usize) } else { from.len() };
    let mut at = 0;
    for segment in to {
        let mut address = segment.address;
        let end = from.len().min(at + segment.length as usize);
        // What the tail has of this segment is copied by itself.
        for edge in [body.clamp(at, end), end] {
            if edge == at {
                continue;
            }
            guard.write(&from[at..edge], address).map_err(|_| MemoryError::NotMapped)?;
            address += (edge - at) as u64;
            at = edge;
        }
    }
    Ok(())
}

#[inline(always)] // Part of each transfer that the requester executes itself.
fn between(
    way: ProcessTransfer,
    process: &HostProcess,
    ours: &[Segment],
    theirs: &[Segment],
    tail_last: bool,
) -> Result<(), MemoryError> {
    let length = common_length(ours, theirs)?;
    match through_process(way, process.pid(), ours, theirs, length, tail_last) {
        Ok(()) => Ok(()),
        Err(stop) => go_on_between(stop, way, process, ours, theirs, tail_last),
    }
}

/// What [`between`] does where a copy stopped.
#[cold]
fn go_on_between(
    mut stop: Stop,
    way: ProcessTransfer,
    process: &HostProcess,
    ours: &[Segment],
    theirs: &[Segment],
    tail_last: bool,
) -> Result<(), MemoryError> {
    let length = common_length(ours, theirs)?;
    let mut done = 0;
    let mut touches = Touches::none();
    loop {
        match stop {
            Stop::Gone => return Err(MemoryError::PeerGone),
            // The kernel answers EFAULT also while the process is taken down.
            Stop::Fault(_) if !process.is_alive() => return Err(MemoryError::PeerGone),
            Stop::Fault(at) => done += at,
        }
        let write = matches!(way, ProcessTransfer::Read);
        if write && !is_readable(process, theirs, done) {
            return Err(MemoryError::PeerNotMapped);
        }
        touches.at(ours, done, write)?;
        let (here, there) = (rest_of(ours, done), rest_of(theirs, done));
        match through_process(way, process.pid(), &here, &there, length - done, tail_last) {
            Ok(()) => return Ok(()),
            Err(again) => stop = again,
        }
    }
}

/// Whether every page of another process can be read that a failed copy from `at` on may have stopped at.
fn is_readable(process: &HostProcess, theirs: &[Segment], at: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let mut position = at;
    while position < at + PIECE as u64 {
        let Some(address) = address_at(theirs, position) else { break };
        let (mut byte, there) = ([0u8], [Segment { address, length: 1 }]);
        let here = [Segment { address: byte.as_mut_ptr() as u64, length: 1 }];
        if through_process(ProcessTransfer::Read, process.pid(), &here, &there, 1, false).is_err() {
            return false;
        }
        let segment_end = theirs
            .iter()
            .scan(0, |end, segment| {
                *end += segment.length;
                Some(*end)
            })
            .find(|end| *end > position);
        let to_page_end = page - address % page;
        position = (position + to_page_end).min(segment_end.unwrap_or(u64::MAX));
    }
    true
}

/// [`through_file`]; a page that the kernel cannot reach is touched in user mode.
fn with_file(
    way: FileTransfer,
    (file, offset): (i32, i64),
    segments: &[Segment],
    position: u64,
    length: u64,
    tail_last: bool,
) -> Result<(), MemoryError> {
    let mut done = 0;
    let mut touches = Touches::none();
    loop {
        let rest = (file, offset + done as i64);
        match through_file(way, rest, segments, position + done, length - done, tail_last) {
            Ok(()) => return Ok(()),
            Err(Stop::Gone) => return Err(MemoryError::NotMapped),
            Err(Stop::Fault(at)) => {
                touches.at(segments, at, matches!(way, FileTransfer::ToApplication))?;
                done = at - position;
            }
        }
    }
}

/// Pages that the kernel could not reach and that were touched in user mode instead.
struct Touches {
    last: Option<u64>,
    times: u32,
}

impl Touches {
    const fn none() -> Self {
        Touches { last: None, times: 0 }
    }

    /// Touches what lies at a position of the application's segments. A page may have left again before the kernel came to it;
    /// one that it never reaches is an error in the end.
    fn at(&mut self, segments: &[Segment], position: u64, write: bool) -> Result<(), MemoryError> {
        self.times = if self.last == Some(position) { self.times + 1 } else { 1 };
        self.last = Some(position);
        if self.times > TOUCHES {
            return Err(MemoryError::NotMapped);
        }
        let address = address_at(segments, position).ok_or(MemoryError::NotMapped)?;
        let guard = Guard::enter().ok_or(MemoryError::NotMapped)?;
        guard.touch(address, write).map_err(|_| MemoryError::NotMapped)
    }
}

fn segment_of(bytes: &[u8]) -> Segment {
    Segment { address: bytes.as_ptr() as u64, length: bytes.len() as u64 }
}

/// The segments from a position on.
fn rest_of(segments: &[Segment], position: u64) -> Vec<Segment> {
    part_of(segments, position, u64::MAX)
}

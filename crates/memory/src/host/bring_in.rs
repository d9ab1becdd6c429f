//! Pages are brought in: of this process by the kernel at once where it has them itself, else from user mode, where a wait can be
//! ended; of a peer by reading a byte of each.

use super::HostMemory;
use super::copies::segment_of;
use crate::clock::tick;
use crate::guard::{FaultGuard, Guard};
use crate::limits::{BROUGHT_IN_AT_ONCE, LONGEST_WORK, POPULATED_PAGES, TOUCH_BATCH};
use crate::mappings::MappingKind;
use crate::process::HostProcess;
use crate::segments::total;
use crate::transfer::{ProcessTransfer, Stop, through_process};
use crate::{Absence, ApplicationMemory, MemoryError, Segment, atomic};
use arrayvec::ArrayVec;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

impl HostMemory {
    /// As [`bring_in`](ApplicationMemory::bring_in), piece by piece: a page where somebody in user space gives it, or that is not known,
    /// else 64 KiB at most. Each is brought in while what `begin` gives for it lives. From where it gives none nothing is.
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
    pub(super) fn bring_in_until_ended(&self, segment: &Segment, write: bool) -> Result<bool, MemoryError> {
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
    pub fn bring_in_peer(
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
            (_, Some(MappingKind::File)) => TOUCH_BATCH,
            _ => 1,
        };
        let end = segment.address + segment.length;
        let mut at = segment.address;
        while at < end && wanted() {
            at = touch_peer(process, at..end, most).inspect_err(|_| {
                // Whoever asks next may try: an access tells what is wrong.
                self.peer_pages.remember(process.pid(), segment.address..end, tick());
            })?;
        }
        Ok(())
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

/// Threads for which the kernel is just bringing in pieces that it has itself.
#[derive(Default)]
pub(super) struct AtWork {
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

/// Touches each page of a segment that is not empty. False: the wait for one was ended.
fn touch_pages(guard: &FaultGuard, segment: &Segment, write: bool) -> Result<bool, MemoryError> {
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
fn touch_peer(process: &HostProcess, range: Range<u64>, most: usize) -> Result<u64, MemoryError> {
    if !process.is_alive() {
        return Err(MemoryError::PeerGone);
    }
    let page = rustix::param::page_size() as u64;
    let mut bytes = [0u8; TOUCH_BATCH];
    let mut there: ArrayVec<Segment, TOUCH_BATCH> = ArrayVec::new();
    let mut at = range.start;
    while at < range.end && there.len() < most.min(TOUCH_BATCH) {
        there.push(Segment { address: at, length: 1 });
        at = (at / page + 1).saturating_mul(page);
    }
    let here = [segment_of(&bytes[..there.len()])];
    let touched = through_process(ProcessTransfer::Read, process.pid(), &here, &there, here[0].length, false);
    std::hint::black_box(&mut bytes);
    match touched {
        Ok(()) => Ok(at),
        Err(Stop::Gone) => Err(MemoryError::PeerGone),
        Err(Stop::Denied) => {
            process.set_denied();
            Err(MemoryError::PeerDenied)
        }
        Err(Stop::Fault(_)) if !process.is_alive() => Err(MemoryError::PeerGone),
        Err(Stop::Fault(_)) => Err(MemoryError::PeerNotMapped),
    }
}

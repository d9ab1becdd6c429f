//! Whether pages are present, by mincore(2), with a small memory of those seen lately.

use crate::clock::tick;
use crate::limits::{REMEMBERED_PAGES, REMEMBERED_RANGE, RESIDENCY_PAGES};
use crate::{Residency, Segment};
use std::sync::atomic::{AtomicU64, Ordering};

/// Low bits of an entry: the tick in which the page was seen, in milliseconds. They wrap after some minutes; a stale entry that happens to look
/// fresh costs a wait.
const TIME_BITS: u32 = 19;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Pages seen resident in this tick of the kernel's clock. Direct-mapped, shared by all threads, without locks: an entry is one word.
pub struct ResidentPages {
    entries: Box<[AtomicU64]>,
    page: u64,
    /// Bits of an address within its page.
    page_bits: u32,
}

impl ResidentPages {
    /// An empty memory.
    pub fn new() -> Self {
        let page = rustix::param::page_size() as u64;
        ResidentPages {
            // Not by way of an array, which an unoptimised build would have on the program's stack.
            entries: (0..REMEMBERED_PAGES).map(|_| AtomicU64::new(u64::MAX)).collect(),
            page,
            page_bits: page.trailing_zeros(),
        }
    }

    /// The worst that is known of these segments.
    pub fn look(&self, segments: &[Segment]) -> Residency {
        let mut worst = Residency::Resident;
        for segment in segments.iter().filter(|segment| segment.length > 0) {
            match self.look_at(segment) {
                Residency::Resident => {}
                Residency::Absent => worst = Residency::Absent,
                Residency::NotMapped => return Residency::NotMapped,
            }
        }
        worst
    }

    /// Whether a segment lies in one page, or in two, that are remembered at `tick`, the present [`tick`](crate::clock::tick).
    #[inline]
    pub fn remembers_all(&self, segment: Segment, tick: u64) -> bool {
        let Some(last) = segment.address.checked_add(segment.length.saturating_sub(1)) else { return false };
        let (first, last) = (segment.address >> self.page_bits, last >> self.page_bits);
        let now = time(tick);
        self.remembers(first, now) && (last == first || last == first + 1 && self.remembers(last, now))
    }

    fn look_at(&self, segment: &Segment) -> Residency {
        let Some(end) = segment.address.checked_add(segment.length) else { return Residency::NotMapped };
        let (first, last) = (segment.address >> self.page_bits, (end - 1) >> self.page_bits);
        let now = time(tick());
        let small = last - first < REMEMBERED_RANGE;
        if small && (first..=last).all(|page| self.remembers(page, now)) {
            return Residency::Resident;
        }
        if small && self.look_ahead(first, now) && (first..=last).all(|page| self.remembers(page, now)) {
            return Residency::Resident;
        }
        let seen = ask(first * self.page, last - first + 1, self.page);
        if small && seen == Residency::Resident {
            (first..=last).for_each(|page| self.remember(page, now));
        }
        seen
    }

    /// Remembers which of the pages from `first` on are present: who transfers in pieces comes to them next. False: it cannot
    /// be said of all of them at once, as where not all are mapped.
    fn look_ahead(&self, first: u64, now: u64) -> bool {
        let mut present = [0u8; REMEMBERED_RANGE as usize];
        let at = std::ptr::without_provenance_mut((first * self.page) as usize);
        // SAFETY: mincore(2) reads no memory of the range, and writes one byte for each of its pages, which `present` has.
        if unsafe { libc::mincore(at, (REMEMBERED_RANGE * self.page) as usize, present.as_mut_ptr()) } != 0 {
            return false;
        }
        for (page, byte) in (first..).zip(present) {
            // The other bits are reserved.
            if byte & 1 == 1 {
                self.remember(page, now);
            }
        }
        true
    }

    fn remember(&self, page: u64, now: u64) {
        self.entries[page as usize % REMEMBERED_PAGES].store(entry(page, now), Ordering::Relaxed);
    }

    fn remembers(&self, page: u64, now: u64) -> bool {
        let known = self.entries[page as usize % REMEMBERED_PAGES].load(Ordering::Relaxed);
        known == entry(page, now)
    }
}

/// As entries tell it.
fn time(tick: u64) -> u64 {
    tick / 1_000_000
}

fn entry(page: u64, time: u64) -> u64 {
    page << TIME_BITS | time & TIME_MASK
}

/// Asks the kernel, part by part, so that neither memory nor time in the kernel grows with the range.
fn ask(address: u64, pages: u64, page: u64) -> Residency {
    let mut present = [0u8; RESIDENCY_PAGES];
    let mut done = 0;
    while done < pages {
        let part = (pages - done).min(RESIDENCY_PAGES as u64);
        let at = std::ptr::without_provenance_mut((address + done * page) as usize);
        // SAFETY: mincore(2) reads no memory of the range, and writes one byte for each of `part` pages, which `present`
        // has.
        if unsafe { libc::mincore(at, (part * page) as usize, present.as_mut_ptr()) } != 0 {
            return match std::io::Error::last_os_error().raw_os_error() {
                // The kernel is short of memory for the answer: not known to be there.
                Some(libc::EAGAIN) => Residency::Absent,
                _ => Residency::NotMapped,
            };
        }
        // The other bits are reserved.
        if present[..part as usize].iter().any(|byte| byte & 1 == 0) {
            return Residency::Absent;
        }
        done += part;
    }
    Residency::Resident
}

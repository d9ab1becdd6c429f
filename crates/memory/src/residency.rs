//! Whether pages are present, by mincore(2), with a small memory of those seen lately.

use crate::clock::tick;
use crate::limits::{BLOCK_PAGES, REMEMBERED_BLOCKS, REMEMBERED_PAGES, RESIDENCY_PAGES, SHORT_PAGES};
use crate::{LastSeen, Residency, Segment};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Low bits of an entry: the tick in which it was made, in milliseconds. They wrap after some minutes; a stale entry that happens to look
/// fresh costs a wait.
pub const TIME_BITS: u32 = 19;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Pages seen resident in this tick of the kernel's clock, those of long ranges by blocks that are whole.
pub struct ResidentPages {
    pages: RecentNumbers,
    blocks: RecentNumbers,
    page: u64,
    /// Bits of an address within its page.
    page_bits: u32,
}

impl ResidentPages {
    /// An empty memory.
    pub fn new() -> Self {
        let page = rustix::param::page_size() as u64;
        ResidentPages {
            pages: RecentNumbers::new(),
            blocks: RecentNumbers::new(),
            page,
            page_bits: page.trailing_zeros(),
        }
    }

    /// The worst that is known of these segments of the process that this is. Of memory that is watched nothing is remembered: its
    /// pages come and go as somebody in user space pleases.
    pub fn look(&self, segments: &[Segment], is_watched: impl Fn(Segment) -> bool) -> Residency {
        let (mut worst, now) = (Residency::Resident, tick());
        for segment in segments.iter().filter(|segment| segment.length > 0) {
            match self.look_at(*segment, now, &is_watched) {
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
        let seen = |page| self.pages.has(page, now);
        seen(first) && (last == first || last == first + 1 && seen(last))
    }

    /// Whether a segment lies in one page that is remembered at `tick`.
    #[inline]
    pub fn remembers_page(&self, segment: Segment, tick: u64) -> bool {
        let last = segment.address.saturating_add(segment.length.saturating_sub(1)) >> self.page_bits;
        segment.address >> self.page_bits == last && self.pages.has(last, time(tick))
    }

    /// What is known of a segment that is not empty, at `tick`.
    pub fn look_at(&self, segment: Segment, tick: u64, is_watched: impl Fn(Segment) -> bool) -> Residency {
        match self.pages_of(segment) {
            None => Residency::NotMapped,
            Some((first, last)) if self.knows(first, last, time(tick)) => Residency::Resident,
            Some((first, last)) => self.ask_for(segment, first, last, time(tick), is_watched),
        }
    }

    /// Whether the pages of a segment are present, for a caller that mostly asks for one segment again. What is remembered of the
    /// segment is noted in `seen`, too.
    #[inline(never)] // Its caller is part of each transfer that the requester executes itself.
    pub fn look_for(
        &self,
        segment: Segment,
        tick: u64,
        is_watched: impl Fn(Segment) -> bool,
        seen: &mut LastSeen,
    ) -> Residency {
        match self.pages_of(segment) {
            Some((first, last)) if self.knows(first, last, time(tick)) => {
                let range = segment.address..segment.address + segment.length;
                *seen = LastSeen { moment: tick, range };
                Residency::Resident
            }
            _ => self.look_at(segment, tick, is_watched),
        }
    }

    /// What is known of a segment that is not empty, and whether all of `ahead` is resident, which begins with it. Where the kernel had to be
    /// asked for the former, that was for [`BLOCK_PAGES`] at least: it is not asked again for those.
    pub fn look_ahead(
        &self,
        segment: Segment,
        ahead: Segment,
        is_watched: impl Fn(Segment) -> bool,
    ) -> (Residency, bool) {
        let now = tick();
        let (Some((first, last)), Some((_, end))) = (self.pages_of(segment), self.pages_of(ahead)) else {
            return (Residency::NotMapped, false);
        };
        let known = self.knows(first, last, time(now));
        let residency = match known {
            true => Residency::Resident,
            false => self.ask_for(segment, first, last, time(now), &is_watched),
        };
        let asked = !known && end - first < BLOCK_PAGES;
        let all = residency == Residency::Resident
            && (self.knows(first, end, time(now))
                || !asked && self.look_at(ahead, now, is_watched) == Residency::Resident);
        (residency, all)
    }

    /// The first and the last page of a segment that is not empty. `None`: no memory goes so far.
    #[inline]
    fn pages_of(&self, segment: Segment) -> Option<(u64, u64)> {
        let end = segment.address.checked_add(segment.length)?;
        Some((segment.address >> self.page_bits, (end - 1) >> self.page_bits))
    }

    /// Whether all pages from `first` to `last`, mostly one, are remembered.
    #[inline]
    fn knows(&self, first: u64, last: u64, now: u64) -> bool {
        if first == last { self.pages.has(first, now) } else { self.remembers(first, last, now) }
    }

    /// Asks the kernel about a segment from the page `first` to the page `last`.
    fn ask_for(
        &self,
        segment: Segment,
        first: u64,
        last: u64,
        now: u64,
        is_watched: impl Fn(Segment) -> bool,
    ) -> Residency {
        let around = (last - first + 1).max(BLOCK_PAGES);
        // Mostly nothing there is watched.
        let alone = is_watched(Segment { address: first * self.page, length: around * self.page });
        let watched = alone && is_watched(segment);
        let ahead = if alone { None } else { self.ask_ahead(first, last - first + 1, now) };
        if let Some(seen) = ahead {
            return seen;
        }
        let seen = ask(first * self.page, last - first + 1, self.page);
        if seen == Residency::Resident && !watched {
            self.remember(first, last, now);
        }
        seen
    }

    /// Whether all pages from `first` to `last` are remembered.
    fn remembers(&self, first: u64, last: u64, now: u64) -> bool {
        let Some((blocks, edges)) = parts(first, last) else { return false };
        edges.into_iter().all(|pages| self.pages.has_all(pages, now)) && self.blocks.has_all(blocks, now)
    }

    /// Remembers that the pages of a segment, which is not empty, have just come in.
    pub fn note(&self, segment: Segment, tick: u64) {
        let last = segment.address.saturating_add(segment.length - 1) >> self.page_bits;
        self.remember(segment.address >> self.page_bits, last, time(tick));
    }

    /// A short range by its pages and its whole blocks: parts of it, and of several such ones, are known then.
    #[inline(never)] // What reads is part of every access.
    fn remember(&self, first: u64, last: u64, now: u64) {
        let Some((blocks, edges)) = parts(first, last) else { return };
        if last - first < SHORT_PAGES {
            (first..=last).for_each(|page| self.pages.add(page, now));
            let whole = first.div_ceil(BLOCK_PAGES)..(last + 1) / BLOCK_PAGES;
            whole.for_each(|block| self.blocks.add(block, now));
            return;
        }
        edges.into_iter().flatten().for_each(|page| self.pages.add(page, now));
        blocks.into_iter().for_each(|block| self.blocks.add(block, now));
    }

    /// Remembers which of the pages from `first` on are present: who transfers in pieces comes to them next. Gives how it is with the first
    /// `count` of them. `None`: these are too many, or it cannot be said of all of them at once, as where not all are mapped.
    fn ask_ahead(&self, first: u64, count: u64, now: u64) -> Option<Residency> {
        if count > BLOCK_PAGES {
            return None;
        }
        let mut present = [0u8; BLOCK_PAGES as usize];
        let at = std::ptr::without_provenance_mut((first * self.page) as usize);
        // SAFETY: mincore(2) reads no memory of the range, and writes one byte for each of its pages, which `present` has.
        if unsafe { libc::mincore(at, (BLOCK_PAGES * self.page) as usize, present.as_mut_ptr()) } != 0 {
            return None;
        }
        // The other bits are reserved.
        let is_present = |byte: &u8| byte & 1 == 1;
        for (page, _) in (first..).zip(&present).filter(|(_, byte)| is_present(byte)) {
            self.pages.add(page, now);
        }
        let all = present[..count as usize].iter().all(is_present);
        Some(if all { Residency::Resident } else { Residency::Absent })
    }
}

/// The pages from `first` to `last` as the blocks that are whole, and the pages before and behind these; a block alone, or a range
/// without a whole one, has pages only. `None`: it is too long to be remembered.
fn parts(first: u64, last: u64) -> Option<(Range<u64>, [Range<u64>; 2])> {
    let end = last + 1;
    let (from, to) = (first.div_ceil(BLOCK_PAGES), end / BLOCK_PAGES);
    if last - first < BLOCK_PAGES || from >= to {
        return Some((0..0, [first..end, 0..0]));
    }
    (to - from <= REMEMBERED_BLOCKS).then(|| (from..to, [first..from * BLOCK_PAGES, to * BLOCK_PAGES..end]))
}

/// Numbers of what was seen at one time. Direct-mapped, shared by all threads, without locks: an entry is one word.
pub struct RecentNumbers(Box<[AtomicU64; REMEMBERED_PAGES]>);

impl RecentNumbers {
    /// Nothing yet.
    pub fn new() -> Self {
        // Not by way of an array, which an unoptimised build would have on the program's stack.
        let entries: Box<[AtomicU64]> = (0..REMEMBERED_PAGES).map(|_| AtomicU64::new(u64::MAX)).collect();
        RecentNumbers(entries.try_into().expect("as many as were made"))
    }

    /// Notes a number.
    pub fn add(&self, number: u64, now: u64) {
        self.0[number as usize % REMEMBERED_PAGES].store(entry(number, now), Ordering::Relaxed);
    }

    /// Whether a number was noted at the same time. Times differ by the lowest bits that an entry has room for.
    #[inline]
    pub fn has(&self, number: u64, now: u64) -> bool {
        self.is(number, entry(number, now))
    }

    /// Whether all of several numbers were noted at one time ([`has`](Self::has)).
    #[inline]
    pub fn has_all(&self, numbers: Range<u64>, now: u64) -> bool {
        let mut expected = entry(numbers.start, now);
        for number in numbers {
            if !self.is(number, expected) {
                return false;
            }
            expected = expected.wrapping_add(1 << TIME_BITS);
        }
        true
    }

    fn is(&self, number: u64, expected: u64) -> bool {
        self.0[number as usize % REMEMBERED_PAGES].load(Ordering::Relaxed) == expected
    }
}

/// As entries tell it.
fn time(tick: u64) -> u64 {
    tick / 1_000_000
}

/// Numbers are cut to 45 bits: no program has pages at addresses that need more.
fn entry(number: u64, time: u64) -> u64 {
    number << TIME_BITS | time & TIME_MASK
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_page_is_in_one_part(first in 0u64..1 << 36, pages in 1u64..40 * BLOCK_PAGES) {
            let (blocks, [before, behind]) = parts(first, first + pages - 1).unwrap();
            let whole = blocks.flat_map(|block| block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES);
            let mut all: Vec<u64> = before.chain(whole).chain(behind).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (first..first + pages).collect::<Vec<_>>());
        }

        #[test]
        fn of_what_is_remembered_every_part_that_begins_and_ends_with_a_block_is_known_and_nothing_else(
            first in 0u64..1 << 30, pages in 2 * BLOCK_PAGES..40 * BLOCK_PAGES, from in 0u64..60, blocks in 1u64..60,
        ) {
            let memory = ResidentPages::new();
            memory.remember(first, first + pages - 1, 7);
            prop_assert!(memory.remembers(first, first + pages - 1, 7));
            prop_assert!(!memory.remembers(first, first + pages - 1, 8), "in the next millisecond");
            prop_assert!(!memory.remembers(first, first + pages, 7));
            let from = (first.saturating_sub(10 * BLOCK_PAGES)).next_multiple_of(BLOCK_PAGES) + from * BLOCK_PAGES;
            let to = from + (blocks + 1) * BLOCK_PAGES - 1;
            let whole = first.div_ceil(BLOCK_PAGES) * BLOCK_PAGES..(first + pages) / BLOCK_PAGES * BLOCK_PAGES;
            prop_assert_eq!(memory.remembers(from, to, 7), whole.contains(&from) && whole.contains(&to));
        }
    }

    #[test]
    fn a_range_that_would_drive_out_everything_else_is_not_remembered() {
        let longest = REMEMBERED_BLOCKS * BLOCK_PAGES;
        assert!(parts(0, longest - 1).is_some() && parts(0, longest + BLOCK_PAGES - 1).is_none());
        assert!(parts(0, u64::MAX >> 12).is_none());
    }
}

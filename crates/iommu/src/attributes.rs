//! Attributes of pages: which accesses of peers reach memory, which are logged, and in which access log (PAPERS AA-2).

use crate::words::{SharedWords, Site};
use bitflags::bitflags;
use std::ops::Range;

/// Setting attributes.
pub const ATTRIBUTES: Site = Site("region.attributes");

/// Bytes of a page that has attributes of its own.
pub const PAGE: u64 = 4096;

bitflags! {
    /// What becomes of accesses of peers to a page (PAPERS AA-2). The bits do not depend on each other.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct PageFlags: u32 {
        /// R: reads give what is in memory. Without it they are refused.
        const READ = 1;
        /// W: writes reach memory. Without it they are redirected into the log, if that has their data, and else refused.
        const WRITE = 1 << 1;
        /// RL: metadata of reads are logged.
        const LOG_READ = 1 << 2;
        /// RLD: what reads return is logged, too.
        const LOG_READ_DATA = 1 << 3;
        /// WL: metadata of writes are logged.
        const LOG_WRITE = 1 << 4;
        /// WLD: what is written is logged, too.
        const LOG_WRITE_DATA = 1 << 5;
        /// E: records go to the access log of the user domain. Without it metadata go to the fault log.
        const TO_ACCESS_LOG = 1 << 6;
    }
}

/// Attributes of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageAttributes {
    pub flags: PageFlags,
    /// The user domain, which selects the access log: below [`USER_DOMAINS`](crate::limits::USER_DOMAINS).
    pub user_domain: u16,
}

/// How an access touches memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    Read,
    Write,
    /// It reads and writes.
    Atomic,
}

/// What becomes of an access to pages with equal attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessEffect {
    /// It is made: in memory, or redirected into the log. Else the peer gets a remote access error.
    pub is_allowed: bool,
    /// It reaches memory.
    pub reaches_memory: bool,
    pub logging: Logging,
}

/// What is logged of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logging {
    None,
    Metadata,
    Data,
    /// Metadata, in the fault log.
    Fault,
}

const USER_DOMAIN_SHIFT: u32 = 16;

impl PageAttributes {
    /// Those of a page without interception.
    pub const ORDINARY: PageAttributes =
        PageAttributes { flags: PageFlags::READ.union(PageFlags::WRITE), user_domain: 0 };

    fn bits(self) -> u32 {
        self.flags.bits() | u32::from(self.user_domain) << USER_DOMAIN_SHIFT
    }

    fn from_bits(bits: u32) -> PageAttributes {
        let user_domain = (bits >> USER_DOMAIN_SHIFT) as u16;
        PageAttributes { flags: PageFlags::from_bits_truncate(bits), user_domain }
    }

    /// What becomes of an access of this kind. An atomic needs R and W, and is logged as a write.
    pub fn effect(self, kind: AccessKind) -> AccessEffect {
        let flags = self.flags;
        let (reads, writes) = (kind != AccessKind::Write, kind != AccessKind::Read);
        let (metadata, data) = match writes {
            true => (PageFlags::LOG_WRITE, PageFlags::LOG_WRITE_DATA),
            false => (PageFlags::LOG_READ, PageFlags::LOG_READ_DATA),
        };
        let (metadata, data) = (flags.intersects(metadata | data), flags.contains(data));
        let to_access_log = flags.contains(PageFlags::TO_ACCESS_LOG);
        let may_read = !reads || flags.contains(PageFlags::READ);
        let may_write = !writes || flags.contains(PageFlags::WRITE);
        let reaches_memory = may_read && may_write;
        // An atomic gives what was in memory, so it cannot be redirected.
        let is_redirected = kind == AccessKind::Write && !may_write && data && to_access_log;
        let is_allowed = reaches_memory || is_redirected;
        let logging = match (metadata, to_access_log) {
            (false, _) => Logging::None,
            (true, false) => Logging::Fault,
            (true, true) if data && is_allowed => Logging::Data,
            (true, true) => Logging::Metadata,
        };
        AccessEffect { is_allowed, reaches_memory, logging }
    }

    /// The log that gets the records of such accesses: that of a user domain, or the fault log (`Some(None)`). `None`: there are no records.
    fn log_of(self, kind: AccessKind) -> Option<Option<u16>> {
        match self.effect(kind).logging {
            Logging::None => None,
            Logging::Fault => Some(None),
            Logging::Metadata | Logging::Data => Some(Some(self.user_domain)),
        }
    }
}

/// The attributes of the pages of a range of addresses. Pages begin where the range does.
///
/// There are two pages in each word, so that memory which is sparse has no more than the pages that were set.
#[derive(Clone)]
pub struct AttributeTable<W> {
    words: W,
    range: Range<u64>,
}

/// Why attributes cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    #[error(
        "the range cuts a page: it has to begin and to end at a multiple of 4096 bytes, or at the end of the region"
    )]
    CutsPage,
    #[error("the range leaves the region")]
    Bounds,
    #[error("the user domain is none of 0 to 1023")]
    UserDomain,
}

impl<W: SharedWords> AttributeTable<W> {
    /// Words that a table for so many bytes takes.
    pub fn words_for(length: u64) -> usize {
        length.div_ceil(PAGE).div_ceil(2) as usize
    }

    /// The table of a range in words of zero, as [`words_for`](Self::words_for) says: its pages are ordinary.
    pub fn new(words: W, range: Range<u64>) -> Self {
        AttributeTable { words, range }
    }

    /// The addresses that have attributes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Sets the attributes of the pages that some bytes of the range are.
    ///
    /// # Errors
    /// As [`AttributeError`] says; nothing was set.
    pub fn set(&self, bytes: Range<u64>, attributes: PageAttributes) -> Result<(), AttributeError> {
        let length = self.range.end - self.range.start;
        if bytes.start > bytes.end || bytes.end > length {
            return Err(AttributeError::Bounds);
        }
        if bytes.start % PAGE != 0 || bytes.end % PAGE != 0 && bytes.end != length {
            return Err(AttributeError::CutsPage);
        }
        if usize::from(attributes.user_domain) >= crate::limits::USER_DOMAINS {
            return Err(AttributeError::UserDomain);
        }
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            self.set_page(page, attributes);
        }
        Ok(())
    }

    fn set_page(&self, page: u64, attributes: PageAttributes) {
        let (index, shift) = place_of(page);
        // What is kept is the difference to an ordinary page, of which a new table is full.
        let bits = u64::from(attributes.bits() ^ PageAttributes::ORDINARY.bits()) << shift;
        loop {
            let word = self.words.load(index);
            let changed = word & !(u64::from(u32::MAX) << shift) | bits;
            if self.words.compare_exchange(ATTRIBUTES, index, word, changed).is_ok() {
                return;
            }
        }
    }

    /// Those of the page at an address of the range.
    pub fn at(&self, address: u64) -> PageAttributes {
        let (index, shift) = place_of(address.wrapping_sub(self.range.start) / PAGE);
        if index >= self.words.len() {
            return PageAttributes::ORDINARY;
        }
        PageAttributes::from_bits((self.words.load(index) >> shift) as u32 ^ PageAttributes::ORDINARY.bits())
    }

    /// Cuts an access to bytes of the range into runs of pages with equal attributes, in the order of their addresses.
    pub fn runs(&self, address: u64, length: u64) -> AttributeRuns<'_, W> {
        AttributeRuns { table: self, at: address, end: address.saturating_add(length) }
    }

    /// Whether a piece of an access is the first that its log gets of the access, and whether it is the last. `attributes`: those of the piece;
    /// `whole`: the access. What lies nearest is looked at first: few pages in a row have different logs.
    pub fn ends(
        &self,
        kind: AccessKind,
        attributes: PageAttributes,
        piece: Range<u64>,
        whole: Range<u64>,
    ) -> (bool, bool) {
        let log = attributes.log_of(kind);
        let logs_there = |at: u64| self.at(at).log_of(kind) == log;
        let in_page = |at: u64| at.wrapping_sub(self.range.start) % PAGE;
        let page_before = |at: u64| at.checked_sub(in_page(at) + 1);
        let page_behind = |at: u64| at.checked_add(PAGE - in_page(at));
        let before = std::iter::successors(piece.start.checked_sub(1), |at| page_before(*at));
        let behind = std::iter::successors(Some(piece.end), |at| page_behind(*at));
        let is_first = !before.take_while(|at| *at >= whole.start).any(logs_there);
        let is_last = !behind.take_while(|at| *at < whole.end).any(logs_there);
        (is_first, is_last)
    }
}

fn place_of(page: u64) -> (usize, u32) {
    ((page / 2) as usize, (page % 2) as u32 * 32)
}

/// See [`AttributeTable::runs`].
pub struct AttributeRuns<'t, W> {
    table: &'t AttributeTable<W>,
    at: u64,
    end: u64,
}

impl<W: SharedWords> Iterator for AttributeRuns<'_, W> {
    type Item = (Range<u64>, PageAttributes);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let (from, base) = (self.at, self.table.range.start);
        let attributes = self.table.at(from);
        let mut to = from;
        while to < self.end && self.table.at(to) == attributes {
            // The base may be a peer's word: it may lie behind the access, or so near the end that the next page has no address.
            let in_page = to.wrapping_sub(base) % PAGE;
            to = to.saturating_add(PAGE - in_page).min(self.end);
        }
        // Attributes that change meanwhile cut no run short.
        self.at = to.max(from + 1);
        Some((from..self.at, attributes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessWords;
    use proptest::prelude::*;

    fn table(pages: u64) -> AttributeTable<ProcessWords> {
        let words = ProcessWords::new(AttributeTable::<ProcessWords>::words_for(pages * PAGE));
        AttributeTable::new(words, 0x10_0000..0x10_0000 + pages * PAGE)
    }

    fn attributes(flags: PageFlags, user_domain: u16) -> PageAttributes {
        PageAttributes { flags, user_domain }
    }

    /// PAPERS AA-2, AA-3 and AA-4; DESIGN "What the caller sees".
    #[test]
    fn each_combination_of_flags_has_its_effect() {
        for bits in 0..=PageFlags::all().bits() {
            let flags = PageFlags::from_bits_retain(bits);
            let has = |flag| flags.contains(flag);
            let (read, write) = (has(PageFlags::READ), has(PageFlags::WRITE));
            let logged = |effect: AccessEffect, metadata: bool, data: bool, allowed: bool| {
                let expected = match (metadata || data, has(PageFlags::TO_ACCESS_LOG)) {
                    (false, _) => Logging::None,
                    (true, false) => Logging::Fault,
                    (true, true) if data && allowed => Logging::Data,
                    (true, true) => Logging::Metadata,
                };
                assert_eq!(effect.logging, expected, "{flags:?}");
                assert_eq!(effect.is_allowed, allowed, "{flags:?}");
            };
            let page = attributes(flags, 0);
            let get = page.effect(AccessKind::Read);
            assert_eq!(get.reaches_memory, read);
            logged(get, has(PageFlags::LOG_READ), has(PageFlags::LOG_READ_DATA), read);
            let put = page.effect(AccessKind::Write);
            assert_eq!(put.reaches_memory, write);
            let redirected = has(PageFlags::LOG_WRITE_DATA) && has(PageFlags::TO_ACCESS_LOG);
            logged(put, has(PageFlags::LOG_WRITE), has(PageFlags::LOG_WRITE_DATA), write || redirected);
            let atomic = page.effect(AccessKind::Atomic);
            assert_eq!(atomic.reaches_memory, read && write);
            logged(atomic, has(PageFlags::LOG_WRITE), has(PageFlags::LOG_WRITE_DATA), read && write);
        }
    }

    #[test]
    fn new_tables_are_ordinary_and_ranges_that_cut_a_page_are_refused() {
        let table = table(3);
        assert_eq!(table.at(0x10_0000), PageAttributes::ORDINARY);
        let counted = attributes(PageFlags::LOG_WRITE, 3);
        assert_eq!(table.set(0..100, counted), Err(AttributeError::CutsPage));
        assert_eq!(table.set(1..PAGE, counted), Err(AttributeError::CutsPage));
        assert_eq!(table.set(0..4 * PAGE, counted), Err(AttributeError::Bounds));
        assert_eq!(table.set(0..PAGE, attributes(PageFlags::READ, 1024)), Err(AttributeError::UserDomain));
        assert_eq!(table.at(0x10_0000), PageAttributes::ORDINARY);
        table.set(PAGE..2 * PAGE, counted).unwrap();
        let runs: Vec<_> = table.runs(0x10_0FFF, PAGE + 2).collect();
        let ordinary = PageAttributes::ORDINARY;
        let expected = [
            (0x10_0FFF..0x10_1000, ordinary),
            (0x10_1000..0x10_2000, counted),
            (0x10_2000..0x10_2001, ordinary),
        ];
        assert_eq!(runs, expected);
    }

    /// A peer says with which address its table begins.
    #[test]
    fn a_base_behind_the_access_or_at_the_end_of_all_addresses_ends_no_walk() {
        let words = ProcessWords::new(2);
        for base in [0, 1, 0x10_0800, 0x20_0000, u64::MAX - 1, u64::MAX] {
            let table = AttributeTable::new(words.clone(), base..u64::MAX);
            for (at, length) in [(0x10_0000, 3 * PAGE), (u64::MAX - PAGE - 5, PAGE), (u64::MAX - 5, 100)] {
                let (mut next, end) = (at, at.saturating_add(length));
                for (run, attributes) in table.runs(at, length) {
                    assert!(run.start == next && run.end > run.start, "{base:#x} {run:?}");
                    assert_eq!(attributes, PageAttributes::ORDINARY);
                    next = run.end;
                }
                assert_eq!(next, end, "{base:#x}");
            }
        }
    }

    proptest! {
        #[test]
        fn runs_cover_each_access_once(
            set in prop::collection::vec((0u64..16, 0u64..16, 0u32..128, 0u16..1024), 0..8),
            at in 0..16 * PAGE, length in 0..16 * PAGE,
        ) {
            let table = table(16);
            let mut model = [PageAttributes::ORDINARY; 16];
            for (from, to, bits, user_domain) in set {
                let (from, to) = (from.min(to), from.max(to));
                let set = attributes(PageFlags::from_bits_retain(bits), user_domain);
                table.set(from * PAGE..to * PAGE, set).unwrap();
                model[from as usize..to as usize].fill(set);
            }
            let length = length.min(16 * PAGE - at);
            let mut next = 0x10_0000 + at;
            let mut last = None;
            for (run, attributes) in table.runs(next, length) {
                prop_assert_eq!(run.start, next);
                prop_assert!(run.end > run.start && last != Some(attributes));
                for address in run.clone() {
                    prop_assert_eq!(model[((address - 0x10_0000) / PAGE) as usize], attributes);
                }
                (next, last) = (run.end, Some(attributes));
            }
            prop_assert_eq!(next, 0x10_0000 + at + length);
        }
    }
}

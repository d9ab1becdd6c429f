//! Regions and the check of an access against them.

mod memory_window;

pub use memory_window::WindowTarget;

use crate::keys::KeySecret;
use crate::layout::{REGION_WORDS, REGIONS, SECRET_WORD};
use crate::limits::{MAX_REGION_LENGTH, MAX_REGIONS, NULL_MEMORY_LENGTH, UNUSED_PLACES};
use crate::rights::Rights;
use crate::words::{SharedWords, Site};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;

/// Publishing a region's fields.
pub const FIELDS: Site = Site("region.fields");
/// Making a region valid.
pub const PUBLISH: Site = Site("region.publish");
/// Making it invalid.
pub const REVOKE: Site = Site("region.revoke");

// Words of one region. The tag is [generation:31][live:1][key:32] and is written last.
const TAG: usize = 0;
const ADDRESS: usize = 1;
const LENGTH: usize = 2;
const IOVA: usize = 3;
const RIGHTS_AND_DOMAIN: usize = 4;
/// Of a null region: the memory that is written in its place. It is without rights, and the other fields are those of the memory
/// that is read in its place.
const SINK: usize = 5;
/// Of a memory window, in the place of the same word: its protection domain, and in the upper half the queue pair that it is bound to.
const WINDOW_SCOPE: usize = 5;
/// Of a region with attributes: the number under which the process has the file of their table open, plus one, in the upper 24 bits; and the
/// words of the table. Zero: peers leave them to the owner.
const ATTRIBUTES: usize = 6;
/// Of a region with attributes: the address with which their table begins.
const ATTRIBUTES_BASE: usize = 7;
/// Bits of the words of a table.
const ATTRIBUTES_BITS: u32 = 40;

const LIVE: u64 = 1 << 32;

/// What a null region has in the place of an iova. No other region has it.
const NULL_IOVA: u64 = u64::MAX;

/// What a memory window has in the place of a protection domain. No domain has it, so that what regions take does not ask for windows.
const MEMORY_WINDOW: u32 = u32::MAX;

/// In what an access is made: a protection domain, and the queue pair by which a peer's request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessScope {
    pub domain: u32,
    pub queue_pair: u32,
}

impl AccessScope {
    /// The number of no queue pair.
    pub const NO_QUEUE_PAIR: u32 = u32::MAX;

    /// The process itself, through no queue pair.
    pub fn of_domain(domain: u32) -> Self {
        AccessScope { domain, queue_pair: AccessScope::NO_QUEUE_PAIR }
    }
}

/// What is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredRegion {
    /// Number of the protection domain.
    pub domain: u32,
    /// First byte, as the process sees it.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// First byte, as accesses name it.
    pub iova: u64,
    pub rights: Rights,
}

impl RegisteredRegion {
    /// Bytes of a region that is the whole address space (an implicit region: `ibv_reg_mr(3)`, `IBV_ACCESS_ON_DEMAND`).
    pub const WHOLE_ADDRESS_SPACE: u64 = u64::MAX;

    /// Whether a region may begin and end there: inside the address space and not over [`MAX_REGION_LENGTH`], or all of it.
    #[inline]
    pub fn may_cover(address: u64, length: u64) -> bool {
        let is_bounded = length <= MAX_REGION_LENGTH && address.checked_add(length).is_some();
        is_bounded || address == 0 && length == RegisteredRegion::WHOLE_ADDRESS_SPACE
    }
}

/// Memory that stands for a null region (`ibv_alloc_null_mr(3)`), whatever addresses its accesses name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullMemory {
    /// The first of the zeros that are read.
    pub zeros: u64,
    /// The first of the bytes that are written, and never read.
    pub sink: u64,
}

/// Where a table of attributes lies, for peers that map it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributesAt {
    /// The number under which the owner has its file open.
    pub file: u32,
    /// Words of it.
    pub words: u64,
    /// The first address that it is for.
    pub base: u64,
}

/// Why an access was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessRefusal {
    #[error("the key names no region")]
    Key,
    #[error("the access leaves the region")]
    Bounds,
    #[error("the region does not permit this access")]
    Rights,
    #[error("the region belongs to another protection domain, or the window to another queue pair")]
    Domain,
}

/// What a region is called from its registration until it is revoked or gets other rights, and nothing else is then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionLife {
    index: u32,
    tag: u64,
}

impl RegionLife {
    /// The region's place.
    pub fn index(&self) -> u32 {
        self.index
    }
}

/// A region that an access names, checked for all but the bounds of the access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionWindow {
    base: u64,
    size: u64,
    iova: u64,
    index: u32,
    tag: u64,
}

impl RegionWindow {
    /// `length` bytes from `address` (an iova) on, if they lie in the region.
    #[inline]
    pub fn locate(&self, address: u64, length: u64) -> Result<Granted, AccessRefusal> {
        let offset = address.wrapping_sub(self.iova);
        if offset > self.size || length > self.size - offset {
            return self.locate_beyond(length);
        }
        Ok(Granted { address: self.base.wrapping_add(offset), index: self.index, tag: self.tag })
    }

    /// A null region has bytes at every address.
    #[cold]
    fn locate_beyond(&self, length: u64) -> Result<Granted, AccessRefusal> {
        match self.is_null() && length <= NULL_MEMORY_LENGTH {
            true => Ok(Granted { address: self.base, index: self.index, tag: self.tag }),
            false => Err(AccessRefusal::Bounds),
        }
    }

    fn is_null(&self) -> bool {
        self.iova == NULL_IOVA
    }

    /// The region's place, for hazards.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// First byte, as accesses name it.
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// The region, for those who only ask whether it is still there.
    pub fn life(&self) -> RegionLife {
        RegionLife { index: self.index, tag: self.tag }
    }

    /// Whether the region is the whole address space.
    pub fn is_implicit(&self) -> bool {
        self.size == RegisteredRegion::WHOLE_ADDRESS_SPACE
    }

    /// The region's memory, as the process sees it.
    #[inline]
    pub fn memory(&self) -> Range<u64> {
        let size = if self.is_null() { NULL_MEMORY_LENGTH } else { self.size };
        self.base..self.base.saturating_add(size)
    }
}

/// An access that passed the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// First byte in the owner's address space.
    pub address: u64,
    /// The region's place, for hazards.
    pub index: u32,
    tag: u64,
}

impl Granted {
    /// The region, for those who only ask whether it is still there.
    pub fn life(&self) -> RegionLife {
        RegionLife { index: self.index, tag: self.tag }
    }
}

/// The regions of one process, as anybody who maps its tables may check against them.
#[derive(Clone)]
pub struct RegionView<W> {
    words: W,
}

impl<W: SharedWords> RegionView<W> {
    /// Looks at tables laid out as [`layout`](crate::layout) says.
    pub fn new(tables: W) -> Self {
        RegionView { words: tables }
    }

    /// The one check of every access by key: the key, its rights, its protection domain and its bounds.
    /// `length` bytes from `address` (an iova). Lengths of zero are checked like others; callers that must
    /// ignore them (zero-length RDMA) do not ask.
    pub fn check(
        &self,
        key: u32,
        address: u64,
        length: u64,
        need: Rights,
        by: AccessScope,
    ) -> Result<Granted, AccessRefusal> {
        self.window(key, need, by)?.locate(address, length)
    }

    /// The part of [`check`](Self::check) that is the same for all accesses to one region: the key, its rights and its
    /// protection domain.
    pub fn window(&self, key: u32, need: Rights, by: AccessScope) -> Result<RegionWindow, AccessRefusal> {
        let index = KeySecret::new(self.words.load(SECRET_WORD)).index(key);
        let at = REGIONS + index as usize * REGION_WORDS;
        if at + REGION_WORDS > self.words.len() {
            return Err(AccessRefusal::Key);
        }
        let tag = self.words.load(at + TAG);
        if tag & LIVE == 0 || tag as u32 != key {
            return Err(AccessRefusal::Key);
        }
        let base = self.words.load(at + ADDRESS);
        let size = self.words.load(at + LENGTH);
        let iova = self.words.load(at + IOVA);
        let rights_and_domain = self.words.load(at + RIGHTS_AND_DOMAIN);
        if self.words.load(at + TAG) != tag {
            return Err(AccessRefusal::Key);
        }
        let window = RegionWindow { base, size, iova, index, tag };
        if (rights_and_domain >> 32) as u32 != by.domain {
            return self.through_window(window, rights_and_domain, need, by);
        }
        if !Rights::from_bits_retain(rights_and_domain as u32).contains(need) {
            return self.sink_of(window, need);
        }
        Ok(window)
    }

    /// A null region has a sink for local writes, and no rights.
    #[cold]
    fn sink_of(&self, window: RegionWindow, need: Rights) -> Result<RegionWindow, AccessRefusal> {
        let at = REGIONS + window.index as usize * REGION_WORDS;
        let base = self.words.load(at + SINK);
        let writes = window.is_null() && need == Rights::LOCAL_WRITE;
        match writes && self.has_tag(window.index, window.tag) {
            true => Ok(RegionWindow { base, ..window }),
            false => Err(AccessRefusal::Rights),
        }
    }

    /// Whether a granted access still holds; asked once more behind the hazard claim.
    pub fn still(&self, granted: &Granted) -> bool {
        self.has_tag(granted.index, granted.tag)
    }

    /// Whether accesses to a region still hold, likewise.
    #[inline]
    pub fn still_open(&self, window: &RegionWindow) -> bool {
        self.has_tag(window.index, window.tag)
    }

    /// Where the attributes of a region lie, if it has any that peers may obey by themselves.
    pub fn attributes_of(&self, window: &RegionWindow) -> Option<AttributesAt> {
        let at = REGIONS + window.index as usize * REGION_WORDS;
        let packed = self.words.load(at + ATTRIBUTES);
        let base = self.words.load(at + ATTRIBUTES_BASE);
        let file = (packed >> ATTRIBUTES_BITS).checked_sub(1)? as u32;
        let words = packed & ((1 << ATTRIBUTES_BITS) - 1);
        self.still_open(window).then_some(AttributesAt { file, words, base })
    }

    /// Whether the key of a region still names it, though it may have got other rights.
    pub fn is_valid(&self, window: &RegionWindow) -> bool {
        let tag = self.words.load(REGIONS + window.index as usize * REGION_WORDS + TAG);
        tag & LIVE != 0 && tag as u32 == window.tag as u32
    }

    /// Whether a region is what it was.
    pub fn lives(&self, region: &RegionLife) -> bool {
        self.has_tag(region.index, region.tag)
    }

    #[inline]
    fn has_tag(&self, index: u32, tag: u64) -> bool {
        self.words.load(REGIONS + index as usize * REGION_WORDS + TAG) == tag
    }
}

/// The regions of this process.
pub struct RegionTable<W> {
    view: RegionView<W>,
    secret: KeySecret,
    places: Mutex<PlaceAllocator>,
    /// Places that stay unused before one is used again.
    unused: usize,
}

struct PlaceAllocator {
    /// In the order in which they were released.
    free: VecDeque<u32>,
    next: u32,
}

impl<W: SharedWords> RegionTable<W> {
    /// An empty table in the process's own tables; `secret` scrambles its keys.
    pub fn new(tables: W, secret: u64) -> Self {
        RegionTable::with_unused_places(tables, secret, UNUSED_PLACES)
    }

    /// An empty table that keeps `unused` released places out of use, in place of [`UNUSED_PLACES`].
    pub fn with_unused_places(tables: W, secret: u64, unused: usize) -> Self {
        tables.store(FIELDS, SECRET_WORD, secret);
        RegionTable {
            view: RegionView::new(tables),
            secret: KeySecret::new(secret),
            places: Mutex::new(PlaceAllocator { free: VecDeque::new(), next: 0 }),
            unused,
        }
    }

    /// The checking side.
    pub fn view(&self) -> &RegionView<W> {
        &self.view
    }

    /// Registers a region in constant time and gives its key. `random` fills the consumer's byte.
    /// `None`: [`MAX_REGIONS`] exist already, no region [may cover](RegisteredRegion::may_cover) these bytes, or the iova is `u64::MAX`, at which
    /// nothing can lie.
    #[inline(always)] // Part of each registration.
    pub fn register(&self, region: &RegisteredRegion, random: u8) -> Option<u32> {
        if region.iova == NULL_IOVA || !RegisteredRegion::may_cover(region.address, region.length) {
            return None;
        }
        self.enter(region, 0, random)
    }

    /// Registers a null region: local accesses read zeros and write nothing, at any address; there are no others. `random` and `None`
    /// as for [`register`](Self::register).
    pub fn register_null(&self, domain: u32, memory: &NullMemory, random: u8) -> Option<u32> {
        let NullMemory { zeros: address, sink } = *memory;
        let region =
            RegisteredRegion { domain, address, length: 0, iova: NULL_IOVA, rights: Rights::empty() };
        self.enter(&region, sink, random)
    }

    #[inline(always)] // Part of each registration.
    fn enter(&self, region: &RegisteredRegion, sink: u64, random: u8) -> Option<u32> {
        let index = self.take_place()?;
        let words = &self.view.words;
        let at = REGIONS + index as usize * REGION_WORDS;
        let generation = (words.load(at + TAG) >> 33).wrapping_add(1);
        let key = self.secret.key(index, generation as u32, random);
        words.store(FIELDS, at + ADDRESS, region.address);
        words.store(FIELDS, at + LENGTH, region.length);
        words.store(FIELDS, at + IOVA, region.iova);
        words.store(
            FIELDS,
            at + RIGHTS_AND_DOMAIN,
            u64::from(region.rights.bits()) | u64::from(region.domain) << 32,
        );
        if sink != 0 {
            words.store(FIELDS, at + SINK, sink);
        }
        words.store(PUBLISH, at + TAG, generation << 33 | LIVE | u64::from(key));
        Some(key)
    }

    #[inline(always)] // Part of each registration.
    fn take_place(&self) -> Option<u32> {
        let mut places = self.places.lock();
        if places.free.len() <= self.unused && places.next < MAX_REGIONS {
            places.next += 1;
            Some(places.next - 1)
        } else {
            places.free.pop_front()
        }
    }

    /// The place of a valid key, its first word, and its tag.
    #[inline(always)] // Part of each deregistration.
    fn valid(&self, key: u32) -> Option<(u32, usize, u64)> {
        let index = self.secret.index(key);
        let at = REGIONS + index as usize * REGION_WORDS;
        if at + REGION_WORDS > self.view.words.len() {
            return None;
        }
        let tag = self.view.words.load(at + TAG);
        (tag & LIVE != 0 && tag as u32 == key).then_some((index, at, tag))
    }

    /// Makes a key invalid and fences; gives the region's place. Accesses that were checked before may still be
    /// under way: wait for the hazards, then [`release`](Self::release) the place.
    pub fn revoke(&self, key: u32) -> Option<u32> {
        let (index, at, tag) = self.valid(key)?;
        let words = &self.view.words;
        words.store(REVOKE, at + TAG, tag & !LIVE);
        words.fence();
        Some(index)
    }

    /// Whether a key is valid.
    pub fn has_key(&self, key: u32) -> bool {
        self.valid(key).is_some()
    }

    /// The place that a key of this table names, valid or not.
    pub fn place_of(&self, key: u32) -> u32 {
        self.secret.index(key)
    }

    /// Gives a revoked region other rights and makes its key valid again. Nobody may be accessing it through checks made before it was
    /// revoked; checks whose access has not begun yet fail, as the tag is another one.
    pub fn restore(&self, key: u32, rights: Rights) {
        let words = &self.view.words;
        let at = REGIONS + self.secret.index(key) as usize * REGION_WORDS;
        let domain = words.load(at + RIGHTS_AND_DOMAIN) >> 32;
        let generation = (words.load(at + TAG) >> 33).wrapping_add(1);
        words.store(FIELDS, at + RIGHTS_AND_DOMAIN, u64::from(rights.bits()) | domain << 32);
        words.store(PUBLISH, at + TAG, generation << 33 | LIVE | u64::from(key));
    }

    /// Has accesses of peers to a region intercepted, or no more. The key stays valid. Accesses that were checked before may still be under
    /// way: wait for the hazards. `attributes`: where peers find them. False: the key is not valid.
    pub fn intercept(&self, key: u32, is_intercepted: bool, attributes: Option<&AttributesAt>) -> bool {
        let Some((_, at, tag)) = self.valid(key) else { return false };
        let words = &self.view.words;
        let before = words.load(at + RIGHTS_AND_DOMAIN);
        let rights = Rights::from_bits_retain(before as u32).intercepted(is_intercepted);
        words.store(FIELDS, at + RIGHTS_AND_DOMAIN, before >> 32 << 32 | u64::from(rights.bits()));
        let fits = |at: &&AttributesAt| at.words >> ATTRIBUTES_BITS == 0 && at.file < (1 << 24) - 1;
        let (packed, base) = attributes
            .filter(fits)
            .map_or((0, 0), |at| ((u64::from(at.file) + 1) << ATTRIBUTES_BITS | at.words, at.base));
        words.store(FIELDS, at + ATTRIBUTES, packed);
        words.store(FIELDS, at + ATTRIBUTES_BASE, base);
        let generation = (tag >> 33).wrapping_add(1);
        words.store(PUBLISH, at + TAG, generation << 33 | LIVE | u64::from(key));
        words.fence();
        true
    }

    /// Makes a revoked place available again.
    pub fn release(&self, index: u32) {
        self.places.lock().free.push_back(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::REGIONS;
    use crate::process_words::ProcessWords;
    use proptest::prelude::*;

    const BY: AccessScope = AccessScope { domain: 7, queue_pair: AccessScope::NO_QUEUE_PAIR };

    fn table() -> RegionTable<ProcessWords> {
        RegionTable::new(ProcessWords::new(REGIONS + 64 * REGION_WORDS), 0xFEED_5EED)
    }

    fn region() -> RegisteredRegion {
        let rights = Rights::LOCAL_WRITE | Rights::REMOTE_READ;
        RegisteredRegion { domain: 7, address: 0x10_0000, length: 0x1000, iova: 0, rights }
    }

    /// A program that registers and deregisters in a loop: old keys stay dead for long.
    #[test]
    fn places_are_used_again_in_their_turn() {
        let table = RegionTable::new(ProcessWords::new(REGIONS + 128 * REGION_WORDS), 0xFEED_5EED);
        let mut used = Vec::new();
        for _ in 0..3 * UNUSED_PLACES {
            let key = table.register(&region(), 0xAB).unwrap();
            let index = table.revoke(key).unwrap();
            table.release(index);
            used.push(index);
        }
        for window in used.windows(UNUSED_PLACES) {
            let mut places = window.to_vec();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), UNUSED_PLACES, "{window:?}");
        }
    }

    #[test]
    fn each_refusal_has_its_reason() {
        let table = table();
        let key = table.register(&region(), 0xAB).unwrap();
        let view = table.view();
        let check = |key, address, length, need, domain| {
            view.check(key, address, length, need, AccessScope::of_domain(domain)).map(|g| g.address)
        };
        assert_eq!(check(key, 0, 0x1000, Rights::REMOTE_READ, 7), Ok(0x10_0000));
        assert_eq!(check(key, 0xFFF, 1, Rights::empty(), 7), Ok(0x10_0FFF));
        assert_eq!(check(key, 0x1000, 0, Rights::empty(), 7), Ok(0x10_1000));
        assert_eq!(check(key, 0xFFF, 2, Rights::empty(), 7), Err(AccessRefusal::Bounds));
        assert_eq!(check(key, u64::MAX, 1, Rights::empty(), 7), Err(AccessRefusal::Bounds));
        assert_eq!(check(key, 1, u64::MAX, Rights::empty(), 7), Err(AccessRefusal::Bounds));
        assert_eq!(check(key, 0, 1, Rights::REMOTE_WRITE, 7), Err(AccessRefusal::Rights));
        assert_eq!(check(key, 0, 1, Rights::empty(), 8), Err(AccessRefusal::Domain));
        for bit in 0..32 {
            assert_eq!(
                check(key ^ 1 << bit, 0, 1, Rights::empty(), 7),
                Err(AccessRefusal::Key),
                "bit {bit} counts"
            );
        }
    }

    /// `ibv_reg_mr(3)`: an implicit region is the whole address space. Its last byte is the one before `u64::MAX`.
    #[test]
    fn an_implicit_region_grants_every_address_and_nothing_beyond_the_last() {
        let table = table();
        let whole =
            RegisteredRegion { address: 0, length: RegisteredRegion::WHOLE_ADDRESS_SPACE, ..region() };
        let key = table.register(&whole, 0).unwrap();
        let view = table.view();
        let check = |address, length| {
            view.check(key, address, length, Rights::REMOTE_READ, BY).map(|granted| granted.address)
        };
        let last = u64::MAX - 1;
        for (address, length) in [(0, 0), (0, u64::MAX), (last, 1), (u64::MAX, 0), (1 << 63, 1 << 62)] {
            assert_eq!(check(address, length), Ok(address), "{length} bytes");
        }
        for (address, length) in [(last, 2), (u64::MAX, 1), (u64::MAX, u64::MAX), (1, u64::MAX), (2, last)] {
            assert_eq!(check(address, length), Err(AccessRefusal::Bounds), "{length} bytes from {address}");
        }
        let window = view.window(key, Rights::empty(), BY).unwrap();
        assert!(window.is_implicit() && window.memory() == (0..u64::MAX));
        for (address, length) in [(1, u64::MAX), (0, u64::MAX - 1), (1, last), (0, MAX_REGION_LENGTH + 1)] {
            assert_eq!(table.register(&RegisteredRegion { address, length, ..region() }, 0), None);
        }
    }

    /// `ibv_alloc_null_mr(3)`.
    #[test]
    fn a_null_region_has_zeros_and_a_sink_at_every_address_and_nothing_for_peers() {
        let table = table();
        let memory = NullMemory { zeros: 0x1000_0000, sink: 0x2000_0000 };
        let key = table.register_null(7, &memory, 0xAB).unwrap();
        let view = table.view();
        let check = |address, length, need, domain| {
            view.check(key, address, length, need, AccessScope::of_domain(domain))
                .map(|granted| granted.address)
        };
        for (address, length) in [(0, 1), (u64::MAX, 1), (u64::MAX - 7, 4096), (1 << 40, NULL_MEMORY_LENGTH)]
        {
            assert_eq!(check(address, length, Rights::empty(), 7), Ok(memory.zeros));
            assert_eq!(check(address, length, Rights::LOCAL_WRITE, 7), Ok(memory.sink));
            assert_eq!(check(address, length, Rights::empty(), 8), Err(AccessRefusal::Domain));
            let remote =
                [Rights::REMOTE_READ, Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC, Rights::ON_DEMAND];
            for need in remote.into_iter().chain([Rights::LOCAL_WRITE | Rights::REMOTE_WRITE]) {
                assert_eq!(check(address, length, need, 7), Err(AccessRefusal::Rights));
            }
        }
        assert_eq!(check(0, NULL_MEMORY_LENGTH + 1, Rights::empty(), 7), Err(AccessRefusal::Bounds));
        let window = view.window(key, Rights::LOCAL_WRITE, BY).unwrap();
        assert_eq!(window.memory(), memory.sink..memory.sink + NULL_MEMORY_LENGTH);
        let place = table.revoke(key).unwrap();
        assert!(!view.still_open(&window));
        table.release(place);
        // No other region has its mark.
        for length in [0, 1, 4096] {
            let other = RegisteredRegion { length, iova: u64::MAX, rights: Rights::empty(), ..region() };
            assert_eq!(table.register(&other, 0), None, "{length} bytes");
        }
    }

    #[test]
    fn a_revoked_key_never_comes_back_at_once() {
        let table = table();
        let first = table.register(&region(), 1).unwrap();
        let granted = table.view().check(first, 0, 1, Rights::empty(), BY).unwrap();
        let window = table.view().window(first, Rights::empty(), BY).unwrap();
        assert!(granted.life() == window.life() && table.view().lives(&window.life()));
        let place = table.revoke(first).unwrap();
        assert!(!table.view().still(&granted) && !table.view().lives(&window.life()));
        assert_eq!(table.revoke(first), None);
        table.release(place);
        let second = table.register(&region(), 1).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.view().check(first, 0, 1, Rights::empty(), BY), Err(AccessRefusal::Key));
        assert!(!table.view().still(&granted) && !table.view().lives(&window.life()));
    }

    #[test]
    fn rights_change_under_the_same_key() {
        let table = table();
        let key = table.register(&region(), 1).unwrap();
        let view = table.view();
        let granted = view.check(key, 0, 1, Rights::REMOTE_READ, BY).unwrap();
        table.revoke(key).unwrap();
        assert_eq!(view.check(key, 0, 1, Rights::empty(), BY), Err(AccessRefusal::Key));
        table.restore(key, Rights::LOCAL_WRITE | Rights::REMOTE_WRITE);
        assert!(!view.still(&granted), "what was checked before counts no more");
        assert!(view.check(key, 0, 0x1000, Rights::REMOTE_WRITE, BY).is_ok());
        assert_eq!(view.check(key, 0, 1, Rights::REMOTE_READ, BY), Err(AccessRefusal::Rights));
        let place = table.revoke(key).unwrap();
        table.release(place);
        assert_ne!(table.register(&region(), 1), Some(key));
    }

    #[test]
    fn interception_takes_the_plain_rights_away_and_leaves_the_key() {
        let table = table();
        let rights = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let key = table.register(&RegisteredRegion { rights, ..region() }, 1).unwrap();
        let view = table.view();
        let before = view.window(key, Rights::REMOTE_WRITE, BY).unwrap();
        let place = AttributesAt { file: 7, words: 3, base: 0x10_0000 };
        assert!(table.intercept(key, true, Some(&place)));
        assert!(!view.still_open(&before) && view.is_valid(&before));
        for (need, expected) in [
            (Rights::REMOTE_WRITE, Err(AccessRefusal::Rights)),
            (Rights::REMOTE_READ, Err(AccessRefusal::Rights)),
            (Rights::LOCAL_WRITE, Ok(())),
            (Rights::INTERCEPTED_WRITE, Ok(())),
            (Rights::INTERCEPTED_READ, Ok(())),
            (Rights::INTERCEPTED_ATOMIC, Err(AccessRefusal::Rights)),
        ] {
            assert_eq!(view.window(key, need, BY).map(drop), expected, "{need:?}");
        }
        let intercepted = view.window(key, Rights::INTERCEPTED_READ, BY).unwrap();
        assert_eq!(view.attributes_of(&intercepted), Some(place));
        assert!(table.intercept(key, false, None));
        assert_eq!(view.attributes_of(&intercepted), None);
        assert!(view.window(key, Rights::REMOTE_WRITE, BY).is_ok());
        assert_eq!(view.window(key, Rights::INTERCEPTED_WRITE, BY), Err(AccessRefusal::Rights));
        table.revoke(key).unwrap();
        assert!(!table.intercept(key, true, None) && !view.is_valid(&before));
    }

    proptest! {
        #[test]
        fn nothing_outside_the_region_is_granted(
            base in 0u64..1 << 47, size in 0u64..1 << 40, iova: u64, address: u64, length: u64, implicit: bool,
        ) {
            let table = table();
            let (base, size) = if implicit { (0, RegisteredRegion::WHOLE_ADDRESS_SPACE) } else { (base, size) };
            let region = RegisteredRegion { address: base, length: size, iova, ..region() };
            let key = table.register(&region, 0).unwrap();
            if let Ok(granted) = table.view().check(key, address, length, Rights::empty(), BY) {
                prop_assert!(granted.address >= base);
                prop_assert!(address.wrapping_sub(iova) as u128 + length as u128 <= size as u128);
                prop_assert!(granted.address as u128 + length as u128 <= base as u128 + size as u128);
            }
        }
    }
}

//! Memory windows: keys by which peers reach a part of a region, with rights of their own (InfiniBand specification, volume 1, section 10.6.7).
//!
//! A window has a place among the regions, so that the one check of every access serves it. Its domain is one that nothing has: the check
//! comes here only after it has found no region of its own.

use super::{
    ADDRESS, AccessRefusal, AccessScope, FIELDS, IOVA, LENGTH, LIVE, MEMORY_WINDOW, NULL_IOVA, PUBLISH,
    RIGHTS_AND_DOMAIN, RegionTable, RegionView, RegionWindow, RegisteredRegion, TAG, WINDOW_SCOPE,
};
use crate::keys::KeySecret;
use crate::layout::{REGION_WORDS, REGIONS, SECRET_WORD};
use crate::rights::Rights;
use crate::words::SharedWords;

/// What a window gives access to: bytes of a region, to peers of a protection domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowTarget {
    /// The bytes, with the domain of the window and the rights of peers.
    pub part: RegisteredRegion,
    /// The queue pair whose peer alone has access; [`AccessScope::NO_QUEUE_PAIR`]: all of the domain.
    pub queue_pair: u32,
}

impl<W: SharedWords> RegionView<W> {
    /// The protection domain of a region or window, for those who have checked an access before. `None`: the key is not valid.
    pub fn domain_of(&self, key: u32) -> Option<u32> {
        let at = REGIONS + KeySecret::new(self.words.load(SECRET_WORD)).index(key) as usize * REGION_WORDS;
        if at + REGION_WORDS > self.words.len() {
            return None;
        }
        let tag = self.words.load(at + TAG);
        let domain = match (self.words.load(at + RIGHTS_AND_DOMAIN) >> 32) as u32 {
            MEMORY_WINDOW => self.words.load(at + WINDOW_SCOPE) as u32,
            domain => domain,
        };
        let is_same = tag & LIVE != 0 && tag as u32 == key && self.words.load(at + TAG) == tag;
        is_same.then_some(domain)
    }

    /// What no region of the accessor's domain permits, a window may: to peers, with rights of its own.
    #[cold]
    pub(super) fn through_window(
        &self,
        window: RegionWindow,
        rights_and_domain: u64,
        need: Rights,
        by: AccessScope,
    ) -> Result<RegionWindow, AccessRefusal> {
        if (rights_and_domain >> 32) as u32 != MEMORY_WINDOW {
            return Err(AccessRefusal::Domain);
        }
        let scope = self.words.load(REGIONS + window.index as usize * REGION_WORDS + WINDOW_SCOPE);
        if !self.has_tag(window.index, window.tag) {
            return Err(AccessRefusal::Key);
        }
        let (domain, queue_pair) = (scope as u32, (scope >> 32) as u32);
        if domain != by.domain || queue_pair != AccessScope::NO_QUEUE_PAIR && queue_pair != by.queue_pair {
            return Err(AccessRefusal::Domain);
        }
        let is_remote = need.intersects(Rights::REMOTE.union(Rights::FLUSH));
        let permits = Rights::from_bits_retain(rights_and_domain as u32).contains(need);
        if is_remote && permits { Ok(window) } else { Err(AccessRefusal::Rights) }
    }
}

impl<W: SharedWords> RegionTable<W> {
    /// Takes a place for a memory window, and gives its first key, by which nothing is accessed. `None`: as for
    /// [`register`](Self::register).
    pub fn reserve_window(&self, random: u8) -> Option<u32> {
        let index = self.take_place()?;
        let at = REGIONS + index as usize * REGION_WORDS;
        let generation = (self.view.words.load(at + TAG) >> 33).wrapping_add(1);
        let key = self.secret.key(index, generation as u32, random);
        self.view.words.store(PUBLISH, at + TAG, generation << 33 | u64::from(key));
        Some(key)
    }

    /// Has a key of a window, which is not valid, name a part of a region. Nobody may be accessing it by the key that it had before.
    pub fn bind_window(&self, key: u32, target: &WindowTarget) {
        let words = &self.view.words;
        let at = REGIONS + self.secret.index(key) as usize * REGION_WORDS;
        let generation = (words.load(at + TAG) >> 33).wrapping_add(1);
        let WindowTarget { part, queue_pair } = target;
        words.store(FIELDS, at + ADDRESS, part.address);
        words.store(FIELDS, at + LENGTH, part.length);
        words.store(FIELDS, at + IOVA, part.iova);
        let rights = u64::from(part.rights.bits());
        words.store(FIELDS, at + RIGHTS_AND_DOMAIN, rights | u64::from(MEMORY_WINDOW) << 32);
        words.store(FIELDS, at + WINDOW_SCOPE, u64::from(part.domain) | u64::from(*queue_pair) << 32);
        words.store(PUBLISH, at + TAG, generation << 33 | LIVE | u64::from(key));
        words.fence();
    }

    /// Gives back the place of a window that is not bound, and nobody accesses. `key`: the last that it had.
    pub fn release_window(&self, key: u32) {
        let words = &self.view.words;
        let index = self.secret.index(key);
        let at = REGIONS + index as usize * REGION_WORDS;
        let mut generation = words.load(at + TAG) >> 33;
        // Each bind has counted, so that the next region could be called as this window was.
        if self.secret.key(index, generation.wrapping_add(1) as u32, key as u8) == key {
            generation = generation.wrapping_add(1);
        }
        words.store(PUBLISH, at + TAG, generation << 33 | u64::from(key));
        self.release(index);
    }

    /// What is registered under a key; `None`: nothing, a null region, or a window.
    pub fn registered(&self, key: u32) -> Option<RegisteredRegion> {
        let (_, at, tag) = self.valid(key)?;
        let words = &self.view.words;
        let rights_and_domain = words.load(at + RIGHTS_AND_DOMAIN);
        let region = RegisteredRegion {
            domain: (rights_and_domain >> 32) as u32,
            address: words.load(at + ADDRESS),
            length: words.load(at + LENGTH),
            iova: words.load(at + IOVA),
            rights: Rights::from_bits_retain(rights_and_domain as u32),
        };
        let is_same = words.load(at + TAG) == tag;
        (is_same && region.iova != NULL_IOVA && region.domain != MEMORY_WINDOW).then_some(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessWords;
    use proptest::prelude::*;

    const QUEUE_PAIR: u32 = 0x11;
    const ANY: u32 = AccessScope::NO_QUEUE_PAIR;

    fn table() -> RegionTable<ProcessWords> {
        RegionTable::new(ProcessWords::new(REGIONS + 64 * REGION_WORDS), 0xFEED_5EED)
    }

    fn part(rights: Rights) -> RegisteredRegion {
        RegisteredRegion { domain: 7, address: 0x10_0100, length: 0x100, iova: 0x100, rights }
    }

    fn by(domain: u32, queue_pair: u32) -> AccessScope {
        AccessScope { domain, queue_pair }
    }

    #[test]
    fn a_window_gives_peers_what_it_says_and_the_process_nothing() {
        let table = table();
        let key = table.reserve_window(0xAB).unwrap();
        let view = table.view();
        let check = |address, length, need, by| {
            view.check(key, address, length, need, by).map(|granted| granted.address)
        };
        assert_eq!(check(0x100, 1, Rights::REMOTE_READ, by(7, QUEUE_PAIR)), Err(AccessRefusal::Key));
        table.bind_window(key, &WindowTarget { part: part(Rights::REMOTE_READ), queue_pair: QUEUE_PAIR });
        assert_eq!(check(0x100, 0x100, Rights::REMOTE_READ, by(7, QUEUE_PAIR)), Ok(0x10_0100));
        for (address, length) in [(0xFF, 1), (0x100, 0x101), (0x200, 1)] {
            assert_eq!(
                check(address, length, Rights::REMOTE_READ, by(7, QUEUE_PAIR)),
                Err(AccessRefusal::Bounds)
            );
        }
        for (need, by, refusal) in [
            (Rights::REMOTE_WRITE, by(7, QUEUE_PAIR), AccessRefusal::Rights),
            (Rights::REMOTE_ATOMIC, by(7, QUEUE_PAIR), AccessRefusal::Rights),
            (Rights::INTERCEPTED_READ, by(7, QUEUE_PAIR), AccessRefusal::Rights),
            (Rights::empty(), by(7, QUEUE_PAIR), AccessRefusal::Rights),
            (Rights::LOCAL_WRITE, by(7, QUEUE_PAIR), AccessRefusal::Rights),
            (Rights::ON_DEMAND, by(7, QUEUE_PAIR), AccessRefusal::Rights),
            (Rights::REMOTE_READ, by(7, QUEUE_PAIR + 1), AccessRefusal::Domain),
            (Rights::REMOTE_READ, by(7, ANY), AccessRefusal::Domain),
            (Rights::REMOTE_READ, by(8, QUEUE_PAIR), AccessRefusal::Domain),
        ] {
            assert_eq!(check(0x100, 1, need, by), Err(refusal), "{need:?} {by:?}");
        }
        assert_eq!(table.registered(key), None, "no region: nothing is bound to a window");
        table.revoke(key).unwrap();
        assert_eq!(check(0x100, 1, Rights::REMOTE_READ, by(7, QUEUE_PAIR)), Err(AccessRefusal::Key));
    }

    #[test]
    fn a_window_that_is_bound_again_has_the_new_key_alone() {
        let table = table();
        let first = table.reserve_window(1).unwrap();
        table.bind_window(first, &WindowTarget { part: part(Rights::REMOTE_WRITE), queue_pair: ANY });
        let view = table.view();
        let granted = view.check(first, 0x100, 1, Rights::REMOTE_WRITE, by(7, 3)).unwrap();
        table.revoke(first).unwrap();
        let second = first & !0xFF | 2;
        table.bind_window(second, &WindowTarget { part: part(Rights::REMOTE_WRITE), queue_pair: ANY });
        assert!(!view.still(&granted));
        assert_eq!(view.check(first, 0x100, 1, Rights::REMOTE_WRITE, by(7, 3)), Err(AccessRefusal::Key));
        assert!(view.check(second, 0x100, 1, Rights::REMOTE_WRITE, by(7, 4)).is_ok());
    }

    proptest! {
        /// However often a window was bound, the next region at its place is not called as it was.
        #[test]
        fn the_key_of_a_window_dies_with_it(binds in 0u32..40, low: u8) {
            let table = RegionTable::with_unused_places(ProcessWords::new(REGIONS + 64 * REGION_WORDS), 5, 0);
            let key = table.reserve_window(low).unwrap();
            for _ in 0..binds {
                table.bind_window(key, &WindowTarget { part: part(Rights::REMOTE_READ), queue_pair: ANY });
                table.revoke(key).unwrap();
            }
            table.release_window(key);
            let region = RegisteredRegion { rights: Rights::REMOTE_READ, ..part(Rights::empty()) };
            prop_assert_ne!(table.register(&region, low), Some(key));
            prop_assert!(!table.has_key(key));
        }
    }
}

//! The address space of a simulated process.

use crate::limits::PAGE;
use pagewire_memory::{Absence, MemoryError, Residency, Segment, SyncError};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    Present,
    /// It takes a while until it is there.
    Absent,
    /// It comes at once where it is touched.
    Cheap,
    Unmapped,
}

struct SimMapping {
    bytes: Vec<u8>,
    pages: Vec<PageState>,
}

/// The address space of one process: mappings whose pages may be absent, or unmapped again.
#[derive(Default)]
pub struct AddressSpace {
    mappings: BTreeMap<u64, SimMapping>,
    /// What pages held when they were last synced.
    synced: BTreeMap<u64, Vec<u8>>,
}

impl AddressSpace {
    /// Maps `length` bytes of zero; the address is a page's.
    pub fn map(&mut self, address: u64, length: u64) {
        assert_eq!(address % PAGE, 0);
        let pages = length.div_ceil(PAGE) as usize;
        self.mappings.insert(
            address,
            SimMapping { bytes: vec![0; pages * PAGE as usize], pages: vec![PageState::Present; pages] },
        );
    }

    /// Unmaps the pages that a range touches.
    pub fn unmap(&mut self, address: u64, length: u64) {
        self.set(address, length, PageState::Unmapped);
    }

    /// Lets the pages that a range touches be absent, their contents kept.
    pub fn evict(&mut self, address: u64, length: u64) {
        self.set(address, length, PageState::Absent);
    }

    /// Lets the pages that a range touches be absent, their contents kept, so that a touch brings them at once.
    pub fn evict_cheaply(&mut self, address: u64, length: u64) {
        self.set(address, length, PageState::Cheap);
    }

    /// Brings absent pages in. What is not mapped stays so.
    pub fn bring_in(&mut self, segments: &[Segment]) {
        for segment in segments {
            self.set(segment.address, segment.length, PageState::Present);
        }
    }

    /// Makes the pages that a segment touches persistent.
    pub fn sync(&mut self, segment: &Segment) -> Result<(), SyncError> {
        let first = segment.address / PAGE * PAGE;
        let end = (segment.address + segment.length).next_multiple_of(PAGE);
        for page in (first..end).step_by(PAGE as usize) {
            let (mapping, at) = self.find(page, PAGE).map_err(|_| SyncError::NotMapped)?;
            if mapping.pages[at / PAGE as usize] == PageState::Unmapped {
                return Err(SyncError::NotMapped);
            }
            let bytes = mapping.bytes[at..at + PAGE as usize].to_vec();
            self.synced.insert(page, bytes);
        }
        Ok(())
    }

    /// What a range held when its pages were last synced. `None`: some never were.
    pub fn synced(&self, address: u64, length: u64) -> Option<Vec<u8>> {
        let (first, end) = (address / PAGE * PAGE, (address + length).next_multiple_of(PAGE));
        let mut bytes = Vec::new();
        for page in (first..end).step_by(PAGE as usize) {
            bytes.extend_from_slice(self.synced.get(&page)?);
        }
        let skipped = (address - first) as usize;
        Some(bytes[skipped..skipped + length as usize].to_vec())
    }

    fn set(&mut self, address: u64, length: u64, to: PageState) {
        if let Ok((mapping, at)) = self.find(address, length) {
            for page in &mut mapping.pages[at / PAGE as usize..(at + length as usize).div_ceil(PAGE as usize)]
            {
                if *page != PageState::Unmapped {
                    *page = to;
                }
            }
        }
    }

    fn find(&mut self, address: u64, length: u64) -> Result<(&mut SimMapping, usize), MemoryError> {
        let (start, mapping) =
            self.mappings.range_mut(..=address).next_back().ok_or(MemoryError::NotMapped)?;
        let at = address - start;
        if at.checked_add(length).is_none_or(|end| end > mapping.bytes.len() as u64) {
            return Err(MemoryError::NotMapped);
        }
        Ok((mapping, at as usize))
    }

    /// The bytes of a range, its pages brought in; how many were absent.
    pub fn touch(&mut self, address: u64, length: u64) -> Result<(&mut [u8], u64), MemoryError> {
        let (mapping, at) = self.find(address, length)?;
        let end = at + length as usize;
        let mut absent = 0;
        for page in &mut mapping.pages[at / PAGE as usize..end.div_ceil(PAGE as usize)] {
            match page {
                PageState::Present => {}
                PageState::Unmapped => return Err(MemoryError::NotMapped),
                PageState::Absent | PageState::Cheap => {
                    absent += 1;
                    *page = PageState::Present;
                }
            }
        }
        Ok((&mut mapping.bytes[at..end], absent))
    }

    /// Changes bytes. What is not mapped stays so.
    pub fn poke(&mut self, address: u64, bytes: &[u8]) {
        if let Ok((into, _)) = self.touch(address, bytes.len() as u64) {
            into.copy_from_slice(bytes);
        }
    }

    /// Whether the pages of a segment are there.
    pub fn residency(&mut self, segment: &Segment) -> Residency {
        if segment.length == 0 {
            return Residency::Resident;
        }
        let Ok((mapping, at)) = self.find(segment.address, segment.length) else {
            return Residency::NotMapped;
        };
        let pages =
            &mapping.pages[at / PAGE as usize..(at + segment.length as usize).div_ceil(PAGE as usize)];
        if pages.contains(&PageState::Unmapped) {
            Residency::NotMapped
        } else if pages.contains(&PageState::Absent) || pages.contains(&PageState::Cheap) {
            Residency::Absent
        } else {
            Residency::Resident
        }
    }

    /// How the pages come that are absent.
    pub fn absence(&mut self, segment: &Segment) -> Absence {
        let Ok((mapping, at)) = self.find(segment.address, segment.length) else { return Absence::Unknown };
        let end = (at + segment.length as usize).div_ceil(PAGE as usize);
        let is_slow = mapping.pages[at / PAGE as usize..end].contains(&PageState::Absent);
        if is_slow { Absence::Slow } else { Absence::Cheap }
    }
}

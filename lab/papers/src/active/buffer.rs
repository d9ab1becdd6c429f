//! The translation buffer of the extended IOMMU (IOTLB): one level of sets, which evict the entry that was used longest ago, or a random one.

use crate::translation::{Eviction, Geometry, GeometryError, Iotlb, PageId};

/// A buffer of page table entries.
#[derive(Debug)]
pub struct Buffer {
    entries: Iotlb<()>,
}

impl Buffer {
    /// An empty buffer of so many entries, `ways` in each set; as many ways as entries: fully associative.
    ///
    /// # Errors
    /// If there are none, or the sets do not come out even.
    pub fn new(entries: usize, ways: usize, eviction: Eviction) -> Result<Buffer, GeometryError> {
        // The second level holds what was inserted last, which the first one has, too: there is one level.
        let geometry = Geometry {
            first_entries: entries,
            first_ways: ways,
            second_entries: 1,
            second_ways: 1,
            eviction,
        };
        Ok(Buffer { entries: Iotlb::new(geometry)? })
    }

    /// Looks up a page, which has an entry then. True: it had none before, and the page table was walked.
    pub fn misses(&mut self, page: u64) -> bool {
        let page = PageId { domain: 0, number: page };
        let misses = self.entries.look_up(page).is_none();
        if misses {
            self.entries.insert(page, ());
        }
        misses
    }
}

//! The names of pages and accesses.

/// A protection domain: one process's page table, which a device names by a number (the PDID of PAPERS PART-2, 16 bits
/// there; a context bank of ARM's SMMU).
pub type DomainId = u32;

/// A page of a protection domain. Pages of which size is up to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId {
    /// Whose page table.
    pub domain: DomainId,
    /// The virtual address divided by the size of a page.
    pub number: u64,
}

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read only.
    Read,
    /// Write, for which the page must be writable, too.
    Write,
}

impl Access {
    /// Whether a page brought in for `self` serves `other` as well.
    pub fn covers(self, other: Access) -> bool {
        self == Access::Write || other == Access::Read
    }

    /// The one of the two that serves both.
    #[must_use]
    pub fn and(self, other: Access) -> Access {
        if self.covers(other) { self } else { other }
    }
}

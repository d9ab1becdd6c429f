//! What the holder of a token may do.

use bitflags::bitflags;
use pagewire_nic::Rights as RegionRights;

bitflags! {
    /// What the holder of a [`Token`](crate::Token) may do with the bytes that it names.
    ///
    /// ```
    /// use pagewire::Rights;
    /// let rights = Rights::READ | Rights::WRITE;
    /// assert!(rights.contains(Rights::READ) && !rights.contains(Rights::ATOMIC));
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Rights: u8 {
        /// Get.
        const READ = 1;
        /// Put.
        const WRITE = 2;
        /// Fetch-add, swap, compare-swap, and signals that are added to.
        const ATOMIC = 4;
    }
}

impl Rights {
    /// As a memory region has them (`enum ibv_access_flags`).
    pub(crate) fn of_region(self) -> RegionRights {
        let mut rights = RegionRights::LOCAL_WRITE;
        rights.set(RegionRights::REMOTE_READ, self.contains(Rights::READ));
        rights.set(RegionRights::REMOTE_WRITE, self.contains(Rights::WRITE));
        rights.set(RegionRights::REMOTE_ATOMIC, self.contains(Rights::ATOMIC));
        rights
    }
}

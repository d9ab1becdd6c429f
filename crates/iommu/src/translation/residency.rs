//! A payload for [`super::Iotlb`]: a page was seen to be resident, and when.

use super::Access;

/// That a page was resident at some time. Nothing is pinned, so this is a hint that grows old, not a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// For which access it was.
    pub access: Access,
    /// When it was seen, in nanoseconds of the caller's clock.
    pub seen: u64,
}

impl Residency {
    /// Whether the hint is for an access like `access` and at most `age` nanoseconds old at `now`.
    pub fn is_fresh(self, access: Access, now: u64, age: u64) -> bool {
        self.access.covers(access) && now.saturating_sub(self.seen) <= age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_ends_with_its_age_and_serves_no_more_than_was_seen() {
        let read = Residency { access: Access::Read, seen: 1_000 };
        assert!(read.is_fresh(Access::Read, 1_500, 500));
        assert!(!read.is_fresh(Access::Read, 1_501, 500));
        assert!(!read.is_fresh(Access::Write, 1_000, 500));
        let write = Residency { access: Access::Write, seen: 1_000 };
        assert!(write.is_fresh(Access::Read, 900, 0), "a clock of another processor may be behind");
    }
}

//! Packet sequence numbers: 24 bits that wrap.

const MASK: u32 = (1 << 24) - 1;
const HALF: u32 = 1 << 23;

/// A packet sequence number (InfiniBand specification, volume 1, section 9.7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// From a number, of which the low 24 bits count.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// The 24 bits.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN `count` further on.
    #[inline]
    pub const fn plus(self, count: u32) -> Psn {
        Psn(self.0.wrapping_add(count) & MASK)
    }

    /// The PSN just before this one.
    #[inline]
    pub const fn previous(self) -> Psn {
        Psn(self.0.wrapping_sub(1) & MASK)
    }

    /// How many PSNs lie from `base` to this one, counting upwards: 0 to 2^24 - 1.
    #[inline]
    pub const fn since(self, base: Psn) -> u32 {
        self.0.wrapping_sub(base.0) & MASK
    }

    /// Whether this one comes before `other`: the 2^23 PSNs before a PSN are its past, the others its
    /// future.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.since(other) >= HALF
    }

    /// The later of two.
    #[inline]
    pub const fn later(self, other: Psn) -> Psn {
        if self.is_before(other) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plus_and_since_are_inverse(start in 0..=MASK, count in 0..=MASK) {
            let start = Psn::new(start);
            prop_assert_eq!(start.plus(count).since(start), count);
            prop_assert!(start.plus(count).value() <= MASK);
        }

        #[test]
        fn psn_order_follows_shorter_distance(start in 0..=MASK, ahead in 1..HALF) {
            let start = Psn::new(start);
            let later = start.plus(ahead);
            prop_assert!(start.is_before(later));
            prop_assert!(!later.is_before(start));
            prop_assert_eq!(start.later(later), later);
            prop_assert_eq!(later.later(start), later);
        }

        #[test]
        fn previous_undoes_plus_one(start in 0..=MASK) {
            let start = Psn::new(start);
            prop_assert_eq!(start.plus(1).previous(), start);
            prop_assert!(start.previous().is_before(start));
            prop_assert!(!start.is_before(start));
        }
    }

    #[test]
    fn wraps_at_24_bits() {
        assert_eq!(Psn::new(MASK).plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), Psn::new(MASK));
        assert_eq!(Psn::new(1 << 24), Psn::new(0));
        assert!(Psn::new(MASK).is_before(Psn::new(0)));
    }
}

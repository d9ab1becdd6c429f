//! Keys: 24 bits that name a region and its generation, scrambled, and 8 bits of the consumer's.

use crate::limits::REGION_INDEX_BITS;

/// Scrambles region numbers into keys, so that one key does not tell another.
#[derive(Clone, Copy)]
pub struct KeySecret(u64);

const HALF: u32 = 12;
const HALF_MASK: u32 = (1 << HALF) - 1;
const ROUNDS: u32 = 4;

impl KeySecret {
    /// A permutation for each secret.
    pub fn new(secret: u64) -> Self {
        KeySecret(secret)
    }

    fn round(self, half: u32, round: u32) -> u32 {
        let mixed = (u64::from(half) ^ self.0.rotate_left(round * 16)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 52) as u32 & HALF_MASK
    }

    /// The key of a region: `epoch` (4 bits) and `low` (8 bits) tell generations of one place apart.
    pub fn key(self, index: u32, epoch: u32, low: u8) -> u32 {
        let plain = index | (epoch & 0xF) << REGION_INDEX_BITS;
        let (mut left, mut right) = (plain >> HALF, plain & HALF_MASK);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(right, round));
        }
        (left << HALF | right) << 8 | u32::from(low)
    }

    /// The place that a key names.
    pub fn index(self, key: u32) -> u32 {
        let (mut left, mut right) = (key >> 8 >> HALF, key >> 8 & HALF_MASK);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(left, round), left);
        }
        (left << HALF | right) & ((1 << REGION_INDEX_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_key_names_its_region(secret: u64, index in 0u32..1 << REGION_INDEX_BITS, epoch in 0u32..16, low: u8) {
            let secret = KeySecret::new(secret);
            let key = secret.key(index, epoch, low);
            prop_assert_eq!(secret.index(key), index);
            prop_assert_eq!(key as u8, low);
        }
    }

    #[test]
    fn neighbours_have_distant_keys() {
        let secret = KeySecret::new(0x1234_5678_9ABC_DEF0);
        let steps: std::collections::HashSet<u32> = (0..1000)
            .map(|index| secret.key(index + 1, 0, 0).wrapping_sub(secret.key(index, 0, 0)))
            .collect();
        assert!(steps.len() > 900, "differences repeat: {}", steps.len());
    }
}

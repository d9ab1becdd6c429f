//! The encodings of times in queue pair attributes and acknowledgements.

/// Nanoseconds of a local acknowledgement timeout: 4.096 us * 2^`code` (InfiniBand specification,
/// volume 1, section 9.9.2.1.1). `None` for 0, which means for ever. Of `code` five bits count.
#[inline]
pub const fn acknowledgement_timeout(code: u8) -> Option<u64> {
    match code & 31 {
        0 => None,
        code => Some(4096 << code),
    }
}

/// Units of 10 us for each RNR NAK timer code (section 9.7.5.2.8, table 49).
const RNR_DELAYS: [u16; 32] = [
    65535, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Nanoseconds that a requester waits after an RNR NAK with this timer code. Of `code` five bits count.
#[inline]
pub const fn rnr_delay(code: u8) -> u64 {
    match code & 31 {
        // 655.36 ms: one unit more than the table's type holds.
        0 => 655_360_000,
        code => RNR_DELAYS[code as usize] as u64 * 10_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgement_timeouts_double() {
        assert_eq!(acknowledgement_timeout(0), None);
        assert_eq!(acknowledgement_timeout(1), Some(8_192));
        assert_eq!(acknowledgement_timeout(14), Some(67_108_864));
        assert_eq!(acknowledgement_timeout(31), Some(8_796_093_022_208));
    }

    #[test]
    fn rnr_delays_are_the_table() {
        assert_eq!(rnr_delay(0), 655_360_000);
        assert_eq!(rnr_delay(1), 10_000);
        // The table alternates between powers of two and the numbers half way between them.
        for half in 1..16 {
            assert_eq!(rnr_delay(2 * half), 10_000 << half);
            assert_eq!(rnr_delay(2 * half + 1), 30_000 << (half - 1));
        }
        assert_eq!(rnr_delay(31), 491_520_000);
        assert_eq!(rnr_delay(32 + 12), rnr_delay(12), "five bits count");
    }
}

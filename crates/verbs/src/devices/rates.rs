//! Conversions of `enum ibv_rate` (`ibv_rate_to_mult(3)`, `ibv_rate_to_mbps(3)`).

use crate::abi::*;
use libc::c_int;

/// Rate, megabits a second, and multiple of 2.5 Gb/s where rdma-core gives one.
const RATES: [(ibv_rate, c_int, Option<c_int>); 23] = [
    (IBV_RATE_2_5_GBPS, 2_500, Some(1)),
    (IBV_RATE_5_GBPS, 5_000, Some(2)),
    (IBV_RATE_10_GBPS, 10_000, Some(4)),
    (IBV_RATE_20_GBPS, 20_000, Some(8)),
    (IBV_RATE_30_GBPS, 30_000, Some(12)),
    (IBV_RATE_40_GBPS, 40_000, Some(16)),
    (IBV_RATE_60_GBPS, 60_000, Some(24)),
    (IBV_RATE_80_GBPS, 80_000, Some(32)),
    (IBV_RATE_120_GBPS, 120_000, Some(48)),
    (IBV_RATE_14_GBPS, 14_062, None),
    (IBV_RATE_56_GBPS, 56_250, None),
    (IBV_RATE_112_GBPS, 112_500, None),
    (IBV_RATE_168_GBPS, 168_750, None),
    (IBV_RATE_25_GBPS, 25_781, None),
    (IBV_RATE_100_GBPS, 103_125, None),
    (IBV_RATE_200_GBPS, 206_250, None),
    (IBV_RATE_300_GBPS, 309_375, None),
    (IBV_RATE_28_GBPS, 28_125, Some(11)),
    (IBV_RATE_50_GBPS, 53_125, Some(20)),
    (IBV_RATE_400_GBPS, 425_000, Some(160)),
    (IBV_RATE_600_GBPS, 637_500, Some(240)),
    (IBV_RATE_800_GBPS, 850_000, Some(320)),
    (IBV_RATE_1200_GBPS, 1_275_000, Some(480)),
];

/// The multiple of 2.5 Gb/s that a rate is; -1 if it is none.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    RATES.iter().find(|known| known.0 == rate).and_then(|known| known.2).unwrap_or(-1)
}

/// The rate that is `mult` times 2.5 Gb/s; `IBV_RATE_MAX` if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    RATES.iter().find(|known| known.2 == Some(mult)).map_or(IBV_RATE_MAX, |known| known.0)
}

/// Megabits a second of a rate; -1 if it is not known.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.1)
}

/// The rate of exactly `mbps` megabits a second; `IBV_RATE_MAX` if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|known| known.1 == mbps).map_or(IBV_RATE_MAX, |known| known.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_inverse() {
        for (rate, mbps, mult) in RATES {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
            assert_eq!(ibv_rate_to_mbps(rate), mbps);
            if let Some(mult) = mult {
                assert_eq!(mult_to_ibv_rate(mult), rate);
                assert_eq!(ibv_rate_to_mult(rate), mult);
            }
        }
    }

    #[test]
    fn what_is_no_rate_says_so() {
        assert_eq!(ibv_rate_to_mult(IBV_RATE_MAX), -1);
        assert_eq!(ibv_rate_to_mult(IBV_RATE_14_GBPS), -1);
        assert_eq!(ibv_rate_to_mbps(99), -1);
        assert_eq!(mult_to_ibv_rate(3), IBV_RATE_MAX);
        assert_eq!(mbps_to_ibv_rate(1), IBV_RATE_MAX);
    }
}

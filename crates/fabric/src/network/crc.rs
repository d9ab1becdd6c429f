//! The CRC of whole packets, twice as fast as by the crate that short ones are left to, on processors that multiply
//! polynomials in registers of 512 bits (x86-64 with AVX-512 and VPCLMULQDQ).
//!
//! Folding and reduction are those of Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction", Intel, 2009, for reflected bits. Bytes that fill no register are taken first, behind zeros, which do not count
//! in front of a register of zero; the register that is gone on with is added to the first bytes.

use pagewire_wire::icrc;

/// Bytes from which on it is worth while.
const LEAST: usize = 256;

/// What [`icrc::crc32`] gives.
#[inline]
pub fn crc32(register: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= LEAST && bytes.len() % 4 == 0 {
        if let Some(register) = wide::crc32(register, bytes) {
            return register;
        }
    }
    icrc::crc32(register, bytes)
}

/// Processors that have no such registers, and compilers that know none.
#[rustversion::attr(since(1.89), cfg(not(target_arch = "x86_64")))]
mod wide {
    pub fn crc32(_: u32, _: &[u8]) -> Option<u32> {
        None
    }
}

#[cfg(target_arch = "x86_64")]
#[rustversion::since(1.89)]
#[clippy::msrv = "1.89"]
mod wide {
    use std::arch::x86_64::*;

    /// Bytes of a register.
    const WIDE: usize = 64;

    /// The polynomial, bits reflected, and with its term of x^32.
    const POLYNOMIAL: u32 = 0xEDB8_8320;
    const WHOLE_POLYNOMIAL: i64 = 0x1_DB71_0641;
    /// The quotient of x^64 by it, reflected.
    const QUOTIENT: i64 = 0x1_F701_1641;

    /// The remainder of x^n, reflected, times x: reflected products are short of one.
    const fn power(n: usize) -> i64 {
        let mut register = 1u32 << 31;
        let mut bits = n;
        while bits > 0 {
            register = register >> 1 ^ if register & 1 != 0 { POLYNOMIAL } else { 0 };
            bits -= 1;
        }
        (register as i64) << 1
    }

    /// What the two halves of 128 bits are multiplied by to stand so many bits further on.
    const fn further(bits: usize) -> [i64; 2] {
        [power(bits + 32), power(bits - 32)]
    }

    const ONE_REGISTER: [i64; 2] = further(8 * WIDE);
    const FOUR_REGISTERS: [i64; 2] = further(4 * 8 * WIDE);
    /// Of a register, to its last 128 bits.
    const LANES: [[i64; 2]; 3] = [further(384), further(256), further(128)];
    /// Of 128 bits, to the last 96 and 64.
    const REST: i64 = power(96);
    const HALF: i64 = power(64);

    /// The CRC register after `bytes`, whose length is a multiple of four and at least that of one vector register. `None`: the
    /// processor has no such instructions.
    #[inline]
    pub fn crc32(register: u32, bytes: &[u8]) -> Option<u32> {
        let supported = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.1");
        let first = bytes.first_chunk().filter(|_| supported)?;
        // SAFETY: the processor has what the function is compiled for.
        Some(unsafe { go_on(register, first, bytes) })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(bytes: &[u8; WIDE]) -> __m512i {
        // SAFETY: so many bytes are read, at any alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn everywhere([low, high]: [i64; 2]) -> __m512i {
        _mm512_set_epi64(high, low, high, low, high, low, high, low)
    }

    /// Adds to `next` what stands in front of it.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold(before: __m512i, further: __m512i, next: __m512i) -> __m512i {
        let low = _mm512_clmulepi64_epi128::<0x00>(before, further);
        let high = _mm512_clmulepi64_epi128::<0x11>(before, further);
        // The sum of three.
        _mm512_ternarylogic_epi64::<0x96>(low, high, next)
    }

    /// The register behind bytes that begin with `first`.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.1")]
    fn go_on(register: u32, first: &[u8; WIDE], bytes: &[u8]) -> u32 {
        // 4 to 64 bytes, to the end of a register.
        let head = match bytes.len() % WIDE {
            0 => WIDE,
            head => head,
        };
        let empty = (WIDE - head) / 4;
        let head_words = _mm512_maskz_expand_epi32(0xFFFF << empty, load(first));
        let before = _mm512_maskz_set1_epi32(1 << empty, register.cast_signed());
        let mut sum = _mm512_xor_si512(head_words, before);
        let mut rest = bytes[head..].as_chunks::<WIDE>().0;

        if let [first, second, third, behind @ ..] = rest {
            let [mut b, mut c, mut d] = [load(first), load(second), load(third)];
            let (fours, last) = behind.as_chunks::<4>();
            let by = everywhere(FOUR_REGISTERS);
            for four in fours {
                sum = fold(sum, by, load(&four[0]));
                b = fold(b, by, load(&four[1]));
                c = fold(c, by, load(&four[2]));
                d = fold(d, by, load(&four[3]));
            }
            let by = everywhere(ONE_REGISTER);
            sum = fold(fold(fold(sum, by, b), by, c), by, d);
            rest = last;
        }
        for next in rest {
            sum = fold(sum, everywhere(ONE_REGISTER), load(next));
        }
        reduce(to_last_lane(sum))
    }

    /// The four lanes as one.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn to_last_lane(sum: __m512i) -> __m128i {
        let [a, b, c] = LANES;
        let by = _mm512_set_epi64(0, 0, c[1], c[0], b[1], b[0], a[1], a[0]);
        let low = _mm512_clmulepi64_epi128::<0x00>(sum, by);
        let high = _mm512_clmulepi64_epi128::<0x11>(sum, by);
        let moved = _mm512_xor_si512(low, high);
        // The last one stays.
        let lanes = _mm512_mask_blend_epi64(0b1100_0000, moved, sum);
        let two = _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64::<1>(lanes));
        _mm_xor_si128(_mm256_castsi256_si128(two), _mm256_extracti128_si256::<1>(two))
    }

    /// The remainder of 128 bits and 32 zeros behind them.
    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn reduce(sum: __m128i) -> u32 {
        let low_word = _mm_set_epi32(0, 0, 0, -1);
        let sum = _mm_xor_si128(
            _mm_clmulepi64_si128::<0x00>(sum, _mm_set_epi64x(0, REST)),
            _mm_srli_si128::<8>(sum),
        );
        let half = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(sum, low_word), _mm_set_epi64x(0, HALF));
        let sum = _mm_xor_si128(half, _mm_srli_si128::<4>(sum));
        // Barrett's reduction.
        let both = _mm_set_epi64x(QUOTIENT, WHOLE_POLYNOMIAL);
        let quotient = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(sum, low_word), both);
        let multiple = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(quotient, low_word), both);
        _mm_extract_epi32::<1>(_mm_xor_si128(sum, multiple)).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_what_the_others_compute() {
        let bytes: Vec<u8> = (0..2400u32).map(|at| (at.wrapping_mul(at) >> 3 ^ at) as u8).collect();
        for length in 0..2300 {
            for start in [0, 1, 63] {
                let part = &bytes[start..start + length];
                let register = (length as u32).wrapping_mul(0x9E37_79B9);
                assert_eq!(crc32(register, part), icrc::crc32(register, part), "{length} from {start}");
            }
        }
    }

    proptest! {
        #[test]
        fn it_goes_on_from_any_register(register: u32, words in prop::collection::vec(any::<u32>(), 64..2300)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            prop_assert_eq!(crc32(register, &bytes), icrc::crc32(register, &bytes));
        }
    }
}

//! Arithmetic on the registers of CRC-32: polynomials over GF(2) modulo P.
//!
//! As everywhere with this CRC, bits are reflected: bit 31 is the coefficient of x^0, bit 0 that of
//! x^31.

/// P without its x^32.
const P: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// a x mod P.
pub(super) const fn multiply_by_x(a: u32) -> u32 {
    a >> 1 ^ if a & 1 != 0 { P } else { 0 }
}

/// The b with b x = a mod P. `multiply_by_x` adds P exactly where bit 31 of its result is set.
pub(super) const fn divide_by_x(a: u32) -> u32 {
    if a & ONE != 0 { (a ^ P) << 1 | 1 } else { a << 1 }
}

/// a b mod P.
pub(super) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut rest = a;
    while rest != 0 {
        // All ones where the next coefficient of a, from x^0 up, is 1.
        product ^= b & ((rest as i32) >> 31) as u32;
        rest <<= 1;
        b = b >> 1 ^ P & (b & 1).wrapping_neg();
    }
    product
}

/// What a byte of each value adds to the register if `behind` bytes follow it.
pub(super) const fn contribution(behind: usize) -> [u32; 256] {
    let mut table = [0; 256];
    let mut bit = 0;
    while bit < 8 {
        let mut register = 1 << bit;
        let mut steps = 8 * (behind + 1);
        while steps > 0 {
            register = multiply_by_x(register);
            steps -= 1;
        }
        table[1 << bit] = register;
        bit += 1;
    }
    let mut value: usize = 1;
    while value < 256 {
        let lowest = value & value.wrapping_neg();
        table[value] = table[lowest] ^ table[value ^ lowest];
        value += 1;
    }
    table
}

/// x^-(offset + i stride) mod P for i in 0..256.
pub(super) const fn power_of_inverse(offset: usize, stride: usize) -> [u32; 256] {
    let mut step = ONE;
    let mut i = 0;
    while i < stride {
        step = divide_by_x(step);
        i += 1;
    }
    let mut power = ONE;
    i = 0;
    while i < offset {
        power = divide_by_x(power);
        i += 1;
    }
    let mut table = [0; 256];
    i = 0;
    while i < 256 {
        table[i] = power;
        power = multiply(power, step);
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn division_undoes_multiplication(a: u32) {
            prop_assert_eq!(divide_by_x(multiply_by_x(a)), a);
            prop_assert_eq!(multiply_by_x(divide_by_x(a)), a);
            prop_assert_eq!(multiply(a, multiply_by_x(ONE)), multiply_by_x(a));
        }

        #[test]
        fn multiplication_is_a_commutative_ring(a: u32, b: u32, c: u32) {
            prop_assert_eq!(multiply(a, b), multiply(b, a));
            prop_assert_eq!(multiply(a, multiply(b, c)), multiply(multiply(a, b), c));
            prop_assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
            prop_assert_eq!(multiply(a, ONE), a);
        }

        #[test]
        fn contributions_are_differences_of_crcs(value: u8, behind in 0usize..100) {
            let mut message = vec![0; behind + 1];
            let zero = crc32fast::hash(&message);
            message[0] = value;
            prop_assert_eq!(crc32fast::hash(&message) ^ zero, contribution(behind)[usize::from(value)]);
        }
    }
}

//! Random numbers of the histories that are drawn in virtual time, by a seed that is not 0 (xorshift64, multiplied).

pub struct Random(pub u64);

impl Random {
    /// A number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % limit
    }

    /// Whether a draw comes out that has one chance in so many.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

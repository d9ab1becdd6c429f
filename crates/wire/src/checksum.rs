//! The Internet checksum (RFC 1071) of IPv4 headers and of UDP.

/// The ones' complement sum of 16-bit words; an odd last byte is the high one of its word.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes, which begin at an even offset of what is summed.
    pub(crate) fn add(mut self, bytes: &[u8]) -> Sum {
        let mut words = bytes.chunks_exact(2);
        for word in &mut words {
            self.0 += u64::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [odd] = words.remainder() {
            self.0 += u64::from(*odd) << 8;
        }
        self
    }

    /// The complement of the sum: what a checksum field holds; 0 where the field was part of it and right.
    pub(crate) fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

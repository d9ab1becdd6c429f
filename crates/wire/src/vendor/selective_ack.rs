//! SELECTIVE_ACK: a cumulative acknowledgement, and which packets beyond it have arrived too.

use crate::Error;
use crate::limits::MAX_SELECTIVE_BITS;
use crate::view::{FIELD_24_BITS, get_u16, get_u24, put, put_u24, view};

/// Bytes of the body in front of the bitmap.
const FIXED_LEN: usize = 12;
/// Bytes of the longest body.
pub(super) const MAX_LEN: usize = FIXED_LEN + MAX_SELECTIVE_BITS / 8;

mod field {
    pub const VERSION: usize = 0;
    pub const RESERVED_1: usize = 1;
    /// Bits in the bitmap.
    pub const BITS: usize = 2;
    pub const RESERVED_2: usize = 4;
    pub const EXPECTED: usize = 5;
    pub const RESERVED_3: usize = 8;
    pub const MESSAGE: usize = 9;
    /// Words of 32 bits, big-endian; bit 0 of word 0 is the PSN behind the expected one.
    pub const BITMAP: usize = super::FIXED_LEN;
}

/// Which packets have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectiveAck {
    /// The PSN that the responder expects next: every one before it has arrived, it has not.
    pub expected: u32,
    /// Message sequence number, as in an AETH: messages completed, 24 bits.
    pub message: u32,
    /// Which packets behind `expected` have arrived.
    pub received: Received,
}

/// A bitmap of the packets behind the expected one: bit `i` stands for PSN `expected + 1 + i`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// Bits at `len` and above are zero.
    words: [u32; MAX_SELECTIVE_BITS / 32],
    len: u16,
}

impl Received {
    /// The most bits that fit.
    pub const CAPACITY: usize = MAX_SELECTIVE_BITS;

    /// No packet.
    pub const fn new() -> Received {
        Received { words: [0; MAX_SELECTIVE_BITS / 32], len: 0 }
    }

    /// Notes bit `index`; `len` grows to hold it. False, and nothing changes, where `index` is not
    /// below [`CAPACITY`](Self::CAPACITY).
    pub fn insert(&mut self, index: usize) -> bool {
        if index >= Self::CAPACITY {
            return false;
        }
        self.words[index / 32] |= 1 << (index % 32);
        self.len = self.len.max(index as u16 + 1);
        true
    }

    /// Whether bit `index` is set; false beyond `len`.
    pub fn contains(&self, index: usize) -> bool {
        index < Self::CAPACITY && self.words[index / 32] >> (index % 32) & 1 != 0
    }

    /// Bits that the bitmap speaks of. What lies beyond is not known to have arrived.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// The bitmap speaks of no packet.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bits are set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The bits that are set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(word, &bits)| {
            core::iter::successors((bits != 0).then_some(bits), |bits| {
                let rest = bits & (bits - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |bits| word * 32 + bits.trailing_zeros() as usize)
        })
    }

    const fn words_used(&self) -> usize {
        (self.len as usize).div_ceil(32)
    }
}

impl FromIterator<usize> for Received {
    /// Bits at [`CAPACITY`](Self::CAPACITY) and above are left out.
    fn from_iter<I: IntoIterator<Item = usize>>(bits: I) -> Received {
        let mut received = Received::new();
        for bit in bits {
            received.insert(bit);
        }
        received
    }
}

impl core::fmt::Debug for Received {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bits: ", self.len)?;
        f.debug_set().entries(self.iter()).finish()
    }
}

view! {
    /// A view over the body of a SELECTIVE_ACK, up to its bitmap.
    Packet, FIXED_LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Version of the body.
    pub fn version(&self) -> u8 {
        self.bytes()[field::VERSION]
    }

    /// Bits in the bitmap, unchecked.
    pub fn bits(&self) -> u16 {
        get_u16(self.bytes(), field::BITS)
    }

    /// The PSN expected next, 24 bits.
    pub fn expected(&self) -> u32 {
        get_u24(self.bytes(), field::EXPECTED)
    }

    /// Message sequence number, 24 bits.
    pub fn message(&self) -> u32 {
        get_u24(self.bytes(), field::MESSAGE)
    }

    /// The bytes of the bitmap, unchecked.
    pub fn bitmap(&self) -> &[u8] {
        &self.buffer.as_ref()[field::BITMAP..]
    }
}

impl SelectiveAck {
    /// The version of the body that is written and read here.
    pub const VERSION: u8 = 1;

    /// Reads a body.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Version`], and [`Error::Length`] where the bitmap is longer than
    /// [`MAX_SELECTIVE_BITS`], does not fill the body exactly, or has bits beyond its length.
    pub fn parse(body: &[u8]) -> Result<SelectiveAck, Error> {
        let packet = Packet::new(body)?;
        if packet.version() != Self::VERSION {
            return Err(Error::Version(packet.version()));
        }
        let len = packet.bits();
        let bitmap = packet.bitmap();
        if usize::from(len) > MAX_SELECTIVE_BITS || bitmap.len() != usize::from(len).div_ceil(32) * 4 {
            return Err(Error::Length);
        }
        let mut received = Received { words: [0; MAX_SELECTIVE_BITS / 32], len };
        for (word, bytes) in received.words.iter_mut().zip(bitmap.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        if let (Some(last), beyond @ 1..) = (received.words_used().checked_sub(1), len % 32) {
            if received.words[last] >> beyond != 0 {
                return Err(Error::Length);
            }
        }
        Ok(SelectiveAck { expected: packet.expected(), message: packet.message(), received })
    }

    /// Whether the packet with `psn` has arrived, as far as this acknowledgement tells. PSNs wrap: one
    /// of the 2^23 before `expected` counts as before it.
    pub fn has(&self, psn: u32) -> bool {
        let beyond = psn.wrapping_sub(self.expected) % FIELD_24_BITS;
        match beyond {
            0 => false,
            distance if distance >= FIELD_24_BITS / 2 => true,
            distance => self.received.contains(distance as usize - 1),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub const fn body_len(&self) -> usize {
        FIXED_LEN + self.received.words_used() * 4
    }

    /// Writes the body and gives its length in bytes. `expected` and `message` have 24 bits.
    ///
    /// # Panics
    /// Where `buffer` is shorter than [`body_len`](Self::body_len).
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let len = self.body_len();
        let (fixed, bitmap) = buffer[..len].split_at_mut(FIXED_LEN);
        let mut packet = Packet::new(fixed).expect("the fixed part is cut to its length");
        let bytes = packet.bytes_mut();
        bytes[field::VERSION] = Self::VERSION;
        bytes[field::RESERVED_1] = 0;
        put(bytes, field::BITS, self.received.len.to_be_bytes());
        bytes[field::RESERVED_2] = 0;
        put_u24(bytes, field::EXPECTED, self.expected);
        bytes[field::RESERVED_3] = 0;
        put_u24(bytes, field::MESSAGE, self.message);
        for (bytes, word) in bitmap.chunks_exact_mut(4).zip(self.received.words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        len
    }
}

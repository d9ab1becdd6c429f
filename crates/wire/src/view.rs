//! What every view shares: the checked constructor, and big-endian fields.
//!
//! A view checks its length once, when it is made; its accessors then work on an array of the
//! format's fixed length. An `AsRef` whose length changes from call to call is a broken `AsRef`;
//! accessors panic on it.

/// Values of a 24-bit field (PSN, QPN, MSN, SRQ number) are below this.
pub(crate) const FIELD_24_BITS: u32 = 1 << 24;

/// Defines `Packet<T>`, a view over bytes that begin with a format of `$len` bytes.
macro_rules! view {
    ($(#[$doc:meta])* Packet, $len:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Packet<T> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> Packet<T> {
            /// A view over `buffer`, or [`Error::Truncated`](crate::Error::Truncated) where it is
            /// shorter than the format. Bytes behind the format are left alone.
            #[inline]
            pub fn new(buffer: T) -> Result<Self, crate::Error> {
                let have = buffer.as_ref().len();
                if have < $len {
                    return Err(crate::Error::Truncated { need: $len, have });
                }
                Ok(Self { buffer })
            }

            /// The bytes that the view was made of.
            pub fn into_inner(self) -> T {
                self.buffer
            }

            #[inline]
            fn bytes(&self) -> &[u8; $len] {
                self.buffer.as_ref().first_chunk().expect("length was checked in new")
            }
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
            #[inline]
            fn bytes_mut(&mut self) -> &mut [u8; $len] {
                self.buffer.as_mut().first_chunk_mut().expect("length was checked in new")
            }
        }
    };
}
pub(crate) use view;

/// `N` bytes of a fixed-length format from `at` on.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

#[inline]
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn get_u24(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

#[inline]
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// Writes the low 24 bits of `value`, which must have no others.
#[inline]
pub(crate) fn put_u24(bytes: &mut [u8], at: usize, value: u32) {
    debug_assert!(value < FIELD_24_BITS, "{value:#x} has more than 24 bits");
    let [_, a, b, c] = value.to_be_bytes();
    put(bytes, at, [a, b, c]);
}

//! Fields of a message: big-endian, of any width, and not always at the beginning of a byte.

/// Where a field stands in a message, as the specification numbers bits: bit 0 is the most significant one of its byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitField {
    pub(super) byte: usize,
    pub(super) bit: usize,
    pub(super) width: usize,
}

/// What a field can hold.
pub(super) trait FieldValue: Sized {
    fn read(message: &[u8], at: BitField) -> Self;

    /// Writes the value's lowest bits, as many as the field has.
    fn write(&self, message: &mut [u8], at: BitField);
}

impl BitField {
    /// The bytes that hold a part of the field.
    fn bytes(self) -> std::ops::Range<usize> {
        self.byte..self.byte + (self.bit + self.width).div_ceil(8)
    }

    /// Bits of the last byte after the field.
    fn bits_after(self) -> usize {
        (8 - (self.bit + self.width) % 8) % 8
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// At most 64 bits that stand in at most eight bytes.
    fn read(self, message: &[u8]) -> u64 {
        let bytes = message[self.bytes()].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        bytes >> self.bits_after() & self.mask()
    }

    fn write(self, message: &mut [u8], value: u64) {
        let (value, mask) = ((value & self.mask()) << self.bits_after(), self.mask() << self.bits_after());
        let bytes = &mut message[self.bytes()];
        let last = bytes.len() - 1;
        for (at, byte) in bytes.iter_mut().enumerate() {
            let shift = 8 * (last - at);
            *byte = *byte & !((mask >> shift) as u8) | (value >> shift) as u8;
        }
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl FieldValue for $number {
            fn read(message: &[u8], at: BitField) -> Self {
                at.read(message) as $number
            }

            fn write(&self, message: &mut [u8], at: BitField) {
                at.write(message, u64::from(*self));
            }
        })*
    };
}

numbers! { u8 u16 u32 u64 }

impl FieldValue for bool {
    fn read(message: &[u8], at: BitField) -> Self {
        at.read(message) != 0
    }

    fn write(&self, message: &mut [u8], at: BitField) {
        at.write(message, u64::from(*self));
    }
}

/// Whole bytes.
impl<const N: usize> FieldValue for [u8; N] {
    fn read(message: &[u8], at: BitField) -> Self {
        crate::view::array(message, at.byte)
    }

    fn write(&self, message: &mut [u8], at: BitField) {
        message[at.byte..][..N].copy_from_slice(self);
    }
}

/// Defines messages: each a struct whose fields say where they stand, as `byte:bit / width`. The method is Send, unless another one is given.
macro_rules! messages {
    (@method) => { super::method::SEND };
    (@method $method:ident) => { super::method::$method };
    ($($(#[$doc:meta])* $name:ident = $attribute:literal $($method:ident)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $byte:literal : $bit:literal / $width:literal,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl $name {
                /// `AttributeID` of the datagram that carries the message (section 12.6.2).
                pub const ATTRIBUTE: u16 = $attribute;

                /// `Method` of that datagram (section 13.4.5).
                pub(super) const METHOD: u8 = messages!(@method $($method)?);

                pub(super) fn read(message: &[u8; super::MESSAGE_LEN]) -> Self {
                    $name {
                        $($field: FieldValue::read(message, BitField { byte: $byte, bit: $bit, width: $width }),)*
                    }
                }

                pub(super) fn write(&self, message: &mut [u8; super::MESSAGE_LEN]) {
                    $(self.$field.write(message, BitField { byte: $byte, bit: $bit, width: $width });)*
                }
            }

            /// All fields are 0.
            impl Default for $name {
                fn default() -> Self {
                    Self::read(&[0; super::MESSAGE_LEN])
                }
            }
        )*
    };
}
pub(super) use messages;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_count_from_the_most_significant() {
        let mut message = [0; 8];
        BitField { byte: 1, bit: 5, width: 2 }.write(&mut message, 0b11);
        assert_eq!(message, [0, 0b0000_0110, 0, 0, 0, 0, 0, 0]);
        BitField { byte: 2, bit: 0, width: 20 }.write(&mut message, 0xabcde);
        assert_eq!(message[2..5], [0xab, 0xcd, 0xe0]);
    }

    proptest! {
        #[test]
        fn write_changes_its_own_bits_alone(
            before: [u8; 24],
            byte in 0..8_usize,
            bit in 0..8_usize,
            width in 1..=57_usize,
            value: u64,
        ) {
            let at = BitField { byte, bit, width };
            let mut message = before;
            at.write(&mut message, value);
            prop_assert_eq!(at.read(&message), value & at.mask());
            at.write(&mut message, at.read(&before));
            prop_assert_eq!(message, before);
        }
    }
}

//! What an atomic makes of a word where RDMA has no such request: a compare-swap repeats until nobody came between.

use pagewire_nic::SendOperation;

/// A function of the word that is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordFunction {
    Set,
    Add,
    And,
    Or,
    Xor,
    Min,
    Max,
    MinSigned,
    MaxSigned,
    /// Sets the part if it is this.
    SetIf(u32),
}

/// The bytes of a word of 8 that an atomic changes. The other ones stay what they are, whoever changes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordPart {
    Whole,
    /// Bits 0 to 31.
    Low,
    /// Bits 32 to 63.
    High,
}

/// A change of a word, or of a half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordChange {
    pub operand: u64,
    pub function: WordFunction,
    pub part: WordPart,
}

impl WordPart {
    /// The half that the address of 4 bytes names.
    pub fn of_address(address: u64) -> Self {
        if address.is_multiple_of(8) == cfg!(target_endian = "little") {
            WordPart::Low
        } else {
            WordPart::High
        }
    }

    fn shift(self) -> u32 {
        if self == WordPart::High { 32 } else { 0 }
    }

    /// The half of a word.
    pub fn half_of(self, word: u64) -> u32 {
        (word >> self.shift()) as u32
    }

    fn with_half(self, word: u64, half: u32) -> u64 {
        word & !(u64::from(u32::MAX) << self.shift()) | u64::from(half) << self.shift()
    }
}

impl WordChange {
    /// What becomes of a word.
    pub fn of(self, word: u64) -> u64 {
        match self.part {
            WordPart::Whole => self.of_whole(word),
            half => half.with_half(word, self.of_half(half.half_of(word))),
        }
    }

    fn of_whole(self, word: u64) -> u64 {
        let operand = self.operand;
        match self.function {
            WordFunction::Set => operand,
            WordFunction::Add => word.wrapping_add(operand),
            WordFunction::And => word & operand,
            WordFunction::Or => word | operand,
            WordFunction::Xor => word ^ operand,
            WordFunction::Min => word.min(operand),
            WordFunction::Max => word.max(operand),
            WordFunction::MinSigned => word.cast_signed().min(operand.cast_signed()).cast_unsigned(),
            WordFunction::MaxSigned => word.cast_signed().max(operand.cast_signed()).cast_unsigned(),
            WordFunction::SetIf(compare) => {
                if word == u64::from(compare) {
                    operand
                } else {
                    word
                }
            }
        }
    }

    fn of_half(self, half: u32) -> u32 {
        let operand = self.operand as u32;
        match self.function {
            WordFunction::Set => operand,
            WordFunction::Add => half.wrapping_add(operand),
            WordFunction::And => half & operand,
            WordFunction::Or => half | operand,
            WordFunction::Xor => half ^ operand,
            WordFunction::Min => half.min(operand),
            WordFunction::Max => half.max(operand),
            WordFunction::MinSigned => half.cast_signed().min(operand.cast_signed()).cast_unsigned(),
            WordFunction::MaxSigned => half.cast_signed().max(operand.cast_signed()).cast_unsigned(),
            WordFunction::SetIf(compare) => {
                if half == compare {
                    operand
                } else {
                    half
                }
            }
        }
    }

    /// Prepares a compare-swap for its next attempt. False: it is done, because the word was what it compared with, or is what it is to become.
    pub fn prepare_again(self, operation: &mut SendOperation, found: u64) -> bool {
        let SendOperation::CompareSwap { compare, swap, .. } = operation else { return false };
        let changed = self.of(found);
        // What a failed compare-swap finds was read as an atomic.
        if *compare == found || changed == found {
            return false;
        }
        (*compare, *swap) = (found, changed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(function: WordFunction, operand: u64, part: WordPart) -> WordChange {
        WordChange { operand, function, part }
    }

    #[test]
    fn half_leaves_the_other_one() {
        let word = 0x8000_0001_7fff_fffe;
        let of = |function, operand, part| change(function, operand, part).of(word);
        assert_eq!(of(WordFunction::Add, 5, WordPart::Low), 0x8000_0001_8000_0003);
        assert_eq!(of(WordFunction::Add, 0x8000_0000, WordPart::High), 0x0000_0001_7fff_fffe);
        assert_eq!(of(WordFunction::Min, 7, WordPart::High), 0x0000_0007_7fff_fffe);
        assert_eq!(of(WordFunction::MinSigned, 7, WordPart::High), word);
        assert_eq!(of(WordFunction::MaxSigned, 7, WordPart::High), 0x0000_0007_7fff_fffe);
        assert_eq!(of(WordFunction::SetIf(0x7fff_fffe), 9, WordPart::Low), 0x8000_0001_0000_0009);
        assert_eq!(of(WordFunction::SetIf(1), 9, WordPart::Low), word);
    }

    #[test]
    fn attempt_ends_where_nothing_changes() {
        let mut operation = SendOperation::CompareSwap { address: 8, key: 1, compare: 0, swap: 7 };
        let max = change(WordFunction::Max, 7, WordPart::Whole);
        assert!(max.prepare_again(&mut operation, 3));
        assert!(matches!(operation, SendOperation::CompareSwap { compare: 3, swap: 7, .. }));
        assert!(!max.prepare_again(&mut operation, 3));
        assert!(!max.prepare_again(&mut operation, 9));
    }
}

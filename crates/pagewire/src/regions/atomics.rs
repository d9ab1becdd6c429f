//! Atomics on words of other processes. Each gives what the word was before.
//!
//! RDMA has two: fetch-add and compare-swap of 8 bytes (InfiniBand specification, volume 1, section 9.4.5). All others are a compare-swap that
//! repeats until nobody came between, so later operations may overtake them. Those of 4 bytes change half of a word of 8, and leave the other half
//! as it is. They agree with the atomics of the owner's processor, of 4 and of 8 bytes.

use crate::error::Rule;
use crate::operations::operation::Operation;
use crate::operations::pending::WorkStep;
use crate::regions::remote::RemoteRegion;
use crate::regions::rights::Rights;
use crate::regions::word_change::{WordChange, WordFunction, WordPart};
use pagewire_nic::SendOperation;
use smallvec::smallvec;
use std::sync::atomic::AtomicU64;

impl RemoteRegion {
    /// Adds to the word of 8 bytes at `offset`, and gives what it was.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Operation<u64> {
        self.atomic("fetch-add", offset, |address, key| SendOperation::FetchAdd { address, key, add })
    }

    /// Sets the word of 8 bytes at `offset` to `swap` if it is `compare`, and gives what it was.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// assert_eq!(remote.compare_swap(8, 0, 7).wait()?, 0); // it was 0, and is 7
    /// assert_eq!(remote.compare_swap(8, 0, 9).wait()?, 7); // it was 7, and stays
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Operation<u64> {
        let operation = |address, key| SendOperation::CompareSwap { address, key, compare, swap };
        self.atomic("compare-swap", offset, operation)
    }

    /// Sets the word of 8 bytes at `offset`, and gives what it was. It is a compare-swap that comes again until nobody came between, as RDMA
    /// has no swap: of several that are started to one word, each may be overtaken by a later one.
    pub fn swap(&self, offset: u64, swap: u64) -> Operation<u64> {
        self.change("swap", offset, WordFunction::Set, swap)
    }

    /// Keeps the bits of the word of 8 bytes at `offset` that are in `bits`, and gives what it was. It repeats as [`swap`](Self::swap).
    pub fn fetch_and(&self, offset: u64, bits: u64) -> Operation<u64> {
        self.change("fetch-and", offset, WordFunction::And, bits)
    }

    /// Sets the bits of the word of 8 bytes at `offset` that are in `bits`, and gives what it was. It repeats as [`swap`](Self::swap).
    pub fn fetch_or(&self, offset: u64, bits: u64) -> Operation<u64> {
        self.change("fetch-or", offset, WordFunction::Or, bits)
    }

    /// Inverts the bits of the word of 8 bytes at `offset` that are in `bits`, and gives what it was. It repeats as [`swap`](Self::swap).
    pub fn fetch_xor(&self, offset: u64, bits: u64) -> Operation<u64> {
        self.change("fetch-xor", offset, WordFunction::Xor, bits)
    }

    /// Sets the word of 8 bytes at `offset` to `value` if that is less, and gives what it was. It repeats as [`swap`](Self::swap).
    pub fn fetch_min(&self, offset: u64, value: u64) -> Operation<u64> {
        self.change("fetch-min", offset, WordFunction::Min, value)
    }

    /// Sets the word of 8 bytes at `offset` to `value` if that is more, and gives what it was. It repeats as [`swap`](Self::swap).
    pub fn fetch_max(&self, offset: u64, value: u64) -> Operation<u64> {
        self.change("fetch-max", offset, WordFunction::Max, value)
    }

    /// [`fetch_min`](Self::fetch_min) of a signed word.
    pub fn fetch_min_signed(&self, offset: u64, value: i64) -> Operation<i64> {
        let change = WordChange {
            operand: value.cast_unsigned(),
            function: WordFunction::MinSigned,
            part: WordPart::Whole,
        };
        self.start_change("fetch-min-signed", offset, change, |word, _| word.cast_signed())
    }

    /// [`fetch_max`](Self::fetch_max) of a signed word.
    pub fn fetch_max_signed(&self, offset: u64, value: i64) -> Operation<i64> {
        let change = WordChange {
            operand: value.cast_unsigned(),
            function: WordFunction::MaxSigned,
            part: WordPart::Whole,
        };
        self.start_change("fetch-max-signed", offset, change, |word, _| word.cast_signed())
    }

    /// Adds to the 4 bytes at `offset`, and gives what they were. The sum wraps around.
    ///
    /// `offset` and the address there are multiples of 4. The word of 8 bytes that has them, at a multiple of 8, must be inside the token's memory: else the
    /// operation is refused as [`Rule::HalfOutside`](crate::Rule::HalfOutside). That may be so for the first 4 and the last 4 bytes of memory that does not begin and
    /// end at multiples of 8. It repeats as [`swap`](Self::swap). So do all atomics of 4 bytes.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// assert_eq!(remote.fetch_add_32(12, 5).wait()?, 0);
    /// assert_eq!(remote.fetch_add_32(12, u32::MAX).wait()?, 5);
    /// assert_eq!(table.get(1)?, 4 << 32); // the bytes 8 to 11 stay
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_add_32(&self, offset: u64, add: u32) -> Operation<u32> {
        self.change_half("fetch-add of 4 bytes", offset, WordFunction::Add, add)
    }

    /// Sets the 4 bytes at `offset` to `swap` if they are `compare`, and gives what they were. See [`fetch_add_32`](Self::fetch_add_32).
    pub fn compare_swap_32(&self, offset: u64, compare: u32, swap: u32) -> Operation<u32> {
        self.change_half("compare-swap of 4 bytes", offset, WordFunction::SetIf(compare), swap)
    }

    /// Sets the 4 bytes at `offset`, and gives what they were. See [`fetch_add_32`](Self::fetch_add_32).
    pub fn swap_32(&self, offset: u64, swap: u32) -> Operation<u32> {
        self.change_half("swap of 4 bytes", offset, WordFunction::Set, swap)
    }

    /// Keeps the bits of the 4 bytes at `offset` that are in `bits`, and gives what they were. See [`fetch_add_32`](Self::fetch_add_32).
    pub fn fetch_and_32(&self, offset: u64, bits: u32) -> Operation<u32> {
        self.change_half("fetch-and of 4 bytes", offset, WordFunction::And, bits)
    }

    /// Sets the bits of the 4 bytes at `offset` that are in `bits`, and gives what they were. See [`fetch_add_32`](Self::fetch_add_32).
    pub fn fetch_or_32(&self, offset: u64, bits: u32) -> Operation<u32> {
        self.change_half("fetch-or of 4 bytes", offset, WordFunction::Or, bits)
    }

    /// Inverts the bits of the 4 bytes at `offset` that are in `bits`, and gives what they were. See [`fetch_add_32`](Self::fetch_add_32).
    pub fn fetch_xor_32(&self, offset: u64, bits: u32) -> Operation<u32> {
        self.change_half("fetch-xor of 4 bytes", offset, WordFunction::Xor, bits)
    }

    /// Sets the 4 bytes at `offset` to `value` if that is less, and gives what they were. See [`fetch_add_32`](Self::fetch_add_32).
    pub fn fetch_min_32(&self, offset: u64, value: u32) -> Operation<u32> {
        self.change_half("fetch-min of 4 bytes", offset, WordFunction::Min, value)
    }

    /// Sets the 4 bytes at `offset` to `value` if that is more, and gives what they were. See [`fetch_add_32`](Self::fetch_add_32).
    pub fn fetch_max_32(&self, offset: u64, value: u32) -> Operation<u32> {
        self.change_half("fetch-max of 4 bytes", offset, WordFunction::Max, value)
    }

    /// [`fetch_min_32`](Self::fetch_min_32) of signed numbers.
    pub fn fetch_min_signed_32(&self, offset: u64, value: i32) -> Operation<i32> {
        let operand = value.cast_unsigned();
        self.change_half("signed fetch-min of 4 bytes", offset, WordFunction::MinSigned, operand)
    }

    /// [`fetch_max_32`](Self::fetch_max_32) of signed numbers.
    pub fn fetch_max_signed_32(&self, offset: u64, value: i32) -> Operation<i32> {
        let operand = value.cast_unsigned();
        self.change_half("signed fetch-max of 4 bytes", offset, WordFunction::MaxSigned, operand)
    }

    fn atomic(
        &self,
        name: &'static str,
        offset: u64,
        operation: impl Fn(u64, u32) -> SendOperation,
    ) -> Operation<u64> {
        let plan = |word: &AtomicU64| {
            let address = self.check_word(offset, Rights::ATOMIC, name)?;
            Ok(smallvec![self.step(operation(address, self.token.key), word.as_ptr() as u64, 8)])
        };
        self.start(name, 0, |word, _| word, plan)
    }

    fn change(
        &self,
        name: &'static str,
        offset: u64,
        function: WordFunction,
        operand: u64,
    ) -> Operation<u64> {
        let change = WordChange { operand, function, part: WordPart::Whole };
        self.start_change(name, offset, change, |word, _| word)
    }

    /// A change of a word that repeats. `finish` makes the result of what it was.
    fn start_change<W: Send + Default + 'static>(
        &self,
        name: &'static str,
        offset: u64,
        change: WordChange,
        finish: fn(u64, W) -> W,
    ) -> Operation<W> {
        let plan = |word: &AtomicU64| {
            let address = match change.part {
                WordPart::Whole => self.check_word(offset, Rights::ATOMIC, name)?,
                _ => self.check_half(offset, name)?,
            };
            Ok(smallvec![self.repeating(address, change, word)])
        };
        self.start(name, W::default(), finish, plan)
    }

    fn change_half<W: HalfWord>(
        &self,
        name: &'static str,
        offset: u64,
        function: WordFunction,
        operand: u32,
    ) -> Operation<W> {
        let part = WordPart::of_address(self.token.base.wrapping_add(offset));
        let change = WordChange { operand: operand.into(), function, part };
        let finish = if part == WordPart::High { W::high } else { W::low };
        self.start_change(name, offset, change, finish)
    }

    fn repeating(&self, address: u64, change: WordChange, word: &AtomicU64) -> WorkStep {
        let swap = change.of(0);
        let operation = SendOperation::CompareSwap { address, key: self.token.key, compare: 0, swap };
        WorkStep { repeats: Some(change), ..self.step(operation, word.as_ptr() as u64, 8) }
    }

    /// The address at the owner of the word of 8 bytes that has the 4 at `offset`.
    fn check_half(&self, offset: u64, what: &'static str) -> Result<u64, Rule> {
        let address = self.check(offset, 4, Rights::ATOMIC, what)?;
        let (base, length) = (self.token.base, self.token.length);
        if address % 4 != 0 {
            return Err(Rule::HalfAlignment { offset });
        }
        let word = address - address % 8;
        if word < base || word - base + 8 > length {
            return Err(Rule::HalfOutside { offset, length });
        }
        Ok(word)
    }
}

/// What an atomic of 4 bytes gives.
trait HalfWord: Send + Default + 'static {
    fn low(word: u64, _: Self) -> Self;
    fn high(word: u64, _: Self) -> Self;
}

impl HalfWord for u32 {
    fn low(word: u64, _: u32) -> u32 {
        WordPart::Low.half_of(word)
    }

    fn high(word: u64, _: u32) -> u32 {
        WordPart::High.half_of(word)
    }
}

impl HalfWord for i32 {
    fn low(word: u64, _: i32) -> i32 {
        WordPart::Low.half_of(word).cast_signed()
    }

    fn high(word: u64, _: i32) -> i32 {
        WordPart::High.half_of(word).cast_signed()
    }
}

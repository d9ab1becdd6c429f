//! Sets a value if the present one is expected, on whatever words a volume lies in.
//!
//! The bytes of a value never change where they lie, and their place is not used again while anybody has the volume. So a compare-swap of the word that
//! names them decides.

use super::durable::Appended;
use super::volume::{DELETED, PENDING, Shape, VALUE, Words};
use pagewire::Result;

/// A value that is set if the present one is expected. `None`: there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Swap<'v> {
    pub key: u64,
    pub expected: Option<&'v [u8]>,
    pub new: Option<&'v [u8]>,
}

/// What became of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swapped {
    Done,
    /// The value is another one than the expected one.
    Different,
    /// No spare cell is left, or no space for the bytes of the value.
    Full,
    /// The log has no space for its record.
    LogFull,
}

/// Where a swap is logged: before it is made, and again when its outcome is known.
pub(super) trait SwapRecord {
    fn begin(&mut self, swap: &Swap<'_>) -> Result<Appended>;
    fn end(&mut self, swap: &Swap<'_>, is_done: bool) -> Result<()>;
}

/// Of a volume that ends with its owner.
impl SwapRecord for () {
    fn begin(&mut self, _: &Swap<'_>) -> Result<Appended> {
        Ok(Appended::Done)
    }

    fn end(&mut self, _: &Swap<'_>, _: bool) -> Result<()> {
        Ok(())
    }
}

impl Shape {
    /// Sets a value if the present one is expected. It is atomic against all others that change the volume.
    pub fn compare_and_set<W: Words + ?Sized>(
        &self,
        words: &W,
        swap: &Swap<'_>,
        log: &mut impl SwapRecord,
    ) -> Result<Swapped> {
        let mut kept = None;
        loop {
            let found = self.find(words, swap.key)?;
            let present = found.map_or(PENDING, |(_, value)| value);
            if !self.is_value(words, present, swap.expected)? {
                return Ok(Swapped::Different);
            }
            let new = match (swap.new, kept) {
                (None, _) if matches!(present, PENDING | DELETED) => return Ok(Swapped::Done),
                (None, _) => DELETED,
                (Some(_), Some(word)) => word,
                (Some(value), None) => match self.keep(words, value)? {
                    Some(word) => *kept.insert(word),
                    None => return Ok(Swapped::Full),
                },
            };
            let at = match found {
                Some((at, _)) => at,
                None => match self.cell(words, swap.key, PENDING)? {
                    Some((at, _)) => at,
                    None => return Ok(Swapped::Full),
                },
            };
            if log.begin(swap)? == Appended::Full {
                return Ok(Swapped::LogFull);
            }
            let seen = words.compare_swap(at + VALUE, present, new)?;
            log.end(swap, seen == present)?;
            if seen == present {
                return Ok(Swapped::Done);
            }
        }
    }

    /// Whether the word of a value names these bytes, or none.
    fn is_value<W: Words + ?Sized>(&self, words: &W, value: u64, bytes: Option<&[u8]>) -> Result<bool> {
        match (value, bytes) {
            (PENDING | DELETED, bytes) => Ok(bytes.is_none()),
            (_, None) => Ok(false),
            (value, Some(bytes)) if Shape::words_of(value) != Shape::words_for(bytes.len()) => Ok(false),
            (value, Some(bytes)) => Ok(self.bytes(words, value)? == bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn volume(shape: &Shape) -> Vec<AtomicU64> {
        let words: Vec<_> = (0..shape.words().unwrap()).map(|_| AtomicU64::new(0)).collect();
        shape.begin(&words).unwrap();
        words
    }

    #[test]
    fn a_value_is_set_if_the_present_one_is_expected() {
        let shape = Shape { cells: 1, spare: 2, value_words: 20 };
        let words = volume(&shape);
        let swap = |key, expected: Option<&[u8]>, new: Option<&[u8]>| {
            shape.compare_and_set(&words[..], &Swap { key, expected, new }, &mut ()).unwrap()
        };
        let long = [7; 30];
        assert_eq!(swap(1, Some(b""), Some(b"one")), Swapped::Different, "no value is not an empty one");
        assert_eq!(swap(1, None, None), Swapped::Done);
        assert_eq!(shape.spare_taken(&words).unwrap(), 0);
        assert_eq!(swap(1, None, Some(b"one")), Swapped::Done);
        assert_eq!(swap(1, None, Some(b"two")), Swapped::Different);
        assert_eq!(swap(1, Some(b"one"), Some(&long)), Swapped::Done);
        assert_eq!(swap(1, Some(&long[..29]), Some(b"")), Swapped::Different);
        assert_eq!(swap(1, Some(&[8; 30]), Some(b"")), Swapped::Different);
        assert_eq!(swap(2, None, Some(&long)), Swapped::Done, "in a spare cell");
        assert_eq!(shape.lookup(&words[..], 2).unwrap().unwrap(), long);
        assert_eq!(swap(1, Some(&long), None), Swapped::Done);
        assert_eq!(shape.lookup(&words[..], 1).unwrap(), None);
        assert_eq!(swap(1, Some(&long), None), Swapped::Different);
        assert_eq!(swap(1, None, Some(b"back")), Swapped::Done);
        assert_eq!(swap(3, None, Some(&[1; 200])), Swapped::Full, "no space for the bytes");
        assert_eq!(swap(3, None, Some(b"3")), Swapped::Done);
        assert_eq!(swap(4, None, Some(b"4")), Swapped::Full, "no spare cell");
        assert_eq!(shape.lookup(&words[..], 1).unwrap().unwrap(), b"back");
    }

    /// Threads that count by compare-and-set lose no count, with values beside their keys and in the volume.
    #[test]
    fn concurrent_swaps_lose_nothing() {
        let shape = Shape { cells: 2, spare: 4, value_words: 1 << 20 };
        let words = volume(&shape);
        let count = |key: u64, bytes: usize| loop {
            let found = shape.lookup(&words[..], key).unwrap();
            let number = found.as_ref().map_or(0, |found| u32::from_le_bytes(found[..4].try_into().unwrap()));
            let mut new = vec![0; bytes];
            new[..4].copy_from_slice(&(number + 1).to_le_bytes());
            let swap = Swap { key, expected: found.as_deref(), new: Some(&new) };
            match shape.compare_and_set(&words[..], &swap, &mut ()).unwrap() {
                Swapped::Done => break,
                outcome => assert_eq!(outcome, Swapped::Different),
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        (1..=3).for_each(|key| count(key, 4 + 10 * key as usize));
                    }
                });
            }
        });
        for key in 1..=3 {
            let found = shape.lookup(&words[..], key).unwrap().unwrap();
            assert_eq!(found[..4], 2000u32.to_le_bytes(), "{key}");
        }
    }
}

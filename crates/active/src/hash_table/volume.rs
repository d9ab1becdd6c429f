//! A volume: the part of a hash table that one process has, in words of 8 bytes that every process may change at the same time.
//!
//! `header | cells of the table | spare cells | bytes of values`. A cell is `key | value | next`. A key that finds its cell taken goes to a spare cell,
//! which the last cell of the chain is linked to: whoever links learns by the compare-swap if another one came before (PAPERS AA-9; linked by a
//! last pointer that is read before, as listing 2 does, elements are lost).

use super::durable::Change;
use crate::bytes::to_words;
use pagewire::{Error, RemoteRegion, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a cell.
pub(super) const CELL: usize = 3;
pub(super) const VALUE: usize = 1;
const NEXT: usize = 2;

/// Words of the header, of which each that changes has a cache line.
pub(super) const HEADER: usize = 24;
/// The first of three: cells, spare cells, words of values.
const COUNTS: usize = 0;
pub(super) const NEXT_SPARE: usize = 8;
pub(super) const NEXT_VALUE: usize = 16;

/// In the word of a value: its bytes lie in the volume, and the word has their place and count. Else it has up to 7 bytes itself, and in its highest
/// byte how many, plus 1.
pub(super) const IN_VOLUME: u64 = 1 << 63;
/// Bits of the place, in words.
const PLACE_BITS: u32 = 36;
/// Bytes that a value has at most.
pub const MAX_VALUE: usize = (1 << 27) - 1;
/// Bytes of values that lie in their word.
const SHORT: usize = 7;
/// The word of a value that was deleted, and of none that has come yet.
pub(super) const DELETED: u64 = 1;
pub(super) const PENDING: u64 = 0;

/// Words of a volume: those of this process, those of a peer that are mapped here, or those of any peer by operations.
pub(super) trait Words {
    fn load(&self, word: usize) -> Result<u64>;
    fn store(&self, word: usize, value: u64) -> Result<()>;
    fn compare_swap(&self, word: usize, compare: u64, swap: u64) -> Result<u64>;
    fn fetch_add(&self, word: usize, add: u64) -> Result<u64>;
    fn load_all<const N: usize>(&self, word: usize) -> Result<[u64; N]>;
    fn store_all(&self, word: usize, values: &[u64]) -> Result<()>;
    fn read(&self, word: usize, into: &mut [u64]) -> Result<()>;
}

impl Words for [AtomicU64] {
    #[inline]
    fn load(&self, word: usize) -> Result<u64> {
        Ok(self.word(word)?.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, word: usize, value: u64) -> Result<()> {
        self.word(word)?.store(value, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn compare_swap(&self, word: usize, compare: u64, swap: u64) -> Result<u64> {
        let outcome = self.word(word)?.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
        Ok(outcome.unwrap_or_else(|found| found))
    }

    #[inline]
    fn fetch_add(&self, word: usize, add: u64) -> Result<u64> {
        Ok(self.word(word)?.fetch_add(add, Ordering::AcqRel))
    }

    #[inline]
    fn load_all<const N: usize>(&self, word: usize) -> Result<[u64; N]> {
        let mut all = [0; N];
        self.read(word, &mut all)?;
        Ok(all)
    }

    #[inline]
    fn store_all(&self, word: usize, values: &[u64]) -> Result<()> {
        values.iter().enumerate().try_for_each(|(index, value)| self.store(word + index, *value))
    }

    #[inline]
    fn read(&self, word: usize, into: &mut [u64]) -> Result<()> {
        for (index, value) in into.iter_mut().enumerate() {
            *value = self.load(word + index)?;
        }
        Ok(())
    }
}

/// A word, of which another process may have said where it lies.
trait Place {
    fn word(&self, word: usize) -> Result<&AtomicU64>;
}

impl Place for [AtomicU64] {
    #[inline]
    fn word(&self, word: usize) -> Result<&AtomicU64> {
        let length = self.len() as u64 * 8;
        self.get(word).ok_or_else(|| Error::Range { offset: word as u64 * 8, count: 8, length })
    }
}

impl Words for RemoteRegion {
    fn load(&self, word: usize) -> Result<u64> {
        Ok(self.load_all::<1>(word)?[0])
    }

    fn store(&self, word: usize, value: u64) -> Result<()> {
        self.put_value(8 * word as u64, value).wait()?;
        Ok(())
    }

    fn compare_swap(&self, word: usize, compare: u64, swap: u64) -> Result<u64> {
        Ok(RemoteRegion::compare_swap(self, 8 * word as u64, compare, swap).wait()?)
    }

    fn fetch_add(&self, word: usize, add: u64) -> Result<u64> {
        Ok(RemoteRegion::fetch_add(self, 8 * word as u64, add).wait()?)
    }

    fn load_all<const N: usize>(&self, word: usize) -> Result<[u64; N]> {
        let mut all = [0; N];
        Words::read(self, word, &mut all)?;
        Ok(all)
    }

    fn store_all(&self, word: usize, values: &[u64]) -> Result<()> {
        self.put(8 * word as u64, values.to_vec()).wait()?;
        Ok(())
    }

    fn read(&self, word: usize, into: &mut [u64]) -> Result<()> {
        let got = self.get::<u64>(8 * word as u64, into.len())?.wait()?;
        into.copy_from_slice(&got);
        Ok(())
    }
}

/// How many of what a volume has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Cells of the table.
    pub cells: usize,
    /// Cells of chains.
    pub spare: usize,
    /// Words for the bytes of values.
    pub value_words: usize,
}

/// What became of an element that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// No spare cell is left, or no space for the bytes of the value.
    Full,
}

impl Shape {
    /// Words of a volume. `None`: more than there can be.
    pub fn words(&self) -> Option<usize> {
        let cells = self.cells.checked_add(self.spare)?.checked_mul(CELL)?;
        let words = cells.checked_add(self.value_words)?.checked_add(HEADER)?;
        (words < 1 << PLACE_BITS && self.cells > 0).then_some(words)
    }

    /// Bytes of a volume, or the most that a number has.
    pub fn needed_bytes(&self) -> u64 {
        let cells = (self.cells as u64).saturating_add(self.spare as u64).saturating_mul(CELL as u64);
        cells.saturating_add(self.value_words as u64).saturating_add(HEADER as u64).saturating_mul(8)
    }

    /// Writes the header of a volume whose other words are 0.
    pub fn begin(&self, words: &[AtomicU64]) -> Result<()> {
        let header = [self.cells, self.spare, self.value_words].map(|count| count as u64);
        words.store_all(COUNTS, &header)
    }

    /// Removes all elements. The shape stays readable, as others may be about to open the volume.
    pub fn clear(&self, words: &[AtomicU64]) {
        words[NEXT_SPARE..].iter().for_each(|word| word.store(0, Ordering::Release));
    }

    /// By the header of a volume, of which there are so many bytes at least.
    pub fn of<W: Words + ?Sized>(words: &W, length: u64) -> Result<Shape> {
        let [cells, spare, value_words] = words.load_all::<3>(COUNTS)?.map(|count| count as usize);
        let shape = Shape { cells, spare, value_words };
        let is_whole = shape.words().is_some_and(|words| words as u64 * 8 <= length);
        if is_whole { Ok(shape) } else { Err(damaged()) }
    }

    fn spare_at(&self, number: usize) -> usize {
        HEADER + CELL * (self.cells + number)
    }

    /// Where the cell lies that a key belongs to, by the hash of the key.
    pub fn cell_of(&self, key: u64) -> usize {
        let cell = (u128::from(hash(key)) * self.cells as u128 >> 64) as usize;
        HEADER + CELL * cell
    }

    /// Where the cell lies that `link`, the last word of another one, names. `None`: it is the last of its chain.
    pub fn linked(&self, link: u64) -> Result<Option<usize>> {
        let Some(number) = link.checked_sub(1) else { return Ok(None) };
        if number >= self.spare as u64 {
            return Err(damaged());
        }
        Ok(Some(self.spare_at(number as usize)))
    }

    /// A look at the words that a write of a key begins with, so that they are on their way.
    #[inline]
    pub fn touch(&self, words: &[AtomicU64], key: u64) {
        if let Some(word) = words.get(self.cell_of(key)) {
            std::hint::black_box(word.load(Ordering::Relaxed));
        }
    }

    /// Writes a value's word to the cell of a key, which is appended to its chain if it is new.
    #[inline]
    pub fn write<W: Words + ?Sized>(&self, words: &W, key: u64, value: u64) -> Result<Written> {
        match self.cell(words, key, value)? {
            Some((_, true)) => Ok(Written::Done),
            Some((at, false)) => words.store(at + VALUE, value).map(|()| Written::Done),
            None => Ok(Written::Full),
        }
    }

    /// Where the cell of a key lies, which is appended to its chain if it is new, and whether it was appended with the word `value`. `None`: no spare cell is left.
    #[inline]
    pub fn cell<W: Words + ?Sized>(&self, words: &W, key: u64, value: u64) -> Result<Option<(usize, bool)>> {
        let mut at = self.cell_of(key);
        let found = words.compare_swap(at, 0, key)?;
        if found == 0 || found == key {
            return Ok(Some((at, false)));
        }
        let mut own = None;
        for _ in 0..=self.spare {
            let mut link = words.load(at + NEXT)?;
            if link == 0 {
                let number = match own {
                    Some(number) => number,
                    None => {
                        let number = words.fetch_add(NEXT_SPARE, 1)?;
                        if number >= self.spare as u64 {
                            return Ok(None);
                        }
                        words.store_all(self.spare_at(number as usize), &[key, value, 0])?;
                        *own.insert(number)
                    }
                };
                link = words.compare_swap(at + NEXT, 0, number + 1)?;
                if link == 0 {
                    return Ok(Some((self.spare_at(number as usize), true)));
                }
            }
            at = self.linked(link)?.ok_or_else(damaged)?;
            if words.load(at)? == key {
                return Ok(Some((at, false)));
            }
        }
        Err(damaged())
    }

    /// Writes the value of a key, with its bytes where they do not fit in a word.
    #[inline]
    pub fn insert<W: Words + ?Sized>(&self, words: &W, key: u64, value: &[u8]) -> Result<Written> {
        match self.keep(words, value)? {
            Some(value) => self.write(words, key, value),
            None => Ok(Written::Full),
        }
    }

    /// The bytes of a key's value. `None`: it has none.
    #[inline]
    pub fn lookup<W: Words + ?Sized>(&self, words: &W, key: u64) -> Result<Option<Vec<u8>>> {
        self.value(words, key)?.map(|value| self.bytes(words, value)).transpose()
    }

    /// Where the cell of a key lies, and the word of its value.
    pub fn find<W: Words + ?Sized>(&self, words: &W, key: u64) -> Result<Option<(usize, u64)>> {
        let mut at = self.cell_of(key);
        for _ in 0..=self.spare {
            let [found, value, link] = words.load_all::<CELL>(at)?;
            if found == key {
                return Ok(Some((at, value)));
            }
            match self.linked(link)? {
                Some(next) => at = next,
                None => return Ok(None),
            }
        }
        Err(damaged())
    }

    /// The word of a key's value. `None`: there is none.
    #[inline]
    fn value<W: Words + ?Sized>(&self, words: &W, key: u64) -> Result<Option<u64>> {
        let found = self.find(words, key)?;
        Ok(found.map(|(_, value)| value).filter(|value| !matches!(*value, PENDING | DELETED)))
    }

    /// Deletes the value of a key. False: there was none.
    pub fn delete<W: Words + ?Sized>(&self, words: &W, key: u64) -> Result<bool> {
        match self.find(words, key)? {
            None | Some((_, PENDING | DELETED)) => Ok(false),
            // Where another value has come meanwhile, that came behind the deletion.
            Some((at, value)) => Ok(words.compare_swap(at + VALUE, value, DELETED)? != DELETED),
        }
    }

    /// Makes changes until one finds no space, and gives how many were made.
    #[inline]
    pub fn apply<'v>(
        &self,
        words: &[AtomicU64],
        changes: impl ExactSizeIterator<Item = Change<'v>> + Clone,
    ) -> Result<usize> {
        let count = changes.len();
        if count > 1 {
            changes.clone().for_each(|(key, _)| self.touch(words, key));
        }
        for (index, (key, value)) in changes.enumerate() {
            let written = match value {
                Some(value) => self.insert(words, key, value)?,
                None => self.delete(words, key).map(|_| Written::Done)?,
            };
            if written == Written::Full {
                return Ok(index);
            }
        }
        Ok(count)
    }

    /// The word that names a value, whose bytes are written where they do not fit in it. `None`: there is no space for them.
    pub fn keep<W: Words + ?Sized>(&self, words: &W, value: &[u8]) -> Result<Option<u64>> {
        if value.len() <= SHORT {
            let mut bytes = [0; 8];
            bytes[..value.len()].copy_from_slice(value);
            bytes[7] = value.len() as u8 + 1;
            return Ok(Some(u64::from_le_bytes(bytes)));
        }
        let count = value.len().div_ceil(8);
        let first = words.fetch_add(NEXT_VALUE, count as u64)?;
        if first.checked_add(count as u64).is_none_or(|end| end > self.value_words as u64) {
            return Ok(None);
        }
        let packed: Vec<u64> = to_words(value).collect();
        words.store_all(self.value_at(first), &packed)?;
        Ok(Some(IN_VOLUME | (value.len() as u64) << PLACE_BITS | first))
    }

    /// Words of the volume that a value of so many bytes takes.
    pub fn words_for(bytes: usize) -> usize {
        if bytes <= SHORT { 0 } else { bytes.div_ceil(8) }
    }

    /// Words of the volume that the bytes of a value take, which its word names.
    pub fn words_of(value: u64) -> usize {
        if value & IN_VOLUME == 0 { 0 } else { ((value & !IN_VOLUME) >> PLACE_BITS).div_ceil(8) as usize }
    }

    /// Where the bytes of a value lie, which its word names, in words from the first one of all values.
    pub fn place_of(value: u64) -> u64 {
        value & ((1 << PLACE_BITS) - 1)
    }

    /// The place and the count of the bytes of a value that lies in the volume.
    pub fn located(&self, value: u64) -> Result<(u64, u64)> {
        let (place, length) = (Shape::place_of(value), (value & !IN_VOLUME) >> PLACE_BITS);
        match place.checked_add(length.div_ceil(8)).is_some_and(|end| end <= self.value_words as u64) {
            true => Ok((place, length)),
            false => Err(damaged()),
        }
    }

    /// Where the bytes of a value lie.
    pub fn value_at(&self, place: u64) -> usize {
        self.spare_at(self.spare) + place as usize
    }

    /// The bytes of the value that a word names.
    pub fn bytes<W: Words + ?Sized>(&self, words: &W, value: u64) -> Result<Vec<u8>> {
        if value & IN_VOLUME == 0 {
            let bytes = value.to_le_bytes();
            let length = usize::from(bytes[7]).checked_sub(1).filter(|length| *length <= SHORT);
            return Ok(bytes[..length.ok_or_else(damaged)?].to_vec());
        }
        let (place, length) = self.located(value)?;
        let mut packed = vec![0; length.div_ceil(8) as usize];
        words.read(self.value_at(place), &mut packed)?;
        let mut bytes: Vec<u8> = packed.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length as usize);
        Ok(bytes)
    }

    /// Walks all chains, and hands over each key that has a value, and the value's word.
    pub fn walk(&self, words: &[AtomicU64], mut found: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        for cell in 0..self.cells {
            let mut at = Some(HEADER + CELL * cell);
            // A chain that does not end would have more cells than there are.
            for _ in 0..=self.spare {
                let Some(place) = at else { break };
                let [key, value, link] = words.load_all::<CELL>(place)?;
                if key != 0 && !matches!(value, PENDING | DELETED) {
                    found(key, value)?;
                }
                at = self.linked(link)?;
            }
            if at.is_some() {
                return Err(damaged());
            }
        }
        Ok(())
    }

    /// Spare cells that are taken.
    pub fn spare_taken(&self, words: &[AtomicU64]) -> Result<usize> {
        Ok((words.load(NEXT_SPARE)? as usize).min(self.spare))
    }
}

/// Mixes the bits of a key (the finaliser of MurmurHash3): its high bits choose the cell, its low ones the owner.
#[inline]
pub(super) fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mixed ^ mixed >> 33
}

/// A process has written to a volume what no member of the table writes.
pub(super) fn damaged() -> Error {
    let why = std::io::Error::new(
        std::io::ErrorKind::InvalidData,
        "its chains are damaged: a process wrote over them",
    );
    Error::System { what: "the volume of a hash table".into(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn volume(shape: Shape) -> Vec<AtomicU64> {
        let words: Vec<_> = (0..shape.words().unwrap()).map(|_| AtomicU64::new(0)).collect();
        shape.begin(&words).unwrap();
        words
    }

    proptest! {
        /// A volume of few cells, so that chains are long, does what a map does.
        #[test]
        fn a_volume_is_a_map(steps in prop::collection::vec((1u64..40, prop::option::of(prop::collection::vec(any::<u8>(), 0..40))), 1..200)) {
            let shape = Shape { cells: 5, spare: 64, value_words: 2000 };
            let words = volume(shape);
            let mut map = HashMap::new();
            for (key, value) in steps {
                match value {
                    Some(value) => {
                        prop_assert_eq!(shape.insert(&words[..], key, &value).unwrap(), Written::Done);
                        map.insert(key, value);
                    }
                    None => prop_assert_eq!(shape.delete(&words[..], key).unwrap(), map.remove(&key).is_some()),
                }
            }
            for key in 1..40 {
                prop_assert_eq!(shape.lookup(&words[..], key).unwrap(), map.get(&key).cloned());
            }
            let mut found = 0;
            shape.walk(&words, |key, _| { found += usize::from(map.contains_key(&key)); Ok(()) }).unwrap();
            prop_assert_eq!(found, map.len());
        }

        /// Whatever a hostile process writes to a volume, it is an error or an answer, and ends.
        #[test]
        fn damaged_volumes_are_errors(damage in prop::collection::vec((0usize..200, any::<u64>()), 1..40)) {
            let shape = Shape { cells: 5, spare: 20, value_words: 60 };
            let words = volume(shape);
            for (word, value) in damage {
                words[word % words.len()].store(value, Ordering::Relaxed);
            }
            for key in 1..20 {
                if let Ok(Some(value)) = shape.value(&words[..], key) {
                    let _ = shape.bytes(&words[..], value);
                }
                let _ = shape.write(&words[..], key, 1 << 56);
                let _ = shape.delete(&words[..], key);
            }
            let _ = shape.walk(&words, |_, _| Ok(()));
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let shape = Shape { cells: 1, spare: 2, value_words: 1 };
        let words = volume(shape);
        assert_eq!(shape.insert(&words[..], 1, b"12345678").unwrap(), Written::Done);
        assert_eq!(
            shape.insert(&words[..], 2, b"123456789").unwrap(),
            Written::Full,
            "no space for the bytes"
        );
        assert_eq!(shape.insert(&words[..], 2, b"").unwrap(), Written::Done);
        assert_eq!(shape.insert(&words[..], 3, b"").unwrap(), Written::Done);
        assert_eq!(shape.insert(&words[..], 4, b"").unwrap(), Written::Full, "no spare cell");
        assert_eq!(shape.lookup(&words[..], 1).unwrap().unwrap(), b"12345678");
        assert_eq!(shape.lookup(&words[..], 3).unwrap().unwrap(), b"");
        assert_eq!(shape.lookup(&words[..], 4).unwrap(), None);
    }

    /// Threads that write the same and different keys at once lose none.
    #[test]
    fn concurrent_writes_lose_nothing() {
        let shape = Shape { cells: 16, spare: 4 * 1000, value_words: 1 };
        let words = volume(shape);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let words = &words;
                scope.spawn(move || {
                    for index in 0..500 {
                        assert_eq!(
                            shape.insert(&words[..], 1 + thread * 500 + index, b"own").unwrap(),
                            Written::Done
                        );
                        assert_eq!(
                            shape.insert(&words[..], 10_000 + index, b"shared").unwrap(),
                            Written::Done
                        );
                    }
                });
            }
        });
        let mut keys = Vec::new();
        shape
            .walk(&words, |key, _| {
                keys.push(key);
                Ok(())
            })
            .unwrap();
        keys.sort_unstable();
        assert_eq!(keys, (1..=2000).chain(10_000..10_500).collect::<Vec<_>>(), "each once");
    }
}

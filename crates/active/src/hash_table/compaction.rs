//! Makes a volume anew where it lies: the space of deleted elements and of overwritten values is used again, without memory for a second volume.
//!
//! Its owner has revoked the key of the volume and holds its lock, so nobody else has the volume meanwhile. A death in the midst takes the volume
//! along, as the death of its owner does at any time; a durable one is loaded from its files.

use super::volume::{HEADER, IN_VOLUME, NEXT_SPARE, NEXT_VALUE, Shape, Written, damaged};
use pagewire::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// What of a volume is in use by elements that are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Live {
    /// Elements, each with its own key.
    pub elements: usize,
    /// Words that the bytes of their values take.
    pub words: usize,
    /// Spare cells that they need.
    pub spare: usize,
}

impl Live {
    /// Whether a volume of such a shape has space for one more element with a value of so many bytes, once it is made anew.
    pub fn leaves_space(&self, shape: &Shape, value: usize) -> bool {
        self.spare < shape.spare && self.words + value.div_ceil(8) <= shape.value_words
    }
}

impl Shape {
    /// Walks all chains.
    pub fn live(&self, words: &[AtomicU64]) -> Result<Live> {
        let (mut live, mut last) = (Live::default(), None);
        self.walk(words, |key, value| {
            // The elements of a chain follow each other. The first one needs no spare cell.
            let cell = self.cell_of(key);
            live.spare += usize::from(last == Some(cell));
            last = Some(cell);
            live.elements += 1;
            live.words += Shape::words_of(value);
            Ok(())
        })?;
        Ok(live)
    }

    /// Gives a volume of this shape another one that takes no more words than there are, with all its elements. Nobody else has it meanwhile.
    ///
    /// # Errors
    /// `NoMemory`: its elements do not fit, or there is no memory for a list of them; `System`: its chains are damaged. Nothing was changed.
    pub fn rebuild(&self, words: &[AtomicU64], new: Shape) -> Result<()> {
        let live = self.live(words)?;
        let has_cells = new.cells == self.cells && live.spare <= new.spare || live.elements <= new.spare;
        let fits = new.words().is_some_and(|count| count <= words.len());
        if !fits || !has_cells || live.words > new.value_words {
            return Err(Error::NoMemory(new.needed_bytes()));
        }
        if live.words > self.value_words {
            // Values that lie in each other.
            return Err(damaged());
        }
        let mut elements = self.list(words, live.elements)?;
        let used = self.slide_values(words, &mut elements);
        move_words(words, self.value_at(0), new.value_at(0), used as usize);
        words[HEADER..new.value_at(0)].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        new.begin(words)?;
        words[NEXT_SPARE].store(0, Ordering::Relaxed);
        words[NEXT_VALUE].store(used, Ordering::Relaxed);
        for (key, value) in elements {
            if new.write(words, key, value)? == Written::Full {
                return Err(damaged());
            }
        }
        Ok(())
    }

    /// All elements with the words of their values, in the order of where the bytes of these lie.
    fn list(&self, words: &[AtomicU64], count: usize) -> Result<Vec<(u64, u64)>> {
        let mut elements = Vec::new();
        let bytes = count * size_of::<(u64, u64)>();
        elements.try_reserve_exact(count).map_err(|_| Error::NoMemory(bytes as u64))?;
        self.walk(words, |key, value| {
            if value & IN_VOLUME != 0 {
                self.located(value)?;
            }
            elements.push((key, value));
            Ok(())
        })?;
        let place = |value: u64| if value & IN_VOLUME == 0 { u64::MAX } else { Shape::place_of(value) };
        elements.sort_unstable_by_key(|(_, value)| place(*value));
        Ok(elements)
    }

    /// Moves the bytes of values, which are in order, to the beginning of their space, and gives how many words they take.
    fn slide_values(&self, words: &[AtomicU64], elements: &mut [(u64, u64)]) -> u64 {
        let mut to = 0;
        for (_, value) in elements.iter_mut().filter(|(_, value)| value & IN_VOLUME != 0) {
            let count = Shape::words_of(*value);
            move_words(words, self.value_at(Shape::place_of(*value)), self.value_at(to), count);
            *value = *value - Shape::place_of(*value) + to;
            to += count as u64;
        }
        to
    }
}

/// Moves words, where both places may overlap.
fn move_words(words: &[AtomicU64], from: usize, to: usize, count: usize) {
    let copy = |index: usize| {
        let word = words[from + index].load(Ordering::Relaxed);
        words[to + index].store(word, Ordering::Relaxed);
    };
    match to <= from {
        true => (0..count).for_each(copy),
        false => (0..count).rev().for_each(copy),
    }
}

#[cfg(test)]
mod tests {
    use super::super::volume::CELL;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn volume(shape: Shape, words: usize) -> Vec<AtomicU64> {
        let words: Vec<_> = (0..words).map(|_| AtomicU64::new(0)).collect();
        shape.begin(&words).unwrap();
        words
    }

    fn found(shape: &Shape, words: &[AtomicU64]) -> HashMap<u64, Vec<u8>> {
        let mut found = HashMap::new();
        shape
            .walk(words, |key, value| {
                assert!(found.insert(key, shape.bytes(words, value)?).is_none(), "{key} is there twice");
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn space_of_deleted_elements_is_used_again_in_place() {
        let shape = Shape { cells: 4, spare: 8, value_words: 40 };
        let words = volume(shape, shape.words().unwrap());
        for round in 0..50u64 {
            for key in 1..=8 {
                let key = 100 * round + key;
                assert_eq!(
                    shape.insert(&words[..], key, &[round as u8; 40]).unwrap(),
                    Written::Done,
                    "{round}"
                );
            }
            let live = shape.live(&words).unwrap();
            assert!(!live.leaves_space(&shape, 1) && live.words == 40);
            assert_eq!(shape.insert(&words[..], 9, &[1; 9]).unwrap(), Written::Full);
            (1..=8).for_each(|key| assert!(shape.delete(&words[..], 100 * round + key).unwrap()));
            assert!(shape.live(&words).unwrap().leaves_space(&shape, 320));
            shape.rebuild(&words, shape).unwrap();
        }
    }

    proptest! {
        /// A volume that is made anew, in the same shape or in another one, has the same elements.
        #[test]
        fn a_rebuilt_volume_has_its_elements(
            steps in prop::collection::vec((1u64..30, prop::option::of(prop::collection::vec(any::<u8>(), 0..40))), 0..150),
            cells in 1usize..20, spare in 30usize..60, value_words in 0usize..300,
        ) {
            let (old, new) = (Shape { cells: 7, spare: 64, value_words: 1000 }, Shape { cells, spare, value_words });
            let length = old.words().unwrap();
            let words = volume(old, length);
            for (key, value) in steps {
                match value {
                    Some(value) => prop_assert_eq!(old.insert(&words[..], key, &value).unwrap(), Written::Done),
                    None => _ = old.delete(&words[..], key).unwrap(),
                }
            }
            let before = found(&old, &words);
            old.rebuild(&words, old).unwrap();
            prop_assert_eq!(&found(&old, &words), &before);
            let live = old.live(&words).unwrap();
            prop_assert_eq!(old.spare_taken(&words).unwrap(), live.spare);
            let fits = live.words <= value_words;
            match old.rebuild(&words, new) {
                Ok(()) => {
                    prop_assert!(fits);
                    prop_assert_eq!(&found(&new, &words), &before);
                    prop_assert_eq!(Shape::of(&words[..], 8 * length as u64).unwrap(), new);
                }
                Err(error) => {
                    prop_assert!(!fits, "{}", error);
                    prop_assert_eq!(&found(&old, &words), &before);
                }
            }
        }

        /// Whatever a hostile process wrote to a volume: it is made anew, or that is an error.
        #[test]
        fn damaged_volumes_are_errors(damage in prop::collection::vec((0usize..200, any::<u64>()), 1..40)) {
            let shape = Shape { cells: 5, spare: 20, value_words: 60 };
            let words = volume(shape, shape.words().unwrap());
            for (word, value) in damage {
                words[word % (HEADER + 25 * CELL)].store(value, Ordering::Relaxed);
            }
            let _ = shape.rebuild(&words, shape);
        }
    }
}

//! A loop over the elements of a table, part by part, in the order of the hashes of their keys.
//!
//! The hash of a key says in which cell its chain begins, in a volume of any size. So a part is a range of hashes, and the next one begins where it ends,
//! also when the volume has grown meanwhile. No two keys have one hash.

use super::HashTable;
use super::volume::{CELL, DELETED, HEADER, PENDING, Shape, Words, damaged, hash};
use pagewire::Result;

/// Cells of a volume that are read at once.
const BLOCK: usize = 64;
/// Elements of a part, and bytes of their values, beyond which it ends with the next chain.
const PART: usize = 256;
const PART_BYTES: usize = 1 << 20;

/// A key and the bytes of its value.
pub type Element = (u64, Vec<u8>);

/// Elements whose hashes lie in a range.
pub(super) struct Part {
    pub elements: Vec<Element>,
    /// Where the next one begins. `None`: this is the last one of its volume.
    pub next: Option<u64>,
}

impl Shape {
    /// The elements from a hash on, until there are enough for a part.
    pub fn part<W: Words + ?Sized>(&self, words: &W, from: u64) -> Result<Part> {
        let (mut elements, mut bytes) = (Vec::new(), 0);
        let mut block = [0; CELL * BLOCK];
        let mut cell = self.number_of(from);
        while cell < self.cells {
            let count = BLOCK.min(self.cells - cell);
            words.read(HEADER + CELL * cell, &mut block[..CELL * count])?;
            for head in block[..CELL * count].chunks_exact(CELL) {
                self.read_chain(words, [head[0], head[1], head[2]], |key, value| {
                    if hash(key) >= from {
                        let value = self.bytes(words, value)?;
                        bytes += value.len();
                        elements.push((key, value));
                    }
                    Ok(())
                })?;
                cell += 1;
                if elements.len() >= PART || bytes >= PART_BYTES {
                    return Ok(Part { elements, next: self.first_hash(cell) });
                }
            }
        }
        Ok(Part { elements, next: None })
    }

    /// Hands over the elements of a chain that begins with this cell.
    fn read_chain<W: Words + ?Sized>(
        &self,
        words: &W,
        mut cell: [u64; CELL],
        mut each: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        // A chain that does not end would have more cells than there are.
        for _ in 0..=self.spare {
            let [key, value, link] = cell;
            if key != 0 && !matches!(value, PENDING | DELETED) {
                each(key, value)?;
            }
            let Some(next) = self.linked(link)? else { return Ok(()) };
            cell = words.load_all::<CELL>(next)?;
        }
        Err(damaged())
    }

    /// The number of the cell that a hash belongs to.
    fn number_of(&self, hash: u64) -> usize {
        (u128::from(hash) * self.cells as u128 >> 64) as usize
    }

    /// The least hash that belongs to a cell. `None`: there is no such cell.
    fn first_hash(&self, cell: usize) -> Option<u64> {
        let first = ((cell as u128) << 64).div_ceil(self.cells as u128);
        u64::try_from(first).ok()
    }
}

/// Where a loop over the elements of a table is. The default one is at the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableCursor {
    /// The rank of the member whose volume comes next.
    pub rank: usize,
    /// The hash of the key from which on its elements come.
    pub hash: u64,
}

/// The elements of a table: see [`HashTable::elements`].
pub struct Elements<'t> {
    table: &'t HashTable,
    cursor: TableCursor,
    part: std::vec::IntoIter<Element>,
    has_ended: bool,
}

impl<'t> Elements<'t> {
    pub(super) fn new(table: &'t HashTable) -> Self {
        Elements { table, cursor: TableCursor::default(), part: Vec::new().into_iter(), has_ended: false }
    }
}

impl Iterator for Elements<'_> {
    type Item = Result<Element>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(element) = self.part.next() {
                return Some(Ok(element));
            }
            if self.has_ended {
                return None;
            }
            match self.table.next_elements(&mut self.cursor) {
                Ok(part) => {
                    self.has_ended = part.is_empty();
                    self.part = part.into_iter();
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_table::volume::Written;
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicU64;

    fn volume(shape: &Shape) -> Vec<AtomicU64> {
        let words: Vec<_> = (0..shape.words().unwrap()).map(|_| AtomicU64::new(0)).collect();
        shape.begin(&words).unwrap();
        words
    }

    /// Parts of volumes of different sizes, one after the other, give each element once.
    #[test]
    fn a_loop_goes_on_in_a_volume_of_another_size() {
        let shapes = [3, 1000, 64, 7, 1, 129].map(|cells| Shape { cells, spare: 3000, value_words: 20_000 });
        let volumes = shapes.map(|shape| (shape, volume(&shape)));
        for (shape, words) in &volumes {
            for key in 1..=2000u64 {
                assert_eq!(
                    shape.insert(&words[..], key, &vec![key as u8; key as usize % 50]).unwrap(),
                    Written::Done
                );
            }
            shape.delete(&words[..], 5).unwrap();
        }
        let (mut from, mut found, mut parts) = (Some(0), BTreeMap::new(), 0);
        while let Some(hash) = from {
            let (shape, words) = &volumes[parts % volumes.len()];
            let part = shape.part(&words[..], hash).unwrap();
            for (key, value) in part.elements {
                assert_eq!(value, vec![key as u8; key as usize % 50]);
                assert!(found.insert(key, value).is_none(), "{key} comes twice");
            }
            from = part.next;
            parts += 1;
        }
        assert!(found.keys().copied().eq((1..=2000).filter(|key| *key != 5)));
        assert!(parts > 3, "{parts}");
    }
}

//! A volume as listings 2 and 3 have it: a table of cells, cells for elements that collide, the next of them that is free, and for each cell of the
//! table the last one of its chain. An element is linked by the value that the swap of that last one returned: as printed, the listings lose elements
//! when two inserts collide.

use anyhow::{Context, Result, ensure};
use pagewire::{Atomic, Node, Region, RemoteRegion, Rights, Token};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a cell: the element, and the number of the next cell, plus 1.
const CELL: usize = 2;
/// Words before the cells; the first is the next free one.
const HEADER: usize = 8;

/// Where words lie.
#[derive(Clone, Copy)]
struct Layout {
    cells: usize,
    spare: usize,
}

impl Layout {
    fn words(self) -> usize {
        HEADER + CELL * (self.cells + self.spare) + self.cells
    }

    /// The cell of the table for a key.
    fn cell(self, key: u64) -> usize {
        // Of 128 bits the upper half is less than the number of cells.
        (u128::from(super::messages::mix(key)) * self.cells as u128 >> 64) as usize
    }

    fn element(self, cell: usize) -> usize {
        HEADER + CELL * cell
    }

    fn next(self, cell: usize) -> usize {
        self.element(cell) + 1
    }

    /// The last cell of a chain.
    fn last(self, cell: usize) -> usize {
        HEADER + CELL * (self.cells + self.spare) + cell
    }

    /// The cell that has a number in a chain.
    fn numbered(self, number: u64) -> Result<usize> {
        let cell = usize::try_from(number)?.checked_sub(1).context("no cell has the number 0")?;
        ensure!(cell < self.spare, "a chain names the cell {cell} of {}", self.spare);
        Ok(self.cells + cell)
    }

    /// The number of a free cell that a count was taken for.
    fn free(self, taken: u64) -> Result<u64> {
        ensure!(taken < self.spare as u64, "the volume has no cell left for elements that collide");
        Ok(taken + 1)
    }
}

/// The volume of this process.
pub(super) struct OwnVolume {
    layout: Layout,
    region: Region<u64, Atomic>,
}

impl OwnVolume {
    pub fn make(node: &Node, cells: usize, spare: usize) -> Result<OwnVolume> {
        let layout = Layout { cells, spare };
        Ok(OwnVolume { layout, region: node.words(layout.words())? })
    }

    pub fn export(&self) -> Result<Token> {
        Ok(self.region.export(Rights::all())?)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.region.words()[index]
    }

    /// Listing 3, mended.
    pub fn insert(&self, key: u64) -> Result<()> {
        let (layout, cell) = (self.layout, self.layout.cell(key));
        let element = self.word(layout.element(cell));
        if element.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return Ok(());
        }
        let free = layout.free(self.word(0).fetch_add(1, Ordering::AcqRel))?;
        self.word(layout.element(layout.numbered(free)?)).store(key, Ordering::Release);
        let before = match self.word(layout.last(cell)).swap(free, Ordering::AcqRel) {
            0 => cell,
            last => layout.numbered(last)?,
        };
        self.word(layout.next(before)).store(free, Ordering::Release);
        Ok(())
    }

    pub fn clear(&self) {
        self.region.words().iter().for_each(|word| word.store(0, Ordering::Release));
    }

    pub fn elements(&self) -> Result<u64> {
        let mut count = 0;
        for cell in 0..self.layout.cells {
            let mut at = cell;
            if self.word(self.layout.element(at)).load(Ordering::Acquire) == 0 {
                continue;
            }
            // A chain that does not end has more cells than there are.
            for length in 0.. {
                ensure!(length <= self.layout.spare, "a chain does not end");
                ensure!(
                    self.word(self.layout.element(at)).load(Ordering::Acquire) != 0,
                    "a chain has an empty cell"
                );
                count += 1;
                match self.word(self.layout.next(at)).load(Ordering::Acquire) {
                    0 => break,
                    next => at = self.layout.numbered(next)?,
                }
            }
        }
        Ok(count)
    }
}

/// The volume of another process, by remote operations alone.
pub(super) struct RemoteVolume {
    layout: Layout,
    region: RemoteRegion,
}

impl RemoteVolume {
    pub fn open(node: &Node, token: &Token, cells: usize, spare: usize) -> Result<RemoteVolume> {
        Ok(RemoteVolume { layout: Layout { cells, spare }, region: node.open(token)? })
    }

    /// Listing 2, mended: each operation is waited for.
    pub fn insert(&self, key: u64) -> Result<()> {
        let (layout, cell) = (self.layout, self.layout.cell(key));
        let at = |word: usize| 8 * word as u64;
        if self.region.compare_swap(at(layout.element(cell)), 0, key).wait()? == 0 {
            return Ok(());
        }
        let free = layout.free(self.region.fetch_add(0, 1).wait()?)?;
        self.region.put_value(at(layout.element(layout.numbered(free)?)), key).wait()?;
        let before = match self.region.swap(at(layout.last(cell)), free).wait()? {
            0 => cell,
            last => layout.numbered(last)?,
        };
        self.region.put_value(at(layout.next(before)), free).wait()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Both ways to insert, at once, into a table so small that nearly all collide: the chains hold each element.
    #[test]
    fn concurrent_inserts_of_both_volumes_lose_nothing() {
        let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
        let own = OwnVolume::make(&owner, 3, 4_000).unwrap();
        let remote = RemoteVolume::open(&caller, &own.export().unwrap(), 3, 4_000).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (own, remote) = (&own, &remote);
                scope.spawn(move || {
                    (1..=500).try_for_each(|key| own.insert(10_000 * (thread + 1) + key)).unwrap()
                });
                scope.spawn(move || {
                    (1..=500).try_for_each(|key| remote.insert(90_000 * (thread + 1) + key)).unwrap()
                });
            }
        });
        assert_eq!(own.elements().unwrap(), 2_000);
        let words = own.region.words();
        let keys: HashSet<u64> =
            (0..4_003).map(|cell| words[own.layout.element(cell)].load(Ordering::Relaxed)).collect();
        assert_eq!(keys.len(), 2_001, "and 0");
        own.clear();
        assert_eq!(own.elements().unwrap(), 0);
    }

    #[test]
    fn a_full_volume_and_a_damaged_chain_are_errors() {
        let node = Node::alone().unwrap();
        let own = OwnVolume::make(&node, 1, 1).unwrap();
        own.insert(1).unwrap();
        own.insert(2).unwrap();
        assert!(format!("{:#}", own.insert(3).unwrap_err()).contains("no cell left"));
        own.word(own.layout.next(1)).store(1, Ordering::Relaxed);
        assert!(format!("{:#}", own.elements().unwrap_err()).contains("does not end"));
        own.word(own.layout.next(1)).store(77, Ordering::Relaxed);
        assert!(format!("{:#}", own.elements().unwrap_err()).contains("cell 76"));
    }
}

//! The queue pairs of one process: numbers, leased blocks, places in the published tables.

use crate::services::Services;
use crate::types::error::{Error, Result};
use crate::types::limits::{MAX_BLOCKS_AT_ONCE, MAX_QUEUE_PAIRS};
use derive_where::derive_where;
use pagewire_fabric::{Fabric, QUEUE_PAIRS_PER_BLOCK};
use pagewire_iommu::layout::BLOCKS;
use pagewire_iommu::limits::MAX_BLOCKS;
use pagewire_iommu::words::{SharedWords, Site};
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;

/// Publishing a leased block.
pub const BLOCK: Site = Site("tables.block");

#[derive_where(Default)]
struct BlockTable<T> {
    /// Leased blocks in the order of their places.
    blocks: Vec<u32>,
    /// The leased blocks as runs of blocks that follow each other.
    runs: Vec<LeasedRun>,
    by_place: Vec<Option<Arc<T>>>,
    /// Places that are free, the longest unused first, so that a number is not used again soon.
    free: VecDeque<u32>,
}

/// Leased blocks that follow each other in number and in place.
struct LeasedRun {
    first: u32,
    length: u32,
    /// Place of the first among all leased blocks.
    ordinal: u32,
}

impl<T> BlockTable<T> {
    /// The place of a block among all leased blocks.
    fn ordinal_of(&self, block: u32) -> Option<u32> {
        // The last runs are the longest.
        self.runs.iter().rev().find_map(|run| {
            let offset = block.checked_sub(run.first).filter(|offset| *offset < run.length)?;
            Some(run.ordinal + offset)
        })
    }
}

/// How many blocks a process that has used up so many numbers leases: as many as it has, within bounds, so that each further
/// queue pair costs it the same.
fn blocks_to_lease(places: usize) -> usize {
    (places / QUEUE_PAIRS_PER_BLOCK as usize).clamp(1, MAX_BLOCKS_AT_ONCE)
}

/// What has queue pair numbers, by number.
#[derive_where(Default)]
pub struct Numbered<T> {
    table: RwLock<BlockTable<T>>,
    /// Held by the thread that leases blocks. Others that find no free number wait for what it leases, so that a process holds no more
    /// blocks than its queue pairs need.
    leasing: Mutex<()>,
}

impl<T> Numbered<T> {
    /// Takes a free number and its place, leasing more blocks if none is free.
    pub fn reserve<F: Fabric>(&self, services: &Services<F>) -> Result<(u32, u32)> {
        loop {
            if let Some(taken) = self.take_free() {
                return Ok(taken);
            }
            let _leasing = self.leasing.lock();
            let (is_any_free, places) = {
                let table = self.table.read();
                (!table.free.is_empty(), table.by_place.len())
            };
            // Another thread has leased some meanwhile. There may be none left of them when this one has looked: then it leases more, up to
            // the limit.
            if is_any_free {
                continue;
            }
            if places >= MAX_QUEUE_PAIRS as usize {
                return Err(Error::NoMemory("queue pairs"));
            }
            // Without the lock of the table: packets for the queue pairs that exist go on meanwhile.
            let leased = services.fabric.lease_blocks(blocks_to_lease(places))?;
            for block in leased {
                self.add_block(services, block)?;
            }
            if places == 0 {
                services.fabric.await_steering();
            }
        }
    }

    /// Takes the number that was unused for the longest time, and its place.
    fn take_free(&self) -> Option<(u32, u32)> {
        let mut table = self.table.write();
        let place = table.free.pop_front()?;
        let block = table.blocks[(place / QUEUE_PAIRS_PER_BLOCK) as usize];
        Some((block * QUEUE_PAIRS_PER_BLOCK + place % QUEUE_PAIRS_PER_BLOCK, place))
    }

    fn add_block<F: Fabric>(&self, services: &Services<F>, block: u32) -> Result<()> {
        let mut table = self.table.write();
        let ordinal = table.blocks.len() as u32;
        if table.by_place.len() as u32 >= MAX_QUEUE_PAIRS || ordinal as usize >= MAX_BLOCKS {
            return Err(Error::NoMemory("queue pairs"));
        }
        services.fabric.tables().store(BLOCK, BLOCKS + ordinal as usize, u64::from(block) + 1);
        table.blocks.push(block);
        match table.runs.last_mut() {
            Some(run) if run.first + run.length == block => run.length += 1,
            _ => table.runs.push(LeasedRun { first: block, length: 1, ordinal }),
        }
        let first = ordinal * QUEUE_PAIRS_PER_BLOCK;
        table.free.extend(first..first + QUEUE_PAIRS_PER_BLOCK);
        let places = (first + QUEUE_PAIRS_PER_BLOCK) as usize;
        table.by_place.resize_with(places, || None);
        Ok(())
    }

    /// Makes a queue pair findable.
    pub fn insert(&self, place: u32, queue_pair: Arc<T>) {
        self.table.write().by_place[place as usize] = Some(queue_pair);
    }

    /// Forgets a queue pair; its number may be used again.
    pub fn remove(&self, place: u32) {
        let mut table = self.table.write();
        table.by_place[place as usize] = None;
        table.free.push_back(place);
    }

    /// The queue pair of a number.
    pub fn get(&self, number: u32) -> Option<Arc<T>> {
        let table = self.table.read();
        let ordinal = table.ordinal_of(number / QUEUE_PAIRS_PER_BLOCK)?;
        let place = ordinal * QUEUE_PAIRS_PER_BLOCK + number % QUEUE_PAIRS_PER_BLOCK;
        table.by_place[place as usize].clone()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.table.read().by_place.iter().flatten().cloned().collect()
    }
}

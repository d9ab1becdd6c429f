//! Ways to spare registrations that the paper names (FRRWP-4), over an assumed [`Sequence`].
//!
//! All but the first use fast registration, T = a p + b, where b holds the deregistration. A cache holds as many pages as the card's table.

use super::sequence::{Access, Sequence};
use crate::unit_costs::{FrrwpCosts, PAGE};

/// Transfers of a measurement, behind as many that fill the caches.
const TRANSFERS: usize = 4_000;

/// What a full cache gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The entry that was used longest ago.
    LeastRecentlyUsed,
    /// Assumption, as the text has no formula: the entry with the most pages times transfers since its last use (MRRC).
    SizeAndRecency,
}

/// What is done for each transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Ordinary registration and deregistration.
    OnDemand,
    /// Fast registration and deregistration.
    Fast,
    /// Fast registration of each piece of a buffer.
    Pieces,
    /// One fast registration over all pieces and what is between them.
    Group,
    /// A cache that deregisters what it gives up (pin-down cache, lazy deregistration).
    Cache(Eviction),
    /// Such a cache by LRU, whose deregistrations are batched.
    Batched,
    /// Copies to or from buffers that were registered before the first transfer.
    Pool,
    /// The target's memory is registered on demand of the initiator, which asks by a message. Until the target gives it up, the initiator
    /// needs none.
    Firehose,
}

impl Strategy {
    const fn has_cache(self) -> bool {
        matches!(self, Strategy::Cache(_) | Strategy::Batched | Strategy::Firehose)
    }
}

/// Registered buffers that stay registered while there is space (pin-down cache).
#[derive(Debug)]
pub struct PinDownCache {
    /// Number, pages, turn of the last use.
    entries: Vec<(usize, u64, u64)>,
    used: u64,
    capacity: u64,
    eviction: Eviction,
}

impl PinDownCache {
    /// An empty cache of so many pages.
    pub const fn new(capacity: u64, eviction: Eviction) -> Self {
        PinDownCache { entries: Vec::new(), used: 0, capacity, eviction }
    }

    /// Whether a buffer is registered.
    pub fn has(&self, buffer: usize) -> bool {
        self.entries.iter().any(|entry| entry.0 == buffer)
    }

    /// Uses a buffer, which is registered then: gives the buffers that it has given up for that. `None`: it was registered.
    pub fn admit(&mut self, access: Access, turn: u64) -> Option<Vec<usize>> {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.0 == access.buffer) {
            entry.2 = turn;
            return None;
        }
        let mut evicted = Vec::new();
        while self.used + access.pages > self.capacity {
            let eviction = self.eviction;
            let value = |&(_, pages, last): &(usize, u64, u64)| match eviction {
                Eviction::LeastRecentlyUsed => turn - last,
                Eviction::SizeAndRecency => (turn - last) * pages,
            };
            let oldest = self.entries.iter().enumerate().max_by_key(|(_, entry)| value(entry));
            let Some((index, _)) = oldest else { break };
            let (buffer, pages, _) = self.entries.swap_remove(index);
            self.used -= pages;
            evicted.push(buffer);
        }
        self.used += access.pages;
        self.entries.push((access.buffer, access.pages, turn));
        Some(evicted)
    }
}

/// Mean nanoseconds of registration or copies that a transfer waits for, at one side.
pub fn mean(costs: &FrrwpCosts, strategy: Strategy, sequence: Sequence, buffers: usize) -> f64 {
    let eviction = match strategy {
        Strategy::Cache(eviction) => eviction,
        _ => Eviction::LeastRecentlyUsed,
    };
    let mut cache = PinDownCache::new(costs.table(), eviction);
    let mut sum = 0;
    for (turn, access) in sequence.accesses(buffers, 2 * TRANSFERS).into_iter().enumerate() {
        let cost = if strategy.has_cache() && cache.admit(access, turn as u64).is_none() {
            0
        } else {
            one(costs, strategy, access)
        };
        if turn >= TRANSFERS {
            sum += cost;
        }
    }
    sum as f64 / TRANSFERS as f64
}

/// Without a cache, or where that has not the buffer.
fn one(costs: &FrrwpCosts, strategy: Strategy, access: Access) -> u64 {
    let pages = access.pages;
    let fast = costs.fast(pages);
    match strategy {
        Strategy::OnDemand => costs.ordinary(pages * PAGE),
        Strategy::Fast => fast,
        Strategy::Pieces => pages.min(costs.pieces()) * costs.operation() + pages * costs.page(),
        Strategy::Group => costs.fast(pages + pages.min(costs.pieces()) - 1),
        Strategy::Pool => costs.copied(pages * PAGE),
        Strategy::Cache(_) => fast,
        Strategy::Batched => {
            let deregistration = costs.operation() * costs.deregistration_percent() / 100;
            fast - deregistration + deregistration / costs.batch()
        }
        Strategy::Firehose => fast + costs.round_trip(),
    }
}

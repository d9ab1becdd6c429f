//! The registered allocator (REUSE-2, REUSE-3): what of its requests has to register a new slab. It frees nothing, as in section VI.C.

use crate::unit_costs::ReuseCosts;

/// Slabs that were registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slabs {
    /// Bytes of the newest slab that nobody has.
    left: u64,
    /// Bytes of each slab, in the order of their registration.
    pub registered: Vec<u64>,
}

impl Slabs {
    /// Takes so many bytes; gives the length of the slab that had to be registered for them, if one had to. Assumption: what is left of a slab and
    /// does not suffice is lost, and nothing of a slab is the allocator's own.
    pub fn acquire(&mut self, costs: &ReuseCosts, bytes: u64) -> Option<u64> {
        let unit = costs.unit();
        let taken = if bytes > unit { bytes.next_multiple_of(unit) } else { bytes };
        if taken <= self.left {
            self.left -= taken;
            return None;
        }
        let slab = taken.max(costs.slab());
        self.left = slab - taken;
        self.registered.push(slab);
        Some(slab)
    }
}

/// What so many requests of one size took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trials {
    /// Requests that were satisfied from registered memory.
    pub fast: u64,
    /// Those for which a slab was registered.
    pub slow: u64,
    /// Nanoseconds of all.
    pub total: u64,
}

impl Trials {
    /// Mean microseconds.
    pub fn mean(&self) -> f64 {
        self.total as f64 / (self.fast + self.slow) as f64 / 1_000.0
    }
}

/// Acquires new registered memory, as section VI.C does.
pub fn acquire_new(costs: &ReuseCosts, bytes: u64, trials: u64) -> Trials {
    let (mut slabs, mut total) = (Slabs::default(), 0);
    for _ in 0..trials {
        total += costs.allocate() + slabs.acquire(costs, bytes).map_or(0, |slab| costs.register(slab));
    }
    let slow = slabs.registered.len() as u64;
    Trials { fast: trials - slow, slow, total }
}

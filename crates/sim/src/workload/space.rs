//! Which parts of a stretch of memory are in use.

use std::collections::BTreeMap;

/// Bytes on either side of a range that stay free.
const GUARD: u64 = 8;

/// A range of memory that one request uses alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRange {
    pub zone: usize,
    pub address: u64,
    pub length: u64,
    taken: (u64, u64),
}

impl RequestRange {
    /// A range that no allocator manages.
    pub fn fixed(zone: usize, address: u64, length: u64) -> Self {
        RequestRange { zone, address, length, taken: (address, 0) }
    }
}

impl RequestRange {
    /// The guards before and behind it, as first byte and length.
    pub fn guards(&self) -> [(u64, u64); 2] {
        let (start, size) = self.taken;
        if size == 0 {
            return [(self.address, 0); 2];
        }
        let end = self.address + self.length;
        [(start, self.address - start), (end, start + size - end)]
    }
}

/// Free stretches by address.
pub struct FreeSpace {
    free: BTreeMap<u64, u64>,
    length: u64,
    used: u64,
}

impl FreeSpace {
    /// All of a stretch is free.
    pub fn new(address: u64, length: u64) -> Self {
        FreeSpace { free: BTreeMap::from([(address, length)]), length, used: 0 }
    }

    /// Whether nothing is in use.
    pub fn is_unused(&self) -> bool {
        self.used == 0
    }

    /// Whether more than half is in use.
    pub fn is_crowded(&self) -> bool {
        self.used > self.length / 2
    }

    /// Takes a range, with guards; without `aligned` to 8 bytes, at any address. `None`: there is no room.
    pub fn take(
        &mut self,
        random: &mut fastrand::Rng,
        zone: usize,
        length: u64,
        aligned: bool,
    ) -> Option<RequestRange> {
        let need = length + 2 * GUARD + 8;
        let lowest = *self.free.first_key_value()?.0;
        let highest = self.free.last_key_value().map(|(start, size)| start + size)?;
        let from = random.u64(lowest..=highest);
        let later = self.free.range(from..).find(|(_, size)| **size >= need);
        let (start, size) = later.or_else(|| self.free.range(..from).find(|(_, size)| **size >= need))?;
        let (start, size) = (*start, *size);
        self.free.remove(&start);
        if size > need {
            self.free.insert(start + need, size - need);
        }
        self.used += need;
        let address = match aligned {
            true => (start + GUARD).next_multiple_of(8),
            false => start + GUARD + random.u64(0..8),
        };
        Some(RequestRange { zone, address, length, taken: (start, need) })
    }

    /// Gives a range back.
    pub fn give_back(&mut self, range: &RequestRange) {
        let (mut start, mut size) = range.taken;
        if size == 0 {
            return;
        }
        self.used -= size;
        if let Some((before, length)) =
            self.free.range(..start).next_back().map(|(at, length)| (*at, *length))
        {
            if before + length == start {
                self.free.remove(&before);
                (start, size) = (before, size + length);
            }
        }
        if let Some(after) = self.free.remove(&(start + size)) {
            size += after;
        }
        self.free.insert(start, size);
    }
}

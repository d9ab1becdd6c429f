//! One node: its helper thread (PAPERS JBMT-3), the pages that it may pin, and its fault threads (JBMT-5).

use crate::unit_costs::JbmtLimits;
use std::collections::HashMap;

/// A buffer's pages that are absent, by number; all others are in memory.
pub(super) type Absent = Vec<bool>;

/// One side.
#[derive(Debug)]
pub(super) struct Helper {
    /// When the helper thread is free.
    free_at: u64,
    /// When each fault thread is free.
    fault_threads: Vec<u64>,
    /// Whose turn it is.
    turn: usize,
    /// Pages that may be pinned still.
    pub pinnable: u64,
    /// The absent pages of each get's buffer.
    pub absent: Vec<Absent>,
    /// Pages that a fault thread brings in: when each is there.
    coming: HashMap<(usize, u64), u64>,
    /// Pages brought in.
    pub page_ins: u64,
    /// The most pages that were pinned at once.
    pub pinned_most: u64,
    limit: u64,
}

impl Helper {
    pub fn new(fault_threads: usize, pinnable: u64, absent: Vec<Absent>) -> Self {
        Helper {
            free_at: 0,
            fault_threads: vec![0; fault_threads],
            turn: 0,
            pinnable,
            absent,
            coming: HashMap::new(),
            page_ins: 0,
            pinned_most: 0,
            limit: pinnable,
        }
    }

    /// Has the helper work for so long, behind what it does already; gives when that is over.
    pub fn work(&mut self, now: u64, length: u64) -> u64 {
        self.free_at = self.free_at.max(now) + length;
        self.free_at
    }

    /// Pins the pages of a section from `first` on, `wanted` at most: as many as are in memory without a gap and may be pinned. 0: the
    /// head is absent, and a fault thread has been asked for a portion of what of the section is, or nothing may be pinned now.
    pub fn pin(&mut self, now: u64, get: usize, first: u64, wanted: u64, limits: &JbmtLimits) -> u64 {
        self.arrived(now);
        let present = |&page: &u64| !self.absent[get][page as usize];
        let resident = (first..first + wanted).take_while(present).count() as u64;
        let pinned = resident.min(self.pinnable);
        if resident == 0 {
            self.bring_in(now, get, first..first + wanted.min(limits.fault_portion()), limits.swap_in());
        }
        self.pinnable -= pinned;
        self.pinned_most = self.pinned_most.max(self.limit - self.pinnable);
        pinned
    }

    /// One request to one fault thread, of a small portion of the buffer: it touches the absent pages one after the other.
    fn bring_in(&mut self, now: u64, get: usize, pages: std::ops::Range<u64>, swap_in: u64) {
        let missing: Vec<u64> = pages
            .filter(|&page| self.absent[get][page as usize] && !self.coming.contains_key(&(get, page)))
            .collect();
        if missing.is_empty() {
            return;
        }
        let thread = &mut self.fault_threads[self.turn];
        for page in missing {
            *thread = (*thread).max(now) + swap_in;
            self.coming.insert((get, page), *thread);
            self.page_ins += 1;
        }
        self.turn = (self.turn + 1) % self.fault_threads.len();
    }

    fn arrived(&mut self, now: u64) {
        let absent = &mut self.absent;
        self.coming.retain(|&(get, page), &mut at| {
            if at <= now {
                absent[get][page as usize] = false;
            }
            at > now
        });
    }
}

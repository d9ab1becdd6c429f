//! Which threads are just bringing in a piece of which region, so that the end of a region can wait for them.
//!
//! As with all accesses a thread claims a slot before it looks whether the region is still what it was, and whoever ends the region
//! looks at the slots behind that ([`Hazards`]). But a page-in is no access: whoever waits for a page that does not come is
//! interrupted, or left behind.

use crate::limits::{INTERRUPT_AFTER, INTERRUPT_AGAIN, PAGE_IN_BOUND};
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{Claim, Hazards, ProcessWords, RegionLife, RegionView};
use pagewire_memory::{Uncancelled, guard};
use pagewire_paging::limits::THREADS;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// The pieces of this process's own regions that are under way.
pub struct Pieces {
    /// A slot for each thread that there may be.
    slots: Hazards<ProcessWords>,
    /// Of these, how many are taken, or will be at once.
    in_flight: AtomicUsize,
}

/// A piece that is under way until this is dropped.
pub struct Piece<'a> {
    pieces: &'a Pieces,
    claim: Option<Claim>,
}

impl Pieces {
    /// None is under way.
    pub fn new() -> Self {
        Pieces { slots: Hazards::new(ProcessWords::new(THREADS), 0, THREADS), in_flight: AtomicUsize::new(0) }
    }

    /// A piece of a region of this process, by the thread that calls, which has this number. `None`: the region is not what it was.
    pub fn begin<W: SharedWords>(
        &self,
        regions: &RegionView<W>,
        region: &RegionLife,
        thread: u32,
    ) -> Option<Piece<'_>> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        // There are no more threads than slots.
        let piece = Piece { pieces: self, claim: self.slots.claim(region.index(), thread) };
        (piece.claim.is_some() && regions.lives(region)).then_some(piece)
    }

    /// Has the threads that wait for a page of a region look once more at what is there: something else may be mapped by now, of which
    /// nobody tells them.
    pub fn look_again(&self, region: u32) {
        self.slots.who_holds(region).for_each(guard::end_touch);
    }

    /// Waits until no piece of a region is under way, which is not what it was any more: whoever called has fenced behind that. Not for
    /// ever: of a thread that sleeps in the kernel nobody knows when it comes back.
    #[inline]
    pub fn end(&self, region: u32) {
        if self.in_flight.load(Ordering::Acquire) > 0 {
            self.wait(region);
        }
    }

    #[cold]
    fn wait(&self, region: u32) {
        let _uncancelled = Uncancelled::begin();
        let began = Instant::now();
        loop {
            let threads: Vec<u32> = self.slots.who_holds(region).collect();
            let waited = began.elapsed();
            if threads.is_empty() {
                return;
            } else if waited > PAGE_IN_BOUND {
                log::debug!("{} threads still wait for a page of a region that has ended", threads.len());
                return;
            } else if waited < INTERRUPT_AFTER {
                thread::yield_now();
            } else {
                // Again and again: one that has just looked at the region has not come to its page yet.
                threads.into_iter().for_each(guard::end_touch);
                thread::sleep(INTERRUPT_AGAIN);
            }
        }
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.pieces.slots.release(claim);
        }
        self.pieces.in_flight.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_iommu::layout::{REGION_WORDS, REGIONS};
    use pagewire_iommu::{AccessScope, RegionTable, RegisteredRegion, Rights};
    use std::sync::atomic::AtomicBool;

    fn register(table: &RegionTable<ProcessWords>) -> (u32, RegionLife) {
        let rights = Rights::LOCAL_WRITE;
        let region = RegisteredRegion { domain: 1, address: 0, length: 1 << 20, iova: 0, rights };
        let key = table.register(&region, 0).unwrap();
        (key, table.view().window(key, rights, AccessScope::of_domain(1)).unwrap().life())
    }

    #[test]
    fn the_end_of_a_region_waits_for_its_pieces_and_for_no_others() {
        let table = RegionTable::new(ProcessWords::new(REGIONS + 64 * REGION_WORDS), 7);
        let [(key, region), (_, other)] = [(); 2].map(|()| register(&table));
        let pieces = Pieces::new();
        pieces.end(region.index());
        let of_other = pieces.begin(table.view(), &other, 1).unwrap();
        let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let piece = pieces.begin(table.view(), &region, 2).unwrap();
                begun.store(true, Ordering::SeqCst);
                thread::sleep(PAGE_IN_BOUND / 10);
                over.store(true, Ordering::SeqCst);
                drop(piece);
            });
            while !begun.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            table.revoke(key).unwrap();
            let began = Instant::now();
            pieces.end(region.index());
            assert!(over.load(Ordering::SeqCst) || began.elapsed() >= PAGE_IN_BOUND);
        });
        assert!(pieces.begin(table.view(), &region, 2).is_none(), "it has ended");
        let began = Instant::now();
        pieces.end(other.index());
        assert!(began.elapsed() >= PAGE_IN_BOUND, "it is given up");
        drop(of_other);
        assert_eq!(pieces.in_flight.load(Ordering::SeqCst), 0);
    }
}

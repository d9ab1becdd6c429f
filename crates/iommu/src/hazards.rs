//! Hazards: who is touching which region right now, so that revocation can wait for them.
//!
//! An accessor claims a slot with the region's and the queue pair's number *before* it checks the region's
//! tag for the last time; a revoker changes the tag *before* it looks at the slots. With a full fence
//! between the two steps on each side, either the accessor sees the change or the revoker sees the claim
//! (Dekker's pattern). A process that dies keeps its claims for ever: its slots are then no longer looked at.

use crate::words::{SharedWords, Site};

/// Claiming a slot.
pub const CLAIM: Site = Site("hazard.claim");
/// Giving it back.
pub const RELEASE: Site = Site("hazard.release");

/// A row of slots in some words.
#[derive(Clone)]
pub struct Hazards<W> {
    words: W,
    first: usize,
    slots: usize,
}

/// A slot that is held.
#[must_use = "a claim that is not released makes every revocation wait"]
#[derive(Debug)]
pub struct Claim(usize);

/// What a revoker waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    Region(u32),
    QueuePair(u32),
}

impl<W: SharedWords> Hazards<W> {
    /// The slots at words `first .. first + slots`.
    pub fn new(words: W, first: usize, slots: usize) -> Self {
        Hazards { words, first, slots }
    }

    /// Announces an access to a region through a queue pair (indices in the owner's tables), or by whoever else has a number among
    /// those who share these slots. `None`: all slots are taken; try again soon.
    #[inline]
    pub fn claim(&self, region: u32, queue_pair: u32) -> Option<Claim> {
        let token = (u64::from(region) + 1) | ((u64::from(queue_pair) + 1) << 32);
        for slot in 0..self.slots {
            let index = self.first + slot;
            if self.words.load(index) == 0 && self.words.compare_exchange(CLAIM, index, 0, token).is_ok() {
                self.words.fence_behind_exchange();
                return Some(Claim(index));
            }
        }
        None
    }

    /// Ends the access.
    #[inline]
    pub fn release(&self, claim: Claim) {
        self.words.store(RELEASE, claim.0, 0);
    }

    /// Whether someone may still be touching what was revoked. The caller has fenced after revoking.
    #[inline]
    pub fn holds(&self, revoked: Revoked) -> bool {
        // Decided once, not for each slot.
        let mut tokens = (0..self.slots).map(|slot| self.words.load(self.first + slot));
        match revoked {
            Revoked::Region(region) => tokens.any(|token| token as u32 == region + 1),
            Revoked::QueuePair(queue_pair) => tokens.any(|token| (token >> 32) as u32 == queue_pair + 1),
        }
    }

    /// The numbers of the queue pairs, or of whoever claims these slots, by which a region may still be touched.
    pub fn who_holds(&self, region: u32) -> impl Iterator<Item = u32> {
        let tokens = (0..self.slots).map(|slot| self.words.load(self.first + slot));
        tokens.filter(move |token| *token as u32 == region + 1).map(|token| (token >> 32) as u32 - 1)
    }
}

//! How the buffers of transfers are registered (FRRWP-4): the ways that the paper names and does not measure.
//!
//! mlock(2) stands for the registration of a network card. What the paper leaves open is assumed here, and the manual page says so: the sequence of
//! the buffers, their lengths, what a cache holds, the size of a batch and of a group.

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use pagewire_papers::frrwp::{Access, Eviction, PinDownCache, Sequence};
use region::LockGuard;
use std::collections::HashMap;

const PAGE: usize = 4096;
/// Buffers that the transfers use. Four of five transfers use one of the first three.
pub(super) const BUFFERS: usize = 16;
/// Deregistrations that are done together.
const BATCH: usize = 16;
/// Pieces of a buffer, with a page between each two.
const PIECES: usize = 4;

/// What is done to have the memory of a transfer registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// Each transfer registers its buffer, and deregisters it
    OnDemand,
    /// As on-demand, with a call for each of four pieces
    Pieces,
    /// As on-demand, with one call for four pieces and what is between them
    Group,
    /// A pin-down cache: what was used longest ago is deregistered when there is no space
    Cache,
    /// As cache, with sixteen deregistrations at a time
    Batched,
    /// As cache, which gives up the most pages times age (MRRC)
    Mrrc,
    /// Copies to and from a buffer that was registered before
    Pool,
    /// The target's memory stays registered for the initiator, which needs no message while it does
    Firehose,
}

impl Strategy {
    /// What it is called in the figures.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Strategy::OnDemand => "on demand",
            Strategy::Pieces => "four pieces, one by one",
            Strategy::Group => "four pieces, group registration",
            Strategy::Cache => "pin-down cache (LRU)",
            Strategy::Batched => "pin-down cache, batched deregistration",
            Strategy::Mrrc => "MRRC",
            Strategy::Pool => "pre-registered pool",
            Strategy::Firehose => "firehose",
        }
    }

    const fn eviction(self) -> Eviction {
        match self {
            Strategy::Mrrc => Eviction::SizeAndRecency,
            _ => Eviction::LeastRecentlyUsed,
        }
    }

    const fn has_cache(self) -> bool {
        matches!(self, Strategy::Cache | Strategy::Batched | Strategy::Mrrc | Strategy::Firehose)
    }
}

/// The buffers of `transfers` transfers, the same at both sides.
pub(super) fn sequence(transfers: usize, most: u64) -> Vec<Access> {
    let access =
        |access: Access| Access { pages: length(access.buffer, most).div_ceil(PAGE as u64), ..access };
    Sequence::Skewed.accesses(BUFFERS, transfers).into_iter().map(access).collect()
}

/// Bytes of a buffer: the most, a half, a quarter or an eighth of that.
pub(super) const fn length(buffer: usize, most: u64) -> u64 {
    let length = most >> (buffer % 4);
    if length < 8 { 8 } else { length }
}

/// The registered buffers of one side. It ends before their memory does.
pub(super) struct Registrar {
    strategy: Strategy,
    cache: PinDownCache,
    turn: u64,
    registered: HashMap<usize, Vec<LockGuard>>,
    /// What is deregistered with the next batch.
    given_up: Vec<LockGuard>,
    /// Registered before the first transfer. The lock ends before its memory.
    pool: Option<(LockGuard, Vec<u8>)>,
}

impl Registrar {
    /// A cache holds half of the pages of all buffers.
    pub(super) fn new(strategy: Strategy, most: u64) -> Result<Self> {
        let pages = |buffer| length(buffer, most).div_ceil(PAGE as u64);
        let (all, largest) = ((0..BUFFERS).map(pages).sum::<u64>(), pages(0));
        let cache = PinDownCache::new((all / 2).max(largest), strategy.eviction());
        let pool = match strategy {
            Strategy::Pool => {
                let memory = vec![1; most as usize];
                let guard = lock(&memory, 0, memory.len())?;
                Some((guard, memory))
            }
            _ => None,
        };
        Ok(Registrar { strategy, cache, turn: 0, registered: HashMap::new(), given_up: Vec::new(), pool })
    }

    /// Memory of a buffer, with space behind it for the gaps between its pieces.
    pub(super) fn memory(buffer: usize, most: u64) -> Vec<u8> {
        let length = length(buffer, most) as usize;
        let mut memory = Vec::with_capacity(length + (PIECES - 1) * PAGE);
        memory.resize(length, 1);
        memory
    }

    /// Whether the other side's memory of a transfer is registered for this one (firehose).
    pub(super) fn needs_no_message(&self, access: Access) -> bool {
        self.strategy == Strategy::Firehose && self.cache.has(access.buffer)
    }

    /// Registers the memory of a transfer where it is not registered.
    ///
    /// # Errors
    /// The user may lock no more memory.
    pub(super) fn register(&mut self, access: Access, memory: &Vec<u8>) -> Result<()> {
        self.turn += 1;
        if self.strategy.has_cache() {
            let Some(evicted) = self.cache.admit(access, self.turn) else { return Ok(()) };
            for buffer in evicted {
                self.deregister(buffer);
            }
        }
        let length = memory.len();
        let guards = match self.strategy {
            Strategy::Pool => Vec::new(),
            Strategy::Group => vec![lock(memory, 0, memory.capacity())?],
            Strategy::Pieces => {
                let piece = length.div_ceil(PIECES).max(1);
                let one = |start: usize| lock(memory, start, piece.min(length - start));
                (0..length).step_by(piece).map(one).collect::<Result<_>>()?
            }
            _ => vec![lock(memory, 0, length)?],
        };
        self.registered.insert(access.buffer, guards);
        Ok(())
    }

    /// What a cache gives up.
    fn deregister(&mut self, buffer: usize) {
        let guards = self.registered.remove(&buffer).unwrap_or_default();
        if self.strategy == Strategy::Batched {
            self.given_up.extend(guards);
            if self.given_up.len() >= BATCH {
                self.given_up.clear();
            }
        }
    }

    /// The transfer has ended.
    pub(super) fn finish(&mut self, access: Access) {
        if !self.strategy.has_cache() {
            self.registered.remove(&access.buffer);
        }
    }

    /// The pool's buffer with a copy of the data. `None`: there is no pool.
    pub(super) fn copy_to_pool(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let (_, memory) = self.pool.as_mut()?;
        memory.truncate(0);
        // Never more than it was made with, so it stays where it is.
        memory.extend_from_slice(data);
        Some(std::mem::take(memory))
    }

    /// Gives the pool its buffer back.
    pub(super) fn return_to_pool(&mut self, buffer: Vec<u8>) {
        if let Some((_, memory)) = &mut self.pool {
            *memory = buffer;
        }
    }
}

/// mlock(2) of memory that was allocated.
fn lock(memory: &Vec<u8>, start: usize, length: usize) -> Result<LockGuard> {
    ensure!(start + length <= memory.capacity(), "the buffer ends before what is to be locked");
    region::lock(memory.as_ptr().wrapping_add(start), length.max(1))
        .context("mlock(2) refuses: a higher limit of locked memory (ulimit -l) lets it measure this")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 32 << 10;

    fn access(buffer: usize) -> Access {
        Access { buffer, pages: length(buffer, MOST).div_ceil(PAGE as u64) }
    }

    #[test]
    fn a_cache_keeps_what_was_used_and_others_do_not() {
        for strategy in Strategy::value_variants().iter().copied() {
            let mut registrar = Registrar::new(strategy, MOST).expect("a small lock");
            let memory = Registrar::memory(0, MOST);
            assert!(!registrar.needs_no_message(access(0)));
            registrar.register(access(0), &memory).expect("a small lock");
            registrar.finish(access(0));
            assert_eq!(registrar.registered.contains_key(&0), strategy.has_cache(), "{strategy:?}");
            assert_eq!(registrar.needs_no_message(access(0)), strategy == Strategy::Firehose);
        }
    }

    #[test]
    fn a_full_cache_gives_up_and_a_batch_waits_for_sixteen() {
        for strategy in [Strategy::Cache, Strategy::Batched] {
            let mut registrar = Registrar::new(strategy, MOST).expect("a small lock");
            let memories: Vec<_> = (0..BUFFERS).map(|buffer| Registrar::memory(buffer, MOST)).collect();
            for (buffer, memory) in memories.iter().enumerate() {
                registrar.register(access(buffer), memory).expect("a small lock");
            }
            let kept = registrar.registered.len();
            assert!(kept < BUFFERS && kept > 0, "{strategy:?}: {kept}");
            let waiting = if strategy == Strategy::Batched { BUFFERS - kept } else { 0 };
            assert_eq!(registrar.given_up.len(), waiting);
        }
    }

    #[test]
    fn the_pool_stays_where_it_was_locked() {
        let mut registrar = Registrar::new(Strategy::Pool, MOST).expect("a small lock");
        let first = registrar.copy_to_pool(&[7; 100]).expect("a pool");
        let address = first.as_ptr();
        assert_eq!(first, [7; 100]);
        registrar.return_to_pool(first);
        let second = registrar.copy_to_pool(&[8; MOST as usize]).expect("a pool");
        assert_eq!(second.as_ptr(), address);
        assert!(Registrar::new(Strategy::Cache, MOST).expect("a lock").copy_to_pool(&[1]).is_none());
    }
}

//! Conditional writes of verbs programs, on queue pairs of their own, and counts of accesses to their regions: `pagewire_verbs.h`, which is written by hand as it needs infiniband/verbs.h.

use crate::boundary::{Result, call, place};
use crate::conditional::{hand_over_release, peer_of, pw_peer};
use crate::error::{Refusal, pw_error};
use crate::node::{node_of, pw_node};
use crate::operation::pw_operation;
use pagewire::Failure;
use pagewire::raw::{Deferred, Posted};
use pagewire_verbs::abi::{ibv_mr, ibv_qp, ibv_send_wr};
use pagewire_verbs::deferred::{self, DeferredEnd, DeferredWrite};
use pagewire_verbs::{WatchedAccesses, is_region_of_parent, watch, watch_region};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

/// Refuses a region of the parent of this forked process.
///
/// # Safety
/// NULL, or a region that is not deregistered meanwhile.
pub unsafe fn check_region(mr: *const ibv_mr) -> Result<()> {
    // SAFETY: `mr` is NULL or a region that nobody deregisters during the call (pagewire_verbs.h), as `is_region_of_parent` asks.
    if unsafe { is_region_of_parent(mr) } { Err(Refusal::forked("memory region")) } else { Ok(()) }
}

/// A held WRITE of a program's queue pair.
struct OnQueuePair(DeferredWrite);

impl Deferred for OnQueuePair {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn has_ended(&self) -> bool {
        self.0.has_queue_pair_ended()
    }

    fn post(&self, address: u64, key: u32) -> Posted {
        match self.0.post(address, key) {
            deferred::PostResult::Done => Posted::Done,
            deferred::PostResult::Full => Posted::Full,
            deferred::PostResult::QueuePairEnded => Posted::Ended,
        }
    }

    fn end(&self, failure: &Failure) {
        self.0.end(match failure {
            Failure::Cancelled { .. } => DeferredEnd::Cancelled,
            Failure::TimedOut { .. } => DeferredEnd::TimedOut,
            Failure::Declined { .. } => DeferredEnd::Declined,
            Failure::Refused { .. } => DeferredEnd::TooShort,
            Failure::PeerLost { .. } | Failure::Forked { .. } | Failure::Unexpected { .. } => {
                DeferredEnd::Lost
            }
        });
    }
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_post_held_write(
    node: *mut pw_node,
    peer: *const pw_peer,
    tag: u64,
    qp: *mut ibv_qp,
    wr: *const ibv_send_wr,
    nanoseconds: u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and a peer (pagewire_verbs.h).
        let (node, peer) = unsafe { (node_of(node)?, peer_of(peer)?) };
        // SAFETY: NULL, or a queue pair (pagewire_verbs.h).
        if unsafe { deferred::is_queue_pair_of_parent(qp) } {
            return Err(Refusal::forked("queue pair"));
        }
        // SAFETY: a queue pair and a request, whose bytes are the write's until its completion (pagewire_verbs.h).
        let write = unsafe { DeferredWrite::new(qp, wr) }.map_err(Refusal::argument)?;
        let patience = (nanoseconds != u64::MAX).then(|| Duration::from_nanos(nanoseconds));
        node.hold_deferred(peer, tag, Arc::new(OnQueuePair(write)), patience)?;
        Ok(())
    })
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_cancel_held_write(
    node: *mut pw_node,
    peer: *const pw_peer,
    tag: u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and a peer (pagewire_verbs.h).
        let (node, peer) = unsafe { (node_of(node)?, peer_of(peer)?) };
        node.cancel_deferred(peer, tag);
        Ok(())
    })
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_release_held_write(
    node: *mut pw_node,
    peer: *const pw_peer,
    tag: u64,
    address: u64,
    rkey: u32,
    length: u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and a peer (pagewire_verbs.h).
        let (node, peer) = unsafe { (node_of(node)?, peer_of(peer)?) };
        let release = || node.release_memory(peer, tag, (address, length), rkey);
        hand_over_release(std::ptr::null_mut(), operation, release)
    })
}

const PW_WATCH_WRITES: u32 = 1;
const PW_WATCH_READS: u32 = 2;

/// pagewire_verbs.h
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_page_count {
    pub page: *mut c_void,
    pub writes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub atomics: u64,
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_watch_region(mr: *mut ibv_mr, accesses: u32) -> pw_error {
    call(|| {
        if accesses & !(PW_WATCH_WRITES | PW_WATCH_READS) != 0 {
            let sentence = format!(
                "'accesses' is {accesses}: it must be PW_WATCH_WRITES, PW_WATCH_READS, both by OR, or 0"
            );
            return Err(Refusal::argument(sentence));
        }
        let watched = WatchedAccesses {
            writes: accesses & PW_WATCH_WRITES != 0,
            reads: accesses & PW_WATCH_READS != 0,
        };
        // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
        unsafe { check_region(mr) }?;
        // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
        let outcome = unsafe { watch_region(mr, watched) };
        outcome
            .map_err(|why| Refusal::new(pw_error::PW_ENGINE, format!("the region cannot be watched: {why}")))
    })
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_page_counts(
    address: *const c_void,
    length: usize,
    counts: *mut pw_page_count,
    most: usize,
    found: *mut usize,
) -> pw_error {
    call(|| {
        let found = place(found, "found")?;
        let to = if most == 0 { None } else { Some(place(counts, "counts")?) };
        let start = address as u64;
        let pages = watch::page_counts(start..start.saturating_add(length as u64));
        // SAFETY: the caller's place for it (pagewire_verbs.h), aligned and not NULL.
        unsafe { found.write(pages.len()) };
        for (index, page) in pages.iter().take(most).enumerate() {
            let counted = pw_page_count {
                page: std::ptr::with_exposed_provenance_mut(page.address as usize),
                writes: page.counts.writes,
                written_bytes: page.counts.written_bytes,
                reads: page.counts.reads,
                read_bytes: page.counts.read_bytes,
                atomics: page.counts.atomics,
            };
            // SAFETY: there is space for `most` (pagewire_verbs.h), and `index` is less; aligned as `place` has seen.
            to.iter().for_each(|to| unsafe { to.add(index).write(counted) });
        }
        Ok(())
    })
}

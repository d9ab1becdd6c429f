//! Conditional writes of verbs programs, on queue pairs of their own: `pagewire_verbs.h`, which is written by hand as it needs infiniband/verbs.h.

use crate::boundary::call;
use crate::conditional::{hand_over_release, peer_of, pw_peer};
use crate::error::{Refusal, pw_error};
use crate::node::{node_of, pw_node};
use crate::operation::pw_operation;
use pagewire::Failure;
use pagewire::raw::{Deferred, Posted};
use pagewire_verbs::abi::{ibv_qp, ibv_send_wr};
use pagewire_verbs::deferred::{self, DeferredEnd, DeferredWrite};
use std::sync::Arc;
use std::time::Duration;

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
            deferred::Posted::Done => Posted::Done,
            deferred::Posted::Full => Posted::Full,
            deferred::Posted::QueuePairEnded => Posted::Ended,
        }
    }

    fn end(&self, failure: &Failure) {
        self.0.end(match failure {
            Failure::Cancelled { .. } => DeferredEnd::Cancelled,
            Failure::TimedOut { .. } => DeferredEnd::TimedOut,
            Failure::Declined { .. } => DeferredEnd::Declined,
            Failure::Refused { .. } => DeferredEnd::TooShort,
            Failure::PeerLost { .. } | Failure::Unexpected { .. } => DeferredEnd::Lost,
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

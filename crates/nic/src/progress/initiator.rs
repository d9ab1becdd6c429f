//! WRITEs, READs and atomics to a local peer, at their post or when their turn comes.

use crate::access::Accesses;
use crate::access::fault_state::Purpose;
use crate::completion::{self, Completion, Status};
use crate::path::Path;
use crate::path::initiator_copy::{AtomicTransfer, InitiatorBytes, InitiatorTransfer, LocalPath};
use crate::queue_pair::QueuePair;
use crate::queue_pair::qp_context::QpContext;
use crate::queue_pair::request::{Data, SendRequest};
use crate::types::outcome::{AccessError, AccessResult, Cause};
use crate::types::sge::ScatterGather;
use pagewire_fabric::Fabric;
use pagewire_memory::{CrossMemory, Segment};
use pagewire_transport::{RemoteAddress, WorkOperation};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// A queue pair whose thread executes requests in the memory of its local peer.
pub(crate) struct Initiator<'q, F: Fabric> {
    queue_pair: &'q QueuePair<F>,
    qpc: &'q mut QpContext<F>,
}

impl<'q, F: Fabric> Initiator<'q, F> {
    /// The caller holds the QP context.
    #[inline(always)] // Part of each transfer.
    pub(crate) fn new(queue_pair: &'q QueuePair<F>, qpc: &'q mut QpContext<F>) -> Self {
        Initiator { queue_pair, qpc }
    }

    /// Executes a request at its post, where nothing is before it. False: it must be kept and driven.
    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_, F>,
        transfer: &InitiatorTransfer,
        opcode: completion::CompletionOpcode,
    ) -> bool {
        if !self.qpc.is_quiet() || !self.take_slot() {
            return false;
        }
        let gathered: SmallVec<[u8; 64]>;
        let bytes = match request.data {
            Data::Segments(pieces) => InitiatorBytes::Segments(pieces),
            Data::Window(_) => InitiatorBytes::Segments(&[]),
            Data::Inline([bytes]) => InitiatorBytes::Inline(bytes),
            Data::Inline(pieces) => {
                gathered = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
                InitiatorBytes::Inline(&gathered)
            }
        };
        let done = self.transfer(transfer, bytes).is_ok();
        if done {
            self.queue_pair.counted.count(opcode, transfer.length, Status::Success);
        }
        let byte_length = if transfer.reads { transfer.length } else { 0 };
        self.end_post(done, request, opcode, byte_length);
        done
    }

    /// Executes an atomic at its post, where nothing is before it and the peer's memory is mapped. False: it must be kept and driven.
    #[cold]
    #[inline(never)] // What other posts are not to carry.
    pub(crate) fn post_atomic(
        &mut self,
        request: &SendRequest<'_, F>,
        atomic: &AtomicTransfer,
        opcode: completion::CompletionOpcode,
    ) -> bool {
        let Data::Segments([piece, ..]) = request.data else { return false };
        // No more than these bytes are written.
        let pieces = [ScatterGather { length: piece.length.min(AtomicTransfer::LENGTH), ..*piece }];
        if pieces[0].length < AtomicTransfer::LENGTH
            || !self.maps_memory()
            || !self.qpc.is_quiet()
            || !self.take_slot()
        {
            return false;
        }
        let done = self.atomic(atomic, &pieces).is_ok();
        self.end_post(done, request, opcode, AtomicTransfer::LENGTH);
        done
    }

    /// Executes an operation that is not posted, where nothing is before it. Gives what an atomic found.
    pub(crate) fn execute_unposted(&mut self, operation: &WorkOperation, here: ScatterGather) -> Option<u64> {
        if !self.finds_nothing_before() {
            return None;
        }
        if let Some(transfer) = InitiatorTransfer::new(operation, here.length) {
            let held = [Segment { address: here.address, length: here.length.into() }];
            return self.transfer(&transfer, InitiatorBytes::Held(&held)).is_ok().then_some(0);
        }
        let atomic = AtomicTransfer::new(operation).filter(|_| self.maps_memory())?;
        self.access(AtomicTransfer::LENGTH, |path| path.execute_atomic_now(&atomic)).ok()
    }

    /// Has the caller work on words of the peer's memory, where nothing is before that.
    pub(crate) fn work_on_words(
        &mut self,
        remote: RemoteAddress,
        length: u64,
        work: &mut dyn FnMut(&[AtomicU64]),
    ) -> bool {
        self.finds_nothing_before()
            && self.maps_memory()
            && self.access(0, |path| path.with_words(remote, length, work)).is_ok()
    }

    /// Executes a transfer in the memory of a local peer, if the path permits.
    #[inline(always)] // Part of each transfer.
    pub(crate) fn transfer(
        &mut self,
        transfer: &InitiatorTransfer,
        bytes: InitiatorBytes<'_>,
    ) -> AccessResult<()> {
        self.access(transfer.length, |path| path.execute(transfer, bytes))
    }

    /// Runs an atomic in memory of a local peer that is mapped here, if the path permits.
    #[cold]
    pub(crate) fn atomic(&mut self, atomic: &AtomicTransfer, pieces: &[ScatterGather]) -> AccessResult<()> {
        self.access(AtomicTransfer::LENGTH, |path| path.execute_atomic(atomic, pieces))
    }

    /// Whether memory of the local peer is mapped here, so that this side may run atomics there.
    pub(crate) fn maps_memory(&self) -> bool {
        let fabric = &self.queue_pair.services.fabric;
        matches!(self.qpc.path(), Path::Local(channel) if channel.maps_memory(fabric))
    }

    /// Accesses so many bytes by the local path, and counts that. What goes as packets ends its wait for pages.
    #[inline(always)] // Part of each transfer.
    fn access<T>(
        &mut self,
        length: u32,
        access: impl FnOnce(&mut LocalPath<'_, F, CrossMemory<'_, F::Memory>>) -> AccessResult<T>,
    ) -> AccessResult<T> {
        let Some(mut local_path) = self.qpc.local(self.queue_pair) else {
            return Err(AccessError::Refused(Cause::NoRemoteAccess));
        };
        let outcome = access(&mut local_path);
        let counters = &self.queue_pair.counters;
        match &outcome {
            Ok(_) => {
                counters.initiator_copies.add_alone(1);
                counters.initiator_copy_bytes.add_alone(u64::from(length));
            }
            Err(AccessError::Refused(_)) => self.end_wait(),
            Err(AccessError::Wait(_)) => {}
        }
        outcome
    }

    /// What waited to be executed directly goes as packets, or fails: its wait for pages is over.
    #[cold]
    fn end_wait(&mut self) {
        Accesses(&self.queue_pair.services).end_wait_if_any(self.qpc.begin_access(Purpose::Request));
    }

    fn finds_nothing_before(&self) -> bool {
        self.qpc.is_quiet() && self.queue_pair.send.lock().is_empty()
    }

    /// Takes a slot for a request that is executed and not kept. False: one is kept before it, or none is free.
    #[inline(always)] // Part of each transfer.
    fn take_slot(&self) -> bool {
        let send = self.queue_pair.send.lock();
        let takes = send.is_empty() && self.queue_pair.has_send_slot(&send);
        if takes {
            self.queue_pair.notes.executing.store(true, Ordering::Relaxed);
        }
        takes
    }

    /// Completes a request that was executed at its post (`done`), and gives back the slot that was [taken](Self::take_slot): the completion
    /// holds it now, or the request as it is kept.
    #[inline(always)] // Part of each transfer.
    fn end_post(
        &mut self,
        done: bool,
        request: &SendRequest<'_, F>,
        opcode: completion::CompletionOpcode,
        byte_length: u32,
    ) {
        let queue_pair = self.queue_pair;
        if done && (request.signaled || queue_pair.properties.signal_all) {
            let completion =
                Completion::of_send(queue_pair.properties.number, request.wr_id, opcode, Status::Success);
            queue_pair.announce(&queue_pair.send_cq, Completion { byte_length, ..completion });
        }
        queue_pair.notes.executing.store(false, Ordering::Release);
        if done {
            queue_pair.end_if_overrun(self.qpc);
        }
    }
}

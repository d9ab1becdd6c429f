//! WRITEs, READs and atomics to a local peer, at their post or when their turn comes.

use crate::access::fault_state::Purpose;
use crate::completion::{self, Completion, Status};
use crate::path::Path;
use crate::path::initiator_copy::{AtomicTransfer, Bytes, Transfer};
use crate::queue_pair::QueuePair;
use crate::queue_pair::qp_context::QpContext;
use crate::queue_pair::request::{Data, SendRequest};
use crate::types::outcome::{AccessError, Cause, Outcome};
use crate::types::sge::ScatterGather;
use pagewire_fabric::Fabric;
use pagewire_memory::Segment;
use pagewire_transport::{Operation, RemoteAddress};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

impl<F: Fabric> QueuePair<F> {
    /// Executes a request at its post, where nothing is before it. False: it must be kept and driven.
    pub(crate) fn post_directly(
        &self,
        qpc: &mut QpContext<F>,
        request: &SendRequest<'_, F>,
        transfer: &Transfer,
        opcode: completion::Opcode,
    ) -> bool {
        if !qpc.is_quiet() || !self.take_slot_to_execute() {
            return false;
        }
        let done = self.executes_directly(qpc, transfer, request.data);
        if done && (request.signaled || self.signals_all()) {
            let byte_length = if transfer.reads { transfer.length } else { 0 };
            let completion = self.send_completion(request.wr_id, opcode, Status::Success);
            self.announce(&self.send_cq, Completion { byte_length, ..completion });
        }
        // The completion holds it now, or the request as it is kept.
        self.executing.store(false, Ordering::Release);
        if done {
            self.end_if_overrun(qpc);
        }
        done
    }

    /// Has the caller work on words of the peer's memory, where nothing is before that.
    pub(crate) fn work_on_words(
        &self,
        qpc: &mut QpContext<F>,
        remote: RemoteAddress,
        length: u64,
        work: &mut dyn FnMut(&[AtomicU64]),
    ) -> bool {
        if !qpc.is_quiet() || !self.send.lock().is_empty() || !self.maps_memory(qpc) {
            return false;
        }
        let Some(mut local_path) = qpc.local(self) else { return false };
        let worked = local_path.with_words(remote, length, work).is_ok();
        if worked {
            self.counters.initiator_copies.add_alone(1);
        }
        worked
    }

    /// Executes an operation that is not posted, where nothing is before it.
    pub(crate) fn execute_unposted(
        &self,
        qpc: &mut QpContext<F>,
        operation: &Operation,
        here: ScatterGather,
    ) -> Option<u64> {
        if !qpc.is_quiet() || !self.send.lock().is_empty() {
            return None;
        }
        if let Some(transfer) = Transfer::new(operation, here.length) {
            let held = [Segment { address: here.address, length: here.length.into() }];
            return self.execute(qpc, &transfer, Bytes::Held(&held)).is_ok().then_some(0);
        }
        let atomic = AtomicTransfer::new(operation).filter(|_| self.maps_memory(qpc))?;
        let outcome = qpc.local(self)?.execute_atomic_now(&atomic);
        let noted = self.note_initiator_copy(
            qpc,
            outcome.as_ref().map(|_| ()).map_err(|why| *why),
            AtomicTransfer::LENGTH,
        );
        noted.and(outcome).ok()
    }

    /// Executes an atomic at its post, where nothing is before it and the peer's memory is mapped. False: it must be kept and driven.
    #[cold]
    #[inline(never)] // What other posts are not to carry.
    pub(crate) fn post_atomic(
        &self,
        qpc: &mut QpContext<F>,
        request: &SendRequest<'_, F>,
        atomic: &AtomicTransfer,
        opcode: completion::Opcode,
    ) -> bool {
        let Data::Segments([piece, ..]) = request.data else { return false };
        // No more than these bytes are written.
        let pieces = [ScatterGather { length: piece.length.min(AtomicTransfer::LENGTH), ..*piece }];
        if pieces[0].length < AtomicTransfer::LENGTH
            || !self.maps_memory(qpc)
            || !qpc.is_quiet()
            || !self.take_slot_to_execute()
        {
            return false;
        }
        let done = self.execute_atomic(qpc, atomic, &pieces).is_ok();
        if done && (request.signaled || self.signals_all()) {
            let completion = self.send_completion(request.wr_id, opcode, Status::Success);
            self.announce(&self.send_cq, Completion { byte_length: AtomicTransfer::LENGTH, ..completion });
        }
        self.executing.store(false, Ordering::Release);
        if done {
            self.end_if_overrun(qpc);
        }
        done
    }

    /// Runs an atomic in memory of a local peer that is mapped here, if the path permits.
    #[cold]
    pub(crate) fn execute_atomic(
        &self,
        qpc: &mut QpContext<F>,
        atomic: &AtomicTransfer,
        pieces: &[ScatterGather],
    ) -> Outcome<()> {
        let Some(mut local_path) = qpc.local(self) else {
            return Err(AccessError::Refused(Cause::NoRemoteAccess));
        };
        let outcome = local_path.execute_atomic(atomic, pieces);
        self.note_initiator_copy(qpc, outcome, AtomicTransfer::LENGTH)
    }

    /// Whether memory of the local peer is mapped here, so that this side may run atomics there.
    pub(crate) fn maps_memory(&self, qpc: &QpContext<F>) -> bool {
        matches!(qpc.path(), Path::Local(channel) if channel.maps_memory(&self.services.fabric))
    }

    /// Takes a slot for a request that is executed and not kept. False: one is kept before it, or none is free.
    #[inline(always)] // Part of each transfer.
    fn take_slot_to_execute(&self) -> bool {
        let send = self.send.lock();
        let takes = send.is_empty() && self.has_send_slot(&send);
        if takes {
            self.executing.store(true, Ordering::Relaxed);
        }
        takes
    }

    fn executes_directly(&self, qpc: &mut QpContext<F>, transfer: &Transfer, data: Data<'_>) -> bool {
        let gathered: SmallVec<[u8; 64]>;
        let bytes = match data {
            Data::Segments(pieces) => Bytes::Segments(pieces),
            Data::Inline([bytes]) => Bytes::Inline(bytes),
            Data::Inline(pieces) => {
                gathered = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
                Bytes::Inline(&gathered)
            }
        };
        self.execute(qpc, transfer, bytes).is_ok()
    }

    /// Executes a transfer in the memory of a local peer, if the path permits.
    pub(crate) fn execute(
        &self,
        qpc: &mut QpContext<F>,
        transfer: &Transfer,
        bytes: Bytes<'_>,
    ) -> Outcome<()> {
        let Some(mut local_path) = qpc.local(self) else {
            return Err(AccessError::Refused(Cause::NoRemoteAccess));
        };
        let outcome = local_path.execute(transfer, bytes);
        self.note_initiator_copy(qpc, outcome, transfer.length)
    }

    /// Counts what was executed directly; what goes as packets ends its wait.
    #[inline(always)] // Part of each transfer.
    fn note_initiator_copy(&self, qpc: &mut QpContext<F>, outcome: Outcome<()>, length: u32) -> Outcome<()> {
        match outcome {
            Ok(()) => {
                self.counters.initiator_copies.add_alone(1);
                self.counters.initiator_copy_bytes.add_alone(u64::from(length));
            }
            Err(AccessError::Refused(_)) => self.end_initiator_copy_wait(qpc),
            Err(AccessError::Wait(_)) => {}
        }
        outcome
    }

    /// What waited to be executed directly goes as packets, or fails: its wait for pages is over.
    #[cold]
    fn end_initiator_copy_wait(&self, qpc: &mut QpContext<F>) {
        self.services.end_wait_if_any(qpc.begin_access(Purpose::Request));
    }
}

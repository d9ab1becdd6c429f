//! Receives, completions and events of a queue pair.

use super::{QpTransportOps, received};
use crate::completion::{Completion, CompletionOpcode, Status};
use crate::queue_pair::qp_context::SelectedQueue;
use crate::services::completion_counter::CountedOperation;
use crate::services::event::AsyncEventKind;
use crate::types::sge::{slice_of, total_length};
use pagewire_fabric::Fabric;
use pagewire_iommu::AccessScope;
use pagewire_transport::{
    Arrival, ArrivalKind, Denial, ExecutedOperation, Outcome, Payload, QpEvent, RelayedMessage, WorkId,
    WorkQueues,
};

impl<F: Fabric> WorkQueues for QpTransportOps<'_, '_, F> {
    fn select_shared_queue(&mut self, number: u32) -> Outcome<()> {
        let queue = self.queue_pair.xrc.as_ref().and_then(|queues| queues.get(number));
        let Some(queue) = queue else { return self.select_relayed(number) };
        // What is held was checked against the protection domain of another one.
        self.session.release();
        self.qpc.shared_queue = SelectedQueue::Here(queue);
        Outcome::Done(())
    }

    fn begin_receive(&mut self) -> bool {
        if self.qpc.receive.is_none() {
            self.qpc.receive = match &self.qpc.shared_queue {
                SelectedQueue::None => self.queue_pair.receives.take(),
                // Whether there is a receive the other process says.
                SelectedQueue::Elsewhere(_) => return true,
                SelectedQueue::Here(queue) => queue.take_for_xrc().map(|(work, queue)| {
                    self.qpc.receive_queue = Some(queue);
                    work
                }),
            };
        }
        self.qpc.receive.is_some()
    }

    fn place_receive(&mut self, offset: u64, payload: Payload<'_>, last: bool) -> Outcome<u32> {
        let Some(receive) = &self.qpc.receive else { return self.stage_relayed(offset, payload) };
        let pieces = slice_of(&receive.segments, offset, payload.len());
        if total_length(&pieces) < payload.first(1).len() {
            return Outcome::Denied(Denial::LocalLength);
        }
        let domain = match &self.qpc.receive_queue {
            None => self.queue_pair.receives.domain_number(self.queue_pair.domain.number()),
            Some(queue) => queue.domain_number(),
        };
        self.place(&received(domain, &pieces), payload, last)
    }

    fn finish_receive(&mut self, arrival: Arrival) {
        let Some(receive) = self.qpc.receive.take() else { return };
        let opcode = match arrival.kind {
            ArrivalKind::Send => CompletionOpcode::Receive,
            ArrivalKind::WriteImmediate => CompletionOpcode::ReceiveWriteImmediate,
        };
        let queue_pair = self.queue_pair;
        self.complete_receive(Completion {
            byte_length: arrival.length,
            immediate: arrival.immediate,
            invalidated: arrival.invalidated,
            solicited: arrival.solicited,
            ..Completion::new(queue_pair.properties.number, receive.wr_id, opcode, Status::Success)
        });
    }

    fn relay_message(&mut self, message: &RelayedMessage) -> Outcome<bool> {
        if self.is_relayed() { self.relay_complete(message) } else { Outcome::Done(true) }
    }

    fn fail_receive(&mut self, status: Status) {
        let Some(receive) = self.qpc.receive.take() else { return };
        let queue_pair = self.queue_pair;
        self.complete_receive(Completion::new(
            queue_pair.properties.number,
            receive.wr_id,
            CompletionOpcode::Receive,
            status,
        ));
    }

    fn keep_short_receive(&mut self) -> bool {
        let keeps = self.queue_pair.receives.srq.is_none();
        if !keeps {
            self.fail_receive(Status::LocalLength);
        }
        keeps
    }

    fn complete(&mut self, work: WorkId, status: Status) {
        self.queue_pair.complete_send(work, status);
        if status != Status::Success {
            self.fail(None, true);
        }
    }

    fn end_request(&mut self, work: WorkId, status: Status, landed: u32) {
        self.queue_pair.end_send(work, status, landed);
    }

    fn count_executed(&mut self, operation: ExecutedOperation, messages: u32, bytes: u32) {
        let operation = match operation {
            ExecutedOperation::Read => CountedOperation::RemoteRead,
            // It is counted when the other process has executed it.
            ExecutedOperation::Write if self.is_relayed() => return,
            ExecutedOperation::Write => CountedOperation::RemoteWrite,
        };
        self.queue_pair.counted.count_executed(operation, messages, bytes);
    }

    fn event(&mut self, event: QpEvent) {
        match event {
            QpEvent::CommunicationEstablished => self.queue_pair.establish_communication(self.qpc),
            QpEvent::RequestError => self.fail(Some(AsyncEventKind::QueuePairRequestError), false),
            QpEvent::AccessError => self.fail(Some(AsyncEventKind::QueuePairAccessError), false),
        }
    }
}

impl<F: Fabric> QpTransportOps<'_, '_, F> {
    fn complete_receive(&mut self, mut completion: Completion) {
        match self.qpc.receive_queue.take() {
            None => self.queue_pair.complete_receive(completion),
            Some(mut queue) => {
                completion.queue_pair = self.queue_pair.reported_number();
                queue.end_receive();
                let counted = &self.queue_pair.counted;
                counted.count(completion.opcode, completion.byte_length, completion.status);
                self.qpc.arrived.push((queue, completion));
            }
        }
    }

    /// In what accesses to memory are made that the peer names.
    #[inline(always)] // Part of each message.
    pub(super) fn remote_scope(&self) -> AccessScope {
        AccessScope { domain: self.remote_domain(), ..self.queue_pair.scope() }
    }

    /// The protection domain of memory that the peer names.
    #[inline(always)] // Part of each packet.
    pub(super) fn remote_domain(&self) -> u32 {
        match &self.qpc.shared_queue {
            SelectedQueue::None | SelectedQueue::Elsewhere(_) => self.queue_pair.domain.number(),
            SelectedQueue::Here(queue) => queue.domain_number(),
        }
    }
}

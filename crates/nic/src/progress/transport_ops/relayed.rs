//! Requests by XRC that another process executes, because it has the shared receive queue that they name.
//!
//! The bytes of a message are staged here until it is complete. The other process then executes it as a whole, and its answer is that of
//! the request.

use super::QpTransportOps;
use crate::queue_pair::qp_context::SelectedQueue;
use crate::queue_pair::relay::{PendingRelay, ReadAhead, RelayOperation, RelayOutcome, RelayRequest, Relays};
use crate::services::completion_counter::CountedOperation;
use crate::types::limits::{MAX_RELAYED, RELAYED_READ};
use pagewire_fabric::Fabric;
use pagewire_transport::{
    AtomicRequest, Denial, FlushRequest, Outcome, Payload, ReadPart, Reason, RelayedMessage, RemoteAddress,
    Right,
};
use pagewire_wire::PacketHeader;
use std::sync::Arc;

/// What a request is relayed for.
#[derive(Clone, Copy)]
enum RelayUse {
    Execute,
    Respond,
}

impl<F: Fabric> QpTransportOps<'_, '_, F> {
    /// Whether the request in hand names a queue of another process.
    #[inline(always)] // Part of each packet.
    pub(super) fn is_relayed(&self) -> bool {
        matches!(self.qpc.shared_queue, SelectedQueue::Elsewhere(_))
    }

    /// Chooses the queue of another process for what comes next.
    pub(super) fn select_relayed(&mut self, queue: u32) -> Outcome<()> {
        if self.queue_pair.xrc.as_ref().and_then(|queues| queues.shared()).is_none() {
            return Outcome::Denied(Denial::InvalidRequest);
        }
        self.qpc.shared_queue = SelectedQueue::Elsewhere(queue);
        Outcome::Done(())
    }

    /// Checks memory of another process. That of a WRITE or atomic is checked when it is executed.
    pub(super) fn check_relayed(&mut self, remote: RemoteAddress, length: u32, right: Right) -> Outcome<()> {
        let SelectedQueue::Elsewhere(queue) = self.qpc.shared_queue else {
            return Outcome::Denied(Denial::InvalidRequest);
        };
        let relays = self.relays();
        if right != Right::RemoteRead {
            (relays.written, relays.is_atomic_write) = (remote.address, right == Right::RemoteWord);
            return Outcome::Done(());
        }
        // A READ that is repeated changes nothing of a WRITE that is coming in.
        let operation = RelayOperation::CheckRead { remote, length };
        if relays.executing.as_ref().is_some_and(|pending| !pending.is(queue, &operation)) {
            // The request that is executed waits, so this READ was executed before, and is asked for again. It is refused as it is answered.
            return Outcome::Done(());
        }
        self.execute_relayed(operation, Arc::default()).map(drop)
    }

    fn relays(&mut self) -> &mut Relays {
        self.qpc.relays.get_or_insert_default()
    }

    /// Keeps bytes of a message for which this process has no receive: that is another one's, if the queue is.
    #[cold]
    pub(super) fn stage_relayed(&mut self, offset: u64, payload: Payload<'_>) -> Outcome<u32> {
        if self.is_relayed() { self.stage(offset, payload) } else { Outcome::Denied(Denial::LocalProtection) }
    }

    /// Keeps bytes of a message, from the first packet on; gives how many packets.
    fn stage(&mut self, offset: u64, payload: Payload<'_>) -> Outcome<u32> {
        if self.relays().executing.as_ref().is_some_and(PendingRelay::has_payload) {
            // They were staged before, and their message is under way.
            return Outcome::Done(1);
        }
        if offset.checked_add(payload.len()).is_none_or(|end| end > MAX_RELAYED) {
            return Outcome::Denied(Denial::Operational);
        }
        let deferred = self.deferred;
        let staged = Arc::make_mut(&mut self.relays().staged);
        if (staged.len() as u64) < offset {
            // The message began for a queue of this process.
            return Outcome::Denied(Denial::InvalidRequest);
        }
        staged.truncate(offset as usize);
        match payload {
            Payload::Bytes(burst) => {
                burst.iter().for_each(|bytes| staged.extend_from_slice(bytes));
                Outcome::Done(burst.len().max(1) as u32)
            }
            Payload::Deferred(_) => match deferred.and_then(|deferred| deferred.read()) {
                Some(bytes) => {
                    staged.extend_from_slice(&bytes);
                    Outcome::Done(1)
                }
                None => Outcome::Denied(Denial::SenderUnreadable),
            },
            // Only RC has such.
            Payload::Reference(_) => Outcome::Denied(Denial::SenderUnreadable),
        }
    }

    /// Keeps bytes of a WRITE, or has an atomic WRITE executed.
    pub(super) fn write_relayed(&mut self, remote: RemoteAddress, payload: Payload<'_>) -> Outcome<u32> {
        let offset = remote.address.wrapping_sub(self.relays().written);
        let staged = self.stage(offset, payload);
        if !self.relays().is_atomic_write || !matches!(staged, Outcome::Done(_)) {
            return staged;
        }
        let payload = self.relays().staged.clone();
        let outcome = self.execute_relayed(RelayOperation::AtomicWrite { remote }, payload);
        self.end_staging(outcome).map(|_| 1)
    }

    /// Has a SEND or WRITE executed that is complete.
    pub(super) fn relay_complete(&mut self, message: &RelayedMessage) -> Outcome<bool> {
        let RelayedMessage { remote, length, immediate, solicited } = *message;
        let operation = match remote {
            None => RelayOperation::Send { immediate, solicited },
            Some(remote) => RelayOperation::Write { remote, immediate, solicited },
        };
        let mut payload = Arc::default();
        if length > 0 {
            payload = self.relays().staged.clone();
            if payload.len() != length as usize {
                return Outcome::Denied(Denial::InvalidRequest);
            }
        }
        match self.execute_relayed(operation, payload) {
            Outcome::Done(None) => Outcome::Done(false),
            outcome => {
                if matches!(outcome, Outcome::Done(_)) {
                    self.count_relayed(message);
                }
                self.end_staging(outcome).map(|_| true)
            }
        }
    }

    /// Counts a SEND or WRITE that another process has executed.
    fn count_relayed(&self, message: &RelayedMessage) {
        let counted = &self.queue_pair.counted;
        if message.remote.is_some() {
            counted.count_executed(CountedOperation::RemoteWrite, 1, message.length);
        }
        if message.remote.is_none() || message.immediate.is_some() {
            counted.count_executed(CountedOperation::Receive, 1, message.length);
        }
    }

    pub(super) fn atomic_relayed(&mut self, remote: RemoteAddress, atomic: AtomicRequest) -> Outcome<u64> {
        let operation = RelayOperation::Atomic { remote, atomic };
        match self.execute_relayed(operation, Arc::default()) {
            Outcome::Done(answer) => match answer.and_then(|bytes| bytes.try_into().ok()) {
                Some(original) => Outcome::Done(u64::from_ne_bytes(original)),
                None => Outcome::Denied(Denial::Operational),
            },
            outcome => outcome.map(|_| 0),
        }
    }

    pub(super) fn flush_relayed(
        &mut self,
        remote: RemoteAddress,
        length: u32,
        flush: FlushRequest,
    ) -> Outcome<()> {
        let operation = RelayOperation::Flush { remote, length, flush };
        self.execute_relayed(operation, Arc::default()).map(drop)
    }

    /// Whether another process has the memory that a READ names.
    pub(super) fn is_read_elsewhere(&self, part: &ReadPart) -> bool {
        let queues = self.queue_pair.xrc.as_ref().filter(|queues| queues.shared().is_some());
        queues.is_some_and(|queues| queues.get(part.shared_queue).is_none())
    }

    /// Sends a response to a READ of memory that another process has. `None`: this process has it.
    pub(super) fn transmit_relayed(
        &mut self,
        header: &PacketHeader,
        (remote, length): (RemoteAddress, u32),
        part: ReadPart,
    ) -> Option<Outcome<u32>> {
        if !self.is_read_elsewhere(&part) {
            return None;
        }
        let number = part.shared_queue;
        let ahead = match self.relays().read_ahead.take().filter(|ahead| ahead.bytes(&part, length).is_some())
        {
            Some(ahead) => ahead,
            None => match self.read_ahead(number, (remote, length), part) {
                Outcome::Done(ahead) => ahead,
                outcome => return Some(outcome.map(|_| 0)),
            },
        };
        let outcome = match ahead.bytes(&part, length) {
            Some(bytes) => self.emit(header, bytes),
            None => Outcome::Denied(Denial::Operational),
        };
        // A later READ may have the same PSN: nothing is kept beyond the last response.
        if part.after > 0 || matches!(outcome, Outcome::Wait(_)) {
            self.relays().read_ahead = Some(ahead);
        }
        Some(outcome)
    }

    /// Asks the other process for the bytes of this response, and of some behind it.
    fn read_ahead(
        &mut self,
        queue: u32,
        (remote, length): (RemoteAddress, u32),
        part: ReadPart,
    ) -> Outcome<ReadAhead> {
        let length = length.saturating_add(part.after).min(length.max(RELAYED_READ));
        let operation = RelayOperation::Read { remote, length };
        match self.relay((RelayUse::Respond, queue), operation, Arc::default()) {
            Outcome::Done(Some(bytes)) => Outcome::Done(ReadAhead::new(part, bytes)),
            Outcome::Done(None) => Outcome::Denied(Denial::Operational),
            Outcome::Wait(reason) => Outcome::Wait(reason),
            Outcome::Denied(denial) => Outcome::Denied(denial),
        }
    }

    /// The message has been executed, or refused: its bytes are not needed any more.
    fn end_staging<T>(&mut self, outcome: Outcome<T>) -> Outcome<T> {
        if !matches!(outcome, Outcome::Wait(_)) {
            self.relays().staged = Arc::default();
        }
        outcome
    }

    fn execute_relayed(
        &mut self,
        operation: RelayOperation,
        payload: Arc<Vec<u8>>,
    ) -> Outcome<Option<Vec<u8>>> {
        match self.qpc.shared_queue {
            SelectedQueue::Elsewhere(queue) => self.relay((RelayUse::Execute, queue), operation, payload),
            SelectedQueue::None | SelectedQueue::Here(_) => Outcome::Denied(Denial::InvalidRequest),
        }
    }

    /// Has another process do something, or takes how it ended. `Done(None)`: it has no receive.
    fn relay(
        &mut self,
        (of, queue): (RelayUse, u32),
        operation: RelayOperation,
        payload: Arc<Vec<u8>>,
    ) -> Outcome<Option<Vec<u8>>> {
        let relays = self.qpc.relays.get_or_insert_default();
        let pending = match of {
            RelayUse::Execute => &mut relays.executing,
            RelayUse::Respond => &mut relays.reading,
        };
        if let Some(before) = pending {
            let Some(outcome) = before.take_outcome() else { return Outcome::Wait(Reason::Relay) };
            let is_this = before.is(queue, &operation);
            *pending = None;
            match outcome {
                RelayOutcome::Done(bytes) if is_this => return Outcome::Done(Some(bytes)),
                RelayOutcome::NotReady if is_this => return Outcome::Done(None),
                RelayOutcome::Denied(denial) if is_this => return Outcome::Denied(denial),
                // It was of a request that the peer has not repeated.
                _ => {}
            }
        }
        let queue_pair = self.queue_pair;
        let Some(shared) = queue_pair.xrc.as_ref().and_then(|queues| queues.shared()) else {
            return Outcome::Denied(Denial::InvalidRequest);
        };
        let request = RelayRequest { queue, queue_pair: queue_pair.properties.number, operation, payload };
        let begun = PendingRelay::begin(
            &*shared.sharing,
            request,
            queue_pair.relaying.get_or_init(Arc::default).clone(),
            shared.wake.clone(),
        );
        *pending = Some(begun);
        Outcome::Wait(Reason::Relay)
    }
}

//! Posting work requests.

use crate::api::queue_pair::QueuePair;
use crate::completion::{Completion, CompletionOpcode, Status};
use crate::path::initiator_copy::{AtomicTransfer, InitiatorTransfer};
use crate::progress::initiator::Initiator;
use crate::progress::qp_progress::Driver;
use crate::progress::short_send::ShortSend;
use crate::queue_pair::qp_context::QpContext;
use crate::queue_pair::request::{
    Data, Destination, ReceiveRequest, SendFlags, SendOperation, SendRequest, operation_of,
};
use crate::services::ready::Occasion;
use crate::types::attributes::{QpState, QueuePairType};
use crate::types::error::{Error, Result, invalid_if};
use crate::types::limits::{MAX_MESSAGE, MAX_QUEUE_PAIR_NUMBER, RING_INLINE};
use crate::types::sge::{ScatterGather, total_length};
use pagewire_fabric::Fabric;
use pagewire_memory::Segment;
use pagewire_transport::{RemoteAddress, WorkOperation};
use std::sync::atomic::AtomicU64;

impl<F: Fabric> QueuePair<F> {
    /// Posts a send request (`ibv_post_send(3)`). True: it was kept; follow a list of such posts by one
    /// [`doorbell`](Self::doorbell).
    pub fn post_send(&self, request: &SendRequest<'_, F>) -> Result<bool> {
        let state = &self.state;
        let length = self.check_data(&request.data)?;
        let at_once = self.executes_at_post();
        if at_once && length <= RING_INLINE && request.operation.is_plain_send() {
            let post = |qpc: &mut _| ShortSend::new(state, qpc).post(request, length);
            if self.with_qpc(post).unwrap_or(false) {
                return Ok(false);
            }
        }
        let (operation, opcode, length) = self.check_operation(request, length)?;
        if at_once && self.initiate(request, &operation, opcode, length) {
            return Ok(false);
        }
        self.keep_send(request, &operation, opcode, length, false)
    }

    /// Posts a send request as [`post_send`](Self::post_send) does, linked to the one that was posted last: it is not executed, and ends as
    /// flushed, if that one is refused, or is linked to one that is. Only of use where a refused request
    /// [ends alone](Self::set_refusal_scope).
    pub fn post_linked(&self, request: &SendRequest<'_, F>) -> Result<bool> {
        let length = self.check_data(&request.data)?;
        let (operation, opcode, length) = self.check_operation(request, length)?;
        let is_atomic = matches!(operation, WorkOperation::Atomic { .. });
        if !is_atomic && self.executes_at_post() && self.initiate(request, &operation, opcode, length) {
            return Ok(false);
        }
        self.keep_send(request, &operation, opcode, length, true)
    }

    /// Posts a send request that ends with this status when its turn comes, and does nothing else. Follow it by a
    /// [`doorbell`](Self::doorbell).
    ///
    /// # Errors
    /// Those of [`post_send`](Self::post_send).
    pub fn post_failing(&self, request: &SendRequest<'_, F>, status: Status) -> Result<bool> {
        let length = self.check_data(&request.data)?;
        let (_, opcode, length) = self.check_operation(request, length)?;
        self.keep_send(request, &WorkOperation::Failing { status }, opcode, length, false)
    }

    /// Whether a send request could be posted now, as far as it itself goes.
    ///
    /// # Errors
    /// Those of [`post_send`](Self::post_send), but for the state of the queue.
    pub fn check_send(&self, request: &SendRequest<'_, F>) -> Result<()> {
        let length = self.check_data(&request.data)?;
        self.check_operation(request, length).map(drop)
    }

    /// Whether the send queue has room for so many more requests now.
    pub fn has_send_room(&self, count: usize) -> bool {
        self.state.has_send_slots(&self.state.send.lock(), count)
    }

    /// Whether requests that find nothing before them are executed at their post.
    #[inline(always)] // Part of each post.
    fn executes_at_post(&self) -> bool {
        self.state.properties.kind == QueuePairType::Rc && self.state.state() == QpState::ReadyToSend
    }

    /// Executes a WRITE, READ or atomic at once in a local peer's memory. False: it must be kept and driven.
    #[inline(always)] // Part of each transfer.
    fn initiate(
        &self,
        request: &SendRequest<'_, F>,
        operation: &WorkOperation,
        opcode: CompletionOpcode,
        length: u32,
    ) -> bool {
        let state = &*self.state;
        if let Some(transfer) = InitiatorTransfer::new(operation, length) {
            let post = |qpc: &mut _| Initiator::new(state, qpc).post(request, &transfer, opcode);
            return self.with_qpc(post).unwrap_or(false);
        }
        let Some(atomic) = AtomicTransfer::new(operation) else { return false };
        self.with_qpc(|qpc| Initiator::new(state, qpc).post_atomic(request, &atomic, opcode)).unwrap_or(false)
    }

    /// Works with the QP context, if no other thread has it, and does what others have left meanwhile.
    #[inline(always)] // Part of each transfer.
    fn with_qpc<T>(&self, work: impl FnOnce(&mut QpContext<F>) -> T) -> Option<T> {
        let mut qpc = self.state.qpc.try_lock()?;
        let done = work(&mut qpc);
        drop(qpc);
        if self.state.is_wanted() {
            Driver(&self.state).run();
        }
        Some(done)
    }

    /// Has a send request wait for its turn.
    #[inline]
    fn keep_send(
        &self,
        request: &SendRequest<'_, F>,
        operation: &WorkOperation,
        opcode: CompletionOpcode,
        length: u32,
        linked: bool,
    ) -> Result<bool> {
        let mut send = self.state.send.lock();
        match self.state.state() {
            QpState::Reset | QpState::Init | QpState::ReadyToReceive => {
                return Err(Error::InvalidArgument("the queue pair is not in a state in which it sends"));
            }
            _ if !self.state.has_send_slot(&send) => {
                return Err(Error::NoMemory("the send queue is full: poll its completions"));
            }
            QpState::Error | QpState::SendQueueError => {
                self.state.counted.count(opcode, length, Status::Flushed);
                self.state.announce(
                    &self.state.send_cq,
                    Completion::of_send(self.state.properties.number, request.wr_id, opcode, Status::Flushed),
                );
                return Ok(false);
            }
            QpState::ReadyToSend | QpState::SendQueueDrain => {}
        }
        let flags = SendFlags { signaled: request.signaled || self.state.properties.signal_all, linked };
        send.push(request, operation, opcode, length, flags);
        Ok(true)
    }

    /// Executes a WRITE, READ or atomic in the memory of a local peer while the caller waits, without a completion: as if it had been posted
    /// now, behind all that was posted before. The local bytes are those at the address and length of `here`, which the caller holds; its key is
    /// not looked at, and an atomic has none. Gives what an atomic found. `None`: nothing was done, and it is to be posted.
    pub fn execute_now(&self, operation: &SendOperation, here: ScatterGather) -> Option<u64> {
        if !self.executes_at_post() {
            return None;
        }
        let (operation, _) = operation_of(operation);
        self.with_qpc(|qpc| Initiator::new(&self.state, qpc).execute_unposted(&operation, here)).flatten()
    }

    /// Whether memory of a local peer is mapped here, so that [`with_words`](Self::with_words) may work there.
    ///
    /// # Errors
    /// `Busy`: a thread is at the queue pair, and stays.
    pub fn maps(&self, address: u64, length: u64) -> Result<bool> {
        let state = &self.state;
        let mut qpc = state.lock_qpc()?;
        let there = Segment { address, length };
        Ok(Initiator::new(state, &mut qpc).maps_memory() && qpc.reaches_by_mapping(&state.services, there))
    }

    /// Has the caller work on words of a local peer's memory that is mapped here, behind all that was posted before. The region that `key` names must
    /// permit READs, WRITEs and atomics. It cannot be revoked while the work lasts: keep that short. False: nothing was done.
    pub fn with_words(
        &self,
        (address, key): (u64, u32),
        length: u64,
        work: &mut dyn FnMut(&[AtomicU64]),
    ) -> bool {
        let remote = RemoteAddress { address, key };
        let works = |qpc: &mut _| Initiator::new(&self.state, qpc).work_on_words(remote, length, work);
        self.executes_at_post() && self.with_qpc(works).unwrap_or(false)
    }

    /// The bytes of a send request's message, if that takes no more than fits.
    #[inline(always)] // Part of each post.
    fn check_data(&self, data: &Data<'_>) -> Result<u32> {
        let capabilities = &self.state.properties.capabilities;
        let elements = match *data {
            Data::Segments(segments) => segments.len(),
            Data::Inline(pieces) => pieces.len(),
            Data::Window(_) => 0,
        };
        // Before an element is read: a list that is refused may be shorter than the request says.
        invalid_if(elements > capabilities.max_send_sge as usize, "too many scatter-gather elements")?;
        let length = match *data {
            Data::Segments(segments) => total_length(segments),
            Data::Window(_) => 0,
            Data::Inline(pieces) => {
                let length = pieces.iter().map(|piece| piece.len() as u64).sum();
                let is_long = length > u64::from(capabilities.max_inline_data);
                invalid_if(is_long, "more inline data than max_inline_data")?;
                length
            }
        };
        invalid_if(length > u64::from(MAX_MESSAGE), "the message is longer than 2 GiB")?;
        Ok(length as u32)
    }

    /// What a send request with so many bytes means, if this queue pair can do it.
    fn check_operation(
        &self,
        request: &SendRequest<'_, F>,
        length: u32,
    ) -> Result<(WorkOperation, CompletionOpcode, u32)> {
        let (operation, opcode) = operation_of(&request.operation);
        let allowed = match self.state.properties.kind {
            QueuePairType::Rc => true,
            // No window is bound by the queue pair that serves it.
            QueuePairType::XrcSend => !matches!(operation, WorkOperation::Send { invalidate: Some(_), .. }),
            QueuePairType::XrcReceive => false,
            QueuePairType::Uc => match operation {
                WorkOperation::Send { invalidate, .. } => invalidate.is_none(),
                WorkOperation::Write { .. } | WorkOperation::Local(_) => true,
                WorkOperation::Read { .. }
                | WorkOperation::Atomic { .. }
                | WorkOperation::AtomicWrite { .. }
                | WorkOperation::Flush { .. }
                | WorkOperation::Failing { .. } => false,
            },
            QueuePairType::Ud => matches!(operation, WorkOperation::Send { invalidate: None, .. }),
        };
        invalid_if(!allowed, "this type of queue pair has no such operation")?;
        if matches!(
            operation,
            WorkOperation::Read { .. }
                | WorkOperation::Atomic { .. }
                | WorkOperation::AtomicWrite { .. }
                | WorkOperation::Flush { .. }
        ) {
            let brings_data = matches!(operation, WorkOperation::Read { .. } | WorkOperation::Atomic { .. });
            let is_inline = brings_data && matches!(request.data, Data::Inline(_));
            invalid_if(is_inline, "inline data makes no sense where data comes back")?;
            let is_barred = self.state.shown.attributes.lock().max_read_atomic == 0;
            invalid_if(is_barred, "max_rd_atomic of the queue pair is 0")?;
        }
        let length = match operation {
            WorkOperation::Atomic { .. } if length < 8 => {
                return Err(Error::InvalidArgument("an atomic needs 8 bytes for the original value"));
            }
            WorkOperation::Atomic { .. } => 8,
            WorkOperation::AtomicWrite { .. } if length != 8 => {
                return Err(Error::InvalidArgument("an atomic WRITE has 8 bytes"));
            }
            WorkOperation::Flush { length, flush, .. } => {
                invalid_if(!flush.global && !flush.persistent, "a FLUSH without a placement type")?;
                let is_long = length > MAX_MESSAGE && !flush.whole_region;
                invalid_if(is_long, "the range of a FLUSH is longer than 2 GiB")?;
                0
            }
            WorkOperation::Local(_) => 0,
            _ => length,
        };
        if self.state.properties.kind == QueuePairType::Ud {
            let Some(Destination::Address { address, queue_pair, .. }) = &request.destination else {
                return Err(Error::InvalidArgument("a datagram without address handle"));
            };
            let is_foreign = address.domain_number() != self.state.domain.number();
            invalid_if(is_foreign, "the address handle is of another protection domain")?;
            invalid_if(*queue_pair > MAX_QUEUE_PAIR_NUMBER, "queue pair number of a datagram's receiver")?;
        }
        if let Some(Destination::SharedQueue(number)) = request.destination {
            invalid_if(number > MAX_QUEUE_PAIR_NUMBER, "number of a shared receive queue")?;
        }
        Ok((operation, opcode, length))
    }

    /// Drives what was posted.
    pub fn doorbell(&self) {
        let _within = self.state.services.arming.begin_verb();
        Driver(&self.state).run_for(Occasion::Doorbell);
    }

    /// Adds a completion of a request that was never posted, as another layer has kept and ended it. It holds no slot of the send queue. A queue
    /// pair in RESET has no completions.
    pub fn complete_unposted(&self, wr_id: u64, opcode: CompletionOpcode, status: Status) {
        if self.state.state() != QpState::Reset {
            self.state.announce(
                &self.state.send_cq,
                Completion::new(self.state.properties.number, wr_id, opcode, status),
            );
        }
    }

    /// Posts a receive request (`ibv_post_recv(3)`).
    pub fn post_receive(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        invalid_if(
            self.state.receives.srq.is_some(),
            "the queue pair takes its receives from a shared receive queue",
        )?;
        invalid_if(self.kind().is_xrc(), "an extended reliable connection has no receive queue of its own")?;
        let is_long = request.segments.len() > self.state.properties.capabilities.max_recv_sge as usize;
        invalid_if(is_long, "too many scatter-gather elements")?;
        let mut receive = self.state.receives.own.lock();
        match self.state.state() {
            QpState::Reset => return Err(Error::InvalidArgument("receives cannot be posted in RESET")),
            QpState::Error => {
                self.state.announce_receive(
                    &self.state.recv_cq,
                    Completion::new(
                        self.state.properties.number,
                        request.wr_id,
                        CompletionOpcode::Receive,
                        Status::Flushed,
                    ),
                );
                return Ok(());
            }
            _ => {}
        }
        receive.push(request).then_some(()).ok_or(Error::NoMemory("the receive queue is full"))
    }
}

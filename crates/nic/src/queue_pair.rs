//! Queue pairs: what the program does with them.
//!
//! Here are creation, state changes, posting and the end. What a queue pair does by itself is in
//! [`qp_progress`](crate::qp_progress). Locks, in the order in which they may be taken: the reading end of a ring (held by whoever
//! hands over its packets; nobody who has a QP context waits for one), `qpc` (held by whoever drives the queue pair; a thread
//! that cannot have it leaves a note in `pending` instead of waiting), then one of `attributes`, `inbox`, `send`,
//! `receive`, `shown_path` (`receive` also behind `send`), then those of a completion queue. Only the first two are held
//! while the application's memory is touched.

use crate::attributes::{Attributes, Capabilities, QueuePairChange, QueuePairType, State, check};
use crate::completion::{Completion, CompletionQueue, Opcode, RoutingHeader, Status};
use crate::context::Context;
use crate::counters::QueuePairCounters;
use crate::engine::Nic;
use crate::error::{Error, Result};
use crate::event::{Acknowledgements, AsyncEventKind, Element};
use crate::explain::ShownPath;
use crate::inbox::Inbox;
use crate::initiator_copy::Transfer;
use crate::limits::{
    MAX_INLINE, MAX_MESSAGE, MAX_READ_ATOMIC, MAX_SEGMENTS, MAX_WORK_REQUESTS, REVOCATION_BOUND,
};
use crate::path::Path;
use crate::path::local::PublishedQueuePair;
use crate::poll_hint::Seeker;
use crate::protection::ProtectionDomain;
use crate::qp_progress::{Occasion, QpContext};
use crate::ready::Again;
use crate::request::{
    Data, ReceiveQueue, ReceiveRequest, ReceiveWork, SendOperation, SendQueue, SendRequest, WholeReceive,
    total_length,
};
use crate::shared_receive::SharedReceiveQueue;
use pagewire_fabric::Fabric;
use pagewire_fabric::lock::{Lock, LockGuard, lock_until};
use pagewire_iommu::Rights;
use pagewire_transport::{Atomic, Operation, RemoteAddress, WorkId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// Queue pair numbers have 24 bits.
const MAX_QUEUE_PAIR_NUMBER: u32 = 0xFF_FFFF;

/// What a queue pair is created with.
pub struct QueuePairInit<F: Fabric> {
    pub kind: QueuePairType,
    pub send_cq: Arc<CompletionQueue<F>>,
    pub recv_cq: Arc<CompletionQueue<F>>,
    pub srq: Option<Arc<SharedReceiveQueue<F>>>,
    pub capabilities: Capabilities,
    /// Every send request makes a completion.
    pub signal_all: bool,
}

/// A queue pair.
pub struct QueuePair<F: Fabric> {
    pub(crate) nic: Arc<Nic<F>>,
    pub(crate) domain: Arc<ProtectionDomain<F>>,
    pub(crate) kind: QueuePairType,
    pub(crate) number: u32,
    /// Place in the published tables.
    pub(crate) place: u32,
    pub(crate) send_cq: Arc<CompletionQueue<F>>,
    pub(crate) recv_cq: Arc<CompletionQueue<F>>,
    pub(crate) srq: Option<Arc<SharedReceiveQueue<F>>>,
    capabilities: Capabilities,
    signal_all: bool,
    /// Copy of the QP context's, for a look without the QP context.
    pub(crate) attributes: Mutex<Attributes>,
    /// Copies of `attributes.state` and `attributes.destination`, for a look without a lock.
    state: AtomicU32,
    peer: AtomicU32,
    pub(crate) send: Lock<SendQueue<F>>,
    /// A request that is executed at its post, and is not kept, has a slot. Set under the lock of `send`.
    pub(crate) executing: AtomicBool,
    pub(crate) receive: Lock<ReceiveQueue>,
    pub(crate) qpc: Arc<Lock<QpContext<F>>>,
    pub(crate) pending: AtomicBool,
    /// Is in the engine's list of those that are to be driven again.
    pub(crate) queued: AtomicBool,
    /// Its turn to use what all share has come; see [`send_budget`](crate::send_budget).
    pub(crate) budget_ready: AtomicBool,
    /// Counted among those that need the network to be polled.
    on_network: AtomicBool,
    pub(crate) inbox: Inbox<F>,
    /// The waits, a bit for each, for which pages were brought in since it was driven.
    pub(crate) brought_in: AtomicU64,
    /// When the protocol wants to be driven next (fabric time); `u64::MAX`: never.
    pub(crate) deadline: AtomicU64,
    /// When the timer list will look at this queue pair next.
    pub(crate) scheduled: AtomicU64,
    /// In SQD: what was being sent when it was entered has ended.
    pub(crate) drained: AtomicBool,
    /// A completion found its queue overrun.
    overran: AtomicBool,
    /// It went to ERR for that, and has not been reset.
    pub(crate) ended_by_overrun: AtomicBool,
    /// How often rights were taken away, and what peers had begun by them waited for: so many of these times.
    withdrawals: AtomicU64,
    waited_for: AtomicU64,
    cookie: AtomicU64,
    async_events: Arc<Acknowledgements>,
    pub(crate) counters: QueuePairCounters,
    pub(crate) shown_path: ShownPath,
}

impl<F: Fabric> QueuePair<F> {
    pub(crate) fn new(domain: Arc<ProtectionDomain<F>>, init: QueuePairInit<F>) -> Result<Arc<Self>> {
        let mut capabilities = init.capabilities;
        if init.srq.is_some() {
            // ibv_create_qp(3): ignored, whatever they are.
            (capabilities.max_recv_wr, capabilities.max_recv_sge) = (0, 0);
        }
        check_capabilities(&capabilities)?;
        let context = domain.context();
        let belongs = |other: &Arc<Context<F>>| Arc::ptr_eq(other, context);
        if !belongs(init.send_cq.context())
            || !belongs(init.recv_cq.context())
            || init.srq.as_ref().is_some_and(|srq| !belongs(srq.context()))
        {
            return Err(Error::InvalidArgument("the queues are of another context"));
        }
        let nic = domain.nic().clone();
        let (number, place) = nic.queue_pairs().reserve(&nic)?;
        domain.users.fetch_add(1, Ordering::AcqRel);
        init.send_cq.users.fetch_add(1, Ordering::AcqRel);
        init.recv_cq.users.fetch_add(1, Ordering::AcqRel);
        if let Some(srq) = &init.srq {
            srq.users.fetch_add(1, Ordering::AcqRel);
        }
        let queue_pair = Arc::new(QueuePair {
            kind: init.kind,
            number,
            place,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            capabilities,
            signal_all: init.signal_all,
            attributes: Mutex::new(Attributes::default()),
            state: AtomicU32::new(State::Reset as u32),
            peer: AtomicU32::new(0),
            send: Lock::new(SendQueue::new()),
            executing: AtomicBool::new(false),
            receive: Lock::new(ReceiveQueue::new(capabilities.max_recv_wr)),
            qpc: Arc::new(Lock::new(QpContext::default())),
            pending: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            budget_ready: AtomicBool::new(false),
            on_network: AtomicBool::new(false),
            inbox: Inbox::new(nic.fabric().tables().clone(), place),
            brought_in: AtomicU64::new(0),
            deadline: AtomicU64::new(u64::MAX),
            scheduled: AtomicU64::new(u64::MAX),
            drained: AtomicBool::new(false),
            overran: AtomicBool::new(false),
            ended_by_overrun: AtomicBool::new(false),
            withdrawals: AtomicU64::new(0),
            waited_for: AtomicU64::new(0),
            cookie: AtomicU64::new(0),
            async_events: Arc::default(),
            counters: QueuePairCounters::default(),
            shown_path: ShownPath::default(),
            nic,
            domain,
        });
        queue_pair.nic.queue_pairs().insert(queue_pair.clone());
        Ok(queue_pair)
    }

    /// Queue pair number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its type.
    pub fn kind(&self) -> QueuePairType {
        self.kind
    }

    /// What fits.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Whether every send request makes a completion.
    pub fn signals_all(&self) -> bool {
        self.signal_all
    }

    /// What events name this queue pair by.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Asynchronous events that the program was given (`ibv_ack_async_event(3)`).
    pub fn async_events(&self) -> &Acknowledgements {
        &self.async_events
    }

    /// State now.
    pub fn state(&self) -> State {
        State::from_code(self.state.load(Ordering::Acquire)).unwrap_or(State::Error)
    }

    /// Number of the queue pair that it is connected to.
    pub(crate) fn peer(&self) -> u32 {
        self.peer.load(Ordering::Acquire)
    }

    /// Attributes now (`ibv_query_qp(3)`): whoever has seen a completion finds the state that came with it, as a thread that is just
    /// driving the queue pair is waited for, unless it is stuck at an absent page.
    pub fn query(self: &Arc<Self>) -> Attributes {
        let qpc = self.lock_core();
        let attributes = *self.attributes.lock();
        drop(qpc);
        self.pass_on_pending();
        attributes
    }

    /// After a look at the QP context: a thread that had work and found the QP context taken left the work to whoever held it. Not done
    /// here: where a program posts without a pause, that would have no end.
    pub(crate) fn pass_on_pending(self: &Arc<Self>) {
        if self.is_wanted() {
            self.nic.ready(self, Again::Soon);
        }
    }

    /// After the QP context was given up: whether others have found it taken meanwhile, and left work to whoever had it.
    pub(crate) fn is_wanted(&self) -> bool {
        fence(Ordering::SeqCst);
        self.pending.load(Ordering::SeqCst)
    }

    /// Whether messages that were begun before SQD are still under way (`sq_draining` of `ibv_query_qp(3)`).
    pub fn is_draining(&self) -> bool {
        self.state() == State::SendQueueDrain && !self.drained.load(Ordering::Acquire)
    }

    pub(crate) fn raise(&self, kind: AsyncEventKind) {
        let element = Element::QueuePair { cookie: self.cookie.load(Ordering::Relaxed) };
        self.domain.context().raise(kind, element, &self.async_events);
    }

    /// The QP context, waiting a bounded time for a thread that may be stuck at an absent page.
    fn lock_core(&self) -> Result<LockGuard<'_, QpContext<F>>> {
        lock_until(&self.qpc, Instant::now() + Duration::from_nanos(REVOCATION_BOUND))
            .ok_or(Error::Busy("an access of the queue pair waits for a page"))
    }

    /// Changes state or attributes (`ibv_modify_qp(3)`).
    pub fn modify(self: &Arc<Self>, change: &QueuePairChange) -> Result<()> {
        let result = self.change(change);
        // Also where it was refused: another thread may have left its work meanwhile.
        self.pass_on_pending();
        result
    }

    fn change(self: &Arc<Self>, change: &QueuePairChange) -> Result<()> {
        if change.state == Some(State::ReadyToReceive) {
            if self.kind == QueuePairType::Ud {
                self.nic.fabric().request_hop_info();
            }
            // From now on peers may send. What is lost or overtaken on its detour by another process RC sends again.
            if self.kind != QueuePairType::Rc {
                self.nic.fabric().await_steering();
            }
            self.nic.drain_rx();
        }
        let mut qpc = self.lock_core()?;
        let mut attributes = qpc.attributes;
        let from = attributes.state;
        let to = check(self.kind, from, change)?;
        self.check_values(change)?;
        if let Some(vector) = &change.address {
            let route = vector.route(self.domain.context().device())?;
            if from != State::Init {
                qpc.readdress(&attributes.address.route(self.domain.context().device())?, &route)?;
            }
        }
        if matches!(to, State::Reset | State::Error) && qpc.owes_acknowledgement() {
            self.drive_last(&mut qpc);
        }
        match to {
            State::Reset => {
                self.reset(&mut qpc);
                // As adapters do: what is polled from now on is of the queue pair's next life.
                self.send_cq.forget(self.number);
                self.recv_cq.forget(self.number);
                drop(qpc);
                return self.wait_for_peers();
            }
            State::Error => {
                // The last drive may have ended it.
                if qpc.attributes.state != State::Error {
                    self.enter_error(&mut qpc);
                }
                drop(qpc);
                // Again after a call that was refused because an access did not end.
                return self.wait_for_peers();
            }
            _ => {}
        }
        let before = granted_by(&attributes);
        attributes.apply(change);
        if from == State::ReadyToSend && to == State::SendQueueDrain {
            // The wish to be told holds for one draining.
            attributes.drained_notify = change.drained_notify.unwrap_or(false);
            self.drained.store(false, Ordering::Release);
        }
        self.set_attributes(&mut qpc, attributes);
        if from == State::Init && to == State::ReadyToReceive {
            qpc.find_path(self, &attributes);
        }
        qpc.refresh(&attributes);
        let withdraws = from.receives() && !(before - granted_by(&attributes)).is_empty();
        if withdraws {
            self.withdrawals.fetch_add(1, Ordering::SeqCst);
        }
        drop(qpc);
        self.run();
        // What local peers began by rights that were taken away; also after a call that was refused because it did not end.
        let repeats = from == to && (change.access.is_some() || change.max_dest_read_atomic.is_some());
        let until = self.withdrawals.load(Ordering::SeqCst);
        if withdraws || repeats && self.waited_for.load(Ordering::SeqCst) < until {
            self.wait_for_peers()?;
            self.waited_for.fetch_max(until, Ordering::SeqCst);
        }
        Ok(())
    }

    fn check_values(&self, change: &QueuePairChange) -> Result<()> {
        let refuse = |wrong: bool, what| if wrong { Err(Error::InvalidArgument(what)) } else { Ok(()) };
        refuse(change.port.is_some_and(|port| port != 1), "port number")?;
        refuse(change.pkey_index.is_some_and(|index| index != 0), "P_Key index")?;
        refuse(change.max_read_atomic.is_some_and(|n| n > MAX_READ_ATOMIC), "max_rd_atomic")?;
        refuse(change.max_dest_read_atomic.is_some_and(|n| n > MAX_READ_ATOMIC), "max_dest_rd_atomic")?;
        refuse(change.retry_count.is_some_and(|n| n > 7), "retry count")?;
        refuse(change.rnr_retry.is_some_and(|n| n > 7), "RNR retry count")?;
        refuse(change.min_rnr_timer.is_some_and(|n| n > 31), "minimal RNR timer")?;
        refuse(change.timeout.is_some_and(|n| n > 31), "timeout")?;
        refuse(change.path_migration.is_some_and(|state| state > 2), "path migration state")?;
        refuse(
            change.destination.is_some_and(|n| n > MAX_QUEUE_PAIR_NUMBER),
            "destination queue pair number",
        )?;
        refuse(change.capabilities.is_some(), "queue pairs are not resized")?;
        match change.path_migration {
            None | Some(0) => Ok(()),
            Some(_) => Err(Error::NotSupported("there is no alternate path to migrate to")),
        }
    }

    /// Bytes of payload in a packet over the network: what the program allows, or what the link carries if that is less.
    pub(crate) fn link_mtu(&self, attributes: &Attributes) -> u32 {
        attributes.path_mtu.min(self.domain.context().device().mtu).bytes()
    }

    /// Stores attributes and publishes the queue pair to local peers.
    pub(crate) fn set_attributes(&self, qpc: &mut QpContext<F>, attributes: Attributes) {
        self.store_attributes(qpc, attributes);
        self.state.store(attributes.state as u32, Ordering::Release);
        self.publish(qpc);
    }

    fn store_attributes(&self, qpc: &mut QpContext<F>, attributes: Attributes) {
        qpc.attributes = attributes;
        *self.attributes.lock() = attributes;
        self.peer.store(attributes.destination, Ordering::Release);
    }

    /// The peer was heard from: the program is told, once, if it has not been at RTS yet (COMM_EST).
    pub(crate) fn establish_communication(&self, qpc: &mut QpContext<F>) {
        if qpc.communicates || qpc.attributes.state != State::ReadyToReceive {
            return;
        }
        qpc.communicates = true;
        self.publish(qpc);
        self.raise(AsyncEventKind::CommunicationEstablished);
    }

    fn publish(&self, qpc: &QpContext<F>) {
        let attributes = &qpc.attributes;
        let published = PublishedQueuePair {
            number: self.number,
            receptive: attributes.state.receives() && self.kind != QueuePairType::Ud,
            rights: granted_by(attributes),
            unestablished: attributes.state == State::ReadyToReceive && !qpc.communicates,
            destination: attributes.destination,
            domain: self.domain.number(),
            receive_psn: attributes.receive_psn,
        };
        published.publish(self.nic.fabric().tables(), self.place);
    }

    fn reset(&self, qpc: &mut QpContext<F>) {
        self.end_holding(qpc);
        if let (Some(_), Some(srq)) = (qpc.receive.take(), &self.srq) {
            // A message was being placed: its receive is used up without a completion.
            srq.completed();
        }
        self.leave_budget(qpc);
        self.send_cq.poll_hint.leave(self.number);
        self.recv_cq.poll_hint.leave(self.number);
        if let Path::Local(channel) = qpc.path() {
            channel.forget_awaited(self.number);
        }
        qpc.reset(self);
        self.set_on_network(false);
        let old = {
            let mut send = self.send.lock();
            self.state.store(State::Reset as u32, Ordering::Release);
            std::mem::replace(&mut *send, SendQueue::new())
        };
        drop(old);
        self.receive.lock().clear();
        self.inbox.clear();
        self.deadline.store(u64::MAX, Ordering::Release);
        self.ended_by_overrun.store(false, Ordering::Release);
        self.set_attributes(qpc, Attributes::default());
    }

    /// Ends the protocol and flushes both queues. Posts see the new state only then: until then they are kept, and flushed
    /// behind what was posted before: the requests of one queue complete in order.
    pub(crate) fn enter_error(&self, qpc: &mut QpContext<F>) {
        let attributes = Attributes { state: State::Error, ..qpc.attributes };
        self.store_attributes(qpc, attributes);
        self.publish(qpc);
        qpc.stop();
        self.leave_budget(qpc);
        // What waited for a page is dropped: peers must take silence for silence from now on.
        self.end_holding(qpc);
        self.deadline.store(u64::MAX, Ordering::Release);
        if matches!(qpc.path(), Path::Local(_)) {
            // A receiver may be pulling from buffers that the flush gives back to the program. One that is stopped in the
            // middle of it is waited for no longer than the bound; when it goes on it finds this queue pair in the error state,
            // and drops what it has read.
            if let Err(error) = self.wait_for_peers() {
                log::warn!(
                    "queue pair {}: flushed while its peer still reads a message: {error}",
                    self.number
                );
            }
        }
        let mut send = self.send.lock();
        let mut receive = self.receive.lock();
        self.state.store(State::Error as u32, Ordering::Release);
        self.flush_send(&mut send);
        drop(send);
        if let Some(current) = qpc.receive.take() {
            match &self.srq {
                Some(srq) => srq.completed(),
                None => receive.completed(),
            }
            self.announce(&self.recv_cq, self.flushed(current.wr_id, Opcode::Receive));
        }
        while let Some(work) = receive.take() {
            receive.completed();
            self.announce(&self.recv_cq, self.flushed(work.wr_id, Opcode::Receive));
        }
        drop(receive);
        self.inbox.clear();
        if self.srq.is_some() {
            self.raise(AsyncEventKind::LastWorkRequestReached);
        }
    }

    pub(crate) fn announce(&self, queue: &CompletionQueue<F>, completion: Completion) {
        if !queue.push(completion) {
            self.overran.store(true, Ordering::Release);
        }
    }

    /// Gives a completion to the poll that seeks it, or else queues it.
    #[inline(always)] // What is moved into a call has to be waited for.
    pub(crate) fn announce_to(
        &self,
        seeker: Option<&mut Seeker<'_, F>>,
        queue: &CompletionQueue<F>,
        completion: impl FnOnce() -> Completion,
    ) {
        match seeker.and_then(|seeker| seeker.place_for(queue)) {
            // Made where the poll reads it: moving it costs as much as making it.
            Some(place) => *place = Some(completion()),
            None => self.announce(queue, completion()),
        }
    }

    /// A queue pair whose completion was lost goes to the error state
    /// (InfiniBand specification, volume 1, section 10.10.2.3: local work queue catastrophic error).
    pub(crate) fn end_if_overrun(&self, qpc: &mut QpContext<F>) {
        // Mostly it has not: a look costs less than an exchange.
        if self.overran.load(Ordering::Acquire)
            && self.overran.swap(false, Ordering::AcqRel)
            && !matches!(self.state(), State::Reset | State::Error)
        {
            self.ended_by_overrun.store(true, Ordering::Release);
            self.enter_error(qpc);
            self.raise(AsyncEventKind::QueuePairFatal);
        }
    }

    /// A UC or UD queue pair whose send failed: only its send queue stops.
    pub(crate) fn enter_send_queue_error(&self, qpc: &mut QpContext<F>) {
        let attributes = Attributes { state: State::SendQueueError, ..qpc.attributes };
        self.store_attributes(qpc, attributes);
        self.publish(qpc);
        let mut send = self.send.lock();
        self.state.store(State::SendQueueError as u32, Ordering::Release);
        self.flush_send(&mut send);
    }

    fn flush_send(&self, send: &mut SendQueue<F>) {
        while let Some(work) = send.retire(WorkId(u64::MAX)) {
            self.announce(&self.send_cq, self.send_completion(work.wr_id, work.opcode, Status::Flushed));
        }
    }

    pub(crate) fn flushed(&self, wr_id: u64, opcode: Opcode) -> Completion {
        self.completion(wr_id, opcode, Status::Flushed)
    }

    pub(crate) fn completion(&self, wr_id: u64, opcode: Opcode, status: Status) -> Completion {
        Completion {
            wr_id,
            status,
            opcode,
            byte_length: 0,
            immediate: None,
            invalidated: None,
            queue_pair: self.number,
            source_queue_pair: 0,
            routing_header: RoutingHeader::None,
            solicited: false,
            holds_slot: false,
        }
    }

    /// The completion of a send request, which holds the request's slot until it is polled.
    pub(crate) fn send_completion(&self, wr_id: u64, opcode: Opcode, status: Status) -> Completion {
        Completion { holds_slot: true, ..self.completion(wr_id, opcode, status) }
    }

    /// Whether the send queue has a free slot.
    #[inline(always)] // Part of each post.
    pub(crate) fn has_send_slot(&self, send: &SendQueue<F>) -> bool {
        let used = send.outstanding() + usize::from(self.executing.load(Ordering::Acquire));
        let slots = self.capabilities.max_send_wr as usize;
        // Mostly all that waits in the queue would have slots.
        used + self.send_cq.waiting() < slots || used + self.send_cq.unpolled_sends(self.number) < slots
    }

    pub(crate) fn complete_receive(&self, completion: Completion) {
        self.complete_taken();
        self.announce(&self.recv_cq, completion);
    }

    /// A receive that a message has taken is complete.
    pub(crate) fn complete_taken(&self) {
        match &self.srq {
            Some(srq) => srq.completed(),
            None => self.receive.lock().completed(),
        }
    }

    /// Completes send requests through `through`; `status` is that of the last.
    pub(crate) fn complete_send(&self, through: WorkId, status: Status) {
        self.complete_send_for(None, through, status);
    }

    /// Completes send requests through `through`; a poll that seeks takes one of their completions. `status` is that of the last.
    pub(crate) fn complete_send_for(
        &self,
        mut seeker: Option<&mut Seeker<'_, F>>,
        through: WorkId,
        status: Status,
    ) {
        let mut send = self.send.lock();
        while let Some(work) = send.retire(through) {
            let status = if work.id == through { status } else { Status::Success };
            if work.signaled || status != Status::Success {
                let byte_length = match work.opcode {
                    Opcode::Read | Opcode::CompareSwap | Opcode::FetchAdd => work.length,
                    _ => 0,
                };
                self.announce_to(seeker.as_deref_mut(), &self.send_cq, || Completion {
                    byte_length,
                    ..self.send_completion(work.wr_id, work.opcode, status)
                });
            }
        }
    }

    /// Posts a send request (`ibv_post_send(3)`). True: it was kept; follow a list of such posts by one
    /// [`doorbell`](Self::doorbell).
    pub fn post_send(self: &Arc<Self>, request: &SendRequest<'_, F>) -> Result<bool> {
        let length = self.check_data(&request.data)?;
        let at_once = self.kind == QueuePairType::Rc && self.state() == State::ReadyToSend;
        if at_once && request.operation.is_plain_send() && self.send_fast(request, length) {
            return Ok(false);
        }
        let (operation, opcode, length) = self.check_operation(request, length)?;
        if at_once && self.post_fast(request, &operation, opcode, length) {
            return Ok(false);
        }
        let mut send = self.send.lock();
        match self.state() {
            State::Reset | State::Init | State::ReadyToReceive => {
                return Err(Error::InvalidArgument("the queue pair is not in a state in which it sends"));
            }
            _ if !self.has_send_slot(&send) => {
                return Err(Error::NoMemory("the send queue is full: poll its completions"));
            }
            State::Error | State::SendQueueError => {
                self.announce(&self.send_cq, self.send_completion(request.wr_id, opcode, Status::Flushed));
                return Ok(false);
            }
            State::ReadyToSend | State::SendQueueDrain => {}
        }
        send.push(request, &operation, opcode, length, request.signaled || self.signal_all);
        Ok(true)
    }

    /// Executes at once what finds nothing before it. False: it must be kept and driven.
    fn post_fast(
        self: &Arc<Self>,
        request: &SendRequest<'_, F>,
        operation: &Operation,
        opcode: Opcode,
        length: u32,
    ) -> bool {
        let Some(transfer) = Transfer::new(operation, length) else { return false };
        let Some(mut qpc) = self.qpc.try_lock() else { return false };
        let done = self.post_directly(&mut qpc, request, &transfer, opcode);
        drop(qpc);
        if self.is_wanted() {
            self.run();
        }
        done
    }

    /// The bytes of a send request's message, if that takes no more than fits.
    #[inline(always)] // Part of each post.
    fn check_data(&self, data: &Data<'_>) -> Result<u32> {
        let length = match *data {
            Data::Segments(segments) => {
                if segments.len() > self.capabilities.max_send_sge as usize {
                    return Err(Error::InvalidArgument("too many scatter-gather elements"));
                }
                total_length(segments)
            }
            Data::Inline(pieces) => {
                if pieces.len() > self.capabilities.max_send_sge as usize {
                    return Err(Error::InvalidArgument("too many scatter-gather elements"));
                }
                let length = pieces.iter().map(|piece| piece.len() as u64).sum();
                if length > u64::from(self.capabilities.max_inline_data) {
                    return Err(Error::InvalidArgument("more inline data than max_inline_data"));
                }
                length
            }
        };
        if length > u64::from(MAX_MESSAGE) {
            return Err(Error::InvalidArgument("the message is longer than 2 GiB"));
        }
        Ok(length as u32)
    }

    /// What a send request with so many bytes means, if this queue pair can do it.
    fn check_operation(&self, request: &SendRequest<'_, F>, length: u32) -> Result<(Operation, Opcode, u32)> {
        let (operation, opcode) = operation_of(&request.operation);
        let allowed = match self.kind {
            QueuePairType::Rc => true,
            QueuePairType::Uc => match operation {
                Operation::Send { invalidate, .. } => invalidate.is_none(),
                Operation::Write { .. } | Operation::Local => true,
                Operation::Read { .. } | Operation::Atomic { .. } => false,
            },
            QueuePairType::Ud => matches!(operation, Operation::Send { invalidate: None, .. }),
        };
        if !allowed {
            return Err(Error::InvalidArgument("this type of queue pair has no such operation"));
        }
        if matches!(operation, Operation::Read { .. } | Operation::Atomic { .. })
            && matches!(request.data, Data::Inline(_))
        {
            return Err(Error::InvalidArgument("inline data makes no sense where data comes back"));
        }
        if matches!(operation, Operation::Read { .. } | Operation::Atomic { .. })
            && self.attributes.lock().max_read_atomic == 0
        {
            return Err(Error::InvalidArgument("max_rd_atomic of the queue pair is 0"));
        }
        let length = match operation {
            Operation::Atomic { .. } if length < 8 => {
                return Err(Error::InvalidArgument("an atomic needs 8 bytes for the original value"));
            }
            Operation::Atomic { .. } => 8,
            Operation::Local => 0,
            _ => length,
        };
        if self.kind == QueuePairType::Ud {
            let to = request
                .destination
                .as_ref()
                .ok_or(Error::InvalidArgument("a datagram without address handle"))?;
            if to.address.domain_number() != self.domain.number() {
                return Err(Error::InvalidArgument("the address handle is of another protection domain"));
            }
            if to.queue_pair > MAX_QUEUE_PAIR_NUMBER {
                return Err(Error::InvalidArgument("queue pair number of a datagram's receiver"));
            }
        }
        Ok((operation, opcode, length))
    }

    /// Drives what was posted.
    pub fn doorbell(self: &Arc<Self>) {
        let _within = self.nic.begin_verb();
        self.run_for(Occasion::Doorbell);
    }

    /// Posts a receive request (`ibv_post_recv(3)`).
    pub fn post_receive(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        if self.srq.is_some() {
            return Err(Error::InvalidArgument(
                "the queue pair takes its receives from a shared receive queue",
            ));
        }
        if request.segments.len() > self.capabilities.max_recv_sge as usize {
            return Err(Error::InvalidArgument("too many scatter-gather elements"));
        }
        let mut receive = self.receive.lock();
        match self.state() {
            State::Reset => return Err(Error::InvalidArgument("receives cannot be posted in RESET")),
            State::Error => {
                self.announce(&self.recv_cq, self.flushed(request.wr_id, Opcode::Receive));
                return Ok(());
            }
            _ => {}
        }
        match receive.push(request) {
            true => Ok(()),
            false => Err(Error::NoMemory("the receive queue is full")),
        }
    }

    pub(crate) fn take_receive(&self) -> Option<ReceiveWork> {
        match &self.srq {
            Some(srq) => srq.take(),
            None => self.receive.lock().take(),
        }
    }

    /// Takes a receive for a message of `length` bytes that completes it at once, if the oldest is of one piece.
    #[inline(always)] // What is returned in memory has to be waited for.
    pub(crate) fn take_whole_receive(&self, length: u32) -> Option<WholeReceive> {
        match &self.srq {
            Some(srq) => srq.take_whole(length),
            None => self.receive.lock().take_whole(length),
        }
    }

    /// The message of a receive that was [taken whole](Self::take_whole_receive) is not complete yet after all.
    pub(crate) fn count_as_taken(&self) {
        match &self.srq {
            Some(srq) => srq.count_as_taken(),
            None => self.receive.lock().count_as_taken(),
        }
    }

    /// Whether a message would find a receive.
    pub(crate) fn has_receive(&self) -> bool {
        match &self.srq {
            Some(srq) => srq.has_receive(),
            None => self.receive.lock().waiting() > 0,
        }
    }

    /// The protection domain that receive buffers belong to.
    pub(crate) fn receive_domain(&self) -> u32 {
        self.srq.as_ref().map_or(self.domain.number(), |srq| srq.domain_number())
    }

    /// Tells the engine whether packets for this queue pair may come from the network.
    pub(crate) fn set_on_network(&self, on: bool) {
        if self.on_network.swap(on, Ordering::AcqRel) != on {
            match on {
                true => self.nic.network_users.fetch_add(1, Ordering::AcqRel),
                false => self.nic.network_users.fetch_sub(1, Ordering::AcqRel),
            };
        }
    }

    fn wait_for_peers(&self) -> Result<()> {
        self.nic.wait_for_hazards(pagewire_iommu::hazards::Revoked::QueuePair(self.place))
    }

    /// Ends the queue pair. When this returns none of its accesses is under way, and its events are acknowledged
    /// (`ibv_destroy_qp(3)`).
    pub fn destroy(self: &Arc<Self>) -> Result<()> {
        let mut qpc = self.lock_core()?;
        self.drive_last(&mut qpc);
        self.reset(&mut qpc);
        drop(qpc);
        self.send_cq.release_slots(self.number);
        self.wait_for_peers()?;
        self.domain.context().withdraw_events(&self.async_events);
        self.inbox.close();
        self.nic.queue_pairs().remove(self);
        self.domain.users.fetch_sub(1, Ordering::AcqRel);
        self.send_cq.users.fetch_sub(1, Ordering::AcqRel);
        self.recv_cq.users.fetch_sub(1, Ordering::AcqRel);
        if let Some(srq) = &self.srq {
            srq.users.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// Refuses more than a queue pair can have.
fn check_capabilities(wanted: &Capabilities) -> Result<()> {
    if wanted.max_send_wr > MAX_WORK_REQUESTS || wanted.max_recv_wr > MAX_WORK_REQUESTS {
        return Err(Error::InvalidArgument("number of work requests"));
    }
    if wanted.max_send_sge > MAX_SEGMENTS || wanted.max_recv_sge > MAX_SEGMENTS {
        return Err(Error::InvalidArgument("number of scatter-gather elements"));
    }
    if wanted.max_inline_data > MAX_INLINE {
        return Err(Error::InvalidArgument("inline data size"));
    }
    Ok(())
}

/// What a local peer may do without asking.
fn granted_by(attributes: &Attributes) -> Rights {
    // Whoever may have no READ outstanding is refused it, also where no packet would ask.
    let reading = Rights::REMOTE_READ | Rights::REMOTE_ATOMIC;
    let withheld = if attributes.max_dest_read_atomic == 0 { reading } else { Rights::empty() };
    attributes.access - withheld
}

/// What the protocol makes of an operation, and the opcode of its completion.
#[inline(always)] // Part of each post, where mostly one of them is left.
pub(crate) fn operation_of(operation: &SendOperation) -> (Operation, Opcode) {
    match *operation {
        SendOperation::Send => (Operation::Send { immediate: None, invalidate: None }, Opcode::Send),
        SendOperation::SendImmediate(data) => {
            (Operation::Send { immediate: Some(data), invalidate: None }, Opcode::Send)
        }
        SendOperation::SendInvalidate(key) => {
            (Operation::Send { immediate: None, invalidate: Some(key) }, Opcode::Send)
        }
        SendOperation::Write { address, key } => {
            (Operation::Write { remote: RemoteAddress { address, key }, immediate: None }, Opcode::Write)
        }
        SendOperation::WriteImmediate { address, key, immediate } => (
            Operation::Write { remote: RemoteAddress { address, key }, immediate: Some(immediate) },
            Opcode::Write,
        ),
        SendOperation::Read { address, key } => {
            (Operation::Read { remote: RemoteAddress { address, key } }, Opcode::Read)
        }
        SendOperation::CompareSwap { address, key, compare, swap } => (
            Operation::Atomic {
                remote: RemoteAddress { address, key },
                atomic: Atomic::CompareSwap { compare, swap },
            },
            Opcode::CompareSwap,
        ),
        SendOperation::FetchAdd { address, key, add } => (
            Operation::Atomic { remote: RemoteAddress { address, key }, atomic: Atomic::FetchAdd { add } },
            Opcode::FetchAdd,
        ),
    }
}

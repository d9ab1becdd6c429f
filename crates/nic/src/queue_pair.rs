//! The state of a queue pair.
//!
//! What the program does with it is in [`api`](crate::api), what it does by itself in [`progress`](crate::progress).
//!
//! Locks, in the order in which a thread takes them:
//! 1. `poll_hint.hinted` of a completion queue. Nobody waits for it.
//! 2. The reading end of a ring. A thread that holds a QP context never waits for it.
//! 3. `qpc`. A thread that drives and finds it taken sets `notes.pending`.
//! 4. One of `shown.attributes`, `shown.path`, `inbox`, `send`, `receives.own`. A thread that holds `send` may take `receives.own`.
//! 5. The writing end of a ring, or the locks of a completion queue.
//!
//! A thread touches application memory under 1 to 3, and under `send` while a short SEND gathers resident bytes.

pub mod attached_counters;
pub mod hello;
pub mod inbox;
pub mod poll_hint;
pub mod qp_context;
pub mod receive_wait;
pub mod receives;
pub mod relay;
pub mod request;
pub mod shared_receive;
pub mod slots;
pub mod xrc;

use crate::access::Claimant;
use crate::completion::{Completion, CompletionOpcode, CompletionQueue, Status};
use crate::path::local::{PublishedQueuePair, publish_holding};
use crate::path::{Path, Paths};
use crate::queue_pair::attached_counters::AttachedCounters;
use crate::queue_pair::inbox::{Inbox, InboxPacket, Incoming};
use crate::queue_pair::poll_hint::{CqBinding, Seeker};
use crate::queue_pair::qp_context::QpContext;
use crate::queue_pair::receives::Receives;
use crate::queue_pair::request::{KeptData, Retired, SendQueue};
use crate::queue_pair::shared_receive::SharedReceiveQueue;
use crate::queue_pair::xrc::XrcQueues;
use crate::services::Services;
use crate::services::counters::QueuePairCounters;
use crate::services::event::{Acknowledgements, AsyncEventKind, EventSource};
use crate::services::protection::ProtectionDomain;
use crate::services::ready::Again;
use crate::services::timers::Schedule;
use crate::services::tombstones::Tombstone;
use crate::types::attributes::{Attributes, QpCapabilities, QpState, QueuePairType};
use crate::types::error::{Error, Result};
use crate::types::limits::REVOCATION_BOUND;
use pagewire_fabric::lock::{Lock, LockGuard, lock_until};
use pagewire_fabric::{AtomicCounter, Fabric};
use pagewire_iommu::{AccessScope, Rights};
use pagewire_transport::timers::acknowledgement_timeout;
use pagewire_transport::{Disposition, DropCause, FaultHandling, RefusalScope, WorkId};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What a queue pair is created with, `Q` being its completion queues.
pub struct QueuePairInit<F: Fabric, Q> {
    pub kind: QueuePairType,
    pub send_cq: Arc<Q>,
    pub recv_cq: Arc<Q>,
    pub srq: Option<Arc<SharedReceiveQueue<F>>>,
    pub capabilities: QpCapabilities,
    /// Every send request makes a completion.
    pub signal_all: bool,
    /// Of type XRC_RECV: the queues that its requests name.
    pub xrc: Option<Arc<XrcQueues<F>>>,
}

/// What a queue pair is, from its creation to its end.
pub struct Properties {
    pub kind: QueuePairType,
    pub number: u32,
    /// Place in the published tables.
    pub place: u32,
    pub capabilities: QpCapabilities,
    /// Every send request makes a completion.
    pub signal_all: bool,
    /// It stands for the queue pair where memory is accessed.
    pub claimant: Claimant,
}

/// What threads that have not the QP context leave for the one that has, and what it has noted for them.
#[derive(Default)]
pub struct QpNotes {
    /// A thread had work and found the QP context taken.
    pub pending: AtomicBool,
    /// Its turn to use what all share has come; see [`send_budget`](crate::services::send_budget).
    pub budget_ready: AtomicBool,
    /// The waits, a bit for each, for which pages were brought in since it was driven.
    pub brought_in: AtomicU64,
    /// With `pending`: a stream was opened or has ended, and that of the queue pair may have lost packets.
    pub streams_changed: AtomicBool,
    /// A request that is executed at its post, and is not kept, has a slot. Set under the lock of `send`.
    pub executing: AtomicBool,
    /// In SQD: what was being sent when it was entered has ended.
    pub drained: AtomicBool,
    /// It went to ERR because it refused a request, and repeats that to a peer that asks again.
    pub repeats_refusal: AtomicBool,
    /// It went to ERR because a completion was lost, and has not been reset.
    pub ended_by_overrun: AtomicBool,
    /// How often rights were taken away, and what peers had begun by them waited for: so many of these times.
    pub withdrawals: AtomicU64,
    pub waited_for: AtomicU64,
}

/// Copies of what the QP context has, for readers that cannot have it, because a thread drives the queue pair.
pub struct QpSnapshot {
    pub attributes: Mutex<Attributes>,
    /// The path and its reason.
    pub path: Mutex<(&'static str, String)>,
}

/// A queue pair: its queues, attributes and protocol. It holds services and paths, never the engine.
pub struct QueuePair<F: Fabric> {
    pub(crate) services: Arc<Services<F>>,
    pub(crate) paths: Arc<Paths<F>>,
    pub(crate) domain: Arc<ProtectionDomain<F>>,
    pub(crate) properties: Properties,
    pub(crate) send_cq: Arc<CqBinding<F>>,
    pub(crate) recv_cq: Arc<CqBinding<F>>,
    pub(crate) receives: Receives<F>,
    /// Of type XRC_RECV.
    pub(crate) xrc: Option<Arc<XrcQueues<F>>>,
    pub(crate) send: Lock<SendQueue<F>>,
    pub(crate) qpc: Arc<Lock<QpContext<F>>>,
    pub(crate) inbox: Inbox<F>,
    pub(crate) notes: QpNotes,
    pub(crate) shown: QpSnapshot,
    pub(crate) schedule: Schedule,
    pub(crate) async_events: Arc<Acknowledgements>,
    pub(crate) counters: QueuePairCounters,
    pub(crate) counted: AttachedCounters<F>,
    /// Of XRC: requests that other processes execute just now.
    pub(crate) relaying: OnceLock<Arc<AtomicU32>>,
    /// The number that completions of messages name; 0: its own.
    reported: AtomicU32,
    /// It raises no events.
    is_silent: AtomicBool,
    /// Copies of `attributes.state` and `attributes.destination`, for a look without a lock.
    state: AtomicU32,
    peer: AtomicU32,
    /// How often it was reset.
    resets: AtomicU32,
    /// A refused request ends alone; see [`set_refusal_scope`](Self::set_refusal_scope).
    refusal_ends_request: AtomicBool,
    /// Counted among those that need the network to be polled.
    on_network: AtomicBool,
    /// A completion found its queue overrun.
    overran: AtomicBool,
    cookie: AtomicU64,
}

impl<F: Fabric> QueuePair<F> {
    /// A queue pair in RESET, with its number and place.
    pub(crate) fn new(
        domain: Arc<ProtectionDomain<F>>,
        paths: Arc<Paths<F>>,
        (number, place): (u32, u32),
        init: QueuePairInit<F, CqBinding<F>>,
    ) -> Arc<Self> {
        let (services, capabilities) = (domain.services().clone(), init.capabilities);
        let device = domain.context().device().name.clone();
        domain.users.fetch_add(1, Ordering::AcqRel);
        init.send_cq.users.fetch_add(1, Ordering::AcqRel);
        init.recv_cq.users.fetch_add(1, Ordering::AcqRel);
        if let Some(srq) = &init.srq {
            srq.users.fetch_add(1, Ordering::AcqRel);
        }
        let claimant = Claimant { place, number, device, page_waits: AtomicCounter::default() };
        let properties = Properties {
            kind: init.kind,
            number,
            place,
            capabilities,
            signal_all: init.signal_all,
            claimant,
        };
        Arc::new(QueuePair {
            properties,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            receives: Receives::new(init.srq, capabilities.max_recv_wr),
            xrc: init.xrc,
            send: Lock::new(SendQueue::new()),
            qpc: Arc::new(Lock::new(QpContext::default())),
            inbox: Inbox::new(services.fabric.tables().clone(), place),
            notes: QpNotes::default(),
            shown: QpSnapshot { attributes: Mutex::default(), path: Mutex::new(("none", String::new())) },
            schedule: Schedule::new(number),
            async_events: Arc::default(),
            counters: QueuePairCounters::default(),
            counted: AttachedCounters::default(),
            relaying: OnceLock::new(),
            reported: AtomicU32::new(0),
            is_silent: AtomicBool::new(false),
            state: AtomicU32::new(QpState::Reset as u32),
            peer: AtomicU32::new(0),
            resets: AtomicU32::new(0),
            refusal_ends_request: AtomicBool::new(false),
            on_network: AtomicBool::new(false),
            overran: AtomicBool::new(false),
            cookie: AtomicU64::new(0),
            services,
            paths,
            domain,
        })
    }

    /// What events name this queue pair by.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    /// What a request that the responder refuses ends, from the next connection (INIT to RTR) on. Both ends must have agreed on anything but
    /// [`RefusalScope::Connection`], which is what the specification says.
    pub fn set_refusal_scope(&self, scope: RefusalScope) {
        self.refusal_ends_request.store(scope == RefusalScope::Request, Ordering::Relaxed);
    }

    pub(crate) fn refusal_scope(&self) -> RefusalScope {
        match self.refusal_ends_request.load(Ordering::Relaxed) {
            true => RefusalScope::Request,
            false => RefusalScope::Connection,
        }
    }

    /// Completions of messages name this number from now on, in the place of its own: it executes what has come to that queue pair in another
    /// process.
    pub fn report_as(&self, number: u32) {
        self.reported.store(number, Ordering::Relaxed);
    }

    /// Whether it raises events from now on. One that the program has no structure of raises none.
    pub fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Release);
    }

    /// The number that completions of messages name.
    pub(crate) fn reported_number(&self) -> u32 {
        match self.reported.load(Ordering::Relaxed) {
            0 => self.properties.number,
            reported => reported,
        }
    }

    /// State now.
    pub fn state(&self) -> QpState {
        QpState::from_repr(self.state.load(Ordering::Acquire)).unwrap_or(QpState::Error)
    }

    /// How often it was reset. Its requests end with each time.
    pub fn resets(&self) -> u32 {
        self.resets.load(Ordering::Acquire)
    }

    /// Number of the queue pair that it is connected to.
    pub(crate) fn peer(&self) -> u32 {
        self.peer.load(Ordering::Acquire)
    }

    /// After a look at the QP context: a thread that had work and found the QP context taken left the work to whoever held it. Not done
    /// here: where a program posts without a pause, that would have no end.
    pub(crate) fn pass_on_pending(self: &Arc<Self>) {
        if self.is_wanted() {
            self.services.ready(&self.schedule, Again::Soon);
        }
    }

    /// After the QP context was given up: whether others have found it taken meanwhile, and left work to whoever had it.
    pub(crate) fn is_wanted(&self) -> bool {
        fence(Ordering::SeqCst);
        self.notes.pending.load(Ordering::SeqCst)
    }

    pub(crate) fn raise(&self, kind: AsyncEventKind) {
        if self.is_silent.load(Ordering::Acquire) {
            return;
        }
        let element = EventSource::QueuePair { cookie: self.cookie.load(Ordering::Relaxed) };
        self.domain.context().raise(kind, element, &self.async_events);
    }

    /// The QP context, waiting a bounded time for a thread that may be stuck at an absent page.
    pub(crate) fn lock_qpc(&self) -> Result<LockGuard<'_, QpContext<F>>> {
        lock_until(&self.qpc, Instant::now() + Duration::from_nanos(REVOCATION_BOUND))
            .ok_or(Error::Busy("an access of the queue pair waits for a page"))
    }

    /// Puts a copy of a packet into the inbox, if its bytes can be read, and there is space.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    pub(crate) fn keep_copy(&self, packet: &Incoming<'_, F>) -> Disposition {
        match packet.keep() {
            Some(kept) => self.keep(kept),
            None => self.counters.drop_packet(DropCause::SenderUnreadable),
        }
    }

    /// Puts a packet into the inbox, if there is space.
    pub(crate) fn keep(&self, packet: InboxPacket<F>) -> Disposition {
        match self.inbox.push(packet) {
            true => Disposition::Kept,
            false => self.counters.drop_packet(DropCause::NoSpace),
        }
    }

    /// What becomes of its packets that find a page absent.
    pub(crate) fn fault_handling(&self) -> FaultHandling {
        self.services.options.page_faults.of(&self.domain.context().device().name)
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
        *self.shown.attributes.lock() = attributes;
        self.peer.store(attributes.destination, Ordering::Release);
    }

    /// The peer was heard from: the program is told, once, if it has not been at RTS yet (COMM_EST).
    pub(crate) fn establish_communication(&self, qpc: &mut QpContext<F>) {
        if qpc.communicates || qpc.attributes.state != QpState::ReadyToReceive {
            return;
        }
        qpc.communicates = true;
        self.publish(qpc);
        self.raise(AsyncEventKind::CommunicationEstablished);
    }

    /// As what requests of its peer come, for the check of their keys.
    #[inline(always)] // Part of every access.
    pub(crate) fn scope(&self) -> AccessScope {
        AccessScope { domain: self.domain.number(), queue_pair: self.properties.number }
    }

    /// What a local peer may do without asking.
    pub(crate) fn granted_by(&self, attributes: &Attributes) -> Rights {
        // Whoever may have no READ outstanding is refused it, also where no packet would ask.
        let reading = Rights::REMOTE_READ | Rights::REMOTE_ATOMIC;
        let withheld = if attributes.max_dest_read_atomic == 0 { reading } else { Rights::empty() };
        attributes.access - withheld - self.counted.withheld_rights()
    }

    fn publish(&self, qpc: &QpContext<F>) {
        let attributes = &qpc.attributes;
        let published = PublishedQueuePair {
            number: self.properties.number,
            receptive: attributes.state.receives() && self.properties.kind != QueuePairType::Ud,
            rights: self.granted_by(attributes),
            unestablished: attributes.state == QpState::ReadyToReceive && !qpc.communicates,
            destination: attributes.destination,
            domain: self.domain.number(),
            receive_psn: attributes.receive_psn,
        };
        published.publish(self.services.fabric.tables(), self.properties.place);
    }

    /// What was refused is not repeated any more.
    pub(crate) fn end_refusal(&self, qpc: &mut QpContext<F>) {
        if !self.notes.repeats_refusal.swap(false, Ordering::AcqRel) {
            return;
        }
        let nak = qpc.refused.as_ref().and_then(|refused| refused.refusal_to_keep());
        if let (Some(nak), Path::Network { route, .. }) = (nak, qpc.path()) {
            let attributes = &qpc.attributes;
            let budget = acknowledgement_timeout(attributes.timeout)
                .map(|timeout| timeout.saturating_mul(u64::from(attributes.retry_count) + 1));
            let now = self.services.fabric.now();
            self.services.tombstones.add(Tombstone::new(self.properties.number, *route, nak, now, budget));
        }
        qpc.end_refusal();
    }

    pub(crate) fn reset(&self, qpc: &mut QpContext<F>) {
        self.end_refusal(qpc);
        self.announce_arrived(qpc);
        self.resets.fetch_add(1, Ordering::AcqRel);
        self.end_holding(qpc);
        if let (Some(_), Some(srq)) = (qpc.receive.take(), &self.receives.srq) {
            // A message was being placed: its receive is used up without a completion.
            srq.completed();
        }
        self.leave_budget(qpc);
        self.send_cq.poll_hint.leave(self.properties.number);
        self.recv_cq.poll_hint.leave(self.properties.number);
        if let Path::Local(channel) = qpc.path() {
            channel.forget_awaited(self.properties.number);
        }
        qpc.reset(self);
        self.set_on_network(false);
        let old = {
            let mut send = self.send.lock();
            self.state.store(QpState::Reset as u32, Ordering::Release);
            std::mem::replace(&mut *send, SendQueue::new())
        };
        drop(old);
        self.receives.own.lock().clear();
        self.inbox.clear();
        self.schedule.deadline.store(u64::MAX, Ordering::Release);
        self.notes.ended_by_overrun.store(false, Ordering::Release);
        self.set_attributes(qpc, Attributes::default());
    }

    /// Ends the protocol and flushes both queues. Posts see the new state only then: until then they are kept, and flushed
    /// behind what was posted before: the requests of one queue complete in order.
    pub(crate) fn enter_error(&self, qpc: &mut QpContext<F>) {
        let attributes = Attributes { state: QpState::Error, ..qpc.attributes };
        self.announce_arrived(qpc);
        self.store_attributes(qpc, attributes);
        self.publish(qpc);
        qpc.stop();
        self.give_up_relays();
        qpc.relays = None;
        self.leave_budget(qpc);
        // What waited for a page is dropped: peers must take silence for silence from now on.
        self.end_holding(qpc);
        self.schedule.deadline.store(u64::MAX, Ordering::Release);
        if matches!(qpc.path(), Path::Local(_)) {
            // A receiver may be pulling from buffers that the flush gives back to the program. One that is stopped in the
            // middle of it is waited for no longer than the bound; when it goes on it finds this queue pair in the error state,
            // and drops what it has read.
            if let Err(error) = self.wait_for_hazards() {
                log::warn!(
                    "queue pair {}: flushed while its peer still reads a message: {error}",
                    self.properties.number
                );
            }
        }
        self.complete_window_work(matches!(qpc.path(), Path::Local(_)));
        let mut send = self.send.lock();
        let mut receive = self.receives.own.lock();
        self.state.store(QpState::Error as u32, Ordering::Release);
        self.flush_send(&mut send);
        drop(send);
        if let Some(current) = qpc.receive.take() {
            let mut queue = qpc.receive_queue.take();
            match (&mut queue, &self.receives.srq) {
                (Some(queue), _) => queue.end_receive(),
                (None, Some(srq)) => srq.completed(),
                (None, None) => receive.completed(),
            }
            self.announce_receive(
                queue.as_ref().map_or(&*self.recv_cq, |queue| &**queue.completion_queue()),
                Completion::new(
                    self.reported_number(),
                    current.wr_id,
                    CompletionOpcode::Receive,
                    Status::Flushed,
                ),
            );
        }
        while let Some(work) = receive.take() {
            receive.completed();
            self.announce_receive(
                &self.recv_cq,
                Completion::new(
                    self.properties.number,
                    work.wr_id,
                    CompletionOpcode::Receive,
                    Status::Flushed,
                ),
            );
        }
        drop(receive);
        self.inbox.clear();
        if self.receives.srq.is_some() {
            self.raise(AsyncEventKind::LastWorkRequestReached);
        }
    }

    /// Lets local peers see that silence means waiting: a request does.
    pub(crate) fn set_holding(&self, qpc: &mut QpContext<F>, holding: bool) {
        qpc.holding_request = holding;
        self.publish_holding(qpc);
    }

    /// Neither requests nor responses wait any more.
    pub(crate) fn end_holding(&self, qpc: &mut QpContext<F>) {
        (qpc.holding_request, qpc.holding_response) = (false, false);
        self.publish_holding(qpc);
    }

    pub(crate) fn publish_holding(&self, qpc: &mut QpContext<F>) {
        let holding = qpc.holding_request || qpc.holding_response;
        if qpc.holding != holding {
            qpc.holding = holding;
            publish_holding(self.services.fabric.tables(), self.properties.place, holding);
        }
    }

    /// Gives back what the queue pair used of what all share.
    pub(crate) fn leave_budget(&self, qpc: &mut QpContext<F>) {
        if self.services.send_budget.leave(&mut qpc.budget_use) {
            self.services.wake();
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
            && !matches!(self.state(), QpState::Reset | QpState::Error)
        {
            self.notes.ended_by_overrun.store(true, Ordering::Release);
            self.enter_error(qpc);
            self.raise(AsyncEventKind::QueuePairFatal);
        }
    }

    /// A UC or UD queue pair whose send failed: only its send queue stops.
    pub(crate) fn enter_send_queue_error(&self, qpc: &mut QpContext<F>) {
        let attributes = Attributes { state: QpState::SendQueueError, ..qpc.attributes };
        self.store_attributes(qpc, attributes);
        self.publish(qpc);
        let mut send = self.send.lock();
        self.state.store(QpState::SendQueueError as u32, Ordering::Release);
        self.flush_send(&mut send);
    }

    /// The oldest request, if it has ended a key already and only waits until nobody accesses anything by it, succeeds: it is
    /// often this very invalidation for which the peer's next request is refused, and with it the queue pair.
    fn complete_window_work(&self, may_wait: bool) {
        let (id, work) = {
            let send = self.send.lock();
            match send.get(send.oldest()).map(|oldest| &oldest.data) {
                Some(KeptData::Window(work)) => (send.oldest(), *work),
                _ => return,
            }
        };
        if !self.services.finish_window_work(&work, self.scope(), may_wait) {
            return;
        }
        let retired = self.send.lock().retire(id);
        if let Some(work) = retired.filter(|work| work.signaled) {
            self.announce(
                &self.send_cq,
                Completion::of_send(self.properties.number, work.wr_id, work.opcode, Status::Success),
            );
        }
    }

    fn flush_send(&self, send: &mut SendQueue<F>) {
        while let Some(work) = send.retire(WorkId(u64::MAX)) {
            self.count_send(&work, Status::Flushed);
            self.announce(
                &self.send_cq,
                Completion::of_send(self.properties.number, work.wr_id, work.opcode, Status::Flushed),
            );
        }
    }

    /// Whether the send queue has a free slot.
    #[inline(always)] // Part of each post.
    pub(crate) fn has_send_slot(&self, send: &SendQueue<F>) -> bool {
        self.has_send_slots(send, 1)
    }

    /// Whether so many more requests have slots.
    #[inline(always)] // Part of each post.
    pub(crate) fn has_send_slots(&self, send: &SendQueue<F>, count: usize) -> bool {
        let used = send.outstanding() + usize::from(self.notes.executing.load(Ordering::Acquire));
        let slots = self.properties.capabilities.max_send_wr as usize;
        // Mostly all that waits in the queue would have slots.
        used + self.send_cq.waiting() + count <= slots
            || used + self.send_cq.unpolled_sends(self.properties.number) + count <= slots
    }

    /// Tells of the messages by XRC whose acknowledgements have left.
    #[cold]
    pub(crate) fn announce_arrived(&self, qpc: &mut QpContext<F>) {
        for (queue, completion) in qpc.arrived.drain(..) {
            self.announce(queue.completion_queue(), completion);
        }
    }

    pub(crate) fn complete_receive(&self, completion: Completion) {
        self.receives.completed();
        self.announce_receive(&self.recv_cq, completion);
    }

    /// Adds the completion of a receive, which counters count before it can be polled.
    pub(crate) fn announce_receive(&self, queue: &CompletionQueue<F>, completion: Completion) {
        self.counted.count(completion.opcode, completion.byte_length, completion.status);
        self.announce(queue, completion);
    }

    /// Counts a send request that ends, before its completion can be polled.
    #[inline(always)] // Part of each completion.
    fn count_send(&self, work: &Retired, status: Status) {
        self.counted.count(work.opcode, work.length, status);
    }

    /// Completes send requests through `through`; `status` is that of the last.
    pub(crate) fn complete_send(&self, through: WorkId, status: Status) {
        self.complete_send_for(None, through, status);
    }

    /// Completes send requests before `id`, and ends that one without success. Its completion says how many bytes have landed.
    #[cold]
    pub(crate) fn end_send(&self, id: WorkId, status: Status, landed: u32) {
        if let Some(before) = id.0.checked_sub(1) {
            self.complete_send(WorkId(before), Status::Success);
        }
        let mut send = self.send.lock();
        if let Some(work) = send.retire(id) {
            self.count_send(&work, status);
            let completion = Completion::of_send(self.properties.number, work.wr_id, work.opcode, status);
            self.announce(&self.send_cq, Completion { byte_length: landed, ..completion });
        }
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
            self.count_send(&work, status);
            if work.signaled || status != Status::Success {
                let byte_length = match work.opcode {
                    CompletionOpcode::Read | CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd => {
                        work.length
                    }
                    _ => 0,
                };
                self.announce_to(seeker.as_deref_mut(), &self.send_cq, || Completion {
                    byte_length,
                    ..Completion::of_send(self.properties.number, work.wr_id, work.opcode, status)
                });
            }
        }
    }

    /// Whether packets for this queue pair may come from the network.
    pub(crate) fn is_on_network(&self) -> bool {
        self.on_network.load(Ordering::Acquire)
    }

    /// Tells the engine whether they may.
    pub(crate) fn set_on_network(&self, on: bool) {
        if self.on_network.swap(on, Ordering::AcqRel) != on {
            match on {
                true => self.services.network_users.fetch_add(1, Ordering::AcqRel),
                false => self.services.network_users.fetch_sub(1, Ordering::AcqRel),
            };
        }
    }

    /// The queue pair has left the states in which it works: gives up what other processes execute for it, and waits until no peer accesses
    /// memory by it.
    pub(crate) fn end_accesses(&self) -> Result<()> {
        self.give_up_relays();
        self.wait_for_peers()
    }

    /// Waits until nobody is at an access that was begun before.
    pub(crate) fn wait_for_peers(&self) -> Result<()> {
        self.wait_for_relays()?;
        self.wait_for_hazards()
    }

    /// Waits until no local peer is at an access that was begun before.
    fn wait_for_hazards(&self) -> Result<()> {
        self.services.wait_for_hazards(pagewire_iommu::hazards::Revoked::QueuePair(self.properties.place))
    }
}

impl<F: Fabric> QueuePair<F> {
    /// Whether another process executes a request that came to this queue pair.
    fn is_relaying(&self) -> bool {
        self.relaying.get().is_some_and(|count| count.load(Ordering::Acquire) != 0)
    }

    /// Has other processes end what they execute for this queue pair. Does not wait.
    fn give_up_relays(&self) {
        let shared = self.xrc.as_ref().and_then(|queues| queues.shared());
        if let Some(shared) = shared.filter(|_| self.is_relaying()) {
            shared.sharing.give_up(self.properties.number);
        }
    }

    /// Waits until none does.
    fn wait_for_relays(&self) -> Result<()> {
        if !self.is_relaying() {
            return Ok(());
        }
        let fabric = &self.services.fabric;
        let until = fabric.now() + REVOCATION_BOUND;
        while self.is_relaying() {
            if fabric.now() >= until {
                return Err(Error::Busy("another process executes a request that came to the queue pair"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

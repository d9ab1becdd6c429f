//! Shared receive queues.

use crate::queue_pair::poll_hint::CqBinding;
use crate::queue_pair::request::{ReceiveQueue, ReceiveRequest, ReceiveWork, WholeReceive};
use crate::queue_pair::xrc::XrcQueues;
use crate::services::context::Context;
use crate::services::event::{Acknowledgements, AsyncEventKind, EventSource};
use crate::services::protection::ProtectionDomain;
use crate::types::error::{Error, Result, busy_if, invalid_if};
use crate::types::limits::{MAX_SEGMENTS, MAX_WORK_REQUESTS, REVOCATION_BOUND};
use pagewire_fabric::Fabric;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a shared receive queue is created with.
#[derive(Debug, Clone, Copy)]
pub struct SharedReceiveInit {
    pub max_wr: u32,
    pub max_sge: u32,
    pub limit: u32,
}

struct SrqState {
    queue: ReceiveQueue,
    max_wr: u32,
    /// Armed limit; 0: none.
    limit: u32,
}

/// Receives that several queue pairs take from.
pub struct SharedReceiveQueue<F: Fabric> {
    domain: Arc<ProtectionDomain<F>>,
    shared: Mutex<SrqState>,
    max_sge: u32,
    cookie: AtomicU64,
    pub(crate) users: AtomicU32,
    async_events: Arc<Acknowledgements>,
    xrc: Option<XrcMembership<F>>,
}

/// What a shared receive queue of an XRC domain has besides.
pub(crate) struct XrcMembership<F: Fabric> {
    pub queues: Arc<XrcQueues<F>>,
    pub number: u32,
    /// Where its messages complete.
    pub completion_queue: Arc<CqBinding<F>>,
}

impl<F: Fabric> SharedReceiveQueue<F> {
    /// `ibv_create_srq(3)`.
    pub fn create(domain: &Arc<ProtectionDomain<F>>, init: &SharedReceiveInit) -> Result<Arc<Self>> {
        SharedReceiveQueue::create_in(domain, init, None)
    }

    /// As [`create`](Self::create), of an XRC domain.
    pub(crate) fn create_in(
        domain: &Arc<ProtectionDomain<F>>,
        init: &SharedReceiveInit,
        xrc: Option<XrcMembership<F>>,
    ) -> Result<Arc<Self>> {
        let domain = domain.clone();
        invalid_if(
            init.max_wr == 0
                || init.max_wr > MAX_WORK_REQUESTS
                || init.max_sge > MAX_SEGMENTS
                || init.limit > init.max_wr,
            "shared receive queue attributes",
        )?;
        domain.services().counts.shared_receive_queues.take("shared receive queues")?;
        domain.users.fetch_add(1, Ordering::AcqRel);
        if let Some(xrc) = &xrc {
            xrc.completion_queue.users.fetch_add(1, Ordering::AcqRel);
        }
        let queue = Arc::new(SharedReceiveQueue {
            domain,
            xrc,
            shared: Mutex::new(SrqState {
                queue: ReceiveQueue::new(init.max_wr),
                max_wr: init.max_wr,
                limit: init.limit,
            }),
            max_sge: init.max_sge.max(1),
            cookie: AtomicU64::new(0),
            users: AtomicU32::new(0),
            async_events: Arc::default(),
        });
        if let Some(xrc) = &queue.xrc {
            xrc.queues.insert(xrc.number, queue.clone());
        }
        Ok(queue)
    }

    /// Its number, by which requests of XRC name it; `None`: it is of no XRC domain.
    pub fn number(&self) -> Option<u32> {
        self.xrc.as_ref().map(|xrc| xrc.number)
    }

    /// Takes the oldest receive for a message of an extended reliable connection, and the use of the queue until the message is complete.
    pub(crate) fn take_for_xrc(self: &Arc<Self>) -> Option<(ReceiveWork, QueueInUse<F>)> {
        let completion_queue = self.xrc.as_ref()?.completion_queue.clone();
        let mut shared = self.shared.lock();
        let work = shared.queue.take()?;
        // Under the lock: who ends the queue sees either the receive or its use.
        self.users.fetch_add(1, Ordering::AcqRel);
        self.check_limit(shared);
        Some((work, QueueInUse { queue: self.clone(), completion_queue, has_receive: true }))
    }

    /// What events name this queue by.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    pub(crate) fn context(&self) -> &Arc<Context<F>> {
        self.domain.context()
    }

    pub(crate) fn domain_number(&self) -> u32 {
        self.domain.number()
    }

    /// Asynchronous events that the program was given (`ibv_ack_async_event(3)`).
    pub fn async_events(&self) -> &Acknowledgements {
        &self.async_events
    }

    /// Current attributes (`ibv_query_srq(3)`).
    pub fn query(&self) -> SharedReceiveInit {
        let shared = self.shared.lock();
        SharedReceiveInit { max_wr: shared.max_wr, max_sge: self.max_sge, limit: shared.limit }
    }

    /// Changes the size or arms the limit (`ibv_modify_srq(3)`).
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<()> {
        let mut shared = self.shared.lock();
        let new_max = max_wr.unwrap_or(shared.max_wr);
        let is_above = limit.is_some_and(|limit| limit > new_max);
        invalid_if(
            is_above || !(1..=MAX_WORK_REQUESTS).contains(&new_max),
            "shared receive queue attributes",
        )?;
        invalid_if(!shared.queue.set_capacity(new_max), "more receives are posted than the new size holds")?;
        shared.max_wr = new_max;
        if let Some(limit) = limit {
            shared.limit = limit;
        }
        self.check_limit(shared);
        Ok(())
    }

    /// `ibv_post_srq_recv(3)`.
    pub fn post(&self, request: &ReceiveRequest<'_>) -> Result<()> {
        invalid_if(request.segments.len() > self.max_sge as usize, "too many scatter-gather elements")?;
        let is_pushed = self.shared.lock().queue.push(request);
        is_pushed.then_some(()).ok_or(Error::NoMemory("the shared receive queue is full"))
    }

    pub(crate) fn take(&self) -> Option<ReceiveWork> {
        let mut shared = self.shared.lock();
        let work = shared.queue.take();
        self.check_limit(shared);
        work
    }

    /// See [`ReceiveQueue::take_whole`].
    pub(crate) fn take_whole(&self, length: u32) -> Option<WholeReceive> {
        let mut shared = self.shared.lock();
        let work = shared.queue.take_whole(length);
        self.check_limit(shared);
        work
    }

    /// See [`ReceiveQueue::count_as_taken`].
    pub(crate) fn count_as_taken(&self) {
        self.shared.lock().queue.count_as_taken();
    }

    pub(crate) fn has_receive(&self) -> bool {
        self.shared.lock().queue.waiting() > 0
    }

    pub(crate) fn completed(&self) {
        self.shared.lock().queue.completed();
    }

    /// Fires the limit event once, strictly below the limit.
    fn check_limit(&self, mut shared: parking_lot::MutexGuard<'_, SrqState>) {
        if shared.limit != 0 && shared.queue.waiting() < shared.limit as usize {
            shared.limit = 0;
            drop(shared);
            self.raise(AsyncEventKind::SharedReceiveQueueLimitReached);
        }
    }

    /// Raises an event of the queue though there is no cause (`IBV_EVENT_SRQ_ERR`, `IBV_EVENT_SRQ_LIMIT_REACHED`).
    pub fn raise(&self, kind: AsyncEventKind) {
        let element = EventSource::SharedReceiveQueue { cookie: self.cookie.load(Ordering::Relaxed) };
        self.domain.context().raise(kind, element, &self.async_events);
    }

    /// Refused while a queue pair uses it, else waits until its events are acknowledged (`ibv_destroy_srq(3)`). Of an XRC domain also refused
    /// if a message is being placed into one of its receives, and is not complete in time.
    pub fn destroy(&self) -> Result<()> {
        if self.xrc.is_some() {
            self.end_receives()?;
        }
        busy_if(self.users.load(Ordering::Acquire) != 0, "a queue pair uses the shared receive queue")?;
        if let Some(xrc) = &self.xrc {
            xrc.queues.remove(xrc.number);
            xrc.completion_queue.users.fetch_sub(1, Ordering::AcqRel);
        }
        self.domain.context().withdraw_events(&self.async_events);
        self.domain.services().counts.shared_receive_queues.give_back();
        self.domain.users.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Takes its receives away from messages that come, and waits for those that have one.
    fn end_receives(&self) -> Result<()> {
        let mut shared = self.shared.lock();
        shared.queue.clear();
        shared.limit = 0;
        drop(shared);
        let fabric = &self.domain.services().fabric;
        let until = fabric.now() + REVOCATION_BOUND;
        while self.users.load(Ordering::Acquire) != 0 && fabric.now() < until {
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// The use that a message has of the shared receive queue of an XRC domain: the queue, and where its messages complete, stay until it ends.
pub struct QueueInUse<F: Fabric> {
    queue: Arc<SharedReceiveQueue<F>>,
    completion_queue: Arc<CqBinding<F>>,
    /// Whether the receive of the message still has its place in the queue.
    has_receive: bool,
}

impl<F: Fabric> QueueInUse<F> {
    /// Where the message completes.
    pub(crate) fn completion_queue(&self) -> &Arc<CqBinding<F>> {
        &self.completion_queue
    }

    /// The protection domain of its receives.
    pub(crate) fn domain_number(&self) -> u32 {
        self.queue.domain_number()
    }

    /// Gives the receive's place back. Comes before the completion: who sees that may post the next receive at once.
    pub(crate) fn end_receive(&mut self) {
        if std::mem::take(&mut self.has_receive) {
            self.queue.completed();
        }
    }
}

impl<F: Fabric> Drop for QueueInUse<F> {
    fn drop(&mut self) {
        self.end_receive();
        self.queue.users.fetch_sub(1, Ordering::AcqRel);
    }
}

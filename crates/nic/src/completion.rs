//! Completion queues and completion channels.

use crate::context::Context;
use crate::engine::Nic;
use crate::error::{Error, Result};
use crate::event::{Acknowledgements, AsyncEventKind, Element, EventQueue, Notifier};
use crate::limits::{MAX_COMPLETION_EVENTS, MAX_COMPLETIONS};
use pagewire_fabric::Fabric;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How a work request ended (values of `enum ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    Success = 0,
    LocalLength = 1,
    LocalQpOperation = 2,
    LocalProtection = 4,
    Flushed = 5,
    BadResponse = 7,
    RemoteInvalidRequest = 9,
    RemoteAccess = 10,
    RemoteOperation = 11,
    RetryExceeded = 12,
    RnrRetryExceeded = 13,
}

impl From<pagewire_transport::Status> for Status {
    fn from(status: pagewire_transport::Status) -> Self {
        use pagewire_transport::Status as Protocol;
        match status {
            Protocol::Success => Status::Success,
            Protocol::LocalLength => Status::LocalLength,
            Protocol::LocalQpOperation => Status::LocalQpOperation,
            Protocol::LocalProtection => Status::LocalProtection,
            Protocol::BadResponse => Status::BadResponse,
            Protocol::RemoteInvalidRequest => Status::RemoteInvalidRequest,
            Protocol::RemoteAccess => Status::RemoteAccess,
            Protocol::RemoteOperation => Status::RemoteOperation,
            Protocol::RetryExceeded => Status::RetryExceeded,
            Protocol::RnrRetryExceeded => Status::RnrRetryExceeded,
        }
    }
}

/// What a completion is of (values of `enum ibv_wc_opcode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Opcode {
    Send = 0,
    Write = 1,
    Read = 2,
    CompareSwap = 3,
    FetchAdd = 4,
    Receive = 128,
    ReceiveWriteImmediate = 129,
}

/// One work completion (`struct ibv_wc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    pub wr_id: u64,
    pub status: Status,
    pub opcode: Opcode,
    pub byte_length: u32,
    /// Immediate data, as the big-endian value on the wire reads.
    pub immediate: Option<u32>,
    /// The key that a SEND with invalidate made invalid.
    pub invalidated: Option<u32>,
    /// Local queue pair number.
    pub queue_pair: u32,
    /// The sender's, for UD.
    pub source_queue_pair: u32,
    /// The first 40 bytes of the buffer hold a GRH (UD).
    pub grh: bool,
    /// A solicited event, or an error.
    pub solicited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

struct Queue {
    entries: VecDeque<Completion>,
    capacity: usize,
    armed: Armed,
    overrun: bool,
}

/// A completion queue.
pub struct CompletionQueue<F: Fabric> {
    nic: Arc<Nic<F>>,
    context: Arc<Context<F>>,
    channel: Option<Arc<CompletionChannel>>,
    queue: Mutex<Queue>,
    cookie: AtomicU64,
    pub(crate) users: AtomicU32,
    completion_events: Arc<Acknowledgements>,
    async_events: Arc<Acknowledgements>,
}

impl<F: Fabric> CompletionQueue<F> {
    pub(crate) fn new(
        context: Arc<Context<F>>,
        entries: u32,
        channel: Option<Arc<CompletionChannel>>,
    ) -> Result<Arc<Self>> {
        if entries == 0 || entries > MAX_COMPLETIONS {
            return Err(Error::InvalidArgument("number of completion queue entries"));
        }
        context.nic().counts.completion_queues.take("completion queues")?;
        if let Some(channel) = &channel {
            channel.users.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Arc::new(CompletionQueue {
            nic: context.nic().clone(),
            context,
            channel,
            queue: Mutex::new(Queue {
                entries: VecDeque::with_capacity((entries as usize).min(4096)),
                capacity: entries as usize,
                armed: Armed::No,
                overrun: false,
            }),
            cookie: AtomicU64::new(0),
            users: AtomicU32::new(0),
            completion_events: Arc::default(),
            async_events: Arc::default(),
        }))
    }

    /// What events name this queue by.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    pub(crate) fn context(&self) -> &Arc<Context<F>> {
        &self.context
    }

    fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    /// Entries that fit.
    pub fn entries(&self) -> u32 {
        self.queue.lock().capacity as u32
    }

    /// Hands over at most `max` completions, oldest first, and gives how many (`ibv_poll_cq(3)`). With none
    /// there the calling thread does the NIC's work for a moment.
    pub fn poll(&self, max: usize, each: &mut dyn FnMut(&Completion)) -> usize {
        let found = self.take(max, each);
        if found > 0 {
            return found;
        }
        self.nic.progress_by_poller();
        self.take(max, each)
    }

    fn take(&self, max: usize, each: &mut dyn FnMut(&Completion)) -> usize {
        let mut found = 0;
        while found < max {
            // The lock is not held while `each` writes to the program's memory.
            let Some(completion) = self.queue.lock().entries.pop_front() else { break };
            each(&completion);
            found += 1;
        }
        found
    }

    /// Asks for one event at the next completion, or at the next solicited or failed one (`ibv_req_notify_cq(3)`).
    pub fn arm(&self, solicited_only: bool) {
        let mut queue = self.queue.lock();
        let before = queue.armed;
        queue.armed = match (before, solicited_only) {
            (Armed::Any, _) | (_, false) => Armed::Any,
            _ => Armed::Solicited,
        };
        drop(queue);
        if before == Armed::No && self.channel.is_some() {
            self.nic.expect_sleeper();
        }
    }

    /// Adds a completion. False: it is lost, as the queue is or was overrun; nothing is added to it any more.
    pub(crate) fn push(&self, completion: Completion) -> bool {
        let mut queue = self.queue.lock();
        if queue.overrun || queue.entries.len() >= queue.capacity {
            let first = !std::mem::replace(&mut queue.overrun, true);
            drop(queue);
            if first {
                log::debug!("completion queue overrun");
                self.context.raise(
                    AsyncEventKind::CompletionQueueError,
                    Element::CompletionQueue { cookie: self.cookie() },
                    &self.async_events,
                );
            }
            return false;
        }
        let wanted = match queue.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => completion.solicited || completion.status != Status::Success,
        };
        queue.entries.push_back(completion);
        if wanted {
            queue.armed = Armed::No;
        }
        drop(queue);
        if let Some(channel) = self.channel.as_ref().filter(|_| wanted) {
            self.nic.sleeper_woken();
            channel.raise(self.cookie(), &self.completion_events);
        }
        true
    }

    /// Forgets what waits of a queue pair.
    pub(crate) fn forget(&self, queue_pair: u32) {
        self.queue.lock().entries.retain(|completion| completion.queue_pair != queue_pair);
    }

    /// Changes the number of entries (`ibv_resize_cq(3)`).
    pub fn resize(&self, entries: u32) -> Result<()> {
        if entries == 0 || entries > MAX_COMPLETIONS {
            return Err(Error::InvalidArgument("number of completion queue entries"));
        }
        let mut queue = self.queue.lock();
        if queue.entries.len() > entries as usize {
            return Err(Error::InvalidArgument("more completions are waiting than the new size holds"));
        }
        queue.capacity = entries as usize;
        Ok(())
    }

    /// Completion events that the program was given (`ibv_ack_cq_events(3)`).
    pub fn completion_events(&self) -> &Acknowledgements {
        &self.completion_events
    }

    /// Asynchronous events that the program was given (`ibv_ack_async_event(3)`).
    pub fn async_events(&self) -> &Acknowledgements {
        &self.async_events
    }

    /// Destroys the queue; waits until its events are acknowledged (`ibv_destroy_cq(3)`).
    pub fn destroy(&self) -> Result<()> {
        if self.users.load(Ordering::Acquire) != 0 {
            return Err(Error::Busy("a queue pair uses the completion queue"));
        }
        if let Some(channel) = &self.channel {
            if std::mem::replace(&mut self.queue.lock().armed, Armed::No) != Armed::No {
                self.nic.sleeper_woken();
            }
            channel.events.settle(&self.completion_events);
            channel.users.fetch_sub(1, Ordering::AcqRel);
        }
        self.context.settle_events(&self.async_events);
        self.nic.counts.completion_queues.give_back();
        Ok(())
    }
}

/// Where completion queues announce their events.
pub struct CompletionChannel {
    /// Cookies of completion queues.
    events: EventQueue<u64>,
    users: AtomicU32,
}

impl CompletionChannel {
    pub(crate) fn new(notifier: Arc<dyn Notifier>) -> Arc<Self> {
        Arc::new(CompletionChannel { events: EventQueue::new(notifier), users: AtomicU32::new(0) })
    }

    fn raise(&self, cookie: u64, of: &Arc<Acknowledgements>) {
        if !self.events.raise(cookie, of, MAX_COMPLETION_EVENTS) {
            log::warn!("completion event dropped: {MAX_COMPLETION_EVENTS} are waiting to be read");
        }
    }

    /// The cookie of the next completion queue that has an event; the queue is not destroyed before the event is acknowledged.
    /// `None`: there is none, though the descriptor was readable (its queue was destroyed).
    pub fn next_event(&self) -> Option<u64> {
        self.events.next().map(|(cookie, _)| cookie)
    }

    /// Refused while a completion queue uses the channel.
    pub fn destroy(&self) -> Result<()> {
        match self.users.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Error::Busy("a completion queue uses the channel")),
        }
    }
}

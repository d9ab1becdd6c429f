//! Completion queues and completion channels.

pub mod late;
pub mod moderation;
pub mod stamps;
pub mod unpolled;

use crate::completion::late::{CompletionDelays, LateCompletions};
use crate::completion::moderation::{EventDecision, Moderation, Moderator};
use crate::completion::stamps::{CompletionStamp, Stamps};
use crate::completion::unpolled::UnpolledSends;
use crate::services::Services;
use crate::services::context::Context;
use crate::services::event::{Acknowledgements, AsyncEventKind, EventSource, Notifier, ProgramEvents};
use crate::services::protection::ProtectionDomain;
use crate::services::timers::Timed;
use crate::types::error::{Result, busy_if, invalid_if};
use crate::types::limits::{
    LEFT_PATIENCE, LEFT_PATIENCE_OF_SLEEPERS, MAX_COMPLETION_EVENTS, MAX_COMPLETIONS,
};
use pagewire_fabric::Fabric;
use pagewire_fabric::lock::{Lock, LockGuard};
pub use pagewire_transport::Status;
use pagewire_wire::grh;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// What a completion is of (values of `enum ibv_wc_opcode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
pub enum CompletionOpcode {
    #[default]
    Send = 0,
    Write = 1,
    Read = 2,
    CompareSwap = 3,
    FetchAdd = 4,
    BindWindow = 5,
    LocalInvalidate = 6,
    Flush = 8,
    AtomicWrite = 9,
    Receive = 128,
    ReceiveWriteImmediate = 129,
}

/// What stands in front of a datagram in its receive buffer. The values are RoCE packet types as mlx5 shows them in `sl` of a UD
/// receive: bit 3 says UDP, bits 0 and 1 say IPv6 and IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RoutingHeader {
    /// Nothing: the completion is of no datagram.
    None = 0,
    /// An IPv6 header.
    Ipv6 = 0b1001,
    /// 20 bytes without meaning, and an IPv4 header.
    Ipv4 = 0b1010,
}

impl RoutingHeader {
    /// What the 40 bytes of a datagram are, by the version in the first byte.
    pub(crate) fn of(bytes: &[u8; grh::LEN]) -> RoutingHeader {
        if bytes[0] >> 4 == 6 { RoutingHeader::Ipv6 } else { RoutingHeader::Ipv4 }
    }
}

/// One work completion (`struct ibv_wc`).
// In another order than there: two fields that are neighbours in both are copied at once, and what was written just before one by one
// cannot be read at once before it has reached the cache, behind all stores before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    pub wr_id: u64,
    pub status: Status,
    pub byte_length: u32,
    pub opcode: CompletionOpcode,
    /// Local queue pair number.
    pub queue_pair: u32,
    /// Immediate data, as the big-endian value on the wire reads.
    pub immediate: Option<u32>,
    /// The sender's queue pair number, for UD.
    pub source_queue_pair: u32,
    /// The key that a SEND with invalidate made invalid.
    pub invalidated: Option<u32>,
    /// What the first 40 bytes of the buffer hold (UD).
    pub routing_header: RoutingHeader,
    /// A solicited event, or an error.
    pub solicited: bool,
    /// It holds a [slot of the send queue](crate::completion::unpolled) until it is polled.
    pub(crate) holds_slot: bool,
}

impl Completion {
    /// Of a work request of a queue pair, without data.
    pub(crate) fn new(queue_pair: u32, wr_id: u64, opcode: CompletionOpcode, status: Status) -> Self {
        Completion {
            wr_id,
            status,
            opcode,
            byte_length: 0,
            immediate: None,
            invalidated: None,
            queue_pair,
            source_queue_pair: 0,
            routing_header: RoutingHeader::None,
            solicited: false,
            holds_slot: false,
        }
    }

    /// Of a send request, which holds its slot until the completion is polled.
    pub(crate) fn of_send(queue_pair: u32, wr_id: u64, opcode: CompletionOpcode, status: Status) -> Self {
        Completion { holds_slot: true, ..Completion::new(queue_pair, wr_id, opcode, status) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Armed {
    #[default]
    No,
    Solicited,
    Any,
}

/// What a completion queue is created with (`ibv_create_cq_ex(3)`).
pub struct CompletionQueueInit<F: Fabric> {
    pub entries: u32,
    pub channel: Option<Arc<CompletionChannel>>,
    pub parent_domain: Option<Arc<ProtectionDomain<F>>>,
    /// A completion for which there is no room takes the place of the oldest, and is no error.
    pub ignores_overrun: bool,
    /// Each completion is stamped with the time at which it comes.
    pub stamps: Option<fn() -> CompletionStamp>,
}

#[derive(Default)]
struct CqState {
    entries: VecDeque<Completion>,
    capacity: usize,
    /// With so many entries a completion needs a [look](CompletionQueue::look): the capacity, or 0 where each may come late.
    unquestioned: usize,
    late: LateCompletions,
    armed: Armed,
    moderator: Moderator,
    /// When an event is due for completions that it was armed with.
    left_due: Option<u64>,
    /// When the timer for that runs out, which may be sooner.
    left_timer: Option<u64>,
    overrun: bool,
    unpolled_sends: UnpolledSends,
    stamps: Stamps,
}

impl CqState {
    /// With how many entries a completion needs a look.
    fn unquestioned(&self) -> usize {
        if self.late.is_possible() || self.stamps.are_kept() { 0 } else { self.capacity }
    }

    /// Entries that are used: by completions that wait for a poll, and by late ones.
    fn len(&self) -> usize {
        self.entries.len() + self.late.len()
    }

    /// The oldest completion is about to be taken.
    #[cold]
    fn uncount_first(&mut self) {
        if let Some(first) = self.entries.front() {
            self.unpolled_sends.remove(first, self.entries.len() - 1);
        }
    }

    /// Whether a completion waits in it that the program asked to be told of.
    fn has_awaited(&self) -> bool {
        self.entries.iter().any(|completion| self.is_awaited(completion))
    }

    /// Whether the completion is one that the program asked to be told of.
    fn is_awaited(&self, completion: &Completion) -> bool {
        match self.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => completion.solicited || completion.status != Status::Success,
        }
    }
}

/// What becomes of a completion.
enum Admission {
    Admitted,
    /// There is no place for it.
    Overrun,
    /// It comes at this time.
    Late(u64),
}

/// A completion queue.
pub struct CompletionQueue<F: Fabric> {
    services: Arc<Services<F>>,
    context: Arc<Context<F>>,
    channel: Option<Arc<CompletionChannel>>,
    parent_domain: Option<Arc<ProtectionDomain<F>>>,
    ignores_overrun: bool,
    /// For whoever looks at it later.
    own: Weak<dyn Announcing>,
    queue: Lock<CqState>,
    /// Completions in it, for a look without the lock.
    waiting: AtomicUsize,
    /// It is neither armed nor overrun, likewise.
    plain: AtomicBool,
    cookie: AtomicU64,
    pub(crate) users: AtomicU32,
    completion_events: Arc<Acknowledgements>,
    async_events: Arc<Acknowledgements>,
}

impl<F: Fabric> CompletionQueue<F> {
    /// Counts a queue that is about to be made.
    ///
    /// # Errors
    /// `InvalidArgument`: the number of entries, or the parent domain; `NoMemory`: there are too many.
    pub(crate) fn admit(context: &Arc<Context<F>>, init: &CompletionQueueInit<F>) -> Result<()> {
        let CompletionQueueInit { entries, parent_domain, .. } = init;
        invalid_if(*entries == 0 || *entries > MAX_COMPLETIONS, "number of completion queue entries")?;
        if let Some(domain) = parent_domain {
            let is_of_context = domain.is_parent_domain() && Arc::ptr_eq(domain.context(), context);
            invalid_if(!is_of_context, "no parent domain of the same context")?;
        }
        context.services().counts.completion_queues.take("completion queues")
    }

    /// An empty queue that was [admitted](Self::admit). `own`: what it is part of.
    pub(crate) fn new(
        context: Arc<Context<F>>,
        init: CompletionQueueInit<F>,
        own: Weak<dyn Announcing>,
    ) -> Self {
        let CompletionQueueInit { entries, channel, parent_domain, ignores_overrun, stamps } = init;
        if let Some(domain) = &parent_domain {
            domain.users.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(channel) = &channel {
            channel.queues.lock().push(own.clone());
        }
        CompletionQueue {
            services: context.services().clone(),
            context,
            channel,
            parent_domain,
            ignores_overrun,
            own,
            queue: Lock::new(CqState {
                entries: VecDeque::with_capacity((entries as usize).min(4096)),
                capacity: entries as usize,
                unquestioned: if stamps.is_some() { 0 } else { entries as usize },
                stamps: Stamps::by(stamps),
                unpolled_sends: UnpolledSends::always(stamps.is_some()),
                ..CqState::default()
            }),
            waiting: AtomicUsize::new(0),
            plain: AtomicBool::new(stamps.is_none()),
            cookie: AtomicU64::new(0),
            users: AtomicU32::new(0),
            completion_events: Arc::default(),
            async_events: Arc::default(),
        }
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

    /// Whether a completion that comes now may go to a thread that polls without being queued: none is before it, and nobody
    /// is to be told. Called by whoever holds the QP context of its queue pair.
    pub(crate) fn is_plain(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0 && self.plain.load(Ordering::Acquire)
    }

    /// Whether completions for which there is no place take those of the oldest (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub fn ignores_overrun(&self) -> bool {
        self.ignores_overrun
    }

    /// When the completion came that was taken last, where completions are stamped.
    pub fn taken_stamp(&self) -> CompletionStamp {
        self.queue.lock().stamps.taken()
    }

    /// Completions that the program has not taken yet.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// After a change to what `plain` tells of.
    fn tell_plain(&self, queue: &CqState) {
        let is_stamped = queue.stamps.are_kept();
        let is_plain = queue.armed == Armed::No && !queue.overrun && !queue.late.is_possible() && !is_stamped;
        self.plain.store(is_plain, Ordering::Release);
    }

    #[inline(always)] // Mostly there is nothing.
    pub(crate) fn take(&self, max: usize, each: &mut dyn FnMut(&Completion)) -> usize {
        match self.waiting.load(Ordering::Acquire) {
            0 => 0,
            _ => self.take_waiting(max, each),
        }
    }

    fn take_waiting(&self, max: usize, each: &mut dyn FnMut(&Completion)) -> usize {
        let mut found = 0;
        // The lock is not held while `each` writes to the program's memory.
        while found < max && self.waiting.load(Ordering::Acquire) > 0 {
            let Some(completion) = self.pop() else { break };
            each(&completion);
            found += 1;
        }
        found
    }

    fn pop(&self) -> Option<Completion> {
        let mut queue = self.queue.lock();
        if queue.unpolled_sends.counts {
            queue.uncount_first();
            queue.stamps.take();
        }
        let completion = queue.entries.pop_front();
        self.waiting.store(queue.entries.len(), Ordering::Release);
        completion
    }

    /// Asks for one event at the next completion, or at the next solicited or failed one (`ibv_req_notify_cq(3)`).
    pub fn arm(&self, solicited_only: bool) {
        let mut queue = self.queue.lock();
        let before = queue.armed;
        queue.armed = match (before, solicited_only) {
            (Armed::Any, _) | (_, false) => Armed::Any,
            _ => Armed::Solicited,
        };
        self.tell_plain(&queue);
        let Some(channel) = &self.channel else { return };
        queue.left_due = None;
        if queue.has_awaited() {
            let patience = match channel.sleeps_in_calls.load(Ordering::Acquire) {
                true => LEFT_PATIENCE_OF_SLEEPERS,
                false => LEFT_PATIENCE,
            };
            queue.left_due = Some(self.services.fabric.now() + patience);
            channel.left.store(true, Ordering::Release);
        }
        self.hold_left(queue);
        self.services.arming.note_arming(before != Armed::No);
    }

    /// Sets the timer for what the queue was armed with, if none is set.
    fn hold_left(&self, mut queue: LockGuard<'_, CqState>) {
        let Some(due) = queue.left_due.filter(|_| queue.left_timer.is_none()) else { return };
        queue.left_timer = Some(due);
        drop(queue);
        self.services.hold_event(self.own.clone(), due);
    }

    /// Adds a completion. False: it is lost, as the queue is or was overrun; nothing is added to it any more.
    pub(crate) fn push(&self, completion: Completion) -> bool {
        let mut queue = self.queue.lock();
        if queue.overrun || queue.entries.len() >= queue.unquestioned {
            match self.look(&mut queue, &completion) {
                Admission::Admitted => {}
                Admission::Overrun => {
                    self.overrun(queue);
                    return false;
                }
                Admission::Late(due) => {
                    drop(queue);
                    self.services.hold_event(self.own.clone(), due);
                    return true;
                }
            }
        }
        let wanted = queue.is_awaited(&completion);
        if queue.unpolled_sends.counts {
            queue.unpolled_sends.add(&completion);
        }
        queue.entries.push_back(completion);
        self.waiting.store(queue.entries.len(), Ordering::Release);
        if wanted {
            self.announce_or_hold(queue, completion.status);
        }
        true
    }

    /// What becomes of a completion that is not simply added.
    #[cold]
    fn look(&self, queue: &mut CqState, completion: &Completion) -> Admission {
        if (queue.overrun || queue.len() >= queue.capacity) && !self.makes_room(queue) {
            return Admission::Overrun;
        }
        if queue.late.is_possible() {
            if let Some(due) = queue.late.hold(completion, || self.services.fabric.now()) {
                return Admission::Late(due);
            }
        }
        queue.stamps.add();
        Admission::Admitted
    }

    /// A completion is lost.
    fn overrun(&self, mut queue: LockGuard<'_, CqState>) {
        let first = !std::mem::replace(&mut queue.overrun, true);
        self.tell_plain(&queue);
        drop(queue);
        if first {
            log::debug!("completion queue overrun");
            self.context.raise(
                AsyncEventKind::CompletionQueueError,
                EventSource::CompletionQueue { cookie: self.cookie() },
                &self.async_events,
            );
        }
    }

    /// Is overrun from now on, as failures on demand want it: an event is raised, and a queue pair whose completion is lost goes to the error
    /// state.
    pub fn fail(&self) {
        self.overrun(self.queue.lock());
    }

    /// Asks about each completion from now on whether it comes late.
    pub fn delay_completions(&self, delays: Arc<dyn CompletionDelays>) {
        let mut queue = self.queue.lock();
        queue.late.ask(delays);
        queue.unquestioned = queue.unquestioned();
        self.tell_plain(&queue);
    }

    /// Adds late completions whose time has come. They have had their entries since they came.
    #[cold]
    fn add_late(&self, now: u64) {
        let mut queue = self.queue.lock();
        let mut awaited = None;
        while let Some(completion) = queue.late.take_due(now) {
            if queue.is_awaited(&completion) {
                awaited = Some(completion.status);
            }
            if queue.unpolled_sends.counts {
                queue.unpolled_sends.add(&completion);
            }
            queue.stamps.add();
            queue.entries.push_back(completion);
        }
        self.waiting.store(queue.entries.len(), Ordering::Release);
        if let Some(status) = awaited {
            self.announce_or_hold(queue, status);
        }
    }

    /// Whether the oldest completion makes room for another one.
    #[cold]
    fn makes_room(&self, queue: &mut CqState) -> bool {
        if self.ignores_overrun {
            queue.uncount_first();
            queue.stamps.drop_oldest();
            queue.entries.pop_front();
        }
        self.ignores_overrun
    }

    /// A completion came for which the queue is armed.
    fn announce_or_hold(&self, mut queue: LockGuard<'_, CqState>, status: Status) {
        let event = queue.moderator.decide(status, || self.services.fabric.now());
        self.moderated(queue, event);
    }

    fn moderated(&self, queue: LockGuard<'_, CqState>, event: EventDecision) {
        match event {
            EventDecision::Raise => self.announce(queue),
            EventDecision::HoldUntil(due) => {
                drop(queue);
                self.services.hold_event(self.own.clone(), due);
            }
            EventDecision::Hold => {}
        }
    }

    /// Moderates events so from now on (`ibv_modify_cq(3)`). One that is held back is raised at once.
    pub fn moderate(&self, moderation: Moderation) {
        let mut queue = self.queue.lock();
        queue.moderator.moderation = moderation;
        if queue.armed != Armed::No && queue.moderator.holds() {
            self.announce(queue);
        }
    }

    /// The event that the queue is armed for.
    fn announce(&self, mut queue: LockGuard<'_, CqState>) {
        queue.armed = Armed::No;
        queue.left_due = None;
        queue.moderator.release();
        self.tell_plain(&queue);
        drop(queue);
        if let Some(channel) = &self.channel {
            self.services.arming.note_disarming();
            channel.raise(self.cookie(), &self.completion_events);
        }
    }

    /// Completions that wait and hold a slot of a queue pair's send queue.
    #[cold]
    pub(crate) fn unpolled_sends(&self, queue_pair: u32) -> usize {
        let queue = &mut *self.queue.lock();
        queue.unpolled_sends.of(queue_pair, &queue.entries)
    }

    /// Forgets what waits of a queue pair.
    pub(crate) fn forget(&self, queue_pair: u32) {
        let mut locked = self.queue.lock();
        let queue = &mut *locked;
        let is_kept = |completion: &Completion| completion.queue_pair != queue_pair;
        queue.stamps.retain(queue.entries.iter().map(is_kept));
        queue.entries.retain(is_kept);
        queue.late.forget(queue_pair);
        self.waiting.store(queue.entries.len(), Ordering::Release);
        queue.unpolled_sends.forget(queue_pair);
    }

    /// The queue pair is destroyed: what waits of it is still polled, but holds no slot.
    pub(crate) fn release_slots(&self, queue_pair: u32) {
        let mut queue = self.queue.lock();
        let of_queue_pair = queue.entries.iter_mut().filter(|completion| completion.queue_pair == queue_pair);
        of_queue_pair.for_each(|completion| completion.holds_slot = false);
        queue.unpolled_sends.forget(queue_pair);
    }

    /// Changes the number of entries (`ibv_resize_cq(3)`).
    pub fn resize(&self, entries: u32) -> Result<()> {
        invalid_if(entries == 0 || entries > MAX_COMPLETIONS, "number of completion queue entries")?;
        let mut queue = self.queue.lock();
        let is_short = queue.len() > entries as usize;
        invalid_if(is_short, "more completions are waiting than the new size holds")?;
        queue.capacity = entries as usize;
        queue.unquestioned = queue.unquestioned();
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
        busy_if(self.users.load(Ordering::Acquire) != 0, "a queue pair uses the completion queue")?;
        if let Some(channel) = &self.channel {
            if std::mem::replace(&mut self.queue.lock().armed, Armed::No) != Armed::No {
                self.services.arming.note_disarming();
            }
            let own = self.own.as_ptr();
            channel.queues.lock().retain(|other| !std::ptr::addr_eq(other.as_ptr(), own));
            channel.events.withdraw(&self.completion_events);
        }
        self.context.withdraw_events(&self.async_events);
        // A program that closed its device may keep the queue.
        let mut queue = self.queue.lock();
        queue.entries = VecDeque::new();
        queue.late = LateCompletions::default();
        self.waiting.store(0, Ordering::Release);
        drop(queue);
        if let Some(domain) = &self.parent_domain {
            domain.users.fetch_sub(1, Ordering::AcqRel);
        }
        self.services.counts.completion_queues.give_back();
        Ok(())
    }
}

/// What a completion queue of whatever fabric is part of, for its channel and its timer.
pub trait Announcing: Timed {
    /// Raises the event that the queue is armed for, if completions that it is armed for wait in it.
    fn announce_what_waits(&self);
}

impl<F: Fabric> CompletionQueue<F> {
    /// See [`Announcing`].
    pub(crate) fn announce_what_waits(&self) {
        let queue = self.queue.lock();
        if queue.has_awaited() {
            self.announce(queue);
        }
    }

    /// The timer for an event that is held back has run out, or the one for completions that the queue was armed with.
    pub(crate) fn run_timer(&self, now: u64) {
        let mut queue = self.queue.lock();
        if queue.late.is_possible() {
            drop(queue);
            self.add_late(now);
            queue = self.queue.lock();
        }
        if queue.left_timer.is_some_and(|at| at <= now) {
            queue.left_timer = None;
            if queue.left_due.is_some_and(|due| due > now) {
                return self.hold_left(queue);
            }
            if queue.left_due.take().is_some() && queue.has_awaited() {
                return self.announce(queue);
            }
        }
        if let Some(event) = queue.moderator.run_out(now).filter(|_| queue.armed != Armed::No) {
            self.moderated(queue, event);
        }
    }
}

/// Where completion queues announce their events.
pub struct CompletionChannel {
    /// Cookies of completion queues.
    events: ProgramEvents<u64>,
    queues: Mutex<Vec<Weak<dyn Announcing>>>,
    /// A queue was armed while completions waited in it.
    left: AtomicBool,
    /// The program has slept for events by a call of the library, which tells of it: a timer is for the day that it sleeps otherwise.
    sleeps_in_calls: AtomicBool,
}

impl CompletionChannel {
    pub(crate) fn new(notifier: Arc<dyn Notifier>) -> Arc<Self> {
        Arc::new(CompletionChannel {
            events: ProgramEvents::new(notifier),
            queues: Mutex::default(),
            left: AtomicBool::new(false),
            sleeps_in_calls: AtomicBool::new(false),
        })
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

    /// Whether a queue was armed with completions in it, which give no event (`ibv_req_notify_cq(3)`), since
    /// [`announce_what_was_left`](Self::announce_what_was_left).
    pub fn something_was_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// For a thread that is about to sleep until the next event. A program that takes only some of the completions between
    /// arming and sleeping (perftest 4.5 does, with several queue pairs) would never be woken where nothing comes any
    /// more. Adapters that are told how far the program has read raise the event; here it comes when the program sleeps: not
    /// where an event waits for it. Of one that sleeps in poll(2) nothing is known: to that it comes
    /// [`LEFT_PATIENCE`] after the arming, or [`LEFT_PATIENCE_OF_SLEEPERS`] if it has slept here before.
    pub fn announce_what_was_left(&self) {
        if !self.events.is_empty() {
            return;
        }
        self.sleeps_in_calls.store(true, Ordering::Release);
        self.left.store(false, Ordering::Release);
        // With the lock: a queue that is destroyed meanwhile takes it, and announces nothing afterwards.
        for queue in self.queues.lock().iter().filter_map(Weak::upgrade) {
            queue.announce_what_waits();
        }
    }

    /// Refused while a completion queue uses the channel.
    pub fn destroy(&self) -> Result<()> {
        busy_if(!self.queues.lock().is_empty(), "a completion queue uses the channel")
    }
}

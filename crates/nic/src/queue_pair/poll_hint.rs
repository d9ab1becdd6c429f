//! What a completion queue shares with its queue pairs: itself, and the short way from a ring to its poll.
//!
//! A completion queue remembers the queue pair whose completions came last, and the channel that they came by. A poll looks
//! there first: a completion that comes of what it finds goes to the program without being queued.

use crate::completion::{Announcing, Completion, CompletionQueue, CompletionQueueInit};
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::PacketOrigin;
use crate::services::context::Context;
use crate::services::timers::Timed;
use crate::types::error::Result;
use pagewire_fabric::lock::Lock;
use pagewire_fabric::{ChannelId, Fabric};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// A completion queue, as its queue pairs and the polls of the program share it.
pub struct CqBinding<F: Fabric> {
    queue: CompletionQueue<F>,
    pub(crate) poll_hint: PollHint<F>,
}

impl<F: Fabric> CqBinding<F> {
    /// An empty queue. See [`CompletionQueue::new`].
    pub(crate) fn new(context: Arc<Context<F>>, init: CompletionQueueInit<F>) -> Result<Arc<Self>> {
        CompletionQueue::admit(&context, &init)?;
        Ok(Arc::new_cyclic(|own: &Weak<Self>| {
            let queue = CompletionQueue::new(context, init, own.clone());
            CqBinding { queue, poll_hint: PollHint::default() }
        }))
    }
}

impl<F: Fabric> Deref for CqBinding<F> {
    type Target = CompletionQueue<F>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.queue
    }
}

impl<F: Fabric> Timed for CqBinding<F> {
    fn run_timer(&self, now: u64) {
        self.queue.run_timer(now);
    }
}

impl<F: Fabric> Announcing for CqBinding<F> {
    fn announce_what_waits(&self) {
        self.queue.announce_what_waits();
    }
}

/// No queue pair has this number.
const NONE: u32 = u32::MAX;

/// Where a completion queue's next completion is looked for first.
pub(crate) struct PollHint<F: Fabric> {
    pub(crate) hinted: Lock<Option<HintedSource<F>>>,
    /// The number of the hinted queue pair; [`NONE`]: there is no hint.
    known: AtomicU32,
    /// The channel of the last hint. It has a meaning only while there is a hint.
    channel: AtomicU32,
    /// Completions of that queue pair have come by another one: two processes that connect to each other at the same time have two.
    elsewhere: AtomicBool,
    /// The queue pair whose completion came last.
    last: AtomicU32,
    /// It was left while a poll was at it.
    pub(crate) left: AtomicBool,
}

pub(crate) struct HintedSource<F: Fabric> {
    pub(crate) origin: PacketOrigin<F>,
    pub(crate) queue_pair: Arc<QueuePair<F>>,
}

impl<F: Fabric> Default for PollHint<F> {
    fn default() -> Self {
        PollHint {
            hinted: Lock::new(None),
            known: AtomicU32::new(NONE),
            channel: AtomicU32::new(NONE),
            elsewhere: AtomicBool::new(false),
            last: AtomicU32::new(NONE),
            left: AtomicBool::new(false),
        }
    }
}

impl<F: Fabric> PollHint<F> {
    /// A completion has come of what came from `origin`. Called by whoever holds the QP context. The second in a row
    /// makes it the poll hint, unless it is the network: that is looked at in rounds.
    pub fn note(&self, queue_pair: &Arc<QueuePair<F>>, origin: &PacketOrigin<F>) {
        if let PacketOrigin::Network = origin {
            return;
        }
        let number = queue_pair.properties.number;
        let is_second = self.last.load(Ordering::Relaxed) == number;
        if !is_second {
            self.last.store(number, Ordering::Relaxed);
        }
        if self.known.load(Ordering::Relaxed) == number {
            if self.channel.load(Ordering::Relaxed) != number_of(origin) {
                self.elsewhere.store(true, Ordering::Relaxed);
            }
        } else if let Some(mut hinted) = Some(()).filter(|()| is_second).and_then(|()| self.hinted.try_lock())
        {
            *hinted = Some(HintedSource { origin: origin.clone(), queue_pair: queue_pair.clone() });
            self.known.store(number, Ordering::Relaxed);
            self.channel.store(number_of(origin), Ordering::Relaxed);
            self.elsewhere.store(false, Ordering::Relaxed);
        }
    }

    /// The queue pair begins anew, or is gone. Called by whoever holds its QP context.
    pub fn leave(&self, queue_pair: u32) {
        self.leave_if(|hinted| hinted.queue_pair.properties.number == queue_pair);
    }

    /// The channel is gone.
    pub fn leave_channel(&self, id: ChannelId) {
        self.leave_if(
            |hinted| matches!(&hinted.origin, PacketOrigin::Local(channel) if channel.channel.id == id),
        );
    }

    fn leave_if(&self, is_left: impl FnOnce(&HintedSource<F>) -> bool) {
        match self.hinted.try_lock() {
            Some(mut hinted) if hinted.as_ref().is_some_and(is_left) => {
                self.known.store(NONE, Ordering::Relaxed);
                let old = hinted.take();
                drop(hinted);
                drop(old);
            }
            Some(_) => {}
            // Not waited for: a poll may be stuck at a page. The next one leaves it.
            None => self.left.store(true, Ordering::Release),
        }
    }

    /// Nobody polls any more.
    pub fn clear(&self) {
        self.leave_if(|_| true);
    }

    /// Whether there is one.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed) != NONE
    }

    /// The queue pair whose completions all come by it, as far as is known.
    #[inline]
    pub fn queue_pair(&self) -> Option<u32> {
        let known = self.known.load(Ordering::Relaxed);
        (known != NONE && !self.elsewhere.load(Ordering::Relaxed)).then_some(known)
    }
}

/// The number of a channel.
#[inline]
fn number_of<F: Fabric>(origin: &PacketOrigin<F>) -> u32 {
    match origin {
        PacketOrigin::Local(channel) => channel.channel.id.0,
        PacketOrigin::Network => NONE,
    }
}

/// A poll that looks for a completion of its queue, most probably of one queue pair.
pub(crate) struct Seeker<'p, F: Fabric> {
    pub queue: &'p CompletionQueue<F>,
    pub queue_pair: &'p Arc<QueuePair<F>>,
    pub found: &'p mut Option<Completion>,
}

impl<'p, F: Fabric> Seeker<'p, F> {
    /// The queue pair, if it is that of the number.
    pub fn expects(&self, number: u32) -> Option<&'p Arc<QueuePair<F>>> {
        Some(self.queue_pair).filter(|queue_pair| queue_pair.properties.number == number)
    }

    /// Whether it has come.
    pub fn has_found(&self) -> bool {
        self.found.is_some()
    }

    /// Where the next completion of a queue is to be put. `None`: it is to be queued, as it is not what the poll looks for, or
    /// somebody is to be told of it.
    #[inline]
    pub fn place_for(&mut self, queue: &CompletionQueue<F>) -> Option<&mut Option<Completion>> {
        let takes = self.found.is_none() && std::ptr::eq(self.queue, queue) && queue.is_plain();
        takes.then_some(&mut *self.found)
    }
}

//! The completion queue of a node, and the thread that polls it for those who sleep.

use crate::error::{Failure, Result, refused, system};
use crate::limits::{COMPLETIONS, MESSAGES, POLL, POLL_LINGER, SPIN};
use crate::nodes::engine::Host;
use crate::nodes::readiness::Readiness;
use crate::operations::pending::{PendingOperation, Sleep};
use crate::operations::ticks::Ticks;
use pagewire_memory::fork::Owner;
use pagewire_nic::{Completion, CompletionChannel, CompletionQueue, Context, Notifier};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Whoever has the queue pair that a completion is of.
pub(crate) trait Completes: Send + Sync {
    fn complete(self: Arc<Self>, completion: &Completion);

    /// Does what is due now. Gives how long that is not so again; `None`: it is not known to be.
    fn run_timers(&self) -> Option<Duration> {
        None
    }
}

/// For how long the thread sleeps at most before it looks whether its node is still there.
const LOOK: Duration = Duration::from_secs(1);

/// The completion queue of a node.
pub(crate) struct Completions {
    queue: Arc<CompletionQueue<Host>>,
    channel: Arc<CompletionChannel>,
    wakeup: Arc<Wakeup>,
    by_queue_pair: RwLock<HashMap<u32, Arc<dyn Completes>>>,
    /// Takes the completions of all other queue pairs.
    others: Option<Arc<dyn Completes>>,
    /// Held by the thread that polls.
    order: Mutex<()>,
    /// A thread of the program has polled since the own thread has looked. That one then leaves the queue unarmed: who polls needs no event, and
    /// each event wakes a thread.
    polled: AtomicBool,
    /// The one that polls for sleepers.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Only this process polls: in a forked child whatever is waited for has ended, by `Forked`.
    owner: Owner,
    /// Wakes tasks that wait for signals.
    pub ticks: Ticks,
}

/// What wakes the thread that polls for sleepers.
#[derive(Default)]
struct Wakeup {
    state: Mutex<WakeupState>,
    changed: Condvar,
}

#[derive(Default)]
struct WakeupState {
    /// Wakers of operations that have not ended. Below zero for a moment where one ends while its waker is being set.
    sleepers: isize,
    /// The completion queue has announced something.
    raised: bool,
    closed: bool,
}

impl Notifier for Wakeup {
    fn raise(&self) {
        self.state.lock().raised = true;
        self.changed.notify_all();
    }

    fn withdraw(&self) {}
}

impl Completions {
    /// An empty queue, and the thread that polls it for sleepers.
    pub fn new(context: &Arc<Context<Host>>) -> Result<Arc<Self>> {
        Self::start(context, "pagewire-wait", COMPLETIONS, None)
    }

    /// An empty queue of so many completions, which the thread always polls, and `taker` takes.
    pub fn for_one(
        context: &Arc<Context<Host>>,
        thread: &'static str,
        entries: u32,
        taker: Arc<dyn Completes>,
    ) -> Result<Arc<Self>> {
        let completions = Self::start(context, thread, entries, Some(taker))?;
        completions.add_sleepers(1);
        Ok(completions)
    }

    fn start(
        context: &Arc<Context<Host>>,
        thread: &'static str,
        entries: u32,
        others: Option<Arc<dyn Completes>>,
    ) -> Result<Arc<Self>> {
        let wakeup = Arc::new(Wakeup::default());
        let channel = context.create_channel(wakeup.clone());
        let queue =
            context.create_cq(entries, Some(channel.clone())).map_err(refused("a completion queue"))?;
        let completions = Arc::new(Completions {
            queue,
            channel,
            wakeup: wakeup.clone(),
            by_queue_pair: RwLock::default(),
            others,
            order: Mutex::default(),
            polled: AtomicBool::new(false),
            thread: Mutex::default(),
            owner: Owner::this_process(),
            ticks: Ticks::default(),
        });
        let weak = Arc::downgrade(&completions);
        let thread = pagewire_fabric::spawn(thread, move || serve(&wakeup, &weak))
            .map_err(system("a thread cannot start"))?;
        *completions.thread.lock() = Some(thread);
        Ok(completions)
    }

    pub fn queue(&self) -> &Arc<CompletionQueue<Host>> {
        &self.queue
    }

    /// Completions of this queue pair are for `taker`.
    pub fn enter(&self, queue_pair: u32, taker: Arc<dyn Completes>) {
        self.by_queue_pair.write().insert(queue_pair, taker);
    }

    /// There are no more completions of this queue pair.
    pub fn leave(&self, queue_pair: u32) {
        self.by_queue_pair.write().remove(&queue_pair);
    }

    /// Whether this process was forked from the one that polls.
    pub fn is_forked(&self) -> bool {
        !self.owner.is_this_process()
    }

    /// Whether an operation has ended. In a forked child all have.
    fn is_ended<P: ?Sized>(&self, pending: &PendingOperation<P>) -> bool {
        pending.is_ended() || self.is_forked()
    }

    /// Hands over what is complete, and gives how much. With nothing there the calling thread does the engine's work for a moment.
    pub fn poll(&self) -> usize {
        self.polled.store(true, Ordering::Relaxed);
        self.try_poll().unwrap_or(0)
    }

    /// As [`poll`](Self::poll), of a thread that will not go on polling. `None`: another thread polls.
    pub fn try_poll(&self) -> Option<usize> {
        if self.is_forked() {
            return None;
        }
        // One thread at a time, so that the order stays.
        self.order.try_lock().map(|order| self.poll_in_order(order))
    }

    /// Hands over what is complete now, though other threads poll, too.
    pub fn drain(&self) {
        // No more than there can be now: others may add to it without end.
        for _ in 0..=MESSAGES as usize / POLL {
            if self.poll_in_order(self.order.lock()) == 0 {
                return;
            }
        }
    }

    fn poll_in_order(&self, _order: MutexGuard<'_, ()>) -> usize {
        let mut batch = SmallVec::<[Completion; 8]>::new();
        self.queue.poll(POLL, &mut |completion| batch.push(*completion));
        for completion in &batch {
            let taker = self.by_queue_pair.read().get(&completion.queue_pair).cloned();
            if let Some(taker) = taker.or_else(|| self.others.clone()) {
                taker.complete(completion);
            }
        }
        batch.len()
    }

    /// Waits until an operation has ended: polls for a while, then sleeps.
    pub fn wait_until_ended<P: ?Sized>(&self, pending: &PendingOperation<P>) {
        let start = Instant::now();
        while !self.is_ended(pending) {
            self.poll();
            if start.elapsed() >= SPIN {
                return self.sleep_until_ended(pending);
            }
        }
    }

    /// [`wait_until_ended`](Self::wait_until_ended) for so long at most. False: it has not ended.
    pub fn ends_within<P: ?Sized>(&self, pending: &PendingOperation<P>, patience: Duration) -> bool {
        // One for each thread: whoever asks again and again is woken once.
        thread_local!(static UNPARK: Waker = Waker::from(Arc::new(UnparkWaker(std::thread::current()))));
        let start = Instant::now();
        while !self.is_ended(pending) {
            self.poll();
            let Some(left) = patience.checked_sub(start.elapsed()) else { return pending.is_ended() };
            if start.elapsed() < SPIN {
                continue;
            }
            if UNPARK.with(|waker| self.sleep(pending, waker)) != Sleep::Ended {
                std::thread::park_timeout(left);
            }
        }
        true
    }

    /// Sleeps until an operation has ended.
    pub fn sleep_until_ended<P: ?Sized>(&self, pending: &PendingOperation<P>) {
        self.sleep(pending, &Waker::from(Arc::new(UnparkWaker(std::thread::current()))));
        while !self.is_ended(pending) {
            std::thread::park();
        }
    }

    /// The program polls no more: the own thread takes what comes.
    pub fn stop_polling(&self) {
        if !self.is_forked() && self.polled.swap(false, Ordering::Relaxed) {
            self.wakeup.changed.notify_all();
        }
    }

    /// Has somebody woken when an operation ends.
    pub fn sleep<P: ?Sized>(&self, pending: &PendingOperation<P>, waker: &Waker) -> Sleep {
        if self.is_forked() {
            return Sleep::Ended;
        }
        let sleep = pending.wake(waker);
        if sleep == Sleep::Added {
            self.add_sleepers(1);
        }
        if sleep != Sleep::Ended {
            self.stop_polling();
        }
        sleep
    }

    /// Has somebody woken when an operation ends, without waking the own thread: who polls next hands it over, as the thread that reads messages does
    /// every now and then.
    pub fn sleep_unpolled<P: ?Sized>(&self, pending: &PendingOperation<P>, waker: &Waker) {
        if pending.wake(waker) == Sleep::Added {
            self.add_unpolled();
        }
    }

    /// One more operation is to end that no thread need be woken for.
    pub fn add_unpolled(&self) {
        self.wakeup.state.lock().sleepers += 1;
    }

    /// Whether operations are to end that somebody sleeps for, or nobody.
    pub fn has_sleepers(&self) -> bool {
        self.wakeup.state.lock().sleepers > 0
    }

    /// So many more sleep until operations end, or fewer.
    pub fn add_sleepers(&self, more: isize) {
        if self.is_forked() {
            return;
        }
        self.wakeup.state.lock().sleepers += more;
        if more > 0 {
            self.wakeup.changed.notify_all();
        }
    }

    /// Has the thread look when something is due.
    pub fn look_at_timers(&self) {
        self.wakeup.raise();
    }

    /// Ends something that is waited for here.
    pub fn end<P: ?Sized>(
        &self,
        pending: &PendingOperation<P>,
        failure: Option<Failure>,
        readiness: Option<&Arc<Readiness>>,
    ) {
        let end = pending.end(failure, readiness);
        self.add_sleepers(-(end.wakers.len() as isize));
        end.wakers.into_iter().for_each(Waker::wake);
    }

    /// Forgets all queue pairs, and destroys the queue.
    pub fn close(&self) {
        self.ticks.close();
        self.wakeup.close();
        // It arms the queue, and takes events. A waker that runs in it may have dropped the node.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            if thread.join().is_err() {
                log::error!("the thread that waits for operations had failed");
            }
        }
        self.by_queue_pair.write().clear();
        self.queue.completion_events().abandon();
        if let Err(error) = self.queue.destroy() {
            log::warn!("a completion queue stays: {error}");
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.wakeup.close();
        }
    }
}

impl Wakeup {
    /// Ends the thread that it wakes.
    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

/// Wakes a thread that waits for an operation.
pub(crate) struct UnparkWaker(pub Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn serve(wakeup: &Wakeup, completions: &Weak<Completions>) {
    loop {
        let mut state = wakeup.state.lock();
        while state.sleepers <= 0 && !state.closed {
            wakeup.changed.wait(&mut state);
        }
        if state.closed {
            return;
        }
        drop(state);
        let Some(completions) = completions.upgrade() else { return };
        // What is there when the queue is armed gives no event (`ibv_req_notify_cq(3)`): so it is polled behind that.
        let is_polled = completions.polled.swap(false, Ordering::Relaxed);
        if !is_polled {
            completions.queue.arm(false);
        }
        let found = if is_polled { None } else { completions.try_poll() };
        if found.is_some_and(|count| count > 0) {
            continue;
        }
        let channel = completions.channel.clone();
        let due = completions.others.as_ref().and_then(|others| others.run_timers());
        drop(completions);
        // What another thread has left when the queue was armed gives no event.
        let most = if found.is_none() { POLL_LINGER } else { LOOK };
        let mut state = wakeup.state.lock();
        if !state.raised && !state.closed {
            wakeup.changed.wait_for(&mut state, due.unwrap_or(most).min(most));
        }
        state.raised = false;
        drop(state);
        while channel.next_event().is_some() {}
    }
}

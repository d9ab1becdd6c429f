//! Threads that hand the records of a log to a handler.

use crate::access::Access;
use crate::log::{Events, PollOutcome, Shared};
use pagewire::{Error, Result};
use pagewire_memory::fork::Owner;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Polls without a record before the thread sleeps.
const EMPTY_POLLS: u32 = 64;

/// Pause between two attempts to wake a thread that is to end.
const END_PAUSE: Duration = Duration::from_millis(1);

/// What a thread has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Records that the handler was called with.
    pub handled: u64,
    /// Of these: the handler panicked.
    pub panicked: u64,
}

#[derive(Default)]
struct Counts {
    ends: AtomicBool,
    handled: AtomicU64,
    panicked: AtomicU64,
}

/// A thread that serves a log, until this is dropped or [ended](Self::end): then no handler runs any more, but for the one that ends it.
///
/// A handler may end its own serving: the thread ends when it has returned. Two handlers that end each other's servings wait for each other.
pub struct Serving {
    log: Arc<Shared>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
    /// A forked child has no such thread.
    owner: Owner,
}

impl Serving {
    pub(crate) fn start(
        log: Arc<Shared>,
        mut handler: impl FnMut(Access<'_>) + Send + 'static,
        events: Option<Events>,
    ) -> Result<Serving> {
        let counts = Arc::new(Counts::default());
        let (served, counted) = (log.clone(), counts.clone());
        let run = move || run(&served, &counted, &mut handler, events);
        let thread = std::thread::Builder::new().name("pagewire-log".into()).spawn(run);
        let thread =
            thread.map_err(|why| Error::System { what: "a thread for an access log".into(), why })?;
        Ok(Serving { log, counts, thread: Some(thread), owner: Owner::this_process() })
    }

    /// What it has done so far.
    pub fn summary(&self) -> Summary {
        Summary {
            handled: self.counts.handled.load(Ordering::Acquire),
            panicked: self.counts.panicked.load(Ordering::Acquire),
        }
    }

    /// Whether the thread sleeps: it has found no record for a while.
    pub fn is_asleep(&self) -> bool {
        self.log.is_slept_for()
    }

    /// Whether the calling thread is the one that serves: a handler calls.
    pub fn is_in_handler(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// Ends the thread when its handler has returned. Records that come later stay in the log. Within the handler itself it does not wait, and
    /// counts the record that is being handled.
    pub fn end(mut self) -> Summary {
        self.stop();
        self.summary()
    }

    fn stop(&mut self) {
        self.counts.ends.store(true, Ordering::Release);
        if !self.owner.is_this_process() {
            // To drop the handle detaches a thread, which may be one of the child's that has the same number.
            if let Some(thread) = self.thread.take() {
                std::mem::forget(thread);
            }
            return;
        }
        if self.is_in_handler() {
            return;
        }
        if let Some(thread) = self.thread.take() {
            // It may be about to sleep, and would not see that it was woken before.
            while !thread.is_finished() {
                self.log.wake();
                std::thread::sleep(END_PAUSE);
            }
            // It catches the panics of its handler.
            let _ = thread.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A handler panics with it (`resume_unwind`) where it has reported itself why. It counts, and nothing more is said of it.
#[derive(Debug)]
pub struct Reported;

fn report(access: &Access<'_>, panic: &(dyn Any + Send)) {
    if panic.is::<Reported>() {
        return;
    }
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let (source, text) = (access.source(), text.unwrap_or("it does not say why"));
    log::error!("a handler failed at an access of source {source}: {text}");
}

/// `events`: `None`: the thread never sleeps.
fn run(log: &Arc<Shared>, counts: &Counts, handler: &mut dyn FnMut(Access<'_>), events: Option<Events>) {
    let mut empty_polls = 0u32;
    while !counts.ends.load(Ordering::Acquire) {
        let mut guarded = |access: Access<'_>| {
            counts.handled.fetch_add(1, Ordering::Release);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(access))) {
                counts.panicked.fetch_add(1, Ordering::Release);
                report(&access, &*panic);
            }
        };
        let found = log.handle_one(&mut guarded);
        empty_polls = if found == PollOutcome::Handled { 0 } else { empty_polls.saturating_add(1) };
        match (found, events) {
            (PollOutcome::Handled, _) => {}
            (PollOutcome::Empty, Some(Events { threshold, interval })) if empty_polls >= EMPTY_POLLS => {
                log.sleep(threshold, interval);
            }
            // The source of the access may have no processor.
            (PollOutcome::InFlight, Some(_)) if empty_polls >= EMPTY_POLLS => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

//! Those who wait for the same pages, which a thread brings in.

use crate::fabric::PrefetchError;
use crate::limits::{LOOK_AGAIN, MOST_LOOK_AGAIN};
use by_address::ByAddress;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

/// Whom a thread tells that it has brought pages in.
#[derive(Clone, PartialEq)]
pub enum Waiter {
    /// A queue pair, by its token.
    Token(u64),
    /// A thread of the program that waits in a verb.
    Thread(ByAddress<Arc<PrefetchOutcome>>),
}

/// What becomes of a prefetch that a thread of the program waits for.
#[derive(Default)]
pub struct PrefetchOutcome {
    outcome: Mutex<Option<Result<(), PrefetchError>>>,
    known: Condvar,
}

impl PrefetchOutcome {
    fn set(&self, outcome: Result<(), PrefetchError>) {
        *self.outcome.lock() = Some(outcome);
        self.known.notify_one();
    }

    /// Waits for it, as long as that takes.
    pub fn wait(&self) -> Result<(), PrefetchError> {
        let mut outcome = self.outcome.lock();
        loop {
            match *outcome {
                Some(outcome) => return outcome,
                None => self.known.wait(&mut outcome),
            }
        }
    }
}

/// Who waits for the same pages.
pub struct PageWaiters {
    waiters: Vec<Waiter>,
    since: Instant,
    /// When those who bring the pages in are to look once more at what is there, if somebody asks then.
    look_again: Instant,
    /// The thread that has begun with it.
    thread: Option<u32>,
}

impl PageWaiters {
    /// Nobody yet.
    pub fn begin() -> Self {
        let since = Instant::now();
        PageWaiters { waiters: Vec::new(), since, look_again: since + LOOK_AGAIN, thread: None }
    }

    /// One more waits, or asks once more.
    pub fn add(&mut self, waiter: Waiter) {
        if !self.waiters.contains(&waiter) {
            self.waiters.push(waiter);
        }
    }

    /// Those of another wait, too.
    pub fn add_all(&mut self, others: PageWaiters) {
        others.waiters.into_iter().for_each(|waiter| self.add(waiter));
    }

    /// Somebody asks once more: the thread that is to look again, if it is time for that.
    pub fn due(&mut self) -> Option<u32> {
        let now = Instant::now();
        if now < self.look_again {
            return None;
        }
        self.look_again = now + (now - self.since).min(MOST_LOOK_AGAIN);
        self.thread
    }

    /// One does not wait any more. True: nobody does.
    pub fn remove(&mut self, waiter: &Waiter) -> bool {
        self.waiters.retain(|waits| waits != waiter);
        self.waiters.is_empty()
    }

    /// A thread has begun with the pages.
    pub fn begin_by(&mut self, thread: u32) {
        self.thread = Some(thread);
    }

    /// Tells all of them what became of it: queue pairs by `done`.
    pub fn end(self, outcome: Result<(), PrefetchError>, done: impl Fn(u64)) {
        for waiter in self.waiters {
            match waiter {
                Waiter::Token(token) => done(token),
                Waiter::Thread(waits) => waits.set(outcome),
            }
        }
    }
}

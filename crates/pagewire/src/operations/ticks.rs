//! Ticks for tasks that wait for signals: whoever writes a signal wakes nobody, so a thread wakes the tasks, which look themselves.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Wakes tasks after a while. Its thread starts with the first one.
#[derive(Default)]
pub(crate) struct Ticks(Arc<TickList>);

#[derive(Default)]
struct TickList {
    state: Mutex<TickState>,
    changed: Condvar,
}

#[derive(Default)]
struct TickState {
    due: Vec<(Instant, Waker)>,
    has_thread: bool,
    is_closed: bool,
}

impl Ticks {
    /// Has a task woken once after `time`. Without the thread it is woken at once: it looks all the time then.
    pub fn wake_after(&self, time: Duration, waker: &Waker) {
        let mut state = self.0.state.lock();
        if state.is_closed || !self.ensure_thread(&mut state) {
            drop(state);
            waker.wake_by_ref();
            return;
        }
        let at = Instant::now() + time;
        match state.due.iter_mut().find(|(_, known)| known.will_wake(waker)) {
            // A task that was polled meanwhile for something else.
            Some((due, _)) => *due = at.min(*due),
            None => state.due.push((at, waker.clone())),
        }
        drop(state);
        self.0.changed.notify_one();
    }

    fn ensure_thread(&self, state: &mut TickState) -> bool {
        if !state.has_thread {
            let shared = self.0.clone();
            match pagewire_fabric::spawn("pagewire-signal", move || shared.serve()) {
                Ok(_) => state.has_thread = true,
                Err(error) => log::warn!("no thread could be started that wakes tasks: {error}"),
            }
        }
        state.has_thread
    }

    /// Wakes all tasks, and ends the thread.
    pub fn close(&self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        let due = std::mem::take(&mut state.due);
        drop(state);
        self.0.changed.notify_one();
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        self.close();
    }
}

impl TickList {
    fn serve(&self) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let now = Instant::now();
            let (ready, later): (Vec<_>, Vec<_>) = state.due.drain(..).partition(|(at, _)| *at <= now);
            state.due = later;
            if !ready.is_empty() {
                drop(state);
                ready.into_iter().for_each(|(_, waker)| waker.wake());
                state = self.state.lock();
                continue;
            }
            match state.due.iter().map(|(at, _)| *at).min() {
                Some(next) => drop(self.changed.wait_for(&mut state, next.saturating_duration_since(now))),
                None => self.changed.wait(&mut state),
            }
        }
    }
}

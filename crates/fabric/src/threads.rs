//! Threads of the engine: the program's signals are not for them.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity, set_current_timer_slack};
use std::io;
use std::num::NonZeroU64;
use std::thread::{Builder, JoinHandle};

/// Signals that an access or instruction of the thread itself raises; they stay open.
const OWN: [Signal; 6] =
    [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGTRAP, Signal::SIGABRT];

/// Starts a thread that takes no signal from the program, whatever thread of the program calls: a handler of the program must
/// find itself on one of the program's threads, and sigwait(3) must get what is meant for it.
///
/// # Errors
/// The kernel's: no thread can be had.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let mut blocked = SigSet::all();
    OWN.into_iter().for_each(|signal| blocked.remove(signal));
    // A new thread begins with its maker's mask (pthread_create(3)), so that no signal comes between.
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = Builder::new().name(name.into()).spawn(body);
    before.thread_set_mask()?;
    started
}

/// How late timers of a thread may be without anybody's fault (`PR_SET_TIMERSLACK`, prctl(2)). A timer that may be late ends with
/// an interrupt that comes anyway, the kernel's tick on a processor that is at work: no interrupt of its own is asked for. One value
/// belongs to one thread.
#[derive(Debug, Default)]
pub struct TimerSlack(Option<NonZeroU64>);

impl TimerSlack {
    /// The calling thread's timers may be late by so many nanoseconds from now on; `None`: as they were when it began.
    pub fn set(&mut self, nanoseconds: Option<NonZeroU64>) {
        if self.0 == nanoseconds {
            return;
        }
        match set_current_timer_slack(nanoseconds) {
            Ok(()) => self.0 = nanoseconds,
            // Timers are as punctual as they were, which is right, and costs more.
            Err(error) => log::debug!("the slack of timers cannot be set: {error}"),
        }
    }
}

/// The calling thread keeps off one processor, or at one, until this is dropped. The kernel wakes a thread where its waker runs if the
/// other processors look busy at that instant, else at one of those, and looks again milliseconds later: whoever is to help its waker would
/// take turns with it, and several that are to share two processors with one that polls would all be at the other one.
#[derive(Debug)]
pub struct CpuPlacement {
    before: CpuSet,
}

impl CpuPlacement {
    /// Moves the thread if it is at this processor and may be at another one.
    pub fn off(processor: usize) -> Option<Self> {
        if sched_getcpu() != processor {
            return None;
        }
        let before = sched_getaffinity(None).ok()?;
        let mut others = before;
        if processor < CpuSet::MAX_CPU {
            others.unset(processor);
        }
        if others.count() == 0 {
            return None;
        }
        sched_setaffinity(None, &others).ok()?;
        Some(CpuPlacement { before })
    }

    /// Moves the thread to this processor, if it may be there.
    pub fn at(processor: usize) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let mut only = CpuSet::new();
        if processor >= CpuSet::MAX_CPU || !before.is_set(processor) {
            return None;
        }
        only.set(processor);
        sched_setaffinity(None, &only).ok()?;
        Some(CpuPlacement { before })
    }
}

impl Drop for CpuPlacement {
    fn drop(&mut self) {
        // What the thread was allowed before it still is, unless it was forbidden meanwhile: then that has to do.
        if let Err(error) = sched_setaffinity(None, &self.before) {
            log::debug!("a thread stays where it was put: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_excludes_cpu() {
        let before = sched_getaffinity(None).unwrap();
        // Somewhere it is for sure.
        let here = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
        let mut only = CpuSet::new();
        only.set(here);
        sched_setaffinity(None, &only).unwrap();
        assert!(CpuPlacement::off(here).is_none(), "it may be nowhere else");
        assert!(CpuPlacement::off(here + 1).is_none(), "it is elsewhere");
        sched_setaffinity(None, &before).unwrap();
        if before.count() > 1 {
            let moved =
                (0..100).find_map(|_| CpuPlacement::off(sched_getcpu()).map(|moved| (moved, sched_getcpu())));
            let (moved, now) = moved.unwrap();
            let allowed = sched_getaffinity(None).unwrap();
            assert!(allowed.is_set(now) && allowed.count() + 1 == before.count());
            drop(moved);
        }
        assert_eq!(sched_getaffinity(None).unwrap().count(), before.count());
    }

    #[test]
    fn the_slack_is_that_of_the_calling_thread_and_can_be_taken_back() {
        let in_force = || rustix::thread::current_timer_slack().unwrap();
        let before = in_force();
        let mut slack = TimerSlack::default();
        slack.set(NonZeroU64::new(3_000_000));
        assert_eq!(in_force(), 3_000_000);
        std::thread::spawn(move || assert_eq!(in_force(), 3_000_000)).join().unwrap();
        slack.set(None);
        assert_eq!(in_force(), before);
    }
}

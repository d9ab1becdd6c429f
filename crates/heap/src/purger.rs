//! Gives freed pages back while nobody calls the heap. Start at [`start`].
//!
//! Allocating and freeing give old pages back on their way. A program that pauses after it has freed much does neither. So a thread looks after
//! all heaps of the process about once a second, as long as one of them has more than it [retains](crate::Heap::retain). A program that never has so
//! much has no such thread.

use crate::limits::{LEAST_PURGE_PAUSE, MOST_PURGE_PAUSE, PURGER_STACK};
use crate::space::HeapSpace;
use crate::{fork, operation, small};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// The process that has the thread: a forked child does not have its parent's. 0: none.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Makes sure that the thread runs. Should the system refuse one, pages go back with later calls only, each of which tries again.
pub fn start() {
    let own = own();
    if OWNER.load(Ordering::Relaxed) == own || OWNER.swap(own, Ordering::AcqRel) == own {
        return;
    }
    let builder = std::thread::Builder::new().name("pagewire-purge".into()).stack_size(PURGER_STACK);
    let started = with_signals_blocked(|| builder.spawn(run));
    if started.is_err() {
        OWNER.store(0, Ordering::Release);
    }
}

fn own() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn run() {
    let mut pause = LEAST_PURGE_PAUSE;
    loop {
        std::thread::sleep(pause);
        match look() {
            Some(next) => pause = next,
            None => {
                OWNER.store(0, Ordering::Release);
                // A heap may have grown since, and have found the thread running.
                if look().is_none() || OWNER.swap(own(), Ordering::AcqRel) != 0 {
                    return;
                }
            }
        }
    }
}

/// Gives back what is old enough. How long to wait before the next look; `None`: no heap has more than it retains.
fn look() -> Option<Duration> {
    let over = || inside(|| fork::spaces().filter(|space| space.is_over_retained()).collect::<Vec<_>>());
    let before = over();
    if !before.is_empty() {
        inside(small::collect_expired);
    }
    for space in before {
        // A fork need not wait for more than a piece.
        while inside(|| space.purge_piece()) {}
    }
    let delay = over().into_iter().map(HeapSpace::purge_delay).min()?;
    Some(delay.clamp(LEAST_PURGE_PAUSE, MOST_PURGE_PAUSE))
}

/// What `body` gives, as an operation on the heap.
fn inside<R>(body: impl FnOnce() -> R) -> R {
    let _operation = operation::enter();
    body()
}

/// The program's signals are not for the thread that `body` starts, which begins with its maker's mask (pthread_create(3)).
fn with_signals_blocked<R>(body: impl FnOnce() -> R) -> R {
    /// Signals that an instruction of the thread itself raises.
    const OWN: [libc::c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];
    let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset(3) initialises the set that the calls after it use; pthread_sigmask(3) fills `before`, and cannot fail with SIG_SETMASK.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        OWN.iter().for_each(|signal| {
            libc::sigdelset(blocked.as_mut_ptr(), *signal);
        });
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr());
    }
    let result = body();
    // SAFETY: the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

//! What the locks promise in a forked child. Alone in its process: a child of fork(2) may be without locks of the C library that other threads
//! of its parent had, those of tests beside this one, say.

use pagewire_lock::{Condvar, Mutex};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;

const THREADS: usize = 4;

/// Threads of the parent sleep at locks and condition variables; the child, which does not have them, uses locks of its own.
#[test]
fn child_has_locks_though_threads_of_its_parent_sleep() {
    let (held, changed, ends) = (Mutex::new(false), Condvar::new(), Mutex::new(()));
    let (sleeps, slept) = channel();
    let forked = AtomicU32::new(0);
    thread::scope(|scope| {
        let ended = ends.lock();
        for _ in 0..THREADS {
            let (sleeps, also) = (sleeps.clone(), sleeps.clone());
            let (held, changed, ends) = (&held, &changed, &ends);
            scope.spawn(move || {
                let mut is_over = held.lock();
                sleeps.send(()).unwrap();
                while !*is_over {
                    changed.wait(&mut is_over);
                }
            });
            scope.spawn(move || {
                also.send(()).unwrap();
                drop(ends.lock());
            });
        }
        (0..2 * THREADS).for_each(|_| slept.recv().unwrap());
        for _ in 0..20 {
            // SAFETY: the child uses memory of its own, starts a thread, and ends by _exit(2).
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                // SAFETY: alarm(2) has no preconditions.
                unsafe { libc::alarm(60) };
                let (sum, added) = (Mutex::new(0), Condvar::new());
                thread::scope(|scope| {
                    scope.spawn(|| {
                        *sum.lock() = 7;
                        added.notify_all();
                    });
                    let mut sum = sum.lock();
                    while *sum == 0 {
                        added.wait(&mut sum);
                    }
                });
                // SAFETY: _exit(2) has no preconditions.
                unsafe { libc::_exit(i32::from(*sum.lock() != 7)) };
            }
            let mut status = -1;
            // SAFETY: waitpid(2) of our own child, with a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            forked.fetch_add(
                u32::from(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0),
                Ordering::Relaxed,
            );
        }
        *held.lock() = true;
        changed.notify_all();
        drop(ended);
    });
    assert_eq!(forked.into_inner(), 20);
}

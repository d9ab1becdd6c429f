//! What the locks promise between threads.

use pagewire_lock::{Condvar, Mutex, ReentrantMutex, RwLock, RwLockWriteGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const THREADS: usize = 4;
const ROUNDS: usize = 20_000;

/// What is to happen happens by then.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn one_thread_has_the_mutex() {
    static SUM: Mutex<usize> = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    *SUM.lock() += 1;
                }
            });
        }
    });
    assert_eq!(*SUM.lock(), THREADS * ROUNDS);
}

#[test]
fn waiter_gets_the_mutex_of_a_thread_that_takes_it_again_and_again() {
    let (mutex, ends) = (Mutex::new(()), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let held = mutex.lock();
                thread::sleep(Duration::from_micros(50));
                drop(held);
            }
        });
        for _ in 0..20 {
            drop(mutex.lock());
        }
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn held_mutex_is_not_had_in_time() {
    let mutex = Mutex::new(7);
    let held = mutex.lock();
    assert!(mutex.try_lock().is_none() && mutex.is_locked());
    thread::scope(|scope| {
        scope.spawn(|| assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none()));
    });
    drop(held);
    assert_eq!(mutex.try_lock_for(Duration::from_millis(1)).as_deref(), Some(&7));
}

#[test]
fn holder_takes_a_reentrant_mutex_again() {
    let mutex = ReentrantMutex::new(7);
    let (one, two) = (mutex.lock(), mutex.lock());
    assert_eq!((*one, *two), (7, 7));
    thread::scope(|scope| {
        scope.spawn(|| assert!(mutex.try_lock().is_none()));
    });
    drop((one, two));
    thread::scope(|scope| {
        scope.spawn(|| assert!(mutex.try_lock().is_some()));
    });
}

#[test]
fn readers_see_no_half_of_a_write() {
    let pair = RwLock::new((0, 0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    if round % 16 == 0 {
                        let mut pair = pair.write();
                        pair.0 += 1;
                        pair.1 += 1;
                        let pair = RwLockWriteGuard::downgrade(pair);
                        assert_eq!(pair.0, pair.1);
                    } else {
                        let pair = pair.read();
                        assert_eq!(pair.0, pair.1);
                    }
                }
            });
        }
    });
    assert_eq!(pair.read().0, THREADS * ROUNDS.div_ceil(16));
    let (one, two) = (pair.read(), pair.try_read());
    assert!(two.is_some() && pair.try_write().is_none());
    drop((one, two));
    assert!(pair.try_write().is_some());
}

#[test]
fn notified_thread_goes_on() {
    let (ready, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut ready = ready.lock();
                while *ready == 0 {
                    changed.wait(&mut ready);
                }
                *ready -= 1;
                changed.notify_one();
            });
        }
        *ready.lock() = THREADS;
        changed.notify_all();
    });
    let mut left = ready.lock();
    assert_eq!(*left, 0);
    assert!(changed.wait_for(&mut left, Duration::from_millis(1)).timed_out());
}

#[test]
fn readers_that_sleep_come_in_when_the_writer_becomes_one() {
    let lock = RwLock::new(7);
    let writer = lock.write();
    thread::scope(|scope| {
        let (begun, begins) = channel();
        let (read, reads) = channel();
        for _ in 0..2 {
            let (begun, read, lock) = (begun.clone(), read.clone(), &lock);
            scope.spawn(move || {
                begun.send(()).unwrap();
                read.send(*lock.read()).unwrap();
            });
        }
        (0..2).for_each(|_| begins.recv().unwrap());
        // Most sleep by then; the outcome is the same for one that does not.
        thread::sleep(Duration::from_millis(20));
        let held = RwLockWriteGuard::downgrade(writer);
        (0..2).for_each(|_| assert_eq!(reads.recv_timeout(PATIENCE), Ok(7)));
        drop(held);
    });
}

/// Whoever gives up at its deadline may just have been woken: then another one that sleeps is to be.
#[test]
fn timed_out_waiter_passes_wakeup_on() {
    let (mutex, ends) = (Mutex::new(0u64), AtomicBool::new(false));
    let (done, ended) = channel();
    thread::scope(|scope| {
        let (mutex, ends) = (&mutex, &ends);
        for thread in 0..3u64 {
            scope.spawn(move || {
                for round in 0u64.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    let patience = Duration::from_nanos((round * 7 + thread * 13) % 3000);
                    drop(mutex.try_lock_for(patience));
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                *mutex.lock() += 1;
            }
            done.send(()).unwrap();
        });
        let result = ended.recv_timeout(PATIENCE);
        ends.store(true, Ordering::Relaxed);
        // Whatever was left asleep is woken by this, so that the test ends.
        (0..100).for_each(|_| {
            drop(mutex.lock());
            thread::sleep(Duration::from_micros(100));
        });
        assert_eq!(result, Ok(()));
    });
    assert!(mutex.try_lock().is_some(), "a mutex that nobody has can be had");
}

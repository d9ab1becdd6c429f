//! Locks of hot paths: short, and without a locked instruction while one thread has them to itself.
//!
//! A locked instruction waits until every store before it has reached the cache. Behind a store to a cache line that another
//! process looks at, that is as long as the line travels; twice a message, that is most of what a short message takes.
//! A lock that one thread has taken many times in a row is therefore [biased](bias) to that thread.

mod bias;

use bias::{Bias, Cell, Machine};
use lock_api::{GuardNoSend, RawMutex};
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

/// A lock.
pub type Lock<T> = lock_api::Mutex<BiasedLock, T>;
/// Held.
pub type LockGuard<'l, T> = lock_api::MutexGuard<'l, BiasedLock, T>;
/// Held, and keeps the lock itself.
pub type ArcLockGuard<T> = lock_api::ArcMutexGuard<BiasedLock, T>;

/// Looks at a taken lock in a row, until the processor is offered to others; and offers, until the thread sleeps: whoever
/// has the lock may have been displaced by this very thread.
const LOOKS: u32 = 64;
const OFFERS: u32 = 32;
const SLEEP: Duration = Duration::from_micros(50);
/// How long a store takes at most to be seen by other processors, by far; for where the kernel has no barrier (any more).
const SEEN: Duration = Duration::from_millis(10);

/// Whether the kernel makes other processors pass a barrier for us.
fn has_barrier() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
}

/// Every access that any thread of this process has begun before is done before this returns, and those that it begins
/// afterwards come after those of the calling thread. The other side needs [`light_barrier`] only.
pub fn heavy_barrier() {
    fence(Ordering::SeqCst);
    if has_barrier() && membarrier(MembarrierCommand::PrivateExpedited).is_ok() {
        return;
    }
    // A program may have forbidden itself the call since.
    let begun = Instant::now();
    while begun.elapsed() < SEEN {
        std::thread::park_timeout(SEEN);
    }
}

/// The other side of [`heavy_barrier`]: stores before it are seen by a thread that passes that, or loads after it see what that
/// thread stored.
#[inline]
pub fn light_barrier() {
    compiler_fence(Ordering::SeqCst);
}

/// The machine that this runs on.
pub struct Host;

impl Machine for Host {
    type Cell = AtomicUsize;

    #[inline]
    fn thread() -> usize {
        #[cfg(target_arch = "x86_64")]
        {
            let thread: usize;
            // SAFETY: the word that FS points to holds its own address (System V ABI, AMD64 supplement, thread-local storage),
            // which is another one in each thread, and is only read.
            unsafe {
                std::arch::asm!("mov {}, fs:0", out(reg) thread, options(pure, readonly, nostack, preserves_flags));
            }
            thread
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            thread_local!(static PLACE: std::cell::Cell<u8> = const { std::cell::Cell::new(0) });
            PLACE.with(|place| std::ptr::from_ref(place) as usize)
        }
    }

    fn may_bias() -> bool {
        has_barrier()
    }

    #[inline]
    fn light_barrier() {
        light_barrier();
    }

    fn heavy_barrier() {
        heavy_barrier();
    }

    fn full_barrier() {
        fence(Ordering::SeqCst);
    }

    fn barrier_behind_raising() {
        // A locked instruction, which no load or store passes, whatever comes of it (AMD64 manual, volume 2, section 7.4.2).
        #[cfg(target_arch = "x86_64")]
        compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
    }

    fn wait() {
        thread_local!(static WAITED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
        let waited = WAITED.get().wrapping_add(1);
        WAITED.set(waited);
        if waited % LOOKS != 0 {
            std::hint::spin_loop();
        } else if waited / LOOKS % OFFERS != 0 {
            std::thread::yield_now();
        } else {
            // Unlike sleep(3), no point at which the thread may be cancelled.
            std::thread::park_timeout(SLEEP);
        }
    }
}

impl Cell for AtomicUsize {
    #[inline]
    fn load(&self, order: Ordering) -> usize {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: usize, order: Ordering) {
        self.store(value, order);
    }

    fn raise(&self) -> bool {
        self.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// The state of a [`Lock`].
pub struct BiasedLock(Bias<Host>);

// SAFETY: mutual exclusion, as `bias` argues and its model checks; what one holder did is seen by the next.
unsafe impl RawMutex for BiasedLock {
    #[allow(clippy::declare_interior_mutable_const)] // What the trait asks for.
    const INIT: Self = BiasedLock(Bias::<Host>::HOST);

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.0.lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.unlock();
    }
}

/// After the calling thread gave a lock back: its accesses before come before those behind, for whoever tries to take the lock.
/// That thread looks at what this one has left, or gets the lock.
#[inline]
pub fn barrier_behind<T>(lock: &Lock<T>) {
    // SAFETY: the state is not changed.
    unsafe { lock.raw() }.0.barrier_behind();
}

/// Waits until `deadline` at most.
pub fn lock_until<T>(lock: &Lock<T>, deadline: Instant) -> Option<LockGuard<'_, T>> {
    loop {
        if let Some(guard) = lock.try_lock() {
            return Some(guard);
        }
        if Instant::now() >= deadline {
            return None;
        }
        Host::wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    fn is_biased<T>(lock: &Lock<T>) -> bool {
        // SAFETY: the state is not changed.
        unsafe { lock.raw() }.0.is_biased()
    }

    fn make_biased<T>(lock: &Lock<T>) {
        for _ in 0..=bias::STREAK.1 {
            drop(lock.lock());
        }
        assert_eq!(is_biased(lock), has_barrier());
    }

    #[test]
    fn one_thread_at_a_time() {
        let lock = Arc::new(Lock::new([0u64; 2]));
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for turn in 0..40u64 {
                        // Long enough a row to be biased, while others come in between now and then.
                        for round in 0..2000 {
                            let mut held = match round % 3 {
                                0 => lock.lock(),
                                _ => match lock.try_lock() {
                                    Some(held) => held,
                                    None => lock.lock(),
                                },
                            };
                            let before = held[0];
                            assert_eq!(before, held[1]);
                            held[0] = before + 1;
                            std::hint::black_box(&held);
                            held[1] = before + 1;
                        }
                        if (turn + thread) % 3 == 0 {
                            std::thread::sleep(Duration::from_micros(200 * thread));
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*lock.lock(), [4 * 40 * 2000; 2]);
    }

    #[test]
    fn a_bias_ends_when_another_thread_comes() {
        let lock = Arc::new(Lock::new(1));
        make_biased(&lock);
        let held = lock.lock();
        assert!(lock.try_lock().is_none(), "its own holder does not get it twice");
        let other = std::thread::scope(|scope| scope.spawn(|| lock.try_lock().is_none()).join().unwrap());
        assert!(other && !is_biased(&lock));
        assert!(lock.try_lock().is_none());
        drop(held);
        let other =
            std::thread::scope(|scope| scope.spawn(|| lock.try_lock().map(|held| *held)).join().unwrap());
        assert_eq!(other, Some(1));
        make_biased(&lock);
    }

    #[test]
    fn the_lock_of_a_thread_that_has_ended_is_free() {
        let lock = Arc::new(Lock::new(1));
        std::thread::scope(|scope| {
            scope.spawn(|| make_biased(&lock));
        });
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn a_lock_that_is_not_given_back_is_waited_for_no_longer_than_said() {
        let lock = Lock::new(());
        for biased in [false, true] {
            if biased {
                make_biased(&lock);
            }
            let held = lock.lock();
            let waits = || lock_until(&lock, Instant::now() + Duration::from_millis(20)).is_none();
            assert!(std::thread::scope(|scope| scope.spawn(waits).join().unwrap()));
            drop(held);
            assert!(lock_until(&lock, Instant::now()).is_some());
        }
    }

    /// Of two threads that each store and then look at what the other has stored, one sees it.
    #[test]
    fn one_side_of_a_barrier_is_light() {
        let (one, other, start) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let missed = std::thread::scope(|scope| {
            let light = scope.spawn(|| {
                (1..2000)
                    .map(|round| {
                        while start.load(Ordering::Acquire) != round {
                            std::thread::yield_now();
                        }
                        one.store(round, Ordering::Relaxed);
                        light_barrier();
                        other.load(Ordering::Relaxed) != round
                    })
                    .collect::<Vec<_>>()
            });
            let heavy: Vec<_> = (1..2000)
                .map(|round| {
                    start.store(round, Ordering::Release);
                    other.store(round, Ordering::Relaxed);
                    heavy_barrier();
                    let missed = one.load(Ordering::Relaxed) != round;
                    while one.load(Ordering::Acquire) != round {
                        std::thread::yield_now();
                    }
                    missed
                })
                .collect();
            let light = light.join().unwrap();
            heavy.into_iter().zip(light).filter(|(heavy, light)| *heavy && *light).count()
        });
        assert_eq!(missed, 0);
    }
}

//! Locks of hot paths: short, and without a locked instruction while one thread has them to itself.
//!
//! A locked instruction waits until every store before it has reached the cache. Behind a store to a cache line that another
//! process looks at, that is as long as the line travels; twice a message, that is most of what a short message takes.
//! A lock that one thread has taken many times in a row is therefore biased to that thread, which from then on takes and returns
//! it by plain stores. Another thread that wants it ends the bias first, and has the kernel make all processors
//! that run this process pass a full barrier (membarrier(2)): either it then sees that the owner holds the lock, or the owner sees
//! that the bias has ended (Dekker's pattern, with all of the cost on one side).

use lock_api::{GuardNoSend, RawMutex};
use rustix::thread::{MembarrierCommand, membarrier};
use spin::mutex::SpinMutex;
use spin::relax::RelaxStrategy;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence, fence};
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
/// Times in a row that a thread takes a lock before it is biased: the first is for the first time, and it doubles up to the second
/// with each bias that is ended.
const STREAK: (u32, u32) = (64, 4096);
/// How long a store takes at most to be seen by other processors, by far; for where the kernel has no barrier (any more).
const SEEN: Duration = Duration::from_millis(10);

/// No thread.
const NOBODY: usize = 0;

/// How a thread waits for a lock.
struct Patience;

impl RelaxStrategy for Patience {
    fn relax() {
        thread_local!(static WAITED: Cell<u32> = const { Cell::new(0) });
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

/// What distinguishes the calling thread from all others that live.
#[inline]
fn thread() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let thread: usize;
        // SAFETY: the word that FS points to holds its own address (System V ABI, AMD64 supplement, thread-local storage), which is
        // another one in each thread, and is only read.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) thread, options(pure, readonly, nostack, preserves_flags));
        }
        thread
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        thread_local!(static PLACE: Cell<u8> = const { Cell::new(0) });
        PLACE.with(|place| std::ptr::from_ref(place) as usize)
    }
}

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

/// The state of a [`Lock`].
pub struct BiasedLock {
    /// The thread that takes the lock by `held`. Changed by whoever has the gate.
    owner: AtomicUsize,
    /// Its owner, or who was it, holds the lock.
    held: AtomicBool,
    /// Taken by all others, and by those who change what follows.
    gate: SpinMutex<(), Patience>,
    /// Whoever has the gate holds the lock.
    by_gate: AtomicBool,
    last: AtomicUsize,
    streak: AtomicU32,
    needed: AtomicU32,
}

impl BiasedLock {
    /// Takes it as its owner.
    #[inline]
    fn take_biased(&self) -> bool {
        let own = thread();
        if self.owner.load(Ordering::Relaxed) != own || self.held.load(Ordering::Relaxed) {
            return false;
        }
        self.held.store(true, Ordering::Relaxed);
        light_barrier();
        if self.owner.load(Ordering::Relaxed) == own {
            return true;
        }
        self.held.store(false, Ordering::Release);
        false
    }

    /// Ends the bias to another thread; with the gate. True: that does not hold the lock.
    fn end_bias(&self) -> bool {
        if self.owner.load(Ordering::Relaxed) != NOBODY {
            self.owner.store(NOBODY, Ordering::Relaxed);
            let needed = self.needed.load(Ordering::Relaxed);
            self.needed.store((needed * 2).min(STREAK.1), Ordering::Relaxed);
            heavy_barrier();
        }
        !self.held.load(Ordering::Acquire)
    }

    /// The lock is taken by the gate.
    fn take_by_gate(&self) {
        self.by_gate.store(true, Ordering::Relaxed);
        let own = thread();
        if self.last.load(Ordering::Relaxed) == own {
            self.streak.store(self.streak.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        } else {
            self.last.store(own, Ordering::Relaxed);
            self.streak.store(0, Ordering::Relaxed);
        }
    }

    #[cold]
    fn lock_by_gate(&self) {
        std::mem::forget(self.gate.lock());
        while !self.end_bias() {
            Patience::relax();
        }
        self.take_by_gate();
    }

    #[cold]
    fn try_lock_by_gate(&self) -> bool {
        let Some(gate) = self.gate.try_lock() else { return false };
        if !self.end_bias() {
            return false;
        }
        std::mem::forget(gate);
        self.take_by_gate();
        true
    }

    #[cold]
    fn unlock_gate(&self) {
        if self.streak.load(Ordering::Relaxed) >= self.needed.load(Ordering::Relaxed) {
            self.streak.store(0, Ordering::Relaxed);
            if has_barrier() {
                self.owner.store(thread(), Ordering::Relaxed);
            }
        }
        self.by_gate.store(false, Ordering::Relaxed);
        // SAFETY: the calling thread has it: it forgot the guard when it took the lock.
        unsafe { self.gate.force_unlock() };
    }
}

// SAFETY: mutual exclusion. A thread has the lock by the gate, which one thread has at a time, and only while `held` is not set;
// or by `held`, which only the owner sets. The owner changes by the gate only, and from a thread to nobody before
// the barrier behind which `held` is looked at: if the owner set `held` before that, whoever has the gate waits or gives up; if
// later, the owner finds itself to be the owner no more, and takes `held` back. What one holder did is seen by the next: both
// ways are given back by a store-release and taken after a load-acquire of it, or by the same thread again.
unsafe impl RawMutex for BiasedLock {
    #[allow(clippy::declare_interior_mutable_const)] // What the trait asks for.
    const INIT: Self = BiasedLock {
        owner: AtomicUsize::new(NOBODY),
        held: AtomicBool::new(false),
        gate: SpinMutex::new(()),
        by_gate: AtomicBool::new(false),
        last: AtomicUsize::new(NOBODY),
        streak: AtomicU32::new(0),
        needed: AtomicU32::new(STREAK.0),
    };

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.take_biased() {
            self.lock_by_gate();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.take_biased() || self.try_lock_by_gate()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Set by the calling thread, if at all. `held` would not tell: an owner that is none any more sets it for a moment.
        if self.by_gate.load(Ordering::Relaxed) {
            self.unlock_gate();
        } else {
            self.held.store(false, Ordering::Release);
        }
    }
}

/// After the calling thread gave a lock back: its accesses before come before those behind, for whoever tries to take the lock.
/// That thread looks at what this one has left, or gets the lock.
#[inline]
pub fn barrier_behind<T>(lock: &Lock<T>) {
    // SAFETY: the state is only looked at.
    let state = unsafe { lock.raw() };
    if state.owner.load(Ordering::Relaxed) == thread() {
        // Others end the bias first, by a heavy barrier.
        light_barrier();
    } else {
        fence(Ordering::SeqCst);
    }
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
        Patience::relax();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn is_biased<T>(lock: &Lock<T>) -> bool {
        // SAFETY: the state is only looked at.
        unsafe { lock.raw() }.owner.load(Ordering::Relaxed) != NOBODY
    }

    fn make_biased<T>(lock: &Lock<T>) {
        for _ in 0..=STREAK.1 {
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

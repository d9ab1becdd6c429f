//! Locks of hot paths, which are held for nanoseconds and given back by a plain store; and a barrier between two threads of which
//! one pays for both.
//!
//! A lock that waiters sleep at is given back by a locked instruction, which waits until every store before it has reached the
//! cache. Behind a store to a cache line that another process looks at, that is as long as the line travels.

use rustix::thread::{MembarrierCommand, membarrier};
use spin::mutex::SpinMutex;
use spin::relax::RelaxStrategy;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

/// A lock.
pub type Lock<T> = lock_api::Mutex<SpinMutex<(), Patience>, T>;
/// Held.
pub type LockGuard<'l, T> = lock_api::MutexGuard<'l, SpinMutex<(), Patience>, T>;
/// Held, and keeps the lock itself.
pub type ArcLockGuard<T> = lock_api::ArcMutexGuard<SpinMutex<(), Patience>, T>;

/// Looks at a taken lock in a row, until the processor is offered to others; and offers, until the thread sleeps: whoever
/// has the lock may have been displaced by this very thread.
const LOOKS: u32 = 64;
const OFFERS: u32 = 32;
const SLEEP: Duration = Duration::from_micros(50);
/// How long a store takes at most to be seen by other processors, by far; for where the kernel has no barrier any more.
const SEEN: Duration = Duration::from_millis(10);

/// How a thread waits for a lock.
pub struct Patience;

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

/// Whether the kernel makes other processors pass a barrier for us: not known, no, or yes.
static HAS_BARRIER: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Asks the kernel for what [`heavy_barrier`] needs: 2 us while the process has one thread, 5 to 17 ms in one that has several (measured
/// on Linux 6.18), as the kernel then waits for all processors first.
pub fn prepare_barrier() {
    if HAS_BARRIER.load(Ordering::Relaxed) == UNKNOWN {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        HAS_BARRIER.store(if registered { YES } else { NO }, Ordering::SeqCst);
    }
}

/// Every access that any thread of this process has begun before is done before this returns, and those that it begins
/// afterwards come after those of the calling thread (membarrier(2)). The other side needs [`light_barrier`] only.
pub fn heavy_barrier() {
    fence(Ordering::SeqCst);
    prepare_barrier();
    if HAS_BARRIER.load(Ordering::Relaxed) == YES && membarrier(MembarrierCommand::PrivateExpedited).is_err()
    {
        // A program may forbid itself the call. From now on both sides pay.
        HAS_BARRIER.store(NO, Ordering::SeqCst);
        let begun = Instant::now();
        while begun.elapsed() < SEEN {
            std::thread::park_timeout(SEEN);
        }
    }
}

/// The other side of [`heavy_barrier`]: stores before it are seen by a thread that passes that, or loads after it see what that
/// thread stored.
#[inline]
pub fn light_barrier() {
    match HAS_BARRIER.load(Ordering::Relaxed) {
        YES => compiler_fence(Ordering::SeqCst),
        _ => fence(Ordering::SeqCst),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn one_thread_at_a_time_also_where_the_holder_is_slow() {
        let lock = Arc::new(Lock::new([0u64; 2]));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for round in 0..4000 {
                        let mut held = lock.lock();
                        let before = held[0];
                        assert_eq!(before, held[1]);
                        held[0] = before + 1;
                        if round % 1000 == 0 {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        held[1] = before + 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*lock.lock(), [4 * 4000; 2]);
    }

    #[test]
    fn a_lock_that_is_not_given_back_is_waited_for_no_longer_than_said() {
        let lock = Lock::new(());
        let held = lock.lock();
        let deadline = Instant::now() + Duration::from_millis(20);
        assert!(lock_until(&lock, deadline).is_none() && Instant::now() >= deadline);
        drop(held);
        assert!(lock_until(&lock, deadline).is_some());
    }

    /// From now on the kernel refuses membarrier(2) to this thread, and to those that it starts.
    fn forbid_barrier() {
        let of = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let is_it = of(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32);
        let mut filter = [
            of(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            libc::sock_filter { jf: 1, ..is_it },
            of(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
            of(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the kernel reads the filter, which lives as long as the calls.
        let forbidden = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        assert!(forbidden, "{}", std::io::Error::last_os_error());
        assert!(membarrier(MembarrierCommand::RegisterPrivateExpedited).is_err());
    }

    /// The first time that it is needed is in the midst of traffic.
    #[test]
    fn the_barrier_is_prepared_before_there_is_traffic() {
        run_alone(&["--ignored"], "a_fabric_prepares_the_barrier");
    }

    #[test]
    #[ignore = "run by the test above as a process of its own"]
    fn a_fabric_prepares_the_barrier() {
        assert_eq!(HAS_BARRIER.load(Ordering::Relaxed), UNKNOWN);
        let _fabric = crate::HostFabric::new().unwrap();
        assert_ne!(HAS_BARRIER.load(Ordering::Relaxed), UNKNOWN);
    }

    /// Has a test of this file run as a process of its own.
    fn run_alone(options: &[&str], name: &str) {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let name = format!("lock::tests::{name}");
        assert!(command.args(options).args(["--exact", &name]).status().unwrap().success());
    }

    #[test]
    fn both_sides_pay_where_the_kernel_has_no_barrier() {
        let run = || {
            forbid_barrier();
            run_alone(&[], "one_side_of_a_barrier_is_light");
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn a_barrier_that_is_forbidden_later_is_waited_for() {
        run_alone(&["--ignored"], "forbids_itself_the_barrier");
    }

    #[test]
    #[ignore = "run by the test above as a process of its own"]
    fn forbids_itself_the_barrier() {
        heavy_barrier();
        forbid_barrier();
        // Whoever wakes the thread for something else does not cut it short.
        std::thread::current().unpark();
        let begun = Instant::now();
        heavy_barrier();
        assert!(begun.elapsed() >= SEEN);
        assert_eq!(HAS_BARRIER.load(Ordering::Relaxed), NO);
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
                        // The other side may be at the next round.
                        other.load(Ordering::Relaxed) < round
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

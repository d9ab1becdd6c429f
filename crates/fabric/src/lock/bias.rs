//! A lock that is biased to the thread that takes it again and again.
//!
//! Its owner takes and returns it by plain stores. Another thread that wants it ends the bias first, and has all processors
//! that run this process pass a full barrier (membarrier(2)): either it then sees that the owner holds the lock, or the owner sees
//! that the bias has ended (Dekker's pattern, with all of the cost on one side).
//!
//! A thread has the lock by the gate, which one thread has at a time, and only while `held` is not set; or by `held`, which only the
//! owner sets. The owner changes by the gate only, and from a thread to nobody before the barrier behind which
//! `held` is looked at: if the owner set `held` before that, whoever has the gate gives up; if later, the owner finds
//! itself to be the owner no more, and takes `held` back. Both ways are given back by a store-release and
//! taken after a load-acquire of it, or by the same thread again.
//!
//! Who tries to take the lock and does not get it leaves work to who has it: so no two may stand in each other's way, and the gate
//! is waited for where nobody has the lock by it.

use std::sync::atomic::Ordering;

/// Times in a row that a thread takes a lock before it is biased: the first is for the first time, and it doubles up to the second
/// with each bias that is ended.
pub const STREAK: (usize, usize) = (64, 4096);

/// No thread.
const NOBODY: usize = 0;

/// A word that threads share.
pub trait Cell {
    fn load(&self, order: Ordering) -> usize;
    fn store(&self, value: usize, order: Ordering);
    /// Makes 1 of 0, and acquires. False: it is not 0.
    fn raise(&self) -> bool;
}

/// What a lock runs on: a real machine, or a model of one.
pub trait Machine {
    type Cell: Cell;
    /// What distinguishes the calling thread from all others that live; not 0.
    fn thread() -> usize;
    /// Whether there is a heavy barrier that costs little.
    fn may_bias() -> bool;
    /// The two sides of a full barrier between two threads.
    fn light_barrier();
    fn heavy_barrier();
    /// Both.
    fn full_barrier();
    /// The same right behind an attempt to raise a cell.
    fn barrier_behind_raising();
    /// A moment passes.
    fn wait();
}

/// The state of a lock.
pub struct Bias<M: Machine> {
    /// The thread that takes the lock by `held`. Changed by whoever has the gate.
    owner: M::Cell,
    /// Its owner, or who was it, holds the lock, or is about to see that it may not.
    held: M::Cell,
    /// Taken by all others, and by those who change what follows.
    gate: M::Cell,
    /// Whoever has the gate holds the lock.
    by_gate: M::Cell,
    last: M::Cell,
    streak: M::Cell,
    needed: M::Cell,
}

impl Bias<super::Host> {
    /// Free.
    #[allow(clippy::declare_interior_mutable_const)] // A lock's initial value.
    pub const HOST: Self = {
        use std::sync::atomic::AtomicUsize;
        Bias {
            owner: AtomicUsize::new(NOBODY),
            held: AtomicUsize::new(0),
            gate: AtomicUsize::new(0),
            by_gate: AtomicUsize::new(0),
            last: AtomicUsize::new(NOBODY),
            streak: AtomicUsize::new(0),
            needed: AtomicUsize::new(STREAK.0),
        }
    };
}

impl<M: Machine> Bias<M> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) {
        if !self.take_biased() {
            self.lock_by_gate();
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.take_biased() || self.try_lock_by_gate()
    }

    /// Gives back what the calling thread has.
    #[inline]
    pub fn unlock(&self) {
        // `held` would not tell: an owner that is none any more sets it for a moment.
        if self.by_gate.load(Ordering::Relaxed) != 0 {
            self.unlock_gate();
        } else {
            self.held.store(0, Ordering::Release);
        }
    }

    /// See [`barrier_behind`](super::barrier_behind).
    #[inline]
    pub fn barrier_behind(&self) {
        if self.owner.load(Ordering::Relaxed) == M::thread() {
            // Others end the bias first, by a heavy barrier.
            M::light_barrier();
        } else {
            M::full_barrier();
        }
    }

    #[cfg(test)]
    pub fn is_biased(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != NOBODY
    }

    /// Takes it as its owner.
    #[inline]
    fn take_biased(&self) -> bool {
        let own = M::thread();
        if self.owner.load(Ordering::Relaxed) != own || self.held.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.held.store(1, Ordering::Relaxed);
        M::light_barrier();
        let taken = self.owner.load(Ordering::Relaxed) == own;
        if !taken {
            self.held.store(0, Ordering::Release);
        }
        taken
    }

    #[cold]
    fn lock_by_gate(&self) {
        while !self.try_lock_by_gate() {
            M::wait();
        }
    }

    #[cold]
    fn try_lock_by_gate(&self) -> bool {
        // What the caller has left for who has the lock, it has left before it looks who that is: a full barrier in between.
        while !self.gate.raise() {
            M::barrier_behind_raising();
            if self.by_gate.load(Ordering::Relaxed) != 0 {
                return false;
            }
            M::wait();
        }
        M::barrier_behind_raising();
        let free = self.end_bias();
        match free {
            true => self.take_by_gate(),
            false => self.gate.store(0, Ordering::Release),
        }
        free
    }

    /// Ends the bias to another thread; with the gate. True: that does not hold the lock.
    fn end_bias(&self) -> bool {
        if self.owner.load(Ordering::Relaxed) != NOBODY {
            self.owner.store(NOBODY, Ordering::Relaxed);
            let needed = self.needed.load(Ordering::Relaxed);
            self.needed.store((needed * 2).min(STREAK.1), Ordering::Relaxed);
            M::heavy_barrier();
        }
        self.held.load(Ordering::Acquire) == 0
    }

    /// The lock is taken by the gate.
    fn take_by_gate(&self) {
        self.by_gate.store(1, Ordering::Relaxed);
        let own = M::thread();
        if self.last.load(Ordering::Relaxed) == own {
            self.streak.store(self.streak.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        } else {
            self.last.store(own, Ordering::Relaxed);
            self.streak.store(0, Ordering::Relaxed);
        }
    }

    #[cold]
    fn unlock_gate(&self) {
        if self.streak.load(Ordering::Relaxed) >= self.needed.load(Ordering::Relaxed) {
            self.streak.store(0, Ordering::Relaxed);
            if M::may_bias() {
                self.owner.store(M::thread(), Ordering::Relaxed);
            }
        }
        self.by_gate.store(0, Ordering::Relaxed);
        self.gate.store(0, Ordering::Release);
    }
}

/// Every order that the memory model permits is tried (loom). Both sides of a barrier are a fence there.
#[cfg(test)]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, fence};
    use loom::thread;

    struct Model;

    loom::thread_local!(static THREAD: std::cell::Cell<usize> = std::cell::Cell::new(1));

    impl Machine for Model {
        type Cell = AtomicUsize;

        fn thread() -> usize {
            THREAD.with(|thread| thread.get())
        }

        fn may_bias() -> bool {
            true
        }

        fn light_barrier() {
            fence(Ordering::SeqCst);
        }

        fn heavy_barrier() {
            fence(Ordering::SeqCst);
        }

        fn full_barrier() {
            fence(Ordering::SeqCst);
        }

        fn barrier_behind_raising() {
            fence(Ordering::SeqCst);
        }

        fn wait() {
            thread::yield_now();
        }
    }

    impl Cell for AtomicUsize {
        fn load(&self, order: Ordering) -> usize {
            self.load(order)
        }

        fn store(&self, value: usize, order: Ordering) {
            self.store(value, order);
        }

        fn raise(&self) -> bool {
            self.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }
    }

    struct World {
        lock: Bias<Model>,
        /// What the lock is for: two holders at once are found.
        guarded: loom::cell::UnsafeCell<usize>,
        note: AtomicUsize,
    }

    // SAFETY: `guarded` is touched with the lock only; whether that holds is what is tried.
    unsafe impl Sync for World {}
    // SAFETY: nothing in it belongs to a thread.
    unsafe impl Send for World {}

    impl World {
        /// A lock that is biased to the first thread.
        fn new() -> Self {
            let cell = AtomicUsize::new;
            World {
                lock: Bias {
                    owner: cell(1),
                    held: cell(0),
                    gate: cell(0),
                    by_gate: cell(0),
                    last: cell(1),
                    streak: cell(0),
                    needed: cell(1),
                },
                guarded: loom::cell::UnsafeCell::new(0),
                note: AtomicUsize::new(0),
            }
        }

        fn act(&self) {
            self.guarded.with_mut(|value| {
                // SAFETY: the calling thread has the lock.
                unsafe { *value += 1 }
            });
        }
    }

    fn explore(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        (model.preemption_bound, model.max_branches) = (Some(preemptions), 20_000);
        model.check(check);
    }

    #[test]
    fn one_thread_at_a_time() {
        explore(3, || {
            let world = Arc::new(World::new());
            let other = world.clone();
            let second = thread::spawn(move || {
                THREAD.with(|thread| thread.set(2));
                if other.lock.try_lock() {
                    other.act();
                    other.lock.unlock();
                }
                other.lock.lock();
                other.act();
                other.lock.unlock();
            });
            for _ in 0..2 {
                world.lock.lock();
                world.act();
                world.lock.unlock();
            }
            second.join().unwrap();
            assert!(world.lock.try_lock());
            world.act();
            world.lock.unlock();
            assert_eq!(
                (world.lock.held.load(Ordering::Relaxed), world.lock.gate.load(Ordering::Relaxed)),
                (0, 0)
            );
        });
    }

    /// As queue pairs are driven: who does not get the lock leaves a note and tries once more, and who has had it looks for notes.
    fn run(world: &World) {
        for _ in 0..2 {
            if !world.lock.try_lock() {
                world.note.store(1, Ordering::Relaxed);
                if !world.lock.try_lock() {
                    return;
                }
            }
            world.note.store(0, Ordering::Relaxed);
            world.act();
            world.lock.unlock();
            world.lock.barrier_behind();
            if world.note.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
        // Goes on for ever in reality.
        world.note.store(0, Ordering::Relaxed);
    }

    #[test]
    fn where_all_only_try_one_gets_it() {
        explore(2, || {
            let world = Arc::new(World::new());
            let others = [2, 3].map(|number| {
                let other = world.clone();
                thread::spawn(move || {
                    THREAD.with(|thread| thread.set(number));
                    run(&other);
                })
            });
            run(&world);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(world.note.load(Ordering::Relaxed), 0, "a note that nobody has read");
            assert!(world.lock.try_lock());
        });
    }

    /// Who leaves a note and does not get the lock is heard by who has it, or by who has had it.
    #[test]
    fn a_note_is_seen_behind_the_lock() {
        explore(3, || {
            let world = Arc::new(World::new());
            let other = world.clone();
            let second = thread::spawn(move || {
                THREAD.with(|thread| thread.set(2));
                other.note.store(1, Ordering::Relaxed);
                let got = other.lock.try_lock();
                if got {
                    other.act();
                    other.lock.unlock();
                }
                got
            });
            world.lock.lock();
            world.act();
            world.lock.unlock();
            world.lock.barrier_behind();
            let seen = world.note.load(Ordering::Relaxed) == 1;
            assert!(second.join().unwrap() || seen, "the note is lost");
        });
    }
}

//! Notices that this process was forked: the child has none of the parent's engine memory.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};

static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Descriptors that forked children do not keep.
const MAX_KEPT: usize = 4096;

static REGISTERED: Once = Once::new();

/// How many forks lie between this process and the one that loaded the engine. What was made in an earlier
/// generation belongs to a parent.
pub fn generation() -> u64 {
    REGISTERED.call_once(|| {
        // SAFETY: `in_child` may be called in a forked child of a program with threads: it only stores to
        // atomics, closes descriptors and asks for the process's number, all async-signal-safe (signal-safety(7)).
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // Only ENOMEM exists; without the handler a child would be taken for its parent.
        assert_eq!(failed, 0, "no memory for the fork handler");
    });
    GENERATION.load(Ordering::Acquire)
}

/// The process that made an object. A forked child of it is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// The process that calls.
    pub fn this_process() -> Owner {
        Owner(generation())
    }

    /// Whether the process that calls is the owner. It takes no lock, and costs a load and a comparison.
    #[inline]
    pub fn is_this_process(self) -> bool {
        // The handler is registered, because there is an owner. The one thread of the child has counted before all others began.
        self.0 == GENERATION.load(Ordering::Relaxed)
    }

    /// A number that differs from that of each process before in the line of forks.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The number of the process that calls, where an owner was asked for before.
    #[inline]
    pub fn current_number() -> u64 {
        GENERATION.load(Ordering::Relaxed)
    }
}

/// A value that only the process which made it drops. A forked child leaves it as it is: locks may be held by threads that the child
/// does not have, and what the value names outside of the process is the parent's.
#[derive(Debug)]
pub struct DroppedByOwner<T> {
    owner: Owner,
    value: ManuallyDrop<T>,
}

impl<T> DroppedByOwner<T> {
    /// A value of the process that calls.
    pub fn new(value: T) -> Self {
        DroppedByOwner { owner: Owner::this_process(), value: ManuallyDrop::new(value) }
    }
}

impl<T> std::ops::Deref for DroppedByOwner<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for DroppedByOwner<T> {
    fn drop(&mut self) {
        if self.owner.is_this_process() {
            // SAFETY: dropped once, here, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A value that only the process which made it uses or drops: a forked child gets `None`.
#[derive(Debug)]
pub struct Owned<T>(DroppedByOwner<T>);

impl<T> Owned<T> {
    /// A value of the process that calls.
    pub fn new(value: T) -> Self {
        Owned(DroppedByOwner::new(value))
    }

    /// The value. `None`: this process was forked from the owner.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.owner.is_this_process().then_some(&*self.0.value)
    }

    /// The value, to be changed. `None`: this process was forked from the owner.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if self.0.owner.is_this_process() { Some(&mut *self.0.value) } else { None }
    }
}

unsafe extern "C" fn in_child() {
    let _uncancelled = crate::Uncancelled::begin();
    GENERATION.fetch_add(1, Ordering::AcqRel);
    crate::arena::forget_in_child();
    crate::guard::take_over_in_child();
    replace_in_child();
}

/// Descriptors that forked children do not keep; -1: none.
static KEPT: [AtomicI32; MAX_KEPT] = [const { AtomicI32::new(-1) }; MAX_KEPT];

/// A descriptor that forked children do not keep: they have /dev/null, which cannot be written, in its place. To be dropped before the descriptor is closed.
#[derive(Debug)]
pub struct KeptFromChildren {
    /// Where it stands in [`KEPT`]. `None`: there are too many, and children keep this one.
    place: Option<usize>,
    generation: u64,
}

impl KeptFromChildren {
    /// Has children that are forked from now on not keep this descriptor.
    pub fn new(descriptor: BorrowedFd<'_>) -> KeptFromChildren {
        let generation = generation();
        let number = descriptor.as_raw_fd();
        let take = |place: &AtomicI32| {
            place.compare_exchange(-1, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        KeptFromChildren { place: KEPT.iter().position(take), generation }
    }
}

impl Drop for KeptFromChildren {
    fn drop(&mut self) {
        if let Some(place) = self.place
            && self.generation == generation()
        {
            KEPT[place].store(-1, Ordering::Release);
        }
    }
}

/// Puts /dev/null in the place of descriptors: their numbers stay taken, as values of the parent will close them.
fn replace_in_child() {
    let mut null = -1;
    for place in &KEPT {
        let number = place.swap(-1, Ordering::AcqRel);
        if number < 0 {
            continue;
        }
        // SAFETY: open(2) of a string that ends with a NUL, and dup3(2) of descriptors of the child alone, which no other thread has
        // yet; all are async-signal-safe. The number is that of a value that lives, so that nobody else has it.
        unsafe {
            if null < 0 {
                null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            }
            // Without, the child keeps it: to close it would free a number that a value will close.
            if null >= 0 {
                libc::dup3(null, number, libc::O_CLOEXEC);
            }
        }
    }
    if null >= 0 {
        // SAFETY: opened above, and nobody else has it.
        unsafe { libc::close(null) };
    }
}

/// A value that each process has for itself: a forked child begins with its default. What its parent had is never touched again,
/// as a thread that the child does not have may have held its lock.
#[derive(Debug)]
pub struct PerProcess<T: 'static>(AtomicPtr<OfOne<T>>);

#[derive(Debug)]
struct OfOne<T> {
    generation: u64,
    value: Mutex<T>,
}

impl<T: Default + Send> PerProcess<T> {
    /// The value, not made yet.
    pub const fn new() -> Self {
        PerProcess(AtomicPtr::new(null_mut()))
    }

    /// This process's value, locked.
    pub fn lock(&self) -> MutexGuard<'static, T> {
        self.own().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process's value, if nobody has locked it.
    pub fn try_lock(&self) -> Option<MutexGuard<'static, T>> {
        match self.own().try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn own(&self) -> &'static Mutex<T> {
        let generation = generation();
        let there = self.0.load(Ordering::Acquire);
        // SAFETY: NULL, or from `Box::into_raw` below and never freed once it stands here.
        match unsafe { there.as_ref() } {
            Some(there) if there.generation == generation => return &there.value,
            _ => {}
        }
        let new = Box::into_raw(Box::new(OfOne { generation, value: Mutex::new(T::default()) }));
        match self.0.compare_exchange(there, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from `Box::into_raw`, and never freed now that it stands in the cell.
            Ok(_) => unsafe { &(*new).value },
            Err(others) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: from `Box::into_raw` of another thread of this process, and never freed now that it stands in the cell.
                unsafe { &(*others).value }
            }
        }
    }
}

/// A value that each process makes once, and keeps as long as it lives. A forked child begins without one.
#[derive(Debug)]
pub struct OncePerProcess<T: 'static>(AtomicPtr<ProcessValue<T>>);

#[derive(Debug)]
struct ProcessValue<T: 'static> {
    owner: Owner,
    value: T,
    /// That of the process before in the line of forks.
    former: *const ProcessValue<T>,
}

impl<T: Send + Sync> OncePerProcess<T> {
    /// The value, not made yet.
    pub const fn new() -> Self {
        OncePerProcess(AtomicPtr::new(null_mut()))
    }

    /// This process's value, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: NULL, or from `Box::into_raw` in `get_or_set` and never freed.
        let made = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        made.owner.is_this_process().then_some(&made.value)
    }

    /// This process's value, which is `value` if there was none.
    pub fn get_or_set(&self, value: T) -> &'static T {
        let former = self.0.load(Ordering::Acquire);
        if let Some(made) = self.get() {
            return made;
        }
        let new = Box::into_raw(Box::new(ProcessValue { owner: Owner::this_process(), value, former }));
        match self.0.compare_exchange(former, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: made above, and never freed from now on.
            Ok(_) => unsafe { &(*new).value },
            Err(others) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: another thread of this process has put it there; it is never freed.
                unsafe { &(*others).value }
            }
        }
    }

    /// The values of the processes that this one was forked from, the last one first.
    pub fn of_parents(&self) -> impl Iterator<Item = &'static T> {
        let mut next: *const ProcessValue<T> = self.0.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: NULL, or from `Box::into_raw` in `get_or_set` and never freed.
            let made: &'static ProcessValue<T> = unsafe { next.as_ref() }?;
            next = made.former;
            Some(made)
        })
        .filter(|made| !made.owner.is_this_process())
        .map(|made| &made.value)
    }
}

impl<T: Send + Sync> Default for OncePerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default + Send> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A lock of flock(2) ends with the last descriptor.
    #[test]
    fn a_forked_child_does_not_keep_a_descriptor() {
        let (reader, writer) = std::io::pipe().unwrap();
        let kept = KeptFromChildren::new(writer.as_fd());
        // SAFETY: the child only waits to be killed.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            loop {
                // SAFETY: pause(2) has no preconditions.
                unsafe { libc::pause() };
            }
        }
        drop((kept, writer));
        let mut ends = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: poll(2) of one descriptor; kill(2) and waitpid(2) of a child of this test's own.
        unsafe {
            libc::poll(&raw mut ends, 1, 10_000);
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, null_mut(), 0);
        }
        assert!(ends.revents & libc::POLLHUP != 0, "the child has the writing end still");
    }

    /// Whether `body` holds in a forked child. It must only do what is safe there.
    fn holds_in_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs the body, and ends by _exit(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let holds = body();
            // SAFETY: _exit(2) has no preconditions.
            unsafe { libc::_exit(i32::from(!holds)) };
        }
        let mut status = -1;
        // SAFETY: waitpid(2) of our own child, with a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    #[test]
    fn owned_value_is_neither_used_nor_dropped_in_child() {
        struct Dropped(*mut bool);
        impl Drop for Dropped {
            fn drop(&mut self) {
                // SAFETY: the test's own word, which outlives the value.
                unsafe { *self.0 = true };
            }
        }
        let mut is_dropped = false;
        let mut owned = Owned::new(Dropped(&raw mut is_dropped));
        assert!(owned.get().is_some() && owned.get_mut().is_some());
        let place = &raw mut is_dropped;
        assert!(holds_in_child(|| {
            let is_gone = owned.get().is_none() && owned.get_mut().is_none();
            // SAFETY: the child's own copy of the value, which its parent drops in another process.
            drop(unsafe { std::ptr::read(&raw const owned) });
            // SAFETY: the test's own word.
            is_gone && !unsafe { *place }
        }));
        drop(owned);
        assert!(is_dropped);
    }

    #[test]
    fn value_is_made_once_in_each_process() {
        static VALUE: OncePerProcess<u32> = OncePerProcess::new();
        assert_eq!(VALUE.get(), None);
        assert_eq!((VALUE.get_or_set(7), VALUE.get_or_set(8), VALUE.get()), (&7, &7, Some(&7)));
        assert_eq!(VALUE.of_parents().count(), 0);
        assert!(holds_in_child(|| {
            VALUE.get().is_none()
                && VALUE.of_parents().eq([&7])
                && (VALUE.get_or_set(9), VALUE.get()) == (&9, Some(&9))
                && VALUE.of_parents().eq([&7])
        }));
    }

    #[test]
    fn a_forked_child_begins_anew_whoever_had_the_lock() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        *VALUE.lock() = 7;
        let held = VALUE.lock();
        // SAFETY: the child only allocates, takes a lock that nobody else has seen, and ends by _exit(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let begins = VALUE.try_lock().is_some_and(|value| *value == 0);
            // SAFETY: _exit(2) has no preconditions.
            unsafe { libc::_exit(i32::from(!begins)) };
        }
        drop(held);
        let mut status = -1;
        // SAFETY: waitpid(2) of our own child, with a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        assert_eq!(*VALUE.lock(), 7);
    }
}

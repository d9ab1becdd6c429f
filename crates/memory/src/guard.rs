//! The few instructions that touch application memory directly, and the signal handler that mends their faults.
//!
//! The handler is installed when it is first needed, and passes every fault that is not at one of these
//! instructions on to the handler that was there before. A program may replace it (language runtimes do), and a
//! thread may block the signals: a [`Guard`] is only had where that is not so. Looking takes three system calls. Where
//! every change by way of the C library is seen (see [`watch`]), [`Guard::at_hand`] remembers what was found.

mod fork_window;
mod handler;
mod instructions;
mod program;
mod watch;

use crate::clock::tick;
use crate::protection_keys::AllKeysOpen;
use handler::{SIGNALS, install, is_ours};
use instructions::*;
use std::mem::MaybeUninit;

pub use fork_window::{ForkWindow, PlaceMemory, place_by};
pub(crate) use program::take_over_in_child;
pub use program::{SetAction, change as change_action, set_by};
pub use watch::{changes_are_seen, mask_has_changed};

/// Nothing could be read or written at the address.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault;

/// As long as it lives a fault of a guarded access on this thread is mended.
pub struct FaultGuard {
    /// Not `Send`: what was found is the thread's.
    _thread: std::marker::PhantomData<*const ()>,
}

/// As long as it lives a fault of a guarded access on this thread is mended. It may unblock signals in the thread's mask, and sets
/// the mask back when it is dropped.
pub struct Guard {
    mended: FaultGuard,
    /// The mask to be set again, where a signal was blocked.
    mask: Option<libc::sigset_t>,
}

impl Guard {
    /// What costs next to nothing to have; `None` where that cannot be known without asking the kernel each time, or
    /// where it was asked and the signals are blocked or somebody else's.
    #[inline]
    pub fn at_hand() -> Option<FaultGuard> {
        Guard::at_hand_at(tick())
    }

    /// [`at_hand`](Self::at_hand) for a caller that knows the present tick.
    #[inline]
    pub(crate) fn at_hand_at(now: u64) -> Option<FaultGuard> {
        let none_blocked = || Guard::enter_anew().is_some_and(|guard| guard.mask.is_none());
        watch::is_mended(now, none_blocked).then(FaultGuard::new)
    }

    /// Unblocks the signals if need be. `None`: somebody else handles them now.
    pub fn enter() -> Option<Self> {
        let at_hand = Guard::at_hand().map(|mended| Guard { mended, mask: None });
        at_hand.or_else(Guard::enter_anew)
    }

    #[cold]
    fn enter_anew() -> Option<Self> {
        install()?;
        if !SIGNALS.into_iter().all(is_ours) {
            return None;
        }
        let mut unblocked = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that the calls after it use; pthread_sigmask fills `before` where it
        // returns 0 (pthread_sigmask(3)).
        unsafe {
            libc::sigemptyset(unblocked.as_mut_ptr());
            for signal in SIGNALS {
                libc::sigaddset(unblocked.as_mut_ptr(), signal);
            }
            if libc::pthread_sigmask(libc::SIG_UNBLOCK, unblocked.as_ptr(), before.as_mut_ptr()) != 0 {
                return None;
            }
            let before = before.assume_init();
            let blocked = SIGNALS.into_iter().any(|signal| libc::sigismember(&before, signal) == 1);
            Some(Guard { mended: FaultGuard::new(), mask: blocked.then_some(before) })
        }
    }
}

impl std::ops::Deref for Guard {
    type Target = FaultGuard;

    fn deref(&self) -> &FaultGuard {
        &self.mended
    }
}

impl FaultGuard {
    fn new() -> Self {
        FaultGuard { _thread: std::marker::PhantomData }
    }

    /// Adds to the 8 aligned bytes at an address (sequentially consistent); gives what was there.
    pub fn fetch_add(&self, address: u64, add: u64) -> Result<u64, Fault> {
        assert_eq!(address % 8, 0, "atomics are aligned");
        let mut original = 0;
        // SAFETY: a fault at `address` is mended by our handler, which is in place and whose signals are unblocked (self). What
        // is written is application memory, to which the engine holds no references.
        let add = || unsafe { pagewire_guard_add(address, add, &mut original) };
        run(add).map(|()| original)
    }

    /// Replaces the 8 aligned bytes at an address if they are `compare` (sequentially consistent); gives what was
    /// there.
    pub fn compare_swap(&self, address: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        assert_eq!(address % 8, 0, "atomics are aligned");
        let mut original = 0;
        // SAFETY: as fetch_add.
        let swap = || unsafe { pagewire_guard_swap(address, compare, swap, &mut original) };
        run(swap).map(|()| original)
    }

    /// Copies application memory from an address on; 8, 4 or 2 bytes at once, as [`write`](Self::write). After a fault
    /// `into` may hold some of what was there before it.
    #[inline]
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: as fetch_add; the engine's side is borrowed for writing.
        run(|| unsafe { copy(into.as_mut_ptr() as u64, address, into.len()) })
    }

    /// Copies to application memory from an address on. 8, 4 or 2 bytes appear at once, where they lie in one cache line;
    /// of other lengths the order is not certain, but what an earlier call wrote appears before.
    #[inline]
    pub fn write(&self, from: &[u8], address: u64) -> Result<(), Fault> {
        // SAFETY: as fetch_add; the engine's side is borrowed.
        run(|| unsafe { copy(address, from.as_ptr() as u64, from.len()) })
    }

    /// Copies from one address to another, neither of which the engine holds references to; 8, 4 or 2 bytes at once, as
    /// [`write`](Self::write).
    #[inline]
    pub fn copy(&self, to: u64, from: u64, length: usize) -> Result<(), Fault> {
        // SAFETY: as fetch_add, at either address.
        run(|| unsafe { copy(to, from, length) })
    }

    /// Has the page at an address brought in, for writing too where `write`, without a change of its bytes. Waits as
    /// long as that takes.
    pub fn touch(&self, address: u64, write: bool) -> Result<(), Fault> {
        while !self.touch_until_ended(address, write)? {}
        Ok(())
    }

    /// Has the page at an address brought in, as [`touch`](Self::touch). False: [`end_touch`] ended the wait before the page came.
    pub fn touch_until_ended(&self, address: u64, write: bool) -> Result<bool, Fault> {
        // SAFETY: as fetch_add; the one writes nothing, the other what is there, atomically.
        let touch = || unsafe {
            if write { pagewire_guard_touch_write(address) } else { pagewire_guard_touch(address) }
        };
        let outcome = match touch() {
            FAULT => with_keys_open(touch),
            outcome => outcome,
        };
        match outcome {
            0 => Ok(true),
            2 => Ok(false),
            _ => Err(Fault),
        }
    }
}

/// What a guarded access gives that has met a fault.
const FAULT: i32 = 1;

/// Runs a guarded access, which gives 0 or [`FAULT`].
#[inline]
fn run(mut access: impl FnMut() -> i32) -> Result<(), Fault> {
    if access() == 0 || with_keys_open(access) == 0 { Ok(()) } else { Err(Fault) }
}

/// Runs an access that has met a fault once more, if a protection key may have been the cause.
#[cold]
fn with_keys_open(mut access: impl FnMut() -> i32) -> i32 {
    AllKeysOpen::open().map_or(FAULT, |_open| access())
}

/// Ends the wait of a [`touch_until_ended`](Mended::touch_until_ended) that is under way in another thread of this process, though its page may come some
/// day: user mode's waits for userfaultfd(2) end with a signal. Those inside system calls do not, nor any while the program has
/// taken the signals over. A thread that touches nothing notices nothing.
pub fn end_touch(thread: u32) {
    handler::send_end_of_touch(thread);
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mask) = &self.mask {
            // SAFETY: a mask that the kernel gave for this thread (a Guard does not leave its thread).
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
        }
    }
}

/// An atomic on memory that was found writable just before, while no fault could be mended: the program has taken
/// the signals over. Should it unmap the page between the look and the access, its own handler sees the fault, as
/// for any access of the program to memory that it unmaps while in use.
///
/// # Safety
/// 8 aligned bytes are mapped for reading and writing at the address.
pub(crate) unsafe fn unguarded(address: u64, operation: crate::AtomicOperation) -> u64 {
    let mut original = 0;
    // SAFETY: by the caller's promise the access does not fault.
    unsafe {
        match operation {
            crate::AtomicOperation::FetchAdd { add } => pagewire_guard_add(address, add, &mut original),
            crate::AtomicOperation::CompareSwap { compare, swap } => {
                pagewire_guard_swap(address, compare, swap, &mut original)
            }
        }
    };
    original
}

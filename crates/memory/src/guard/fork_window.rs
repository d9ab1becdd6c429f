//! The time of a fork(2) in which the child does not have all of its memory yet: from the last handler of the parent before the fork
//! to the first one of the child. The C library itself touches memory there.
//!
//! The first fault in it comes to [`place`], whose function puts the memory in its place. Nothing here allocates, takes a lock, or
//! reads a variable of the thread: the memory that is missing may hold them.

use super::handler::{current, for_program, install, is_ours};
use super::program::{self, action, keep_foreign};
use crate::signals::BlockedSignals;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Puts what a forked child has not yet in its place. True: there is memory at the address now. Async-signal-safe.
pub type PlaceMemory = fn(address: usize) -> bool;

static PLACE: AtomicPtr<()> = AtomicPtr::new(null_mut());
/// First address of the stack on which the handler runs during a fork.
static STACK: OnceLock<usize> = OnceLock::new();
/// Bytes of that stack.
const STACK_LENGTH: usize = 64 << 10;

/// Has `function` asked at each fault from now on, before the program's handler is. False: the handler cannot be installed.
pub fn place_by(function: PlaceMemory) -> bool {
    PLACE.store(function as *mut (), Ordering::Release);
    install().is_some() && make_stack()
}

/// Whether there is memory at the address of a fault now.
pub(super) fn place(address: usize) -> bool {
    let function = PLACE.load(Ordering::Acquire);
    if function.is_null() {
        return false;
    }
    // SAFETY: only `place_by` stores to PLACE, what it was given.
    let function = unsafe { std::mem::transmute::<*mut (), PlaceMemory>(function) };
    function(address)
}

fn make_stack() -> bool {
    if STACK.get().is_some() {
        return true;
    }
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let mapped = unsafe {
        libc::mmap(
            null_mut(),
            STACK_LENGTH,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    STACK.get_or_init(|| mapped as usize);
    true
}

/// What the thread that forks has set aside for the fork. It is ended in the parent and in the child. One exists at a time.
pub struct ForkWindow {
    stack: Option<libc::stack_t>,
    action: Option<libc::sigaction>,
    /// The thread's mask before SIGSEGV was unblocked.
    mask: libc::sigset_t,
    /// Dropped last: then pending signals come.
    signals: BlockedSignals,
}

impl ForkWindow {
    /// The calling thread is about to fork, and blocks its signals meanwhile. `places`: its child may fault.
    pub fn begin(signals: BlockedSignals, places: bool) -> Self {
        let mask = unblock_faults();
        let (stack, action) = if places { (take_stack(), take_action()) } else { (None, None) };
        ForkWindow { stack, action, mask, signals }
    }

    /// After the fork: the thread has its handler, its stack for signals and its mask again.
    pub fn end(self) {
        // SAFETY: what the kernel gave for this thread and this signal in `begin`.
        unsafe {
            if let Some(action) = &self.action {
                program::real(libc::SIGSEGV, action, null_mut());
            }
            if let Some(stack) = &self.stack {
                libc::sigaltstack(stack, null_mut());
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, null_mut());
        }
        drop(self.signals);
    }
}

/// Unblocks SIGSEGV in the calling thread: the kernel ends a process that faults while it is blocked. Gives the mask before.
fn unblock_faults() -> libc::sigset_t {
    let mut faults = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that the calls after it use; pthread_sigmask fills `before`, and does not fail with
    // SIG_UNBLOCK.
    unsafe {
        libc::sigemptyset(faults.as_mut_ptr());
        libc::sigaddset(faults.as_mut_ptr(), libc::SIGSEGV);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, faults.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Gives the thread the handler's stack, as its own may be missing in the child. The one before; `None`: it runs on that now.
fn take_stack() -> Option<libc::stack_t> {
    let ours =
        libc::stack_t { ss_sp: *STACK.get()? as *mut libc::c_void, ss_flags: 0, ss_size: STACK_LENGTH };
    let mut before = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: the stack is mapped for ever, and used by one fork at a time; sigaltstack(2) fills `before` where it returns 0.
    let taken = unsafe { libc::sigaltstack(&ours, before.as_mut_ptr()) == 0 };
    // SAFETY: filled, since the call succeeded.
    taken.then(|| unsafe { before.assume_init() })
}

/// Puts our handler where a runtime has replaced it past the C library, or where it would not use the stack. The one before.
fn take_action() -> Option<libc::sigaction> {
    let before = current(libc::SIGSEGV).ok()?;
    let is_ours = is_ours(libc::SIGSEGV);
    if is_ours && before.sa_flags & libc::SA_ONSTACK != 0 {
        return None;
    }
    if !is_ours {
        keep_foreign(libc::SIGSEGV, &before);
    }
    let mut ours = for_program(&if is_ours { action(0) } else { before });
    ours.sa_flags |= libc::SA_ONSTACK;
    // SAFETY: our handler, which passes on to the program's what is not for it.
    let taken = unsafe { program::real(libc::SIGSEGV, &ours, null_mut()) == 0 };
    taken.then_some(before)
}

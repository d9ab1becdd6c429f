//! Signals held off from a thread while it has something that a handler of the same thread may want too, or may not see half done.

use std::mem::MaybeUninit;

/// Signals that an instruction raises. The kernel ends a process whose thread blocks them.
const RAISED: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// While it lives, its thread takes no signal but those that an instruction raises. May be nested.
#[must_use = "signals are blocked only while it lives"]
pub struct BlockedSignals {
    before: libc::sigset_t,
    /// Not `Send`: the mask is the thread's.
    _thread: std::marker::PhantomData<*const ()>,
}

impl BlockedSignals {
    /// From now on. Async-signal-safe.
    pub fn begin() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset initialises the set that the calls after it use; pthread_sigmask fills `before`, and does not fail with
        // SIG_BLOCK (pthread_sigmask(3)).
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in RAISED {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        BlockedSignals { before, _thread: std::marker::PhantomData }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the mask that the kernel gave for this thread: a value does not leave its thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

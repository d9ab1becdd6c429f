//! Threads of the engine: the program's signals are not for them.

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Signals that an access or instruction of the thread itself raises; they stay open.
const OWN: [i32; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// Starts a thread that takes no signal from the program, whatever thread of the program calls: a handler of the program must
/// find itself on one of the program's threads, and sigwait(3) must get what is meant for it.
///
/// # Errors
/// The kernel's: no thread can be had.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // A new thread begins with its maker's mask (pthread_create(3)), so that no signal comes between.
    // SAFETY: sigfillset(3) initialises the set that the calls after it use; pthread_sigmask(3) changes this thread only, and
    // fills `before` where it returns 0.
    let failed = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in OWN {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr())
    };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let started = Builder::new().name(name.into()).spawn(body);
    // SAFETY: `before` was filled by the successful call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

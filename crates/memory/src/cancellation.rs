//! pthread_cancel(3) held off from the engine.
//!
//! A cancelled thread unwinds from the next cancellation point that it comes by, such as close(2), even where the program sees
//! none: of the verbs only those that sleep for an event may be one (pthreads(7)). Rust frames must not be unwound so; the C
//! library ends the process. Hot paths make bare system calls, which are no cancellation points; everything else that calls
//! the C library in a thread of the program does it under [`Uncancelled`].

use std::ffi::c_int;

/// pthread.h
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While it lives its thread is not cancelled; a cancellation waits. May be nested.
#[must_use = "cancellation is held off only while it lives"]
pub struct Uncancelled {
    before: c_int,
    /// Not `Send`: the state is the thread's.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Uncancelled {
    /// From now on.
    pub fn begin() -> Self {
        let mut before = 0;
        // SAFETY: writes the state before into a local variable; the state is one that exists, so that it cannot fail
        // (pthread_setcancelstate(3)).
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        Uncancelled { before, _thread: std::marker::PhantomData }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: `before` is the state that `begin` got from this thread; NULL asks for no answer (glibc, musl).
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> c_int {
        let (mut now, mut ours) = (0, 0);
        // SAFETY: both states exist and both answers are local variables.
        unsafe {
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut now);
            pthread_setcancelstate(now, &mut ours);
        }
        now
    }

    #[test]
    fn the_state_is_the_same_afterwards() {
        let before = state();
        assert_ne!(before, PTHREAD_CANCEL_DISABLE);
        let outer = Uncancelled::begin();
        drop(Uncancelled::begin());
        assert_eq!(state(), PTHREAD_CANCEL_DISABLE);
        drop(outer);
        assert_eq!(state(), before);
    }
}

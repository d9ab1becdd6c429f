//! The edge between C and Rust: no panic crosses it, every refusal becomes an `errno` value.

use crate::calls::{self, Call};
use crate::runtime::messages::tell_shortage;
use libc::{EINVAL, EIO, c_int};
use pagewire_memory::Uncancelled;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An `errno` value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// The result of a verb.
pub type Result<T> = std::result::Result<T, Errno>;

impl From<pagewire_nic::Error> for Errno {
    fn from(error: pagewire_nic::Error) -> Self {
        log::debug!("refused: {error}");
        tell_shortage(error.errno());
        Errno(error.errno())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(EIO);
        tell_shortage(errno);
        Errno(errno)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Errno(error.raw_os_error())
    }
}

/// Refuses an argument, saying why to whoever set `PAGEWIRE_LOG=debug`.
pub fn invalid<T>(why: &str) -> Result<T> {
    log::debug!("refused: invalid argument: {why}");
    Err(Errno(EINVAL))
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: glibc's `__errno_location` gives the calling thread's own variable, valid for the thread's life.
    unsafe { *libc::__errno_location() = value };
}

/// Runs what C has called; a panic (a defect of Pagewire) is EIO.
#[inline(always)]
pub fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Errno(EIO)))
}

/// Runs a verb, guarded. `value` is what observers see of its result.
#[inline(always)]
fn caught<T>(call: impl Into<Call>, value: fn(&T) -> usize, verb: impl FnOnce() -> Result<T>) -> Result<T> {
    guarded(|| match calls::are_observed() {
        false => verb(),
        true => calls::observed(call.into(), value, verb),
    })
}

/// For verbs that give 0 or an `errno` value; `errno` is set too, as programs look at either.
pub fn status(call: impl Into<Call>, verb: impl FnOnce() -> Result<()>) -> c_int {
    let _uncancelled = Uncancelled::begin();
    quick_status(call, verb)
}

/// [`status`] of verbs that count in nanoseconds: nothing below them may call a cancellation point of the C library.
pub fn quick_status(call: impl Into<Call>, verb: impl FnOnce() -> Result<()>) -> c_int {
    status_of(caught(call, |()| 0, verb))
}

/// [`quick_status`] of the verbs in the tables of a context, whose observers have functions of their own ([`calls::fast`]).
pub fn table_status(verb: impl FnOnce() -> Result<()>) -> c_int {
    status_of(guarded(verb))
}

fn status_of(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(value)) => {
            set_errno(value);
            value
        }
    }
}

/// For verbs that give a number, or -1 with `errno` set.
pub fn number(call: impl Into<Call>, verb: impl FnOnce() -> Result<c_int>) -> c_int {
    let _uncancelled = Uncancelled::begin();
    number_of(caught(call, |number| *number as usize, verb))
}

/// [`number`] of functions that are no verbs, or parts of one: nobody observes them.
pub fn unobserved_number(function: impl FnOnce() -> Result<c_int>) -> c_int {
    let _uncancelled = Uncancelled::begin();
    number_of(guarded(function))
}

fn number_of(result: Result<c_int>) -> c_int {
    match result {
        Ok(number) => number,
        Err(Errno(value)) => {
            set_errno(value);
            -1
        }
    }
}

/// For verbs that give a pointer, or NULL with `errno` set.
pub fn pointer<T>(call: impl Into<Call>, verb: impl FnOnce() -> Result<*mut T>) -> *mut T {
    let _uncancelled = Uncancelled::begin();
    quick_pointer(call, verb)
}

/// [`pointer`] of verbs that count in nanoseconds, as [`quick_status`].
pub fn quick_pointer<T>(call: impl Into<Call>, verb: impl FnOnce() -> Result<*mut T>) -> *mut T {
    pointer_of(caught(call, |pointer| *pointer as usize, verb))
}

/// [`pointer`] of functions that are no verbs: nobody observes them.
pub fn unobserved_pointer<T>(function: impl FnOnce() -> Result<*mut T>) -> *mut T {
    let _uncancelled = Uncancelled::begin();
    pointer_of(guarded(function))
}

fn pointer_of<T>(result: Result<*mut T>) -> *mut T {
    match result {
        Ok(pointer) => pointer,
        Err(Errno(value)) => {
            set_errno(value);
            std::ptr::null_mut()
        }
    }
}

/// For verbs that give nothing, and cannot be refused. A panic ends the verb where it is.
pub fn nothing(call: impl Into<Call>, verb: impl FnOnce()) {
    let run = || {
        match calls::are_observed() {
            false => verb(),
            true => calls::observed_always(call.into(), verb),
        }
        Ok(())
    };
    if let Err(Errno(error)) = guarded(run) {
        set_errno(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_failures::Verb;

    #[test]
    fn a_panic_is_an_input_output_error() {
        assert_eq!(status(Verb::DeregMr, || panic!("a defect")), EIO);
        assert_eq!(number(Verb::QueryGid, || panic!("a defect")), -1);
        assert!(pointer::<u8>(Verb::RegMr, || panic!("a defect")).is_null());
        assert_eq!(table_status(|| panic!("a defect")), EIO);
        assert_eq!(unobserved_number(|| panic!("a defect")), -1);
        assert!(unobserved_pointer::<u8>(|| panic!("a defect")).is_null());
        nothing(Verb::AckCqEvents, || panic!("a defect"));
    }

    #[test]
    fn refusals_set_errno() {
        assert_eq!(number(Verb::QueryGid, || Err(Errno(libc::ENODATA))), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENODATA));
    }
}

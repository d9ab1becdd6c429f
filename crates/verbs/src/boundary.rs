//! The edge between C and Rust: no panic crosses it, every refusal becomes an `errno` value.

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

/// Runs a verb; a panic (a defect of Pagewire) is EIO.
fn caught<T>(verb: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(verb)).unwrap_or(Err(Errno(EIO)))
}

/// For verbs that give 0 or an `errno` value; `errno` is set too, as programs look at either.
pub fn status(verb: impl FnOnce() -> Result<()>) -> c_int {
    let _uncancelled = Uncancelled::begin();
    quick_status(verb)
}

/// [`status`] of verbs that count in nanoseconds: nothing below them may call a cancellation point of the C library.
pub fn quick_status(verb: impl FnOnce() -> Result<()>) -> c_int {
    match caught(verb) {
        Ok(()) => 0,
        Err(Errno(value)) => {
            set_errno(value);
            value
        }
    }
}

/// For verbs that give a number, or -1 with `errno` set.
pub fn number(verb: impl FnOnce() -> Result<c_int>) -> c_int {
    let _uncancelled = Uncancelled::begin();
    match caught(verb) {
        Ok(number) => number,
        Err(Errno(value)) => {
            set_errno(value);
            -1
        }
    }
}

/// For verbs that give a pointer, or NULL with `errno` set.
pub fn pointer<T>(verb: impl FnOnce() -> Result<*mut T>) -> *mut T {
    let _uncancelled = Uncancelled::begin();
    quick_pointer(verb)
}

/// [`pointer`] of verbs that count in nanoseconds, as [`quick_status`].
pub fn quick_pointer<T>(verb: impl FnOnce() -> Result<*mut T>) -> *mut T {
    match caught(verb) {
        Ok(pointer) => pointer,
        Err(Errno(value)) => {
            set_errno(value);
            std::ptr::null_mut()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_input_output_error() {
        assert_eq!(status(|| panic!("a defect")), EIO);
        assert_eq!(number(|| panic!("a defect")), -1);
        assert!(pointer::<u8>(|| panic!("a defect")).is_null());
    }

    #[test]
    fn refusals_set_errno() {
        assert_eq!(number(|| Err(Errno(libc::ENODATA))), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENODATA));
    }
}

//! The edge between C and Rust: no panic crosses it, and every refusal becomes a code and a sentence.

use crate::error::{Refusal, pw_error};
use pagewire_memory::Uncancelled;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr::NonNull;

/// The result of what a call does.
pub type Result<T> = std::result::Result<T, Refusal>;

/// Runs a call. A panic is a defect of Pagewire. The thread cannot be cancelled meanwhile, as Rust frames cannot be unwound by that.
pub fn call(body: impl FnOnce() -> Result<()>) -> pw_error {
    let _uncancelled = Uncancelled::begin();
    ffi_call(body)
}

/// [`call`] of one that gives something else than a code; `refused` makes it of the code of a refusal.
pub fn give<T>(body: impl FnOnce() -> Result<T>, refused: impl FnOnce(pw_error) -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    ffi_call_give(body, refused)
}

/// [`call`] of those that count in nanoseconds: nothing below them may call a cancellation point of the C library.
pub fn ffi_call(body: impl FnOnce() -> Result<()>) -> pw_error {
    ffi_call_give(|| body().map(|()| pw_error::PW_OK), |code| code)
}

/// [`give`] of those that count in nanoseconds, as [`ffi_call`].
pub fn ffi_call_give<T>(body: impl FnOnce() -> Result<T>, refused: impl FnOnce(pw_error) -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(refusal)) => refused(refusal.record()),
        Err(_) => refused(Refusal::new(pw_error::PW_DEFECT, DEFECT).record()),
    }
}

const DEFECT: &str =
    "this is a defect of Pagewire: please report it, with the lines on the standard error output";

/// A place for a result. `name` is that of the argument.
pub fn place<T>(pointer: *mut T, name: &str) -> Result<NonNull<T>> {
    NonNull::new(pointer).filter(|pointer| pointer.is_aligned()).ok_or_else(|| {
        Refusal::argument(format!(
            "'{name}' is {}: it must be the address of a {}",
            wrong(pointer),
            short::<T>()
        ))
    })
}

/// The bytes at an address, or no bytes at any. `name` is that of the argument.
pub fn bytes(pointer: *const u8, length: usize, name: &str) -> Result<NonNull<u8>> {
    let start = NonNull::new(pointer.cast_mut());
    match start {
        None if length == 0 => Ok(NonNull::dangling()),
        None => Err(Refusal::argument(format!("'{name}' is NULL, and {length} bytes are asked for"))),
        Some(start)
            if (pointer as usize).checked_add(length).is_some() && isize::try_from(length).is_ok() =>
        {
            Ok(start)
        }
        Some(_) => {
            Err(Refusal::argument(format!("{length} bytes at '{name}' are more than an address space has")))
        }
    }
}

/// The bytes of an argument. `name` is that of the argument.
///
/// # Safety
/// So many bytes that nobody changes during the call.
pub unsafe fn bytes_of<'n>(start: *const c_void, length: usize, name: &str) -> Result<&'n [u8]> {
    let start = bytes(start.cast(), length, name)?;
    // SAFETY: the caller's promise; `bytes` has found that they fit into an address space, and gives an address for none.
    Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
}

/// The elements of an argument. `name` is that of the argument.
///
/// # Safety
/// So many elements that nobody changes during the call.
pub unsafe fn array<'a, T>(first: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let start = place(first.cast_mut(), name)?;
    bytes(first.cast(), count.saturating_mul(size_of::<T>()), name)?;
    // SAFETY: the caller's promise; aligned, in an address space.
    Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), count) })
}

/// The place of a result that nobody has to ask for. `name` is that of the argument.
pub fn optional<T>(pointer: *mut T, name: &str) -> Result<Option<NonNull<T>>> {
    if pointer.is_null() { Ok(None) } else { place(pointer, name).map(Some) }
}

/// A path of a file. `name` is that of the argument.
///
/// # Safety
/// NULL, or a string that ends with a NUL.
pub unsafe fn path_of(path: *const c_char, name: &str) -> Result<PathBuf> {
    let path = NonNull::new(path.cast_mut()).ok_or_else(|| Refusal::argument(format!("'{name}' is NULL")))?;
    // SAFETY: `path` is not NULL, as checked here; pagewire.h asks for a string with a NUL at its end that is valid for the call.
    Ok(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(path.as_ptr()) }.to_bytes())))
}

fn wrong<T>(pointer: *const T) -> &'static str {
    if pointer.is_null() { "NULL" } else { "not aligned" }
}

fn short<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code() {
        assert_eq!(call(|| panic!("a defect")), pw_error::PW_DEFECT);
        assert_eq!(give(|| panic!("a defect"), |_| 7), 7);
    }

    #[test]
    fn bytes_lie_in_an_address_space() {
        assert!(bytes(std::ptr::null(), 0, "bytes").is_ok());
        assert!(bytes(std::ptr::null(), 1, "bytes").is_err());
        assert!(bytes(8 as *const u8, usize::MAX, "bytes").is_err());
        assert!(bytes(8 as *const u8, usize::MAX - 8, "bytes").is_err());
        let at = std::ptr::without_provenance_mut::<u64>;
        assert!(place(at(8), "place").is_ok() && place(at(4), "place").is_err());
    }
}

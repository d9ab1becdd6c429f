//! How the structures that programs hold stand for the engine's objects.
//!
//! Each object is one allocation that begins with the public structure (`struct ibv_pd` and so on); behind it lie
//! the engine's handle and the epoch in which it was made. A pointer to the structure is a pointer to the object.

use crate::boundary::{Errno, Result};
use crate::calls;
use crate::checking::retire;
use crate::objects::held::epoch;
use libc::{EINVAL, EIO};

/// An object that begins with a structure of the C ABI, `Public`, which programs see.
///
/// # Safety
/// The type is `repr(C)` and its first field is `Public` (or an `UnsafeCell` of it, or a longer structure that begins with it).
pub unsafe trait Object<Public>: Sized {
    /// The epoch in which the object was made (see [`epoch`]).
    fn epoch(&self) -> u32;

    /// Hands the object to the program.
    fn publish(self: Box<Self>) -> *mut Public {
        Box::into_raw(self).cast()
    }

    /// The object behind a program's pointer: NULL is EINVAL, an object of the parent of this forked process EIO.
    ///
    /// # Safety
    /// `public` is NULL or came from [`publish`](Self::publish) of this very type, and was not taken back; that is
    /// the contract of every verb with its caller.
    unsafe fn of<'a>(public: *const Public) -> Result<&'a Self> {
        // SAFETY: `public` is NULL or came from `publish` and was not taken back; the first-field rule of `repr(C)`
        // makes the cast right. Programs write only to the public structure, which lies in an `UnsafeCell`.
        let object = unsafe { public.cast::<Self>().as_ref() }.ok_or(Errno(EINVAL))?;
        if object.epoch() == epoch() { Ok(object) } else { Err(Errno(EIO)) }
    }

    /// Whether a program's pointer names an object of the parent of this forked process.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    unsafe fn is_of_parent(public: *const Public) -> bool {
        // SAFETY: the caller promises what `of` asks: `public` is NULL or came from `publish`, and was not taken back.
        matches!(unsafe { Self::of(public) }, Err(Errno(EIO)))
    }

    /// Frees the object, which has ended.
    ///
    /// # Safety
    /// As for [`of`](Self::of), and nobody uses the object any more.
    unsafe fn free(public: *mut Public) {
        // SAFETY: the pointer came from `Box::into_raw` in `publish`, and the caller promises that nobody uses the object any more.
        let object = unsafe { Box::from_raw(public.cast::<Self>()) };
        if calls::are_observed() {
            retire(object);
        }
    }
}

/// Writes through a program's pointer unless it is NULL.
///
/// # Safety
/// `place` is NULL or valid for a write.
pub unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller promises that `place` is NULL or valid for a write, and it is not NULL.
        unsafe { place.write(value) };
    }
}

/// Refuses a NULL that a program passes by mistake.
pub fn not_null<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(Errno(EINVAL)) } else { Ok(pointer) }
}
